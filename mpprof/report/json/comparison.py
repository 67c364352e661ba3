"""Two runs or more, `mpprof.compare/1`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, cast

from mpprof.model.finding import Comparison, Matching, Rung
from mpprof.model.outcome import Applied, Learning, LossPoint, Promises, RemedyOutcome
from mpprof.report.json import two_windows
from mpprof.report.json.report import answer_of, document
from mpprof.report.json.speedup import finding_of, gap_slices_of, profiled_of
from mpprof.report.json.values import from_to, interval, interval_ns, rounded, strict

if TYPE_CHECKING:
    from mpprof.model import document as doc

COMPARE_SCHEMA: Final = "mpprof.compare/1"


def compare_document(comparison: Comparison) -> doc.Comparison:
    """Return the comparison of several runs, schema `mpprof.compare/1`.

    `from` and `to` are rows of `runs`; a kernel's `step` is a row of `steps`.
    """
    body: doc.Comparison = {
        "schema": COMPARE_SCHEMA,
        "runs": [document(diagnosis) for diagnosis in comparison.runs],
        "steps": [_rung(rung) for rung in comparison.rungs],
        "kernels": [
            {
                "key": change.key,
                "by": change.by,
                "from_ns": rounded(change.from_ns),
                "to_ns": rounded(change.to_ns),
                "step": row,
            }
            for row, rung in enumerate(comparison.rungs)
            for change in rung.kernels
        ],
        "batches": [
            {
                "runs": list(found.runs),
                "batch_sizes": list(found.batch_sizes),
                "ns_per_example": [rounded(ns) for ns in found.ns_per_example],
                "spread_ratio": found.spread_ratio,
                "fixed_ns": rounded(found.fixed_ns),
                "utilization_ratio": found.utilization_ratio,
                "statements": list(found.statements),
            }
            for found in comparison.batches
        ],
    }
    return cast("doc.Comparison", strict(body))


def _rung(rung: Rung) -> doc.Rung:
    speedup = rung.speedup
    body: doc.Rung = {
        "from": rung.start,
        "to": rung.end,
        "observed": speedup.observed if speedup else None,
        "expected": speedup.expected if speedup else None,
        "interval": interval(speedup.interval) if speedup else None,
        "interval_wide": speedup.interval_wide if speedup else False,
        "slices": gap_slices_of(rung.slices),
        "findings": [finding_of(finding) for finding in rung.findings],
        "expected_with_host": speedup.expected_with_host if speedup else None,
        "ceiling": speedup.ceiling if speedup else None,
        "gap_ns": rounded(speedup.gap_ns) if speedup else None,
        "unexplained_ns": rounded(speedup.unexplained_ns) if speedup else None,
        "labels": list(rung.labels),
        "refused": rung.refused,
        "absent": _absent_of_rung(rung),
        "per_example": speedup.per_example if speedup else False,
        "examples_per_s": from_to(rung.examples_per_s),
        "lost_ns": rounded(speedup.lost_ns) if speedup else None,
        "gained_ns": rounded(speedup.gained_ns) if speedup else None,
        "above_attainable_ns": rounded(speedup.above_attainable_ns) if speedup else None,
        "cards": rung.cards,
        "answer": None if rung.answer is None else answer_of(rung.answer),
        "explanation": [] if rung.answer is None else list(rung.answer.because),
        "notes": list(rung.notes),
        "matching": None if rung.matching is None else _matching(rung.matching),
        "learning": None if rung.learning is None else _learning(rung.learning),
        "remedies": [_outcome(each) for each in rung.promises.outcomes] if rung.promises else [],
        "remedies_total": _remedies_total(rung.promises),
    }
    if speedup and speedup.difference is not None:
        body["difference"] = speedup.difference
    if speedup:
        body["profiled"] = profiled_of(speedup.profiled)
    if rung.windows is not None:
        body["windows"] = two_windows.windows_of(rung.windows)
    return body


def _absent_of_rung(rung: Rung) -> dict[str, str]:
    absent = dict(rung.speedup.absent or {}) if rung.speedup else {}
    found = rung.promises
    if found is None or found.refused:
        why = (found.refused if found else rung.refused) or "not compared"
        return absent | {"remedies": why, "remedies_total": why}
    return absent if found.predicted_ns else absent | {"remedies_total": "no remedy is seen in the later run"}


def _outcome(found: RemedyOutcome) -> doc.RemedyOutcome:
    return {
        "code": found.code,
        "slug": found.slug,
        "status": found.status,
        "cause_after": found.after,
        "evidence": list(found.evidence),
        "predicted_ns": [rounded(edge) for edge in found.predicted_ns],
        "obtained_ns": rounded(found.obtained_ns),
        "interval_ns": interval_ns(found.interval_ns),
        "reason": found.reason,
        "counted": found.counted,
    }


def _remedies_total(found: Promises | None) -> doc.RemediesTotal | None:
    if found is None or found.predicted_ns is None:
        return None
    return {
        "predicted_ns": [rounded(edge) for edge in found.predicted_ns],
        "obtained_ns": rounded(found.obtained_ns),
        "interval_ns": interval_ns(found.interval_ns),
    }


def _learning(found: Learning) -> doc.Learning:
    """Return the losses of both runs after as many updates, and why part of it is not known."""
    reason = found.reason or "the losses are not compared"
    absent = {
        field: reason
        for field, value in (
            ("window", found.window),
            ("loss", found.loss[0]),
            ("difference_ratio", found.difference_ratio),
            ("interval", found.interval),
        )
        if value is None
    }
    if found.verdict == "not finite":
        absent |= dict.fromkeys(absent, "one run's loss is not finite")
    for side, one in zip(("from", "to"), found.applied, strict=True):
        if one is None:
            absent[f"updates.{side}"] = "which updates were skipped is not on record"
    if found.per_update is None:
        unknown = None in found.applied
        absent["speedup_per_update"] = (
            "which updates were skipped is not on record"
            if unknown
            else "both runs have as many updates as steps, or there is no observed speedup: the value "
            "per step holds"
        )
    return {
        "verdict": found.verdict,
        "severity": found.severity,
        "text": found.text,
        "reason": found.reason,
        "window": interval(found.window),
        "stretches": found.stretches,
        "loss": from_to(found.loss),
        "difference_ratio": found.difference_ratio,
        "interval": interval(found.interval),
        "updates": {"from": _updates(found.applied[0]), "to": _updates(found.applied[1])},
        "speedup_per_update": found.per_update,
        "speedup_per_update_interval": interval(found.per_update_interval),
        "speedup_per_update_text": found.per_update_text,
        "curves": {"from": _points(found.curves[0]), "to": _points(found.curves[1])},
        "absent": absent,
    }


def _updates(applied: Applied | None) -> doc.Updates | None:
    if applied is None:
        return None
    return {"steps": applied.steps, "skipped": applied.skipped, "applied": applied.updates}


def _points(curve: tuple[LossPoint, ...]) -> list[doc.LossPoint]:
    return [{"updates": round(at, 3), "loss": loss} for at, loss in curve]


def _matching(matching: Matching) -> doc.Matching:
    """Return what parts of both runs were matched with each other; times are per step."""
    return {
        "by_op_ratio": from_to(matching.by_op_ratio),
        "by_layer_ratio": from_to(matching.by_layer_ratio),
        "only_from": [{"op": op, "ns_per_step": rounded(ns)} for op, ns in matching.only_from],
        "only_to": [{"op": op, "ns_per_step": rounded(ns)} for op, ns in matching.only_to],
        "unmatched_from": [{"layer": layer, "reason": why} for layer, why in matching.unmatched_from],
        "unmatched_to": [{"layer": layer, "reason": why} for layer, why in matching.unmatched_to],
    }
