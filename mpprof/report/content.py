"""What a report says, in sentences and rows, before anybody lays it out.

Text and markdown differ in their looks only: both are made from these. Everything takes the document
(`report.json.document`), so a stored JSON report renders the same as a fresh one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpprof.diagnosis.wording import WORTH_RECORDING
from mpprof.model.account import FEW_WORKS, Class, eligible_words
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_after
from mpprof.model.shell import quoted
from mpprof.report import window, words

if TYPE_CHECKING:
    from mpprof.model import document as doc

SMALL_RATIO = 0.005
"""Slices below this share of the step are folded into one row, where there are more than two of them."""
SPLIT_RATIO = 0.05
"""An idle class is split by its causes from a twentieth of the step on."""
ADDED_RATIO = 0.01
"""What profiling added is told from a hundredth of the step on."""
PAYING_RATIO = 0.01
"""A remedy is worth a place in the plan from a hundredth of the step."""
SURFACING_RATIO = 0.05
"""From a twentieth of the step after all remedies on, what surfaces in it stands beside its bar."""
MOST_BETWEEN = 4
"""So many things that lie between two steps are named."""
MOSTLY_RATIO = 0.5
"""What is more than half of one kind goes by its name."""
HIDDEN_RATIO = 0.001
"""A gain below a thousandth of the step is none: something else limits the step."""
NAMED_RATIO = 0.1
"""A tenth of a class is named beside it."""
ROOM_FOR_NAMES = 30
"""Columns for the names of what is folded into one row."""
MEANT_TO_BE_HIDDEN = ("comm", "copy")
"""Good where they run beside compute: how long is in their rows."""
NEVER_FOLDED = ("unknown", "profiling")
MOST_PARTS_OF_MEMORY = 4
ONE_LAYER_RATIO = 0.99
"""Where all but a hundredth is in one layer, naming the rest divides nothing."""
_BETWEEN: Class = "idle_between_steps"
_SMALLER = r"\d+ smaller ones"
BEFORE = "held before the window"
UNOWNED = ("unknown", BEFORE)
"""Parts of memory of which no event tells the op, layer or type."""


@frozen
class TimeRow:
    """One row of the breakdown of a step. `part` rows split the row above and add nothing to the sum."""

    label: str
    ns: float
    ratio: float
    hidden_ns: float = 0.0
    text: str = ""
    part: bool = False


def subject(document: doc.Report) -> str:
    """What was measured: "mixed_float16, tensorflow, Tesla V100, XLA off, batch 32"; only what is known."""
    run = document["run"]
    precision = [run["policy"], words.computes(document)]
    facts = [*precision, run["backend"], run["device"], words.compiled(run["backend"], run["jit_compile"])]
    if run["batch_size"] is not None:
        facts.append(f"batch {words.count(run['batch_size'])}")
    return ", ".join(words.plain(str(fact)) for fact in facts if fact) or "nothing recorded about the run"


def time_heading(time: doc.Time) -> str:
    """What the breakdown divides, and what its step time rests on."""
    window = words.plural(time["window_steps"], "profiled step")
    if "step_range" in time:
        window += f", each a range {words.plain(time['step_range'])},"
    where = words.plain(time["device"])
    if time["basis"] == "host":
        where += ", no accelerator: ops on the host's threads"
    if "unlike" in time:
        return (
            f"A step takes {words.duration(time['step_ns'])} (wall, median); shares are of a profiled step "
            f"of {words.duration(time_whole(time))} ({window} on {where})"
        )
    if time["wall_ns"] is not None:
        return (
            f"A step takes {words.duration(time['step_ns'])} (wall, median; shares from {window} on {where})"
        )
    said = f"A step takes {words.duration(time['step_ns'])}"
    if "step_range" not in time and time.get("function_ns") is not None and time["basis"] != "host":
        said += _of_the_function(time)
    return f"{said} (in the profiler window: {window} on {where})"


def _of_the_function(time: doc.Time) -> str:
    """From where to where a step is counted that ends with the device's work, and when the host was done."""
    call_ns, function_ns = time.get("call_ns"), time.get("function_ns")
    if time.get("idle_between_steps_ns") is not None or not call_ns or not function_ns:
        return ""
    if call_ns >= 0.99 * function_ns:
        return ", the call of the training function"
    waited_ns = time.get("waited_ns", 0.0)
    wait = f", after which the host waits {words.duration(waited_ns)} for the device"
    return (
        " from the call of the training function to the end of its last kernel; on the host the call takes "
        f"{words.duration(call_ns)}{wait if waited_ns >= SPLIT_RATIO * function_ns else ''}"
    )


def between(time: doc.Time | None) -> list[str]:
    """What the loop and its callbacks do between two steps, the longest first; empty: not known, or
    nothing."""
    listed = (time.get("between_steps") if time else None) or []
    lines = []
    for part in listed[:MOST_BETWEEN]:
        device = f", {words.duration(part['device_ns'])} on the device" if part["device_ns"] else ""
        lines.append(f"{words.plain(part['name'])}: {words.duration(part['host_ns'])} on the host{device}")
    return lines


def outside_the_step(time: doc.Time | None) -> str:
    """What the work outside the steps lies between; of a single step nothing tells where the next began."""
    one = time is not None and time["window_steps"] == 1 and time.get("idle_between_steps_ns") is None
    return "Afterwards" if one else "Between steps"


