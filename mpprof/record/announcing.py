"""The one line at the end of a training, with a verdict where somebody gives one."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

from mpprof.record.aside import FAILURES, aside

log = logging.getLogger("mpprof")

Announce = Callable[[Path], str | None]

PATIENCE_SECONDS = 60.0
"""A verdict on the largest traces takes seconds; `fit` is not held up longer than this."""

ANNOUNCE = "mpprof.workflows:announce"
"""Where the verdict comes from: a name, resolved when needed, so that recording imports no judgement."""


def last_line(announce: Announce | str | None, root: Path, summary: str) -> str:
    """What was recorded, the verdict, and the command that shows more."""
    verdict = _verdict(announce, root)
    return " ".join(filter(None, [f"mpprof: {summary}.", verdict, f"More: mpprof report {_shown(root)}"]))


def _verdict(announce: Announce | str | None, root: Path) -> str | None:
    """The sentence, or None: judging is an extra, and its failure is no failure of recording."""
    try:
        if isinstance(announce, str):
            module, _, name = announce.partition(":")
            announce = getattr(importlib.import_module(module), name)
        return aside(announce, root, deadline_s=PATIENCE_SECONDS) if callable(announce) else None
    except FAILURES as error:  # see above; `mpprof report` will say what is wrong
        log.debug("no verdict", exc_info=error)
        return None


def _shown(root: Path) -> str:
    return os.path.relpath(root) if root.is_relative_to(Path.cwd()) else str(root)
