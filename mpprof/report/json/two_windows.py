"""Two whole windows side by side, where not both runs have steps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from mpprof.model.finding import Windows
from mpprof.report import words
from mpprof.report.json.values import from_to, rounded

if TYPE_CHECKING:
    from mpprof.model import document as doc


MOVED_RATIO = 0.05
"""A twentieth is a change; less is how windows are opened and closed."""
_WAITS = {
    "idle_input": "the input",
    "idle_launch": "the host, which launches the kernels",
    "idle_sync": "the host's waits for the device",
    "idle_compile": "tracing and compiling",
}


def windows_of(found: Windows) -> doc.WindowsOfTwo:
    """Return `windows` of a comparison's step."""
    return {
        "span_ns": _pair(found.span_ns),
        "busy_ns": _pair(found.busy_ns),
        "idle_ns": _pair(_idle_ns(found)),
        "kernel_ns": _pair(found.kernel_ns),
        "kernels": _pair(found.kernels),
        "parts": [
            {"by": p.by, "name": p.name, "from_ns": rounded(p.from_ns), "to_ns": rounded(p.to_ns)}
            for p in found.parts
        ],
        "matrix_kernels": [
            {"family": family, "from": _of(found, 0, family), "to": _of(found, 1, family)}  # type: ignore[typeddict-item]
            for family in sorted({*found.matrix_kernels[0], *found.matrix_kernels[1]})
        ],
        "same_work": found.same_work,
        "decides": found.decides,
        "waits_for": found.waits_for,
        "statements": [*_statements(found)],
    }


def _pair(values: tuple[float, float]) -> doc.FromTo:
    return from_to((rounded(values[0]), rounded(values[1])))


def _of(found: Windows, end: int, family: str) -> int:
    return found.matrix_kernels[end].get(family, 0)


def _idle_ns(found: Windows) -> tuple[float, float]:
    return found.span_ns[0] - found.busy_ns[0], found.span_ns[1] - found.busy_ns[1]


def _statements(found: Windows) -> list[str]:
    """Return what changed and what decides; how much work it was; and what does not follow from it."""
    span, kernels = (_moved(name, ns) for name, ns in (("span", found.span_ns), ("kernels", found.kernel_ns)))
    said = [f"{kernels}, and {span}: {_decides(found)}"]
    said.append(_work(found))
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


def _decides(found: Windows) -> str:
    idle = _idle_ns(found)
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


def _work(found: Windows) -> str:
    counts = [
        f"{family} {words.count(_of(found, 0, family))} and {words.count(_of(found, 1, family))}"
        for family in sorted({*found.matrix_kernels[0], *found.matrix_kernels[1]})
    ]
    listed = ", ".join(counts)
    if found.same_work is None:
        return "neither ran a matrix kernel: whether they did the same amount of work is not known"
    if found.same_work:
        return f"assumed to be the same amount of work: equally many matrix kernels of each kind ({listed})"
    return f"not the same amount of work, so their ratio is not a speedup: matrix kernels {listed}"
