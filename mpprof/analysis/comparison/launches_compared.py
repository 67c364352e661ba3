"""How many more kernels a mixed run launches than its baseline, where launching is what limits both.

The device's work explains nothing of such a pair: each step takes as long as the host needs to launch it.
"""

from __future__ import annotations

from collections import Counter

from mpprof.model.account import Account, Class, ClassLaunches, Launches

HOST_BOUND_RATIO = 0.99
"""Share of the step from which the host's need is all of it."""
WAITING_RATIO = 0.25
"""Share of the step that the device waits for launches where the host spends its time on launching."""
_LEAST = 0.5  # launches per step: a difference below that is none


def launches(baseline: Account, mixed: Account) -> Launches | None:
    """Compare the launches per step of two runs whose steps are both as long as the host needs to launch
    them; None of others, and where the trace does not show what the host needs."""
    if not (_bound_by_launching(baseline) and _bound_by_launching(mixed)):
        return None
    before, after = _by_class(baseline), _by_class(mixed)
    differ = [
        ClassLaunches(name, before[name], after[name])
        for name in dict.fromkeys((*before, *after))
        if abs(after[name] - before[name]) >= _LEAST
    ]
    return Launches(
        baseline=sum(before.values()),
        mixed=sum(after.values()),
        baseline_host_ns=baseline.host_ns or 0.0,
        mixed_host_ns=mixed.host_ns or 0.0,
        by_class=tuple(sorted(differ, key=lambda each: -abs(each.mixed - each.baseline))),
    )


def _bound_by_launching(account: Account) -> bool:
    waits = sum(part.ns_per_step for part in account.main.slices if part.category == "idle_launch")
    host_ns, step_ns = account.host_ns, account.step_ns
    return host_ns is not None and host_ns >= HOST_BOUND_RATIO * step_ns and waits >= WAITING_RATIO * step_ns


def _by_class(account: Account) -> Counter[Class]:
    """Return the kernels and copies per step by class; a `Counter` of floats."""
    found: Counter[Class] = Counter()
    for cell in account.main.cells:
        found[cell.category] += cell.calls_per_step  # type: ignore[assignment]
    return found
