"""From a path to runs: where they lie, which one is meant, its records and its traces."""

from __future__ import annotations

import errno
import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice, takewhile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpprof import traces
from mpprof.errors import MpprofError, NotFoundError, SeveralRunsError, UnreadableError, UsageError
from mpprof.folders import names_in, walk
from mpprof.model.frozen import frozen
from mpprof.model.run import BROKEN_OFF, NO_END, Run, RunFacts, how_broken_off
from mpprof.model.run_time import RECORDING_ENDED
from mpprof.model.steps import StepTable
from mpprof.runs import hosts
from mpprof.traces.common import file_head

if TYPE_CHECKING:
    from mpprof.store import Records

Given = str | os.PathLike[str] | Run
"""What a run is given by: its path, or the run itself."""
Several = list[Any] | tuple[Any, ...]
"""Of `Given`; a `Sequence` would take a path's letters for its items."""

GIVE_A_PATH = "Give a log directory or a trace file"
CHECK = "Check its permissions"
_MOST_NAMED = 3
"""How many directories or files a warning or an error names."""
_MOST_LOOKED_AT = 100
MOST_LISTED = 20
"""Of runs to choose from: more are `mpprof ls`'s to list."""


@frozen
class Place:
    """Where a run lies: `root` holds records, or is a lone trace file, the last of `files`. Its reading rests
    on these."""

    name: str
    root: Path
    files: tuple[Path, ...]
    nested: tuple[Path, ...] = ()  # run roots under this one
    found: bool = False  # a lone trace that was found in a directory, not named by the user

    def read(self, most_bytes: int | None = None) -> Run:
        """Read the records, but only the beginning and the end of a log longer than `most_bytes`; raises
        UnreadableError, TooNewError, and NotFoundError where it has gone since it was found."""
        return _lone(self) if self.root in self.files else _recorded(self, most_bytes)


def places(path: Path, *, every: bool = False) -> tuple[Place, ...]:
    """Return every place under a path that holds a run: directories with records, else lone traces. `every`:
    also where a folder may be one session with a trace of each format.

    A file is one run without records, unless it is one of a run's records; what lies at an address (https,
    s3, gs) is fetched. Empty where there is nothing; raises NotFoundError for a missing path.
    """
    try:
        there = path.exists()
    except OSError as error:
        raise UnreadableError(f"cannot be reached: {error.strerror}", where=str(path), next=CHECK) from error
    if not there:
        path = _fetched(path)
    if path.is_file() and not _is_record(path):
        return (Place(path.name, path, (path,)),)
    if not path.is_dir() and not path.is_file():
        raise UnreadableError(
            "is neither a regular file nor a directory", where=str(path), next=f"{GIVE_A_PATH}."
        )
    from mpprof import store

    roots = store.find_runs(path)
    if not roots:
        return _lone_places(path, traces.find_traces(path, links=True, every=every))
    if not roots[0].is_relative_to(path):
        return (_place(roots[0], path, store.find_runs(roots[0])),)  # the path is that of a run's records
    return tuple(_place(root, path, roots) for root in roots)


def lone_beside(path: Path, at: Sequence[Place]) -> tuple[Place, ...]:
    """Return the traces under a directory that lie in none of the recorded runs found there."""
    if not path.is_dir():
        return ()
    known = {place.root for place in at} | {file for place in at for file in place.files}
    files = traces.find_traces(path, links=True)
    return _lone_places(path, [file for file in files if known.isdisjoint((file, *file.parents))])


def _lone_places(path: Path, found: Sequence[Path]) -> tuple[Place, ...]:
    """Return a place for each trace; the traces of one session's hosts are one run, named after the
    session."""
    together: dict[Path, list[Path]] = {}
    for file in found:
        together.setdefault(file.parent if traces.is_session(file.parent) else file, []).append(file)
    return tuple(
        Place(_name_of(path, files[0] if len(files) == 1 else at), files[-1], tuple(files), found=True)
        for at, files in together.items()
    )


