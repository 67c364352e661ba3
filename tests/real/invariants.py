"""What must hold of every report of a real trace: each check yields the faults it finds, as sentences."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from tests.real.commands import Outcome
from tests.real.truth import Truth

TOLERANCE = 0.1
STEADY = 6
EVIDENCE = re.compile(
    r"884|1688|16816|16832|8816|mma|tensorop|nvjet|tf32|bf16|fp8|e4m3|triton|gemm_fusion|cutlass|flash|fmha",
    re.I,
)
BASELINE_ADVICE = re.compile(r"(?:record|train|trace)[^.;]*\bin float32|no float32 baseline", re.I)
FLOAT32_CLAIM = re.compile(r"(?:computes|ran|is) in float32", re.I)
NO_TRACE = re.compile(r"with(?:out| neither| no)\b[^.]*usable trace|nor a usable trace|no usable trace", re.I)
REQUIRED = (
    "time.function_ns",
    "time.step_ns",
    "time.basis",
    "time.between_steps",
    "time.slices",
    "time.devices",
)
NARROW = ("fp16", "bf16", "fp8", "fp4", "int8")


def outcome(done: Outcome, *, healthy: bool) -> Iterator[str]:
    """Check how a command ended: 0, or 2 with one line that says why."""
    if done.exit_code is None:
        yield "no end within the time limit"
        return
    if "Traceback" in done.err or "Traceback" in done.out:
        yield f"traceback: {done.err.strip().splitlines()[-1] if done.err.strip() else ''}"
    elif done.exit_code not in (0, 2):
        yield f"exit code {done.exit_code}"
    elif done.exit_code == 2:
        lines = [line for line in done.err.splitlines() if line.strip() and not line.startswith("warning")]
        if len(lines) != 1:
            yield f"exit code 2 with {len(lines)} lines on stderr, not one"
        if healthy and done.command.startswith("report"):
            yield f"a healthy trace is refused: {' '.join(lines)[-160:]}"
    elif done.command.endswith(("json", *("kernels", "ops", "layers", "memory"))) and done.document() is None:
        yield "no strict JSON"
    elif re.search(r"\b(?:nan|None|inf)\b", done.out) and done.command in ("report text", "report markdown"):
        yield "prints nan, inf or None"


def keys(report: Mapping[str, Any]) -> Iterator[str]:
    """Check that the contract's keys are there (null is allowed where they are)."""
    for path in REQUIRED if report.get("time") else ():
        holder: Any = report
        for key in path.split("."):
            if not isinstance(holder, Mapping) or key not in holder:
                yield f"missing key {path}"
                break
            holder = holder[key]


def slices(report: Mapping[str, Any]) -> Iterator[str]:
    """Check that the slices of the run and of each device sum to the step and none is larger than it."""
    time = report.get("time") or {}
    for holder in (time, *(time.get("devices") or ())):
        step_ns = holder.get("step_ns")
        parts = holder.get("slices") or ()
        if not step_ns or not parts:
            continue
        where = holder.get("device", "run")
        total = sum(part["ns_per_step"] for part in parts)
        if abs(total - step_ns) > max(1.0, 1e-9 * step_ns):
            yield f"slices of {where} sum to {total:.0f} ns, the step is {step_ns:.0f} ns"
        for part in parts:
            if abs(part["ns_per_step"]) > step_ns * (1 + 1e-9) or abs(part["ratio"]) > 1 + 1e-9:
                yield f"slice {part['class']} of {where} is {part['ratio']:.0%} of the step"
            if abs(part["ratio"] - part["ns_per_step"] / step_ns) > 1e-6:
                yield f"slice {part['class']} of {where}: ratio and time disagree"


def window(report: Mapping[str, Any]) -> Iterator[str]:
    """Check that a whole window closes, and that no number of it stands where a step's belongs."""
    found = report.get("window")
    if found is None:
        return
    if report.get("time") is not None:
        yield "there are an account of a step and one of the window"
    span_ns = found["span_ns"]
    for holder in (found, *found["devices"]):
        total = sum(part["ns"] for part in holder["slices"])
        if abs(total - span_ns) > max(1.0, 1e-9 * span_ns):
            yield f"slices of {holder['device']} sum to {total:.0f} ns, the window is {span_ns:.0f} ns"
    for each in report.get("findings", ()):
        if "cost_ns_in_window" in each and each["cost_ns_per_step"] is not None:
            yield f"{each['code']} costs of the window and of a step"


