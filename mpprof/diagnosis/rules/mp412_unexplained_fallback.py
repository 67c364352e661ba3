"""Matrix work of a 16-bit run ran off the Tensor Cores, and no narrower cause explains it.

What it means
    The run computes in 16 bits, and part of its matrix work still ran on ordinary arithmetic, or in TF32.
    None of the known causes (MP104, MP401 to MP410) keeps it there, or the evidence for one was not recorded.

How we know
    The kernels' placement and precision, less all that other causes claim, where three percent of the step or
    more remains. Each kernel is given the best explanation available, from the types and sizes of its op's
    inputs, the policy of its layer, and the kernel's own name. The most common one: the layer's policy is
    float16, but its kernel multiplies float32, because something cast its inputs. In PyTorch a product may
    run in 16 bits with gradients, and elsewhere in float32 without any: the latter is a forward pass outside
    `torch.autocast`, usually an evaluation.

What it costs
    Its time against that of 16-bit kernels on Tensor Cores, where such a rate is known; else only
    the time of these kernels is stated, and no cost.

When to ignore
    Where those ops are meant to compute in float32, or could never use Tensor Cores (depthwise convolutions,
    products with a vector).

Sources
    Seen in a 16-bit run with 63 % of its step in float32 kernels, to which no narrower cause applied.
"""

from __future__ import annotations

from dataclasses import replace

from mpprof.analysis.layers.kinds import is_matrix
from mpprof.diagnosis.prelude import *
from mpprof.model.frozen import frozen

CODE, SLUG, TITLE = (
    "MP412",
    "unexplained-fallback",
    "Matrix work ran off the Tensor Cores, and no narrower cause explains it",
)
ABOUT = "unexplained fallbacks"
SAYS = "matrix work ran off the {units} or in float32[: {time}]; no narrower cause explains it"
SPECIFICITY = REMAINDER
OF_ACCELERATOR = True

SCALE = OF_A_LAYER
NOTABLE_RATIO = 0.03
"""From three percent of the step on, such time is always reported, whatever it could be."""
_MOST_REASONS = 2
_OUTSIDE = (
    "in 16 bits with gradients, and in float32 without: a forward pass outside torch.autocast, as of an "
    "evaluation"
)


@frozen
class _Reason:
    """Why an op ran where it did. `never`: no Tensor Core could have taken it."""

    text: str
    never: bool = False


def judge(signals: Signals) -> Outcome:
    need(signals.gpu_activity)
    if not signals.computes.narrow:
        return signals.not_narrow
    if signals.half == "bf16" and not eligibility.multiplies("bf16", known(signals.capability)):
        return NotApplicable("this card has no units for bfloat16 (MP804)")
    rows = _left(signals)
    ratio = signals.ratio(rows)
    if ratio < NOTABLE_RATIO:
        return Clear(
            f"matrix work that ran off the Tensor Cores without a known cause takes {format_ratio(ratio)}"
        )
    reasons: dict[_Reason, list[int]] = {}
    for row in sorted(rows, key=lambda row: -signals.cells[row].ns_per_step):
        reasons.setdefault(_reason(signals, signals.cells[row]), []).append(row)
    possible = [row for reason, own in reasons.items() if not reason.never for row in own]
    outside = signals.time(reasons.get(_Reason(_OUTSIDE), ())) >= 0.5 * signals.time(rows)
    best = known(attainable.matrix(signals, possible))
    if best is not None and signals.cost_ratio(best.claims) < SCALE.info_ratio:
        best = None
    shown = sorted(reasons.items(), key=lambda item: -signals.time(tuple(item[1])))
    heaviest = max(rows, key=lambda row: signals.cells[row].ns_per_step)
    return Found(
        summary=(
            f"{format_ns(signals.time(rows))} of matrix work {{each}} ({format_ratio(ratio)}) "
            f"did not run in 16 bits on {signals.matrix_units}"
            f"{'' if outside else ', and no narrower cause explains it'}: "
            + "; ".join(
                f"{evidence.listed(signals.names_of(own))}: {reason.text}"
                for reason, own in shown[:_MOST_REASONS]
            )
        ),
        evidence=(
            evidence.ratio("such matrix work in {whole}", ratio, NOTABLE_RATIO),
            evidence.text("heaviest kernel", signals.cells[heaviest].kernel),
            *((evidence.text("attainable value from", best.source),) if best else ()),
        ),
        said="a forward pass ran outside torch.autocast[: {time}]" if outside else "",
        cases=("never",) if not possible else ("outside autocast",) if outside else ("",),
        confidence=best.confidence if best else "low",
        scale=SCALE if best else None,
        severity=None if best else _by_share(signals, tuple(possible)),
        claims=best.claims if best else (),
        layers=signals.layers_of(rows),
    )


