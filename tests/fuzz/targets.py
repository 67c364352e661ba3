"""What is fuzzed: every reader, with its small whole files, the damage done to them, and what must hold after."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpprof import store, traces
from mpprof.model.trace import Trace
from tests.fuzz import (
    commands,
    mutate_bytes,
    mutate_csv,
    mutate_json,
    mutate_pickle,
    mutate_protobuf,
    mutate_sqlite,
    planted,
    seeds,
    walks,
)

Mutate = Callable[[random.Random, bytes], bytes]


@dataclass(frozen=True)
class Target:
    """`read` gets the path of the damaged file and says whether the result carries a warning; it raises
    MpprofError where nothing could be read, and anything else is a fault of ours."""

    name: str
    file: str
    seeds: Callable[[], Sequence[bytes]]
    mutate: Mutate
    read: Callable[[Path], bool]


def _mixed(structured: Mutate) -> Mutate:
    """Damage that knows the format, damage that does not, and both."""

    def mutate(dice: random.Random, data: bytes) -> bytes:
        match dice.randrange(8):
            case 0:
                return mutate_bytes.cut(dice, data)
            case 1 | 2:
                return mutate_bytes.changed(dice, data)
            case 3:
                return mutate_bytes.changed(dice, structured(dice, data), 2)
            case 4:
                return mutate_bytes.spliced(dice, data, structured(dice, data))
            case _:
                return structured(dice, data)

    return mutate


def _zipped(mutate: Mutate) -> Mutate:
    def both(dice: random.Random, data: bytes) -> bytes:
        return mutate_bytes.packed(dice, mutate(dice, data) if dice.random() < 0.5 else data)

    return both


_TABLES = (
    ("kernels", "device", "devices"), ("kernels", "stream", "streams"), ("kernels", "name", "strings"),
    ("kernels", "op", "ops"), ("kernels", "launch", "host"), ("kernels", "shapes", "strings"),
    ("kernels", "details", "strings"), ("host", "thread", "threads"), ("host", "name", "strings"),
    ("host", "op", "ops"), ("markers", "thread", "threads"), ("markers", "family", "strings"),
    ("markers", "device", "devices"), ("allocations", "allocator", "strings"), ("allocations", "op", "ops"),
    ("allocations", "shapes", "strings"),
)  # fmt: skip


def check(trace: Trace) -> None:
    """Every index of a trace points into its table, columns are of one length, no duration is negative."""
    for table, column, limit in _TABLES:
        values = getattr(getattr(trace, table), column)
        assert not len(values) or (values.min() >= -1 and values.max() < len(getattr(trace, limit))), (
            table,
            column,
        )
    for rows in (trace.kernels, trace.host, trace.markers, trace.allocations):
        columns = [getattr(rows, name) for name in rows.__slots__]
        assert len({len(column) for column in columns if column is not None}) == 1
    for timed in (trace.kernels, trace.host):
        assert not len(timed) or timed.duration_ns.min() >= 0
    for text in (*trace.strings, *trace.threads, *trace.warnings):
        text.encode()  # can be written wherever it is shown


def _trace(path: Path) -> bool:
    trace = traces.read(path)
    check(trace)
    return bool(trace.warnings)


def _records(path: Path) -> bool:
    return bool(store.read_records(path.parent.parent).warnings)


def _verdicts(path: Path) -> bool:
    store.read_counters(path.parent.parent)
    return False


_json, _protobuf = _mixed(mutate_json.changed), _mixed(mutate_protobuf.changed)
_lines, _pickle = _mixed(mutate_json.lines_changed), _mixed(mutate_pickle.changed)

TARGETS = (
    Target("xspace", "host.xplane.pb", seeds.xspaces, _protobuf, _trace),
    Target("xspace-gz", "host.xplane.pb.gz", seeds.xspaces, _zipped(_protobuf), _trace),
    Target("hlo", "host.xplane.pb", seeds.hlos, _protobuf, _trace),
    Target("kineto", "host.pt.trace.json", seeds.kinetos, _json, _trace),
    Target("tensorflow", "host.trace.json", seeds.tensorflows, _json, _trace),
    Target(
        "chrome-gz",
        "host.trace.json.gz",
        lambda: (*seeds.kinetos(), *seeds.tensorflows()),
        _zipped(_json),
        _trace,
    ),
    Target("nsys", "w.sqlite", seeds.exports, mutate_sqlite.changed, _trace),
    Target("torch-memory", "snapshot.pickle", seeds.snapshots, _pickle, _trace),
    Target("run", "mpprof/run.json", seeds.runs, _json, _records),
    Target("steps", "mpprof/steps.jsonl", seeds.steps, _lines, _records),
    Target("hardware", "mpprof/hardware.jsonl", seeds.samples, _lines, _records),
    Target("verdicts", "mpprof/counters.json", seeds.verdicts, _json, _verdicts),
    Target("counters", "ncu.csv", seeds.counters, _mixed(mutate_csv.changed), commands.counters),
    Target("walk", "host.xplane.pb", lambda: (*seeds.xspaces(), *seeds.hlos()), _protobuf, walks.agree),
    Target(
        "command-xspace", "host.xplane.pb", lambda: (*seeds.xspaces(), *seeds.hlos()), _protobuf, commands.run
    ),
    Target(
        "command-chrome",
        "host.trace.json",
        lambda: (*seeds.kinetos(), *seeds.tensorflows()),
        _json,
        commands.run,
    ),
    Target("command-nsys", "w.sqlite", seeds.exports, mutate_sqlite.changed, commands.run),
    Target("command-torch-memory", "snapshot.pickle", seeds.snapshots, _pickle, commands.run),
    Target("command-run", "mpprof/run.json", seeds.runs, _json, commands.run),
    Target("command-steps", "mpprof/steps.jsonl", seeds.steps, _lines, commands.run),
    Target("command-hardware", "mpprof/hardware.jsonl", seeds.samples, _lines, commands.run),
)
PLANTED = tuple(
    Target(f"planted-{read.__name__}", "file", planted.seeds, planted.mutate, read)
    for read in (planted.crash, planted.hang, planted.fail, planted.grow, planted.write)
)
BY_NAME = {target.name: target for target in (*TARGETS, *PLANTED)}
