"""What a training shows at its end: its card in a notebook's cell, and what sinks are given."""

from __future__ import annotations

import html
from importlib import import_module
from pathlib import Path
from typing import Any

from mpprof.analysis.steps.statistics import summarise
from mpprof.api import workflows
from mpprof.api.one_run import OneRun
from mpprof.report import content
from mpprof.report import json as documents

CARD = "mpprof_dashboards.export:card_html"
FRAME_PIXELS = 560


def card(path: str | Path) -> str:
    """Return what a notebook shows of the run in this very directory: the card of its diagnosis, in a frame.

    Raises MpprofError, or ImportError without the page's package."""
    return framed(documents.report(workflows.diagnose(workflows.load_at(Path(path)))))


def framed(document: Any) -> str:
    """Return the card of a report's document in a frame of its own, so that no style leaves it. Raises
    MpprofError or ImportError where it cannot be drawn."""
    module, _, name = CARD.partition(":")
    page = getattr(import_module(module), name)(document)
    return (
        f'<iframe sandbox style="width:100%;height:{FRAME_PIXELS}px;border:0" '
        f'srcdoc="{html.escape(page, quote=True)}"></iframe>'
    )


def ending(path: str | Path) -> tuple[dict[str, float | str], str]:
    """Return what sinks are given when a training has ended: figures and the verdict by name, only what is
    known, and the page. Raises as
    `card` does."""
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
    written: str = export.run_html(source, *source.ids)
    return written
