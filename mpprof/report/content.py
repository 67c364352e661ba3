"""What a report says, in sentences and rows, before anybody lays it out.

Text and markdown differ in their looks only: both are made from these. Everything takes the document
(`report.json.document`), so a stored JSON report renders the same as a fresh one.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable

from mpprof.model.frozen import frozen
from mpprof.model.source import Document
from mpprof.report import words

SMALL_RATIO = 0.005
"""Slices below this share of the step are folded into one row, where there are more than two of them."""
ADDED_RATIO = 0.01
"""What profiling added is told from a hundredth of the step on."""
NOTABLE_GAIN = 0.05
"""Gains below a twentieth of what was lost need no words."""
PAYING_RATIO = 0.01
"""A remedy is worth a place in the plan from a hundredth of the step."""
NEVER_FOLDED = ("unknown", "profiling")


@frozen
class TimeRow:
    """One row of the breakdown of a step. `part` rows split the row above and add nothing to the sum."""

    label: str
    ns: float
    ratio: float
    hidden_ns: float = 0.0
    text: str = ""
    part: bool = False


def subject(document: Document) -> str:
    """What was measured: "mixed_float16, tensorflow, Tesla V100, XLA off, batch 32"; only what is known."""
    run = document["run"]
    facts = [run["policy"], run["backend"], run["device"], words.compiled(run["backend"], run["jit_compile"])]
    if run["batch_size"] is not None:
        facts.append(f"batch {words.count(run['batch_size'])}")
    return ", ".join(words.plain(str(fact)) for fact in facts if fact) or "nothing recorded about the run"


def time_heading(document: Document) -> str:
    """What the breakdown divides, and what its step time rests on."""
    time = document["time"]
    window = words.plural(time["window_steps"], "profiled step")
    where = words.plain(time["device"])
    if time["basis"] == "host":
        where += ", no accelerator: ops on the host's threads"
    if time["wall_ns"] is not None:
        return (
            f"A step takes {words.duration(time['step_ns'])} (wall, median; shares from {window} on {where})"
        )
    return f"A step takes {words.duration(time['step_ns'])} (in the profiler window: {window} on {where})"


def time_rows(document: Document) -> list[TimeRow]:
    """The slices of the step, largest first, `profiling` last; small ones folded. They sum to the step."""
    slices = sorted(
        document["time"]["slices"], key=lambda part: (part["class"] == "profiling", -part["ns_per_step"])
    )
    small = [p for p in slices if abs(p["ratio"]) < SMALL_RATIO and p["class"] not in NEVER_FOLDED]
    folded = small if len(small) > 2 else []
    added = -sum(part["ratio"] for part in slices if part["class"] == "profiling")
    rows: list[TimeRow] = []
    for part in slices:
        if part in folded:
            continue
        role, ratio = part["class"], part["ratio"]
        hidden = _worth_saying(part["hidden_ns_per_step"], document)
        note = words.CLASS_TEXT.get(role, "")
        if role == "idle_launch" and document["time"]["basis"] == "wall" and ADDED_RATIO <= added <= ratio:
            note = f"{words.percent(ratio - added)} without profiling"
        rows.append(TimeRow(role, part["ns_per_step"], ratio, hidden, note))
        rows += _shares(part, document["time"]["step_ns"])
    if folded:
        names = ", ".join(part["class"] for part in folded)
        rows.append(
            TimeRow(
                f"{len(folded)} smaller",
                sum(part["ns_per_step"] for part in folded),
                sum(part["ratio"] for part in folded),
                _worth_saying(sum(part["hidden_ns_per_step"] or 0.0 for part in folded), document),
                names,
            )
        )
    return rows


def _worth_saying(hidden_ns: float | None, document: Document) -> float:
    """Hidden time of a thousandth of the step or more; less is left to the JSON report."""
    return hidden_ns if hidden_ns and hidden_ns >= document["time"]["step_ns"] / 1000 else 0.0


def _shares(part: Document, step_ns: float) -> list[TimeRow]:
    shares = sorted(part["by"], key=lambda share: -share["ns_per_step"])
    return [
        TimeRow(
            f"{share['placement']} {share['precision']}",
            share["ns_per_step"],
            share["ns_per_step"] / step_ns if step_ns else 0.0,
            part=True,
        )
        for share in shares
    ]


def matrix_units(document: Document) -> str:
    """What this device's matrix units are called: another vendor's never go by NVIDIA's name."""
    slices = document["time"]["slices"] if document["time"] else []
    placements = {share["placement"] for part in slices for share in part["by"]}
    placements |= {(document["tensor_core"] or {}).get("unit")}
    return (
        "Matrix cores" if "matrix_core" in placements and "tensor_core" not in placements else "Tensor Cores"
    )