def steps(report: Mapping[str, Any], truth: Truth) -> Iterator[str]:
    """Check the number of steps and their length against the train function's calls."""
    time = report.get("time")
    if truth.function_ns is None:
        return
    if time is None:
        yield f"no account, though {truth.step_count} calls of {truth.steps[0].call} are in the trace"
        return
    function_ns = time.get("function_ns")
    if function_ns is not None and _apart(function_ns, truth.function_ns):
        yield f"function_ns is {_ms(function_ns)}, the host's truth {_ms(truth.function_ns)}"
    if function_ns is None:
        length = time["step_ns"]
        if _apart(length, truth.function_ns):
            yield f"step_ns is {_ms(length)}, the train function took {_ms(truth.function_ns)}"
    counted = time.get("window_steps")
    if counted is not None and not truth.step_count - 1 <= counted <= truth.step_count:
        yield f"{counted} steps, the trace has {truth.step_count}"


def between(report: Mapping[str, Any], truth: Truth) -> Iterator[str]:
    """Check what is said to lie between steps; of a lone step nothing tells the wall."""
    time = report.get("time")
    if time is None or truth.function_ns is None or "between_steps" not in time:
        return
    listed = time["between_steps"] or ()
    for entry in listed:
        if not {"name", "host_ns", "device_ns"} <= set(entry):
            yield f"between_steps entry without name, host_ns or device_ns: {sorted(entry)}"
            return
    if truth.between and not listed:
        yield f"between_steps is empty, the trace has {', '.join(one.name for one in truth.between)}"
    if truth.step_count != 1:
        return
    if listed:
        said = sum(entry["device_ns"] for entry in listed)
        true = sum(one.device_ns for one in truth.between)
        if abs(said - true) > TOLERANCE * true + 1000:
            yield f"between_steps hold {said:.0f} ns of device time, the trace {true:.0f} ns"
    if time.get("function_ns") is not None and abs(time["step_ns"] - time["function_ns"]) > 1:
        yield "the trace has one step, yet step_ns is not function_ns"
    if any(part["class"] == "idle_between_steps" and part["ns_per_step"] for part in time["slices"]):
        yield "the trace has one step, yet time between steps is measured"
    if not any("between" in field for field in report.get("absent", {})):
        yield "no reason in `absent` why the time between steps is not known"


def waits(report: Mapping[str, Any], truth: Truth) -> Iterator[str]:
    """Check that no more input wait is claimed than the iterator's own events hold."""
    limit_ns = None if truth.iterator_wait_ns is None else truth.iterator_wait_ns * (1 + TOLERANCE) + 20_000
    if limit_ns is None:
        return
    for part in (report.get("time") or {}).get("slices", ()):
        if part["class"] == "idle_input" and part["ns_per_step"] > limit_ns:
            yield f"idle_input is {_ms(part['ns_per_step'])}, the iterator was waited for {_ms(truth.iterator_wait_ns)}"
    for finding in report.get("findings", ()):
        if finding["code"] == "MP301" and (finding["cost_ns_per_step"] or 0) > limit_ns:
            yield f"MP301 costs {_ms(finding['cost_ns_per_step'])}, the iterator {_ms(truth.iterator_wait_ns)}"


def findings(report: Mapping[str, Any]) -> Iterator[str]:
    """Check that each cause has one outcome, costs no more than the step, and that no time is claimed twice."""
    step_ns = (report.get("time") or {}).get("step_ns")
    found = [finding["code"] for finding in report.get("findings", ())]
    unable = [entry["code"] for entry in report.get("unable", ())]
    beside = [entry["code"] for entry in report.get("not_applicable", ())]
    told = Counter([*found, *unable, *report["clear"], *beside])
    for code in sorted(code for code, times in told.items() if times > 1):
        yield f"{code} has several outcomes"
    if step_ns:
        costs = [finding["cost_ns_per_step"] or 0 for finding in report.get("findings", ())]
        if sum(costs) > step_ns * 1.001:
            yield f"findings cost {sum(costs) / step_ns:.0%} of the step"


def memory(report: Mapping[str, Any], truth: Truth) -> Iterator[str]:
    """Check the allocators' peaks and the course against the raw events, and that the divisions add up."""
    account = report.get("memory")
    if account is None:
        if truth.allocators:
            yield f"no memory account, though {truth.allocators[0].name} has events"
        return
    mine = {one["name"]: one for one in account["allocators"]}
    for one in truth.allocators:
        said = mine.get(one.name)
        if said is None:
            yield f"allocator {one.name} is missing"
        elif (said["peak_bytes"], said["lifetime_peak_bytes"]) != (one.window_peak_bytes, one.peak_bytes):
            yield f"{one.name} peaks at {said['peak_bytes']}, the raw events say {one.window_peak_bytes}"
    peak = account["peak_bytes"]
    for by in ("kind", "dtype", "layer", "op"):
        total = sum(item["bytes"] for item in account["at_peak"] if item["by"] == by)
        if total != peak:
            yield f"what is live at the peak by {by} sums to {total}, the peak is {peak}"
    unknown = sum(i["bytes"] for i in account["at_peak"] if i["by"] == "kind" and i["name"] == "unknown")
    if unknown > TOLERANCE * peak:
        yield f"{unknown / peak:.0%} of the peak is unknown"
    raw = iter(next((one.live_bytes for one in truth.allocators if one.name == account["allocator"]), ()))
    if not all(total in raw for total in account["course"]["total_bytes"]):
        yield "the course of live bytes is not that of the raw events"
    for by, parts in account["course"]["parts"].items():
        sums = [sum(values) for values in zip(*parts.values(), strict=True)]
        if sums != account["course"]["total_bytes"]:
            yield f"the course by {by} does not sum to the live bytes"


