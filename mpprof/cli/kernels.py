"""`mpprof kernels`."""

from __future__ import annotations

from mpprof.cli.tables import Table


class Kernels(Table):
    """List the kernels: time, where each ran, and what decided it.

    A kernel ran on Tensor Cores, ran as a fallback without them, or is unknown.
    Times are sums over the whole trace file, or over the steps of --steps or
    --step-range; concurrent kernels count in full. Long names are cut in the table,
    whole in csv and json."""

    name = "kernels"
    by_help = "stream: one row per stream; or a column to sum by, such as placement, family, layer"
