"""The one table of remedies: by cause, framework, card and evidence. The first rows of a cause pay most.

Values that every row may name: `{keras}` (the name that Keras is imported by), `{set_policy}` (what sets its
dtype policy), `{scaled_optimizer}` (its optimizer with a loss scale), `{recorder}` (what records such a run),
`{run}` (its path, quoted for a shell), `{script}` (its script, likewise).
"""

from __future__ import annotations

from mpprof.diagnosis.remedies import (
    rows_of_devices,
    rows_of_host,
    rows_of_kernels,
    rows_of_precision,
    rows_of_records,
)
from mpprof.diagnosis.remedies.row import Row

ROWS: tuple[Row, ...] = (
    *rows_of_precision.IN_EFFECT,
    *rows_of_precision.LOSS_SCALING,
    *rows_of_host.INPUT,
    *rows_of_host.LAUNCHES,
    *rows_of_host.HOST,
    *rows_of_kernels.MATRIX,
    *rows_of_kernels.LAYOUT,
    *rows_of_kernels.REST,
    *rows_of_devices.DEVICES,
    *rows_of_precision.CARD,
    *rows_of_precision.SWITCH,
    *rows_of_records.VALIDITY,
    *rows_of_records.RECORDS,
)
