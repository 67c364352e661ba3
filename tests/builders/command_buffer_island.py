"""*Synthetic*: a recorded H100 run of a transformer in mixed_float16 whose feed-forward layers are made to stay
in float32, as the same model does that was seen on that card and not kept (docs/accuracy.md).

What changes: operands of those layers' products are f32, two of cuBLAS' kernels bear the names that TF32
products have in the recorded float32 run, those products take twice as long (all that comes later comes later),
and the layers' policies are float32. Casts are not added. Nothing here imports mpprof.
"""

from __future__ import annotations

import gzip
import json
import re
import shutil
from bisect import bisect_right
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

from tests.builders.xspace import tagged_bytes, tagged_varint

SAMPLE = Path(__file__).parents[2] / "sample_traces/recorded-h100-transformer-mixed-float16"
ISLANDS = ("dense", *(f"dense_{n}" for n in range(1, 8)))
_OWN = re.compile(rb"jvp\(dense(?:_[1-7])?\)")
_F16, _F32 = 10, 11
RENAMED = {
    b"nvjet_sm90_hss_256x64_64x5_1x2_h_bz_NTT": b"sm90_xmma_gemm_f32f32_tf32f32_f32_nt_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
    b"nvjet_sm90_hss_128x192_64x5_2x1_v_bz_coopB_NTN": b"sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize128x128x32_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
}
LONGER = {*RENAMED.values(), b"gemm_fusion_dot_112", b"gemm_fusion_dot_13", b"gemm_fusion_dot_14"}
"""Kernels whose products are those of the layers in float32, all of them."""
Edit = Callable[[bytes], bytes]


def make(folder: Path, *, also: bytes = b"") -> Path:
    """Write the run. With `also`, products under scopes that hold it have f32 operands as well, although
    their layers compute in 16 bits."""
    run = folder / "h100-island"
    shutil.copytree(SAMPLE, run)
    facts = run / "mpprof" / "run.json"
    document = json.loads(facts.read_text())
    for layer in document["model"]["layers"]:
        if layer["name"] in ISLANDS:
            layer["compute_dtype"] = layer["output_dtype"] = "float32"
    facts.write_text(json.dumps(document))
    (path,) = run.rglob("*.xplane.pb.gz")
    content = _edited(gzip.decompress(path.read_bytes()), {1: lambda plane: _plane(plane, also)})
    path.write_bytes(gzip.compress(_stretched(content), mtime=0))
    return run


def _stretched(space: bytes) -> bytes:
    """Let the islands' products run twice as long: time passes twice as slowly for everything meanwhile."""
    long: list[tuple[int, int]] = []
    for number, plane in _fields(space):
        about = [(n, value) for n, value in _fields(plane) if isinstance(value, bytes)]  # type: ignore[arg-type]
        named = {
            dict(_fields(dict(_fields(v))[2])).get(1): dict(_fields(dict(_fields(v))[2])).get(2)
            for n, v in about
            if number == 1 and n == 4
        }  # type: ignore[arg-type]
        products = {id for id, name in named.items() if name in LONGER}
        for line in (v for n, v in about if n == 3 and products):
            begin = dict(_fields(line)).get(3, 0) * 1000  # type: ignore[operator]
            for event in (dict(_fields(v)) for n, v in _fields(line) if n == 4):  # type: ignore[arg-type]
                if event.get(1) in products:
                    start = begin + event.get(2, 0)  # type: ignore[operator]
                    long.append((start, start + event.get(3, 0)))  # type: ignore[operator]
    long.sort()
    starts = [start for start, _ in long]
    sums = [0, *accumulate(end - start for start, end in long)]

    def later(t: int) -> int:
        at = bisect_right(starts, t)
        return t + sums[at] - (max(0, long[at - 1][1] - t) if at else 0)

    def line(content: bytes) -> bytes:
        begin = dict(_fields(content)).get(3, 0) * 1000  # type: ignore[operator]

        def event(old: bytes) -> bytes:
            about = dict(_fields(old))
            start = begin + about.get(2, 0)  # type: ignore[operator]
            new = {2: later(start) - begin, 3: later(start + about.get(3, 0)) - later(start)}  # type: ignore[operator]
            rest = b"".join(_put(n, value) for n, value in _fields(old) if n not in new)
            return rest + b"".join(tagged_varint(n, value) for n, value in new.items())

        return _edited(content, {4: event})

    return _edited(space, {1: lambda plane: _edited(plane, {3: line})})


