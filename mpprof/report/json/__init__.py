"""The report as a JSON document: schemas `mpprof.report/1` and `mpprof.compare/1`.

Text, markdown, HTML and the dashboard are all made from these documents, so whatever a person reads can
be read by a program too. Numbers are raw, in the unit that ends their name. What is not known is null,
with its reason in `absent` (a nested field by its path: "steps.skipped"). The documents are strict JSON:
non-finite numbers are the strings "NaN", "Infinity" and "-Infinity".

The types are the model's own: `model.report` has the top of both documents. What stands here is what a report
composes of a judgement: the views of an account, the facts of its verdict, a reason for each null.
"""

import json
from dataclasses import replace
from typing import Any

from mpprof.model.finding import Comparison, Diagnosis, Rung
from mpprof.model.report import ComparedRuns
from mpprof.report.json.report import accelerators_first, device_name, report
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


def comparison(compared: Comparison) -> ComparedRuns:
    """Return the comparison of several runs, which text, markdown, page and JSON are made from."""
    return ComparedRuns(
        runs=tuple(map(report, compared.runs)),
        steps=tuple(map(_told, compared.rungs)),
        kernels=tuple(
            replace(change, step=row) for row, rung in enumerate(compared.rungs) for change in rung.kernels
        ),
        batches=compared.batches,
    )


def _told(rung: Rung) -> Rung:
    if rung.windows is None:
        return rung
    from mpprof.report.two_windows import told  # seldom needed

    return replace(rung, windows=told(rung.windows))


def compare_document(compared: Comparison) -> dict[str, Any]:
    """Return the comparison of several runs as JSON, schema `mpprof.compare/1`."""
    made: dict[str, Any] = to_json(comparison(compared))
    return made


def schema(name: str) -> dict[str, Any]:
    """Return the JSON Schema of "report" or "compare", as shipped."""
    from importlib import resources  # not needed to write a report

    text = resources.files("mpprof.report").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    return json.loads(text)  # type: ignore[no-any-return]
