"""The one line at the end of a training, with a verdict where somebody gives one."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import shlex
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from mpprof.record.aside import FAILURES, aside

log = logging.getLogger("mpprof")

Announce = Callable[[Path], str | None]

AUDIT = "mpprof.auditing:announce"

PATIENCE_SECONDS = 60.0
"""A verdict on the largest traces takes seconds; `fit` is not held up longer than this."""

ANNOUNCE = "mpprof.workflows:announce"
"""Where the verdict comes from: a name, resolved when needed, so that recording imports no judgement."""


def last_line(announce: Announce | str | None, root: Path, summary: Callable[..., str]) -> str:
    """What was recorded, the verdict, and the command that shows more. `summary` is asked for a median step
    time only where no verdict states one: two figures of one thing are one too many."""
    sentence = verdict(announce, root)
    said = summary(median=sentence is None)
    return " ".join(filter(None, [f"mpprof: {said}.", sentence, f"More: mpprof report {_shown(root)}"]))


def verdict(announce: Announce | str | None, root: Path) -> str | None:
    """The sentence, or None: judging is an extra, and its failure is no failure of recording."""
    try:
        if isinstance(announce, str):
            announce = _named(announce)
        return aside(announce, root, deadline_s=PATIENCE_SECONDS) if announce is not None else None
    except FAILURES as error:  # see above; `mpprof report` will say what is wrong
        log.debug("no verdict", exc_info=error)
        return None


def audit_lines(model: Any, batch_size: int | None) -> list[str]:
    """What to say of the model before its first step; nothing where looking it over fails: it is an extra."""
    try:
        return list(aside(_named(AUDIT), model, batch_size, deadline_s=PATIENCE_SECONDS))
    except FAILURES as error:  # see above
        log.debug("no audit", exc_info=error)
        return []


def _named(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def _shown(root: Path) -> str:
    """As it can be pasted behind a command."""
    try:
        near = root.is_relative_to(Path.cwd())
    except OSError:  # the working directory is gone
        near = False
    return shlex.quote(os.path.relpath(root) if near else str(root))


def tell(lines: Iterable[str]) -> None:
    """Print; where nobody can read it any more (stdout is closed), nothing."""
    with contextlib.suppress(OSError, ValueError):
        for line in lines:
            print(line, flush=True)
