"""Alarms while training: what a reading of the run's state shows that should not wait for the report.

Pure: a `Watch` is given what each reading showed and answers with the alarms that begin there, each kind
once. Limits are those of the causes in the catalogue that they announce (MP201, MP203, MP206, MP807).
"""

from __future__ import annotations

import math
import statistics
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, get_args

from mpprof.errors import UsageError

Kind = Literal[
    "loss_scale_stuck",
    "loss_scale_low",
    "loss_scale_runaway",
    "endless_skips",
    "non_finite_loss",
    "throttling",
]
KINDS: tuple[Kind, ...] = get_args(Kind)

STARTUP_STEPS = 20
"""The default initial scale is 2^15: twenty halvings are more than any settling needs."""
CONSECUTIVE_SKIPS = 10
SKIPPED_RATIO, RATIO_STEPS = 0.05, 400
RUNAWAY_SCALE = 2.0**24
"""float16 spans 2^-24 to 2^16: a scale beyond 2^24 would lift its smallest number above 1."""
STUCK_PERIODS = 3
"""A dynamic scale doubles after each period of `growth_steps` without a skip: after three it is stuck."""
DRIFT_RATIO, DRIFT_STEPS = 1.10, 64
NO_FAULT = frozenset({"sync_boost"})


class Seen(NamedTuple):
    """One reading. None: not read. `span`: steps since the reading before; `intervals_ns`: step times known
    since then; `throttle`: the reasons that GPUs gave since then."""

    step: int
    span: int
    skipped: int | None = None
    loss_scale: float | None = None
    loss: float | None = None
    intervals_ns: Sequence[int] = ()
    throttle: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Alarm:
    kind: Kind
    step: int
    text: str


def checked(stop_on: str | Iterable[str]) -> frozenset[str]:
    """Return the kinds of `stop_on`, which may be one kind. Raises `UsageError` for one that does not
    exist."""
    wanted = tuple(stop_on) if isinstance(stop_on, Iterable) and not isinstance(stop_on, str) else (stop_on,)
    unknown = [kind for kind in wanted if kind not in KINDS]
    if unknown:
        raise UsageError(f"no alarm {unknown[0]!r}", next=f"Give some of {', '.join(KINDS)}")
    return frozenset(wanted)


