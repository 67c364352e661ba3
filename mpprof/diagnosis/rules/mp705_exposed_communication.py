"""Devices exchange data while none of them computes.

What it means
    Devices that train together exchange gradients (data parallel), activations or parameters (sharded,
    pipelined). Gradients can travel beside the rest of the backward pass, and then cost nothing. Activations
    are wanted by the layer that comes next: only work of another part of the batch can hide them, if there is
    any. What is exposed lengthens the step, in every precision; 16 bits shorten the work that could hide it.

How we know
    The account's class `comm`: time in which a collective runs and nothing is computed, whether copies run
    beside it or not; the hidden time stands beside it.

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

from collections.abc import Sequence

from mpprof.analysis.breakdown import communication
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import several_devices

CODE, SLUG, TITLE = "MP705", "exposed-communication", "Communication is not hidden behind work"
ABOUT = "exposed communication"
SAYS = "the {device} exchanges data with others and computes nothing[ for {time}]"
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
    transfer = several_devices.transfer_ratio(signals)
    ahead = tuple(row for row in rows if _can_overlap(signals, signals.cells[row]))
    inner = 2 * signals.time(ahead) < exposed
    room = max(0.0, _room_ns(signals, ahead) - hidden)
    values = (
        evidence.ratio("exposed communication in {whole}", ratio, SCALE.crossed(ratio)),
        evidence.ratio("of the communication, hidden", hidden / whole if whole > 0 else None),
        *(() if inner else (evidence.ns("work that could hide more of it", room),)),
    )
    case = "within a pass" if inner else ""
    if transfer is None or inner:
        one = "; the trace of one device does not show how much of that is waiting for others"
        return Found(
            summary=f"communication is exposed for {format_ratio(ratio)} of {{whole}}"
            + (f": {_INNER}" if inner else "")
            + (one if transfer is None else ""),
            evidence=values,
            confidence="low",
            cases=("of one", case) if transfer is None else (case,),
            said=(
                "the {device} exchanges data with others, or waits for them, and computes nothing for "
                f"{format_ratio(ratio)} of {{whole}}"
            ),
            severity="warning" if ratio >= SCALE.warning_ratio else "info",
        )
    could = signals.time(ahead)
    least = max(could * (1.0 - transfer), could - room) / could
    return Found(
        summary=(
            f"communication is exposed for {format_ratio(ratio)} of {{whole}}: beside the work that does not "
            "wait for it, it would take up to {cost} {each} less ({share})"
        ),
        evidence=(*values, evidence.ratio("of the communication, transfer", transfer)),
        confidence="medium",
        scale=SCALE,
        claims=tuple(Claim(row, signals.cells[row].ns_per_step * least) for row in ahead),
    )


_INNER = "mostly no gradients, and the trace does not show work that could go on without what is sent"
_SHARDS = ("FullyShardedDataParallel", "FSDP", "ZeRO", "DeepSpeed")
"""Names of wrappers that gather parameters layer by layer, which can be sent for ahead."""


def _can_overlap(signals: Signals, cell: Cell) -> bool:
    """Tell whether this exchange is one that other work need not wait for at once: of gradients, or of
    parameters."""
    kind = communication.kind_of(cell)
    if kind == "gather":
        return signals.named(*_SHARDS)
    return kind == "reduce" and cell.phase != "forward" and not signals.forward_alone


def _room_ns(signals: Signals, ahead: Sequence[int]) -> float:
    """Return how long the work takes beside which these exchanges can run: that of the backward pass, where
    the trace tells it; all work, where parameters are gathered ahead."""
    gathered = any(communication.kind_of(signals.cells[row]) == "gather" for row in ahead)
    work = [signals.cells[row] for row in signals.work if signals.cells[row].category != "comm"]
    return sum(
        cell.ns_per_step
        for cell in work
        if gathered or (cell.phase != "forward" and cell.category != "optimizer")
    )
