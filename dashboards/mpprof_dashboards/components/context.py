"""What a page is given: the source, the choice, and the documents of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from mpprof.errors import MpprofError, NotFoundError
from mpprof.model.source import RunEntry, RunSource, on_host
from mpprof_dashboards.choice import Choice
from mpprof_dashboards.components.text import sentence

if TYPE_CHECKING:
    from mpprof.model.report import Report

NOT_STATED = "The reason is not stated in the report."


@dataclass(frozen=True, slots=True)
class Context:
    """One rendering of a page. Whatever is asked of the source may raise MpprofError."""

    source: RunSource
    entries: tuple[RunEntry, ...]
    choice: Choice
    search: str = ""
    by_host: bool = False  # the page shows what one host saw

    @property
    def run(self) -> str:
        """The id of the chosen run, on a page `by_host` as the chosen host saw it. Raises NotFoundError if
        there is no such run."""
        if self.choice.run is None or self.entry is None:
            raise NotFoundError(
                f"there is no run {self.choice.run!r} here", next="Choose one of the runs in the list above."
            )
        return on_host(self.choice.run, self.choice.host if self.by_host else None)

    @property
    def entry(self) -> RunEntry | None:
        return next((entry for entry in self.entries if entry.id == self.choice.run), None)

    def report(self) -> Report:
        return self.source.report(self.run, self.choice.baseline)

    def name_of(self, run: str | None) -> str:
        return next((entry.name for entry in self.entries if entry.id == run), str(run))


def listed(source: RunSource) -> tuple[tuple[RunEntry, ...], MpprofError | None]:
    """Return the runs that can be chosen, or none and the reason: the directory may be gone by now."""
    try:
        return source.entries(), None
    except MpprofError as error:
        return (), error


@dataclass(frozen=True, slots=True)
class Page:
    """One page: `layout` makes its content; `register` adds its own callbacks to an app, if it has any. These
    may name graphs, inputs and empty elements with an id: other plain elements are sent as HTML text."""

    path: str
    title: str
    layout: Callable[[Context], Any]
    register: Callable[[Any, RunSource], None] | None = None
    heading: bool = False  # its layout holds the page's <h1>
    by_host: bool = False  # of a run on several hosts it shows one of them


HOW_TO_PROFILE = 'Open a profile window: MPProfilerCallback(logdir, profile_steps="auto").'


def why_absent(document: Report, *fields: str) -> str:
    """Return the report's reason, as a sentence, for the first of `fields` ("memory", "steps.skipped") that
    has one. A reason for the bare name ("skipped"), which comes from run.json, counts too."""
    absent = document.absent
    names = [name for field in fields for name in (field, field.rpartition(".")[2])]
    return sentence(next((absent[name] for name in names if absent.get(name)), NOT_STATED))
