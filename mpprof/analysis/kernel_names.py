"""Where a kernel ran, by its name alone.

Rules and not rows: the naming grammars of the libraries are parsed, so a tile size, a type or an epilogue
never seen before is still understood. `RULES` is the whole list; the first rule that applies decides. A name
that no rule knows is `unknown`, unless every word of it is the word of an ordinary task.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from mpprof.analysis import (
    kernel_names_cudnn,
    kernel_names_frameworks,
    kernel_names_gemm,
    kernel_names_language,
    kernel_names_other,
)
from mpprof.analysis.eligibility import multiplies
from mpprof.analysis.kernel_names_parse import Card, Name, operands, parse, values
from mpprof.analysis.kernel_names_rule import Rule, Said, literals
from mpprof.model.kernels import UNKNOWN, Family, Reason, Verdict

RULES: tuple[Rule, ...] = (
    *kernel_names_frameworks.TORCH_RULES,
    *kernel_names_other.MOVE_RULES,
    *kernel_names_other.MATRIX_RULES,
    *kernel_names_gemm.REDUCTION_RULES,
    *kernel_names_cudnn.ATTENTION_RULES,
    *kernel_names_language.RULES,
    *kernel_names_gemm.RULES,
    *kernel_names_cudnn.RULES,
    *kernel_names_frameworks.RULES,
    *kernel_names_gemm.WORD_RULES,
)


@lru_cache(maxsize=65536)
def classify(
    name: str, compute_capability: tuple[int, int] | None = None, vendor: str = "unknown"
) -> Verdict:
    """Where a kernel of this name ran, in what precision, doing what, and by which words of its name.

    `compute_capability` and `vendor` are those of the card, where known: `1688` is fp16 on Turing and TF32
    from Ampere on. Strength is "name" where the instruction, the library or the types are stated, "family"
    where only the words of the task are, "none" for `unknown`. Never raises; cached.
    """
    card = Card(compute_capability, vendor)
    parsed = parse(name)
    for rule in candidates(parsed):
        said = rule.apply(parsed, card)
        if said is not None:
            return _checked(_verdict(rule, said), card)
    return _by_words(parsed) or UNKNOWN


_GRAM = 3


def _index() -> tuple[dict[str, tuple[int, ...]], tuple[int, ...], dict[int, tuple[str, ...]]]:
    """Rules by the first characters of the literals in their patterns; those that any name may meet; and the
    literals of the rules that read whole names."""
    by_gram: dict[str, set[int]] = {}
    always: list[int] = []
    of_whole: dict[int, tuple[str, ...]] = {}
    for position, rule in enumerate(RULES):
        runs = literals(rule.pattern)
        if rule.whole:
            of_whole[position] = runs or ("",)
        elif not runs:
            always.append(position)
        else:
            for run in runs:
                by_gram.setdefault(run[:_GRAM], set()).add(position)
    return {gram: tuple(rules) for gram, rules in by_gram.items()}, (*always, *of_whole), of_whole


_BY_GRAM, _ALWAYS, _OF_WHOLE = _index()


def candidates(name: Name) -> Iterator[Rule]:
    """The rules whose patterns can match a name, in their order: a handful of all."""
    head = name.head
    positions = set(_ALWAYS)
    for at in range(len(head) - _GRAM + 1):
        if found := _BY_GRAM.get(head[at : at + _GRAM]):
            positions.update(found)
    for position in sorted(positions):
        if position in _OF_WHOLE and not _holds(name.text, _OF_WHOLE[position]):
            continue
        yield RULES[position]


def _holds(text: str, runs: tuple[str, ...]) -> bool:
    # Not `any` over a generator: it takes three times as long, and this runs for each name and rule.
    for run in runs:  # noqa: SIM110
        if run in text:
            return True
    return False


def _verdict(rule: Rule, said: Said) -> Verdict:
    reason = Reason(said.code or rule.code, said.text or rule.text)
    strength = "none" if said.placement == "unknown" else "name"
    return Verdict(said.placement, said.precision, said.family, reason, strength, said.accumulate)  # type: ignore[arg-type]


def _checked(verdict: Verdict, card: Card) -> Verdict:
    """A claim that the card cannot bear is corrected, and the contradiction said."""
    if verdict.placement != "tensor_core":
        return verdict
    if card.vendor in ("amd", "google", "intel", "apple"):
        text = f"contradiction: {verdict.reason.text}, but the card is not NVIDIA's ({card.vendor})"
        return Verdict("unknown", verdict.precision, verdict.family, Reason("contradiction", text))
    if card.compute_capability is not None and card.compute_capability < (7, 0):
        return without_tensor_cores(verdict, "compute capability {}.{}".format(*card.compute_capability))
    if verdict.precision in ("bf16", "tf32", "fp64") and not multiplies(
        verdict.precision, card.compute_capability
    ):
        stated = "Tensor Cores of compute capability {}.{}".format(*card.compute_capability or ("?", "?"))
        text = f"{verdict.reason.text}; contradiction: {stated} do not multiply {verdict.precision}"
        return replace(verdict, reason=Reason(verdict.reason.code, text))
    return verdict


def without_tensor_cores(verdict: Verdict, card: str) -> Verdict:
    """The verdict of a kernel that names a Tensor Core instruction on a card that has none."""
    text = f"contradiction: {verdict.reason.text}, but this card has no Tensor Cores ({card})"
    return Verdict(
        "cuda_core",
        verdict.precision,
        verdict.family,
        Reason("card-without-tensor-cores", text),
        "name",
        verdict.accumulate,
    )


_TASKS: dict[str, Family] = {
    **dict.fromkeys(
        [
            "elementwise",
            "pointwise",
            "add",
            "sub",
            "mul",
            "div",
            "relu",
            "gelu",
            "silu",
            "swish",
            "sigmoid",
            "tanh",
            "exp",
            "log",
            "sqrt",
            "rsqrt",
            "neg",
            "abs",
            "clamp",
            "clip",
            "bias",
            "activation",
            "residual",
            "scale",
            "vector",
            "vectoradd",
            "saxpy",
            "axpy",
            "rope",
            "rotary",
            "mask",
            "where",
        ],
        "elementwise",
    ),
    **dict.fromkeys(["softmax", "logsoftmax"], "softmax"),
    **dict.fromkeys(["layernorm", "rmsnorm", "batchnorm", "groupnorm", "norm", "normalize"], "norm"),
    **dict.fromkeys(
        [
            "reduce",
            "reduction",
            "sum",
            "absmax",
            "amax",
            "mean",
            "argmax",
            "argmin",
            "max",
            "min",
            "cumsum",
            "scan",
        ],
        "reduce",
    ),
    **dict.fromkeys(
        ["transpose", "permute", "concat", "concatenate", "pad", "padding", "unpadding", "slice", "copy"],
        "layout",
    ),
    **dict.fromkeys(["gather", "scatter", "embedding", "topk", "sort", "index", "indices"], "gather_scatter"),
    **dict.fromkeys(["cast", "convert", "quantize", "dequantize"], "cast"),
    **dict.fromkeys(["dropout", "random", "rng", "philox"], "random"),
    **dict.fromkeys(["adam", "adamw", "sgd", "momentum", "optimizer"], "optimizer"),
    **dict.fromkeys(["fill", "memset", "zero", "zeros"], "memset"),
    **dict.fromkeys(["pool", "maxpool", "avgpool", "pooling"], "pool"),
}
_NEUTRAL = frozenset(
    [
        "kernel",
        "cuda",
        "gpu",
        "device",
        "fused",
        "forward",
        "backward",
        "fwd",
        "bwd",
        "fp16",
        "bf16",
        "fp32",
        "half",
        "float",
        "vec",
        "vectorized",
        "launch",
        "impl",
        "op",
        "ops",
        "and",
        "with",
        "to",
        "of",
        "the",
        "by",
        "row",
        "rows",
        "col",
        "cols",
        "block",
        "warp",
        "inplace",
        "grad",
        "input",
        "output",
        "data",
        "v1",
        "v2",
        "v3",
        "native",
        "static",
        "dynamic",
        "generic",
        "multi",
        "scaled",
        "per",
        "token",
        "channel",
        "group",
        "fp8",
        "fp4",
        "rms",
    ]
)
_CAMEL = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")


def _by_words(name: Name) -> Verdict | None:
    """A verdict from the words of an unknown library's function, only where *every* word is an ordinary task's.

    One word that is not known (`foo`, `gemm`, `mlp`) leaves the question open.
    """
    function = name.head.rsplit("::", 1)[-1]
    words = [word for word in re.split(r"[_\d\W]+", function) if len(word) > 1]
    tasks = [_TASKS[word] for word in words if word in _TASKS]
    if not tasks or any(word not in _TASKS and word not in _NEUTRAL for word in words):
        return None
    family = tasks[0]
    pick = operands if family in ("reduce", "norm", "softmax", "pool") else values
    text = f"every word of {function!r} names a task without a matrix product"
    return Verdict(
        "not_matmul", pick(t for t in name.types() if t != "int8"), family, Reason("words", text), "family"
    )
