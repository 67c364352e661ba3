"""Files that ask for as much memory and time as they can, and what reading one takes in a process of its own.

python -m tests.fuzz.heavy MIB FOLDER CASE...
"""

from __future__ import annotations

import gzip
import json
import os
import shutil
import sqlite3
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from mpprof.errors import MpprofError
from tests.builders import hlo
from tests.builders.xspace import tagged_bytes, tagged_varint, varint
from tests.fuzz import seeds
from tests.fuzz.targets import BY_NAME as TARGETS

Write = Callable[[Path, int], None]


@dataclass(frozen=True)
class Case:
    """`write` makes a file of about so many bytes; the reader of `target` reads it."""

    name: str
    target: str
    write: Write


# --- xspace ------------------------------------------------------------------------------------------------

_STATS = ("correlation_id", "group_id", "step_num", "tf_op", "name", "hlo_op", "hlo_module", "program_id", "kernel_details",
          "memcpy_details", "cuda_graph_id", "tensor_shapes", "shape", "annotation", "_p", "_c")  # fmt: skip


def _plane(name: bytes, line: bytes, metadata: bytes = b"") -> bytes:
    stats = b"".join(
        tagged_bytes(
            5, tagged_varint(1, i) + tagged_bytes(2, tagged_varint(1, i) + tagged_bytes(2, stat.encode()))
        )
        for i, stat in enumerate(_STATS, 1)
    )
    return tagged_bytes(1, tagged_bytes(2, name) + tagged_bytes(3, line) + metadata + stats)


def _named(id: int, name: bytes) -> bytes:
    return tagged_bytes(
        4, tagged_varint(1, id) + tagged_bytes(2, tagged_varint(1, id) + tagged_bytes(2, name))
    )


def _xspace(make: Callable[[int], bytes]) -> Write:
    return lambda path, size: Path.write_bytes(path, make(size)) and None