def _plane(plane: bytes, also: bytes) -> bytes:
    """A plane's event metadata are field 4: their value is field 2, with a name (2) and stats (5), of which
    the HLO proto is bytes (6)."""

    def name(text: bytes) -> bytes:
        return RENAMED.get(text, text)

    def stat(value: bytes) -> bytes:
        return _edited(value, {6: lambda proto: _edited(proto, {1: lambda module: _module(module, also)})})

    return _edited(plane, {4: lambda entry: _edited(entry, {2: lambda v: _edited(v, {2: name, 5: stat})})})


def _module(module: bytes, also: bytes) -> bytes:
    """Give the operands of the islands' products the type f32, and all that their fusions compute."""
    computations = [value for number, value in _fields(module) if number == 3 and isinstance(value, bytes)]
    wide: set[int] = set()
    called: set[int] = set()
    for computation in computations:
        for _, instruction in _members(computation):
            about = dict(_fields(instruction))
            scope = bytes(about.get(7, b""))  # type: ignore[arg-type]
            own = _OWN.search(scope) or (also and also in scope)
            if own and about.get(2) in (b"custom-call", b"fusion") and b"dot" in bytes(about[1]) + scope:  # type: ignore[arg-type]
                wide |= set(_ids(instruction, 36))
                called |= set(_ids(instruction, 38))

    def change(computation: bytes) -> bytes:
        fused = dict(_fields(computation)).get(5) in called

        def instruction(content: bytes) -> bytes:
            about = dict(_fields(content))
            return _edited(content, {3: _widened}) if fused or about.get(35) in wide else content

        return _edited(computation, {2: instruction})

    return _edited(module, {3: change})


def _widened(shape: bytes) -> bytes:
    return b"".join(
        tagged_varint(2, _F32 if value == _F16 else value) if number == 2 and isinstance(value, int)
        else _put(number, value)
        for number, value in _fields(shape)
    )  # fmt: skip


def _members(computation: bytes) -> list[tuple[int, bytes]]:
    return [(n, value) for n, value in _fields(computation) if n == 2 and isinstance(value, bytes)]


def _ids(instruction: bytes, wanted: int) -> Iterator[int]:
    """Ids in a field, packed or one by one."""
    for number, value in _fields(instruction):
        if number == wanted and isinstance(value, int):
            yield value
        elif number == wanted:
            at = 0
            while at < len(value):  # type: ignore[arg-type]
                one, at = _varint(value, at)  # type: ignore[arg-type]
                yield one


# --- the wire format: varints (0), 8 bytes (1), lengths (2), 4 bytes (5) ------------------------------------


def _edited(message: bytes, edits: dict[int, Edit]) -> bytes:
    """The message with fields of bytes edited, by number."""
    return b"".join(
        _put(number, edits[number](value) if number in edits and isinstance(value, bytes) else value)
        for number, value in _fields(message)
    )


def _put(number: int, value: int | bytes | memoryview) -> bytes:
    if isinstance(value, int):
        return tagged_varint(number, value)
    if isinstance(value, bytes):
        return tagged_bytes(number, value)
    return _varint_of(number << 3 | (1 if len(value) == 8 else 5)) + bytes(value)


def _varint_of(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def _varint(buffer: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = buffer[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes | memoryview]]:
    """Numbers and values; those of fixed width as views, as they are copied and never read."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        number, wire = key >> 3, key & 7
        if wire == 0:
            value, at = _varint(message, at)
            yield number, value
        elif wire == 2:
            size, at = _varint(message, at)
            yield number, message[at : at + size]
            at += size
        else:
            size = 8 if wire == 1 else 4
            yield number, memoryview(message[at : at + size])
            at += size
