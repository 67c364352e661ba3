"""What a rule about kernel names is. The rules themselves are data in `kernel_names_*.py`."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field

from mpprof.analysis.kernel_names_parse import Card, Name, operands, values
from mpprof.model.kernels import MATMUL_FAMILIES, Family, Placement, Precision


@dataclass(frozen=True, slots=True)
class Said:
    """What a rule says of a name. `code` and `text` empty: those of the rule."""

    placement: Placement
    precision: Precision = "unknown"
    family: Family = "other"
    accumulate: Precision | None = None
    code: str = ""
    text: str = ""


Decide = Callable[[Name, "re.Match[str]", Card], Said | None]
"""The logic of a rule: what the name says, given the match and the card; None: the rule does not apply."""


@dataclass(frozen=True, slots=True)
class Rule:
    """One statement about names: where `needle` occurs and `pattern` matches, `decide` tells the verdict.

    Rules are tried in order and the first that applies decides. `needle` is a literal that every match
    contains: a fast test before the pattern. `text` says in words why; `source` is the document or
    repository that shows such names; `generation` the cards or library versions they come from;
    `example` a name that the rule must decide (tested one by one).
    """

    code: str
    needle: str
    pattern: str
    decide: Decide
    text: str
    source: str
    generation: str
    example: str
    whole: bool = True  # search the whole name, else the function's own name only
    regex: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "regex", re.compile(self.pattern))

    def apply(self, name: Name, card: Card) -> Said | None:
        match = self.regex.search(name.text if self.whole else name.head)
        return self.decide(name, match, card) if match else None


def always(
    placement: Placement, precision: Precision, family: Family, accumulate: Precision | None = None
) -> Decide:
    """The same verdict for every name that matches."""
    said = Said(placement, precision, family, accumulate)
    return lambda name, match, card: said


def helper(family: Family) -> Decide:
    """Work around a matrix kernel that multiplies nothing itself; precision from the types in the name."""
    return lambda name, match, card: Said("not_matmul", values(name.types()), family)


def ordinary(family: Family) -> Decide:
    """Matrix work with ordinary arithmetic; precision from the types in the name."""
    return lambda name, match, card: Said("cuda_core", operands(name.types()), family)


def plain(family: Family) -> Decide:
    """Work that is not a matrix product; precision from the types in the name.

    16-bit data with float32 statistics or sums is 16-bit work for kernels that reduce; for those that
    map values to values two types mean `mixed`.
    """
    pick = operands if family in ("reduce", "norm", "softmax", "pool") else values

    def decide(name: Name, match: re.Match[str], card: Card) -> Said:
        types = tuple(t for t in name.types() if t != "int8")
        return Said("not_matmul", pick(types), family)

    return decide


def convolution(text: str, default: Family = "conv_fprop") -> Family:
    """The direction of a convolution from words in a lower-case name.

    cuDNN's older kernels call the data gradient `stridedB` and the weight gradient `stridedB_splitK`.
    """
    if any(word in text for word in ("wgrad", "wrw", "backpropfilter", "backward_weight", "bwd_weight")):
        return "conv_wgrad"
    if any(word in text for word in ("dgrad", "backpropinput", "backward_data", "bwd_data", "igemm_bwd")):
        return "conv_dgrad"
    if "stridedb" in text:
        return "conv_wgrad" if "splitk" in text else "conv_dgrad"
    return default


def is_matrix(family: Family) -> bool:
    """Whether the family is matrix work in the sense of the account."""
    return family in MATMUL_FAMILIES