@dataclass
class Watch:
    """`growth_steps`: of the dynamic loss scale, None where there is none. `scaled`: whether the loss is
    scaled; None: not known."""

    growth_steps: int | None = None
    scaled: bool | None = None
    raised: set[Kind] = field(default_factory=set)
    _streak: int = 0
    _skips: deque[tuple[int, int]] = field(default_factory=deque)  # (skipped, steps) of the last readings
    _skipped_lately: bool = False
    _scale: float | None = None
    _held: float = math.inf  # the lowest scale since the start
    _overflowed: float | None = None  # the scale at the last overflow
    _good: int = 0  # steps without a skip or a change of scale
    _usual: list[int] = field(default_factory=list)
    _late: deque[int] = field(default_factory=lambda: deque(maxlen=DRIFT_STEPS))

    def start_fit(self, growth_steps: int | None, scale: float | None) -> None:
        """Begin a fit, at a loss scale. Another than the last one seen need not have fallen there: it may be
        that of another optimizer."""
        self.growth_steps, self.scaled = growth_steps, None
        if scale != self._scale:
            self._scale, self._held, self._overflowed, self._good = None, math.inf, None, 0

    def see(self, seen: Seen) -> list[Alarm]:
        """Return the alarms that begin with this reading."""
        self._keep_times(seen.intervals_ns)
        found = []
        for kind, text in self._look(seen):
            if kind not in self.raised:
                self.raised.add(kind)
                found.append(Alarm(kind, seen.step, text))
        return found

    def as_ever(self, span: int, skipped: int | None, loss_scale: float | None, loss: float | None) -> bool:
        """Return whether all is as nearly always (nothing skipped, the same scale, a finite loss): the quick
        way, to be tried before `see` where no GPU throttles. In that case the watch keeps what `see` would
        keep, but for step times, which are seen later; after a False, call `see`."""
        if skipped or loss_scale != self._scale or self._skipped_lately:
            return False
        if loss is not None and not math.isfinite(loss):
            return False
        if self.growth_steps is None or self._good + span <= STUCK_PERIODS * self.growth_steps:
            self._good += span
            return True
        return False

    def _look(self, seen: Seen) -> Iterator[tuple[Kind, str]]:
        if seen.loss is not None and not math.isfinite(seen.loss):
            yield "non_finite_loss", f"the loss is {seen.loss} by step {seen.step} (MP206)"
        if seen.skipped is not None:
            yield from self._look_at_skips(seen, seen.skipped)
        if seen.loss_scale is not None:
            yield from self._look_at_scale(seen, seen.loss_scale)
        yield from self._look_at_times(seen)

    def _look_at_skips(self, seen: Seen, skipped: int) -> Iterator[tuple[Kind, str]]:
        if seen.step <= STARTUP_STEPS:
            return
        self._streak = self._streak + skipped if skipped >= seen.span else 0
        self._skips.append((self._lowering(seen.loss_scale, skipped), seen.span))
        while sum(steps for _, steps in self._skips) - self._skips[0][1] >= RATIO_STEPS:
            self._skips.popleft()
        steps, lost = sum(steps for _, steps in self._skips), sum(skips for skips, _ in self._skips)
        self._skipped_lately = lost > 0
        if not lost:  # the window begins anew with the next skip
            self._skips.clear()
        if self._streak >= CONSECUTIVE_SKIPS:
            yield "endless_skips", f"the last {self._streak} optimizer updates were all skipped (MP201)"
        elif steps >= RATIO_STEPS and lost >= SKIPPED_RATIO * steps:
            yield "endless_skips", f"{lost} of the last {steps} optimizer updates were skipped (MP201)"

    def _lowering(self, scale: float | None, skipped: int) -> int:
        """Return how many of these skips did more than take back a doubling of the scale: all, where it was
        not read, or stands where it falls no further."""
        if scale is None or not math.isfinite(scale) or scale <= 0:
            return skipped
        held, self._held = self._held, min(self._held, scale)
        if not skipped or math.isinf(held) or (scale <= 1.0 and scale == self._scale):
            return skipped
        return min(skipped, math.ceil(math.log2(held / scale))) if scale < held else 0

    def _look_at_scale(self, seen: Seen, scale: float) -> Iterator[tuple[Kind, str]]:
        before, fell = self._scale, self._scale is not None and scale < self._scale
        if seen.skipped or fell:
            self._overflowed = before or scale * 2.0 ** (seen.skipped or 0)
        if scale != self._scale or seen.skipped:
            self._good, self._scale = 0, scale
        else:
            self._good += seen.span
        at_floor = seen.skipped and seen.skipped >= seen.span and before is not None and before <= 1.0
        if at_floor or (scale < 1.0 and (seen.skipped or fell)):
            what = "has fallen to" if fell or before is None else "stays at"
            low = f"the loss scale {what} {scale:g}"
            yield "loss_scale_low", f"{low}: the gradients are not finite even unscaled (MP201)"
        stopped = self._overflowed is not None and scale <= self._overflowed
        if (scale > RUNAWAY_SCALE and not stopped) or not math.isfinite(scale):
            why = "the loss is never scaled (MP103)" if self.scaled is False else "nothing overflows (MP203)"
            yield "loss_scale_runaway", f"the loss scale has grown to {scale:g}: {why}"
        if self.growth_steps and self._good > STUCK_PERIODS * self.growth_steps:
            yield (
                "loss_scale_stuck",
                f"the loss scale has been {scale:g} for {self._good} steps without a skip; it should have "
                f"doubled every {self.growth_steps}",
            )

    def _keep_times(self, intervals_ns: Sequence[int]) -> None:
        missing = DRIFT_STEPS - len(self._usual)
        if missing > 0:
            self._usual.extend(intervals_ns[:missing])
        self._late.extend(intervals_ns[max(0, missing) :])

    def _look_at_times(self, seen: Seen) -> Iterator[tuple[Kind, str]]:
        reasons = sorted(set(seen.throttle) - NO_FAULT)
        if not reasons or len(self._late) < DRIFT_STEPS:
            return
        usual, late = statistics.median(self._usual), statistics.median(self._late)
        if late >= DRIFT_RATIO * usual:
            yield (
                "throttling",
                f"a step takes {late / 1e6:.3g} ms, {late / usual:.2f} times what it took at first, and "
                f"the GPU throttles ({', '.join(reasons)}; MP807)",
            )
