"""Finding runs under a directory."""

from __future__ import annotations

import re
from pathlib import Path

from mpprof.errors import NotFoundError
from mpprof.folders import names_in, walk
from mpprof.store import formats

_WORKER = re.compile("worker-[1-9][0-9]{0,7}")
"""As recording names it: "worker-01" beside "worker-1" would be the same worker twice."""


def find_runs(path: Path) -> tuple[Path, ...]:
    """Return the roots of all runs at or below `path`, sorted: directories with mpprof/run.json or
    mpprof/steps.jsonl. An extra worker's files belong to its run and make no run of their own. Links to
    directories are followed; a run that several ways lead to is one.

    `path` may also be the `mpprof` directory of a run or a file in it. Empty: there is no run. Raises
    `NotFoundError` where `path` does not exist.
    """
    path = Path(path)
    if not path.exists():
        raise NotFoundError("no such file or directory", where=str(path), next="Check the path")
    inside = path if path.is_dir() else path.parent
    inside = inside if inside.name else inside.absolute()  # "." within it
    if inside.name == formats.FOLDER and _holds_run(inside.parent):
        return (inside.parent,)
    if not path.is_dir():
        return ()
    return tuple(sorted(_walk(path)))


def further_workers(root: Path) -> tuple[int, ...]:
    """Return the numbers of the workers after the first whose files lie in this run, in order."""
    folder = formats.folder_of(Path(root))
    names = (name for name in names_in(folder) if _WORKER.fullmatch(name) and (folder / name).is_dir())
    return tuple(sorted(int(name.removeprefix("worker-")) for name in names))


def _walk(path: Path) -> list[Path]:
    found = []
    for folder, names, _ in walk(path, links=True):
        if formats.FOLDER in names and _holds_run(Path(folder)):
            found.append(Path(folder))
            names.remove(formats.FOLDER)
        # A profiler session holds traces only, and there may be many of them.
        names[:] = [name for name in names if name != "plugins"]
    return found


def _holds_run(root: Path) -> bool:
    folder = formats.folder_of(root)
    try:
        return (folder / formats.RUN_FILE).is_file() or (folder / formats.STEPS_FILE).is_file()
    except OSError:  # `loading.closed` says of it that it cannot be opened
        return False