def time_rows(time: doc.Time) -> list[TimeRow]:
    """The slices of the step, largest first, `profiling` last; small ones folded. They sum to the step, or
    to the profiled step where that is unlike the others."""
    basis = time["basis"]
    return _rows(time_slices(time), time_whole(time), wall=basis == "wall", on_host=basis == "host")


def time_slices(time: doc.Time) -> list[doc.Slice]:
    """What the step is divided into, with shares that sum to 1: of the profiled step, without `profiling`,
    where that is unlike the others."""
    if "unlike" not in time:
        return time["slices"]
    parts = [part for part in time["slices"] if part["class"] != "profiling"]
    own = sum(part["ns_per_step"] for part in parts if part["class"] != _BETWEEN)
    profiled = {_BETWEEN: max(0.0, time["window_ns"] - own)}  # in `slices` it is that of unprofiled steps
    lengths = [profiled.get(part["class"], part["ns_per_step"]) for part in parts]
    whole = sum(lengths)
    return [
        {**part, "ns_per_step": ns, "ratio": ns / whole if whole else 0.0}
        for part, ns in zip(parts, lengths, strict=True)
    ]


def time_whole(time: doc.Time) -> float:
    """What these slices sum to, in ns."""
    if "unlike" not in time:
        return float(time["step_ns"])
    return float(sum(part["ns_per_step"] for part in time_slices(time)))


def time_per(time: doc.Time) -> str:
    """What the numbers are of, and over how many steps they are the mean."""
    steps = words.plural(time["window_steps"], "step")
    return f"per profiled step, {steps}" if "unlike" in time else f"per step, {steps}"


def time_doubt(time: doc.Time) -> str | None:
    """That the window is not representative, and why, as a sentence; None where it is."""
    said = time.get("unlike")
    return f"{words.plain(said[0].upper() + said[1:])}." if said else None


def window_rows(found: doc.Window) -> list[TimeRow]:
    """The same of a whole window: they sum to its span."""
    return _rows(window.as_slices(found), found["span_ns"], on_host=found["basis"] == "host")


def _rows(
    parts: list[doc.Slice], step_ns: float, *, wall: bool = False, on_host: bool = False
) -> list[TimeRow]:
    slices = sorted(parts, key=lambda part: (part["class"] == "profiling", -part["ns_per_step"]))
    small = [
        p
        for p in slices
        if abs(p["ratio"]) < SMALL_RATIO
        and p["hidden_ns_per_step"] < SPLIT_RATIO * step_ns
        and p["class"] not in NEVER_FOLDED
    ]
    folded = small if len(small) > 2 else []
    added = -sum(part["ratio"] for part in slices if part["class"] == "profiling")
    rows: list[TimeRow] = []
    for part in slices:
        if part in folded:
            continue
        category, ratio = part["class"], part["ratio"]
        hidden = _worth_saying(part["hidden_ns_per_step"], step_ns)
        note = _pooling(part) or words.class_text(category, on_host=on_host)
        if category == "idle_launch" and wall and ADDED_RATIO <= added <= ratio:
            note = f"{words.percent(ratio - added)} without profiling"
        causes = _causes(part, step_ns, on_host=on_host)
        if category == "idle_other" and not causes:
            note = _only_cause(part, on_host=on_host)
        rows.append(TimeRow(category, part["ns_per_step"], ratio, hidden, note))
        rows += _shares(part, step_ns)
        rows += causes
    if folded:
        names = _names([part["class"] for part in folded])
        rows.append(
            TimeRow(
                f"{len(folded)} smaller",
                sum(part["ns_per_step"] for part in folded),
                sum(part["ratio"] for part in folded),
                _worth_saying(sum(part["hidden_ns_per_step"] for part in folded), step_ns),
                names,
            )
        )
    return rows


def _only_cause(part: doc.Slice, *, on_host: bool) -> str:
    """What most of this idle time was for, where it is too short to be split."""
    cause = max(part.get("causes", []), key=lambda cause: cause["ns_per_step"], default=None)
    if cause is None or cause["ns_per_step"] < MOSTLY_RATIO * part["ns_per_step"]:
        return f"cause {NOT_IN_THE_TRACE}"
    return words.cause_of_idling(cause["cause"], on_host=on_host)


def _pooling(part: doc.Slice) -> str:
    """How much of the elementwise work pools: slow kernels of their own, and what 16 bits make least of."""
    pooling, whole = part.get("pooling_ns_per_step", 0.0), part["ns_per_step"]
    if whole <= 0 or pooling < NAMED_RATIO * whole:
        return ""
    return "pooling" if pooling >= 0.995 * whole else f"{pooling / whole:.0%} pooling".replace("%", " %")


def _names(names: list[str]) -> str:
    """The first of these names as far as there is room for whole ones, and how many more there are."""
    for shown in range(len(names), 0, -1):
        more = f" and {len(names) - shown} more" if shown < len(names) else ""
        if len(said := ", ".join(names[:shown]) + more) <= ROOM_FOR_NAMES:
            return said
    return ""


def hidden(time: doc.Time) -> list[str]:
    """What ran for a twentieth of the step or more behind other work, by class and by its longest op."""
    lines = []
    for part in sorted(time_slices(time), key=lambda part: -part["hidden_ns_per_step"]):
        behind, longest = part["hidden_ns_per_step"], part.get("longest_hidden")
        if behind < SPLIT_RATIO * time_whole(time) or longest is None or part["class"] in MEANT_TO_BE_HIDDEN:
            continue
        name = words.op(words.plain(longest["name"]), 60)
        most = "most of it" if longest["ns_per_step"] >= MOSTLY_RATIO * behind else "the longest"
        lines.append(
            f"{words.duration(behind)} of {part['class']} ran beside work that is counted first: {most} "
            f"{name}, {words.duration(longest['ns_per_step'])}"
        )
    return lines


