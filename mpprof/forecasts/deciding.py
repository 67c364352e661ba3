"""Where the work of a program that was compiled for a card will run, as far as that is decided beforehand.

XLA compiles each product in two ways, with Triton and as a call of a library, and the card times both. Only
what holds in both programs is stated. The products of the program before optimisation say what the model
asked for, and which of them XLA turned into a loop, merged or padded.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from math import prod

from mpprof.analysis.kernels.eligibility import multiplies, precision_of
from mpprof.analysis.kernels.name_parts import operands, values
from mpprof.analysis.kernels.placement import category_of, hlo_family, hlo_types, products
from mpprof.analysis.layers.attribution import Ownership, attribute_ops
from mpprof.forecasts.targets import Card
from mpprof.model.forecast import Evidence
from mpprof.model.frozen import frozen
from mpprof.model.kernels import MATMUL_FAMILIES, Family, Placement, Precision, Reason, Verdict
from mpprof.model.run import ModelFacts
from mpprof.model.trace import HloInstruction, Op
from mpprof.traces.common.hlo_program import Launch

ALIGNED = 8
"""Elements of 16 bits: with sizes that are multiples, cuBLAS and cuDNN use Tensor Cores (NVIDIA, deep
learning performance guide, "Tensor Core requirements")."""

OBSTACLES: Mapping[str, tuple[str, str]] = {
    "loop": (
        "a product with one row or column, which XLA computes in a loop or a reduction",
        "raise the batch, or merge such products into one of more rows and columns",
    ),
    "kept": (
        "operands are float32 under this policy, too, as in a layer with a policy of its own",
        "give the layer the model's policy, and only the softmax or the loss float32",
    ),
    "kept_tf32": (
        "operands are float32 under this policy, too, as in a layer with a policy of its own: TF32 is "
        "allowed, and whether it is used is decided on the card",
        "give the layer the model's policy, and only the softmax or the loss float32",
    ),
    "float32": (
        "operands are float32, which this card's matrix units do not multiply",
        'compute in 16 bits: keras.config.set_dtype_policy("mixed_float16")',
    ),
    "bfloat16": (
        "operands are float32: this card has no units for bfloat16, and XLA converts it",
        'take "mixed_float16" on this card',
    ),
    "tf32": (
        "operands are float32: TF32 is allowed, and whether it is used is decided on the card",
        'compute in 16 bits: keras.config.set_dtype_policy("mixed_float16") or "mixed_bfloat16"',
    ),
    "highest": (
        'its precision is set to "highest", for which XLA does not use TF32',
        'jax_default_matmul_precision="default", or compute in 16 bits',
    ),
    "type": ("operands of a type that this card's matrix units do not multiply", "compute in 16 bits"),
    "depthwise": (
        "a depthwise convolution: cuDNN has kernels without matrix units, too, and decides on the card",
        "measure it on the card: fewer bytes may be all that it gains from 16 bits",
    ),
    "grouped": (
        "a grouped convolution: cuDNN has kernels without matrix units, too, and decides on the card",
        "fewer groups of more channels; measure it on the card",
    ),
    "size": (
        "a size that is not a multiple of 8: the library may pad, or take ordinary arithmetic",
        "make units, channels, vocabulary and batch multiples of 8",
    ),
    "small": (
        "a product with fewer than 16 rows, columns or terms: libraries have ordinary kernels for it, too",
        "raise the batch, or merge such products into larger ones",
    ),
    "recurrent": (
        "a recurrent layer, which cuDNN may run on the card: not forecast",
        "measure it on the card",
    ),
    "choice": ("XLA's own kernel or the library's: the card times both and takes the faster", ""),
}
"""Code: (why, remedy)."""


@frozen
class Decision:
    """What is known of one launch before the card has chosen."""

    placement: Placement
    precision: Precision
    family: Family
    evidence: Evidence
    obstacle: str
    instruction: str | None


@frozen
class Program:
    """One compiled program: its launches, whose they are, and the matrix instructions in its kernels by the
    name of the instruction (an empty tuple: a kernel of XLA's own without any)."""

    launches: tuple[Launch, ...]
    owners: Ownership
    instructions: Mapping[str, tuple[str, ...]]

    @property
    def work(self) -> Iterator[int]:
        return iter(range(len(self.launches)))

    def part(self, at: int) -> tuple[str, str]:
        """Return the layer and phase of a launch: two programs are compared by them."""
        return self.owners.layer_of(at) or "", self.owners.phase_of(at)


def program(
    launches: Sequence[Launch], instructions: Mapping[str, Sequence[str]], model: ModelFacts | None
) -> Program:
    ops = [Op(work.hlo.op_name or work.hlo.name, work.hlo.opcode, work.hlo) for work in launches]
    found = {name: tuple(used) for name, used in instructions.items()}
    return Program(tuple(launches), attribute_ops(ops, model), found)


# --- what the model asked for ------------------------------------------------------------------------------


def scope_of(op_name: str) -> str:
    """Return the scope of an op without the op itself: programs rename ops, and keep their scopes."""
    return op_name.rpartition("/")[0]


def is_product(hlo: HloInstruction) -> bool:
    """Return whether an instruction multiplies matrices, itself, within, or by a library call."""
    return bool(products(hlo)) or _library(hlo) != ""


def _library(hlo: HloInstruction) -> str:
    """Return the kind of library call that an instruction is; "" where it multiplies no matrices."""
    target = hlo.custom_call.lower()
    if "cublas" in target or "gemm" in target or "matmul" in target:
        return "gemm"
    if "cudnn$conv" in target:
        return "conv"
    return "attention" if "fmha" in target else ""


def attention_flops(hlo: HloInstruction) -> float | None:
    """Return the matrix operations of cuDNN's fused attention: two products forward, five backward, each of
    queries x keys x head size. The operands come as (batch, length, heads, size)."""
    if (
        "fmha" not in hlo.custom_call.lower()
        or len(hlo.operand_shapes) < 2
        or len(hlo.operand_shapes[1]) != 4
    ):
        return None
    query, keys = hlo.operand_shapes[0], hlo.operand_shapes[1]
    each = 2.0 * prod(query) * keys[1]
    return each * (5 if "Backward" in hlo.custom_call else 2)


def asked_flops(work: Launch) -> float | None:
    """Return the matrix operations of one execution; None: it multiplies no matrices, or their number is not
    stated."""
    return attention_flops(work.hlo) if _library(work.hlo) == "attention" else work.flops


@frozen
class Asked:
    """The products of the model that a launch computes, as the program before optimisation states them."""

    flops: float
    loop: bool = False  # done without any product: multiplications and sums


def asked(source: Sequence[Launch], made: Program) -> dict[int, Asked]:
    """Return, for each launch of `made` that does matrix work of the model, how much the model asked for
    there.

    Products are paired within their scope, largest first. Those that are left over belong to a product that
    XLA merged (its launch counts them), or became loops: launches of their scope that multiply and add.
    """
    wanted: dict[str, list[float]] = defaultdict(list)
    for work in source:
        flops = asked_flops(work)
        if flops and is_product(work.hlo):
            wanted[scope_of(work.hlo.op_name)].append(flops)
    have: dict[str, list[int]] = defaultdict(list)
    for at, work in enumerate(made.launches):
        if is_product(work.hlo):
            have[scope_of(_product_name(work.hlo))].append(at)
    found: dict[int, float] = {}
    left: list[tuple[str, float]] = []
    for scope, amounts in wanted.items():
        free = sorted(have.get(scope, ()), key=lambda at: -_executed(made, at))
        for flops in sorted(amounts, reverse=True):
            fits = [at for at in free if _executed(made, at) >= 0.999 * flops]
            if fits:
                free.remove(fits[-1])  # the smallest that could hold it
                found[fits[-1]] = flops
            else:
                left.append((scope, flops))
    loops: dict[int, float] = defaultdict(float)
    for scope, flops in left:
        if (merged := _merged(scope, flops, made, found)) is not None:
            found[merged] += flops
        elif (loop := _loop(scope, made)) is not None:
            loops[loop] += flops
    for scope, places in have.items():
        for at in places:  # of a scope whose products all have their launch: done a second time
            found.setdefault(at, 0.0 if scope in wanted else _executed(made, at))
    done = {at: Asked(flops * (made.launches[at].count or 1)) for at, flops in found.items()}
    return done | {at: Asked(flops, loop=True) for at, flops in loops.items()}


def _executed(made: Program, at: int) -> float:
    return asked_flops(made.launches[at]) or 0.0


def _merged(scope: str, flops: float, made: Program, found: Mapping[int, float]) -> int | None:
    """Return the launch that does a product of this scope together with another layer's: it has the layer
    among its own and operations to spare."""
    layer = scope.rpartition("/")[2] if "/" in scope else scope
    backward = "transpose(" in scope
    for at, already in found.items():
        if _executed(made, at) < 0.999 * (already + flops):
            continue
        same_phase = ("transpose(" in _product_name(made.launches[at].hlo)) == backward
        scopes = {part for owned in made.owners.layers_of(at) for part in owned.split("/")}
        if same_phase and scopes & {*re.split(r"[/()]", scope), layer}:
            return at
    return None


def _product_name(hlo: HloInstruction) -> str:
    inside = products(hlo)
    return (inside[0].op_name if inside and inside[0].op_name else "") or hlo.op_name


def _loop(scope: str, made: Program) -> int | None:
    """Return the launch that does a product of this scope by multiplying and adding: the one that reads
    most."""
    fitting = [
        at
        for at, work in enumerate(made.launches)
        if not is_product(work.hlo) and _multiplies_within(work.hlo, scope)
    ]
    return max(fitting, key=lambda at: made.launches[at].read_bytes, default=None)


def _multiplies_within(hlo: HloInstruction, scope: str) -> bool:
    inside = [inner for inner in (hlo, *hlo.called) if scope_of(inner.op_name) == scope]
    named = [inner for inner in inside if inner.op_name.endswith(("dot_general", "conv_general_dilated"))]
    return any(inner.opcode in ("multiply", "reduce") for inner in named)


# --- decisions ---------------------------------------------------------------------------------------------


def decide(
    at: int,
    own: Program,
    library: Program | None,
    card: Card,
    policy: str,
    asked_of: Mapping[int, Asked],
    recurrent: frozenset[str],
) -> Decision:
    """Return the decision for the launch in row `at` of the program with XLA's own products."""
    work = own.launches[at]
    if not is_product(work.hlo):
        looped = asked_of.get(at)
        if looped is not None and looped.loop:
            return Decision("cuda_core", values(hlo_types(work.hlo)), "gemm", "ptx", "loop", None)
        return _plain(work.hlo)
    family = _family(work)
    precision = _operands(work.hlo)
    if work.in_loop and is_recurrent(own.owners.layers_of(at), recurrent):
        return Decision("unknown", precision, family, "decided on the card", "recurrent", None)
    never = _never(work, precision, card, policy)
    if never:
        return Decision("cuda_core", precision, family, "hlo", never, None)
    if work.groups > 1:
        grouped = "depthwise" if family == "depthwise" else "grouped"
        return Decision("unknown", precision, family, "decided on the card", grouped, None)
    used = own.instructions.get(work.hlo.name, ())
    instruction = used[0] if used else None
    if precision == "fp32":
        open_ = "kept_tf32" if _narrow(policy) else "tf32"
        return Decision("unknown", "fp32", family, "decided on the card", open_, instruction)
    kind = _library(work.hlo)
    if kind == "attention":
        return Decision("tensor_core", precision, "attention", "library", "", None)
    if not _aligned(work):
        return Decision("unknown", precision, family, "decided on the card", "size", instruction)
    if family == "gemm" and _smallest(work) < _SMALL:
        return Decision("unknown", precision, family, "decided on the card", "small", instruction)
    if kind:
        return Decision("tensor_core", precision, family, "library", "", None)
    if not used and work.hlo.name in own.instructions:
        return Decision("unknown", precision, family, "decided on the card", "choice", None)
    if _in_library(at, own, library, precision):
        return Decision("tensor_core", precision, family, "ptx", "", instruction)
    return Decision("unknown", precision, family, "decided on the card", "choice", instruction)


def _plain(hlo: HloInstruction) -> Decision:
    named = Verdict(
        "not_matmul", values(hlo_types(hlo)), hlo_family(hlo) or "other", Reason("xla-named-fusion", "")
    )
    op = Op(hlo.op_name or hlo.name, hlo.opcode, hlo)
    family = "copy" if hlo.opcode == "copy" else category_of(named, op)
    family = "other" if family in MATMUL_FAMILIES else family
    return Decision("not_matmul", named.precision, family, "hlo", "", None)


def _family(work: Launch) -> Family:
    target = work.hlo.custom_call
    inside = products(work.hlo)
    if work.groups > 1 and work.channels[0] == 1:
        return "depthwise"
    if "BackwardInput" in target:
        return "conv_dgrad"
    if "BackwardFilter" in target:
        return "conv_wgrad"
    if "fmha" in target.lower():
        return "attention"
    return (
        "conv_fprop" if "conv" in target.lower() or (inside and inside[0].opcode == "convolution") else "gemm"
    )


def _operands(hlo: HloInstruction) -> Precision:
    """Return the type of a product's two factors."""
    inside = products(hlo)
    return operands([precision_of(dtype) for dtype in (inside[0] if inside else hlo).operand_dtypes[:2]])


def _never(work: Launch, precision: Precision, card: Card, policy: str) -> str:
    """Return why the card's matrix units cannot multiply these operands; "" where they can or may."""
    if precision == "fp32":
        if not multiplies("tf32", card.compute_capability):
            if "bfloat16" in policy:
                return "bfloat16"
            return "kept" if _narrow(policy) else "float32"
        inside = products(work.hlo)
        asked = (inside[0] if inside else work.hlo).precision
        return "highest" if asked == "highest" else ""
    if precision in ("unknown", "mixed") or multiplies(precision, card.compute_capability):
        return ""
    return "type"


def _narrow(policy: str) -> bool:
    """Return whether the model was asked to compute in 16 bits."""
    return policy.endswith("float16")


def _aligned(work: Launch) -> bool:
    """Return whether the rows of all operands begin at multiples of 16 bytes: the last size of each is a
    multiple of 8; of a convolution the number of channels counts, in whatever order they lie (cuDNN puts them
    last where it needs to)."""
    if any(work.channels):
        return all(size % ALIGNED == 0 for size in work.channels)
    inside = products(work.hlo)
    product = inside[0] if inside else work.hlo
    shapes = [*product.operand_shapes[:2], product.shape]
    return all(shape and shape[-1] % ALIGNED == 0 for shape in shapes)


_SMALL = 16
"""Rows, columns or terms of a matrix instruction of 16 bits (PTX: m16n8k16). Below, cuBLAS has kernels of its
gemv and gemmSN families."""


def _smallest(work: Launch) -> float:
    """Return the least of the numbers of a product's rows, columns and terms."""
    inside = products(work.hlo)
    product = inside[0] if inside else work.hlo
    flops = product.flops or work.flops
    if len(product.shape) < 2 or not flops:
        return 1.0
    return min(*product.shape[-2:], flops / 2 / max(1, prod(product.shape)))


def is_recurrent(layers: Sequence[str], recurrent: frozenset[str]) -> bool:
    return any(layer == name or layer.startswith(f"{name}/") for layer in layers for name in recurrent)


def _in_library(at: int, own: Program, library: Program | None, precision: Precision) -> bool:
    """Return whether the libraries' program has a call on operands of that type for the same part of the
    model."""
    if library is None:
        return False
    part = own.part(at)
    return any(
        _library(work.hlo) and _operands(work.hlo) == precision
        for other, work in enumerate(library.launches)
        if library.part(other) == part
    )
