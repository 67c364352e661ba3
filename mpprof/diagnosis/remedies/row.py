"""A row of the table of remedies: what to do, and the runs it is for."""

from __future__ import annotations

from typing import TYPE_CHECKING, get_args

from mpprof.diagnosis.remedies.conditions import Condition
from mpprof.diagnosis.remedies.frameworks import Framework
from mpprof.model.device import Vendor
from mpprof.model.frozen import frozen

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals

ANY_VENDOR: frozenset[Vendor] = frozenset(get_args(Vendor))


@frozen
class Row:
    """One remedy of one cause, and the runs it is for.

    `code` is a cause's, or names what is to be recorded ("record run"); `case` tells apart a cause's several
    ways to be found. Values in braces are filled in. `snippet` is code to copy, Python or shell. `loop`: the
    remedy is about the training loop, so that in a loop of the user's own the framework below Keras counts.
    `larger_batch`, `other_type`: as of `model.remedy.Remedy`.
    """

    code: str
    on: frozenset[Framework]
    text: str
    snippet: str = ""
    case: str = ""
    vendors: frozenset[Vendor] = ANY_VENDOR
    when: tuple[Condition, ...] = ()
    unless: tuple[Condition, ...] = ()
    loop: bool = False
    larger_batch: bool = False
    other_type: bool = False

    def fits(self, signals: Signals, case: str) -> bool:
        """Tell whether this row is for such a run."""
        framework = signals.loop_framework if self.loop else signals.framework
        if self.case != case or framework not in self.on or signals.vendor not in self.vendors:
            return False
        for condition in self.when:
            if not condition(signals):
                return False
        for condition in self.unless:  # noqa: SIM110
            if condition(signals):
                return False
        return True
