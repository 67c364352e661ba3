"""How numbers and names are put into words for people.

The formats of single quantities are those of `model.quantities`, handed on under short names and taught
to read our JSON (where "NaN" and "Infinity" are strings); here are also columns, bars, loss scales and
the care for names that come from foreign files. `None` is "not known" and never 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from mpprof.model import quantities
from mpprof.model.quantities import NOT_KNOWN, TIME_UNITS

if TYPE_CHECKING:
    from mpprof.model.report import Report
    from mpprof.model.run import ProfilePlan

_NON_FINITE = ("NaN", "Infinity", "-Infinity")
_RATES = {"flops_per_s": "FLOP/s", "flops": "FLOP", "bytes_per_s": "B/s"}
_PREFIXES = ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_ASCII = str.maketrans(
    {"µ": "u", "█": "#", "▏": " ", "▎": " ", "▍": " ", "▌": "#", "▋": "#", "▊": "#", "▉": "#", "…": "~",
     "→": "->", "×": "x", "·": "-", "–": "-", "−": "-", "≥": ">", "≤": "<", "ä": "a"}
)  # fmt: skip

CLASS_TEXT = {
    "matmul": "GEMM, convolution, attention",
    "norm": "normalisation layers",
    "elementwise": "activations, additions",
    "reduce": "sums and means",
    "gather_scatter": "embeddings, indexing, routing",
    "cast": "changes of number format",
    "layout": "transposes, concatenations, moves",
    "optimizer": "the weight update",
    "loss_scale": "loss-scale bookkeeping",
    "other": "known work, no other class",
    "unknown": "work that nothing identifies",
    "comm": "exposed communication",
    "copy": "exposed copies",
    "idle_input": "waiting for input",
    "idle_launch": "host is launching",
    "idle_sync": "host waits for the device",
    "idle_compile": "host traces or compiles",
    "idle_between_steps": "between two steps",
    "idle_stall": "rare long steps",
    "idle_other": "other waits, or none recorded",
    "profiling": "unprofiled - profiled function",
}
"""One short phrase for each class of the account."""
SHORTER_UNPROFILED = "added by profiling"
"""Of a negative `idle_stall`: of steps timed in groups it holds what profiling adds."""
_ON_HOST = {"idle_launch": "no op runs", "idle_sync": "waits of the executor"}
_CAUSES_ON_HOST = {"between launches": "between ops"}


def class_text(category: str, *, on_host: bool = False, ns: float = 0.0) -> str:
    """Return a short phrase for a class of the account, of which `ns` may be negative; `on_host` selects the
    phrase for a CPU's executor, which launches nothing."""
    if category == "idle_stall" and ns < 0:
        return SHORTER_UNPROFILED
    return (_ON_HOST.get(category) if on_host else None) or CLASS_TEXT.get(category, "")


def cause_of_idling(cause: str, *, on_host: bool) -> str:
    """Return what is known about idle time, in the words for a CPU's executor where nothing is launched."""
    return _CAUSES_ON_HOST.get(cause, cause) if on_host else cause


def where(device: str, basis: str) -> str:
    """Return the device of a breakdown, and whether its times are those of the host's threads."""
    return plain(device) + (", no accelerator: ops on the host's threads" if basis == "host" else "")


def number(value: Any) -> float | None:
    """Return the number behind a JSON value: "NaN" and "Infinity" become floats again, None stays None."""
    return None if value is None else float(value)


def duration(ns: Any) -> str:
    """Return nanoseconds as text: "12.3 ms"."""
    return quantities.format_ns(number(ns))


def size(value: Any) -> str:
    """Return bytes in binary units: "1.42 GiB"."""
    return quantities.format_bytes(number(value))


def percent(ratio: Any) -> str:
    """Return a share in percent: "41.0 %"; "0 %" and "100 %" only where it is exactly that."""
    return quantities.format_ratio(number(ratio))


def speedup(ratio: Any) -> str:
    """Return a quotient of two step times as text: "1.07x"."""
    return quantities.format_speedup(number(ratio))


def speedups(low: Any, high: Any) -> str:
    """Return a range of speedups: "1.07x to 1.31x"; "1.14x" where both ends read the same."""
    ends = speedup(low), speedup(high)
    return ends[0] if ends[0] == ends[1] else f"{ends[0]} to {ends[1]}"


def saved(value: Any) -> str:
    """Return the memory saved against the baseline: "1.42 GiB less than the baseline", "2.24 GiB more
    ..."."""
    number_ = number(value)
    if number_ is None:
        return NOT_KNOWN
    if abs(number_) < 2**20:
        return "as much as the baseline"
    return f"{size(abs(number_))} {'less' if number_ > 0 else 'more'} than the baseline"


def count(value: Any) -> str:
    """Return a count with its thousands separated: "1,204"."""
    return quantities.format_count(number(value))