def _left(signals: Signals) -> tuple[int, ...]:
    """Return the rows of matrix work not in 16 bits on matrix units that no cause claims. Work is left out,
    too, where a cause claims other matrix work of its layer in the same precision."""
    taken = {
        (cell.layer, cell.precision)
        for cell in (signals.cells[row] for row in signals.claimed)
        if cell.category == "matmul" and cell.layer
    }
    return tuple(
        row
        for row in signals.not_in_16_bits
        if row not in signals.claimed
        and (signals.cells[row].layer, signals.cells[row].precision) not in taken
    )


def _by_share(signals: Signals, rows: tuple[int, ...]) -> Severity:
    """Return the severity by the share of time. Where no cost is known, the time itself is the most that the
    cost can be."""
    ratio = signals.time(rows) / signals.whole_ns
    return "warning" if ratio >= SCALE.error_ratio else "info"


def _reason(signals: Signals, cell: Cell) -> _Reason:
    """Return the best explanation that types, sizes, policy and name give."""
    if _outside_autocast(signals, cell):
        return _Reason(_OUTSIDE)
    facts = signals.layer(cell.layer)
    dtype = facts.compute_dtype if facts else None
    product = eligibility.product_of_shapes(
        cell.op_type or "", eligibility.parse_shapes(cell.shapes or ""), cell.family or "other"
    )
    if cell.family == "depthwise" or product is not None:
        product = product or eligibility.Product("depthwise", cell.inputs or "unknown")
        judged = eligibility.judge(
            replace(product, compute_dtype=dtype or ""),
            capability=known(signals.capability), tensor_cores=True,
        )  # fmt: skip
        if judged.answer == "could_never":
            return _Reason(judged.reasons[0][1], never=True)
        if judged.answer == "could":
            return _Reason(judged.reasons[0][1])
    ran = "a TF32 kernel ran" if cell.precision == "tf32" else f"an {cell.precision} kernel ran"
    if cell.inputs in HALF_PRECISIONS and cell.precision not in HALF_PRECISIONS:
        return _Reason(f"the inputs of its op are {cell.inputs}, but {ran}")
    if cell.precision in HALF_PRECISIONS:
        return _Reason("an ordinary kernel ran with 16-bit operands whose sizes are not known")
    if cell.precision in (None, "unknown"):
        return _Reason("a kernel ran off the Tensor Cores, and its name does not state its type")
    if dtype in HALF_DTYPES:
        return _Reason(f"{dtype} by its policy, but {ran}")
    if dtype is not None:
        return _Reason(f"{dtype} by its policy")
    if cell.candidates:
        return _Reason(f"{ran}, which belongs to one of these layers: {evidence.listed(cell.candidates)}")
    wide = [f.name for f in known(signals.layers) or () if f.compute_dtype == "float32" and is_matrix(f)]
    if not cell.layer and wide:
        return _Reason(
            f"{ran}, whose layer is not known: it may be one of those that stay in float32 (MP104: "
            f"{evidence.listed(wide)})"
        )
    return _Reason(
        f"{ran}, and {'the policy of its layer was not recorded' if cell.layer else 'its layer is not known'}"
    )


def _outside_autocast(signals: Signals, cell: Cell) -> bool:
    """Return whether PyTorch ran this product in float32 and the same one in 16 bits, with gradients in 16
    bits alone. An island has gradients in float32, and no product in 16 bits."""
    if signals.framework != "torch" or cell.phase == "backward" or cell.inputs in HALF_PRECISIONS:
        return False
    product = _product(cell)
    if product is None or cell.precision not in ("fp32", "tf32"):
        return False
    of_layer = [each for each in signals.cells if each.category == "matmul" and each.layer == cell.layer]
    backward = {each.precision for each in of_layer if each.phase == "backward"}
    narrow = {_product(each) for each in of_layer if each.precision in HALF_PRECISIONS}
    return product in narrow and bool(backward) and backward <= HALF_PRECISIONS


def _product(cell: Cell) -> tuple[str, tuple[int, ...]] | None:
    """Return the op of a forward product and the shape of its last tensor of two or more axes, which is the
    weight; None where the trace states neither."""
    shaped = [dims for _, dims in shapes.tensors(cell.shapes or "") if len(dims) > 1]
    return (cell.op_type, shaped[-1]) if cell.op_type and shaped and cell.phase != "backward" else None
