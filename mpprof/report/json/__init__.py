"""The report as a JSON document: schemas `mpprof.report/1` and `mpprof.compare/1`.

Text, markdown, HTML and the dashboard are all made from these documents, so whatever a person reads can
be read by a program too. Numbers are raw, in the unit that ends their name. What is not known is null,
with its reason in `absent` (a nested field by its path: "steps.skipped"). The documents are strict JSON:
non-finite numbers are the strings "NaN", "Infinity" and "-Infinity".

`model.document` holds the types of both; `report.schema.json` and `compare.schema.json` are made from them.
"""

from typing import Any

from mpprof.model.finding import Comparison, Diagnosis
from mpprof.report.json.comparison import comparison
from mpprof.report.json.report import accelerators_first, device_name, report
from mpprof.report.json.values import schema
from mpprof.report.to_json import dumps, to_json

__all__ = [
    "accelerators_first",
    "compare_document",
    "comparison",
    "device_name",
    "document",
    "dumps",
    "report",
    "schema",
]


def document(diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the report of one run as JSON, schema `mpprof.report/1`."""
    made: dict[str, Any] = to_json(report(diagnosis))
    return made


def compare_document(compared: Comparison) -> dict[str, Any]:
    """Return the comparison of several runs as JSON, schema `mpprof.compare/1`."""
    made: dict[str, Any] = to_json(comparison(compared))
    return made
