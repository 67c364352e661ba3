"""`mpprof products`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpprof.cli import output
from mpprof.cli.tables import Table

if TYPE_CHECKING:
    from mpprof.api.workflows import Analysis
    from mpprof.model.rows import Row


class Products(Table):
    """List matrix products by shape: calls, time, achieved rate.

    A row holds all products of one shape that ran in the same way. The shape is M x
    N x K, or the sizes of a convolution's operands. `of peak` is the rate over the
    card's peak in that precision, on the units that it ran on. Shapes come from
    XLA's program, from TensorFlow's ops, from PyTorch's with record_shapes=True, or
    of a dense layer from what mpprof recorded of it."""

    name = "products"
    by_help = "stream: one row per stream; or a column to sum by, such as shape, layer, precision"

    def _rows(self, mine: Analysis, args: argparse.Namespace) -> tuple[Sequence[Row], Sequence[Row]]:
        from mpprof.report import words

        rows, whole = super()._rows(mine, args)
        unstated = sum(row["total_ns"] for row in whole if row["shape"] is None)
        if unstated and mine.trace is not None:
            ratio = unstated / sum(row["total_ns"] for row in whole)
            why = mine.trace.missing.get("shapes", "the trace does not state what these kernels multiply")
            output.note(args, f"the shapes of {words.percent(ratio)} of the matrix time are not known: {why}")
        return rows, whole
