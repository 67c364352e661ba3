"""The largest batch that a card holds, found by compiling again.

What a step needs is fixed bytes and bytes for each example, until XLA nears the card's memory: then it
computes activations anew rather than keep them, and needs less than a line through smaller batches says. So
each end of the band is a batch that was compiled.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from mpprof.errors import UnableError
from mpprof.model.forecast import Band, BatchBytes, LargestBatch

SHARE = 0.9
"""Of the card's memory, for a batch that is said to fit: cuDNN's workspaces and the CUDA context come on
top."""
CLOSE = 1 / 16
MOST_COMPILED = 8
_AIM = 0.02
"""How far on its side of the limit a guess aims, so that a line that is a little off still meets it."""
_MOST_AHEAD = 4  # times the largest batch compiled: a line through two small ones says little about more

Compile = Callable[[int], BatchBytes]


def largest_batch(compile: Compile, first: BatchBytes, memory_bytes: int) -> LargestBatch:
    """Search for the largest batch, starting at one compiled batch. `compile` compiles the step at a batch,
    and raises `UnableError` where it cannot: the band is then what was found before, with that reason."""
    known = {first.batch_size: first}
    reason = ""
    try:
        for guess in (_half_way, _fitting, _too_large):
            while len(known) < MOST_COMPILED and (batch := guess(known, memory_bytes)) is not None:
                known[batch] = compile(batch)
    except UnableError as error:
        reason = error.what
    fits, too_large = _ends(known, SHARE * memory_bytes, _most)[0], _ends(known, memory_bytes, _least)[1]
    compiled = tuple(known[batch] for batch in sorted(known))
    line = _line(compiled)
    return LargestBatch(
        fits=fits,
        too_large=too_large,
        recomputes=None if fits is None else known[fits].recomputed,
        compiled=compiled,
        fixed_bytes=line[0],
        example_bytes=line[1],
        reason=reason,
    )


def _most(need: BatchBytes) -> float:
    return need.bytes.high


def _least(need: BatchBytes) -> float:
    return need.bytes.low


_Known = Mapping[int, BatchBytes]
_Pick = Callable[[BatchBytes], float]


def _half_way(known: _Known, memory_bytes: int) -> int | None:
    """Return a second point for the line. The part of the bytes that is in proportion to the batch is never
    more than all of them, so that this point needs at most half of the memory."""
    if len(known) > 1:
        return None
    (first,) = known.values()
    wanted = int(first.batch_size * 0.5 * memory_bytes / first.bytes.high)
    if first.batch_size / 2 < wanted < 2 * first.batch_size:
        wanted = 2 * first.batch_size if first.bytes.high < 0.5 * memory_bytes else first.batch_size // 2
    chosen = _even(min(wanted, 64 * first.batch_size))
    return chosen if chosen >= 1 and chosen != first.batch_size else None


def _fitting(known: _Known, memory_bytes: int) -> int | None:
    """Return the next batch to compile in search of the largest that fits; None: it is found."""
    limit = SHARE * memory_bytes
    fits, over = _ends(known, limit, _most)
    if fits is not None and _most(known[fits]) >= (1 - CLOSE) * limit:
        return None
    return _between(known, _most, (1 - _AIM) * limit, fits, over)


def _too_large(known: _Known, memory_bytes: int) -> int | None:
    fits, over = _ends(known, memory_bytes, _least)
    if over is not None and _least(known[over]) <= (1 + CLOSE) * memory_bytes:
        return None
    return _between(known, _least, (1 + _AIM) * memory_bytes, fits, over)


def _ends(known: _Known, limit: float, pick: _Pick) -> tuple[int | None, int | None]:
    """Return the largest batch within the limit, and the smallest batch above it that is over the limit."""
    within = max((batch for batch in known if pick(known[batch]) <= limit), default=None)
    return within, min((batch for batch in known if batch > (within or 0)), default=None)


def _between(known: _Known, pick: _Pick, wanted: float, fits: int | None, over: int | None) -> int | None:
    """Return the batch that needs `wanted` bytes by the line through the two nearest points, between the
    largest that fits and the smallest that does not; None where no other lies between."""
    low = (fits or 0) + 1
    high = over - 1 if over is not None else _MOST_AHEAD * max(known)
    if low > high or (fits is not None and over is not None and over - fits <= CLOSE * fits):
        return None
    near = sorted(known, key=lambda batch: abs(pick(known[batch]) - wanted))[:2]
    one, other = (known[batch] for batch in near) if len(near) > 1 else (next(iter(known.values())),) * 2
    each = (pick(one) - pick(other)) / (one.batch_size - other.batch_size) if len(near) > 1 else 0.0
    if each <= 0:
        guess = (low + high) // 2 if over is not None else 2 * max(known)
    else:
        guess = int(one.batch_size + (wanted - pick(one)) / each)
    step = max(1, (high - low) // 8) if over is not None else max(1, low // 8)
    # Where what is needed does not grow as the line says, each turn still narrows the search.
    least = low if fits is None else low + step
    most = high if over is None else high - step
    return min(max(_even(min(max(guess, least), most)), low), high)


def _even(batch: int) -> int:
    """Return a multiple of 8, which suits matrix units, where that is no large change."""
    return batch // 8 * 8 if batch >= 64 else batch


def _line(compiled: Sequence[BatchBytes]) -> tuple[Band, Band] | tuple[None, None]:
    """Return the fixed bytes, and the bytes for each example."""
    plain = [one for one in compiled if not one.recomputed][:2]
    if len(plain) < 2:
        return None, None
    first, second = plain
    apart = second.batch_size - first.batch_size
    each = [(pick(second) - pick(first)) / apart for pick in (_least, _most)]
    fixed = [pick(first) - one * first.batch_size for pick, one in zip((_least, _most), each, strict=True)]
    return Band(min(fixed), max(fixed)), Band(min(each), max(each))
