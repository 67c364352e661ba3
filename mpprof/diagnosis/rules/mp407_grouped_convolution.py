"""A grouped convolution runs off the Tensor Cores.

What it means
    With `groups` above 1 each group is a small convolution of its own. Libraries often have no Tensor Core
    kernel for it, and convert to float32 and transpose around it instead.

How we know
    A recorded layer with `groups` above 1 whose matrix kernels ran on ordinary arithmetic.

What it costs
    Its matrix kernels against 16-bit ones (an upper bound: narrow groups fill Tensor Cores badly), and the
    transposes and casts that the trace gives to the layer.

When to ignore
    When the layer is a small part of the step.

Sources
    NVIDIA/apex#712 (groups=4: 15 times slower on a Titan RTX), pt#54324.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.diagnosis.cells import unattributed
from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP407", "grouped-convolution", "A grouped convolution runs off the Tensor Cores"
ABOUT = "grouped convolutions"
SAYS = "the grouped convolution {layers} runs off the {units}[, which costs up to {time}]"
ONCE = "once it fits the {units}"
SPECIFICITY = CONFIGURED
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.20)
"""Above what other layers need, because the claim on its matrix kernels is an upper bound."""


def judge(signals: Signals) -> Outcome:
    names = frozenset(
        f.name
        for f in need(signals.layers_in_16_bits)
        if kinds.is_convolution(f) and _groups(f.config.get("groups")) > 1 and f.compute_dtype in HALF_DTYPES
    )
    if not names:
        return NotApplicable("no 16-bit convolution has groups")
    if signals.without_matrix_units:
        return NO_MATRIX_UNITS
    need(signals.gpu_activity)
    fallbacks = signals.select(
        lambda cell: cell.layer in names and cell.category == "matmul" and cell.placement == "cuda_core"
    )
    if not fallbacks:
        if not signals.select(lambda cell: cell.layer in names):
            return unattributed(names)
        return Clear("the grouped convolutions ran on Tensor Cores")
    around = signals.select(lambda cell: cell.layer in names and cell.category in ("layout", "cast"))
    best = attainable.needed(signals, fallbacks, "grouped convolutions ran off the Tensor Cores")
    claims = best.claims + attainable.whole(around)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("the grouped convolutions cost next to nothing")
    return Found(
        summary=f"{evidence.listed(sorted(names))}: grouped, and off the Tensor Cores: up to "
        + "{cost} {each} ({share})",
        evidence=(
            evidence.text("layers", evidence.listed(sorted(names))),
            evidence.ns("their kernels off the Tensor Cores", signals.time(fallbacks)),
            evidence.text("attainable value from", best.source),
        ),
        confidence="medium" if best.confidence == "high" else "low",
        scale=SCALE,
        claims=claims,
        layers=tuple(sorted(names)),
    )


def _groups(value: object) -> int:
    return value if isinstance(value, int) else 1


def check_model(model: Untrained) -> Iterator[Note]:
    units = model.signals.matrix_units
    for layer in model.half:
        groups, filters = layer.config.get("groups"), layer.config.get("filters")
        if not kinds.is_convolution(layer) or kinds.is_depthwise(layer):
            continue
        if isinstance(groups, int) and groups > 1:
            each = filters // groups if isinstance(filters, int) else None
            wide = f", {each} filters each" if each else ""
            name, code = model.changed(layer, drop=["groups"])
            yield Note(
                "warning" if each is not None and each < shapes.ALIGNMENT else "info",
                name,
                f"groups={groups}{wide}: often without a kernel for {units}",
                f"{code}  # or fewer groups, or dtype='float32'",
                f"A grouped convolution may miss the {units}",
            )
