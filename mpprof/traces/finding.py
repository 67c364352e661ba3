"""Which files of a directory are traces, and which of them is read where one session left several.

The rule: a directory is one session. Where it holds traces of several formats, only those of the first of
these count: xspace, Kineto's chrome trace, another chrome trace, nsys. An exported Nsight Systems file stands
for the report beside it. Among sessions the newest is the last. Of several hosts in one session, the host
that wrote the records is the last, else the first by name.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from mpprof.traces import awaited, chrome, nsys

PERFETTO = "perfetto_trace"
"""How JAX names its export for Perfetto (`create_perfetto_trace=True`), whatever the host."""

RANKS = ("xspace", "kineto", "chrome", "nsys", "nsys report")

_BY_NAME = (
    (".xplane.pb", "xspace"), (".xplane.pb.gz", "xspace"),
    (".pt.trace.json", "kineto"), (".pt.trace.json.gz", "kineto"),
    (".trace.json", "chrome"), (".trace.json.gz", "chrome"),
    (".nsys-rep", "nsys report"), (".qdrep", "nsys report"),
)  # fmt: skip
_BY_LOOKS: tuple[tuple[str, str, Callable[[Path], bool]], ...] = (
    (".json.gz", "kineto", chrome.looks_like_trace),
    (".sqlite", "nsys", nsys.looks_like_trace),
)


def rank_by_name(name: str) -> int | None:
    """A place in RANKS by a file's name alone; None where the name does not tell a trace."""
    kinds = (*_BY_NAME, *((suffix, kind) for suffix, kind, _ in _BY_LOOKS))
    return next((RANKS.index(kind) for suffix, kind in kinds if name.endswith(suffix)), None)


def first_formats(names: Iterable[str], traces_of: Callable[[list[str]], list[str]]) -> list[str]:
    """Of each directory's names (with slashes) those of its first format. `traces_of` looks into files whose
    names say too little and returns those that are traces; it is asked only where the answer counts."""
    found: dict[str, dict[int, list[str]]] = {}
    for name in names:
        rank = rank_by_name(name)
        if rank is not None:
            found.setdefault(name.rpartition("/")[0], {}).setdefault(rank, []).append(name)
    return [name for ranks in found.values() for name in _first(ranks, traces_of)]


def _first(ranks: dict[int, list[str]], traces_of: Callable[[list[str]], list[str]]) -> list[str]:
    for rank in sorted(ranks):
        certain = [name for name in ranks[rank] if kind_by_name(name) is not None]
        if kept := certain + traces_of([name for name in ranks[rank] if name not in certain]):
            return kept
    return []


def kind_by_name(name: str) -> str | None:
    """One of RANKS where a file's name alone settles it."""
    return next((kind for suffix, kind in _BY_NAME if name.endswith(suffix)), None)


def kind_of(path: Path) -> str | None:
    """One of RANKS; None for a file that is no trace. Files whose names say too little are looked into."""
    if (named := kind_by_name(path.name)) is not None:
        return named
    for suffix, kind, looks in _BY_LOOKS:
        if path.name.endswith(suffix):
            try:
                return kind if awaited.is_expected(path) or (path.is_file() and looks(path)) else None
            except OSError:
                return None
    return None


def traces_under(folder: Path) -> list[Path]:
    """The traces of every session under a directory, in no order."""
    found = []
    for root, _, names in os.walk(folder):
        found += _chosen(Path(root, name) for name in names)
    return found


def _chosen(files: Iterable[Path]) -> list[Path]:
    """Of the files of one directory those of its first format.

    A link that leads nowhere is none, nor is a pipe: opening it would wait for a writer for ever.
    """
    kinds: dict[str, list[Path]] = {}
    for file in files:
        if (kind := kind_of(file)) is not None and _is_file(file):
            kinds.setdefault(kind, []).append(file)
    return next((kinds[kind] for kind in RANKS if kind in kinds), [])


def _is_file(path: Path) -> bool:
    """Also False in a directory whose names can be listed and nothing more."""
    try:
        return path.is_file()
    except OSError:
        return False


def is_session(folder: Path) -> bool:
    """Whether a profiler laid this directory out, one file per host: `plugins/profile/<time>`."""
    return folder.parent.name == "profile" and folder.parent.parent.name == "plugins"


def in_order(files: Iterable[Path], host: str | None = None) -> list[Path]:
    """Sessions by their newest file; within one the hosts by name, backwards, and `host` last. Files of a
    directory that is no session by time, then by name."""
    changed = {file: file.stat().st_mtime_ns for file in files}
    newest: dict[Path, int] = {}
    for file, time in changed.items():
        newest[file.parent] = max(time, newest.get(file.parent, time))

    def place(file: Path) -> tuple[int, str, bool]:
        if is_session(file.parent):
            return newest[file.parent], str(file.parent), host_of(file) == host
        return changed[file], str(file), False

    return sorted(sorted(changed, key=lambda file: file.name, reverse=True), key=place)


def host_of(file: Path) -> str | None:
    """The host that a profiler named this file after; None for other names."""
    return next((file.name.removesuffix(end) for end, _ in _BY_NAME if file.name.endswith(end)), None)


def choice(path: Path) -> str | None:
    """Words for what lies unread beside this trace, of another format or of another host; None for nothing.

    An export of the very same profile (`host.trace.json.gz` or JAX's `perfetto_trace.json.gz` beside
    `host.xplane.pb`) is no choice, and neither is a report beside its export.
    """
    mine = kind_of(path)
    if mine is None:
        return None
    stem = path.name.partition(".")[0]
    others, hosts = [], []
    for file in sorted(path.parent.iterdir()):
        kind = kind_of(file)
        if kind == mine and file != path and is_session(path.parent):
            hosts.append(str(host_of(file) or file.name))
        if kind in (None, mine) or (mine == "nsys" and kind == "nsys report"):
            continue
        first = file.name.partition(".")[0]
        if mine == "xspace" and (first == PERFETTO or (kind == "chrome" and first == stem)):
            continue
        others.append(file.name)
    said = []
    if hosts:
        said.append(f"of this session's hosts, {host_of(path)} was read, and not: {_listed(hosts)}")
    if others:
        said.append(
            f"this {mine} trace was read; of another format beside it, and not read: {_listed(others)}"
        )
    return "; ".join(said) or None


def _listed(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
