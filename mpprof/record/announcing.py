"""The one line at the end of a training, with a verdict where somebody gives one."""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable
from pathlib import Path

log = logging.getLogger("mpprof")

Announce = Callable[[Path], str | None]

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
        return announce(root) if callable(announce) else None
    except Exception as error:  # see above; `mpprof report` will say what is wrong
        log.debug("no verdict", exc_info=error)
        return None


def _shown(root: Path) -> str:
    return os.path.relpath(root) if root.is_relative_to(Path.cwd()) else str(root)