def tensor_core(document: Document) -> str:
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
    precisions = sorted(share["by_precision"].items(), key=lambda item: -item[1])
    by = ", ".join(f"{name} {words.duration(ns)}" for name, ns in precisions if ns)
    return (
        f"{words.percent(share['ratio'])} of {words.duration(share['matmul_ns_per_step'])} matrix time{of}"
        f"{f' ({by})' if by else ''}; fallback {words.duration(share['fallback_ns_per_step'])}; {unknown}"
    )


def _not_judged(field: str, document: Document) -> str:
    """The reason, unless it is that of the missing account, which stands right above."""
    why = document["absent"].get(field, "no reason was recorded")
    return f"not judged: {'the step has no account' if why == document['absent'].get('time') else why}"


def speedup(document: Document) -> list[str]:
    """Observed against expected in one or two sentences; an estimate is called one."""
    gain = document["speedup"]
    if gain is None:
        return [_not_judged("speedup", document)]
    if gain["baseline"] == "measured":
        return [*measured(gain, document["absent"])]
    lines = []
    if gain["estimated"]:
        low, high = (words.speedup(gain["estimated"][edge]) for edge in ("low", "high"))
        span = low if low == high else f"{low} to {high}"
        lines.append(f"estimated, not measured: {span} over what float32 would have taken")
        lines.append(f"assumed: {'; '.join(gain['estimated']['assumptions'])}")
    if gain["ceiling"] is not None:
        lines.append(f"ceiling {words.speedup(gain['ceiling'])}, from peak rates")
    return lines or [f"not judged: {document['absent'].get('speedup.observed', 'no measured baseline')}"]


def measured(gain: Document, absent: dict[str, str]) -> Iterable[str]:
    """Observed against expected of a report's `speedup`, or of a comparison's rung; `absent` by its field."""
    each = " per example" if gain.get("per_example") else ""
    observed = f"observed {words.speedup(gain['observed'])}{each}{_interval(gain, absent)}"
    if gain["expected"] is None:
        observed += f", expected not known ({absent.get('speedup.expected', 'no reason recorded')})"
    else:
        observed += f", expected {words.speedup(gain['expected'])}"
    if lowered_by_host(gain):
        observed += f" ({words.speedup(gain['expected_with_host'])} with the host as it is)"
    if gain["ceiling"] is not None:
        observed += f", ceiling {words.speedup(gain['ceiling'])}"
    yield observed
    if gain["gap_ns"] is not None:
        yield gap(gain)
    if gain.get("baseline_id"):
        base = f", {words.duration(gain['baseline_step_ns'])} a step" if gain["baseline_step_ns"] else ""
        base += " (scaled to this run's batch)" if base and gain.get("per_example") else ""
        yield f"baseline: measured, run {words.plain(gain['baseline_id'])}{base}"


def lowered_by_host(gain: Document) -> bool:
    """Whether the host keeps the run from what its device could reach; `gain` is a report's `speedup`."""
    with_host, expected = gain["expected_with_host"], gain["expected"]
    return with_host is not None and (expected is None or with_host < 0.99 * expected)


def gap(gain: Document) -> str:
    """The gap in words: what was lost against the reach, what was gained beyond it, and what of the loss no
    finding explains. Without an expectation, the plain difference from the baseline."""
    whole = gain["gap_ns"]
    if gain["expected"] is None:
        word = "longer" if whole > 0 else "shorter"
        return f"the step is {words.duration(abs(whole))} {word} than the baseline's{_scaled(gain)}"
    if whole <= 0:
        return f"the step is {words.duration(-whole)} shorter than this device was thought to reach"
    said = f"the step is {words.duration(whole)} longer than this device could reach"
    lost, gained, unexplained = gain.get("lost_ns"), gain.get("gained_ns"), gain["unexplained_ns"]
    if lost is None or gained is None:
        return said
    if gained > NOTABLE_GAIN * lost:
        own = max(0.0, -sum(p["ns_per_step"] for p in gain["slices"] if p["class"] == "profiling"))
        where = "that the profiler added to its window" if own > gained / 2 else "gained beyond it elsewhere"
        said += f": {words.duration(lost)} lost, less {words.duration(gained)} {where}"
    if unexplained is not None and lost > 0:
        left = max(0.0, min(lost, unexplained + gained))
        step_ns = sum(part["mixed_ns"] for part in gain["slices"])
        of = f" ({words.percent(left / step_ns)} of the step)" if step_ns > 0 else ""
        said += f"; no finding explains {words.duration(left)} of the loss{of}"
    return said


def _scaled(gain: Document) -> str:
    return " for as many examples" if gain.get("per_example") else ""


