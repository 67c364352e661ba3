"""What an out-of-memory error says: what was asked for, what filled the memory, and what to try first.

Three texts are read: the BFC allocator's summary (TensorFlow's with the error of the op, or JAX's), XLA's
list of buffers or its message alone, and PyTorch's message in both of its wordings.
"""

from __future__ import annotations

import math
import re
from collections import Counter

from mpprof.model.memory import Advice, Filled, OutOfMemory
from mpprof.tensors import WIDTHS, axes

_UNITS = {"B": 1, "KB": 1 << 10, "MB": 1 << 20, "GB": 1 << 30, "TB": 1 << 40}
_SIZE = r"(\d[\d.,]*)\s*([KMGT]?i?B|bytes)"
_NUMBER = r"(\d{1,18})"
_MOST_FILLED = 12
_LOOSE_RATIO = 0.1
"""Memory that an allocator holds and does not use is worth mending from a tenth of the card on."""
_FITS_RATIO = 0.9
"""What a step may fill: the rest is the driver's, the libraries' and the allocator's own."""
LONGEST = 4_000_000
"""Characters that are read: a dump of every block may be longer, and says the same again."""


def read(text: str) -> OutOfMemory | None:
    """Return what the last out-of-memory error in `text` says; None where there is none."""
    text = text[-LONGEST:]
    for reader in (_xla, _torch, _allocator, _xla_alone):
        if (found := reader(text)) is not None:
            return found
    return None


def advise(
    found: OutOfMemory, batch_size: int | None = None, policy: str | None = None
) -> tuple[Advice, ...]:
    """Return what to try, the likeliest first. What no number of the error supports is left out.
    `batch_size`, `policy`: of the training that failed; None: not known."""
    said = []
    asked, limit, used = found.asked_bytes, found.limit_bytes, found.used_bytes
    loose = found.loose_bytes
    if limit and asked > limit:
        said.append(
            Advice("too large", "one tensor alone is larger than the memory: a smaller batch or shape")
        )
    elif limit and loose is not None and loose >= max(asked, _LOOSE_RATIO * limit):
        said.append(
            Advice(
                "fragmentation",
                "enough is free, but in pieces",
                {
                    "tensorflow": "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py",
                    "torch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
                    "xla": "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python train.py",
                }[found.framework],
            )
        )
    if found.others_bytes and limit and found.others_bytes >= _LOOSE_RATIO * limit:
        said.append(Advice("other processes", "other processes hold memory of this card", "nvidia-smi"))
    if limit and used is not None and asked <= limit and used + asked > _FITS_RATIO * limit:
        ratio = _FITS_RATIO * limit / (used + asked)
        most = f"{int(100 * ratio)} % of this one" if batch_size is None else f"{int(ratio * batch_size):,}"
        instead = "" if batch_size is None else f" instead of {batch_size:,}"
        said.append(Advice("batch", f"a batch of at most {most}{instead}: less still, as "
                           "weights and slots do not shrink with it"))  # fmt: skip
    wide = any(each.dtype in ("float", "f32", "float32") for each in found.filled if each.dtype)
    if wide and "16" not in (policy or ""):
        said.append(
            Advice(
                "precision",
                "float32 tensors are among the largest: 16 bits halve activations",
                'keras.config.set_dtype_policy("mixed_float16")',
            )
        )
    return tuple(said)


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
    reserved = _size(said, rf"{_SIZE} reserved in total by PyTorch")
    if loose is None and reserved is not None and mine is not None:
        loose = max(0, reserved - mine)
    process = _size(said, rf"this process has {_SIZE} memory in use")
    others = None
    if process is not None and limit is not None and free is not None:
        others = max(0, limit - free - process)
    device = re.search(r"GPU (\d+)", said)
    return OutOfMemory(
        framework="torch",
        asked_bytes=asked,
        limit_bytes=limit,
        used_bytes=mine,
        loose_bytes=loose,
        others_bytes=others,
        device=f"GPU {device[1]}" if device else None,
        op=None,
        filled=(),
    )


# --- XLA ---------------------------------------------------------------------------------------------------


def _xla(text: str) -> OutOfMemory | None:
    start = text.rfind("BufferAssignment OOM Debugging")
    if start < 0:
        return None
    asked = re.findall(rf"Out of memory (?:while )?trying to allocate {_NUMBER} bytes", text[:start])
    said = text[start:]
    total = _size(said, rf"total allocation:\s+{_SIZE}")
    kinds = (
        ("arguments", "parameter allocation"), ("outputs", "maybe_live_out allocation"),
        ("temporaries", "preallocated temp allocation"), ("constants", "constant allocation"),
    )  # fmt: skip
    parts = {name: size for name, label in kinds if (size := _size(said, rf"\b{label}:\s+{_SIZE}"))}
    filled = []
    for block in re.split(r"Buffer \d+:", said)[1:]:
        size = _size(block, rf"Size: {_SIZE}")
        if size is None:
            continue
        op = re.search(r'op_name="([^"]+)"', block)
        label = re.search(r"XLA Label: (\S+)", block)
        shape = re.search(r"(?i)(?:sub)?shape: (\w+)(\[[\d,]*\])", block)
        name = op[1] if op else label[1] if label else "argument of the step"
        filled.append(Filled(name, shape[1] if shape else None, shape[2] if shape else None, 1, size))
    limits = re.findall(rf"(?m)Limit:\s+{_NUMBER}", text)
    return OutOfMemory(
        framework="xla",
        asked_bytes=int(asked[-1]) if asked else total or 0,
        limit_bytes=int(limits[-1]) if limits else None,
        used_bytes=None,
        loose_bytes=None,
        others_bytes=None,
        device=None,
        op=None,
        filled=_largest(filled),
        parts=parts,
    )


