"""Devices exchange data while none of them computes.

What it means
    Devices that train together exchange gradients (data parallel), activations or parameters (sharded,
    pipelined). The part that runs beside a backward pass costs nothing. The rest lengthens the step, in every
    precision; 16 bits shorten the work that could hide it.

How we know
    The account's class `comm`: time in which a collective runs and nothing else does; the hidden time stands
    beside it.

What it costs
    At most the part of the transfer that the device's own work has room to hide. Only traces of several
    devices show whether a collective transfers or waits for others; from one device's trace the share is
    stated without a cost.

When to ignore
    Below a few percent of the step.

Sources
    PyTorch's notes on DistributedDataParallel (buckets, no_sync); XLA's latency-hiding scheduler; XProf's
    limits for communication (3 % moderate, 15 % high). Public traces had 23 and 63 % of a step exposed.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import several_devices

CODE, SLUG, TITLE = "MP705", "exposed-communication", "Communication is not hidden behind work"
ABOUT = "exposed communication"
SAYS = "the {device} does nothing but exchange data with others[ for {time}]"
ONCE = "once communication is hidden"
OF_TRAINING = True
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.03, warning_ratio=0.15, error_ratio=0.30, normal=True)
"""XProf's limits: every run on several devices has some, a sixth of the step is too much."""


def judge(signals: Signals) -> Outcome:
    if (refused := several_devices.not_applicable(signals)) is not None:
        return refused
    need(signals.gpu_activity)
    narrow = signals.computes.narrow
    rows = signals.select(
        lambda cell: cell.category == "comm" and not (narrow and several_devices.sums_float32(cell))  # MP701
    )
    exposed = signals.time(rows)
    ratio = exposed / signals.whole_ns if signals.whole_ns > 0 else 0.0
    if ratio < SCALE.info_ratio:
        return Clear(f"communication is exposed for {format_ratio(ratio)} of the step")
    whole = sum(signals.cells[row].busy_ns_per_step for row in rows)
    hidden = max(0.0, whole - exposed)
    room = max(
        0.0, signals.time([row for row in signals.work if signals.cells[row].category != "comm"]) - hidden
    )
    transfer = several_devices.transfer_ratio(signals)
    values = (
        evidence.ratio("exposed communication in {whole}", ratio, SCALE.crossed(ratio)),
        evidence.ratio("of the communication, hidden", hidden / whole if whole > 0 else None),
        evidence.ns("work that could hide more of it", room),
    )
    if transfer is None:
        return Found(
            summary=(
                f"communication is exposed for {format_ratio(ratio)} of {{whole}}; the trace of one device "
                "does not show how much of that is waiting for others"
            ),
            evidence=values,
            confidence="low",
            cases=("of one", ""),
            said=(
                "the {device} does nothing but exchange data with others, or wait for them, for "
                f"{format_ratio(ratio)} of {{whole}}"
            ),
            severity="warning" if ratio >= SCALE.warning_ratio else "info",
        )
    least = max(exposed * (1.0 - transfer), exposed - room) / exposed
    return Found(
        summary="communication is exposed: {cost} {each} ({share}) could be hidden behind work",
        evidence=(*values, evidence.ratio("of the communication, transfer", transfer)),
        confidence="medium",
        scale=SCALE,
        claims=tuple(Claim(row, signals.cells[row].ns_per_step * least) for row in rows),
    )