def _name_of(path: Path, inside: Path) -> str:
    return inside.name if inside == path else inside.relative_to(path).as_posix()


def _is_record(path: Path) -> bool:
    """Return whether a file is one of the records that mark their run."""
    if path.absolute().parent.name != "mpprof":
        return False
    from mpprof import store
    from mpprof.store import formats

    known = (formats.RUN_FILE, formats.STEPS_FILE, formats.HARDWARE_FILE)
    return path.name in known and bool(store.find_runs(path))


def _fetched(path: Path) -> Path:
    """Return the local copy of what lies at an address. Raises NotFoundError for a path that is not an
    address."""
    from mpprof.traces.cache.folder import folder_for_now
    from mpprof.traces.remote import fetch

    address = fetch.address_of(path)
    if address is None:
        raise NotFoundError("no such file or directory", where=str(path), next=GIVE_A_PATH)
    return fetch.fetch(address, folder_for_now() / "fetched")


def _place(root: Path, under: Path, roots: Sequence[Path]) -> Place:
    # `under` may also be the directory of a run's records, or one of them.
    below = root != under and root.is_relative_to(under)
    own = root.name if root.name not in ("", "..") else root.resolve().name
    name = root.relative_to(under).as_posix() if below else own
    after = roots[bisect_right(roots, root) :]  # sorted, so that what lies below a root follows it
    nested = tuple(takewhile(lambda other: other.is_relative_to(root), after))
    found = tuple(f for f in traces.traces_in(root) if not any(f.is_relative_to(other) for other in nested))
    return Place(name, root, (*_records_in(root), *found), nested)


def _records_in(root: Path) -> tuple[Path, ...]:
    """Return the files of a run's own records and of its further workers'; none of a run that has gone since
    it was found."""
    own = root / "mpprof"
    folders = (own, *(own / name for name in names_in(own) if name.startswith("worker-")))
    return tuple(sorted(folder / name for folder in folders for name in names_in(folder) if ".json" in name))


def runs(path: str | Path) -> tuple[Run, ...]:
    """Return every run under a path, oldest first; traces without records in the order of
    `traces.find_traces`.

    Directories beside them that cannot be opened are a warning of each. Raises NotFoundError where there is
    no path or no run, UnreadableError also where directories that may hold one cannot be opened.
    """
    path = Path(path)
    at = places(path)
    said = _said_of(closed_beside(path, at))
    found = [_warned(place.read(), said) for place in at]
    if not found:
        raise _nothing(path)
    return tuple(sorted(found, key=_created_unix_ns))


def _created_unix_ns(run: Run) -> int:
    return run.facts.created_unix_ns if run.facts else 0


def _nothing(path: Path) -> MpprofError:
    """Return why no run was found under a path."""
    if refused := closed(path, links=True):
        more = f", and {len(refused) - 1} more directories" if len(refused) > 1 else ""
        return UnreadableError(f"{refused[0].what}{more}", where=refused[0].where, next=refused[0].next)
    doubtful, shut = _looked_into(path)
    if doubtful:
        what = "no mpprof records and no file with a trace's name here"
        next_ = f"Give {'it' if len(doubtful) == 1 else 'one of them'} itself: {_few(doubtful)}"
        return NotFoundError(what, where=str(path), next=next_)
    if shut:
        what = (
            "no mpprof records and no file with a trace's name here, and these cannot be opened: "
            f"{_few(shut)}"
        )
        return UnreadableError(what, where=str(path), next=CHECK)
    return NotFoundError(
        "no mpprof records and no trace here",
        where=str(path),
        next="Train with MPProfilerCallback(logdir), or give the directory that holds plugins/profile",
    )