def _xla_alone(text: str) -> OutOfMemory | None:
    """The message without the list of buffers: what an argument or an output did not find room for, or a
    program compiled with TensorFlow's `jit_compile`."""
    asked = re.findall(
        r"(?i)Resource[_ ]exhausted:[^\n]{0,200}?\b"
        r"(?:Out of memory (?:while )?(?:trying to allocate|allocating)|Failed to allocate request for) "
        + _SIZE,
        text,
    )
    size = _bytes(*asked[-1]) if asked else 0
    if not size:
        return None
    return OutOfMemory(
        framework="xla",
        asked_bytes=size,
        limit_bytes=None,
        used_bytes=None,
        loose_bytes=None,
        others_bytes=None,
        device=None,
        op=None,
        filled=(),
    )


# --- TensorFlow, and JAX with the same allocator ------------------------------------------------------------

_OF_JAX = re.compile(r"external/(?:org_tensorflow|xla|tsl)/|\b(?:Xla|Jax)RuntimeError\b")
"""jaxlib's errors, and its sources as its log names them (TensorFlow's: `tensorflow/`, `external/local_`)."""


def _allocator(text: str) -> OutOfMemory | None:
    tensors = list(
        re.finditer(r"OOM when allocating tensor with shape\s?(\[[\d,]*\])(?:\s+and type (\w+))?", text)
    )
    dumps = list(re.finditer(rf"Allocator \((\w+)\) ran out of memory trying to allocate {_SIZE}", text))
    if not tensors and not dumps:
        return None
    tensor, dump = (tensors[-1] if tensors else None), (dumps[-1] if dumps else None)
    summary = text[dump.start() :] if dump else text
    asked = _bytes(dump[2], dump[3]) if dump else _of_shape(tensor[1], tensor[2]) if tensor else 0
    rounded = re.match(rf".{{0,80}}?\(rounded to {_NUMBER}\)", summary, re.DOTALL)
    chunks = [
        Filled("blocks of this size", None, None, int(count), int(count) * int(size))
        for count, size in re.findall(rf"{_NUMBER} Chunks of size {_NUMBER} totalling", summary)
    ]
    limit, used = _last(summary, "Limit"), _last(summary, "InUse")
    by = re.search(r"requested by op (\S+)", summary)
    node = re.findall(r"\[\[\{\{node ([^}]+)\}\}|\[\[[Nn]ode:? ([\w/.]+)|\[Op:(\w+)\]", text)
    op = by[1] if by else next((part for part in node[-1] if part), None) if node else None
    allocator = dump[1] if dump else (re.findall(r"by allocator (\w+)", text) or [None])[-1]
    filled = [*chunks]
    if tensor:
        size = _of_shape(tensor[1], tensor[2])
        filled.append(Filled("the tensor that did not fit", tensor[2], tensor[1], 1, size))
    of_jax = (
        tensor is None and dump is not None and _OF_JAX.search(text, text.rfind("\n", 0, dump.start()) + 1)
    )
    return OutOfMemory(
        framework="xla" if of_jax else "tensorflow",
        asked_bytes=int(rounded[1]) if rounded else asked,
        limit_bytes=limit,
        used_bytes=used,
        loose_bytes=limit - used if limit is not None and used is not None else None,
        others_bytes=None,
        device=allocator,
        op=op,
        filled=_largest(filled),
    )


def _of_shape(shape: str, dtype: str | None) -> int:
    return math.prod(axes(shape), start=WIDTHS.get(dtype or "float", 4))


def _last(text: str, name: str) -> int | None:
    found = re.findall(rf"(?m)\b{name}:\s+{_NUMBER}\s*$", text)
    return int(found[-1]) if found else None


# --- shared ------------------------------------------------------------------------------------------------


def _size(text: str, pattern: str) -> int | None:
    found = re.search(pattern, text)
    return _bytes(found[1], found[2]) if found else None


def _bytes(number: str, unit: str) -> int:
    """The bytes of "27.93", "GiB": frameworks print binary units by either name."""
    factor = 1 if unit.lower() == "bytes" else _UNITS[unit.upper().replace("I", "")]
    try:
        return round(float(number.replace(",", "").rstrip(".")) * factor)
    except ValueError:
        return 0


def _largest(filled: list[Filled]) -> tuple[Filled, ...]:
    """The largest, equal ones together."""
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
