"""The share of Tensor Cores, observed and attainable speedup, and bounds, in sentences."""

from __future__ import annotations

from collections.abc import Iterable

from mpprof.diagnosis.wording import CLASS_WORDS, WORTH_RECORDING, as_profiled
from mpprof.model.account import (
    TOO_WIDE,
    AttainableRange,
    Difference,
    Speedup,
    TensorCoreShare,
    covered,
    difference,
    eligible_words,
    tells,
)
from mpprof.model.finding import Compared, Rung
from mpprof.model.report import Report, ReportedRun
from mpprof.report import words
from mpprof.report.content.breakdown import MOSTLY_RATIO, SMALL_RATIO, slices_of


def matrix_units(document: Report) -> str:
    """Return the name of this device's matrix units: another vendor's never get NVIDIA's name."""
    share = document.tensor_core
    return "Matrix cores" if share is not None and share.unit == "matrix_core" else "Tensor Cores"


def tensor_core(document: Report) -> str:
    """Return the share of matrix time on matrix units with its precisions, always with the unknown share
    beside it."""
    share = document.tensor_core
    if share is None:
        return _not_judged("tensor_core", document)
    unknown = f"unknown: {words.percent(share.unknown_ratio)} of the device's work"
    if share.verified_ratio is not None:
        unknown += f"; verified by hardware counters: {words.percent(share.verified_ratio)} of matrix time"
    if share.ratio is None:
        return f"no share: {share.reason}; {unknown}"
    of = " in the whole window" if share.of_window == "window" else ""
    if document.window is not None and len(document.window.devices) > 1:
        of += f" of {words.plain(document.window.device)}"
    precisions = sorted(share.by_precision.items(), key=lambda item: -item[1])
    by = ", ".join(f"{words.type_name(name)} {words.duration(ns)}" for name, ns in precisions if ns)
    on_units, matrix_ns = sum(share.by_precision.values()), share.matmul_ns_per_step
    products_ns = on_units / share.ratio if share.ratio else matrix_ns
    what = f"{words.duration(matrix_ns)} matrix time"
    if products_ns < (1 - SMALL_RATIO) * matrix_ns:
        what = f"{words.duration(products_ns)} in matrix products"
    return (
        f"{words.percent(share.ratio)} of {what}{of}"
        f"{f' ({by})' if by else ''}{_not_in_16_bits(document.run, share)}; "
        f"{_off_the_units(document, share)}{unknown}"
    )


def _off_the_units(document: Report, share: TensorCoreShare) -> str:
    """Return the matrix work on ordinary arithmetic, which is a fallback in a 16-bit run and none in a
    float32 run, and how much of the matrix time multiplies nothing."""
    found = document.run.computes_in
    if found is None or found.kind not in ("float32", "float64"):
        return f"fallback {words.duration(share.fallback_ns_per_step)}; "
    parts = [part for each in slices_of(document) for part in each.by]
    helpers = sum(part.ns_per_step for part in parts if part.placement == "not_matmul")
    transforms = sum(part.transforms_ns_per_step for part in parts)
    what = "transforms of convolutions" if transforms >= MOSTLY_RATIO * helpers else "helpers of products"
    said = ""
    if share.fallback_ns_per_step:
        said += f"{words.duration(share.fallback_ns_per_step)} in {found.kind} on CUDA cores; "
    if helpers >= SMALL_RATIO * share.matmul_ns_per_step:
        said += f"{words.duration(helpers)} in {what}; "
    return said


def _not_in_16_bits(run: ReportedRun, share: TensorCoreShare) -> str:
    """Return what a 16-bit run multiplied as TF32, and a float8 run in more than 8 bits: on Tensor Cores, but
    not in the type that was asked for."""
    found, tf32 = run.computes_in, share.by_precision.get("tf32")
    narrow = found is not None and found.kind in ("16-bit", "partly 16-bit")
    if found is not None and found.in_float8 and share.by_precision.get("fp8"):
        wider = sum(ns for name, ns in share.by_precision.items() if name != "fp8")
        return f"; not in 8 bits {words.duration(wider)}" if wider else ""
    return f"; not in 16 bits {words.duration(tf32)}" if narrow and tf32 else ""


def _not_judged(field: str, document: Report) -> str:
    """Return the reason, unless it is that of the missing account, which stands right above."""
    why = document.absent.get(field, "no reason was recorded")
    if why == document.absent.get("time"):
        why = "no step can be told apart" if document.window is not None else "the step has no account"
    return f"not judged: {why}"