def _worth_saying(hidden_ns: float, step_ns: float) -> float:
    """Hidden time of a thousandth of the step or more; less is left to the JSON report."""
    return hidden_ns if hidden_ns >= step_ns / 1000 else 0.0


def _shares(part: doc.Slice, step_ns: float) -> list[TimeRow]:
    shares = sorted(part["by"], key=lambda share: -share["ns_per_step"])
    if [_placed(share) for share in shares] == ["cpu"]:
        return []  # all of it, where the rest of the step ran, too
    return [
        TimeRow(
            _placed(share),
            share["ns_per_step"],
            share["ns_per_step"] / step_ns if step_ns else 0.0,
            text=_helpers(share),
            part=True,
        )
        for share in shares
        if (share["placement"], share["precision"]) != ("not_matmul", "unknown")
        or share["ns_per_step"] >= SMALL_RATIO * step_ns
    ]


def _placed(share: doc.MatmulShare) -> str:
    """Where a part of the matrix work ran, and in which precision; what multiplies nothing, by what it is."""
    if share["placement"] != "not_matmul":
        known = share["precision"] != "unknown" or share["placement"] == "unknown"
        narrow = "narrow pairs" if share["precision"] == "mixed" else share["precision"]
        return f"{share['placement']} {narrow}" if known else share["placement"]
    most = share.get("transforms_ns_per_step", 0.0) >= MOSTLY_RATIO * share["ns_per_step"]
    name = "transforms" if most else "helpers"
    return name if share["precision"] == "unknown" else f"{name} {share['precision']}"


NOT_IN_THE_TRACE = "not in the trace"


def _causes(part: doc.Slice, step_ns: float, *, on_host: bool) -> list[TimeRow]:
    """What is known of a large idle class, and of `idle_other` how much is not."""
    causes = [
        (words.cause_of_idling(cause["cause"], on_host=on_host), cause["ns_per_step"])
        for cause in part.get("causes", [])
    ]
    rest = part["ns_per_step"] - sum(ns for _, ns in causes)
    if part["class"] == "idle_other":
        causes.append((NOT_IN_THE_TRACE, rest))
    shown = [(cause, ns) for cause, ns in causes if step_ns and ns >= SMALL_RATIO * step_ns]
    if part["ratio"] < SPLIT_RATIO or not [cause for cause, _ in shown if cause != NOT_IN_THE_TRACE]:
        return []
    if len(shown) == 1 and part["class"] == "idle_launch" and shown[0][1] >= 0.995 * part["ns_per_step"]:
        return []  # the row above has that number
    shown.sort(key=lambda item: -item[1])
    return [TimeRow(cause, ns, ns / step_ns, part=True) for cause, ns in shown]


def has_matrix_work(document: doc.Report) -> bool:
    """Whether any was seen in the step, or in the whole window."""
    return any(part["class"] == "matmul" for part in slices_of(document))


def shows_work(document: doc.Report) -> bool:
    """Whether a window holds enough kernels for what it lacks to tell something."""
    return "window" in document and document["window"]["kernels"] >= FEW_WORKS


def other_idle(document: doc.Report) -> tuple[float, str | None]:
    """Share of the step, or of the whole window, that the device idled for neither input nor launches, and
    for what: the largest part that the trace shows, or None and what it does not show, where that is more. 0
    without an account, and in a window with next to no work."""
    if "window" in document and document["window"]["kernels"] < FEW_WORKS:
        return 0.0, None
    for part in slices_of(document):
        if part["class"] == "idle_other" and (idle_ns := part["ns_per_step"]) > 0:
            by_cause = {cause["cause"]: cause["ns_per_step"] for cause in part.get("causes", [])}
            hidden_ns = max(0.0, idle_ns - sum(by_cause.values()))
            cause = max(by_cause, key=by_cause.__getitem__, default=None)
            if cause is not None and by_cause[cause] > hidden_ns:
                return part["ratio"] * by_cause[cause] / idle_ns, cause
            return part["ratio"] * hidden_ns / idle_ns, None
    return 0.0, None


def _helpers(share: doc.MatmulShare) -> str:
    """What a part of the matrix work that multiplies nothing is, where it is transforms of convolutions."""
    transforms, whole = share.get("transforms_ns_per_step", 0.0), share["ns_per_step"]
    if transforms <= 0:
        return ""
    if transforms >= 0.995 * whole:
        return "of convolutions"
    what = "for convolutions" if transforms >= MOSTLY_RATIO * whole else "transforms of convolutions"
    return f"{words.percent(transforms / whole)} of it {what}"


def slices_of(document: doc.Report) -> list[doc.Slice]:
    """The slices of the step, else of the whole window; empty where there is no account."""
    if document["time"]:
        return document["time"]["slices"]
    return window.as_slices(document["window"]) if "window" in document else []


def matrix_units(document: doc.Report) -> str:
    """What this device's matrix units are called: another vendor's never go by NVIDIA's name."""
    slices = slices_of(document)
    placements = {share["placement"] for part in slices for share in part["by"]}
    if (share := document["tensor_core"]) and "unit" in share:
        placements.add(share["unit"])
    return (
        "Matrix cores" if "matrix_core" in placements and "tensor_core" not in placements else "Tensor Cores"
    )


