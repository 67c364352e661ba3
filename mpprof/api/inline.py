"""A run's report as one self-contained page, for a notebook's cell."""

from __future__ import annotations

from importlib import import_module
from pathlib import Path

from mpprof.analysis.steps.statistics import summarise
from mpprof.api import workflows
from mpprof.api.one_run import OneRun
from mpprof.report import content
from mpprof.report import json as documents


def page(path: str | Path) -> str:
    """Return the HTML that `mpprof report --format html` writes, of the run in this very directory.

    Raises MpprofError, or ImportError without plotly."""
    return _page(_of(path))


def ending(path: str | Path) -> tuple[dict[str, float | str], str]:
    """Return what sinks are given when a training has ended: figures and the verdict by name, only what is
    known, and the page. Raises as `page` does."""
    source = _of(path)
    document = source.document
    facts, steps, share = document.facts, document.steps, document.tensor_core
    answer = document.answer
    cause = content.finding(document, answer.code) if answer.code else None
    step_ns = facts.step_ns
    values = {
        "verdict": answer.sentence,
        "figure": content.head(answer) or None,
        "do": answer.do or None,
        "first_cause": f"{cause.code} {cause.slug}" if cause else None,
        "step_time_ms": step_ns / 1e6 if step_ns is not None else None,
        "examples_per_s": steps.examples_per_s if steps else None,
        "gpu_hours_per_epoch": steps.gpu_hours_per_epoch if steps else None,
        "skipped_ratio": steps.skipped_ratio if steps else None,
        "tensor_core_ratio": share.ratio if share else None,
        "after_remedies_ms": after / 1e6 if (after := facts.after_remedies_ns) is not None else None,
    }
    return {f"mpprof/{name}": value for name, value in values.items() if value is not None}, _page(source)


def step_times(path: str | Path) -> tuple[float | None, float | None]:
    """Return the median and the mean step of the run in this very directory, in ns, as its report states
    them; None where no step has a time. Raises MpprofError."""
    run = workflows.load_at(Path(path))
    steps = summarise(run.steps, run.facts, spans=run.spans, finished=run.finished)
    return (None, None) if steps is None else (steps.median_ns, steps.mean_ns)


def _of(path: str | Path) -> OneRun:
    mine = workflows.analyse(workflows.load_at(Path(path)))
    return OneRun(documents.report(workflows.judge(mine)), mine)


def _page(source: OneRun) -> str:
    export = import_module("mpprof_dashboards.export")
    html: str = export.run_html(source, *source.ids)
    return html
