"""Two whole windows side by side, where not both runs have steps: what they show, and as a table."""

from __future__ import annotations

from dataclasses import replace

from mpprof.model.finding import WindowsOfTwo
from mpprof.model.frozen import frozen
from mpprof.model.written import Pair
from mpprof.report import words

NOTABLE_RATIO = 0.005
"""Parts of both windows below this share are left out of the table."""

COLUMNS = ("whole windows, not steps", "before", "after", "times")


@frozen
class Row:
    """One row of the table, in words; a `part` splits the row above."""

    label: str
    before: str
    after: str
    times: str
    part: bool = False


def rows(found: WindowsOfTwo) -> list[Row]:
    """Return span, busy and idle time, and kernels, with their parts."""
    column = words.column(max(ends(found.span_ns)))

    def row(label: str, ns: tuple[float, float], *, part: bool = False) -> Row:
        return Row(label, column(ns[0]), column(ns[1]), _times(*ns), part)

    def parts(by: str, least_ns: float) -> list[Row]:
        chosen = [p for p in found.parts if p.by == by and max(p.from_ns, p.to_ns) >= least_ns]
        return [row(p.name, (p.from_ns, p.to_ns), part=True) for p in chosen]

    of_span = NOTABLE_RATIO * max(ends(found.span_ns))
    of_kernels = NOTABLE_RATIO * max(ends(found.kernel_ns))
    before, after = ends(found.kernels)
    placed = [p for p in found.parts if p.by == "placement"]
    matrix = sum(p.from_ns for p in placed), sum(p.to_ns for p in placed)
    return [
        row("span", ends(found.span_ns)),
        row("busy", ends(found.busy_ns)),
        *parts("exposed", of_span),
        row("idle", ends(found.idle_ns)),
        *parts("idle", of_span),
        row("kernel time", ends(found.kernel_ns)),
        *parts("family", of_kernels),
        *([row("matrix kernels by placement", matrix)] if any(matrix) else []),
        *parts("placement", 0.0),
        Row("kernels", words.count(round(before)), words.count(round(after)), _times(before, after)),
    ]


def _times(before: float, after: float) -> str:
    return words.speedup(after / before) if before > 0 else "-"


def ends(pair: Pair) -> tuple[float, float]:
    """Return both values of a pair."""
    return float(pair[0] or 0.0), float(pair[1] or 0.0)


# --- in sentences ------------------------------------------------------------------------------------------

MOVED_RATIO = 0.05
"""A twentieth is a change; less is how windows are opened and closed."""
_WAITS = {
    "idle_input": "the input",
    "idle_launch": "the host, which launches the kernels",
    "idle_sync": "the host's waits for the device",
    "idle_compile": "tracing and compiling",
}


def told(found: WindowsOfTwo) -> WindowsOfTwo:
    """Return `windows` of a comparison's step, with what they show in words."""
    return replace(found, statements=tuple(_statements(found)))


def _statements(found: WindowsOfTwo) -> list[str]:
    """Return what changed and what decides; how much work it was; and what does not follow from it."""
    span, kernels = (_moved(name, ns) for name, ns in (("span", found.span_ns), ("kernels", found.kernel_ns)))
    said = [f"{kernels}, and {span}: {_decides(found)}"]
    said.append(_work_of(found))
    said.append(
        "these are windows, not steps: they hold all that the profiler saw, and give no speedup per step"
    )
    return said


def _moved(name: str, ns: tuple[float, float]) -> str:
    """Return how a time changed, such as "the kernels take 291 ms in place of 379 ms (0.77x)" or "the span
    hardly moved"."""
    before, after = words.duration(ns[0]), words.duration(ns[1])
    times = f" ({words.speedup(ns[1] / ns[0])})" if ns[0] > 0 else ""
    if name == "kernels":
        return f"the kernels take {after} in place of {before}{times}"
    still = abs(ns[1] - ns[0]) < MOVED_RATIO * ns[0]
    return f"the window {'hardly moved, ' if still else 'went '}from {before} to {after}{times}"


def _decides(found: WindowsOfTwo) -> str:
    idle = found.idle_ns
    shares = [words.percent(ns / span) for ns, span in zip(idle, found.span_ns, strict=True)]
    both = f"{shares[0]} and {shares[1]}"
    if found.decides == "device":
        return f"the device idles {both} of them, so its work determines their length"
    if found.decides == "both":
        return f"the device idles {both} of them: one window is mostly waiting, the other mostly work"
    what = _WAITS.get(found.waits_for or "")
    if what is None:
        return (
            f"the device idles {both} of them, so their length depends on its waits, and the trace "
            "does not show what most of them are for"
        )
    return f"the device idles {both} of them, so their length depends on {what}, not on the kernels"


def _work_of(found: WindowsOfTwo) -> str:
    counts = [
        f"{each.family} {words.count(each.start)} and {words.count(each.end)}"
        for each in found.matrix_kernels
    ]
    listed = ", ".join(counts)
    if found.same_work is None:
        return "neither ran a matrix kernel: whether they did the same amount of work is not known"
    if found.same_work:
        return f"assumed to be the same amount of work: equally many matrix kernels of each kind ({listed})"
    return f"not the same amount of work, so their ratio is not a speedup: matrix kernels {listed}"