def speedup(document: Report) -> list[str]:
    """Return observed against expected in one or two sentences; an estimate is called one."""
    gain = document.speedup
    if gain is None:
        return [_not_judged("speedup", document)]
    if gain.baseline == "measured":
        return [*measured(gain, document.absent), *_launches(gain), *_baseline(gain), *_switch(gain)]
    lines = []
    if gain.estimated:
        span = words.speedups(gain.estimated.low, gain.estimated.high)
        said = f"estimated, not measured: {span} over what float32 would have taken"
        lines.append(said if tells(gain.estimated) else f"not known: {TOO_WIDE}")
        lines.append(f"assumed: {'; '.join(gain.estimated.assumptions)}")
    elif could := gain.attainable_range:
        lines.append(f"mixed precision is off; estimated, not measured: {_range(could, document)}")
        lines.append(f"assumed: {'; '.join(could.assumptions)}")
        if could.high >= WORTH_RECORDING:
            lines.append(document.absent.get("speedup.observed", "no measured baseline"))
    return lines or [f"not judged: {document.absent.get('speedup.observed', 'no measured baseline')}"]


def _range(could: AttainableRange, document: Report) -> str:
    """Return what 16 bits could make of a float32 run."""
    said = f"{words.speedups(could.low, could.high)} attainable in 16 bits" if tells(could) else TOO_WIDE
    if could.eligible_ratio is None:
        return said
    units = matrix_units(document)
    return f"{said}; {eligible_words(could.eligible_ratio, could.tf32_ratio, units=units)}"


def measured(gain: Speedup | Rung, absent: dict[str, str]) -> Iterable[str]:
    """Yield the observed speedup against the attainable one, for a report's `speedup` or a comparison's rung;
    `absent` gives the reason for each missing field."""
    if gain.observed is None:
        why = absent.get("speedup.observed", "a step time is missing")
        said = f"no observed speedup ({why}{profiled_steps(gain)})"
    else:
        each = " per example" if gain.per_example else ""
        said = f"observed {words.speedup(gain.observed)}{each}{_interval(gain, absent)}"
    could = None if isinstance(gain, Rung) else gain.attainable_range
    no_more = absent.get("speedup.expected", "no reason recorded")
    if gain.expected is None and could is not None:
        span = f"{words.speedup(could.low)} to {words.speedup(could.high)}" if tells(could) else "not known"
        said += f", attainable {span} ({no_more})"
    elif gain.expected is None:
        said += f", attainable not known ({no_more})"
    elif beaten(gain):
        most = gain.expected_with_host or gain.expected
        said += f", more than the {words.speedup(most)} that was estimated for precision alone"
    elif lowered_by_host(gain):
        said += (
            f", attainable {words.speedup(gain.expected_with_host)} with the host as it is "
            f"({words.speedup(gain.expected)} by the device alone)"
        )
    else:
        said += f", attainable {words.speedup(gain.expected_with_host or gain.expected)}"
    if gain.ceiling is not None and gain.ceiling > max(gain.observed or 0.0, gain.expected or 0.0):
        said += f", {words.speedup(gain.ceiling)} at the card's peak rates"
    yield said
    if said := gap(gain):
        yield said


def _launches(gain: Speedup) -> Iterable[str]:
    """Yield what the host launches in both runs, where launching limits both."""
    if (found := gain.launches) is None:
        return
    now, before = (words.count(round(each)) for each in (found.mixed, found.baseline))
    differ = [
        f"{CLASS_WORDS[part.category]} {words.count(round(part.mixed))} (was "
        f"{words.count(round(part.baseline))})"
        for part in found.by_class
    ]
    yield (
        f"the host limits both runs: it needs {words.duration(found.mixed_host_ns)} for {now} launches a "
        f"step, in the baseline {words.duration(found.baseline_host_ns)} for {before}"
        f"{': ' if differ else ''}{', '.join(differ)}"
    )


def _baseline(gain: Speedup) -> Iterable[str]:
    if gain.baseline_id:
        base = f", {words.duration(gain.baseline_step_ns)} a step" if gain.baseline_step_ns else ""
        base += " (scaled to this run's batch)" if base and gain.per_example else ""
        yield f"baseline: measured, run {words.plain(gain.baseline_id)}{base}"


