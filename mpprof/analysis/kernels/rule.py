"""What a rule about kernel names is. The rules themselves are data in `rules_*.py`."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import cache
from itertools import chain

from mpprof.analysis.kernels.name_parts import Card, Name, operands, values
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Family, Placement, Precision


@frozen
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


@frozen
class Rule:
    """One statement about names: where `pattern` matches, `decide` tells the verdict.

    Rules are tried in order and the first that applies decides. With `whole` the pattern is searched in the
    whole name, else in the function's own name only, which is far shorter. `text` says in words why; `source` is the document or
    repository that shows such names; `generation` the cards or library versions they come from;
    `example` a name that the rule must decide (tested one by one).
    """

    code: str
    pattern: str
    decide: Decide
    text: str
    source: str
    generation: str
    example: str
    whole: bool = False

    @property
    def regex(self) -> re.Pattern[str]:
        return _compiled(self.pattern)

    def apply(self, name: Name, card: Card) -> Said | None:
        match = self.regex.search(name.text if self.whole else name.head)
        return self.decide(name, match, card) if match else None


# When first asked for: a trace meets a few of the rules, and compiling all takes as long as reading it.
_compiled = cache(re.compile)


def literals(pattern: str) -> tuple[str, ...]:
    """Return a plain run of characters for each alternative of a pattern, which all its matches contain.

    Empty: some alternative has no run of three. Knows the part of the syntax that the rules use: groups,
    classes, escapes, quantifiers after one character. Serves to skip patterns that cannot match.
    """
    return _literals(_PIECE.finditer(pattern))[0]


_PIECE = re.compile(
    r"(?P<run>[\w:-]+(?![?*{]))|\((?:\?:|\?P<\w+>)?(?P<group>(?!\?))|(?P<look>\()|\)(?P<optional>[?*{])|(?P<end>\))"
    r"|(?P<other>\|)|\\.|\[.[^]]*\]|\{[^}]*\}|."
)


def _literals(pieces: Iterator[re.Match[str]]) -> tuple[tuple[str, ...], bool]:
    """Return the literals up to the bracket that closes these pieces, and whether a match must have what it
    closes."""
    found: list[tuple[str, ...]] = []
    runs: list[str] = []
    nested: tuple[str, ...] = ()  # of the first group that has any
    must = True
    for piece in pieces:
        kind = piece.lastgroup
        if kind == "run":
            runs.append(piece[0])
        elif kind in ("group", "look"):
            inner, needed = _literals(pieces)
            if needed and kind == "group":
                nested = nested or inner
        elif kind == "other":
            found.append(_rarest(runs) or nested)
            runs, nested = [], ()
        elif kind in ("optional", "end"):
            must = kind == "end"
            break
    found.append(_rarest(runs) or nested)
    return (tuple(chain.from_iterable(found)) if all(found) else ()), must


def _rarest(runs: list[str]) -> tuple[str, ...]:
    """Return the rarest of these runs. Longer runs are rarer, but nearly every name holds "kernel"."""
    best = max(runs, key=lambda run: (len(run) >= 3 and run.strip("_") != "kernel", len(run)), default="")
    return (best,) if len(best) >= 3 else ()


def always(
    placement: Placement, precision: Precision, family: Family, accumulate: Precision | None = None
) -> Decide:
    """Return a decision that gives every matching name the same verdict."""
    said = Said(placement, precision, family, accumulate)
    return lambda name, match, card: said


def helper(family: Family) -> Decide:
    """Return the decision for work around a matrix kernel that multiplies nothing itself; the precision comes
    from the types in the name."""
    return lambda name, match, card: Said("not_matmul", operands(floats(name)), family)


def floats(name: Name) -> tuple[Precision, ...]:
    """Return the number types of a name without integers, which are indices or masks in kernels that do not
    multiply."""
    return tuple(precision for precision in name.types() if precision != "int8")


def ordinary(family: Family) -> Decide:
    """Return the decision for matrix work with ordinary arithmetic; the precision comes from the types in the
    name."""
    return lambda name, match, card: Said("cuda_core", operands(name.types()), family)


def plain(family: Family) -> Decide:
    """Return the decision for work that is not a matrix product; the precision comes from the types in the
    name.

    float32 beside a 16-bit type is what the arithmetic is done in: the data are 16-bit. Only a cast is
    `mixed`.
    """
    pick = values if family == "cast" else operands
    return lambda name, match, card: Said("not_matmul", pick(floats(name)), family)


def family_rule(code: str, pattern: str, family: Family, text: str, source: str, example: str) -> Rule:
    """Return a rule for functions, of any generation, that multiply no matrices and have one family."""
    return Rule(code, pattern, plain(family), text, source, "all", example)


def direction(text: str) -> Family | None:
    """Return the direction of a convolution that words in a lower-case name state; None where none does."""
    if any(word in text for word in ("wgrad", "wrw", "backpropfilter", "backward_weight", "bwd_weight")):
        return "conv_wgrad"
    if any(word in text for word in ("dgrad", "backpropinput", "backward_data", "bwd_data", "igemm_bwd")):
        return "conv_dgrad"
    return "conv_fprop" if any(word in text for word in ("fprop", "igemm_fwd", "conv_fwd")) else None


def convolution(text: str, default: Family = "conv_fprop") -> Family:
    """Return the direction of a convolution from words in a lower-case name.

    cuDNN's older kernels call the data gradient `stridedB` and the weight gradient `stridedB_splitK`.
    """
    if (stated := direction(text)) is not None:
        return stated
    if "stridedb" in text:
        return "conv_wgrad" if "splitk" in text else "conv_dgrad"
    return default


_OF_MATRICES = (
    r"gem[mv]|mat_?mul|mul_?mat|matvec|mma|mfma|xdl|attn|attention|attend|fmha|flash|conv(?!ert)|wino|wgrad|dgrad|einsum|product"
    r"|lstm|linear|dense|cutlass|tensor_?(?:core|op)|w\d+a\d+|a\d+w\d+|split_?k|stream_?k"
    r"|(?<![a-z])(?:b?mm|mv|dot|mha|mqa|gqa|mla|rnn|gru|moe|mlp|ffn|fc\d?|qkv|qk|pv|proj|projection|gate|lora|[sb]gmv|experts?"
    r"|chunk|state|syrk|herk|sy[mr]m|hemm|tr[sm]m|solve|inverse|cholesky|fft|correlation|layer|encoder|decoder|model|network"
    r"|indexer)(?![a-z])"
)
"""What a product is called, or a layer or an algorithm that is made of products."""


def of_matrices(name: Name) -> bool:
    """Return whether a word of the function or of its namespaces is one of matrix work."""
    return _compiled(_OF_MATRICES).search(name.head) is not None
