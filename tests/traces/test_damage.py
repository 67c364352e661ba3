"""Whatever the bytes: a trace with a warning, or one clear error; never a crash, a hang or much memory."""

from __future__ import annotations

import gzip
import os
import random
import subprocess
import sys
import tracemalloc
from bisect import bisect_left
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import traces
from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model import limits
from mpprof.model.trace import HloInstruction, Trace
from mpprof.traces.xspace import counting, reader
from tests.builders.xspace import Ref, Space, tagged_bytes, tagged_varint, varint
from tests.fuzz import heavy
from tests.paths import SHARED
from tests.traces.conftest import needs_shared

MEMORY_MULTIPLE, MEMORY_BASE = 64, 100 << 20


def gpu_space() -> Space:
    space = Space(hostnames=["here"])
    device = space.plane("/device:GPU:0")
    stream = device.line(7, "Stream #7(Compute)", 1_000)
    host = space.plane("/host:CPU")
    thread = host.line(11, "python", 1_000)
    for i in range(30):
        thread.event(f"m/op{i % 3}:MatMul", 1_000 + 100 * i, 60, display="MatMul")
        thread.event("cuLaunchKernel", 1_010 + 100 * i, 40, {"correlation_id": i + 1})
        thread.event(
            "MemoryAllocation", 1_020 + 100 * i, 0, {"allocator_name": Ref("GPU_0_bfc"), "addr": 64 * i}
        )
        stats = {
            "correlation_id": i + 1,
            "tf_op": Ref(f"m/op{i % 3}:MatMul"),
            "kernel_details": Ref("regs:32"),
        }
        stream.event(f"kernel_{i % 4}", 2_000 + 100 * i, 50, stats)
    return space


def write(path: Path, data: bytes) -> Path:
    path.write_bytes(data)
    return path


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "host.xplane.pb"


def test_an_empty_file_is_one_clear_error(file: Path) -> None:
    with pytest.raises(UnreadableError, match=r"host\.xplane\.pb: the file is empty"):
        traces.read(write(file, b""))


def test_text_is_one_clear_error_that_names_file_and_byte(file: Path) -> None:
    with pytest.raises(UnreadableError, match=r"host\.xplane\.pb: not a profile: .*\(byte \d+\)"):
        traces.read(write(file, b"This is a note to myself.\n" * 50))


def test_a_directory_and_a_missing_file_are_errors(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match="is a directory"):
        traces.read(tmp_path)
    with pytest.raises(NotFoundError):
        traces.read(tmp_path / "nothing.xplane.pb")


def test_an_unknown_format_is_an_error_that_lists_the_known_ones(tmp_path: Path) -> None:
    with pytest.raises(UnreadableError, match=r"\.xplane\.pb"):
        traces.read(write(tmp_path / "notes.txt", b"hello"))


