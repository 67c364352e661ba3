"""What a step would take if causes were remedied: one by one, in sets, and in the order that pays first.

Remedies free disjoint parts of the account, so that their gains add up, down to two floors. Below what the
host needs per step nothing shows; a remedy on the host's side lowers that floor as well. And the device's own
work stays, but for what remedies free of it: where profiled steps waited longer than others do, the wait is
longer than what a step has besides its work. All of it is what remedies free at best: none is promised to do
its work completely.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from mpprof.model.finding import Floor, WhatIf, WhatIfStep
from mpprof.model.frozen import frozen

MOST_IN_SUBSETS = 6
"""Every subset of so many remedies is computed: 64 steps."""


@frozen
class Remedy:
    """`gain_ns`: what it frees of the step; `work_ns`: its part that is device work. `host`: by relieving
    the host, which lowers the floor too. `lost`: what a healthy run of this kind has not; `ceiling`:
    what every one has. `mention`: what leads no answer, however much it gains. `dismissed`: one that the user
    does not want to apply."""

    code: str
    gain_ns: float
    host: bool = False
    work_ns: float = 0.0
    lost: bool = True
    ceiling: bool = False
    mention: bool = False
    dismissed: bool = False


def step_after(
    step_ns: float, host_ns: float | None, remedies: Collection[Remedy], work_ns: float = 0.0
) -> float:
    """Return the step with these remedies applied. `host_ns` None: what the host needs is not known, so there
    is no floor. `work_ns`: the device's own work in the step."""
    free = step_ns - sum(remedy.gain_ns for remedy in remedies)
    work = min(step_ns, work_ns) - sum(remedy.work_ns for remedy in remedies)
    return max(0.0, free, work, _floor(host_ns, remedies))


def plan(step_ns: float, host_ns: float | None, remedies: Sequence[Remedy], work_ns: float = 0.0) -> WhatIf:
    """Return the remedies in the order that pays first, with the step after each; the best step, and its
    floor.

    Each time the one that shortens the step most is taken; where none does any more, because the host limits,
    the one that lowers the host's floor most, and then the largest of those that stay hidden. No
    ceiling comes before what was lost, and nothing that leads no answer before what may. What was dismissed
    comes after all others: their gains are those without it.
    """
    left = sorted(remedies, key=lambda remedy: (-remedy.gain_ns, remedy.code))
    done: list[Remedy] = []
    steps: list[WhatIfStep] = []
    now = step_ns
    while left:
        chosen = min(
            left,
            key=lambda remedy: (
                remedy.dismissed,
                remedy.ceiling and any(other.lost and not other.dismissed for other in left),
                remedy.mention,
                step_after(step_ns, host_ns, [*done, remedy], work_ns),
                not remedy.host,
            ),
        )
        left.remove(chosen)
        done.append(chosen)
        after = min(now, step_after(step_ns, host_ns, done, work_ns))
        steps.append(WhatIfStep(chosen.code, after, now - after, max(0.0, chosen.gain_ns - (now - after))))
        now = after
    floor = _floor(host_ns, done)
    limited = host_ns is not None and floor >= now * (1 - 1e-9) and bool(now)
    subsets_ns = _subsets(step_ns, host_ns, done[:MOST_IN_SUBSETS], work_ns)
    return WhatIf(tuple(steps), now, Floor("host" if limited else "device", host_ns), subsets_ns)


def _subsets(
    step_ns: float, host_ns: float | None, remedies: Sequence[Remedy], work_ns: float
) -> tuple[float, ...]:
    """Return the step with every subset of the remedies, by the bits of its index."""
    return tuple(
        min(
            step_ns,
            step_after(
                step_ns, host_ns, [each for k, each in enumerate(remedies) if chosen >> k & 1], work_ns
            ),
        )
        for chosen in range(1 << len(remedies))
    )


def _floor(host_ns: float | None, remedies: Collection[Remedy]) -> float:
    if host_ns is None:
        return 0.0
    return max(0.0, host_ns - sum(remedy.gain_ns for remedy in remedies if remedy.host))