def scale(value: Any) -> str:
    """Return a loss scale, which is usually a power of two: "32,768 (2^15)", "2^-4"."""
    exact = number(value)
    if exact is None or not math.isfinite(exact) or exact <= 0:
        return count(exact)
    mantissa, exponent = math.frexp(exact)
    if mantissa != 0.5:
        return count(exact)
    power = f"2^{exponent - 1}"
    return f"{exact:,.0f} ({power})" if 1 <= exact < 1e6 else power


def quantity(value: Any, unit: str) -> str:
    """Return a value of a finding's evidence in the words of its unit."""
    if isinstance(value, str) and value in _NON_FINITE:
        value = float(value)
    if unit in _RATES and isinstance(value, (int, float)) and math.isfinite(value):
        size, prefix = next(((size, p) for size, p in _PREFIXES if abs(value) >= size), (1.0, ""))
        return f"{quantities.significant(value / size)} {prefix}{_RATES[unit]}"
    return plain(quantities.format_quantity(value, unit))


def in_unit(value: Any, unit: str) -> str:
    """Return the value of a table's column in the words of its unit."""
    if unit == "text":
        return plain(str(value))
    if unit in _RATES:
        return quantity(value, unit)
    return {"ns": duration, "ratio": percent, "bytes": size, "count": count, "speedup": speedup}[unit](value)


def time_unit(ns: float) -> str:
    """Return the unit in which `ns` has one to three digits before the point: "s", "ms", "µs" or "ns"."""
    return next((unit for unit, one in TIME_UNITS.items() if abs(ns) >= one * 0.9995), "ns")


def column(largest_ns: float) -> Callable[[float], str]:
    """Return a format for a column of times of which `largest_ns` is the largest: one unit and the same
    number of decimals for all, so that the column lines up and its sum can be checked by eye."""
    unit = time_unit(largest_ns)
    decimals = 3 if abs(largest_ns) < 10 * TIME_UNITS[unit] else 2

    def shown(ns: float) -> str:
        text = f"{ns / TIME_UNITS[unit]:,.{decimals}f}"
        return f"{text.removeprefix('-') if float(text.replace(',', '')) == 0 else text} {unit}"

    return shown


def plain(text: str) -> str:
    """Return a name from a foreign file made safe for a terminal: control characters are written out as
    escapes, so that no kernel's name moves the cursor or recolours the screen."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def ascii_only(text: str) -> str:
    """Return the same text for a terminal that shows only ASCII."""
    return text.translate(_ASCII).encode("ascii", "replace").decode()


def bar(ratio: float, width: int) -> str:
    """Return a share of a whole as a bar of at most `width` characters, to an eighth of one."""
    eighths = round(max(0.0, min(1.0, ratio)) * width * 8)
    return "█" * (eighths // 8) + " ▏▎▍▌▋▊▉"[eighths % 8].strip()


def shorten(text: str, width: int) -> str:
    """Return `text` in at most `width` characters, cut in the middle: both ends of a kernel's name carry
    information."""
    if len(text) <= width:
        return text
    if width < 5:
        return text[:width]
    head = (width - 1) * 3 // 5
    return f"{text[:head]}…{text[len(text) - (width - 1 - head) :]}"


def allocated_by(name: str) -> str:
    """Return the name of an op that allocated memory; for memory that no op allocated, a description
    (rendezvous_mgr.cc of tensorflow/core/common_runtime)."""
    copies = "a copy between devices (SameWorkerRecvDone)"
    return copies if name == "SameWorkerRecvDone" else plain(name)


def op(name: str, width: int) -> str:
    """Return an op's name in at most `width` characters: scopes are left out from the front, because the last
    ones name the layer and the op ("…/conv2d_2/Conv2D/Conv2DBackpropFilter")."""
    short, scopes = name, name.split("/")
    while len(short) > width and len(scopes) > 2:
        scopes = scopes[1:]
        short = "…/" + "/".join(scopes)
    return shorten(short, width)


def shorten_path(text: str, width: int) -> str:
    """Return a class and the path of a layer in at most `width` characters; the layer's own name, at the end
    of its path, is kept: "matmul …/attention/query"."""
    head, space, path = text.rpartition(" ")
    while len(f"{head}{space}{path}") > width and "/" in path.removeprefix("…/"):
        path = f"…/{path.removeprefix('…/').partition('/')[2]}"
    return shorten(f"{head}{space}{path}", width)


def plural(number: int, noun: str) -> str:
    """Return the number with its noun: "1 step", "2 steps"."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def progress(last_step: int, plan: ProfilePlan | None) -> str:
    """Return how far a training has come that goes on, and when its profile window opens: "step 7, the
    profile opens at step 13". `plan`: of a window that has not opened."""
    reached = f"step {count(last_step)}" if last_step else "no step has ended yet"
    opens = plan.opens(last_step) if plan else ""
    return f"{reached}, the profile opens {opens}" if opens else reached


