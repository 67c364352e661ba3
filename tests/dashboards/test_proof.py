"""The proof of the first cause: which one it is, and that it is drawn from what was measured."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from mpprof_dashboards import choice as choices
from mpprof_dashboards import export, theme
from mpprof_dashboards.components import proof as shown
from mpprof_dashboards.drawings import proof, sparks
from mpprof_dashboards.figures.memory import Part

from mpprof.api.source import LogDirectory
from mpprof.model.frozen import changed
from tests.paths import SAMPLES

CHOSEN = {
    "v100-input-bound-mixed-float16": "strip",
    "v100-loss-scale-thrash": "rail",
    "v100-odd-vocabulary-mixed-float16": "roofline",
    "v100-float32-island": "roofline",
    "gtx1080ti-mixed-float16": "roofline",
    "recorded-h100-convnet-mixed-float16": "strip",
}


@lru_cache
def source() -> LogDirectory:
    return LogDirectory(SAMPLES)


def report(name: str) -> Any:
    return source().report(name, choices.default_baseline(name, source().entries()))


@pytest.mark.parametrize(("name", "kind"), CHOSEN.items())
def test_the_first_cause_chooses_the_proof(name: str, kind: str) -> None:
    assert proof.kind_of(report(name)) == kind


def test_memory_that_leads_is_proved_by_the_memory() -> None:
    document = report("v100-input-bound-mixed-float16")
    for answer in (
        changed(document.answer, leads="memory", code="MP303"),
        changed(document.answer, leads="time", code="MP604"),
    ):
        assert proof.kind_of(changed(document, answer=answer)) == "staircase"


@pytest.mark.parametrize("name", ["v100-odd-vocabulary-mixed-float16", "v100-loss-scale-thrash"])
def test_page_and_document_show_the_same_proof(name: str) -> None:
    document = report(name)
    given = shown.material(source(), name, document)
    page = export.render(shown.sections(document, given, "?run=x"))
    file = export.run_html(source(), name, choices.default_baseline(name, source().entries()))
    drawing = page[
        page.index('class="mp-proof ') : page.index("</svg></div>", page.index('class="mp-proof '))
    ]
    assert drawing in file
    assert page.index('id="proof"') < page.index('id="strip"')


def test_a_proof_without_its_data_is_the_step() -> None:
    document = report("v100-odd-vocabulary-mixed-float16")
    given = shown.material(source(), "v100-odd-vocabulary-mixed-float16", document)
    assert 'id="proof"' in export.render(shown.sections(document, given, ""))
    left = export.render(shown.sections(document, changed(given, roofs=None), ""))
    assert 'id="proof"' not in left
    assert 'id="strip"' in left
    assert shown.sections(document, shown.Material(), "") == []


def test_dots_have_the_colour_of_where_they_ran_and_name_the_longest_of_the_cause() -> None:
    name = "v100-odd-vocabulary-mixed-float16"
    given = shown.material(source(), name, report(name))
    legend = export.render(shown.sections(report(name), given, ""))
    for kind in {dot.kind for dot in given.dots} & set(theme.KIND_WORDS):
        said = f'style="background-color: {theme.KIND_COLOURS[kind]}"></span>{theme.KIND_WORDS[kind]}'
        assert said in legend
    drawing = ET.fromstring(proof.roofline(given.dots, given.roofs))
    dots = [each for each in drawing.iter() if each.tag.endswith("circle")]
    assert {each.get("fill") for each in dots} >= {theme.KIND_COLOURS["off"]}
    assert all(each.get("fill") == theme.KIND_COLOURS[each.get("data-kind")] for each in dots)
    firsts = [dot for dot in given.dots if dot.first]
    assert sum(each.get("data-first") == "1" for each in dots) == len(firsts)
    assert max(firsts, key=lambda dot: dot.ns).name[-20:] in "".join(drawing.itertext())


def test_ordinary_arithmetic_has_the_roof_of_the_type_that_a_dot_computes_in() -> None:
    name = "v100-odd-vocabulary-mixed-float16"
    given = shown.material(source(), name, report(name))
    drawing = proof.roofline(given.dots, given.roofs)
    assert "fp16, ordinary 31.4 TFLOP/s" in drawing
    assert "11.0 TFLOP/s of 125 TFLOP/s, 35.0 % of 31.4<" in drawing
    name = "gtx1080ti-mixed-float16"  # whose fp16 arithmetic is slower than what its dots reached
    given = shown.material(source(), name, report(name))
    assert "fp16, ordinary" not in proof.roofline(given.dots, given.roofs)


def test_no_dot_is_drawn_above_the_roof_that_it_is_below() -> None:
    roofs: Any = {
        "card": "x",
        "flops_per_s": {"fp16": 1e14, "fp32_cuda": 1e13},
        "bandwidth_bytes_per_s": 1e12,
    }
    dot = proof.Dot("a", 50.0, 1e12, 1e6, "off", first=True)
    drawing = ET.fromstring(proof.roofline([dot], roofs))
    (gap,) = [each for each in drawing.iter() if each.get("class") == "mp-proof-gap"]
    (drawn,) = [each for each in drawing.iter() if each.tag.endswith("circle")]
    assert float(gap.get("y1", 0)) < float(drawn.get("cy", 0))
    assert proof.roof_at(roofs, 50.0) == 5e13
    assert proof.roof_at(roofs, 5e3) == 1e14
    assert proof.roofline([dot], None) == ""
    assert proof.roofline([changed(dot, first=False)], roofs) == ""


def test_the_rail_marks_skips_and_losses_that_are_not_finite() -> None:
    at, scale = np.arange(1.0, 101.0), np.where(np.arange(100) < 50, 2.0**15, 2.0**9)
    curve = sparks.Curve("scale", "", at, scale, stairs=True, ticks=[50.0, 51.0, 60.0], log=True)
    drawing = ET.fromstring(proof.rail(curve, [70.0]))
    marks = {each.get("class"): (each.get("d") or "").count("M") for each in drawing.iter() if each.get("d")}
    assert marks["mp-curve-ticks"] == 3
    assert marks["mp-proof-broken"] == 1
    assert "2^15" in "".join(drawing.itertext())
    assert proof.rail(None) == ""


def test_the_staircase_stacks_what_was_live_and_hatches_what_is_estimated() -> None:
    name = "recorded-h100-transformer-mixed-float16"
    document = changed(report(name), answer=changed(report(name).answer, leads="memory", code="MP604"))
    given = shown.material(source(), name, document)
    text = export.render(shown.sections(document, given, ""))
    assert "peak 1.63 GiB" in text
    assert "(estimated)" in text
    assert 'fill="url(#mp-proof-hatch)"' in text
    assert proof.staircase((0, 10), ()) == ""


def test_the_staircase_shows_the_allocation_that_failed_on_what_was_held_below_the_limit() -> None:
    part = Part("activations", (200, 400), "#117A71")
    text = proof.staircase((0, 10), (part,), proof.Failure(asked=3 << 30, held=1 << 30, limit=8 << 30))
    drawn = {each.get("data-part"): each for each in ET.fromstring(text).iter() if each.get("data-part")}
    asked, held = drawn["asked"], drawn["held"]
    assert float(asked.attrib["height"]) == pytest.approx(3 * float(held.attrib["height"]), abs=0.1)
    assert float(asked.attrib["y"]) + float(asked.attrib["height"]) == pytest.approx(float(held.attrib["y"]))
    assert "asked 3.00 GiB" in text
    assert "limit 8.00 GiB" in text
    assert "mp-proof-limit" not in proof.staircase((0, 10), (part,))
