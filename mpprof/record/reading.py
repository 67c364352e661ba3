"""When the optimizer's state is read, and what two readings say of the steps between them."""

from __future__ import annotations

import math
from typing import NamedTuple

from mpprof.errors import UsageError
from mpprof.record.backends.base import Reading

CLOSE_STEPS = 32
"""So many steps at the start, and after every change of the loss scale, are read one by one."""


class Schedule:
    """Says after which steps to read: every `read_every`, and closely at the start and after a change.

    Raises `UsageError` where `read_every` is no whole number of 1 or more."""

    def __init__(self, read_every: int) -> None:
        if type(read_every) is not int or read_every < 1:
            raise UsageError(f"read_every is {read_every!r}", next="Give a number of steps, 1 or more")
        self.read_every = read_every
        self.next = 0
        """Nothing is due after a call that ends before this step: asked at every call, where `due` costs."""
        self._close_until = CLOSE_STEPS

    def due(self, before: int, after: int) -> bool:
        """Return whether to read after the call that took the count of steps from `before` to `after`."""
        close = after < self._close_until
        self.next = after + 1 if close else (after // self.read_every + 1) * self.read_every
        return after <= self._close_until or before // self.read_every != after // self.read_every

    def round(self, before: int, after: int) -> bool:
        """Return whether a multiple of `read_every` lies in this call."""
        return before // self.read_every != after // self.read_every

    def changed(self, step: int) -> None:
        self._close_until = max(self._close_until, step + CLOSE_STEPS)
        self.next = 0

    def corrected(self) -> None:
        """Make the next reading due at once, because fewer steps have run than `due` was told: that reading
        may have been passed over."""
        self.next = 0


class Settled(NamedTuple):
    """What ran between two readings: steps, and how many of them the optimizer skipped."""

    ran: int
    skipped: int


class SkipCounter:
    """Counts skipped updates: exactly, as steps that ran less the growth of the optimizer's own counter.

    Keras 2 counts skipped steps there, too (`counts_skipped`). Then the counter says how many steps ran, and
    the skips follow from how the loss scale moved: exact where it is read after every step; in between, skips
    at a scale of 1, which that Keras does not halve, count once."""

    def __init__(self, growth_steps: int | None = None, counts_skipped: bool = False) -> None:
        self._growth_steps, self._counts_skipped = growth_steps, counts_skipped
        self._last: Reading | None = None
        self._good_most = math.inf  # good steps since the scale last moved, at most

    @property
    def last(self) -> Reading | None:
        return self._last

    def start(self, reading: Reading) -> None:
        self._last = reading
        self._good_most = math.inf if reading.iterations else 0

    def as_ever(self, claimed: int, reading: Reading) -> bool:
        """Return whether all is as nearly always (nothing skipped, the same scale): the quick way, to be
        tried before `settle` where each call of the `claimed` steps ran whole. After a False nothing is
        settled."""
        before = self._last
        if (
            before is None
            or before.iterations is None
            or reading.iterations is None
            or reading.iterations - before.iterations != claimed
            or reading.loss_scale != before.loss_scale
            or self._counts_skipped
        ):
            return False
        self._last = reading
        self._good_most += claimed
        return True

    def settle(self, claimed: int, reading: Reading, missing: int = 0, beyond: int = 0) -> Settled | None:
        """Return the steps since the reading before, of which `claimed` were announced and at most `missing`
        did not run (an input that ended within a call). `beyond`: how many more the counter may tell, of the
        call that found no more input. None: the counters cannot say."""
        before, self._last = self._last, reading
        if before is None or before.iterations is None or reading.iterations is None:
            return None
        grown = reading.iterations - before.iterations
        if reading.loss_scale is None and 0 < grown - claimed <= beyond:
            return Settled(claimed, 0)
        if self._counts_skipped:
            if not 0 <= claimed - grown <= missing:
                return None
            return Settled(grown, self._by_scale(before, reading, grown))
        if grown == claimed and reading.loss_scale == before.loss_scale and not missing:
            self._good_most += grown
            return Settled(claimed, 0)  # as nearly always
        settled = self._explained(claimed, before, reading, missing)
        self._keep_good(
            grown, before.loss_scale, reading.loss_scale, settled is not None and settled.skipped > 0
        )
        return settled

    def _keep_good(self, grown: int, before: float | None, after: float | None, skipped: bool) -> None:
        """Keep the most that the counter of good steps can hold: it begins anew when the scale moves."""
        if before == after and not skipped:
            self._good_most += max(grown, 0)
        else:
            grew = before is not None and after is not None and after > before
            self._good_most = max(grown - grew, 0)  # the step that doubles the scale is not counted

    def _explained(self, claimed: int, before: Reading, reading: Reading, missing: int) -> Settled | None:
        """Return the steps and skips that explain how the counters moved; None where none do."""
        assert reading.iterations is not None
        assert before.iterations is not None
        grown = reading.iterations - before.iterations
        for absent in range(missing + 1):
            skipped = claimed - absent - grown
            if skipped >= 0 and self._agrees(before, reading, grown, skipped):
                return Settled(claimed - absent, skipped)
        if missing or not 0 <= grown <= claimed or reading.loss_scale is None:
            return None
        if self._too_few_halvings(before, reading, grown, claimed - grown):
            return None  # steps without an update that were no skips: gradients are gathered by hand
        return Settled(claimed, claimed - grown)  # somebody else has set the scale

    def _by_scale(self, before: Reading, after: Reading, ran: int) -> int:
        """Return the fewest skips among `ran` steps that explain the scale and its counter of good steps."""
        if (
            not before.loss_scale
            or not after.loss_scale
            or before.good_steps is None
            or after.good_steps is None
        ):
            return 0
        halvings = round(math.log2(before.loss_scale / after.loss_scale))
        growth = self._growth_steps or 0
        for doublings in range(ran + 1):
            skips = halvings + doublings
            good = before.good_steps + ran - skips - doublings * growth
            if skips == 0 and good == after.good_steps:
                return 0
            # After a skip the counter begins anew: it holds at most the steps since then.
            reached = doublings == 0 or before.good_steps + ran >= growth > 0
            if 0 < skips <= ran - after.good_steps and reached:
                return skips
            if not growth:
                break
        return int(ran > 0 and after.good_steps < before.good_steps + ran)

    def _too_few_halvings(self, before: Reading, after: Reading, grown: int, skipped: int) -> bool:
        """Return whether this many skips would have left a lower scale, however often it may have doubled
        since."""
        if not skipped or not before.loss_scale or not after.loss_scale or not self._growth_steps:
            return False
        good = self._good_most if before.good_steps is None else before.good_steps
        most = (min(good, self._growth_steps - 1) + grown) // self._growth_steps
        return skipped + math.log2(after.loss_scale / before.loss_scale) > most

    def _agrees(self, before: Reading, after: Reading, grown: int, skipped: int) -> bool:
        """Return whether this many skips explain how the scale and its counter moved.

        A skip halves the scale and sets the counter of good steps to 0; `growth_steps` good steps in a
        row double it and set the counter to 0 (Keras' LossScaleOptimizer)."""
        if after.loss_scale is None:
            return skipped == 0  # nothing that skips
        if before.loss_scale is None or before.loss_scale <= 0 or after.loss_scale <= 0:
            return True
        if self._too_few_halvings(before, after, grown, skipped):
            return False
        doublings = skipped + math.log2(after.loss_scale / before.loss_scale)
        if doublings < 0 or not doublings.is_integer():
            return False
        if before.good_steps is None or after.good_steps is None or self._growth_steps is None:
            return True
        if skipped == 0:
            return before.good_steps + grown - doublings * self._growth_steps == after.good_steps
        unbroken = before.good_steps + grown - after.good_steps  # at most, before the first skip
        return doublings == 0 or unbroken >= self._growth_steps * doublings
