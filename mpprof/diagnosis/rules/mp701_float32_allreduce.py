"""Gradients are exchanged in float32, and the exchange is not hidden.

What it means
    With mixed precision the gradients of the variables are float32, and that is what the devices sum. Mixed
    precision shortens the work around the exchange and leaves its bytes as they are: its share grows.

How we know
    Exposed communication in the account (class `comm`) whose kernels sum float32, by their names or their
    ops' types. A device also waits in these kernels for devices that come later: the shortest exchange among
    all devices is taken for the transfer, and only that could be shorter. The trace of a single device does
    not show how much of an exchange is waiting, so its share is stated without a cost.

What it costs
    Half of the exposed transfer, which is what 16 bits would save. Exposed communication below 15 % of the
    step is normal for a healthy run on several devices: it is a note without a cost.

When to ignore
    Where 16-bit sums of gradients do not train as well: compare the loss.

Sources
    TensorFlow guide "Optimize GPU performance" (float32 NCCL sums with float16 enabled); limits of 3 and 15 %
    as XProf has them for other overheads. Read in Keras 3.15.1: gradients of float32 variables are float32.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import several_devices

CODE, SLUG, TITLE = "MP701", "float32-allreduce", "Gradients are exchanged in float32"
ABOUT = "the exchange of gradients in float32"
SAYS = "gradients are exchanged in float32[, which costs {time}]"
OF_TRAINING = True

SCALE = Scale(info_ratio=0.03, warning_ratio=0.15, error_ratio=0.30, normal=True)
_HALF = 0.5


def judge(signals: Signals) -> Outcome:
    if (refused := several_devices.not_applicable(signals)) is not None:
        return refused
    if not signals.computes.narrow:
        return signals.not_narrow
    account = need(signals.gpu_activity)

    rows = signals.select(several_devices.sums_float32)
    exposed = signals.ratio(rows)
    if exposed < SCALE.info_ratio:
        return Clear(f"float32 sums are exposed for {format_ratio(exposed)} of the step")
    sent = sum(signals.cells[row].busy_ns_per_step for row in rows)
    values = (
        evidence.ratio("exposed float32 sums in {whole}", exposed, SCALE.crossed(exposed)),
        evidence.ratio("of these sums, exposed", signals.time(rows) / sent if sent > 0 else None),
        evidence.ratio("device busy", account.device_ns / signals.whole_ns),
    )
    transfer = several_devices.transfer_ratio(signals)
    if transfer is None:
        return Found(
            summary=(
                f"float32 sums of gradients are exposed for {format_ratio(exposed)} of {{whole}}; the "
                "trace of one device does not show how much of that is waiting for others"
            ),
            evidence=values,
            confidence="low",
            severity="warning" if exposed >= SCALE.warning_ratio else "info",
        )
    return Found(
        summary=(
            f"float32 sums of gradients are exposed for {format_ratio(exposed)} of {{whole}}; in 16 bits it "
            "would be {cost} less ({share})"
        ),
        evidence=(*values, evidence.ratio("of the communication, transfer", transfer)),
        confidence="medium",
        scale=SCALE,
        claims=tuple(Claim(row, signals.cells[row].ns_per_step * (1.0 - _HALF * transfer)) for row in rows),
    )
