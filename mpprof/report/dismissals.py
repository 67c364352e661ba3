"""Findings that a bounds file dismisses, each with its reason: marked in the document, so that whatever is
made of it shows them as dismissed. Their times stay where they are: a dismissed cause still takes them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mpprof.model import document as doc


def applied(report: doc.Report, ignore: Mapping[str, str]) -> doc.Report:
    """Return the report with the findings of these codes (code to reason) dismissed."""
    return {**report, "findings": _marked(report["findings"], ignore)} if ignore else report


def applied_to_comparison(comparison: doc.Comparison, ignore: Mapping[str, str]) -> doc.Comparison:
    """Return the comparison with them dismissed in every run and between every two."""
    if not ignore:
        return comparison
    return {
        **comparison,
        "runs": [applied(report, ignore) for report in comparison["runs"]],
        "steps": [{**rung, "findings": _marked(rung["findings"], ignore)} for rung in comparison["steps"]],
    }


def _marked(findings: list[doc.Finding], ignore: Mapping[str, str]) -> list[doc.Finding]:
    return [
        _dismissed(found, ignore[found["code"]]) if found["code"] in ignore else found for found in findings
    ]


def _dismissed(found: doc.Finding, reason: str) -> doc.Finding:
    return {
        **found,
        "title": f"{found['title']} (dismissed)",
        "remedy": f"dismissed: {reason}",
        "remedies": [],
        "dismissed": reason,
    }