def tensor_core(document: doc.Report) -> str:
    """The share of matrix time on matrix units with its precisions; the unknown share beside it, always."""
    share = document["tensor_core"]
    if share is None:
        return _not_judged("tensor_core", document)
    unknown = f"unknown: {words.percent(share['unknown_ratio'])} of the device's work"
    if "verified_ratio" in share:
        unknown += f"; verified by hardware counters: {words.percent(share['verified_ratio'])} of matrix time"
    if share["ratio"] is None:
        return f"no share: {share['reason']}; {unknown}"
    of = " in the whole window" if share.get("of") == "window" else ""
    if "window" in document and len(document["window"]["devices"]) > 1:
        of += f" of {words.plain(document['window']['device'])}"
    precisions = sorted(share["by_precision"].items(), key=lambda item: -item[1])
    by = ", ".join(f"{words.type_name(name)} {words.duration(ns)}" for name, ns in precisions if ns)
    on_units, matrix_ns = sum(share["by_precision"].values()), share["matmul_ns_per_step"]
    products_ns = on_units / share["ratio"] if share["ratio"] else matrix_ns
    what = f"{words.duration(matrix_ns)} matrix time"
    if products_ns < (1 - SMALL_RATIO) * matrix_ns:
        what = f"{words.duration(products_ns)} in matrix products"
    return (
        f"{words.percent(share['ratio'])} of {what}{of}"
        f"{f' ({by})' if by else ''}{_not_in_16_bits(document['run'], share)}; "
        f"{_off_the_units(document, share)}{unknown}"
    )


def _off_the_units(document: doc.Report, share: doc.TensorCore) -> str:
    """Matrix work on ordinary arithmetic: a fallback of a 16-bit run; a float32 run fell back from nothing.
    And what of the matrix time multiplies nothing."""
    found = document["run"].get("computes_in")
    if found is None or found["kind"] not in ("float32", "float64"):
        return f"fallback {words.duration(share['fallback_ns_per_step'])}; "
    parts = [part for each in slices_of(document) for part in each["by"]]
    helpers = sum(part["ns_per_step"] for part in parts if part["placement"] == "not_matmul")
    transforms = sum(part.get("transforms_ns_per_step", 0.0) for part in parts)
    what = "transforms of convolutions" if transforms >= MOSTLY_RATIO * helpers else "helpers of products"
    said = ""
    if share["fallback_ns_per_step"]:
        said += f"{words.duration(share['fallback_ns_per_step'])} in {found['kind']} on CUDA cores; "
    if helpers >= SMALL_RATIO * share["matmul_ns_per_step"]:
        said += f"{words.duration(helpers)} in {what}; "
    return said


def _not_in_16_bits(run: doc.Run, share: doc.TensorCore) -> str:
    """What a 16-bit run multiplied as TF32: on Tensor Cores, and yet not what was asked for."""
    found, tf32 = run.get("computes_in"), share["by_precision"].get("tf32")
    narrow = found is not None and found["kind"] in ("16-bit", "partly 16-bit")
    return f"; not in 16 bits {words.duration(tf32)}" if narrow and tf32 else ""


def _not_judged(field: str, document: doc.Report) -> str:
    """The reason, unless it is that of the missing account, which stands right above."""
    why = document["absent"].get(field, "no reason was recorded")
    if why == document["absent"].get("time"):
        why = "no step can be told apart" if "window" in document else "the step has no account"
    return f"not judged: {why}"


def speedup(document: doc.Report) -> list[str]:
    """Observed against expected in one or two sentences; an estimate is called one."""
    gain = document["speedup"]
    if gain is None:
        return [_not_judged("speedup", document)]
    if gain["baseline"] == "measured":
        return [*measured(gain, document["absent"]), *_baseline(gain), *_switch(gain)]
    lines = []
    if gain["estimated"]:
        low, high = (words.speedup(gain["estimated"][edge]) for edge in ("low", "high"))
        span = low if low == high else f"{low} to {high}"
        lines.append(f"estimated, not measured: {span} over what float32 would have taken")
        lines.append(f"assumed: {'; '.join(gain['estimated']['assumptions'])}")
    elif could := gain.get("attainable"):
        lines.append(f"mixed precision is off; estimated, not measured: {_range(could, document)}")
        lines.append(f"assumed: {'; '.join(could['assumptions'])}")
        if could["high"] >= WORTH_RECORDING:
            lines.append(document["absent"].get("speedup.observed", "no measured baseline"))
    if gain["ceiling"] is not None:
        lines.append(f"ceiling {words.speedup(gain['ceiling'])}, from peak rates")
    return lines or [f"not judged: {document['absent'].get('speedup.observed', 'no measured baseline')}"]


def _range(could: doc.AttainableRange, document: doc.Report) -> str:
    """What 16 bits could make of a float32 run."""
    low, high = words.speedup(could["low"]), words.speedup(could["high"])
    said = f"{low if low == high else f'{low} to {high}'} attainable in 16 bits"
    if could["eligible_ratio"] is None:
        return said
    units = matrix_units(document)
    return f"{said}; {eligible_words(could['eligible_ratio'], could.get('tf32_ratio'), units=units)}"


