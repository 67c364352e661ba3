"""Coverage-guided fuzzing of the parts that are pure Python (atheris: `pip install 'mpprof[fuzz]'`):

    python -m tests.fuzz.guided -runs=200000 [CORPUS]

What may come out of hostile bytes: columns, a value, or UnreadableError. The two walks must agree.
"""

from __future__ import annotations

import contextlib
import sys
from pathlib import Path

import atheris
import numpy as np

from mpprof.errors import UnreadableError
from tests.fuzz import seeds

with atheris.instrument_imports():
    from mpprof.analysis.kernels import counters
    from mpprof.analysis.kernels import names as kernel_names
    from mpprof.analysis.layers import scopes
    from mpprof.model import arrays
    from mpprof.store import lines
    from mpprof.traces.chrome import json, kineto
    from mpprof.traces.common import columns, hlo, names, planes, walk, walk_reference

LONGEST = 1 << 12


def _space(data: bytes) -> None:
    buffer = np.frombuffer(data, np.uint8)
    start, end = np.zeros(1, np.int64), np.array([len(data)], np.int64)
    plain = walk_reference.scan(buffer, start, end, 0xFF)
    for one, other in zip(plain[:5], walk.scan(buffer, start, end, 0xFF)[:5], strict=True):
        assert np.array_equal(one, other)
    space = planes.read_space(buffer)
    modules = hlo.Modules([plane for plane in space.planes if plane.name])
    for plane in space.planes:
        _ = plane.stats
        for name in plane.metadata_names[:8]:
            modules.instruction("m", 1, name)


def _module(data: bytes) -> None:
    buffer = np.frombuffer(data, np.uint8)
    index = hlo.index_of(buffer, 0, len(data))
    for start, end in list(index.by_name.values())[:64]:
        hlo.build(index, hlo.parse(index, start, end), 0)


def _texts(data: bytes) -> None:
    text = data.decode("utf-8", "replace")
    names.host_kind(text)
    names.copy_kind(text)
    names.bytes_of(text)
    scopes.parse(text)
    kernel_names.classify(text)
    json.nanoseconds(text)
    hlo._contracting(text)


def _numbers(data: bytes) -> None:
    values = np.frombuffer(data[: len(data) // 16 * 16], np.int64)
    start, duration = values[::2].copy() >> 3, np.abs(values[1::2] >> 3)
    order = columns.parents_first(start, duration)
    columns.leaves(start[order], duration[order])
    values = arrays.distinct(start)
    assert np.array_equal(values[columns.replace(start, values, range(len(values)))], start)
    arrays.groups([start, duration], len(start))
    columns.join(start, duration)


def _events(data: bytes) -> None:
    file = json.ChromeFile(Path("w.trace.json"))
    with contextlib.suppress(UnreadableError):
        for event in json._Parse(file, json._Window(iter((data[:99], data[99:])))).run():
            args = event.get("args")
            if isinstance(args, dict):
                kineto.details(args)
                kineto.shapes(args)


def _lines(data: bytes) -> None:
    lines.parse(data, 0, lines.Faults(Path("steps.jsonl")))
    with contextlib.suppress(UnreadableError):
        counters.verdicts(data.decode("utf-8", "backslashreplace").splitlines(), card="A100")


PARTS = (_space, _module, _texts, _numbers, _events, _lines)


def one_input(data: bytes) -> None:
    """The first byte says which part reads the rest."""
    if data:
        PARTS[data[0] % len(PARTS)](data[1 : LONGEST + 1])


def write_corpus(folder: Path) -> None:
    """Small whole inputs to begin with; a corpus that is there already is kept."""
    module = seeds.hlos()[0]
    starts = (seeds.xspaces()[0][:LONGEST], module[module.index(b"hlo_proto") :], b"volta_sgemm_32x32_nn", bytes(range(160)),
              seeds.kinetos()[0][:LONGEST], seeds.counters()[0])  # fmt: skip
    for part, data in enumerate(starts):
        (folder / f"start-{part}").write_bytes(bytes([part]) + data)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if not argument.startswith("-"):
            write_corpus(Path(argument))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
