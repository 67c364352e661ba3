"""What an out-of-memory error says: what was asked for, what filled the memory, and what to try first.

These are read: the summary of TensorFlow's two allocators, BFC and `cuda_malloc_async`, with the error of the
op (or JAX's); XLA's list of buffers on a GPU or a TPU, or its message alone; PyTorch's message in each of its
wordings; what the driver itself refused, where the text has nothing better.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace

from mpprof.model.memory import Filled, OutOfMemory
from mpprof.model.quantities import format_bytes
from mpprof.tensors import WIDTHS, axes

_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}
_SIZE = r"(\d[\d.,]*)\s*([KMGT]i?B?|B|bytes)\b"
_NUMBER = r"(\d{1,18})"
_MOST_FILLED = 12
_ROUNDING = 0.015 * (1 << 30)
"""What three figures that torch prints to 0.01 GiB may differ by from their exact sum."""
LONGEST = 4_000_000
"""Characters that are read: a dump of every block may be longer, and says the same again."""


def read(text: str) -> OutOfMemory | None:
    """Return what the last out-of-memory error in `text` says; None where there is none."""
    text = text[-LONGEST:]
    for reader in (_xla, _tpu, _torch, _allocator, _xla_alone, _refused, _without_sizes):
        if (found := reader(text)) is not None:
            return found
    return None


# --- PyTorch -----------------------------------------------------------------------------------------------


def _torch(text: str) -> OutOfMemory | None:
    starts = [found.start() for found in re.finditer(r"(?:CUDA|HIP) out of memory\. Tried to allocate", text)]
    if not starts:
        return None
    said = text[starts[-1] : starts[-1] + 2000]
    asked = _size(said, rf"Tried to allocate {_SIZE}")
    if asked is None:
        return None
    limit = _size(said, rf"total capac?i?ty of {_SIZE}") or _size(said, rf"{_SIZE} total capacity")
    free = _size(said, rf"of which {_SIZE} is free") or _size(said, rf"{_SIZE} free")
    mine = _size(said, rf"{_SIZE} is allocated by PyTorch") or _size(said, rf"{_SIZE} already allocated")
    loose = _size(said, rf"{_SIZE} is reserved by PyTorch but unallocated")
    if loose is None:
        loose = _size(said, rf"{_SIZE} cached")  # what the first wording has for the same
    reserved = _size(said, rf"{_SIZE} reserved in total by PyTorch")
    if loose is None and reserved is not None and mine is not None:
        loose = max(0, reserved - mine)
    process = _size(said, rf"this process has {_SIZE} memory in use")
    others = None
    if process is not None and limit is not None and free is not None:
        apart = limit - free - process
        others = apart if apart > _ROUNDING else None
    device = re.search(r"GPU (\d+)", said)
    return OutOfMemory(
        framework="torch",
        asked_bytes=asked,
        limit_bytes=limit,
        used_bytes=mine,
        loose_bytes=loose,
        others_bytes=others,
        free_bytes=free,
        device=f"GPU {device[1]}" if device else None,
        op=None,
        filled=(),
    )


# --- XLA ---------------------------------------------------------------------------------------------------

_MESSAGE = (
    r"(?i:Out of memory (?:while )?(?:trying to allocate|allocating)|Failed to allocate request for) " + _SIZE
)
_LIST = ("BufferAssignment OOM Debugging", "BufferAssignment stats:", "Peak buffers:")
"""Where the list of buffers begins; a log may have lost its first lines."""
_PARTS = (
    ("arguments", "parameter allocation"), ("outputs", "maybe_live_out allocation"),
    ("temporaries", "preallocated temp allocation"), ("constants", "constant allocation"),
)  # fmt: skip


def _xla(text: str) -> OutOfMemory | None:
    start = next((at for begins in _LIST if (at := text.rfind(begins)) >= 0), None)
    if start is None:
        return None
    said = text[start:]
    asked = _last_size(_MESSAGE, text[:start]) or _last_size(_MESSAGE, said)
    asked = asked or _size(said, rf"total allocation:\s+{_SIZE}")
    if not asked:
        return None
    limit, used = _last(text, "Limit"), _last(text, "InUse")  # of JAX's allocator, where its log is there too
    return OutOfMemory(
        framework="xla",
        asked_bytes=asked,
        limit_bytes=limit,
        used_bytes=used,
        loose_bytes=_loose(limit, used),
        others_bytes=None,
        device=None,
        op=None,
        filled=_buffers(re.split(r"Buffer \d+:", said)[1:]),
        parts={name: size for name, label in _PARTS if (size := _size(said, rf"\b{label}:\s+{_SIZE}"))},
        listed_bytes=_size(said, rf"total allocation:\s+{_SIZE}"),
    )


def _buffers(blocks: Iterable[str]) -> tuple[Filled, ...]:
    """Return what a list of buffers has in each of its blocks of lines."""
    filled = []
    for block in blocks:
        size = _size(block, rf"Size: {_SIZE}")
        if size is None:
            continue
        op = re.search(r'op_name="([^"]+)"', block)
        label = re.search(r"(?i)XLA label: %?([^\s=]+)", block)
        shape = re.search(r"(?i)(?:sub)?shape: (\w+)(\[[\d,]*\])", block)
        name = op[1] if op else label[1] if label else "argument of the step"
        filled.append(Filled(name, shape[1] if shape else None, shape[2] if shape else None, 1, size))
    return _largest(filled)


def _tpu(text: str) -> OutOfMemory | None:
    """Return what XLA states of a step that it could not compile for a TPU: what the whole step needs and its
    largest buffers, or one buffer that is larger than the memory."""
    whole = list(re.finditer(rf"Used {_SIZE} of {_SIZE} hbm", text))
    one = list(re.finditer(rf"Allocation \(size={_NUMBER}\) would exceed memory \(size={_NUMBER}\)", text))
    if not whole and not one:
        return None
    if not whole:
        return _of_xla(int(one[-1][1]), int(one[-1][2]))
    said = text[whole[-1].start() :]
    used, limit = _bytes(whole[-1][1], whole[-1][2]), _bytes(whole[-1][3], whole[-1][4])
    labels = (("arguments", r"\barguments\s+"), ("outputs", "Output size "), ("temporaries", r"HLO temp\s+"))
    parts = {name: size for name, label in labels if (size := _size(said, label + _SIZE))}
    listed = said.partition("Largest program allocations in hbm")[2]
    return replace(
        _of_xla(max(0, used - parts.get("arguments", 0)), limit),
        filled=_buffers(re.split(r"\b\d+\\?\. (?=Size:)", listed)[1:]),
        parts=parts,
        listed_bytes=used,
    )


def _xla_alone(text: str) -> OutOfMemory | None:
    """Return what the message states without the list of buffers: the memory that was not there for an
    argument or an output, or for a program compiled with TensorFlow's `jit_compile`."""
    asked = _last_size(r"(?i:Resource[_ ]?exhausted)(?:Error)?:[^\n]{0,200}?\b" + _MESSAGE, text)
    return _of_xla(asked) if asked else None