def measured(gain: doc.Speedup | doc.Rung, absent: dict[str, str]) -> Iterable[str]:
    """Observed against attainable: of a report's `speedup`, or a comparison's rung; `absent` by its field."""
    if gain["observed"] is None:
        said = f"no observed speedup ({absent.get('speedup.observed', 'a step time is missing')})"
    else:
        each = " per example" if gain.get("per_example") else ""
        said = f"observed {words.speedup(gain['observed'])}{each}{_interval(gain)}"
    could = gain.get("attainable")  # of a report alone
    why = absent.get("speedup.expected", "no reason recorded")
    if gain["expected"] is None and isinstance(could, dict):
        said += f", attainable {words.speedup(could['low'])} to {words.speedup(could['high'])} ({why})"
    elif gain["expected"] is None:
        said += f", attainable not known ({why})"
    elif lowered_by_host(gain):
        said += (
            f", attainable {words.speedup(gain['expected_with_host'])} with the host as it is "
            f"({words.speedup(gain['expected'])} by the device alone)"
        )
    else:
        said += f", attainable {words.speedup(gain['expected'])}"
    if gain["ceiling"] is not None:
        said += f", ceiling {words.speedup(gain['ceiling'])}"
    yield said
    if said := gap(gain):
        yield said


def _baseline(gain: doc.Speedup) -> Iterable[str]:
    if gain["baseline_id"]:
        base = f", {words.duration(gain['baseline_step_ns'])} a step" if gain["baseline_step_ns"] else ""
        base += " (scaled to this run's batch)" if base and gain.get("per_example") else ""
        yield f"baseline: measured, run {words.plain(gain['baseline_id'])}{base}"


def _switch(gain: doc.Speedup) -> Iterable[str]:
    """How to switch mixed precision on, where a float32 run was held against another."""
    if how := gain.get("how_to_switch"):
        yield f"mixed precision is off in this run; to switch it on: {how[0]['text']}"


def lowered_by_host(gain: doc.Speedup | doc.Rung) -> bool:
    """Whether the host keeps the run from what its device could reach; `gain` is a report's `speedup`."""
    with_host, expected = gain["expected_with_host"], gain["expected"]
    return with_host is not None and (expected is None or with_host < 0.99 * expected)


def gap(gain: doc.Speedup | doc.Rung) -> str:
    """The way from this run's step to the attainable one, and what of it remedies recover. Without an
    expectation, the plain difference from the baseline; empty where there is nothing to speak of."""
    plain, above, unexplained = gain["gap_ns"], gain.get("above_attainable_ns"), gain["unexplained_ns"]
    if gain["expected"] is None and plain is not None:
        word = "longer" if plain > 0 else "shorter"
        return f"the step is {words.duration(abs(plain))} {word} than the baseline's{_scaled(gain)}"
    if above is None or unexplained is None:
        return ""
    step = sum(part["mixed_ns"] for part in gain["slices"])
    if abs(above) < SMALL_RATIO * step:
        return "the step is as long as the attainable one"
    if above < 0:
        return f"the step is {words.duration(-above)} shorter than was estimated as attainable"
    said = f"the step is {words.duration(above)} longer than the attainable one"
    if unexplained < SMALL_RATIO * step:
        return f"{said}, and the findings explain all of it"
    of = f" ({words.percent(unexplained / step)} of the step)"
    return f"{said}; no finding explains {words.duration(unexplained)} of that{of}"


def _scaled(gain: doc.Speedup | doc.Rung) -> str:
    return " for as many examples" if gain.get("per_example") else ""


def _interval(gain: doc.Speedup | doc.Rung) -> str:
    interval = gain["interval"]
    if interval is None:  # of an earlier version's report
        return ""
    low, high = (words.speedup(edge) for edge in interval)
    if interval[0] <= 1.0 <= interval[1]:
        return f" (95 %: {low} to {high}: no measurable difference)"
    if low == high:
        half = (interval[1] - interval[0]) / (interval[1] + interval[0])
        return f" (95 %: ±{words.percent(half)})"
    return f" (95 %: {low} to {high})"


def steps(document: doc.Report) -> str:
    """The step log in one sentence."""
    log = document["steps"]
    if log is None:
        return f"not recorded: {document['absent'].get('steps', 'there is no step log')}"
    parts = [f"{words.plural(log['count'], 'step')}, {words.count(log['steady'])} steady"]
    if log["median_ns"] is not None:
        parts.append(f"median {words.duration(log['median_ns'])}, p95 {words.duration(log['p95_ns'])}")
    if (rate := log.get("examples_per_s")) is not None:
        hours = log.get("gpu_hours_per_epoch")
        each = f" ({hours:.3g} GPU-hours an epoch)" if hours is not None else ""
        parts.append(f"{words.count(round(rate)) if rate >= 100 else f'{rate:.3g}'} examples/s{each}")
    if log["skipped"] is not None:
        parts.append(f"{words.count(log['skipped'])} skipped ({words.percent(log['skipped_ratio'])})")
    if scale := loss_scale(log):
        parts.append(f"loss scale {scale}")
    if log["peak_memory_bytes"] is not None:
        parts.append(f"peak memory {words.size(log['peak_memory_bytes'])}")
    return "; ".join([*parts, *_workers(log.get("workers", []))])


def loss_scale(log: doc.Steps | None) -> str:
    """The first loss scale and the last: "2^15 to 2^-35"; empty where none was recorded."""
    scale = log["loss_scale"] if log else None
    if scale is None:
        return ""
    return " to ".join(dict.fromkeys(words.scale(scale[end]) for end in ("first", "last")))