def _empty_events(size: int) -> bytes:
    return _plane(b"/device:GPU:0", b'"\0' * (size // 2), _named(0, b"kernel"))


def _short_events(plane: bytes) -> Callable[[int], bytes]:
    event = tagged_bytes(4, tagged_varint(1, 1))
    return lambda size: _plane(plane, event * (size // len(event)), _named(1, b"cuLaunchKernel"))


def _names(size: int) -> bytes:
    count = size // 24
    line = b"".join(tagged_bytes(4, tagged_varint(1, i)) for i in range(1, count))
    return _plane(b"/host:CPU", line, b"".join(_named(i, b"%d" % i) for i in range(1, count)))


def _texts(size: int) -> bytes:
    stats = (tagged_bytes(4, tagged_varint(1, 4) + tagged_bytes(5, b"%d" % i)) for i in range(size // 16))
    return _plane(
        b"/device:GPU:0",
        b"".join(tagged_bytes(4, tagged_varint(1, 1) + stat) for stat in stats),
        _named(1, b"k"),
    )


def _sparse(size: int) -> bytes:
    return _plane(b"/host:CPU", b"", b"".join(_named(i << 40, b"") for i in range(1, size // 18)))


def _planes(size: int) -> bytes:
    return tagged_bytes(1, tagged_bytes(2, b"x")) * (size // 5)


def _string(size: int) -> bytes:
    line = tagged_bytes(4, tagged_varint(1, 1)) * 1000
    return _plane(b"/host:CPU", line, _named(1, b"\xff" * (size // 2)) + _named(2, b"n" * (size // 2)))


def _packed_field(path: Path, size: int) -> None:
    """Beside a plane a field that no reader knows, of nearly as many bytes as the ratio allows."""
    from mpprof.traces.xspace.reader import MAX_RATIO

    unpacked = int(0.97 * MAX_RATIO * size)
    random = size - unpacked // 1000  # zeros pack a thousand times
    with gzip.open(path, "wb", 6) as file:
        file.write(_short_events(b"/device:GPU:0")(1 << 10) + varint(15 << 3 | 2) + varint(unpacked))
        file.write(os.urandom(random))
        for at in range(random, unpacked, 1 << 20):
            file.write(bytes(min(1 << 20, unpacked - at)))


def _packed_events(path: Path, size: int) -> None:
    """As many events as a large file of its size may hold, in nearly as many bytes as the ratio allows."""
    from mpprof.model import limits

    count = int(0.95 * size / limits.PACKED_BYTES_OF_FIELD)
    padding = 0.9 * size * limits.XPLANE_UNPACKED_RATIO / count - 16  # in a stat without a name
    stat = tagged_bytes(4, tagged_bytes(5, b"x" * int(padding))) if padding > 0 else b""
    event = tagged_bytes(4, tagged_varint(1, 1) + stat)
    with gzip.open(path, "wb", 6) as file:
        file.write(_plane(b"/device:GPU:0", event * count, _named(1, b"k")))
        file.write(tagged_bytes(15, os.urandom(int(0.98 * size))))


def _nested(size: int) -> bytes:
    count = size // 14
    line = b"".join(
        tagged_bytes(
            4, tagged_varint(1, 1) + tagged_varint(2, i * 1000) + tagged_varint(3, 10**15 - i * 2000)
        )
        for i in range(count)
    )
    return _plane(b"/host:CPU", line, _named(1, b"model/dense/MatMul:MatMul"))


def _kernels(size: int) -> bytes:
    numbers = range(1, size // 64)
    line = b"".join(
        tagged_bytes(4, tagged_varint(1, i) + tagged_varint(2, i * 2_000_000) + tagged_varint(3, 1_000_000))
        for i in numbers
    )
    return _plane(
        b"/device:GPU:0", line, b"".join(_named(i, b"volta_fp16_s884gemm_128x128_%x" % i) for i in numbers)
    )


# --- compiled programs -------------------------------------------------------------------------------------


def program(computations: Iterable[tuple[int, bytes]], run: Iterable[str]) -> bytes:
    """A device that runs these instructions of a module, whose first computation is its entry."""
    body = tagged_bytes(1, b"jit_step") + tagged_bytes(2, b"main") + tagged_varint(6, 1)
    body += b"".join(
        tagged_bytes(3, tagged_bytes(1, b"c") + instructions + tagged_varint(5, id))
        for id, instructions in computations
    )
    line = tagged_bytes(2, b"Stream #7(Compute)")
    line += b"".join(_run(at, name.encode()) for at, name in enumerate(run))
    metadata = hlo.metadata_plane("jit_step", [], tagged_bytes(1, body))
    return _plane(b"/device:GPU:0", line, _named(1, b"fusion_kernel")) + tagged_bytes(1, metadata)


def _run(at: int, instruction: bytes) -> bytes:
    event = tagged_varint(1, 1) + tagged_varint(2, at * 2_000_000) + tagged_varint(3, 1_000_000)
    event += tagged_bytes(4, tagged_varint(1, 6) + tagged_bytes(5, instruction))
    event += tagged_bytes(4, tagged_varint(1, 7) + tagged_bytes(5, b"jit_step"))
    return tagged_bytes(4, event + tagged_bytes(4, tagged_varint(1, 8) + tagged_varint(3, hlo.PROGRAM)))


def instruction(
    name: str, opcode: str, id: int, calls: Iterable[int] = (), reads: Iterable[int] = ()
) -> bytes:
    body = hlo.head(name, opcode, ("f16", (64, 64)), "jit(step)/jit(main)/dense/dot_general")
    body += tagged_varint(35, id) + b"".join(tagged_varint(36, one) for one in reads)
    return tagged_bytes(2, body + b"".join(tagged_varint(38, one) for one in calls))


def _shared_fusions(size: int) -> bytes:
    """Fusions that all call the same large computation."""
    names = [f"f.{at}" for at in range(size // 140)]
    inner = b"".join(instruction("i", "dot", 1 << 22 | at) for at in range(size // 1000))
    main = b"".join(instruction(name, "fusion", 1000 + at, (2,)) for at, name in enumerate(names))
    return program(((1, main), (2, inner)), names)


def _own_fusions(size: int) -> bytes:
    """A computation for each fusion."""
    names = [f"f.{at}" for at in range(size // 210)]
    first = 1 << 20
    main = b"".join(instruction(name, "fusion", 1000 + at, (first + at,)) for at, name in enumerate(names))
    bodies = ((first + at, instruction("i", "dot", 1 << 22 | at)) for at in range(len(names)))
    return program(((1, main), *bodies), names)


def _fusions_in_one_another(size: int) -> bytes:
    names = [f"f.{at}" for at in range(size // 130)]
    levels = ((at + 1, instruction(name, "fusion", 1 << 22 | at, (at + 2,))) for at, name in enumerate(names))
    return program(levels, names)


def _fusions_from_many_places(size: int) -> bytes:
    """Four levels of fusions, each of which calls all of the next one: the square of them stands beside."""
    many = int((size / 70) ** 0.5)
    levels = (
        (level, b"".join(instruction("i", "fusion", level << 16 | at, (level + 1,)) for at in range(many)))
        for level in (2, 3, 4)
    )
    last = b"".join(instruction("i", "dot", 5 << 16 | at) for at in range(many))
    beside = b"".join(instruction("p", "add", 1 << 22 | at) for at in range(many * many))
    return program(((1, instruction("f", "fusion", 7, (2,))), *levels, (5, last), (6, beside)), ["f"])


def _many_operands(size: int) -> bytes:
    """Instructions that read all before them."""
    names = [f"a.{at}" for at in range(int((size / 2) ** 0.5))]
    reads = (range(1000, 1000 + at) for at in range(len(names)))
    main = b"".join(
        instruction(name, "add", 1000 + at, (), read)
        for at, (name, read) in enumerate(zip(names, reads, strict=True))
    )
    return program(((1, main),), names)


# --- chrome ------------------------------------------------------------------------------------------------


def _events(of: Callable[[int], str]) -> Write:
    def write(path: Path, size: int) -> None:
        with path.open("wb") as file:
            _listed(file, of, size)

    return write


def _listed(file: BinaryIO, of: Callable[[int], str], size: int) -> None:
    written = file.write(b'{"traceEvents":[')
    for number in range(size):
        written += file.write((of(number) + ",").encode())
        if written >= size:
            break
    file.write(b'{"ph":"X","cat":"cpu_op","name":"last","ts":1}]}')


def _zipped(path: Path, size: int) -> None:
    """As many events as the ratio allows of which a file is no bomb yet."""
    with gzip.open(path, "wb", 6) as file:
        _listed(file, lambda i: _NAMED.format(i * 7919 % 99991, i), size)


def _packed_numbers(path: Path, size: int) -> None:
    """Events with long lists, in nearly as many bytes as the ratio allows."""
    from mpprof.model import limits

    size = int(0.76 * size)  # what is random is packed to more than half
    event = '{"ph":"X","cat":"cpu_op","name":"n","ts":%d,"args":{"a":[' + "1," * 400 + '1],"b":"%s"}},'
    piece = 1 << 20
    with gzip.open(path, "wb", 6) as file:
        file.write(b'{"traceEvents":[')
        for first in range(0, int(0.9 * limits.UNPACKED_RATIO * size), piece):
            file.write((event % (first, os.urandom(piece // limits.UNPACKED_RATIO).hex())).encode())
            file.write("".join(event % (first + at, "") for at in range(1, piece // 900)).encode())
        file.write(b'{"ph":"X","cat":"cpu_op","name":"last","ts":1}]}')


def _header(path: Path, size: int) -> None:
    path.write_bytes(
        b'{"a":[' + b"[]," * (size // 3) + b'[]],"traceEvents":[{"ph":"X","cat":"cpu_op","name":"a","ts":1}]}'
    )


# --- nsys, records, counters -------------------------------------------------------------------------------


def _export(
    table: str, rows: Callable[[int], Iterable[tuple[int | str, ...]]], width: int, *more: str
) -> Write:
    def write(path: Path, size: int) -> None:
        from tests.traces.test_nsys import SCHEMA

        db = sqlite3.connect(path, isolation_level=None)
        db.executescript(SCHEMA)
        for statement in more:
            db.execute(statement)
        db.execute("begin")
        columns = len(db.execute(f"pragma table_info({table})").fetchall())
        db.executemany(f"insert into {table} values ({', '.join('?' * columns)})", rows(size // width))
        db.execute("commit")
        for column in ("end", "deviceId", "globalPid", "demangledName", "correlationId") if more else ():
            db.execute(f"alter table {table} add column {column} integer default 1")
        db.close()

    return write


def _ranges(count: int) -> Iterator[tuple[int | str, ...]]:
    return ((i, i + 1, 59, f"r{i}", -1, i << 24) for i in range(count))


def lines_of(of: Callable[[int], str], schema: str) -> Write:
    def write(path: Path, size: int) -> None:
        with path.open("w") as file:
            written = file.write(json.dumps({"schema": schema}) + "\n")
            for number in range(1, size):
                written += file.write(of(number) + "\n")
                if written >= size:
                    break

    return write


def _table(path: Path, size: int) -> None:
    with path.open("w") as file:
        file.write('"ID","Kernel Name","CC","sm__inst_executed_pipe_tensor_op_hmma.sum"\n')
        for number in range(size // 12):
            file.write(f"{number},k{number},,1\n")


def _layers(path: Path, size: int) -> None:
    """As many layers as are read, with large configs."""
    from tests.fuzz import seeds

    facts = json.loads(seeds.runs()[0])
    config = {f"k{at}": [at] for at in range(size // 10_000 // 12)}
    layer = facts["model"]["layers"][0]
    facts["model"]["layers"] = [{**layer, "name": f"layer_{at}", "config": config} for at in range(10_000)]
    path.write_text(json.dumps(facts))


_SAMPLE = '{{"t_ns":{0}000000000,"gpus":[' + ",".join(f'{{{{"index":{at}}}}}' for at in range(1000)) + "]}}"
_STEP = '{{"kind":"step","step":{0},"fit":1,"t_ns":{0}}}'
_KINETO = '{{"ph":"X","cat":"cpu_op","name":"n{0}","pid":1,"tid":1,"ts":{0},"dur":1}}'
_NAMED = '{{"ph":"X","cat":"cpu_op","name":"{}","ts":{}}}'
_NESTED = '{{"ph":"X","cat":"user_annotation","name":"m{0}","pid":1,"tid":1,"ts":{0},"dur":{1}}}'
_KERNELS = '{{"ph":"X","cat":"kernel","name":"sgemm_{0}","tid":7,"ts":{0},"dur":1,"args":{{"device":0}}}}'
_THREADS = '{{"ph":"X","cat":"cpu_op","name":"n","pid":{0},"tid":{0},"ts":1,"dur":1}}'
_DEVICES = '{{"ph":"X","cat":"kernel","name":"n","pid":{0},"tid":{0},"ts":1,"dur":1,"args":{{"device":{0}}}}}'
_NARROW = ("drop table CUPTI_ACTIVITY_KIND_KERNEL", "create table CUPTI_ACTIVITY_KIND_KERNEL (start integer)")


def _snapshot(piece: Callable[[int], bytes], before: bytes = b"", after: bytes = b"") -> Write:
    """A memory snapshot whose history is made of these pieces."""
    begins = b"\x80\x04}(\x8c\x08segments]\x8c\x0ddevice_traces](](" + before

    def write(path: Path, size: int) -> None:
        each = len(piece(0))
        path.write_bytes(begins + b"".join(piece(i) for i in range(size // each)) + after + b"eeu.")

    return write


_ALLOCATION = b"}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeM\0\x04\x8c\x04addrJ%b\x8c\x06frames](}(\x8c\x04name\x8c\x04%beu"
"""A block with a stack of its own."""


def _allocations(i: int) -> bytes:
    name = b"%04x" % (i % (1 << 16))
    return _ALLOCATION % ((i % (1 << 31)).to_bytes(4, "little"), name) + b"u"


CASES = (
    Case("empty events", "xspace", _xspace(_empty_events)),
    Case("short events of a device", "xspace", _xspace(_short_events(b"/device:GPU:0"))),
    Case("short events of a host", "xspace", _xspace(_short_events(b"/host:CPU"))),
    Case("a name for each event", "xspace", _xspace(_names)),
    Case("a text for each event", "xspace", _xspace(_texts)),
    Case("sparse ids", "xspace", _xspace(_sparse)),
    Case("many planes", "xspace", _xspace(_planes)),
    Case("one long name", "xspace", _xspace(_string)),
    Case("nested events of a host", "xspace", _xspace(_nested)),
    Case("distinct kernels", "xspace", _xspace(_kernels)),
    Case("fusions of one computation", "hlo", _xspace(_shared_fusions)),
    Case("a computation for each fusion", "hlo", _xspace(_own_fusions)),
    Case("fusions in one another", "hlo", _xspace(_fusions_in_one_another)),
    Case("fusions called from many places", "hlo", _xspace(_fusions_from_many_places)),
    Case("many operands", "hlo", _xspace(_many_operands)),
    Case("many events of an xplane in gzip", "xspace-gz", _packed_events),
    Case("a large field in gzip", "xspace-gz", _packed_field),
    Case("kineto names", "kineto", _events(_KINETO.format)),
    Case("kineto threads", "kineto", _events(_THREADS.format)),
    Case("kineto devices", "kineto", _events(_DEVICES.format)),
    Case("kineto short events", "kineto", _events(lambda _: '{"ph":"X","cat":"cpu_op","name":"","ts":1}')),
    Case("kineto memory", "kineto", _events(lambda _: '{"ph":"i","name":"[memory]","ts":1,"args":{"Bytes":1}}')),
    Case("a large header", "kineto", _header),
    Case("one long string", "kineto", _events(lambda i: json.dumps({"ph": "X", "cat": "cpu_op", "name": "x" * (1 << 22), "ts": i}))),
    Case("kineto nested annotations", "kineto", _events(lambda i: _NESTED.format(i, 10**9 - 2 * i))),
    Case("kineto distinct kernels", "kineto", _events(_KERNELS.format)),
    Case("many events in gzip", "chrome-gz", _zipped),
    Case("long lists in gzip", "chrome-gz", _packed_numbers),
    Case("tensorflow short events", "tensorflow", _events(lambda _: '{"ph":"X","ts":1}')),
    Case("nsys ranges", "nsys", _export("NVTX_EVENTS", _ranges, 34)),
    Case("nsys narrow rows", "nsys", _export("CUPTI_ACTIVITY_KIND_KERNEL", lambda n: ((1,) for _ in range(n)), 8, *_NARROW)),
    Case("allocations with stacks of their own", "torch-memory", _snapshot(_allocations)),
    Case("one event many times", "torch-memory",
         _snapshot(lambda _: b"h\x00", b"}(\x8c\x06action\x8c\x05alloc\x8c\x04sizeK\x01\x8c\x04addrK\x01u\x94")),
    Case("short texts of a pickle", "torch-memory", _snapshot(lambda i: b"\x8c\x02" + chr(0x400 + i % 1000).encode())),
    Case("short numbers of a pickle", "torch-memory", _snapshot(lambda i: b"M\0\x04")),
    Case("dictionaries of a pickle", "torch-memory", _snapshot(lambda i: b"}KKKKKKK")),
    Case("short steps", "steps", lines_of(_STEP.format, "mpprof.steps/1")),
    Case("lines of nothing", "steps", lines_of(lambda _: "{}", "mpprof.steps/1")),
    Case("short samples", "hardware", lines_of('{{"t_ns":{}}}'.format, "mpprof.hardware/1")),
    Case("many devices in each sample", "hardware", lines_of(_SAMPLE.format, "mpprof.hardware/1")),
    Case("many layers", "run", _layers),
    Case("short kernels", "counters", _table),
)  # fmt: skip
BY_NAME = {case.name: case for case in CASES}


def peak_bytes(reset: bool = False) -> int:
    """The largest resident size since the last reset (Linux: `clear_refs` 5, proc(5))."""
    if reset:
        Path("/proc/self/clear_refs").write_text("5")
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) << 10


def _take(name: str, mib: float, folder: Path) -> None:
    case = BY_NAME[name]
    made = folder / "made"
    case.write(made, int(mib * (1 << 20)))  # first of all: what it leaves to be used again is little
    target = TARGETS[case.target]
    path = folder / target.file
    path.parent.mkdir(exist_ok=True)
    if path.parent != folder:  # records: a run has facts, whatever else it has
        (path.parent / "run.json").write_bytes(seeds.runs()[0])
    path.write_bytes(target.seeds()[0])
    target.read(path)
    made.replace(path)
    before, at, error = peak_bytes(reset=True), time.process_time(), ""
    try:
        target.read(path)
    except MpprofError as refused:
        error = str(refused)
    took = {"seconds": time.process_time() - at, "peak_bytes": peak_bytes() - before}
    print(json.dumps({"case": name, "bytes": path.stat().st_size, **took, "error": error}), flush=True)


def main(mib: float, folder: Path, *names: str) -> int:
    """Read each case in a process of its own, forked from this one, which has imported what they need."""
    for number, name in enumerate(names):
        own = folder / str(number)
        own.mkdir()
        process = os.fork()
        if process == 0:
            failed = 1
            try:
                _take(name, mib, own)
                failed = 0
            finally:
                if failed:
                    traceback.print_exc()
                    sys.stderr.flush()
                os._exit(failed)
        if os.waitpid(process, 0)[1]:
            return 1
        shutil.rmtree(own)
    return 0


if __name__ == "__main__":
    sys.exit(main(float(sys.argv[1]), Path(sys.argv[2]), *sys.argv[3:]))
