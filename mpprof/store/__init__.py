"""The files of a run: their versions, writing them safely and reading them back.

find_runs(path)      the runs at or below a path
further_workers(root) the workers of a run beside the first
read_records(root)   one run's facts, step log, validations and hardware samples
read_looks(root)     what its looks at the numbers by layer found
read_tried(root)     what remedies have brought that were tried on its script; write_tried puts it there
read_counters(root)  what hardware counters said of its kernels; write_counters adds to it

Each is imported when it is first used: a report of a lone trace uses none of them.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpprof.store.counters import read_counters, write_counters
    from mpprof.store.records import Records, read_looks, read_records
    from mpprof.store.run_folders import find_runs, further_workers
    from mpprof.store.tried import read_tried, write_tried

_LAZY = {
    "Records": "records",
    "find_runs": "run_folders",
    "further_workers": "run_folders",
    "read_counters": "counters",
    "read_looks": "records",
    "read_records": "records",
    "read_tried": "tried",
    "write_counters": "counters",
    "write_tried": "tried",
}

__all__ = [
    "Records",
    "find_runs",
    "further_workers",
    "read_counters",
    "read_looks",
    "read_records",
    "read_tried",
    "write_counters",
    "write_tried",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        return getattr(import_module(f"{__name__}.{_LAZY[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