def _looked_into(path: Path) -> tuple[list[str], list[str]]:
    """Return two lists from the first hundred files under a directory: those that are traces by their first
    bytes, though not by their names, and those that may not be opened."""
    found, shut = [], []
    for file in islice(_files(path), _MOST_LOOKED_AT):
        name = file.relative_to(path).as_posix()
        try:
            if file.is_file() and traces.reader_of("", file_head.of(file)) is not None:
                found.append(name)
        except PermissionError:
            shut.append(name)
        except OSError:
            continue
    return found, shut


def _files(path: Path) -> Iterator[Path]:
    for folder, below, names in walk(path):
        below.sort()
        yield from (Path(folder, name) for name in sorted(names))


def _few(names: Sequence[str]) -> str:
    return _one_line(", ".join(names[:_MOST_NAMED]) + (", …" if len(names) > _MOST_NAMED else ""))


def closed(path: Path, *, links: bool = False) -> tuple[UnreadableError, ...]:
    """Return the directories at or below a path that cannot be opened or read, each as the error that says
    so. Empty for a file. `links`: those to directories are followed."""
    refused: list[tuple[str, str]] = []

    def note(error: OSError) -> None:
        if error.errno not in (errno.ENOTDIR, errno.ENOENT):  # a file; gone since it was listed
            refused.append((str(error.filename), error.strerror or str(error)))

    for folder, names, _ in walk(path, note, links=links):
        if not os.access(folder, os.X_OK):
            refused.append((folder, os.strerror(errno.EACCES)))
            names.clear()
    return tuple(
        UnreadableError(f"cannot be opened: {why}", where=where, next=CHECK) for where, why in sorted(refused)
    )


def closed_beside(path: Path, at: Sequence[Place]) -> tuple[UnreadableError, ...]:
    """Return those errors of `closed` that are in none of the runs found under the path; what is in a run is
    that run's own warning."""
    roots = {place.root for place in at if place.root.is_dir()}
    within = ((each, Path(each.where)) for each in closed(path, links=True))
    return tuple(each for each, where in within if roots.isdisjoint((where, *where.parents)))


def _said_of(refused: Sequence[UnreadableError]) -> tuple[str, ...]:
    """Return a line for each of the first three errors, and one for how many more there are."""
    said = [f"skipped: {each.where} {each.what}" for each in refused[:_MOST_NAMED]]
    more = len(refused) - len(said)
    return (*said, f"skipped: {more} more directories that cannot be opened") if more else tuple(said)


def _warned(run: Run, said: Sequence[str]) -> Run:
    return replace(run, warnings=(*run.warnings, *said)) if said else run


def load(path: Given, *, run: str | None = None, step_range: str | None = None) -> Run:
    """Return the one run at a path; `run` picks among several by name or id, or "latest". A loaded run is
    returned as it is.

    `step_range` names the ranges of the trace (NVTX, `record_function`, TraceMe) that make its steps: an
    exact name, or a regular expression between slashes, whose first group is the step's number. The run's
    step log is then left out. Whether the trace has such ranges is seen when it is read.

    Where a run is picked by its name, others that cannot be read do not matter. Raises NotFoundError,
    UnreadableError, UsageError, or SeveralRunsError where a choice is needed.
    """
    found = path if isinstance(path, Run) else _one(as_path(path), run)
    return found if step_range is None else replace(found, step_range=step_range)


def _one(path: Path, run: str | None) -> Run:
    if run is not None and run != "latest":
        named = [place for place in places(path) if place.name == run]
        if named:
            return named[-1].read()
    if run is None:
        return _only(path)
    found = runs(path)
    if run == "latest":
        return found[-1]
    chosen = [each for each in found if run in (each.name, each.run_id)]
    if not chosen:
        names = [each.name for each in found]
        what = "The runs are"
        if len(names) > MOST_LISTED:
            from difflib import get_close_matches

            names = get_close_matches(run, names, n=MOST_LISTED, cutoff=0.0)
            what = f"There are {len(found)} (mpprof ls lists them), and the nearest names are"
        listed = "\n".join(f"  {_one_line(name)}" for name in names)
        raise NotFoundError(f"no run named {run!r} here", where=str(path), next=f"{what}:\n{listed}")
    return chosen[-1]


