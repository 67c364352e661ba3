"""Hold a report to what was written of its trace before anyone saw the report (`expectations.json`)."""

import json
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("expectations.json")
SHARE = 0.01
TIME = 0.1


@cache
def expectations() -> dict[str, Mapping[str, Any]]:
    """Return the expectations by the trace file's sha256, each with the causes refused everywhere."""
    document = json.loads(FILE.read_text())
    return {
        one["sha256"]: {**one, "refused": [*document["refused"], *one["refused"]]}
        for one in document["files"]
    }


def check(sha256: str, report: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Iterator[str]:
    """Yield where the report of a known trace differs from what its raw events say."""
    wanted = expectations().get(sha256)
    if wanted is None:
        return
    yield from _causes(wanted, report)
    yield from _largest(wanted, rows)
    yield from _share(wanted, report)
    if report.get("time"):
        yield from _times(wanted, report)
        yield from _main_reason(wanted["main_reason"], _slices(report))


def _causes(wanted: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[str]:
    found = {finding["code"]: finding for finding in report.get("findings", ())}
    for code in wanted["signed"]:
        if code not in found:
            yield f"{code} is not found"
    for code in wanted["refused"]:
        if code in found:
            yield f"{code} is found: {found[code].get('summary') or found[code]['title']}"
    step_ns = (report.get("time") or {}).get("step_ns")
    for code, limit in wanted.get("max_cost_ratio", {}).items():
        cost_ns = (found[code]["cost_ns_per_step"] or 0) if code in found else 0
        if step_ns and cost_ns > limit * step_ns:
            yield f"{code} claims {cost_ns / step_ns:.0%} of the step, at most {limit:.0%} are its"


def _largest(wanted: Mapping[str, Any], rows: list[Mapping[str, Any]]) -> Iterator[str]:
    kernels = [row for row in rows if not row["name"].startswith(("Memcpy", "Memset"))]
    total_ns = sum(row["total_ns"] for row in kernels)
    for one in wanted.get("largest_kernels", ()):
        named = [row for row in kernels if row["name"].removeprefix("void ").startswith(one["name"])]
        share = sum(row["total_ns"] for row in named) / total_ns if total_ns else 0
        if abs(share - one["ratio"]) > SHARE:
            yield f"{one['name']} has {share:.1%} of the kernel time, not {one['ratio']:.1%}"


def _share(wanted: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[str]:
    share = report.get("tensor_core")
    ratio = share["ratio"] if share else None
    if ratio != wanted["tensor_core_ratio"] and report.get("time"):
        yield f"the Tensor Core share is {ratio}, not {wanted['tensor_core_ratio']}"
    if share and wanted["device"]:
        if _apart(share["fallback_ns_per_step"], wanted["matmul_ns"]):
            yield f"{share['fallback_ns_per_step']:.0f} ns of fallback, not {wanted['matmul_ns']}"
        if share["unknown_ratio"] > 0.05:
            yield f"{share['unknown_ratio']:.0%} of the time unknown"


def _times(wanted: Mapping[str, Any], report: Mapping[str, Any]) -> Iterator[str]:
    time, slices = report["time"], _slices(report)
    length_ns = time.get("function_ns", time["step_ns"])
    if length_ns is not None and _apart(length_ns, wanted["function_ns"]):
        yield f"the step takes {length_ns:.0f} ns, not {wanted['function_ns']}"
    if wanted["device"] is None and _apart(slices.get("matmul", 0), wanted["matmul_ns"]):
        yield f"matmul takes {slices.get('matmul', 0):.0f} ns, not {wanted['matmul_ns']}"
    listed = [entry["name"] for entry in time.get("between_steps") or ()]
    if wanted["between_steps"] and not any("summary" in name.lower() for name in listed):
        yield "the summary writer is not named between the steps"
    for name, limit in wanted.get("max_slice_ratio", {}).items():
        if slices.get(name, 0) > limit * time["step_ns"]:
            yield f"{name} is {slices[name] / time['step_ns']:.0%} of the step, at most {limit:.0%}"


def _main_reason(reason: str, slices: Mapping[str, float]) -> Iterator[str]:
    largest = max(slices, key=lambda name: slices[name])
    total_ns = sum(slices.values())
    idle_ns = sum(time_ns for name, time_ns in slices.items() if name.startswith("idle"))
    if reason == "launch" and largest != "idle_launch":
        yield f"the main reason is launching, the largest slice {largest}"
    if reason == "device" and idle_ns > 0.5 * total_ns:
        yield f"the device works most of the step, {idle_ns / total_ns:.0%} are called idle"
    if reason == "blocked calls" and slices.get("idle_launch", 0) > 0.4 * total_ns:
        yield f"driver calls block, yet {slices['idle_launch'] / total_ns:.0%} are called launching"
    if reason == "matmul on the CPU" and largest != "matmul":
        yield f"the main reason is matrix work, the largest slice {largest}"


def _slices(report: Mapping[str, Any]) -> dict[str, float]:
    return {part["class"]: part["ns_per_step"] for part in report["time"]["slices"]}


def _apart(some: float, truth: float) -> bool:
    return abs(some - truth) > TIME * truth
