"""Words that several sentences share: what a class of time is called, and what keeps a speedup low."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from mpprof.model.account import Account, AttainableRange, Class, Launches, Limit, LimitKind, eligible_words
from mpprof.model.kernels import PAIRS, Precision
from mpprof.model.quantities import format_count, format_ns, format_ratio, format_speedup

CLASS_WORDS: dict[Class, str] = {
    "matmul": "matrix work", "norm": "normalisation", "elementwise": "elementwise work",
    "reduce": "reductions",
    "gather_scatter": "gathers and scatters", "cast": "casts", "layout": "transposes and concatenations",
    "optimizer": "the optimizer",
    "loss_scale": "loss scaling", "other": "other work", "unknown": "unidentified work",
    "comm": "communication", "copy": "copies", "idle_input": "waiting for input",
    "idle_launch": "waiting for launches", "idle_sync": "waits of the host", "idle_compile": "compiling",
    "idle_between_steps": "the loop between steps", "idle_stall": "stalls", "idle_other": "other idling",
    "profiling": "the profiler",
}  # fmt: skip
ON_HOST: dict[Class, str] = {
    "idle_launch": "the time in which no op runs",
    "idle_sync": "waits of the executor",
}
"""On a CPU nothing is launched."""
LOW_SPEEDUP = 2.0
"""An attainable speedup below it wants an explanation: 16 bits are known for more."""
WORTH_RECORDING = 1.05
"""Below it nothing is gained by recording the run in 16 bits."""
LEAST_RATIO, ENOUGH_RATIO, MOST_LIMITS = 0.15, 0.5, 2
"""Parts of a seventh of the attainable step or more are named, until they are half of it together."""
LEAST_PRECISION_RATIO = 0.05
"""Types of less than a twentieth of the time on matrix units are left to the table."""
_WHY: dict[LimitKind, str] = {
    "float32": "which stays in float32",
    "memory": "which is bound by memory and at most twice as fast in 16 bits",
    "short": "of kernels under 5 µs, which are bound by their launch",
    "wait": "which precision does not shorten",
    "same": "which precision does not change",
}


def as_profiled(ratio: float, *, per_example: bool = False) -> str:
    """Return what the profiled steps show, where the timings do not show which run
    is faster."""
    each = " per example" if per_example else ""
    return f"the profiled steps were {format_speedup(ratio)} as fast{each}"


def class_words(category: Class, account: Account) -> str:
    """Return the name of a class of this account."""
    on_host = ON_HOST.get(category) if account.trace_basis == "host" else None
    return on_host or _with_pooling(category, account) or CLASS_WORDS[category]


def _with_pooling(category: Class, account: Account) -> str:
    """Return the name of elementwise work of which a tenth or more is pooling: it names both."""
    part = next((part for part in account.main.slices if part.category == category), None)
    if part is None or part.pooling_ns_per_step <= 0 or part.pooling_ns_per_step < 0.1 * part.ns_per_step:
        return ""
    pools = part.pooling_ns_per_step / part.ns_per_step
    return "pooling" if pools >= 0.995 else f"elementwise work ({format_ratio(pools)} of it pooling)"


def precisions(by_precision: Mapping[Precision, float]) -> str:
    """Return the types that have a twentieth of this time or more, the most of it first: "tf32 and bf16"; ""
    of none."""
    whole = sum(by_precision.values())
    ordered = sorted(by_precision.items(), key=lambda item: -item[1])
    named = [
        PAIRS if name == "mixed" else name
        for name, ns in ordered
        if ns > 0 and ns >= LEAST_PRECISION_RATIO * whole
    ]
    return listed(named) if named else ""


def listed(parts: Sequence[str]) -> str:
    """Return the parts as a list in words: "a, b and c"; "nothing stands out" of none."""
    if len(parts) < 2:
        return "".join(parts) or "nothing stands out"
    return f"{', '.join(parts[:-1])} and {parts[-1]}"


def sentence(clause: str) -> str:
    """Return the clause with a full stop, and with a capital where it does not begin with a name."""
    first = clause.partition(" ")[0].rstrip(",;:")
    capital = first.isalpha() and first.islower()
    return f"{clause[0].upper() if capital else clause[0]}{clause[1:]}."


def limiting(limits: Sequence[Limit], step: str = "the float32 step") -> str:
    """Return what keeps the attainable speedup low, as a clause: "61.0 % of the float32 step is the
    optimizer, which stays in float32"; empty where nothing is known of it."""
    whole = sum(limit.best_ns for limit in limits)
    named: list[Limit] = []
    for limit in limits:
        so_far = sum(other.best_ns for other in named)
        if len(named) == MOST_LIMITS or so_far >= ENOUGH_RATIO * whole or limit.best_ns < LEAST_RATIO * whole:
            break
        named.append(limit)
    said = [_limit(limit) for limit in named]
    if not said:
        return ""
    if named[0].kind == "host":
        return said[0]
    return f"{said[0].replace(' is ', f' of {step} is ', 1)}{''.join(f', and {more}' for more in said[1:])}"


def more_launches(found: Launches | None) -> str:
    """Return what a run launches beyond its baseline: "267 launches a step instead of 185 (54 more for loss
    scaling, 27 for casts)"; empty where that is not more."""
    if found is None or found.mixed - found.baseline < 1:
        return ""
    more = [part for part in found.by_class if part.mixed - part.baseline >= 1][:MOST_LIMITS]
    named = [
        f"{format_count(round(part.mixed - part.baseline))} {'' if at else 'more '}for "
        f"{CLASS_WORDS[part.category]}"
        for at, part in enumerate(more)
    ]
    now, before = format_count(round(found.mixed)), format_count(round(found.baseline))
    return f"{now} launches a step instead of {before} ({', '.join(named)})"


def _limit(limit: Limit) -> str:
    if limit.kind == "host":
        return f"the host needs {format_ns(limit.best_ns)} for each step"
    part = f"{format_ratio(limit.ratio)} is {CLASS_WORDS[limit.category]}"
    if limit.kind == "tf32":
        times = format_speedup(limit.ns_per_step / limit.best_ns)
        return f"{part} that runs on Tensor Cores in TF32 already, at most {times} as fast in 16 bits"
    if limit.kind == "compute":
        return f"{part}, {format_speedup(limit.ns_per_step / limit.best_ns)} as fast at best"
    return f"{part}, {_WHY[limit.kind]}"


def attainable_range(found: AttainableRange, *, one_step: bool, units: str) -> list[str]:
    """Return what 16 bits could make of a float32 run, a clause for each sentence."""
    share = eligible_words(found.eligible_ratio, found.tf32_ratio, units=units)
    low, high = format_speedup(found.low), format_speedup(found.high)
    span = low if low == high else f"{low.removesuffix('x')} to {high}"
    rests = "estimated from one profiled step" if one_step else "estimated: nothing was recorded in 16 bits"
    said = [share, f"{span} is attainable ({rests})"]
    why = limiting(found.limits, "the step") if found.high < LOW_SPEEDUP else ""
    return [*said, f"more is not attainable, because {why}"] if why else said
