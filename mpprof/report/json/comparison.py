"""Two runs or more, `mpprof.compare/1`."""

from __future__ import annotations

from dataclasses import replace

from mpprof.model.finding import Comparison, Rung
from mpprof.model.report import ComparedRuns
from mpprof.report.json import two_windows
from mpprof.report.json.report import report


def comparison(compared: Comparison) -> ComparedRuns:
    """Return the comparison of several runs, which text, markdown, page and JSON are made from."""
    return ComparedRuns(
        runs=tuple(map(report, compared.runs)),
        steps=tuple(map(_rung, compared.rungs)),
        kernels=tuple(
            replace(change, step=row) for row, rung in enumerate(compared.rungs) for change in rung.kernels
        ),
        batches=compared.batches,
    )


def _rung(rung: Rung) -> Rung:
    return rung if rung.windows is None else replace(rung, windows=two_windows.told(rung.windows))
