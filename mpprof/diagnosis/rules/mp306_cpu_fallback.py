"""An op runs on the CPU, with its tensors copied there and back.

What it means
    If the device has no kernel of an op for the type (16 bits, above all bfloat16), TensorFlow runs the op on
    the CPU, without a warning. The device waits while the tensor travels, the CPU computes, and the result
    comes
    back: slowdowns of 10 to 500 times were reported. Loss scaling brings such an op: to check whether the
    sparse gradient of an embedding is finite, Keras makes the result dense with an op that has no kernel for
    booleans on the GPU.

How we know
    In the trace an op of the executor keeps the host busy for long, right after a copy from the device and
    right before one to it, and no kernel on the device belongs to that op. An op that only copies and waits
    is counted by MP310.

What it costs
    The op's time on the host, in which nothing can be launched, and its copies.

When to ignore
    When the op belongs on the host (strings, input pipelines).

Sources
    Recorded for mpprof (H200, TensorFlow 2.20, Keras 3.15): 10.9 of 89.8 ms a step in that check.
    tf#59050 (mixed_bfloat16 on an A10 "~500X slower"), tf#59743, tf#41783, NVIDIA/tensorflow#40.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping

import numpy as np

from mpprof.analysis.steps import boundaries
from mpprof.analysis.steps.idle import HOST_OPS
from mpprof.diagnosis.prelude import *
from mpprof.model.arrays import Bool
from mpprof.model.trace import CopyKind, HostKind, Trace, WorkKind

CODE, SLUG, TITLE = "MP306", "cpu-fallback", "An op runs on the CPU"
ABOUT = "ops on the CPU"
ONCE = "once they run on the {device}"
SPECIFICITY = CONFIGURED
BOUND = "host"
OF_ACCELERATOR = True

SCALE = Scale(info_ratio=0.02, warning_ratio=0.05, error_ratio=0.20)
"""XProf's limits for input, which also waits on the host."""
LONG_NS = 100_000.0
"""Launching an op takes some 10 µs; ten times that is work."""
NEAR_NS = 500_000
"""The copies of an op begin and end this close to it: a wake-up and a launch lie between."""
_PLUMBING = (
    r"Iterator|_Send|_Recv|"
    r"^(NoOp|Identity|Const|StatefulPartitionedCall|PartitionedCall|If|While|Case|Call|RemoteCall)$|"
    r"^aten::(to|_to_copy|copy_|_copy_from|item|_local_scalar_dense|cpu|cuda|pin_memory)$"
)
"""Ops that compute nothing: they call others, or move a value."""
_DENSE = r"^StatefulPartitionedCall/TensorScatterUpdate(_\d+)?$"
_CHECK = "the loss scale's check for finite gradients makes those of embeddings dense on the CPU"
"""Seen on an H200: Keras 3.15 fills a tensor with True and scatters the sparse gradient's booleans into it,
for which TensorFlow 2.20 has no kernel on the GPU."""
_IN_CALLS = 0.5
"""An op that is in the driver's calls for half of its time launches, copies or waits: it does not compute."""


def judge(signals: Signals) -> Outcome:
    account, trace = need(signals.gpu_account), need(signals.trace)
    if not (trace.host.kind == HostKind.OP).any():
        return Unable(f"the trace holds no ops of the host{signals.hint('record host events')}")
    slow, around = _ops_on_host(trace, account)
    if not slow:
        return Clear("no op ran for long on the host between a copy from the device and one to it")
    copies = signals.select(lambda cell: cell.category == "copy" and cell.op in around)
    held = sum(slow.values())
    claims = tuple(Claim(row) for row in copies) + _idle(signals, held)
    if signals.cost_ratio(claims) < SCALE.info_ratio:
        return Clear("ops on the CPU cost next to nothing")
    names = sorted(slow, key=lambda op: -slow[op])
    optimizer = known(signals.optimizer)
    scales = optimizer is not None and optimizer.inner is not None
    of_check = scales and all(re.search(_DENSE, name) for name in names)
    shown = (
        _CHECK if of_check else f"ops of {evidence.listed([_short(name) for name in names])} run on the CPU"
    )
    return Found(
        summary=f"{shown}, and their tensors are copied there and back: {{cost}} a step ({{share}})",
        said=f"{shown}, and their tensors travel there and back[: {{time}}]",
        cases=("finite check",) if of_check else ("",),
        evidence=(
            evidence.text("ops", evidence.listed(names)),
            evidence.ns("their time on the host", held, LONG_NS),
            evidence.ns("their copies", signals.time(copies)),
        ),
        scale=SCALE,
        claims=claims,
        layers=signals.layers_of(copies),
    )


