"""The run had a GPU, and its trace has no GPU events.

What it means
    The profiler could not reach CUPTI, the driver's tracing interface, or was not permitted to. The trace
    holds the host alone, and kernels cannot be judged. It is the most common failure of a first profile.

How we know
    The run recorded a GPU, or the trace has calls that launch work; the trace has no device plane with
    kernels, or the host executes programs on more devices than have kernels (a note). Where it has ops and
    no such call, the ops ran on the CPU, and nothing is missing. An export of Nsight Systems has a table of
    kernels only where CUDA was traced (`nsys profile --trace=cuda`) and at least one kernel ran.

What it costs
    Every answer about kernels, Tensor Cores and idle time.

When to ignore
    When the GPU was there but training was placed on the CPU on purpose.

Sources
    NVIDIA "Permission issue with Performance Counters" (ERR_NVGPUCTRPERM). TensorFlow guide "Optimize
    TensorFlow performance using the Profiler" (CUPTI set-up).
"""

from __future__ import annotations

import numpy as np

from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.shared import several_devices
from mpprof.model.trace import HostKind, Trace

CODE, SLUG, TITLE = "MP908", "no-device-events", "The trace has no GPU events"
ABOUT = "missing device events"
LEADS = INVALID


def judge(signals: Signals) -> Outcome:
    trace = signals.case.trace
    if trace is None:
        need(signals.account)
        return Clear("the account rests on device events")
    missing = trace.missing.get("kernels") if trace.basis == "device" else None
    if trace.basis == "device" and len(trace.kernels) and missing is None:
        if (unseen := several_devices.unseen_devices(trace)) is None:
            return Clear("the trace has device events")
        return Found(
            summary=unseen,
            evidence=(evidence.count("kernels in the trace", len(trace.kernels)),),
            cases=("some",),
            severity="info",
            title="The trace has no events of some devices",
        )
    accelerator = need(signals.accelerator)
    if accelerator == "cpu":
        return NO_GPU
    if trace.warnings:
        return Unable(f"the trace is damaged, so its device events may be lost: {trace.warnings[0]}")
    device = need(signals.device)
    if missing is not None and trace.source.format != "nsys":
        return Unable(missing)
    if missing is None and signals.case.run.facts is None and not _launched(trace):
        return Unable(
            "the trace has no call that launches work: either nothing was put on the device "
            '(.to("cuda") is missing), or the calls were not recorded (mpprof doctor)'
        )
    if missing is not None:
        return Found(
            summary=missing,
            evidence=(evidence.text("device of the run", device.name or accelerator),),
            cases=("nsys",),
            severity="error",
        )
    return Found(
        summary=f"the run had {device.name or f'a {accelerator}'}, but the trace holds no events of it",
        evidence=(
            evidence.text("device of the run", device.name or accelerator),
            evidence.count("kernels in the trace", len(trace.kernels) if trace.basis == "device" else 0, 1),
        ),
        severity="error",
    )


def _launched(trace: Trace) -> bool:
    return bool(np.isin(trace.host.kind, (HostKind.LAUNCH, HostKind.COPY)).any())