def words(report: Mapping[str, Any], truth: Truth, text: str) -> Iterator[str]:
    """Check that what is said fits the precision and the kind of trace."""
    said = _sentences(report)
    by_precision = (report.get("tensor_core") or {}).get("by_precision") or {}
    if truth.precision == "float32":
        for kind in NARROW:
            if by_precision.get(kind):
                yield f"{by_precision[kind]:.0f} ns of {kind} in a float32 run"
        for sentence in said:
            if BASELINE_ADVICE.search(sentence):
                yield f"advice to record float32 on a float32 run: {sentence[:90]}"
    if truth.steps and not truth.kernels and not report["run"].get("policy"):
        for sentence in said:
            if FLOAT32_CLAIM.search(sentence):
                yield f"nothing tells the precision, yet: {sentence[:90]}"
    if truth.steps and NO_TRACE.search(" ".join(text.split())):
        yield "says that a healthy trace is not usable"
    for device in truth.devices:
        beyond_gtx16 = device.compute_capability == (7, 5) and (device.sm_count or 0) > 24
        if beyond_gtx16 and any(entry["code"] == "MP802" for entry in report.get("unable", ())):
            yield f"MP802 unable, though {device.sm_count} multiprocessors at 7.5 are no GTX 16"


def kernels(rows: Sequence[Mapping[str, Any]], truth: Truth) -> Iterator[str]:
    """Check the kernel table's totals against the raw sum, and its placements against the names and the card."""
    own = [row for row in rows if not row["name"].startswith(("Memcpy", "Memset"))]
    if truth.kernels:
        total_ns, calls = sum(row["total_ns"] for row in own), sum(row["calls"] for row in own)
        if abs(total_ns - truth.kernel_ns) > max(1.0, 0.5 * calls):  # ns: each event may be rounded
            yield f"kernels sum to {total_ns:.0f} ns, the raw events to {truth.kernel_ns:.0f} ns"
        if calls != sum(kernel.calls for kernel in truth.kernels):
            yield f"{calls} kernel calls, the trace has {sum(kernel.calls for kernel in truth.kernels)}"
    elif any(row["placement"] == "cuda_core" for row in own):
        yield "matrix work of a CPU is called cuda_core"
    yield from _placements(own, truth)
    for device in {row["device"] for row in rows}:
        ratio = sum(row["ratio"] for row in rows if row["device"] == device)
        if abs(ratio - 1) > 1e-6:
            yield f"ratios of {device} sum to {ratio:.6f}"


def classified(lines: Sequence[Mapping[str, Any]], names: list[str], truth: Truth) -> Iterator[str]:
    """Check that `classify` answers once per name, with no Tensor Core for names without evidence."""
    if [line["name"] for line in lines] != names:
        yield f"classify answers {len(lines)} lines for {len(names)} names, or in another order"
    yield from _placements(lines, truth, by_card=False)


def compared(document: Mapping[str, Any], truths: Iterable[Truth]) -> Iterator[str]:
    """Check that too few steps give no observed speedup."""
    if min(truth.step_count for truth in truths) < STEADY:
        for step in document["steps"]:
            if step["observed"] is not None:
                yield f"an observed speedup of {step['observed']:.2f}x from fewer than {STEADY} steps"


def _placements(rows: Iterable[Mapping[str, Any]], truth: Truth, by_card: bool = True) -> Iterator[str]:
    without = by_card and any(
        (device.compute_capability or (9, 0)) < (7, 0) or "GTX 16" in (device.name or "")
        for device in truth.devices
    )
    for row in rows:
        if row["placement"] == "tensor_core":
            if without:
                yield f"Tensor Core on a card without them: {row['name'][:70]}"
            elif not EVIDENCE.search(row["name"]):
                yield f"Tensor Core without evidence in the name: {row['name'][:70]}"


def _sentences(report: Mapping[str, Any]) -> list[str]:
    return [
        report.get("verdict") or "",
        *report.get("warnings", ()),
        *report.get("absent", {}).values(),
        *(entry["reason"] for entry in report.get("unable", ())),
        *(finding["remedy"] or "" for finding in report.get("findings", ())),
    ]


def _apart(some: float, truth: float) -> bool:
    return abs(some - truth) > TOLERANCE * truth


def _ms(time_ns: float | None) -> str:
    return "unknown" if time_ns is None else f"{time_ns / 1e6:.3f} ms"
