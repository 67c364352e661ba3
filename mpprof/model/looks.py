"""What a run's looks at the numbers by layer found: the first breaks and the loss scales that are good."""

from __future__ import annotations

from typing import Any

from mpprof.model.frozen import frozen


@frozen
class FirstBreak:
    """The first output or gradient that is not finite or is lost; `tensor` is "output", "gradient"
    or "weight_gradient", `kind` as `mpprof.numbers.result.Break` has it."""

    layer: str
    tensor: str
    reason: str
    kind: str | None = None


@frozen
class NumbersLook:
    """One look. `now`: the loss scale in use, `low` and `high` the band that is good; None: not known, or
    there is none (`banded`: the band was looked for). `advice`, with its code for Keras: what to do first."""

    trigger: str
    step: int | None
    forward: FirstBreak | None
    backward: FirstBreak | None
    now: float | None = None
    low: float | None = None
    high: float | None = None
    banded: bool = False
    advice: str | None = None
    snippet: str | None = None


@frozen
class ShownLook:
    """The look of a run that shows most, for a page. `lines`: what it says; `rows`: as `layers` of the JSON
    of `mpprof numerics`; `advice`: what to do, each with its code."""

    heading: str
    lines: tuple[str, ...]
    rows: tuple[dict[str, Any], ...]
    advice: tuple[tuple[str, str], ...]
