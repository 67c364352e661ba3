"""The one line at the end of a training, with a verdict where somebody gives one."""

from __future__ import annotations

import contextlib
import importlib
import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from mpprof.model.shell import quoted
from mpprof.record.run_with_timeout import FAILURES, in_own_process, raise_if_signalled, say, with_timeout
from mpprof.store import find_runs, formats

log = logging.getLogger("mpprof")

Announce = Callable[[Path], str | None]

AUDIT = "mpprof.api.auditing:announce"

PATIENCE_SECONDS = 60.0
"""A verdict on the largest traces takes seconds; `fit` is not delayed longer than this."""

ENDING = "mpprof.api.inline:ending"
"""Where the summary and the report for sinks come from."""

ANNOUNCE = "mpprof.api.workflows:announce"
"""Where the verdict comes from: a name, resolved when needed, so that recording imports no judgement."""

MOST_RATIO = 0.05
"""Of a process' time that mpprof's own verdicts may take, after the first one."""


class Verdicts:
    """How long the last of mpprof's own verdicts of this process took, and when it was given."""

    def __init__(self) -> None:
        self._took_s = self._given_s = 0.0

    def may_be_given(self) -> bool:
        """Return whether another one would take little of the time since: the fits of a search end each few
        seconds."""
        return self._took_s <= MOST_RATIO * (time.monotonic() - self._given_s)

    @contextlib.contextmanager
    def given(self) -> Iterator[None]:
        """Note how long the verdict takes that is given within."""
        begin_s = time.monotonic()
        try:
            yield
        finally:
            self._given_s = time.monotonic()
            self._took_s = self._given_s - begin_s


VERDICTS = Verdicts()


def last_line(announce: Announce | str | None, root: Path, summary: Callable[..., str]) -> str:
    """Return what was recorded, the verdict, and the command that shows more. `summary` is asked for a step
    time only where no verdict states one, so that the line does not state two."""
    sentence = verdict(announce, root)
    recorded = summary(step_time=sentence is None)
    return _in_one_line(filter(None, [f"mpprof: {recorded}.", sentence, f"More: {command(root)}"]))


def verdict(announce: Announce | str | None, root: Path) -> str | None:
    """Return the sentence, or None: judging is an extra, and its failure is no failure of recording. What is
    given by its name runs in a process of its own; a function is run here, and left behind if it hangs."""
    try:
        if announce is None:
            return None
        sentence: str | None
        if isinstance(announce, str):
            sentence = in_own_process(announce, root, deadline_s=PATIENCE_SECONDS)
        else:
            sentence = with_timeout(announce, root, deadline_s=PATIENCE_SECONDS)
        return sentence
    except FAILURES as error:  # see above; `mpprof report` will say what is wrong
        raise_if_signalled(error)
        say(log.debug, "no verdict", exc_info=error)
        return None


def ending(root: Path) -> tuple[dict[str, float | str], str]:
    """Return the summary of a run and its report as HTML, made in a process of its own. Raises where that
    fails or takes too long."""
    summary, page = in_own_process(ENDING, root, deadline_s=PATIENCE_SECONDS)
    return summary, page


def audit_lines(model: Any, batch_size: int | None) -> list[str]:
    """Return what to say of the model before its first step; nothing where the audit fails, because it is an
    extra."""
    try:
        return list(with_timeout(named(AUDIT), model, batch_size, deadline_s=PATIENCE_SECONDS))
    except FAILURES as error:  # see above
        raise_if_signalled(error)
        say(log.debug, "no audit", exc_info=error)
        return []


def named(name: str) -> Callable[..., Any]:
    """Return what `module:name` names. Recording imports it only where it is needed."""
    module, _, attribute = name.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found


def command(root: Path) -> str:
    """Return the command that shows more of the run in this very directory, as it can be pasted into a
    shell."""
    return f"mpprof report {quoted(place(root))}"


def place(root: Path) -> str:
    """Return the path of the run in this very directory: where other runs lie below it, that of its records,
    which holds no other."""
    try:
        found = with_timeout(find_runs, root)
    except FAILURES as error:  # it cannot be looked through now
        raise_if_signalled(error)
        found = ()
    several = root in found and len(found) > 1
    return _near(formats.folder_of(root) if several else root)


def _near(path: Path) -> str:
    """Return the path relative to the working directory, where it lies below that."""
    try:
        near = path.is_relative_to(Path.cwd())
    except OSError:  # the working directory is gone
        near = False
    shown = os.path.relpath(path) if near else str(path)
    return os.path.join(os.curdir, shown) if shown.startswith("-") else shown


def _in_one_line(parts: Iterable[str]) -> str:
    return " ".join(map(str, parts)).replace("\r", " ").replace("\n", " ")


def tell(lines: Iterable[str]) -> None:
    """Print; nothing where nobody can read it any more (stdout is closed), or what stands in stdout's place
    fails or cannot be flushed."""
    for line in lines:
        say(print, line)
        say(print, end="", flush=True)