def _workers(workers: list[doc.Worker]) -> list[str]:
    """How the step times of several workers lie together, and which one is the slowest."""
    timed = [each for each in workers if each["median_ns"] is not None]
    if len(timed) < 2:
        return []
    fast, slow = (choose(timed, key=lambda each: each["median_ns"] or 0.0) for choose in (min, max))
    said = f"{len(timed)} workers, medians {words.duration(fast['median_ns'])}"
    if words.duration(slow["median_ns"]) == words.duration(fast["median_ns"]):
        return [f"{said} each"]
    return [f"{said} to {words.duration(slow['median_ns'])} (the slowest is worker {slow['worker']})"]


def out_of_memory(document: doc.Report) -> list[str]:
    """What ended the training, what filled the memory and what to try first; empty where nothing did."""
    failed = document.get("out_of_memory")
    if failed is None:
        ended = document["run"].get("ended")
        return [ended["error"] or ""] if ended and ended["reason"] == "out_of_memory" else []
    where = f" of {words.size(failed['limit_bytes'])}" if failed["limit_bytes"] else ""
    used = f", {words.size(failed['used_bytes'])}{where} in use" if failed["used_bytes"] else ""
    by = f" for {words.shorten(words.plain(failed['op']), 60)}" if failed["op"] else ""
    lines = [f"{words.size(failed['asked_bytes'])} did not fit{by}{used}"]
    largest = [f"{words.shorten(words.plain(each['name']), 60)} {words.size(each['bytes'])}"
               for each in failed["filled"][:3]]  # fmt: skip
    listed = failed.get("listed_bytes")
    of = f" of {words.size(listed)} in all" if listed else ""
    lines += [f"The largest that it lists{of}: {', '.join(largest)}"] if largest else []
    for each in failed["advice"]:
        line = each["snippet"] if each["snippet"] and "\n" not in each["snippet"] else None
        lines.append(": ".join(filter(None, ("To try", each["text"], line))))
    return lines


def memory(document: doc.Report) -> list[str]:
    """What was live at the peak, the largest of each kind; empty where nothing is known."""
    account = document["memory"]
    if account is None:
        return []
    lines = [f"peak {words.size(account['peak_bytes'])}{_beside_the_peak(account)}"]
    if (saved := account["saved_bytes"]) is not None:
        said = "saved against" if saved >= 0 else "more than"
        lines[0] += f", {words.size(abs(saved))} {said} the baseline"
    reachable = account["reachable_bytes"]
    if reachable is not None:
        lines[0] += f", {words.size(reachable)} could still be saved"
    if reachable is not None and (causes := account.get("gap")):
        parts = [f"{part['code']} {words.size(part['bytes'])}" for part in causes]
        lines.append(
            f"in the way of these {words.size(reachable)}: {', '.join(parts)}{_unexplained(account)}"
        )
    if told := drivers_figure(account):
        lines.append(told)
    # Whether the backward pass keeps a result is not known of a window without a whole step.
    divisions = ("dtype", "layer", "op") if "window" in document else ("kind", "dtype", "layer", "op")
    divided = {by: _divided([i for i in account["at_peak"] if i["by"] == by], by) for by in divisions}
    return [*lines, *(f"by {by}: {said}" for by, said in divided.items() if said)]


def _unexplained(account: doc.Memory) -> str:
    """What the causes leave of the gap, or by how much they overlap."""
    rest = account.get("unexplained_bytes")
    if not rest:
        return ""
    left = f"{words.size(abs(rest))}"
    return f"; {left} unexplained" if rest > 0 else f"; together {left} more than that, because they overlap"


def live_memory_unknown(document: doc.Report) -> str:
    """Why nothing is known of what was live, and what to switch on; "" where it is known."""
    memory, absent = document["memory"], document["absent"]
    if memory is not None and memory["at_peak"]:
        return ""
    why = absent.get("memory" if memory is None else "memory.allocator", "no allocator events are there")
    said = f"What was live is not known: {why}."
    if document["run"]["backend"] == "torch":
        return said  # the reason names the setting
    return (
        f"{said} TensorFlow and JAX write allocator events while they profile a GPU: open a window with "
        'MPProfilerCallback(logdir, profile_steps="auto").'
    )


def drivers_figure(account: doc.Memory) -> str:
    """Why the driver's figure hardly fell though memory was saved; "" where it fell, or is not known."""
    driver = account.get("driver")
    if not driver or "code" not in driver:
        return ""
    saved = driver["saved_bytes"]
    fell = f"fell by only {words.size(saved)}" if saved > 0 else "did not fall"
    now, before = words.size(driver["bytes"]), words.size(driver["baseline_bytes"])
    return (
        f"the driver's number {fell} ({now} in use, {before} in the baseline), though the allocator's peak "
        f"did by {words.size(driver['peak_saved_bytes'])}: the framework reserves "
        f"{words.size(driver['unused_bytes'])} ahead ({driver['code']})"
    )


def is_told(item: doc.MemoryItem) -> bool:
    """Whether the item's type, layer or op is known: of estimated parameters and slots only the kind is."""
    return item["name"] not in UNOWNED and (item["by"] == "kind" or not item.get("estimated"))


def held(item: doc.MemoryItem) -> str:
    """The name of a part of the peak, which says so where it is estimated."""
    if item.get("estimated"):
        return f"{item['name']} (estimated)"
    return f"{item['name']} (assigned)" if item.get("assigned") else item["name"]