def _of_xla(asked: int | None, limit: int | None = None) -> OutOfMemory:
    return OutOfMemory(
        framework="xla",
        asked_bytes=asked,
        limit_bytes=limit,
        used_bytes=None,
        loose_bytes=None,
        others_bytes=None,
        device=None,
        op=None,
        filled=(),
    )


# --- TensorFlow, and JAX with the same allocators -----------------------------------------------------------

_OF_JAX = re.compile(r"external/(?:org_tensorflow|xla|tsl)/|\b(?:Xla|Jax)RuntimeError\b")
"""jaxlib's errors, and its sources as its log names them (TensorFlow's: `tensorflow/`, `external/local_`)."""
_DUMP = re.compile(
    r"(?:Allocator \((\w+)\) ran out of memory trying to|\b(\w{1,64}) cuMemAllocAsync failed to) allocate "
    rf"{_SIZE}"
    r"(?!.{0,40}The caller indicates that this is not a failure)"
)


def _allocator(text: str) -> OutOfMemory | None:
    tensors = list(
        re.finditer(r"OOM when allocating tensor with shape\s?(\[[\d,]*\])(?:\s+and type (\w+))?", text)
    )
    dumps = list(_DUMP.finditer(text))
    if not tensors and not dumps:
        return None
    tensor, dump = (tensors[-1] if tensors else None), (dumps[-1] if dumps else None)
    summary = text[dump.start() :] if dump else text
    asked = _bytes(dump[3], dump[4]) if dump else _of_shape(tensor[1], tensor[2]) if tensor else 0
    rounded = re.match(rf".{{0,80}}?\(rounded to {_NUMBER}\)", summary, re.DOTALL)
    filled = [
        Filled(f"blocks of {format_bytes(int(size))}", None, None, int(count), int(count) * int(size))
        for count, size in re.findall(rf"{_NUMBER} Chunks of size {_NUMBER} totalling", summary)
    ]
    limit, used = _last(summary, "Limit"), _last(summary, "InUse")
    card = re.search(rf"Free memory/Total memory: {_NUMBER}/{_NUMBER}", summary)
    by = re.search(r"requested by op (\S+)", summary)
    node = re.findall(r"\[\[\{\{node ([^}]+)\}\}|\[\[[Nn]ode:? ([\w/.]+)|\[Op:(\w+)\]", text)
    op = by[1] if by else next((part for part in node[-1] if part), None) if node else None
    allocator = (dump[1] or dump[2]) if dump else (re.findall(r"by allocator (\w+)", text) or [None])[-1]
    if tensor:
        size = _of_shape(tensor[1], tensor[2])
        filled.append(Filled("the tensor that did not fit", tensor[2], tensor[1], 1, size))
    of_jax = tensor is None and dump is not None and _is_jaxs(text, dump.start())
    return OutOfMemory(
        framework="xla" if of_jax else "tensorflow",
        asked_bytes=int(rounded[1]) if rounded else asked,
        limit_bytes=limit or (int(card[2]) if card else None),
        used_bytes=used,
        loose_bytes=_loose(limit, used),
        others_bytes=None,
        free_bytes=int(card[1]) if card else None,
        device=allocator,
        op=op,
        filled=_largest(filled),
        listed_bytes=_last_size(rf"Sum Total of in-use chunks: {_SIZE}", summary),
    )


