"""Which files of a directory are traces, and which of them is read where one session left several.

The rule: a directory is one session. Its traces are the files with a trace's name, or, in a directory that a
profiler laid out and where no file has one, those with a trace's bytes. Where they are of several formats,
only those of the first of these count: xspace, Kineto's chrome trace, another chrome trace, nsys; a format is
what the bytes show, and one that only names claim comes after all others. A folder of no profiler's that
holds several of one format is no session: each trace in it is a run, of any format, but an export for a
viewer. An exported Nsight Systems file stands for the report beside it. Among sessions the
newest is the last. Of several hosts in one session, the host that wrote the records is the last, else the
first by name whose bytes are a trace's.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from pathlib import Path, PurePath, PurePosixPath

from mpprof.errors import NotFoundError
from mpprof.folders import names_in, walk
from mpprof.model.quantities import first_of
from mpprof.traces import formats
from mpprof.traces.formats import RANKS, Known

PERFETTO = "perfetto_trace"
"""How JAX names its export for Perfetto (`create_perfetto_trace=True`), whatever the host."""
_MOST_LOOKED_AT = 100
"""Files of a directory whose names are no trace's, by their bytes."""


def find_traces(
    path: Path, *, host: str | None = None, links: bool = False, every: bool = False
) -> tuple[Path, ...]:
    """Return the trace files under a directory, oldest session first, or the file itself. The last is the one
    to read.

    Of a directory that holds traces of several formats, those of one format, and of several hosts' traces
    that of `host` last: `in_order` has the rule. `links`: those to directories are followed. `every`: of a
    directory that no profiler laid out, those of all formats, also where they may be one session's.
    Empty: there is none. Raises NotFoundError where the path does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise NotFoundError("no such file or directory", where=str(path))
    if path.is_file():
        return (path,)
    return tuple(in_order(traces_under(path, links=links, every=every), host))


def traces_in(folder: Path) -> tuple[Path, ...]:
    """Return the traces under the directory of a run, of each directory those of its first format; empty also
    where there is none, or none any more."""
    found: list[Path] = []
    for root, _, names in walk(folder):
        found += _of_first_format(_known_in(Path(root), names))
    return tuple(in_order(found))


def traces_under(folder: Path, *, links: bool = False, every: bool = False) -> list[Path]:
    """Return the traces of every session under a directory, in no order."""
    return [
        file for root, _, names in walk(folder, links=links) for file in _chosen(Path(root), names, every)
    ]


def _chosen(folder: Path, names: Iterable[str], every: bool) -> list[Path]:
    """Return those files of one directory that are of its first format, and where it is no session, or with
    `every`, also the profiles of others."""
    files = _known_in(folder, names)
    if every and not is_session(folder):
        return _profiles(files)
    return _runs_in(folder, files) or _of_first_format(files)


def _known_in(folder: Path, names: Iterable[str]) -> dict[Path, Known]:
    """Return the traces among the files of one directory."""
    named, others = _parted(names)
    return _known(folder, named) or (_known(folder, others) if is_session(folder) else {})


def _of_first_format(files: Mapping[Path, Known]) -> list[Path]:
    first = _first_format(files.values())
    return [file for file, known in files.items() if known.kind == first]


def _runs_in(folder: Path, files: Mapping[Path, Known]) -> list[Path]:
    """Return the traces of one directory where each is a run: there are several of a format. Else empty."""
    found = _profiles(files)
    several = len(found) > len({files[file].kind for file in found})
    return found if several and not is_session(folder) else []


def _profiles(files: Mapping[Path, Known]) -> list[Path]:
    """Return the files of the first format, and of the others each that is a profile of its own."""
    chosen = _of_first_format(files)
    stems = {
        kind: {_stem(file.name) for file in files if files[file].kind == kind} for kind in ("xspace", "nsys")
    }
    return chosen + [
        file
        for file, known in files.items()
        if file not in chosen
        and not _is_export(file.name, stems["xspace"])
        and (_stem(file.name) not in stems["nsys"] if known.kind == "nsys report" else not known.why)
    ]


def _parted(names: Iterable[str]) -> tuple[list[str], list[str]]:
    """Return the names that may be a trace's, and as many of the others as are opened to find out."""
    ordered = sorted(names)
    others = (
        name
        for name in ordered
        if formats.perhaps(name) is None and not name.rpartition("/")[2].startswith(".")
    )
    return [name for name in ordered if formats.perhaps(name)], list(islice(others, _MOST_LOOKED_AT))


def _known(folder: Path, names: Iterable[str]) -> dict[Path, Known]:
    found = ((folder / name, formats.of(folder / name)) for name in names)
    return {file: known for file, known in found if known is not None}


def _first_format(found: Iterable[Known]) -> str | None:
    """Return the first format of those found, where what the bytes show counts before what names claim."""
    ranked = sorted((known.why != "", RANKS.index(known.kind)) for known in found)
    return RANKS[ranked[0][1]] if ranked else None