def _divided(items: list[doc.MemoryItem], by: str) -> str:
    """The largest parts of the peak and the rest; "" where nothing is known of them, or where all is in one
    layer: that is the whole model."""
    named = sorted((i for i in items if not re.fullmatch(_SMALLER, i["name"])), key=lambda i: -i["bytes"])
    known = [item["bytes"] for item in named if is_told(item)]
    if not known or (by == "layer" and max(known) >= ONE_LAYER_RATIO * sum(known)):
        return ""
    shown = named[:MOST_PARTS_OF_MEMORY]
    rest = sum(item["bytes"] for item in items) - sum(item["bytes"] for item in shown)
    parts = [f"{words.op(words.allocated_by(held(i)), 48)} {words.size(i['bytes'])}" for i in shown]
    return ", ".join([*parts, f"others {words.size(rest)}"] if rest else parts)


def _allocator(account: doc.Memory) -> doc.Allocator | None:
    """The allocator whose memory is accounted for."""
    return next((a for a in account.get("allocators", []) if a["name"] == account.get("allocator")), None)


def most_held(account: doc.Memory) -> int:
    """The most that was held since the process began, as far as the trace tells: a window may have less."""
    mine = _allocator(account)
    return max(account["peak_bytes"], (mine["lifetime_peak_bytes"] or 0) if mine else 0)


def skips_arise(document: doc.Report) -> bool:
    """Whether steps may be skipped: not where nothing scales the loss (float32, bfloat16, an inference)."""
    computes = document["run"].get("computes_in")
    if any(each["code"] == _SKIPS for each in document.get("not_applicable", [])):
        return False
    return computes is None or computes["kind"] not in ("float32", "float64")


_SKIPS = "MP201"
"""The rule that does not apply where no update can be skipped."""


def _beside_the_peak(account: doc.Memory) -> str:
    """What the allocator held before the window, where that was more, and what it could hold."""
    mine = _allocator(account)
    if mine is None:
        return ""
    most, said = mine["peak_bytes"], " in the window"
    if (life := mine["lifetime_peak_bytes"]) is not None and life >= most:
        said += (
            f", {words.size(life)} since the process began" if life > most else " and since the process began"
        )
        most = life
    if capacity := mine["capacity_bytes"]:
        said += f"; {words.percent(most / capacity)} of the {words.size(capacity)} that it may take"
    return said


def bounds(document: doc.Report) -> list[str]:
    """What records alone prove, each with its own assumptions; those that all rest on come last, once."""
    found = document["bounds"]
    shared = (
        [a for a in found[0]["assumptions"] if all(a in b["assumptions"] for b in found)] if found else []
    )
    lines = []
    for bound in found:
        own = [assumption for assumption in bound["assumptions"] if assumption not in shared]
        value = words.quantity(bound["value"], bound["unit"])
        lines.append(f"{bound['statement']}: {value}{_if(own)}")
    return [*lines, f"all if: {'; '.join(shared)}"] if shared else lines


def _if(assumptions: list[str]) -> str:
    return f" (if {'; '.join(assumptions)})" if assumptions else ""


def gain(finding: doc.Finding, step_ns: float | None) -> float | None:
    """What the finding's remedy gains of a step, after those before it in the plan; None: no part of it."""
    if "gain_ns_per_step" in finding:
        return words.number(finding["gain_ns_per_step"])
    after = words.number(finding["whatif_step_ns"])  # of an earlier version: by itself
    return None if after is None or step_ns is None else max(0.0, step_ns - after)


def cost(finding: doc.Finding, report: doc.Report) -> str:
    """What a finding costs: "12.1 ms a step (29.4 % of it), 46.0 % of the loss"; empty: not known. The time
    is the gain of its remedy, where it is part of the plan."""
    parts = []
    now, ns = step_ns(report), finding["cost_ns_per_step"]
    gained = gain(finding, now) if ns is not None else None
    if gained is not None and now and gained < HIDDEN_RATIO * now:
        parts.append("hidden behind something else")
    elif ns is not None:
        ns = ns if gained is None else gained
        parts.append(f"{words.duration(ns)} a step{f' ({words.percent(ns / now)} of it)' if now else ''}")
    elif (ns := finding.get("cost_ns_in_window")) is not None and "window" in report:
        parts.append(
            f"{words.duration(ns)} in the window ({words.percent(ns / report['window']['span_ns'])})"
        )
    lost = finding.get("lost_ratio", finding["gap_ratio"])  # earlier reports hold the other alone
    if lost is not None and lost >= SMALL_RATIO:
        parts.append(f"{words.percent(lost)} of the loss")
    if finding["cost_bytes"] is not None:
        parts.append(words.size(finding["cost_bytes"]))
    return ", ".join(parts)


def evidence(finding: doc.Finding) -> list[str]:
    """ "idle_input 41.0 % (limit 15.0 %)", one for each measured value."""
    lines = []
    for item in finding["evidence"]:
        limit = "" if item["limit"] is None else f" (limit {words.quantity(item['limit'], item['unit'])})"
        lines.append(f"{words.plain(item['name'])} {words.quantity(item['value'], item['unit'])}{limit}")
    return lines