def _short(op: str) -> str:
    """Return the op's layer, or its own last part where that is the step's function (an H200's
    `StatefulPartitionedCall/TensorScatterUpdate`)."""
    *around, own = op.split("/")
    return around[-1] if around and not around[-1].endswith("PartitionedCall") else own


def _idle(signals: Signals, held_ns: float) -> tuple[Claim, ...]:
    """Return the idle time that the ops account for: while the host computes it launches nothing. First that
    which the account itself puts down to ops on the host."""
    own = signals.select(lambda cell: cell.cause == HOST_OPS[1])
    others = (row for category in ("idle_launch", "idle_other", "idle_sync") for row in signals.of(category))
    claims = []
    for row in dict.fromkeys((*own, *others)):
        taken = min(held_ns, signals.cells[row].ns_per_step)
        held_ns -= taken
        if taken > 0:
            claims.append(Claim(row, signals.cells[row].ns_per_step - taken))
    return tuple(claims)


def _ops_on_host(trace: Trace, account: Account) -> tuple[Mapping[str, float], frozenset[str]]:
    """Return (op -> ns per step, ops of the copies): ops that hold an executor thread for long, between a
    copy from the device and one to it, in the whole steps of the window."""
    device = trace.device_row(account.main.device)
    host, kernels = trace.host, trace.kernels
    rows = np.flatnonzero((host.duration_ns >= LONG_NS) & (host.kind == HostKind.OP) & (host.op >= 0))
    # Most traces have none, or copy nothing: then the steps need not be told apart once more.
    moved = np.flatnonzero((kernels.kind == WorkKind.MEMCPY) & (kernels.device == device))
    if not len(rows) or not len(moved):
        return {}, frozenset()
    steps = boundaries.periods(trace, device)
    if not len(steps):
        return {}, frozenset()
    rows = rows[(host.start_ns[rows] >= steps.start_ns[0]) & (host.start_ns[rows] < steps.end_ns[-1])]
    down = moved[kernels.copy[moved] == CopyKind.DEVICE_TO_HOST]
    up = moved[kernels.copy[moved] == CopyKind.HOST_TO_DEVICE]
    computed = {
        trace.ops[at].name for at in np.unique(kernels.op[_computing(trace, device)]).tolist() if at >= 0
    }
    total: dict[str, float] = defaultdict(float)
    around: set[str] = set()
    for row in rows.tolist():
        op, start = trace.ops[int(host.op[row])], int(host.start_ns[row])
        end = start + int(host.duration_ns[row])
        before = down[np.abs(kernels.start_ns[down] + kernels.duration_ns[down] - start) <= NEAR_NS]
        after = up[np.abs(kernels.start_ns[up] - end) <= NEAR_NS]
        if re.search(_PLUMBING, op.type or op.name.rsplit("/", 1)[-1]) or not len(before) or not len(after):
            continue
        if op.name in computed or _in_calls(trace, row):  # the host took long to launch it, or to copy
            continue
        total[op.name] += (end - start) / len(steps)
        copies = np.concatenate((before, after))
        around |= {trace.ops[at].name for at in kernels.op[copies].tolist() if at >= 0}
    return total, frozenset(around)


def _in_calls(trace: Trace, row: int) -> bool:
    """Return whether the op in this row of the host's events spends half of its time in the driver's
    calls."""
    host, end = trace.host, int(trace.host.start_ns[row] + trace.host.duration_ns[row])
    of_thread = int(np.searchsorted(host.thread, host.thread[row], side="right"))
    last = row + int(np.searchsorted(host.start_ns[row:of_thread], end))
    inside = np.arange(row + 1, last)
    calls = inside[np.isin(host.kind[inside], (HostKind.LAUNCH, HostKind.COPY, HostKind.SYNC))]
    return int(host.duration_ns[calls].sum()) >= _IN_CALLS * int(host.duration_ns[row])


def _computing(trace: Trace, device: int) -> Bool:
    """Return which rows of the kernel table are work of this device other than copies."""
    kernels = trace.kernels
    return np.asarray((kernels.device == device) & (kernels.kind == WorkKind.KERNEL))