def _of_shape(shape: str, dtype: str | None) -> int:
    return math.prod(axes(shape), start=WIDTHS.get(dtype or "float", 4))


def _last(text: str, name: str) -> int | None:
    """Return the last figure of that name in an allocator's statistics; None also for 0, which an allocator
    without a limit states."""
    found = re.findall(rf"(?m)\b{name}:\s+{_NUMBER}\s*$", text)
    return (int(found[-1]) or None) if found else None


def _loose(limit: int | None, used: int | None) -> int | None:
    return None if limit is None or used is None else max(0, limit - used)


# --- the driver --------------------------------------------------------------------------------------------

_REFUSAL = re.compile(
    rf"failed to alloc(?:ate)? (?:\S{{1,20}} \()?{_NUMBER} bytes\)? (from device|unified memory|on host)"
    r"[:;].{0,80}?CUDA_ERROR_OUT_OF_MEMORY"
)
_DEVICE = (
    r"Creat(?:ed|ing) (?:TensorFlow )?device .{0,120}? with (\d{1,9}) MB memory.{0,60}? name: ([^,\n]{1,80})"
)
"""What TensorFlow's log states as it begins: the mebibytes that it may give out, and the card's name."""
_OF_TORCH = (
    r"(?:CUDA|HIP)(?: driver)? error: out of memory|(?:cuDNN|CUDA) error: CU(?:DNN|BLAS)_STATUS_ALLOC_FAILED"
)
_OF_OTHERS = r"CUDA_ERROR_OUT_OF_MEMORY|cudaErrorMemoryAllocation|CU(?:DNN|BLAS)_STATUS_ALLOC_FAILED"
PINNED = "the host (pinned memory)"


def _refused(text: str) -> OutOfMemory | None:
    """Read what TensorFlow's and JAX's logs say of the driver: an allocator that wants more asks for less and
    less until it gets something. The last falling row of sizes counts."""
    refusals = list(_REFUSAL.finditer(text))
    if not refusals:
        return None
    sizes = [int(found[1]) for found in refusals]
    first = len(sizes) - 1
    while first and sizes[first - 1] >= sizes[first] and refusals[first - 1][2] == refusals[-1][2]:
        first -= 1
    pinned = refusals[-1][2] == "on host"
    card = (re.findall(_DEVICE, text) or [None])[-1]
    return replace(
        _of_xla(sizes[first], int(card[0]) << 20 if card and not pinned else None),
        framework="xla" if _is_jaxs(text, refusals[-1].start()) else "tensorflow",
        device=PINNED if pinned else card[1] if card else None,
        refused_bytes=sizes[-1],
    )


def _without_sizes(text: str) -> OutOfMemory | None:
    """Read the words of an error of the driver, or of a library that asked it, which states no size."""
    torch, others = (list(re.finditer(pattern, text)) for pattern in (_OF_TORCH, _OF_OTHERS))
    if not torch and not others:
        return None
    last = (torch or others)[-1]
    of_xla = replace(_of_xla(None), words=last[0])
    if torch:
        return replace(of_xla, framework="torch")
    return of_xla if _is_jaxs(text, last.start()) else replace(of_xla, framework="tensorflow")


def _is_jaxs(text: str, at: int) -> bool:
    """Return whether the line of this place, or what follows it, is JAX's."""
    return _OF_JAX.search(text, text.rfind("\n", 0, at) + 1) is not None


# --- shared ------------------------------------------------------------------------------------------------


def _size(text: str, pattern: str) -> int | None:
    found = re.search(pattern, text)
    return _bytes(found[1], found[2]) if found else None


def _last_size(pattern: str, text: str) -> int | None:
    found = re.findall(pattern, text)
    return _bytes(*found[-1]) if found else None


def _bytes(number: str, unit: str) -> int:
    """Return the bytes of "27.93", "GiB": frameworks print binary units under either name."""
    factor = 1 if unit in ("B", "bytes") else _UNITS[unit[0]]
    try:
        return round(float(number.replace(",", "").rstrip(".")) * factor)
    except ValueError:
        return 0


def _largest(filled: list[Filled]) -> tuple[Filled, ...]:
    """Return the largest buffers, equal ones together."""
    counts: Counter[tuple[str, str | None, str | None]] = Counter()
    sums: Counter[tuple[str, str | None, str | None]] = Counter()
    rows = []
    for each in filled:
        if each.shape is None:
            rows.append(each)
            continue
        key = (each.name, each.dtype, each.shape)
        counts[key] += each.count
        sums[key] += each.bytes
    rows += [Filled(*key, counts[key], sums[key]) for key in sums]
    return tuple(sorted(rows, key=lambda each: -each.bytes)[:_MOST_FILLED])