def whatif(finding: doc.Finding, report: doc.Report) -> str:
    """The step time once the finding is remedied; empty: not known."""
    now = step_ns(report)
    gained = gain(finding, now)
    plan = report.get("whatif")
    if gained is None or not now or (plan and [step["code"] for step in plan["order"]] == [finding["code"]]):
        return ""  # of the only remedy What if says it
    if gained < HIDDEN_RATIO * now:
        return "no gain while something else limits the step, such as the host"
    best = now - gained
    times = f" ({words.speedup(now / best)})" if best > 0 and not one_step(report) else ""
    return f"{_after(best, report)}{times}, {words.duration(now)} now"


def one_step(report: doc.Report) -> bool:
    """All that the trace tells is of a single step: what follows from it is a range."""
    return report["time"] is not None and report["time"]["window_steps"] == 1


def _after(best_ns: float, report: doc.Report) -> str:
    return format_after(best_ns, step_ns(report) or best_ns, one_step=one_step(report))


def plan(document: doc.Report) -> list[str]:
    """The remedies in the order to apply them, the best step, and what limits it then; empty: none known."""
    found = document.get("whatif")
    now = step_ns(document)
    if not found or not found["order"] or not now:
        return []
    paying = [step for step in found["order"] if step["gain_ns"] >= PAYING_RATIO * now]
    hidden = [step["code"] for step in found["order"] if step not in paying and step["hidden_ns"] > 0]
    lines = []
    if paying:
        path = ", ".join(f"{step['code']} -> {words.duration(step['step_ns'])}" for step in paying[:5])
        more = f" and {len(paying) - 5} more" if len(paying) > 5 else ""
        few = "; a single step may not be representative" if one_step(document) else ""
        lines.append(f"{words.duration(now)} a step now; at best, remedied in this order: {path}{more}{few}")
    if "facts.after_remedies_ns" in document["absent"]:
        return [*lines, document["absent"]["facts.after_remedies_ns"]] if lines else []
    best = _after(found["best_step_ns"], document)
    host = found["floor"]["host_ns"]
    need = f" (it needs {words.duration(host)} a step now)" if host is not None else ""
    if found["floor"]["by"] == "host":
        lines.append(f"after all remedies {best}, limited by the host{need}")
    elif len(paying) > 1:
        # A single step's range reaches from no gain to all of it: nothing says what limits it.
        limit = "" if one_step(document) else ", limited by the device's work"
        lines.append(f"after all remedies {best}{limit}")
    if surfacing := found.get("surfacing"):
        shown = ", ".join(f"{each['code']} ({words.duration(each['gain_ns'])})" for each in surfacing[:3])
        lines.append(f"too small a part of this step to be found, and notable then: {shown}")
    if hidden:
        lines.append(f"no gain until the host needs less time: {', '.join(hidden[:6])}")
    return lines


def step_ns(document: doc.Report) -> float | None:
    """The step time that costs are held against: the account's, else the step log's median."""
    if document["time"]:
        return float(document["time"]["step_ns"])
    steps = document["steps"]
    return words.number(steps["median_ns"]) if steps else None


def recorded_peak(document: doc.Report) -> int | None:
    """The peak of the device's memory in the step log; None: not recorded."""
    steps = document["steps"]
    return steps["peak_memory_bytes"] if steps else None


def warnings(document: doc.Report) -> list[str]:
    """The warnings, and what the account had to leave out or shift."""
    notes = document["time"]["notes"] if document["time"] else []
    notes = document["window"]["notes"] if "window" in document else notes
    return list(dict.fromkeys((*document["warnings"], *notes)))


def _named(document: doc.Report) -> list[doc.Finding]:
    """The finding that the verdict names; the first, where it names none."""
    named = [finding for finding in document["findings"] if finding["code"] == document.get("cause")]
    return named or document["findings"][:1]


def next_steps(document: doc.Report, path: str | None) -> list[tuple[str, str]]:
    """The commands to run next, with what each would show; at most three."""
    run = quoted(path) if path else "PATH"
    steps = [
        (f"mpprof explain {finding['code']}", f"what {finding['slug']} means and how to fix it")
        for finding in _named(document)
    ]
    if "window" in document and document["window"]["ranges"]:
        name = quoted(document["window"]["ranges"][0]["name"])
        steps.append((f"mpprof report {run} --step-range {name}", "makes steps of these ranges"))
    share = document["tensor_core"]
    if share and (share["fallback_ns_per_step"] or share["unknown_ratio"]):
        steps.append((f"mpprof kernels {run}", "every kernel: Tensor Core, fallback or unknown, and why"))
    elif document["time"] and document["time"]["basis"] == "host":
        steps.append((f"mpprof ops {run}", "the costliest ops"))
    gain = document["speedup"]
    could = gain.get("attainable") if gain else None
    worth = not could or could["high"] >= WORTH_RECORDING
    if document["time"] and worth and (gain is None or gain["baseline"] != "measured"):
        steps.append(_comparison(document["run"], run))
    if document["time"] is None and document["steps"] is not None:
        steps.append(('MPProfilerCallback(logdir, profile_steps="auto")', "records what the device ran"))
    return steps[:3]


def _comparison(run: doc.Run, path: str) -> tuple[str, str]:
    """The comparison that the run lacks: a float32 run with its mixed twin, any other with a float32 run."""
    found = run.get("computes_in")
    kind = found["kind"] if found else run["policy"]
    if kind == "float32":
        return (
            f"mpprof report MIXED --baseline {path}",
            "the same model in mixed precision, MIXED, against this",
        )
    other = "another run" if kind == "unknown" else "a float32 run"
    return f"mpprof report {path} --baseline BASE", f"against {other}, BASE, of the same model"
