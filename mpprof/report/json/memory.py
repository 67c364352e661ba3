"""What held the memory, and an out-of-memory error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpprof.model.finding import Finding
from mpprof.model.memory import (
    Advice,
    Allocator,
    Course,
    DriverSaving,
    MemoryAccount,
    OutOfMemory,
    Tensor,
)

if TYPE_CHECKING:
    from mpprof.model import document as doc


def memory_of(memory: MemoryAccount | None, findings: Sequence[Finding]) -> doc.Memory | None:
    if memory is None:
        return None
    body: doc.Memory = {
        "peak_bytes": memory.peak_bytes,
        "at_peak": memory_items(memory),
        "saved_bytes": memory.saved_bytes,
        "reachable_bytes": memory.reachable_bytes,
        "allocator": memory.allocator,
        "allocators": [_allocator(each) for each in memory.allocators],
        "peak_ns": memory.peak_ns,
        "rounding_bytes": memory.rounding_bytes,
        "fragmentation_ratio": memory.fragmentation_ratio,
        "tensors": [_tensor(each) for each in memory.tensors],
        "across_steps": None
        if memory.across_steps is None
        else [
            {"op": h.op, "layer": h.layer, "dtype": h.dtype, "count": h.count, "bytes": h.bytes}
            for h in memory.across_steps
        ],
        "course": _course(memory.course),
        "expected_saving_bytes": memory.expected_saving_bytes,
        "gap": [{"code": part.code, "bytes": part.bytes} for part in memory.gap],
        "unexplained_bytes": memory.unexplained_bytes,
        "shrank": [{"kind": kind, "bytes": size} for kind, size in memory.shrank],
        "beside_gap": [
            {"code": found.code, "bytes": found.spare_bytes}
            for found in sorted(findings, key=lambda each: -(each.spare_bytes or 0))
            if found.spare_bytes is not None and memory.saved_bytes is not None
        ],
        "driver": _driver(memory.driver),
        "states_from": memory.states_from,
    }
    if memory.why_unassigned:
        body["why_unassigned"] = memory.why_unassigned
    return body


def _allocator(found: Allocator) -> doc.Allocator:
    return {
        "name": found.name,
        "where": found.where,
        "peak_bytes": found.peak_bytes,
        "lifetime_peak_bytes": found.lifetime_peak_bytes,
        "capacity_bytes": found.capacity_bytes,
        "events": found.events,
    }


def _course(course: Course | None) -> doc.Course | None:
    if course is None:
        return None
    return {
        "time_ns": list(course.time_ns),
        "total_bytes": list(course.total_bytes),
        "parts": {
            by: {name: list(values) for name, values in parts.items()} for by, parts in course.parts.items()
        },
    }


def _tensor(tensor: Tensor) -> doc.Tensor:
    body: doc.Tensor = {
        "kind": tensor.kind,
        "op": tensor.op,
        "layer": tensor.layer,
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "count": tensor.count,
        "bytes": tensor.bytes,
        "born_ns": tensor.born_ns,
        "life_ns": tensor.life_ns,
    }
    if tensor.assigned:
        body["assigned"] = True
    return body


def _driver(driver: DriverSaving | None) -> doc.DriverSaving | None:
    if driver is None:
        return None
    body: doc.DriverSaving = {
        "bytes": driver.bytes,
        "baseline_bytes": driver.baseline_bytes,
        "saved_bytes": driver.saved_bytes,
        "peak_saved_bytes": driver.peak_saved_bytes,
        "hidden_bytes": driver.hidden_bytes,
        "unused_bytes": driver.unused_bytes,
    }
    if driver.code:
        body["code"] = driver.code
    return body


def memory_items(memory: MemoryAccount) -> list[doc.MemoryItem]:
    """Return what was live at the peak, as the report and the table give it."""
    return [
        {"by": item.by, "name": item.name, "bytes": item.bytes}
        | ({"estimated": True} if item.estimated else {})  # type: ignore[misc]
        | ({"assigned": True} if item.assigned else {})
        for item in memory.at_peak
    ]


def out_of_memory(found: OutOfMemory, advice: tuple[Advice, ...]) -> doc.OutOfMemory:
    """Return what an out-of-memory error states, and what to try, the likeliest first."""
    return {
        "schema": "mpprof.out_of_memory/1",
        "framework": found.framework,
        "asked_bytes": found.asked_bytes,
        "limit_bytes": found.limit_bytes,
        "used_bytes": found.used_bytes,
        "loose_bytes": found.loose_bytes,
        "others_bytes": found.others_bytes,
        "free_bytes": found.free_bytes,
        "device": found.device,
        "op": found.op,
        "parts": found.parts,
        "filled": [
            {"name": f.name, "dtype": f.dtype, "shape": f.shape, "count": f.count, "bytes": f.bytes}
            for f in found.filled
        ],
        "listed_bytes": found.listed_bytes,
        "refused_bytes": found.refused_bytes,
        "words": found.words,
        "advice": [{"cause": a.cause, "text": a.text, "snippet": a.snippet or None} for a in advice],
    }