def _switch(gain: Speedup) -> Iterable[str]:
    """Yield how to switch mixed precision on, where a float32 run was compared with another run."""
    if how := gain.how_to_switch:
        yield f"mixed precision is off in this run; to switch it on: {how[0].text}"


def beaten(gain: Compared) -> bool:
    """Return whether the run is faster than was estimated for precision alone: then it is no limit."""
    most = gain.expected_with_host or gain.expected
    if gain.observed is None or most is None or gain.observed <= most:
        return False
    return words.speedup(gain.observed) != words.speedup(most)


def lowered_by_host(gain: Compared) -> bool:
    """Return whether the attainable speedup is lower with the host as it is."""
    with_host, expected = gain.expected_with_host, gain.expected
    return with_host is not None and (expected is None or with_host < 0.99 * expected)


def gap(gain: Compared) -> str:
    """Return how far this run's step is from the attainable one, and how much of that no finding explains.
    Without an expectation, return the plain difference from the baseline; return an empty text where there is
    nothing to report."""
    plain, above, unexplained = gain.gap_ns, gain.above_attainable_ns, gain.unexplained_ns
    if gain.expected is None and plain is not None:
        word = "longer" if plain > 0 else "shorter"
        scaled = " for as many examples" if gain.per_example else ""
        return f"the step is {words.duration(abs(plain))} {word} than the baseline's{scaled}"
    if above is None or unexplained is None:
        return ""
    step = sum(part.mixed_ns for part in gain.slices)
    if abs(above) < SMALL_RATIO * step:
        return "the step is as long as the attainable one"
    if above < 0:
        return f"the step is {words.duration(-above)} shorter than was estimated as attainable"
    said = f"the step is {words.duration(above)} longer than the attainable one"
    if unexplained < SMALL_RATIO * step:
        return f"{said}, and the findings explain all of it"
    of = f" ({words.percent(unexplained / step)} of the step)"
    return f"{said}; no finding explains {words.duration(unexplained)} of that{of}"


def difference_of(gain: Compared) -> Difference | None:
    """Return what the timings tell of the two steps; an earlier version's report has only the interval."""
    return gain.difference or (None if gain.observed is None else difference(gain.interval))


def profiled_steps(gain: Compared) -> str:
    """Return what the profiled steps show, after a semicolon, where the timings do not decide; else an empty
    text."""
    found = gain.profiled
    undecided = gain.observed is None or difference_of(gain) == "not known"
    if not found or not undecided:
        return ""
    return f"; {as_profiled(found.ratio, per_example=bool(gain.per_example))}"


def interval_covers(gain: Compared) -> str:
    """Return what the interval of the observed speedup covers."""
    return covered(wide=bool(gain.interval_wide))


def span(gain: Compared, absent: dict[str, str]) -> str:
    """Return the interval of the observed speedup with what it covers, or why it has none."""
    if gain.interval is None:
        why = absent.get("speedup.interval", "not recorded")
        return f"{words.speedup(gain.observed)}, without an interval: {why}"
    return f"{interval_covers(gain)}: {words.speedups(*gain.interval)}"


def _interval(gain: Compared, absent: dict[str, str]) -> str:
    interval = gain.interval
    if interval is None:
        why = absent.get("speedup.interval")  # an earlier version's report has none
        return f" (without an interval: {why}{profiled_steps(gain)})" if why else ""
    what = interval_covers(gain)
    low, high = (words.speedup(edge) for edge in interval)
    if (tells := difference_of(gain)) in ("none", "not known"):
        none = "no measurable difference" if tells == "none" else "the timings do not show which is faster"
        return f" ({what}: {low} to {high}: {none}{profiled_steps(gain)})"
    if low == high:
        half = (interval[1] - interval[0]) / (interval[1] + interval[0])
        return f" ({what}: ±{words.percent(half)})"
    return f" ({what}: {low} to {high})"


def bounds(document: Report) -> list[str]:
    """Return what records alone prove, each statement with its own assumptions; the assumptions that all of
    them share come last, once."""
    found = document.bounds
    shared = [a for a in found[0].assumptions if all(a in b.assumptions for b in found)] if found else []
    lines = []
    for bound in found:
        own = [assumption for assumption in bound.assumptions if assumption not in shared]
        value = words.quantity(bound.value, bound.unit)
        given = f" (if {'; '.join(own)})" if own else ""
        lines.append(f"{bound.statement}: {value}{given}")
    return [*lines, f"all if: {'; '.join(shared)}"] if shared else lines
