"""Findings that a bounds file dismisses, each with its reason: marked in the document, so that whatever is
made of it shows them as dismissed. Their times stay where they are: a dismissed cause still takes them."""

from __future__ import annotations

from collections.abc import Mapping

from mpprof.model.finding import Finding
from mpprof.model.frozen import changed
from mpprof.model.report import ComparedRuns, Report


def applied(report: Report, ignore: Mapping[str, str]) -> Report:
    """Return the report with the findings of these codes (code to reason) dismissed."""
    return changed(report, findings=_marked(report.findings, ignore)) if ignore else report


def applied_to_comparison(comparison: ComparedRuns, ignore: Mapping[str, str]) -> ComparedRuns:
    """Return the comparison with them dismissed in every run and between every two."""
    if not ignore:
        return comparison
    return changed(
        comparison,
        runs=tuple(applied(report, ignore) for report in comparison.runs),
        steps=tuple(changed(rung, findings=_marked(rung.findings, ignore)) for rung in comparison.steps),
    )


def _marked(findings: tuple[Finding, ...], ignore: Mapping[str, str]) -> tuple[Finding, ...]:
    return tuple(
        _dismissed(found, ignore[found.code]) if found.code in ignore else found for found in findings
    )


def _dismissed(found: Finding, reason: str) -> Finding:
    return changed(
        found,
        title=f"{found.title} (dismissed)",
        remedy=f"dismissed: {reason}",
        remedies=(),
        dismissed=reason,
    )
