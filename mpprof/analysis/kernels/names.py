"""Where a kernel ran, by its name alone.

Rules and not rows: the naming grammars of the libraries are parsed, so a tile size, a type or an epilogue
never seen before is still understood. `RULES` is the whole list; the first rule that applies decides. A name
that no rule knows is `unknown`, unless one of its words names an ordinary task and none names matrix work.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache

from mpprof.analysis.kernels import rules_amd, rules_cudnn, rules_frameworks, rules_gemm, rules_tensorflow
from mpprof.analysis.kernels.eligibility import multiplies
from mpprof.analysis.kernels.name_parts import Card, Name, is_cut, operands, parse, values
from mpprof.analysis.kernels.op_types import family_of
from mpprof.analysis.kernels.rule import Rule, Said, literals, of_matrices
from mpprof.model.kernels import UNKNOWN, Family, Reason, Verdict

RULES: tuple[Rule, ...] = (
    *rules_frameworks.TORCH_RULES,
    *rules_frameworks.MOVE_RULES,
    *rules_amd.RULES,
    *rules_frameworks.MATRIX_RULES,
    *rules_gemm.REDUCTION_RULES,
    *rules_cudnn.ATTENTION_RULES,
    *rules_frameworks.LANGUAGE_RULES,
    *rules_gemm.RULES,
    *rules_cudnn.RULES,
    *rules_tensorflow.RULES,
    *rules_frameworks.RULES,
    *rules_gemm.WORD_RULES,
)


@lru_cache(maxsize=65536)
def classify(
    name: str, compute_capability: tuple[int, int] | None = None, vendor: str = "unknown"
) -> Verdict:
    """Return where a kernel of this name ran, in what precision, doing what, and by which words of its name.

    `compute_capability` and `vendor` are those of the card, where known: `1688` is fp16 on Turing and TF32
    from Ampere on. Strength is "name" where the instruction, the library or the types are stated, "family"
    where only the words of the task are, "none" for `unknown`. Never raises; cached.
    """
    card = Card(compute_capability, vendor)
    parsed = parse(name)
    for rule in candidates(parsed):
        said = rule.apply(parsed, card)
        if said is not None:
            if said.placement == "cuda_core" and is_cut(name):
                return _open(rule, said)
            return _checked(_verdict(rule, said), card)
    return _by_words(parsed) or UNKNOWN


def is_generic(name: str) -> bool:
    """Return whether a compiler named the kernel after instructions of the program (XLA's fusions, Triton's
    kernels of Inductor): the same name is another kernel in another program."""
    if _GENERIC.match(name):
        return True
    instruction = _NUMBERED.match(name)
    return instruction is not None and family_of(instruction["opcode"].replace("_", "-")) is not None


_GENERIC = re.compile(
    r"(?:(?:[a-z0-9\-]+_)*(?:fusion|computation)(?:[._]?\d+)*|wrapped_[a-z_\-]+(?:[._]\d+)*|(?:triton_|nested_)*gemm_fusion\w*"
    r"|triton_(?:poi|red|per|tem|for|softmax|mm|bmm|dot|addmm|gemm)(?:_\w*)?)$"
)
_NUMBERED = re.compile(r"(?P<opcode>[a-z][a-z_\-]*?)(?:[._]\d+)*$")

_GRAM = 3


def _index() -> tuple[dict[str, tuple[int, ...]], tuple[int, ...], dict[int, tuple[str, ...]]]:
    """Return the rules by the first characters of the literals in their patterns; the rules that any name may
    meet; and the literals of the rules that read whole names."""
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
    """Yield the rules whose patterns can match a name, in their order: a few of all the rules."""
    for position in _of_head(name.head):
        if position in _OF_WHOLE and not _holds(name.text, _OF_WHOLE[position]):
            continue
        yield RULES[position]


@lru_cache(maxsize=4096)
def _of_head(head: str) -> tuple[int, ...]:
    """Return the positions of the rules whose literals a function's name holds; the instances of a template
    share it."""
    positions = set(_ALWAYS)
    for at in range(len(head) - _GRAM + 1):
        if found := _BY_GRAM.get(head[at : at + _GRAM]):
            positions.update(found)
    return tuple(sorted(positions))


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


def _open(rule: Rule, said: Said) -> Verdict:
    """Return the verdict of a name that is cut off: the missing part may state a Tensor Core instruction."""
    text = f"{said.text or rule.text}; but the name is cut off, and what is missing may say otherwise"
    return Verdict("unknown", said.precision, said.family, Reason("cut-name", text), "none", said.accumulate)


def _checked(verdict: Verdict, card: Card) -> Verdict:
    """Return the verdict with a claim that the card cannot support corrected, and the contradiction
    stated."""
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
    """Return the verdict of a kernel that names a Tensor Core instruction on a card that has none."""
    text = f"contradiction: {verdict.reason.text}, but this card has no Tensor Cores ({card})"
    return Verdict(
        "cuda_core",
        verdict.precision,
        verdict.family,
        Reason("card-without-tensor-cores", text),
        "name",
        verdict.accumulate,
    )


_WORDS: dict[Family, str] = {
    "elementwise": """elementwise pointwise add sub mul div relu gelu silu swish sigmoid tanh exp log sqrt rsqrt neg abs
        clamp clip bias act activation residual scale vector vectoradd saxpy axpy rope rotary mask where elu selu swiglu
        geglu pow square floor ceil round sign sin cos maximum minimum range arange iota linspace""",
    "softmax": "softmax logsoftmax",
    "norm": "layernorm rmsnorm batchnorm groupnorm norm normalize",
    "reduce": "reduce reduction sum absmax amax mean argmax argmin max min cumsum cumprod scan histogram bincount",
    "layout": "transpose permute concat concatenate pad padding unpadding slice copy flip roll reverse stack split",
    "gather_scatter": "gather scatter embedding topk routing sort argsort index indices indexing unique segment",
    "cast": "cast convert quantize dequantize",
    "random": "dropout random randperm rng philox",
    "optimizer": "adam adamw sgd momentum optimizer",
    "memset": "fill memset zero zeros",
    "pool": "pool maxpool avgpool pooling",
}
_TASKS: dict[str, Family] = {word: family for family, words in _WORDS.items() for word in words.split()}
_STATING_WORDS = """swish silu gelu swiglu geglu rope rotary softmax logsoftmax layernorm rmsnorm batchnorm groupnorm reduce
    reduction argmax argmin cumsum cumprod histogram bincount transpose permute concat concatenate copy gather scatter
    embedding indexing topk routing sort argsort cast convert quantize dequantize dropout random randperm rng
    philox adam adamw sgd memset maxpool avgpool"""
_STATING = frozenset(_STATING_WORDS.split())
"""Tasks whose word says enough beside unknown words. `add`, `max`, `split` or `pad` do not: they also say how
a product is made."""
_CONNECTING = """kernel cuda gpu device fused forward backward fwd bwd fp16 bf16 fp32 half float double vec vectorized launch impl
    op ops and with to of the by row rows col cols block warp inplace grad input inputs output outputs data v1 v2 v3
    native static dynamic generic multi scaled per token channel group fp8 fp4 rms nhwc nchw strided contiguous
    segmented element elements value values simple small large triton"""
_NEUTRAL = frozenset(_CONNECTING.split())
_PART = r"[A-Z]+(?![a-z])\d*|[A-Z]?[a-z]+\d*"


def _words(function: str) -> list[str]:
    """Return the words of a function's name, in snake or camel case; two words that name a task together are
    one."""
    parts = [part.lower() for part in re.findall(_PART, function)]
    words: list[str] = []
    for part in parts:
        bare = part if part in _NEUTRAL else part.rstrip("0123456789")
        if words and words[-1] + bare in _TASKS:
            words[-1] += bare
        else:
            words.append(bare)
    return [word for word in words if len(word) > 1]


def _by_words(name: Name) -> Verdict | None:
    """Return a verdict from the words of an unknown library's function: where *every* word is one of an
    ordinary task, or where one of them says enough and nothing in the name is of matrix work.

    `foo_add` and `transpose_mlp` leave the question open.
    """
    words = _words(name.function)
    tasks = [word for word in words if word in _TASKS]
    known = bool(tasks) and all(word in _TASKS or word in _NEUTRAL for word in words)
    stating = tasks if known else [word for word in tasks if word in _STATING]
    if not stating or not (known or (name.function.strip().isidentifier() and not of_matrices(name))):
        return None
    family = _TASKS[stating[0]]
    pick = operands if family in ("reduce", "norm", "softmax", "pool") else values
    text = (
        f"every word of {name.function!r} names a task without a matrix product"
        if known
        else f"{stating[0]!r} in {name.function!r} names a task, and no word is of matrix work"
    )
    return Verdict(
        "not_matmul", pick(t for t in name.types() if t != "int8"), family, Reason("words", text), "family"
    )
