"""Words that several sentences share: what a class of time is called, and how numbers and names are put."""

from __future__ import annotations

from mpprof.model.account import Class
from mpprof.model.quantities import TIME_UNITS, format_ns, format_speedup

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
WORTH_RECORDING = 1.05
"""Below it nothing is gained by recording the run in 16 bits."""


def as_profiled(ratio: float, *, per_example: bool = False) -> str:
    """Return what the profiled steps show, where the timings do not show which run
    is faster."""
    each = " per example" if per_example else ""
    return f"the profiled steps were {format_speedup(ratio)} as fast{each}"


LONGEST = 150
"""Characters of a sentence."""


def of_step(ns: float, step_ns: float, each: str = "of each {} step") -> str:
    """Return a part of a step in the step's own unit: "25.5 of each 48.0 ms step"."""
    whole = format_ns(step_ns)
    return f"{_in_unit(ns, step_ns)} {each.format(whole)}"


def change(before_ns: float, after_ns: float) -> str:
    """Return two times in one unit: "42.8 to 22.6 ms"."""
    larger = max(before_ns, after_ns)
    unit = format_ns(larger).rpartition(" ")[2]
    return f"{_in_unit(before_ns, larger)} to {_in_unit(after_ns, larger)} {unit}"


def _in_unit(ns: float, of_ns: float) -> str:
    """Return a time as a number in the unit that `of_ns` is written in, with as many decimals, or three
    figures where it is smaller."""
    unit = format_ns(of_ns).rpartition(" ")[2]
    value = ns / TIME_UNITS[unit]
    decimals = max(0, 2 - len(str(int(abs(of_ns) / TIME_UNITS[unit]))) + 1)
    if value and abs(value) < 10 ** (1 - decimals):  # one figure would be left
        return f"{value:.2g}"
    return f"{value:,.{decimals}f}"


def fit(text: str, most: int = LONGEST) -> str:
    """Return the text in at most this many characters: whole, else without its last clauses, else cut after a
    word."""
    for separator in ("; ", ": ", ", "):
        parts = text.split(separator)
        for kept in range(len(parts), 0, -1):
            said = separator.join(parts[:kept])
            if said.count("(") > said.count(")"):
                said = said.rpartition(" (")[0]
            if len(said) <= most and (kept > 1 or len(parts) == 1 or len(said) >= LEAST):
                return said
    return f"{text[: most - 2].rsplit(' ', 1)[0]} …"


LEAST = 24
"""A clause of fewer characters alone does not say what the whole said."""


def sentence(clause: str) -> str:
    """Return the clause with a full stop, and with a capital where it does not begin with a name."""
    if not clause:
        return ""
    first = clause.partition(" ")[0].rstrip(",;:")
    capital = first.isalpha() and first.islower()
    stop = "" if clause.endswith((".", "?", "!", "…")) else "."
    return f"{clause[0].upper() if capital else clause[0]}{clause[1:]}{stop}"


def names(listed: tuple[str, ...], most: int = 2) -> str:
    """Return layers as a list of code: "`a` and `b`", "`a` and 4 more layers"; "" of none."""
    if not listed:
        return ""
    if len(listed) <= most:
        return " and ".join(f"`{each}`" for each in listed)
    return f"`{listed[0]}` and {len(listed) - 1} more layers"
