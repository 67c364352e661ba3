"""`mpprof ops`."""

from __future__ import annotations

from mpprof.cli.tables import Table


class Ops(Table):
    """List the framework's ops: time, Tensor Core use, rate.

    `eligible` says whether an op could use Tensor Cores: did, could, could_never or
    unknown; csv and json hold the reason. Rates count the operations of the direct
    algorithm, where shapes are known."""

    name = "ops"
    by_help = "stream: one row per stream; or a column to sum by, such as type, layer, phase"