def wanted(names: Iterable[str]) -> Iterator[str]:
    """Yield which files of a listing (names with slashes) the rule may count as traces: of each directory
    those with a trace's name, and in a profiler's where no name is sure, all. Left out are exports of a
    profile for a viewer, and reports that only another tool reads."""
    folders: dict[str, list[str]] = {}
    for name in names:
        folders.setdefault(name.rpartition("/")[0], []).append(name)
    for folder, inside in folders.items():
        named, others = _parted(inside)
        stems = {_stem(name) for name in named if formats.by_name(name) == "xspace"}
        named = [name for name in named if formats.is_readable(name) and not _is_export(name, stems)]
        yield from named
        if is_session(PurePosixPath(folder)) and not any(map(formats.by_name, named)):
            yield from others


def _stem(name: str) -> str:
    return name.rpartition("/")[2].partition(".")[0]


def _is_export(name: str, stems: set[str]) -> bool:
    """Return whether a file is the same profile as an xspace trace of one of these hosts, written for a
    viewer (`host.trace.json.gz` or JAX's `perfetto_trace.json.gz` beside `host.xplane.pb`)."""
    stem = _stem(name)
    return bool(stems) and (stem == PERFETTO or (stem in stems and formats.by_name(name) == "chrome"))


def is_session(folder: PurePath) -> bool:
    """Return whether a profiler made this directory, with one file per host: `plugins/profile/<time>`."""
    return folder.parent.name == "profile" and folder.parent.parent.name == "plugins"


def in_order(files: Iterable[Path], host: str | None = None) -> list[Path]:
    """Return sessions by their newest file; within a session the hosts by name, backwards, with those whose
    bytes show a trace after others, and `host` last. Files of a directory that is no session are sorted by
    time, then by name."""
    changed = dict(_changed_ns(files))
    newest: dict[Path, int] = {}
    for file, time in changed.items():
        newest[file.parent] = max(time, newest.get(file.parent, time))

    def place(file: Path) -> tuple[int, str, bool, bool]:
        if is_session(file.parent):
            known = formats.of(file)
            shows = known is not None and not known.why
            return newest[file.parent], str(file.parent), formats.host_of(file.name) == host, shows
        return changed[file], str(file), False, False

    return sorted(sorted(changed, key=lambda file: file.name, reverse=True), key=place)


def _changed_ns(files: Iterable[Path]) -> Iterator[tuple[Path, int]]:
    """Yield when each file was last changed, without the files that have gone since they were found."""
    for file in files:
        try:
            yield file, file.stat().st_mtime_ns
        except OSError:
            continue


def hosts_beside(path: Path) -> tuple[tuple[str, Path, str], ...]:
    """Return the other hosts of the session that a trace lies in, by name: each with its trace, and why that
    file cannot be one ("" where nothing shows so). None outside of a session, where files are not told apart
    by host."""
    mine = formats.of(path)
    if mine is None or not is_session(path.parent):
        return ()
    return tuple(
        (formats.host_of(name) or name, path.with_name(name), known.why)
        for name, known in _beside(path)
        if known.kind == mine.kind and formats.perhaps(name) is not None
    )


def choice(path: Path) -> str | None:
    """Return a text that names the traces of another format beside this one that are not read; None where
    there are none.

    A separate run is not a choice, nor an export of the same profile for a viewer, nor a report beside its
    export.
    """
    mine = formats.of(path)
    if mine is None:
        return None
    others, unnamed = [], []
    many = bool(_runs_in(path.parent, _known_in(path.parent, names_in(path.parent))))
    for name, known in _beside(path):
        why = f" ({known.why})" if known.why else ""
        if formats.perhaps(name) is None:
            unnamed.append(name)
        elif many and (not known.why or known.kind == "nsys report"):
            continue
        elif known.kind != mine.kind and not _is_the_same(path.name, mine.kind, name, known.kind):
            others.append(name + (why if known.kind != "nsys report" else ""))
    said = []
    if formats.perhaps(path.name) is None:
        said.append(f"{path.name} was read: its content is a trace, although its name is not that of one")
    if others:
        left = first_of(others, 3)
        said.append(f"this {mine.kind} trace was read; traces of another format beside it were not: {left}")
    if unnamed:
        said.append(f"not read, because only the content is that of a trace: {first_of(unnamed, 3)}")
    return "; ".join(said) or None


def _is_the_same(mine: str, kind: str, name: str, other: str) -> bool:
    """Return whether the other file is the same profile in another format."""
    if kind == "nsys":
        return other == "nsys report"
    return kind == "xspace" and _is_export(name, {_stem(mine)})


def _beside(path: Path) -> Iterator[tuple[str, Known]]:
    """Yield the name and the kind of each other trace of this directory."""
    named, others = _parted(names_in(path.parent))
    for file, known in _known(path.parent, [*named, *others]).items():
        if file != path:
            yield file.name, known