def _interval(gain: Document, absent: dict[str, str]) -> str:
    interval = gain["interval"]
    if interval is None:
        why = absent.get("speedup.interval")
        return f" (no error bar: {why})" if why else ""
    low, high = (words.speedup(edge) for edge in interval)
    if interval[0] <= 1.0 <= interval[1]:
        return f" (95 %: {low} to {high}: no measurable difference)"
    if low == high:
        half = (interval[1] - interval[0]) / (interval[1] + interval[0])
        return f" (95 %: ±{words.percent(half)})"
    return f" (95 %: {low} to {high})"


def steps(document: Document) -> str:
    """The step log in one sentence."""
    log = document["steps"]
    if log is None:
        return f"not recorded: {document['absent'].get('steps', 'there is no step log')}"
    parts = [f"{words.plural(log['count'], 'step')}, {words.count(log['steady'])} steady"]
    if log["median_ns"] is not None:
        parts.append(f"median {words.duration(log['median_ns'])}, p95 {words.duration(log['p95_ns'])}")
    if log["skipped"] is not None:
        parts.append(f"{words.count(log['skipped'])} skipped ({words.percent(log['skipped_ratio'])})")
    if log["loss_scale"] is not None:
        scale = log["loss_scale"]
        ends = dict.fromkeys(words.scale(scale[end]) for end in ("first", "last"))
        parts.append(f"loss scale {' to '.join(ends)}")
    if log["peak_memory_bytes"] is not None:
        parts.append(f"peak memory {words.size(log['peak_memory_bytes'])}")
    return "; ".join([*parts, *_workers(log.get("workers", []))])


def _workers(workers: list[Document]) -> list[str]:
    """How the step times of several workers lie together, and which one is the slowest."""
    timed = [each for each in workers if each["median_ns"] is not None]
    if len(timed) < 2:
        return []
    fast, slow = (choose(timed, key=lambda each: each["median_ns"]) for choose in (min, max))
    said = f"{len(timed)} workers, medians {words.duration(fast['median_ns'])}"
    if words.duration(slow["median_ns"]) == words.duration(fast["median_ns"]):
        return [f"{said} each"]
    return [f"{said} to {words.duration(slow['median_ns'])} (the slowest is worker {slow['worker']})"]


def memory(document: Document) -> list[str]:
    """What was live at the peak, the largest of each kind; empty where nothing is known."""
    account = document["memory"]
    if account is None:
        return []
    lines = [f"peak {words.size(account['peak_bytes'])}"]
    if account["saved_bytes"] is not None:
        lines[0] += f", saved against the baseline {words.size(account['saved_bytes'])}"
    if account["reachable_bytes"] is not None:
        lines[0] += f", could still be saved {words.size(account['reachable_bytes'])}"
    for by in ("kind", "dtype", "layer", "op"):
        items = sorted((i for i in account["at_peak"] if i["by"] == by), key=lambda i: -i["bytes"])[:4]
        if items and [item["name"] for item in items] != ["unknown"]:
            names = ", ".join(
                f"{words.shorten(words.plain(i['name']), 48)} {words.size(i['bytes'])}" for i in items
            )
            lines.append(f"by {by}: {names}")
    return lines


def bounds(document: Document) -> list[str]:
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


def cost(finding: Document, step_ns: float | None) -> str:
    """What a finding costs: "12.1 ms a step (29.4 % of it), 46.0 % of the gap"; empty: not known."""
    parts = []
    ns = finding["cost_ns_per_step"]
    if ns is not None:
        share = f" ({words.percent(ns / step_ns)} of it)" if step_ns else ""
        parts.append(f"{words.duration(ns)} a step{share}")
    lost = finding.get("lost_ratio", finding["gap_ratio"])  # earlier reports hold the other alone
    if lost is not None and lost >= SMALL_RATIO:
        parts.append(f"{words.percent(lost)} of the loss")
    if finding["cost_bytes"] is not None:
        parts.append(words.size(finding["cost_bytes"]))
    return ", ".join(parts)


def evidence(finding: Document) -> list[str]:
    """ "idle_input 41.0 % (limit 15.0 %)", one for each measured value."""
    lines = []
    for item in finding["evidence"]:
        limit = "" if item["limit"] is None else f" (limit {words.quantity(item['limit'], item['unit'])})"
        lines.append(f"{words.plain(item['name'])} {words.quantity(item['value'], item['unit'])}{limit}")
    return lines