def compiler(backend: str | None) -> str:
    """Return what Keras' jit_compile asks for on this backend."""
    return "torch.compile" if backend == "torch" else "XLA"


def compiled(backend: str | None, jit: Any) -> str | None:
    """Return "XLA on", "torch.compile off" or "XLA auto"; None where `jit` is not known."""
    if jit is None:
        return None
    return f"{compiler(backend)} {'on' if jit is True else 'off' if jit is False else jit}"


_BY = {"inputs": " by the inputs of its matrix ops", "kernels": " by its kernels"}


def computes(document: Report) -> str | None:
    """Return what the run computes in: "float32 by its kernels", "precision not known"; None where the run's
    policy says it. Kernels of other types than their ops' inputs (weights of 4 or 8 bits) are named too,
    where most of the time is theirs."""
    from mpprof.model.kernels import COMPUTE_DTYPES, NARROW  # and NumPy, which `--version` does without

    run, share = document.run, document.tensor_core
    found = run.computes_in
    if found is None or (found.by == "policy" and run.policy):
        return found.in_float8 if found else None
    said = f"{found.words}{_BY.get(found.by, '')}"
    if found.by != "inputs" or not share or not (times := share.by_precision):
        return said
    most, ns = max(times.items(), key=lambda item: item[1])
    own = (COMPUTE_DTYPES.get(found.dtype or ""), "tf32" if found.kind == "float32" else None)
    if most in own or most not in NARROW or ns < 0.5 * share.matmul_ns_per_step:
        return said
    return f"{said}, most kernels in {type_name(most)}"


def type_name(precision: str) -> str:
    """Return a kernel's type in words: "bf16", "pairs of narrow types"."""
    from mpprof.model.kernels import PAIRS

    return PAIRS if precision == "mixed" else precision


# --- short texts of pictures ---

WHOLE_STEP, THIS_RUN, PROFILED, MEASURED = (
    "step",
    "this run, measured",
    "this run, a profiled step",
    "measured",
)
COMPUTED, ESTIMATED, IN_16_BITS = "computed", "estimated", "in 16 bits"
PRECISION_ALONE, AFTER_CHANGE, AFTER_CHANGES = "precision alone", "after the change", "after the changes"
IN_FLOAT32, ALONE_MEANS = "in float32", "precision alone: the float32 step with only its type changed"
NO_MORE, LIMITED_BY, ALL_OF_IT = "Why no more: ", "Why no shorter:", "all of it"
HOST_LIMITS, HOST_LIMITED = "as long as the host needs", "computed, host limits"
WAITS_STAY = "its waits as in float32"
APPLIED_UPDATE, SKIPPED, PER_STEP = "an applied update", "skipped updates", "per step"
SAME_RATIO = 0.05
"""What differs by less is called the same."""


def about(text: str) -> str:
    """Return an estimate in words: "about 1.74x"."""
    return f"about {text}"


def joined(parts: Iterable[str | None]) -> str:
    """Return what is known of the parts in one line."""
    return " · ".join([part for part in parts if part])


def on_units(place: str) -> str:
    """Return matrix work by where it ran: "matrix work, Tensor Cores"."""
    return f"matrix work, {place}" if place else "matrix work"


def became(before_ns: float, now_ns: float, name: str = "", *, as_times: bool = False) -> str:
    """Return what became of a class of work: "matrix work 5.5x as fast", "waits +19.6 ms", "same", "new:
    +3.31 ms"."""
    head = f"{name} " if name else ""
    if before_ns <= 0:
        return f"{head}new: +{duration(now_ns)}"
    if abs(now_ns - before_ns) < SAME_RATIO * before_ns:
        return f"{head}same"
    if as_times and now_ns > 0:
        return f"{head}{before_ns / now_ns:.1f}x as fast"
    return f"{head}{'+' if now_ns > before_ns else '−'}{duration(abs(now_ns - before_ns))}"


def unexplained(ns: float) -> str:
    """Return what no cause explains: it stays."""
    return f"{duration(ns)} not explained, which no remedy recovers"


def after_changes(times: float, with_same: float, baseline: str, changes: int) -> str:
    """Return the speedup after so many changes; where the baseline gains by them, too, what is left of it
    then."""
    if speedup(times) == speedup(with_same):
        return about(speedup(times))
    many = "changes" if changes > 1 else "change"
    return f"{about(speedup(times))}; {about(speedup(with_same))} over {baseline} with the same {many}"


__all__ = [
    "CLASS_TEXT", "NOT_KNOWN", "ascii_only", "bar", "column", "compiled", "compiler", "computes", "count",
    "duration", "number", "op", "percent", "plain", "plural", "quantity", "saved", "scale", "shorten",
    "shorten_path", "size", "speedup", "speedups", "time_unit", "type_name",
]  # fmt: skip