def test_find_gives_traces_oldest_first_and_nothing_else(tmp_path: Path) -> None:
    import os

    data = gpu_space().to_bytes()
    for age, name in (
        (1, "b/plugins/profile/2/h.xplane.pb"),
        (2, "a/plugins/profile/1/h.xplane.pb"),
        (3, "x.txt"),
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        write(path, data)
        os.utime(path, (10_000 - age, 10_000 - age))
    found = traces.find_traces(tmp_path)
    assert [p.relative_to(tmp_path).parts[0] for p in found] == ["a", "b"]
    assert traces.find_traces(found[0]) == (found[0],)
    assert traces.find_traces(tmp_path / "b" / "plugins") == (found[1],)
    with pytest.raises(NotFoundError):
        traces.find_traces(tmp_path / "c")


def test_a_cut_within_the_host_plane_keeps_the_device_whole(file: Path) -> None:
    data = gpu_space().to_bytes()
    whole = traces.read(write(file, data))
    cut = traces.read(write(file, data[: int(len(data) * 0.6)]))
    assert len(cut.kernels) == len(whole.kernels) == 30
    assert len(cut.host) < len(whole.host)
    assert any(f"of {int(len(data) * 0.6)}" in warning for warning in cut.warnings)
    assert not whole.warnings
    with pytest.raises(UnreadableError, match="byte"):
        traces.read(file, strict=True)


def test_damage_within_an_event_leaves_out_that_event(file: Path) -> None:
    space = gpu_space()
    space.planes[0].lines[0].events[4] = tagged_bytes(4, b"\x08\x01\x0b")
    trace = traces.read(write(file, space.to_bytes()))
    assert len(trace.kernels) == 29
    assert any("1 damaged or cut-off events, the first at byte" in warning for warning in trace.warnings)
    with pytest.raises(UnreadableError, match="damaged"):
        traces.read(file, strict=True)


def test_a_file_of_which_no_event_is_left_is_an_error(file: Path) -> None:
    data = gpu_space().to_bytes()
    with pytest.raises(UnreadableError, match=r"no event is left: .* byte 0 of 200"):
        traces.read(write(file, data[:200]))


@pytest.mark.parametrize("every", [16, pytest.param(1, marks=pytest.mark.full)])
def test_a_truncation_gives_a_trace_with_a_warning_or_one_error(every: int, file: Path) -> None:
    """Where one event ends and the next begins is another place in each."""
    space = gpu_space()
    data = space.to_bytes()
    first = len(tagged_bytes(1, space.planes[0].to_bytes()))
    ends = {first, len(data) - len(tagged_bytes(4, b"here"))}
    outcomes = set()
    for size in sorted({*range(1, len(data), every), *ends, len(data) - 1}):
        trace = read_or_none(write(file, data[:size]))
        outcomes.add("error" if trace is None else "trace")
        # between two planes a file may end and be whole
        assert trace is None or trace.warnings or size in ends, size
    assert outcomes == {"error", "trace"}


def read_or_none(path: Path) -> Trace | None:
    """The trace, or None where reading ends in the one error it may end in, which names the file."""
    try:
        return traces.read(path)
    except UnreadableError as error:
        if str(path) not in str(error):
            raise
        return None


def check(trace: Trace) -> None:
    """Every index of a trace points into its table."""
    for table, column, limit in (
        ("kernels", "device", "devices"), ("kernels", "stream", "streams"), ("kernels", "name", "strings"),
        ("kernels", "op", "ops"), ("kernels", "launch", "host"), ("kernels", "shapes", "strings"),
        ("kernels", "details", "strings"), ("host", "thread", "threads"), ("host", "name", "strings"),
        ("host", "op", "ops"), ("markers", "thread", "threads"), ("markers", "family", "strings"),
        ("allocations", "allocator", "strings"), ("allocations", "op", "ops"), ("allocations", "shapes", "strings"),
    ):  # fmt: skip
        values = getattr(getattr(trace, table), column)
        assert not len(values) or (values.min() >= -1 and values.max() < len(getattr(trace, limit))), (
            table,
            column,
        )
    kernels = trace.kernels
    assert not len(kernels) or kernels.duration_ns.min() >= 0
    assert len({len(getattr(kernels, name)) for name in kernels.__slots__}) == 1


def mutations(data: bytes, seed: int, count: int) -> list[bytes]:
    dice = random.Random(seed)
    made = []
    for _ in range(count):
        changed = bytearray(data)
        for _ in range(dice.choice((1, 1, 2, 4, 16))):
            at = dice.randrange(len(changed))
            kind = dice.randrange(4)
            if kind == 0:
                changed[at] = dice.randrange(256)
            elif kind == 1:
                changed[at : at + 1] = varint(dice.choice((2**31, 2**32, 2**63, 2**64 - 1, 0)))
            elif kind == 2:
                del changed[at : at + dice.randrange(1, 40)]
            else:
                changed[at:at] = changed[max(0, at - dice.randrange(1, 60)) : at]
            changed = changed or bytearray(b"\n")
        made.append(bytes(changed))
    return made


@needs_shared()
@pytest.mark.parametrize(
    "name", ["gtx1080ti-xla/cyclops.xplane.pb", "mi300-jax/jax_conv_minimal_08.xplane.pb"]
)
def test_mutated_recorded_traces_never_crash(name: str, file: Path) -> None:
    read = 0
    for data in mutations((SHARED / name).read_bytes(), 11, 250):
        trace = read_or_none(write(file, data))
        if trace is not None:
            check(trace)
            read += 1
    assert read > 50


@pytest.mark.parametrize(
    "data",
    [
        tagged_bytes(1, tagged_bytes(2, b"/device:GPU:0") + tagged_bytes(3, tagged_bytes(4, b"") * 400_000)),
        tagged_bytes(1, tagged_bytes(2, b"/host:CPU") + tagged_bytes(3, b"") * 400_000),
        tagged_bytes(1, tagged_bytes(2, b"/host:CPU") + tagged_bytes(4, b"") * 400_000),
        tagged_bytes(
            1, tagged_bytes(2, b"/device:GPU:0") + tagged_bytes(5, tagged_varint(1, 2**62)) * 50_000
        ),
        pytest.param(tagged_bytes(1, tagged_bytes(2, b"x")) * 20_000, marks=pytest.mark.full),
        pytest.param(tagged_bytes(1, tagged_bytes(2, b"/device:GPU:0")) * 5_000, marks=pytest.mark.full),
    ],
    ids=["empty events", "empty lines", "empty metadata", "huge ids", "many planes", "many devices"],
)
def test_memory_stays_below_its_stated_multiple(data: bytes, file: Path) -> None:
    write(file, data)
    tracemalloc.start()
    try:
        trace = read_or_none(file)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert trace is None or len(trace.warnings) < 20_000
    assert peak < MEMORY_MULTIPLE * len(data) + MEMORY_BASE


def with_module(module: bytes) -> bytes:
    """A trace with a kernel of the instruction `deep` of this HloModuleProto, whose name is `m`."""
    space = gpu_space()
    space.planes[0].lines[0].event("k", 9_000, 5, {"hlo_op": "deep", "hlo_module": "m", "program_id": 1})
    metadata = tagged_varint(1, 1) + tagged_bytes(2, b"m(1)")
    metadata += tagged_bytes(5, tagged_varint(1, 1) + tagged_bytes(6, tagged_bytes(1, module)))
    plane = tagged_bytes(2, b"/host:metadata") + tagged_bytes(
        4, tagged_varint(1, 1) + tagged_bytes(2, metadata)
    )
    plane += tagged_bytes(
        5, tagged_varint(1, 1) + tagged_bytes(2, tagged_varint(1, 1) + tagged_bytes(2, b"hlo_proto"))
    )
    return tagged_bytes(1, plane) + space.to_bytes()


def test_deep_nesting_is_no_recursion(file: Path) -> None:
    shape = b""
    for _ in range(5_000):
        shape = tagged_bytes(4, shape)
    instruction = tagged_bytes(1, b"deep") + tagged_bytes(3, shape) + tagged_varint(35, 1)
    instruction += tagged_bytes(2, b"fusion") + tagged_bytes(
        38, varint(3)
    )  # a fusion that calls its own computation
    module = tagged_bytes(1, b"m") + tagged_bytes(3, tagged_bytes(2, instruction) + tagged_varint(5, 3))
    trace = traces.read(write(file, with_module(module)))
    assert any(op.hlo is not None and op.hlo.name == "deep" for op in trace.ops)


def test_computations_that_call_each_other_are_listed_a_bounded_number_of_times(file: Path) -> None:
    members = b"".join(
        tagged_bytes(
            2,
            tagged_bytes(1, name) + tagged_bytes(2, b"fusion") + tagged_varint(35, id) + tagged_varint(38, 3),
        )
        for id, name in enumerate((b"deep", *(b"f%d" % i for i in range(40))), 1)
    )  # 41 to the power of 8, were they followed
    module = tagged_bytes(1, b"m") + tagged_bytes(3, members + tagged_varint(5, 3))
    (op,) = {op.hlo for op in traces.read(write(file, with_module(module))).ops if op.hlo}

    def listed(instruction: HloInstruction) -> int:
        return 1 + sum(map(listed, instruction.called))

    assert 41 < listed(op) < 1_000


def test_operands_are_read_as_many_as_a_program_has_on_average(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of instructions that read all before them, the whole program's are as many as its bytes."""
    count = 400
    heavy.BY_NAME["many operands"].write(file, 2 * count**2)

    def read(most: int) -> int:
        monkeypatch.setattr(limits, "MEAN_OPERANDS", most)
        ops = [op.hlo for op in traces.read(file).ops if op.hlo]
        assert len(ops) == count
        return sum(len(op.operands) for op in ops)

    assert read(count) == sum(range(count))
    assert 8 * count < read(8) <= 8 * (count + 8)


@pytest.mark.parametrize(
    ("size", "rank", "contracting"),
    [(2**62, 40, "0"), (2**62, 2, "0"), (8, 2, "\u00b2"), (8, 2, "9" * 5_000)],
)
def test_shapes_and_contractions_that_cannot_be_give_no_operations(
    size: int, rank: int, contracting: str, file: Path
) -> None:
    shape = tagged_bytes(3, tagged_varint(2, 11) + tagged_varint(3, size) * rank)
    config = f'{{"dot_dimension_numbers":{{"lhs_contracting_dimensions":["{contracting}"]}}}}'.encode()
    operand = tagged_bytes(1, b"p") + tagged_bytes(2, b"parameter") + shape + tagged_varint(35, 1)
    call = tagged_bytes(1, b"deep") + tagged_bytes(2, b"custom-call") + shape + tagged_varint(35, 2)
    call += tagged_bytes(28, b"__cublas$gemm") + tagged_bytes(43, config) + tagged_varint(36, 1)
    module = tagged_bytes(1, b"m") + tagged_bytes(
        3, tagged_bytes(2, operand) + tagged_bytes(2, call) + tagged_varint(5, 3)
    )
    (op,) = {op.hlo for op in traces.read(write(file, with_module(module))).ops if op.hlo}
    assert op.flops is None


def test_an_event_too_short_to_name_anything_is_damage(file: Path) -> None:
    space = gpu_space()
    space.planes[0].lines[0].events[4] = tagged_bytes(4, b"")
    trace = traces.read(write(file, space.to_bytes()))
    assert len(trace.kernels) == 29
    assert any("1 damaged or cut-off events, the first at byte" in warning for warning in trace.warnings)


CUT_OFF_WHILE_READ = """
import os, sys
from pathlib import Path
from typing import Any
from mpprof import traces
from mpprof.traces.common import planes
from mpprof.traces.xspace import programs, reader

def read_space(buffer):
    os.truncate(sys.argv[1], 0)  # what a copy over the file does first
    return planes.read_space(buffer)

reader.read_space = programs.read_space = read_space
whole = open(sys.argv[1], "rb").read()
print(len(traces.read(sys.argv[1]).kernels))
open(sys.argv[1], "wb").write(whole)
print(len(programs.programs(Path(sys.argv[1]))))
"""


def test_a_file_that_is_cut_off_while_it_is_read_kills_no_process(file: Path) -> None:
    """The system does so (SIGBUS) where a page is read that a mapped file has no longer."""
    write(file, gpu_space().to_bytes())
    done = subprocess.run(
        [sys.executable, "-c", CUT_OFF_WHILE_READ, str(file)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout.split()[1:]) == (0, ["0"]), done.stderr
    assert int(done.stdout.split()[0]) > 0


@pytest.mark.parametrize("how", ["cut off", "overwritten"])
def test_a_file_that_is_written_while_it_is_copied_is_read_with_a_warning(
    file: Path, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(file, gpu_space().to_bytes())
    whole, copied = file.read_bytes(), reader._whole

    def writing(source: Any, size: int) -> Any:
        found = copied(source, size // 2 if how == "cut off" else size)
        file.write_bytes(whole if how == "overwritten" else whole[: size // 2])
        os.utime(file, ns=(1, 1))
        return found

    monkeypatch.setattr(reader, "_whole", writing)
    assert reader.CHANGED in traces.read(file).warnings
    file.write_bytes(whole)
    with pytest.raises(UnreadableError, match="the file was written while it was read"):
        traces.read(file, strict=True)


def test_of_a_file_with_holes_the_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "sparse"
    with path.open("wb") as file:
        for at in (0, 1 << 20, 3 << 20):
            file.seek(at)
            file.write(b"data" * 2000)
        file.truncate(5 << 20)
    damages: list[str] = []
    with path.open("rb") as source:
        assert reader._sparse(source, 5 << 20).tobytes() == path.read_bytes()
        assert reader.bytes_of(source, damages).tobytes() == path.read_bytes()
    assert damages == []


TERABYTE = 1 << 40
_DEVICE = tagged_bytes(2, b"/device:GPU:0")


def _of_a_terabyte(*fields: tuple[int, bytes]) -> bytes:
    """The beginning of fields within one another, each with the bytes that it begins with."""
    return b"".join(
        varint(number << 3 | 2) + varint(TERABYTE - 64 * level) + before
        for level, (number, before) in enumerate(fields)
    )


@pytest.mark.parametrize(
    "beginning",
    [
        _of_a_terabyte((1, b""), (2, b"")),
        _of_a_terabyte((1, _DEVICE), (3, b""), (2, b"")),
        _of_a_terabyte((1, _DEVICE), (4, b""), (2, b""), (2, b"")),
        _of_a_terabyte((1, _DEVICE), (5, b""), (2, b""), (2, b"")),
        _of_a_terabyte((1, _DEVICE), (6, tagged_varint(1, 1)), (5, b"")),
        _of_a_terabyte((1, _DEVICE), (6, tagged_varint(1, 1)), (6, b"")),
        tagged_bytes(1, _DEVICE) + _of_a_terabyte((2, b"")),
        tagged_bytes(1, _DEVICE) + _of_a_terabyte((4, b"")),
    ],
    ids=("plane", "line", "event", "stat", "text", "bytes", "error", "host"),
)
def test_a_text_of_a_terabyte_is_not_read_to_its_end(beginning: bytes, file: Path) -> None:
    """A sparse file may have one, which takes no space on the disk."""
    write(file, gpu_space().to_bytes() + beginning)
    os.truncate(file, 2 * TERABYTE)
    assert len(traces.read(file).kernels) == 30


def test_of_a_long_text_the_beginning_is_read(file: Path) -> None:
    space = Space()
    space.plane("/device:GPU:0").line(7, "Stream #7").event("k" * (limits.LONGEST_RAW_TEXT_BYTES + 9), 0, 5)
    assert len(traces.read(write(file, space.to_bytes())).strings[0]) <= limits.LONGEST_RAW_TEXT_BYTES


def test_gzip_is_read_and_a_damaged_one_as_far_as_it_goes(tmp_path: Path) -> None:
    data = gpu_space().to_bytes()
    packed = gzip.compress(data)
    path = write(tmp_path / "host.xplane.pb.gz", packed)
    assert len(traces.read(path).kernels) == 30
    trace = traces.read(write(path, packed[:-12]))
    assert any("compressed file is damaged" in warning for warning in trace.warnings)


@pytest.mark.parametrize("name", ["host.xplane.pb.gz", "host.trace.json.gz", "any.json.gz"])
def test_what_is_compressed_twice_or_empty_is_said_so(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(gzip.compress(b'{"traceEvents": []}')))
    with pytest.raises(UnreadableError, match=r"compressed twice.*gunzip"):
        traces.read(path)
    path.write_bytes(b"")
    with pytest.raises(UnreadableError, match="the file is empty"):
        traces.read(path)


def test_a_gzip_file_of_which_nothing_can_be_unpacked_is_damaged_and_not_empty(tmp_path: Path) -> None:
    path = tmp_path / "host.trace.json.gz"
    path.write_bytes(gzip.compress(b'{"traceEvents": []}')[:10])
    with pytest.raises(UnreadableError, match="not a Chrome trace: the compressed file is damaged after 0 "):
        traces.read(path)


@pytest.mark.parametrize("name", ["host.xplane.pb.gz", "host.pt.trace.json.gz"])
def test_a_gzip_file_has_many_members_but_not_more_than_any_has(name: str, tmp_path: Path) -> None:
    """Each takes time however little it holds: 10 MB of empty ones took a minute."""
    space = Space()
    space.plane("/device:GPU:0").line(7, "Stream #7(Compute)").event("kernel", 0, 5)
    json_text = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "ts": 1, "dur": 2}]}'
    whole = gzip.compress(space.to_bytes() if "xplane" in name else json_text)
    most = limits.MEMBERS_OF_SMALL_PACKED
    path = write(tmp_path / name, whole + gzip.compress(b"") * (most - 1))
    assert len(traces.read(path).kernels) == 1
    path.write_bytes(path.read_bytes() + gzip.compress(b""))
    with pytest.raises(UnreadableError, match=rf"packed in more than {most:,} parts.*gunzip"):
        traces.read(path)


@pytest.mark.parametrize("cut", [0, 5])
def test_a_gzip_file_with_a_damaged_end_is_read_whole_and_said_so(cut: int, tmp_path: Path) -> None:
    space = Space()
    space.plane("/device:GPU:0").line(7, "Stream #7(Compute)").event("kernel", 0, 5)
    json_text = b'{"traceEvents": [{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "ts": 1, "dur": 2}]}'
    for name, content in (("a.xplane.pb.gz", space.to_bytes()), ("a.pt.trace.json.gz", json_text)):
        packed = bytearray(gzip.compress(content))
        packed[-6] ^= 1  # the checksum
        path = tmp_path / name
        path.write_bytes(packed[: len(packed) - cut])
        trace = traces.read(path)
        assert len(trace.kernels) == 1
        assert f"damaged after {len(content)} unpacked bytes" in trace.warnings[0]
        with pytest.raises(UnreadableError, match="damaged after"):
            traces.read(path, strict=True)


def test_what_follows_the_end_of_a_json_trace_is_said(tmp_path: Path) -> None:
    path = tmp_path / "w.pt.trace.json"
    event = '{"ph": "X", "cat": "kernel", "name": "k", "pid": 0, "ts": 1, "dur": 2}'
    for text in (f'{{"traceEvents": [{event}]}}', f"[{event}]"):
        path.write_text(text + " \n")
        assert traces.read(path, strict=True).warnings == ()
        path.write_text(text + "rubbish")
        assert traces.read(path).warnings == (f"what follows the end at byte {len(text)} was left out",)
        with pytest.raises(UnreadableError, match="follows the end"):
            traces.read(path, strict=True)


def test_a_packed_xplane_of_more_events_than_its_size_allows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain, packed = tmp_path / "plain.xplane.pb", tmp_path / "packed.xplane.pb.gz"
    heavy.BY_NAME["short events of a device"].write(plain, 40_000)
    packed.write_bytes(gzip.compress(plain.read_bytes() + tagged_bytes(15, os.urandom(4_000))))
    assert len(traces.read(packed).kernels) == len(traces.read(plain).kernels) > 9_000
    monkeypatch.setattr(limits, "FIELDS_OF_SMALL_PACKED", 9_000)
    with pytest.raises(UnreadableError, match="more than 9,000 events, names"):
        traces.read(packed)
    assert len(traces.read(plain).kernels) > 9_000  # what is not packed has its own size


@pytest.mark.parametrize(
    "case", ["short events of a device", "a name for each event", "many planes", "one long name"]
)
def test_fields_are_counted_the_same_in_small_pieces(
    case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heavy.BY_NAME[case].write(tmp_path / "plain", 50_000)
    buffer = np.fromfile(tmp_path / "plain", np.uint8)
    count = bisect_left(range(50_000), True, key=lambda n: not counting.holds_more(buffer, n))
    monkeypatch.setattr(counting, "PIECE_BYTES", 64)
    assert counting.holds_more(buffer, count - 1)
    assert not counting.holds_more(buffer, count)


def test_a_gzip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MAX_UNPACKED", 1 << 22)
    path = write(tmp_path / "host.xplane.pb.gz", gzip.compress(b"\0" * (1 << 24)))
    with pytest.raises(UnreadableError, match="unpacks to more than"):
        traces.read(path)
