"""`mpprof layers`."""

from __future__ import annotations

from mpprof.cli.tables import Table


class Layers(Table):
    """List the model's layers: time, number format, Tensor Core share.

    Times are split into forward and backward."""

    name = "layers"
    by_help = "stream: one row per stream; or a column to sum by, such as class, compute_dtype"
