"""Every place prints the one answer: of a run of each kind, the same figure, sentence and first change."""

from __future__ import annotations

import html
import re
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from mpprof_dashboards import report_html, runs
from mpprof_dashboards.pages import compare as compare_page
from mpprof_dashboards.pages import why

from mpprof.api import ladder, survey_row, workflows
from mpprof.report import json as documents
from mpprof.report.runs import survey
from tests import samples
from tests.builders.gpus import V100
from tests.builders.read_back import brief, brief_comparison, markdown, reading, text, typed
from tests.builders.records import Recorded, imagenette_convnet, write
from tests.builders.windows import serving
from tests.dashboards.test_compare_page import texts
from tests.paths import SAMPLES

report_html = reading(report_html)
compare_page = reading(compare_page)
why = reading(why)

Made = tuple[Any, Path, Path | None]
KINDS = ("measured", "estimated", "float32", "window", "cpu", "records", "incomparable")
_OF_SAMPLES = {
    "measured": ("v100-input-bound-mixed-float16", "v100-input-bound-float32"),
    "estimated": ("v100-float32-island", None),
    "float32": ("v100-convnet-float32", None),
    "cpu": ("recorded-cpu-mixed-float16", None),
    "incomparable": ("recorded-h100-transformer-padded-mixed-float16", "recorded-h100-transformer-float32"),
}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Made]:
    """A run of each kind: its report, its path, and that of its baseline."""

    @lru_cache
    def of(kind: str) -> Made:
        base = None
        if kind in _OF_SAMPLES:
            name, other = _OF_SAMPLES[kind]
            path, base = SAMPLES / name, SAMPLES / other if other else None
        elif kind == "window":
            path = serving().write(tmp_path_factory.mktemp("window") / "serving.pt.trace.json")
        else:
            records = Recorded("records", V100, "float16", imagenette_convnet("float16"), 32, 40.0)
            path = write(records, tmp_path_factory.mktemp("records"))
        return documents.document(workflows.diagnose(path, base)), path, base

    return of


def _row(document: Any, _path: Path, _base: Path | None) -> str:
    task = survey_row.Task("run", "run", None, "s")
    return survey.to_text([survey_row._row(task, typed(document), None)], width=None, limit=0)


def _summary(document: Any, _path: Path, _base: Path | None) -> str:
    source: Any = SimpleNamespace(
        surveyed=lambda *_: None, report=lambda *_: typed(document), steps=lambda *_: None
    )
    row = runs.summary(source, "run", None)
    return " ".join((row["figure"], row["label"], row["cause"], row["do"]))


def _compared(document: Any, path: Path, base: Path | None) -> Any | None:
    return None if base is None else documents.compare_document(ladder.compare([base, path]))


def _comparison(shown: Callable[[Any], str]) -> Callable[[Any, Path, Path | None], str | None]:
    def place(document: Any, path: Path, base: Path | None) -> str | None:
        found = _compared(document, path, base)
        return None if found is None else shown(found)

    return place


def _last_line(document: Any, path: Path, base: Path | None) -> str | None:
    """What the callback prints: it knows of no baseline, and of none but its own records."""
    return None if base is not None or not path.is_dir() else workflows.announce(path)


PLACES: dict[str, Callable[[Any, Path, Path | None], str | None]] = {
    "terminal": lambda document, *_: brief.render(document),
    "-v": lambda document, *_: text.render(document),
    "markdown": lambda document, *_: html.unescape(markdown.render(document).replace("\\", "")),
    "html": lambda document, *_: html.unescape(re.sub("<[^>]+>", " ", report_html(document))),
    "why": lambda document, *_: texts(why.content(document)),
    "notebook": lambda document, *_: texts(why.card(document)),
    "runs": _summary,
    "survey": _row,
    "compare": _comparison(brief_comparison.render),
    "compare -v": _comparison(text.render_comparison),
    "compare page": _comparison(lambda found: texts(compare_page.content(found))),
    "last line": _last_line,
}


def _plain(said: str) -> str:
    return re.sub(r"[`\s]+", "", said)


WITH_BASELINE = ("measured", "incomparable")
RECORDED = ("estimated", "float32", "cpu", "records")
CASES = [
    (kind, place)
    for kind in KINDS
    for place in PLACES
    if (not place.startswith("compare") or kind in WITH_BASELINE)
    and (place != "last line" or kind in RECORDED)
]


@pytest.mark.parametrize(("kind", "place"), CASES)
def test_a_place_prints_the_answer(kind: str, place: str, made: Callable[[str], Made]) -> None:
    document, path, base = made(kind)
    answer = document["answer"]
    assert answer["kind"] == kind
    shown = PLACES[place](document, path, base)
    assert shown is not None
    for said in (answer["figure"], answer["label"], answer["sentence"], answer["do"]):
        assert _plain(said) in _plain(shown)


def test_verdict_cause_and_explanation_are_the_answers(made: Callable[[str], Made]) -> None:
    for kind in KINDS:
        document, _, _ = made(kind)
        answer = document["answer"]
        assert document["verdict"] == answer["sentence"]
        assert document["cause"] == answer["code"]
        assert document["explanation"] == answer["because"]


@pytest.mark.parametrize("name", samples.NAMES)
def test_the_cause_that_leads_is_the_first_to_remedy(name: str) -> None:
    found = documents.document(samples.diagnosed(name))
    if found["answer"]["leads"] == "time":
        assert found["facts"]["causes"][0]["code"] == found["answer"]["code"]
