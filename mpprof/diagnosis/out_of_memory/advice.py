"""What to try after an out-of-memory error: by what its text states, and by what the model's layers take."""

from __future__ import annotations

from collections.abc import Sequence

from mpprof.analysis.memory.out_of_memory import PINNED
from mpprof.diagnosis.remedies import choosing
from mpprof.diagnosis.remedies.frameworks import Framework
from mpprof.forecasts.memory.training import FILL_RATIO
from mpprof.model.answer import Remedy
from mpprof.model.memory import Advice, MemoryForecast, OutOfMemory
from mpprof.model.quantities import format_bytes

_LOOSE_RATIO = 0.1
"""Memory that nothing of the step uses is worth mending from a tenth of the card on."""
_WHOLE_RATIO = 0.9
"""From this part of the memory on a request is for all of it."""
_ELSEWHERE = "another model, data kept on the card, layers of your own"
_IN_ADVANCE = {
    "tensorflow": "TF_FORCE_GPU_ALLOW_GROWTH=true python train.py",
    "xla": "XLA_PYTHON_CLIENT_PREALLOCATE=false python train.py",
}
"""So that the framework takes what it needs, and leaves the rest to libraries and other processes."""
_IN_PIECES = {
    "tensorflow": "TF_GPU_ALLOCATOR=cuda_malloc_async python train.py",
    "torch": "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
    "xla": "XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async python train.py",
}

_LIKELY: dict[str, Framework] = {"tensorflow": "keras on tensorflow", "torch": "torch", "xla": "jax"}
"""What trains, where the error's text is all there is."""
_WIDE = ("float", "f32", "float32")


def advise(
    found: OutOfMemory,
    batch_size: int | None = None,
    policy: str | None = None,
    *,
    memory_bytes: int | None = None,
    forecast: MemoryForecast | None = None,
    halved: Sequence[Remedy] | None = None,
) -> tuple[Advice, ...]:
    """Return what to try, the likeliest first. What no number of the error supports is left out.

    `batch_size`, `policy`: of the training that failed. `memory_bytes`: the card's, for a text that states no
    limit. `forecast`: what the model takes at that batch in that memory, first under the training's own
    policy; where less is needed by it than the error states, no batch is taken from it. None: not known.
    `halved`: how this run would compute in 16 bits; None: as the framework does that the text is of."""
    limit = found.limit_bytes or memory_bytes
    said = [*_by_the_driver(found, limit), *_too_large(found, limit), *_in_pieces(found, limit)]
    said += _others(found, limit)
    said += _batch(found, limit, batch_size, forecast, of_the_card=bool(said))
    said = said or _nearly(found, limit)
    if halved is None:
        halved = choosing.of_framework("mixed precision", _LIKELY[found.framework])
    return (*said, *_precision(found, policy, halved))


def _precision(found: OutOfMemory, policy: str | None, halved: Sequence[Remedy]) -> list[Advice]:
    """Return the framework's own way to 16 bits, where the error or the records show float32."""
    listed = any(each.dtype in _WIDE for each in found.filled)
    if not halved or "16" in (policy or "") or not (listed or policy == "float32"):
        return []
    why = "float32 tensors are among the largest" if listed else "it trains in float32"
    return [Advice("precision", f"{why}: 16 bits halve activations: {halved[0].text}", halved[0].snippet)]


def _by_the_driver(found: OutOfMemory, limit: int | None) -> list[Advice]:
    """Return what to try where the driver refused what no tensor asked for: a library, CUDA itself, or an
    allocator in advance."""
    in_advance = _IN_ADVANCE.get(found.framework, "")
    if found.words is not None and found.framework == "torch":
        text = (
            "PyTorch's allocator states sizes, so the request came from elsewhere: a library (cuDNN, "
            "cuBLAS), CUDA itself for its context or a kernel, or a loader for pinned host memory. See what "
            "else holds the card"
        )
        call = "see which call it was; without this, errors are reported at a later one"
        return [
            Advice("driver", text, "nvidia-smi"),
            Advice("call", call, "CUDA_LAUNCH_BLOCKING=1 python train.py"),
        ]
    if found.words is not None:
        text = "a library (cuDNN, cuBLAS) or CUDA itself needs memory that the framework has not taken"
        held = "see what else holds the card"
        return [Advice("driver", f"{text}: leave it some", in_advance),
                Advice("other processes", held, "nvidia-smi")]  # fmt: skip
    if found.refused_bytes is None:
        return []
    if found.device == PINNED:
        return [Advice("host memory", "the host could not pin that much memory: see what else fills it")]
    text = (
        f"the driver refused {format_bytes(found.refused_bytes)}, so less of the card was free in one piece; "
        "what the step itself needs is not stated. See what holds the rest"
    )
    said = [Advice("driver", text, "nvidia-smi")]
    if limit and (found.asked_bytes or 0) >= _WHOLE_RATIO * limit:
        whole = "nearly all memory was asked for at once, before any training: let it grow with the need"
        said.append(Advice("in advance", whole, in_advance))
    return said


def _too_large(found: OutOfMemory, limit: int | None) -> list[Advice]:
    """Return advice where the error asked for one tensor that is larger than the memory. None is given for
    XLA, which asks for the temporaries of a whole step at once: that is more than one tensor."""
    asked = _asked(found)
    if not limit or asked is None or asked <= limit or found.framework == "xla":
        return []
    return [Advice("too large", "one tensor alone is larger than the memory: a smaller batch or shape")]