def whatif(finding: Document, step_ns: float | None) -> str:
    """The step time once the finding is remedied; empty: not known."""
    after = finding["whatif_step_ns"]
    if after is None:
        return ""
    if step_ns and after > step_ns * 0.999:
        return "no gain while something else limits the step, such as the host"
    gain = f" ({words.speedup(step_ns / after)})" if step_ns and after else ""
    now = f" instead of {words.duration(step_ns)}" if step_ns else ""
    return f"{words.duration(after)} a step{now}{gain}"


def plan(document: Document) -> list[str]:
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
        lines.append(f"{words.duration(now)} a step now; remedied in this order: {path}{more}")
    best = found["best_step_ns"]
    host = found["floor"]["host_ns"]
    need = f" (it needs {words.duration(host)} a step now)" if host is not None else ""
    if found["floor"]["by"] == "host":
        lines.append(f"best reachable {words.duration(best)}, where the host is the floor{need}")
    elif paying:
        lines.append(f"best reachable {words.duration(best)}, limited by the device's work")
    if hidden:
        lines.append(f"nothing to gain before the host is relieved: {', '.join(hidden[:6])}")
    return lines


def step_ns(document: Document) -> float | None:
    """The step time that costs are held against: the account's, else the step log's median."""
    if document["time"]:
        return float(document["time"]["step_ns"])
    steps = document["steps"]
    return words.number(steps["median_ns"]) if steps else None


def grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """(name, reason) pairs as reason -> names, in the order of first appearance."""
    groups: dict[str, list[str]] = {}
    for name, reason in pairs:
        groups.setdefault(reason, []).append(name)
    return list(groups.items())


def not_judged(document: Document) -> list[tuple[str, list[str]]]:
    """The causes that could not be judged, by reason; that of the missing account stands above. Reasons that
    the same record would settle are one."""
    why = document["absent"].get("time") if (document["tensor_core"] or {}).get("of") == "window" else None
    by_reason = grouped(
        (unable["code"], "the step has no account" if unable["reason"] == why else unable["reason"])
        for unable in document["unable"]
    )
    by_record: dict[str, list[tuple[str, list[str]]]] = {}
    for reason, codes in by_reason:
        what, _, record = reason.partition("; ")
        by_record.setdefault(record or reason, []).append((what, codes))
    joined = []
    for record, parts in by_record.items():
        codes = [code for _, own in parts for code in own]
        missing = "; ".join(what for what, _ in parts)
        joined.append((missing if missing == record else f"{missing}: {record}", codes))
    return joined


def not_measured(document: Document) -> list[tuple[str, list[str]]]:
    """What is absent, by reason; what another line of the report says already is left out."""
    told = {"tensor_core", "speedup", "whatif", "cause"} | {
        room for room in ("steps", "time") if document[room] is None
    }
    if (why := document["absent"].get("bounds")) and why in document["verdict"]:
        told.add("bounds")
    parts = ("tensor_core.", "speedup.", "memory.", *(("run.",) if "run" in document["absent"] else ()))
    fields = (
        (field, why)
        for field, why in document["absent"].items()
        if field not in told and not field.startswith(parts)
    )
    return grouped(fields)


def warnings(document: Document) -> list[str]:
    """The warnings, and what the account had to leave out or shift."""
    notes = document["time"]["notes"] if document["time"] else []
    return list(dict.fromkeys((*document["warnings"], *notes)))


def _named(document: Document) -> list[Document]:
    """The finding that the verdict names; the first, where it names none."""
    named = [finding for finding in document["findings"] if finding["code"] == document.get("cause")]
    return named or document["findings"][:1]


def next_steps(document: Document, path: str | None) -> list[tuple[str, str]]:
    """The commands to run next, with what each would show; at most three."""
    run = shlex.quote(path) if path else "PATH"
    steps = [
        (f"mpprof explain {finding['code']}", f"what {finding['slug']} means and how to mend it")
        for finding in _named(document)
    ]
    share = document["tensor_core"]
    if share and (share["fallback_ns_per_step"] or share["unknown_ratio"]):
        steps.append((f"mpprof kernels {run}", "every kernel: Tensor Core, fallback or unknown, and why"))
    elif document["time"] and document["time"]["basis"] == "host":
        steps.append((f"mpprof ops {run}", "the costliest ops"))
    gain = document["speedup"]
    if document["time"] and (gain is None or gain["baseline"] != "measured"):
        steps.append(
            (
                f"mpprof report MIXED --baseline {run}",
                "the same model in mixed precision, MIXED, against this",
            )
            if document["run"]["policy"] == "float32"
            else (f"mpprof report {run} --baseline BASE", "against a float32 run, BASE, of the same model")
        )
    if document["time"] is None and document["steps"] is not None:
        steps.append(('MPProfilerCallback(logdir, profile_steps="auto")', "records what the device ran"))
    return steps[:3]
