"""The causes that each rendering of a report names, in its order: all take rank and target from the same facts."""

from __future__ import annotations

import re
from typing import Any

from mpprof_dashboards import export
from mpprof_dashboards.pages import why

from mpprof.report import words
from tests.builders.read_back import brief, markdown, reading, text

why = reading(why)


def shown(document: Any) -> dict[str, list[str]]:
    """By rendering, the codes of the findings as they follow each other."""
    page = why.content(document)
    return {
        "document": [found["code"] for found in document["findings"]],
        "text": re.findall(r"^  (MP\d{3}) [a-z]\S*?(?=[: ])", text.render(document, width=400), re.M),
        "markdown": re.findall(r"^- \*\*(MP\d{3}) ", markdown.render(document), re.M),
        "html": re.findall(r'<article[^>]* data-code="(MP\d{3})"', export.render(page)),
        "page": _articles(page),
    }


def _articles(part: Any) -> list[str]:
    """The codes of the finding cards in a tree of Dash's components."""
    if isinstance(part, list | tuple):
        return [code for each in part for code in _articles(each)]
    code = getattr(part, "data-code", None)
    return [code] if code and part._type == "Article" else _articles(getattr(part, "children", None) or [])


def check(document: Any) -> None:
    """Assert that verdict, findings, plan and chart of every rendering name the causes of the facts, first
    things first, and that all state the same attainable speedup."""
    facts = document["facts"]
    causes = [cause["code"] for cause in facts["causes"]]
    by_rendering = shown(document)
    assert by_rendering["document"] == [found["code"] for found in document["findings"]]
    for codes in by_rendering.values():
        assert codes == by_rendering["document"]
        assert [code for code in codes if code in causes] == causes
    assert document["cause"] == document["answer"]["code"]
    assert document["verdict"] == document["answer"]["sentence"]
    assert document["explanation"] == document["answer"]["because"]
    gaining = [cause["code"] for cause in facts["causes"] if cause["gain_ns_per_step"] is not None]
    assert gaining == [step["code"] for step in (document["whatif"] or {"order": []})["order"]]
    listed = re.findall(r'<tr data-code="(MP\d{3})"', export.render(why.content(document)))
    others = [code for code in listed if code in causes and code != document["answer"]["code"]]
    assert [code for code in _to_mend(document, causes) if code in others] == others
    _check_screen(document, causes)
    if (attainable := facts["attainable"]) is not None and facts["observed"] is not None:
        beaten = facts["observed"] > attainable  # then it is no limit
        stated = (
            f"more than the {words.speedup(attainable)}"
            if beaten
            else f"attainable {words.speedup(attainable)}"
        )
        assert stated in text.render(document, width=400)
        assert stated in markdown.render(document)
        if not facts["unlike"]:
            assert f"about {words.speedup(attainable)}" in export.render(why.content(document))


def _to_mend(document: Any, causes: list[str]) -> list[str]:
    """The causes in the order in which they are to be mended: where nothing leads, that with most to gain first, which
    is the one that the answer's sentences name."""
    if document["answer"]["code"] is not None:
        return causes
    gains = {cause["code"]: cause["gain_ns_per_step"] or 0.0 for cause in document["facts"]["causes"]}
    return sorted(causes, key=lambda code: code != max(causes, key=gains.__getitem__))


def _check_screen(document: Any, causes: list[str]) -> None:
    """Assert that the report's default screen draws the causes in the order of the facts, and mends that of the
    answer first, then the others in the order of the facts (`_to_mend`)."""
    screen = brief.render(document, width=400)
    drawn, mended = re.findall(r"^  (MP\d{3}) ", screen, re.M), re.findall(r"^\d\. (MP\d{3})\b", screen, re.M)
    assert [code for code in causes if code in drawn] == drawn
    others = [code for code in mended if code in causes and code != document["answer"]["code"]]
    assert [code for code in _to_mend(document, causes) if code in others] == others
    gaining = [cause["code"] for cause in document["facts"]["causes"] if cause["gain_ns_per_step"]]
    assert drawn[:1] == gaining[: len(drawn[:1])]
    first = document["answer"]["code"]
    assert first is None or mended[:1] == [first] or not document["answer"]["do"]
