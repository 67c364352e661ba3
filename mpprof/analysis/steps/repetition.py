"""Steps told by the repetition of the kernel sequence, for traces without any step marker.

The layers of a model repeat as well as its steps do, and mostly more often. What tells them apart is what no
repetition holds: the sequence of a step goes on over the whole trace, while before the first of several equal
layers lies an embedding and after the last one a head. So a sequence counts as a step only where next to
nothing lies outside of it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from mpprof.model.arrays import Int64
from mpprof.model.frozen import frozen

_LEAST_MATCH = 0.9
_NEAR_BEST = 0.005
_MOST_OUTSIDE = 0.1
"""Kernels that no repetition may hold, of the length of one: a step that logs or saves has some more, but an
embedding and a head are a quarter of a layer and more (the recorded transformers have 26 to 75 %)."""
_MOST_LAGS = 1 << 17
"""So many kernels are searched for a repetition; more of them would only cost time."""
_LIKELY = 64
_UNEVEN = _MOST_OUTSIDE


@frozen
class Repetition:
    """A sequence of `length` kernels that comes at least twice in a row; `outside` kernels of all are neither
    like the one a length before nor like the one a length after them. `steps`: these may be steps."""

    length: int
    outside: int
    steps: bool


def repetition(name: NDArray[np.integer]) -> Repetition | None:
    """Return the sequence that `name` (a number per distinct kernel, in order) repeats; None where it does
    not repeat one.

    First the lag with the largest share of equal names, at least 90 %; of lags within half a percent of the
    best, the shortest. If it leaves too much outside, the shortest longer one that does not: steps made of
    many equal layers. Shares of all lags at once come from the autocorrelation of random signs, one per name.
    """
    codes = np.unique(name[:_MOST_LAGS], return_inverse=True)[1]
    if len(codes) < 4 or codes.max(initial=0) == 0:
        return None  # one kernel over and over has no steps
    likely = _likely(codes)
    match = np.array([np.mean(codes[:-lag] == codes[lag:]) for lag in likely.tolist()])
    if match.max() < _LEAST_MATCH:
        return None
    best = int(likely[match >= match.max() - _NEAR_BEST].min())
    most = _MOST_OUTSIDE * best
    longer = np.sort(likely[(match >= _LEAST_MATCH) & (likely > best)]).tolist()
    for lag in (best, *longer):
        outside = _outside(codes, lag)
        if outside <= most:
            return Repetition(lag, outside, steps=True)
    return Repetition(best, _outside(codes, best), steps=False)


def _likely(codes: Int64) -> Int64:
    """Return the lags that match best, found roughly."""
    n = len(codes)
    signs = np.random.default_rng(1).choice((-1.0, 1.0), int(codes.max()) + 1)[codes]
    size = 1 << (2 * n - 1).bit_length()
    spectrum = np.fft.rfft(signs, size)
    lags = np.arange(1, n // 2 + 1)
    rough = np.fft.irfft(np.abs(spectrum) ** 2, size)[lags] / (n - lags)
    return np.asarray(lags[np.argsort(-rough, kind="stable")[:_LIKELY]])


def _outside(codes: Int64, lag: int) -> int:
    same = codes[:-lag] == codes[lag:]
    inside = np.zeros(len(codes), np.bool_)
    inside[:-lag] |= same
    inside[lag:] |= same
    return int(np.count_nonzero(~inside))


def begins(name: NDArray[np.integer], start: Int64, end: Int64, lag: int) -> Int64:
    """Return the rows at which repetitions of `lag` kernels begin: where the pause before the kernel is
    usually longest.

    A kernel that runs once per repetition keeps its place even where others come and go; so where the lengths
    are uneven, the repetition begins at the longest pause before such a kernel."""
    n = len(name)
    pause = np.maximum(start[1:] - np.maximum.accumulate(end)[:-1], 0)
    whole = (n - 1) // lag
    middle = (whole - 1) // 2
    usual = np.partition(pause[: whole * lag].reshape(whole, lag), middle, axis=0)[middle]
    by_pause = (np.argsort(-usual, kind="stable")[:_LIKELY] + 1).tolist()
    for first in by_pause:
        own = np.flatnonzero(name == name[first])
        if len(own) >= 2 and (np.abs(np.diff(own) - lag) <= _UNEVEN * lag).all():
            if first == by_pause[0] or (name[:-lag] != name[lag:]).any():
                return own
            break
    return np.arange(by_pause[0], n, lag)
