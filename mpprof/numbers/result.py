"""What a look at a model's numbers gives, and its JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, Literal

from mpprof.model.frozen import frozen
from mpprof.numbers import text
from mpprof.numbers.tallies import Shares
from mpprof.store.formats import NUMERICS_SCHEMA

Tensor = Literal["output", "gradient", "weight_gradient"]
AdviceOf = Literal["first_forward", "first_backward", "updates"]


@frozen
class Row:
    """One tensor: a layer's output, the gradient with respect to it, or the gradient of one of its weights.

    Ratios are of its `elements`. `flushed_ratio`: 0 here and not in float32; None: that is not known.
    `max_abs`: the largest finite magnitude, None where nothing is finite; `float32_max_abs` the same of the
    pass in float32. `exponents`: how many finite elements that are not 0 lie from 2^e to 2^(e+1). `would_be`:
    the shares of the same values in that type. `call`: 2 where it is the layer's second call in the step;
    None for weights. `update_lost`, of a weight of 16 bits: by type, the share of its elements that one
    update of the optimizer changes in float32 and not in that type."""

    layer: str
    tensor: Tensor
    dtype: str
    max_abs: float | None
    nonfinite_ratio: float
    flushed_ratio: float | None
    subnormal_ratio: float
    exponents: Mapping[int, int]
    elements: int
    zero_ratio: float
    would_be: Mapping[str, Shares]
    safe_in_float16: bool | None = None
    float32_max_abs: float | None = None
    call: int | None = None
    weight: str | None = None
    update_lost: Mapping[str, float] | None = None


@frozen
class Break:
    """The first tensor that is not finite, or whose values are lost.

    `kind` of an output: "batch", "weights" (not finite before), "sum", "product", "variance", "exp", "cast"
    (overflows), "constant" (beyond float16), "epsilon" (one that rounds to 0, then a division), "division"
    (by 0). Of a gradient:
    "loss scale" (too high), "every scale" (finite at none that is of use), "underflow" (too low a scale),
    "forward" (the forward pass broke before). "not known": of either. `finite_in_float32`: whether all of it
    is where every layer computes in float32; False: 16 bits are not the cause. None: that is not known.
    `source`: the layer, or the model, that it comes from, where that is another: between whose layers what
    this one is given stopped being finite, whose backward pass does not give what is finite, or whose output
    rounds to 0, so that no loss scale helps; of a batch, the part that is not finite."""

    layer: str
    tensor: Tensor
    reason: str
    kind: str
    finite_in_float32: bool | None = None
    source: str | None = None


@frozen
class ScaleBand:
    """The loss scale in use, and the powers of two within which no gradient overflows (`high`) and at most
    1 % of the elements of the weights' gradients are lost (`low`); None: there is none."""

    now: float
    low: float | None
    high: float | None


@frozen
class Advice:
    """What to do, with the code for Keras; `code` is the cause's, for `mpprof explain`. `layer` None: the
    batch. `of`: the part of the look that it is about."""

    layer: str | None
    text: str
    code: str
    snippet: str
    of: AdviceOf


@frozen
class NotSeen:
    """A layer that could not be looked into, and why."""

    layer: str
    reason: str


@frozen
class Numerics:
    """Where 16 bits break, by layer, in one forward and backward pass of a batch. Printing gives a table.

    `basis`: "compiled" where the pass ran as the training's own step is compiled, with more outputs; "eager"
    where it did not (`note` says what that means). `absent`: why a part is None."""

    basis: Literal["compiled", "eager"]
    note: str | None
    loss_scale: ScaleBand | None
    first_forward: Break | None
    first_backward: Break | None
    layers: tuple[Row, ...]
    advice: tuple[Advice, ...]
    unable: tuple[NotSeen, ...]
    absent: Mapping[str, str]

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON document of `mpprof numerics --format json`, as Python values."""
        found = asdict(self)
        for row in found["layers"]:
            row["exponents"] = {str(exponent): count for exponent, count in row["exponents"].items()}
        found["layers"], found["advice"] = list(found["layers"]), list(found["advice"])
        return {"schema": NUMERICS_SCHEMA, **found, "unable": list(found["unable"])}

    def __repr__(self) -> str:
        return f"Numerics: {text.headline(self.to_dict())}"

    def __str__(self) -> str:
        return text.table(self.to_dict())
