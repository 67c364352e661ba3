"""A large embedding table is updated as a whole.

What it means
    A batch touches few rows of an embedding table, and its gradient is sparse. Keras 3 optimizers make it
    dense: every step then reads and writes the whole table and its slots, in float32 under any policy.

How we know
    A recorded Embedding layer, scatter kernels of its gradient, and kernels of the optimizer over as many
    values as the table has.

What it costs
    The scatter kernels of its gradient and the optimizer's kernels over the table.

When to ignore
    When the table is small or most of its rows occur in every batch.

Sources
    keras#19992 (`m * (1 - beta_1)` materialises the full table), keras#18279, tf-keras#45 ("severalfold
    slowdown").
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP505", "sparse-embedding", "A large embedding table is updated as a whole"
ABOUT = "embedding updates"
SAYS = "the whole embedding table is updated every step[, which costs {time}]"
SPECIFICITY = NAMED
OF_TRAINING = True
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.03, warning_ratio=0.10, error_ratio=0.40)
"""A change of the table or the optimizer changes the training: a tenth of the step is worth that thought."""
LARGE = 1_000_000
"""Values; four megabytes and below stay in the cache of any data-centre card (our judgement)."""


def judge(signals: Signals) -> Outcome:
    tables = {f.name: size for f in need(signals.layers) if (size := _values(f)) >= LARGE}
    if not tables:
        return NotApplicable("the model has no large embedding table")
    need(signals.gpu_account)
    sizes = set(tables.values())
    scattered = signals.select(
        lambda cell: (
            cell.layer in tables
            and cell.category in ("gather_scatter", "reduce")
            and cell.phase == "backward"
        )
    )
    updates = signals.select(
        lambda cell: cell.category == "optimizer" and shapes.largest(cell.shapes) in sizes
    )
    if not scattered and not updates:
        if not signals.select(lambda cell: bool(cell.shapes)):
            return Unable(
                "the trace states no shapes, so that updates of the table cannot be told from others"
            )
        return Clear("no kernel works over a whole embedding table")
    claims = attainable.whole((*scattered, *updates))
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("updating the embedding tables costs next to nothing")
    words = evidence.listed([f"{name} ({size:,} values)" for name, size in tables.items()])
    return Found(
        summary=f"{words}: the whole table is updated every step, " + "{cost} ({share})",
        evidence=(
            evidence.ns("scatter kernels of its gradient", signals.time(scattered)),
            evidence.ns("optimizer kernels over the table", signals.time(updates)),
        ),
        scale=SCALE,
        claims=claims,
        layers=tuple(tables),
    )


def _values(layer: LayerFacts) -> int:
    return (layer.parameters or 0) if layer.kind in ("Embedding", "ReversibleEmbedding") else 0
