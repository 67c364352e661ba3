"""Observed and attainable speedup, findings and their remedies."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpprof.model.account import (
    IDLE_CLASSES,
    Class,
    EstimatedSpeedup,
    GapSlice,
    Launches,
    Limit,
    ProfiledSpeedup,
    Speedup,
)
from mpprof.model.finding import Finding, Remedy, WhatIf
from mpprof.report.json.values import interval, rounded

if TYPE_CHECKING:
    from mpprof.model import document as doc


def speedup_of(speedup: Speedup | None, how_to_switch: Sequence[Remedy]) -> doc.Speedup | None:
    if speedup is None:
        return None
    body: doc.Speedup = {
        "baseline": speedup.baseline,
        "baseline_id": speedup.baseline_id,
        "observed": speedup.observed,
        "interval": interval(speedup.interval),
        "expected": speedup.expected,
        "expected_with_host": speedup.expected_with_host,
        "ceiling": speedup.ceiling,
        "estimated": _estimated(speedup.estimated),
        "slices": gap_slices_of(speedup.slices),
        "unexplained_ns": rounded(speedup.unexplained_ns),
        "baseline_step_ns": rounded(speedup.baseline_step_ns),
        "reach_ns": rounded(speedup.attainable_ns),
        "gap_ns": rounded(speedup.gap_ns),
        "per_example": speedup.per_example,
        "lost_ns": rounded(speedup.lost_ns),
        "gained_ns": rounded(speedup.gained_ns),
        "baseline_dtype": speedup.baseline_dtype,
        "attainable": _attainable(speedup),
        "limits": [
            _limit(limit) for limit in (speedup.potential.limits if speedup.potential else speedup.limits)
        ],
        "above_attainable_ns": rounded(speedup.above_attainable_ns),
        "interval_wide": speedup.interval_wide,
    }
    if speedup.difference is not None:
        body["difference"] = speedup.difference
    if speedup.baseline == "measured":
        body["profiled"] = profiled_of(speedup.profiled)
    if speedup.launches is not None:
        body["launches"] = _launches(speedup.launches)
    if how_to_switch:
        body["how_to_switch"] = list(map(remedy_of, how_to_switch))
    return body


def _estimated(found: EstimatedSpeedup | None) -> doc.EstimatedSpeedup | None:
    if found is None:
        return None
    return {"low": found.low, "high": found.high, "assumptions": list(found.assumptions)}


def _limit(limit: Limit) -> doc.Limit:
    return {
        "class": limit.category,
        "kind": limit.kind,
        "ns_per_step": rounded(limit.ns_per_step),
        "best_ns": rounded(limit.best_ns),
        "ratio": limit.ratio,
    }


def _launches(found: Launches) -> doc.Launches:
    return {
        "baseline": rounded(found.baseline),
        "mixed": rounded(found.mixed),
        "baseline_host_ns": rounded(found.baseline_host_ns),
        "mixed_host_ns": rounded(found.mixed_host_ns),
        "by_class": [
            {"class": each.category, "baseline": rounded(each.baseline), "mixed": rounded(each.mixed)}
            for each in found.by_class
        ],
    }


def profiled_of(found: ProfiledSpeedup | None) -> doc.ProfiledSpeedup | None:
    if found is None:
        return None
    return {
        "ratio": found.ratio,
        "baseline_ns": rounded(found.baseline_ns),
        "mixed_ns": rounded(found.mixed_ns),
        "baseline_steps": found.baseline_steps,
        "mixed_steps": found.mixed_steps,
    }


def _attainable(speedup: Speedup) -> doc.AttainableRange | None:
    found = speedup.potential
    if found is not None:
        body: doc.AttainableRange = {
            "low": found.low,
            "high": found.high,
            "eligible_ratio": found.eligible_ratio,
            "assumptions": list(found.assumptions),
        }
        if found.tf32_ratio is not None:
            body["tf32_ratio"] = found.tf32_ratio
        return body
    if speedup.attainable is None:
        return None
    return {"low": speedup.attainable, "high": speedup.attainable, "eligible_ratio": None, "assumptions": []}


def whatif_of(plan: WhatIf | None) -> doc.WhatIf | None:
    if plan is None:
        return None
    body: doc.WhatIf = {
        "order": [
            {
                "code": step.code,
                "step_ns": rounded(step.step_ns),
                "gain_ns": rounded(step.gain_ns),
                "hidden_ns": rounded(step.hidden_ns),
            }
            for step in plan.order
        ],
        "best_step_ns": rounded(plan.best_step_ns),
        "floor": {"by": plan.floor, "host_ns": rounded(plan.host_ns)},
        "subsets_ns": [rounded(step_ns) for step_ns in plan.subsets_ns],
    }
    if plan.surfacing:
        body["surfacing"] = [{"code": each.code, "gain_ns": rounded(each.gain_ns)} for each in plan.surfacing]
    return body


def gap_slices_of(slices: tuple[GapSlice, ...]) -> list[doc.GapSlice]:
    return [
        {
            "class": part.category,
            "layer": part.layer,
            "ns_per_step": rounded(part.ns_per_step),
            "baseline_ns": rounded(part.baseline_ns),
            "mixed_ns": rounded(part.mixed_ns),
            "ratio": part.ratio,
            "ratio_source": part.ratio_source,
            "added_ns": rounded(part.added_ns),
        }
        for part in slices
    ]


def finding_of(finding: Finding) -> doc.Finding:
    body: doc.Finding = {
        "code": finding.code,
        "slug": finding.slug,
        "title": finding.title,
        "severity": finding.severity,
        "confidence": finding.confidence,
        "cost_ns_per_step": rounded(finding.cost_ns_per_step),
        "cost_bytes": finding.cost_bytes,
        "gap_ratio": finding.gap_ratio,
        "evidence": [
            {"name": item.name, "value": item.value, "unit": item.unit, "limit": item.limit}
            for item in finding.evidence
        ],
        "remedy": finding.remedy,
        "remedies": [remedy_of(each) for each in finding.remedies],
        "whatif_step_ns": rounded(finding.whatif_step_ns),
        "summary": finding.summary,
        "layers": list(finding.layers),
        "lost_ratio": finding.lost_ratio,
        "gain_ns_per_step": rounded(finding.gain_ns_per_step),
        "recovers_ns_per_step": rounded(finding.recovers_ns_per_step),
    }
    if parts := _parts(finding):
        body["parts"] = parts
    if finding.spare_bytes is not None:
        body["spare_bytes"] = finding.spare_bytes
    if finding.cost_ns_in_window is not None:
        body["cost_ns_in_window"] = rounded(finding.cost_ns_in_window)
    return body


def _parts(finding: Finding) -> list[doc.FindingPart]:
    """Return the work that a finding claims, by class and layer."""
    excess: dict[tuple[Class, str | None], float] = {}
    for part in finding.claimed:
        if part.category not in IDLE_CLASSES:
            key = part.category, part.layer
            excess[key] = excess.get(key, 0.0) + part.excess_ns
    ordered = sorted(excess, key=lambda key: -excess[key])
    return [{"class": category, "layer": layer} for category, layer in ordered]


def remedy_of(remedy: Remedy) -> doc.Remedy:
    body: doc.Remedy = {"text": remedy.text, "snippet": remedy.snippet or None}
    if remedy.larger_batch:
        body["larger_batch"] = True
    return {**body, "other_type": True} if remedy.other_type else body