def load_all(given: Given | Several) -> tuple[Run, ...]:
    """Return every run that is meant: a loaded one, all at a path (oldest first), or those of a list of
    either. Raises as `load` does."""
    if isinstance(given, list | tuple):
        return tuple(run for each in given for run in load_all(each))
    return (given,) if isinstance(given, Run) else runs(as_path(given))


def as_path(given: object) -> Path:
    """Return a path as one. Raises UsageError for an invalid pattern, and for an empty name."""
    if given == "":
        raise UsageError("an empty name is not a run", next=f'{GIVE_A_PATH}; "." is the current directory')
    if isinstance(given, str | os.PathLike):
        return Path(given)
    raise UsageError(f"{type(given).__name__} is not a run", next="Give a path, or what load() returns")


def load_at(root: Path, *, most_bytes: int | None = None) -> Run:
    """Return the run whose own records lie at `root`, whatever other runs lie below it, or of which `root` is
    the trace; only the beginning and the end of a log longer than `most_bytes` are read. Raises
    NotFoundError, UnreadableError, TooNewError."""
    if root.is_file():
        return Place(root.name, root, (root,), found=True).read()
    from mpprof import store

    return _place(root, root, store.find_runs(root)).read(most_bytes)


def _only(path: Path) -> Run:
    """Return the one run at a path. Raises SeveralRunsError with all runs, those that cannot be read last."""
    at = places(path)
    if not at:
        raise _nothing(path)
    refused = closed_beside(path, at)
    if len(at) == 1:
        return _warned(at[0].read(), _said_of(refused))
    found: list[Run] = []
    unreadable: list[str] = []
    for place in at:
        try:
            found.append(place.read())
        except MpprofError as error:
            unreadable.append(f"{_one_line(place.name)} (cannot be read: {_one_line(str(error))})")
    names = [_one_line(run.name) for run in sorted(found, key=_created_unix_ns)]
    of_names = ""
    if len(names) > MOST_LISTED:
        of_names = f"; the newest {MOST_LISTED} follow, and mpprof ls lists all"
    lines = (*names[-MOST_LISTED:], *unreadable[:MOST_LISTED], *_said_of(refused))
    listed = "\n".join(f"  {line}" for line in lines)
    raise SeveralRunsError(
        f"{len(at)} runs lie here{of_names}",
        where=str(path),
        next=f'Choose one with --run NAME or --run latest (in Python: load(path, run="latest")):\n{listed}',
    )


def _one_line(name: str) -> str:
    return name.replace("\n", "\\n")


def _lone(place: Place) -> Run:
    said = _choice((place.root,)) if place.found else ()
    return Run(
        name=place.name, path=place.root, facts=None, steps=None, validations=None, hardware=None,
        traces=(place.root,), finished=True, warnings=said,
        hosts=hosts.of_session(place.root) if place.found else (),
    )  # fmt: skip


def _choice(found: tuple[Path, ...]) -> tuple[str, ...]:
    """Return the message about choosing the last of these traces among several formats; empty where there was
    no choice."""
    said = traces.choice(found[-1]) if found else None
    return (said,) if said else ()


def _recorded(place: Place, most_bytes: int | None = None) -> Run:
    from mpprof import store

    records = store.read_records(place.root, most_bytes=most_bytes)
    found = _traces_of(place, records)
    workers, recorded, said = _workers(place.root, most_bytes)
    tried, untold = store.read_tried(place.root)
    return Run(
        name=place.name,
        path=place.root,
        facts=records.facts,
        steps=records.steps,
        validations=records.validations,
        hardware=records.hardware,
        traces=found,
        finished=records.finished,
        warnings=(
            *records.warnings,
            *_unended(records),
            *said,
            *untold,
            *_choice(found),
            *_said_of(_closed_in(place)),
        ),
        workers=workers,
        hosts=hosts.of_run(place.root, found[-1], {0: records.facts, **recorded}) if found else (),
        spans=records.spans,
        looks=store.read_looks(place.root),
        tried=tried,
    )


