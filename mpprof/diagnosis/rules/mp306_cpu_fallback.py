"""An op runs on the CPU, with its tensors copied there and back.

What it means
    TensorFlow puts an op that has no kernel for the type on the device (16 bits, above all bfloat16) on the
    CPU, without a word. The device waits while the tensor travels, the CPU computes, and the result comes
    back: slowdowns of 10 to 500 times were reported.

How we know
    In the trace an op of the executor holds the host for long and launches nothing, and copies from and to
    the device carry its name.

What it costs
    The op's time on the host, in which nothing can be launched, and its copies.

What to do
    Keep that layer in float32, where its kernel exists, or use a newer TensorFlow, or XLA, which compiles its
    own:

        keras.layers.Lambda(f, dtype="float32")
        tf.debugging.set_log_device_placement(True)

When to ignore
    When the op belongs on the host (strings, input pipelines).

Sources
    tf#59050 (mixed_bfloat16 on an A10 "~500X slower"), tf#59743, tf#41783, NVIDIA/tensorflow#40.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from mpprof.analysis import timeline
from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import CONFIGURED, Claim, Clear, Found, Outcome, Scale, Unable, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.account import Account
from mpprof.model.trace import HostKind, Trace

CODE, SLUG, TITLE = "MP306", "cpu-fallback", "An op runs on the CPU"
SPECIFICITY = CONFIGURED

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.20)
"""XProf's limits for input, which also waits on the host."""
LONG_NS = 100_000.0
"""Launching an op takes some 10 µs; ten times that is work."""
_PLUMBING = re.compile(
    r"Iterator|_Send|_Recv|^(NoOp|Identity|Const|StatefulPartitionedCall|PartitionedCall|If|While|Case|Call)$"
)


def judge(signals: Signals) -> Outcome:
    if signals.on_cpu:
        return Clear("the run used no GPU: every op runs on the CPU")
    account, trace = need(signals.gpu_account), signals.case.trace
    if trace is None:
        return Unable("there is no trace of this run")
    if not (trace.host.kind == HostKind.OP).any():
        return Unable("the trace holds no ops of the host; record with host tracer level 2")
    slow = _ops_on_host(trace, account)
    moved = {
        signals.cells[row].op
        for row in signals.select(lambda cell: cell.role == "copy" and cell.op is not None)
    }
    slow = {op: ns for op, ns in slow.items() if op in moved}
    if not slow:
        return Clear("no op held the host for long with copies from and to the device")
    copies = signals.select(lambda cell: cell.role == "copy" and cell.op in slow)
    idle = signals.select(lambda cell: cell.role == "idle_launch")
    held = sum(slow.values())
    claims = tuple(Claim(row) for row in copies)
    claims += tuple(Claim(row, max(0.0, signals.cells[row].ns_per_step - held)) for row in idle)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("ops on the CPU cost next to nothing")
    names = sorted(slow, key=lambda op: -slow[op])
    shown = evidence.listed([name.rsplit("/", 2)[-2] if "/" in name else name for name in names])
    return Found(
        summary=f"ops of {shown} run on the CPU, with copies there and back: " + "{cost} a step ({share})",
        remedy=(
            'dtype="float32" for that layer, where its GPU kernel exists; a newer TensorFlow; or '
            "jit_compile=True"
        ),
        evidence=(
            evidence.text("ops", evidence.listed(names)),
            evidence.ns("their time on the host", held, LONG_NS),
            evidence.ns("their copies", signals.time(copies)),
        ),
        scale=SCALE,
        claims=claims,
        layers=tuple(dict.fromkeys(n for row in copies if (n := signals.cells[row].layer))),
    )


def _ops_on_host(trace: Trace, account: Account) -> Mapping[str, float]:
    """Op -> ns per step of ops that hold an executor thread for long, in the whole steps of the window."""
    device = next((i for i, d in enumerate(trace.devices) if d.plane == account.main.device), 0)
    steps = timeline.periods(trace, device)
    if not len(steps):
        return {}
    host = trace.host
    inside = (host.start_ns >= steps.start_ns[0]) & (host.start_ns < steps.end_ns[-1])
    rows = np.flatnonzero(
        (host.kind == HostKind.OP) & (host.duration_ns >= LONG_NS) & (host.op >= 0) & inside
    )
    total: dict[str, float] = defaultdict(float)
    for row in rows.tolist():
        op = trace.ops[int(host.op[row])]
        if not _PLUMBING.search(op.type or op.name.rsplit("/", 1)[-1]):
            total[op.name] += float(host.duration_ns[row]) / len(steps)
    return total
