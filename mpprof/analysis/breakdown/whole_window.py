"""The account of a whole profiler window, for a trace in which no step can be told apart."""

from __future__ import annotations

import numpy as np

from mpprof.analysis.breakdown.accounting import device_account
from mpprof.analysis.breakdown.roofline import weighed
from mpprof.analysis.layers.attribution import Ownership
from mpprof.analysis.steps.accounted_steps import Window
from mpprof.analysis.steps.boundaries import Periods
from mpprof.analysis.steps.clocks import clock_shift
from mpprof.model.account import Account
from mpprof.model.kernels import Placements
from mpprof.model.run import Run
from mpprof.model.trace import Trace, WorkKind


def account_of_window(
    trace: Trace, placements: Placements, ownership: Ownership, run: Run | None, why: str
) -> Account | None:
    """Return the account from the first to the last work on any device, with the reason `why` no step has
    one; None where no kernel ran, or all took no time.

    Every device is held against the same span, so that one that began late or ended early idles for it. What
    the host did before the first work and after the last is not in it.
    """
    table = trace.kernels
    if not (table.kind == WorkKind.KERNEL).any():
        return None
    end_ns = table.start_ns + table.duration_ns
    first, last = table.start_ns.min(keepdims=True), end_ns.max(keepdims=True)
    if last[0] <= first[0]:
        return None
    whole = Periods(first, last, np.full(1, -1, np.int64), "window")
    windows = []
    for device in np.unique(table.device).tolist():
        rows = np.flatnonzero(table.device == device)
        windows.append(Window(device, whole, 1, rows, clock_shift(trace, rows)))
    devices = [device_account(trace, placements, ownership, window) for window in windows]
    order = sorted(range(len(devices)), key=lambda row: -devices[row].busy_ns)
    main = devices[order[0]]
    found = Account(
        basis="window",
        trace_basis="host" if trace.basis == "host" else "device",
        step_ns=main.step_ns,
        wall_ns=None,
        window_ns=main.step_ns,
        device_ns=main.busy_ns,
        main=main,
        devices=tuple(devices[row] for row in order),
        steps=(),
        step_source="none",
        notes=windows[order[0]].notes(trace),
        absent={"step_ns": why},
        of="window",
        unit="window",
    )
    return weighed(found, ownership, run)
