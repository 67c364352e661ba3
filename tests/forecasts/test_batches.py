"""The search for the largest batch, on needs that are known."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from mpprof.errors import UnableError
from mpprof.forecasts import forecasting
from mpprof.model.forecast import Band, BatchBytes, LargestBatch

CARD = 16 << 30
MIB = 1 << 20

Need = Callable[[int], tuple[float, float]]


def line(fixed: float, each: float, spread: float = 1.0) -> Need:
    return lambda batch: (fixed + each * batch, (fixed + each * batch) * spread)


def rematerialising(fixed: float, each: float) -> Need:
    """As XLA did for a convolutional network: above 0.76 of the card it computes anew what saves an eighth."""

    def need(batch: int) -> tuple[float, float]:
        whole = fixed + each * batch
        kept = whole if whole <= 0.76 * CARD else max(0.7 * CARD, 0.82 * whole)
        return kept, kept

    return need


def search(need: Need, first: int) -> tuple[LargestBatch, int]:
    asked: list[int] = []

    def compile(batch: int) -> BatchBytes:
        asked.append(batch)
        low, high = need(batch)
        return BatchBytes(batch, Band(low, high), recomputed=low > 0.76 * CARD)

    found = forecasting.largest_batch(compile, compile(first), CARD)
    assert len(asked) == len(set(asked)), "a batch was compiled twice"
    return found, len(asked)


@pytest.mark.parametrize("first", [1, 32, 128, 1000])
@pytest.mark.parametrize(
    "need",
    [line(100 * MIB, 8 * MIB), line(3000 * MIB, 40 * MIB), line(50 * MIB, MIB / 4), line(200 * MIB, 900 * MIB),
     line(500 * MIB, 10 * MIB, 1.15), rematerialising(200 * MIB, 9 * MIB)],
)  # fmt: skip
def test_both_ends_were_compiled_and_lie_on_their_side(need: Need, first: int) -> None:
    found, compiled = search(need, first)
    by_batch = {one.batch_size: one.bytes for one in found.compiled}
    assert found.fits is not None
    assert found.too_large is not None
    assert by_batch[found.fits].high <= 0.9 * CARD
    assert by_batch[found.too_large].low > CARD
    assert compiled <= forecasting.MOST_COMPILED
    # No wider than the share that is left free, the band of the programs, and what the search leaves open.
    best = max(batch for batch in range(1, 80_000) if need(batch)[1] <= 0.9 * CARD)
    least = min(batch for batch in range(best, 90_000) if need(batch)[0] > CARD)
    assert found.fits >= best * 0.9 - 1
    assert found.too_large <= least * 1.1 + 1


def test_a_straight_line_takes_four_compilations() -> None:
    _, compiled = search(line(100 * MIB, 8 * MIB), 32)
    assert compiled <= 4


def test_fixed_bytes_and_those_of_an_example() -> None:
    found, _ = search(line(100 * MIB, 8 * MIB), 32)
    assert found.fixed_bytes == Band(100 * MIB, 100 * MIB)
    assert found.example_bytes == Band(8 * MIB, 8 * MIB)


def test_what_does_not_fit_at_all() -> None:
    found, _ = search(line(2 * CARD, MIB), 32)
    assert (found.fits, found.recomputes) == (None, None)
    assert found.too_large == 1


def test_a_compiler_that_gives_up_leaves_what_was_found_and_its_reason() -> None:
    def compile(batch: int) -> BatchBytes:
        if batch > 900:
            raise UnableError("XLA crashed with SIGFPE")
        need = 100.0 * MIB + 8.0 * MIB * batch
        return BatchBytes(batch, Band(need, need), recomputed=False)

    found = forecasting.largest_batch(compile, compile(32), CARD)
    assert found.reason == "XLA crashed with SIGFPE"
    assert found.too_large is None
    assert found.fits is not None