def _in_pieces(found: OutOfMemory, limit: int | None) -> list[Advice]:
    asked, free = _asked(found), found.free_bytes or 0
    unused = free + (found.loose_bytes or 0)
    if not limit or asked is None or asked > limit or unused < max(asked, _LOOSE_RATIO * limit):
        return []
    text = "enough is free, but fragmented"
    if free >= asked:
        text = (
            f"{format_bytes(free)} of the card is free, more than was asked for, and the driver refused: it "
            "is in pieces, a limit is set for this process, or (on Windows) host memory is full"
        )
    stitched = (found.device or "").startswith("gpu_async")  # it has that allocator already
    return [Advice("fragmentation", text, "" if stitched else _IN_PIECES[found.framework])]


def _nearly(found: OutOfMemory, limit: int | None) -> list[Advice]:
    """Return advice where what was needed is close to the memory, but too little for a bound of the batch."""
    asked, needed = _asked(found), _needed_bytes(found)
    if not limit or asked is None or needed is None or _held_bytes(found) is None:
        return []
    said = []
    if (found.free_bytes or 0) + (found.loose_bytes or 0) >= asked:
        said.append(Advice("fragmentation", "enough is free, but fragmented", _IN_PIECES[found.framework]))
    text = (
        f"a smaller batch (how much smaller is not known): {format_bytes(needed)} of {format_bytes(limit)} "
        "were in use and asked for"
    )
    return [*said, Advice("batch", text)]


def _others(found: OutOfMemory, limit: int | None) -> list[Advice]:
    if not found.others_bytes or not limit or found.others_bytes < _LOOSE_RATIO * limit:
        return []
    return [Advice("other processes", "other processes hold memory of this card", "nvidia-smi")]


def _batch(
    found: OutOfMemory,
    limit: int | None,
    batch_size: int | None,
    forecast: MemoryForecast | None,
    *,
    of_the_card: bool,
) -> list[Advice]:
    """Return advice with the batch that would fit. The error's figures give an upper bound: at least so much
    was needed. The model's layers give an estimate, which stands where it is within that bound."""
    ratio, by = _fitting_ratio(found, limit), _by(found)
    less = f"by what was {by}; in fact less, because weights and slots do not shrink with it"
    if batch_size is None:
        if ratio is None:
            return []
        return [Advice("batch", f"a batch of at most {int(100 * ratio)} % of this one, {less}")]
    bound = batch_size - 1 if ratio is None else int(ratio * batch_size)
    own = forecast.runs[0].largest_batch if forecast else None
    if forecast is not None and own is not None and own <= bound:
        known = "" if ratio is None else f"; at most {bound:,} by what was {by}"
        return [Advice("batch", f"a batch of {_fitting(forecast)} instead of {batch_size:,}, estimated from "
                       f"the model's layers{known}")]  # fmt: skip
    said = []
    if ratio is not None:
        said.append(Advice("batch", f"a batch of at most {bound:,} instead of {batch_size:,}, {less}"))
    return [*said, *([] if of_the_card or forecast is None else _unaccounted(found, limit, forecast))]


def _fitting(forecast: MemoryForecast) -> str:
    """Return what fits in each policy: "40 in float32 or 80 in mixed_float16"."""
    return " or ".join(
        f"{'at most ' if run.slots_bytes is None else ''}{run.largest_batch:,} in {run.policy}"
        for run in forecast.runs
    )


def _unaccounted(found: OutOfMemory, limit: int | None, forecast: MemoryForecast) -> list[Advice]:
    """Return advice where the model's layers take less than what was needed: something else holds memory."""
    own, needed = forecast.runs[0], _needed_bytes(found)
    takes = (
        f"at batch {forecast.batch_size:,} in {own.policy} the model's layers, weights and slots take "
        f"{format_bytes(own.peak_bytes)} (estimated)"
    )
    if limit is None or needed is None:
        return []
    if needed - own.peak_bytes >= _LOOSE_RATIO * limit:
        see, of = "see what holds the rest", f"{format_bytes(needed)} {_by(found)}"
    elif _held_bytes(found) is None:
        see, of = "see what else holds memory", format_bytes(limit)
    else:
        return []
    return [Advice("elsewhere", f"{see} ({_ELSEWHERE}): {takes} of {of}")]


def _held_bytes(found: OutOfMemory) -> int | None:
    """Return the bytes that were in use, or those of a program's arguments; None: not stated."""
    return found.used_bytes if found.used_bytes is not None else (found.parts or {}).get("arguments")


def _by(found: OutOfMemory) -> str:
    return "asked for" if _held_bytes(found) is None else "in use and asked for"


def _asked(found: OutOfMemory) -> int | None:
    """Return the bytes that the step asked for; None where no size is stated, or one that an allocator wanted
    in advance."""
    return found.asked_bytes if found.refused_bytes is None else None


def _needed_bytes(found: OutOfMemory) -> int | None:
    """Return the least bytes that the step needed; None: not stated."""
    asked = _asked(found)
    return None if asked is None else (_held_bytes(found) or 0) + asked


def _fitting_ratio(found: OutOfMemory, limit: int | None) -> float | None:
    """Return how much of the batch would fit at most, by the error's own figures; None: they do not tell."""
    if not limit or _too_large(found, limit):
        return None
    room = FILL_RATIO * max(0, limit - (found.others_bytes or 0))
    needed = _needed_bytes(found)
    return room / needed if needed is not None and needed > room else None