_BY = {"interrupted": "by the keyboard", "exit": "by sys.exit"}


def _unended(records: Records) -> tuple[str, ...]:
    steps = 0 if records.steps is None else int(records.steps.step.max(initial=0))
    if records.finished:
        how = how_broken_off(records.facts, records.spans)
        at = f"after step {steps:,}" if steps else "before its first step"
        return () if how is None else (f"{BROKEN_OFF} {at} ({_BY.get(how, 'by what is not known')})",)
    why = records.facts.absent.get("recording") if records.facts else None
    if why is None:
        return (f"{NO_END}: it was killed, or still runs",)
    return (
        f"{RECORDING_ENDED} after step {steps:,}, before the training did ({why}): the rest is not known",
    )


def _closed_in(place: Place) -> list[UnreadableError]:
    """Return the directories of this run, and of no run under it, that cannot be opened."""
    return [
        each
        for each in closed(place.root)
        if not any(Path(each.where).is_relative_to(other) for other in place.nested)
    ]


def _workers(
    root: Path, most_bytes: int | None
) -> tuple[dict[int, StepTable], dict[int, RunFacts | None], tuple[str, ...]]:
    """Return the step logs and the facts of the workers after the first. A worker that cannot be read gives a
    warning."""
    from mpprof import store

    logs: dict[int, StepTable] = {}
    facts: dict[int, RunFacts | None] = {}
    warnings: list[str] = []
    for worker in store.further_workers(root):
        try:
            records = store.read_records(root, worker=worker, most_bytes=most_bytes)
        except MpprofError as error:
            warnings.append(f"worker {worker}: {error}")
            facts[worker] = None
            continue
        warnings += records.warnings
        facts[worker] = records.facts
        if records.steps is not None:
            logs[worker] = records.steps
    return logs, facts, tuple(warnings)


def _traces_of(place: Place, records: Records) -> tuple[Path, ...]:
    """Return the traces of the windows that run.json names; without any, the traces that lie under the root
    and under no other run."""
    windows = records.facts.profile_windows if records.facts else ()
    named_folders = dict.fromkeys(place.root / window.trace for window in windows if window.trace)
    # A window's folder may be gone; and a run.json from elsewhere must not point outside its own run.
    inside = [folder for folder in named_folders if os.path.exists(folder) and _is_inside(folder, place.root)]
    host = next((window.host for window in reversed(windows) if window.host), None)
    named = [file for folder in inside for file in traces.find_traces(folder, host=host)]
    return tuple(named) or tuple(f for f in place.files if f.parent != place.root / "mpprof")


def _is_inside(folder: Path, root: Path) -> bool:
    """Return whether a folder lies inside the root. False also where it cannot be reached: `closed` reports
    that."""
    try:
        return folder.resolve().is_relative_to(root.resolve())
    except (OSError, RuntimeError):  # a loop of links is the latter in Python 3.11 and 3.12
        return False


def why_no_trace_in(root: Path, folder: str) -> str:
    """Return why the trace that a run's window left in this folder is not read."""
    if not _is_inside(root / folder, root):
        why = f"{_one_line(folder)} points outside the run and is not followed"
        return f"the trace of the profiler window cannot be read: {why}"
    if refused := closed(root / folder):
        return f"the trace of the profiler window cannot be read: {refused[0]}"
    names = [file.relative_to(root / folder).as_posix() for file in _files(root / folder)]
    if not names:
        return f"the trace of the profiler window is missing: {folder} is empty or not there"
    _, shut = _looked_into(root / folder)
    unknown = f" (these cannot be opened: {_few(shut)})" if shut else ""
    return (
        f"the trace of the profiler window is missing: {folder} holds no trace, only {_few(names)}{unknown}"
    )
