"""The flow of time: its lengths are the report's, its colours those of where the work was seen to run."""

from __future__ import annotations

import itertools
import re
import xml.etree.ElementTree as ET
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
from mpprof_dashboards import choice as choices
from mpprof_dashboards import export, theme
from mpprof_dashboards.drawings import flow, sparks, svg
from mpprof_dashboards.pages import why

from mpprof.model.account import CLASSES, SHOWN_AS
from mpprof.model.kernels import PLACEMENTS
from mpprof.report import words
from mpprof.report.content import time_slices, time_whole
from tests.dashboards.colour import ciede2000, least_distance
from tests.samples import NAMES, source

_SVG = "{http://www.w3.org/2000/svg}"


@lru_cache
def drawn(name: str) -> tuple[Any, Any, Any, Any]:
    """The report of a sample, the account of its baseline, its flow, and the drawing of it."""
    baseline = choices.default_baseline(name, source().entries())
    document = source().report(name, baseline)
    base = why.baseline_time(source(), document, baseline)
    found = flow.flow_of(document, base)
    return document, base, found, ET.fromstring(flow.draw(found, "Flow"))


def segments(drawing: Any, bar: str) -> list[tuple[str, float, str]]:
    """(kind, ns, fill) of the segments of a bar as it is drawn."""
    (group,) = [
        each
        for each in drawing.iter(f"{_SVG}g")
        if each.get("data-key") == bar and each.find(f"{_SVG}g") is not None
    ]
    parts = [each for each in group if each.get("data-kind")]
    return [
        (each.get("data-kind"), float(each.get("data-ns")), each.find(f"{_SVG}rect").get("fill"))
        for each in parts
    ]


def measured(slices: Any) -> dict[str, float]:
    """The share of the matrix time on units, off them and in places that are not known, by the account alone."""
    shares = next((part.by for part in slices if part.category == "matmul"), ())
    whole = sum(share.ns_per_step for share in shares)
    found = {"unit": 0.0, "off": 0.0}
    for share in shares:
        kind = {"tensor_core": "unit", "matrix_core": "unit", "cuda_core": "off", "cpu": "off"}.get(
            share.placement
        )
        if kind:
            found[kind] += share.ns_per_step / whole
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_coloured_mark_is_what_was_measured_there(name: str) -> None:
    document, base, found, drawing = drawn(name)
    accounts = {"step": document.time, "baseline": base}
    for bar in found.bars:
        shown = segments(drawing, bar.key)
        for kind, _, fill in shown:
            if bar.computed:
                assert fill == f"url(#mp-hatch-{kind})"
            else:
                assert fill == ("url(#mp-dots)" if kind in theme.DOTTED else theme.FLOW_COLOURS[kind])
        time = accounts.get(bar.key)
        if time is None or len(shown) == 1:
            continue
        slices = time_slices(time)
        matmul = next((part.ns_per_step for part in slices if part.category == "matmul"), 0.0)
        whole = bar.ns / (time_whole(time) if bar.key == "step" else document.facts.baseline_step_ns)
        for kind, ratio in measured(slices).items():
            ns = sum(each for role, each, _ in shown if role == kind)
            assert ns == pytest.approx(ratio * matmul * whole, rel=0.02, abs=1.0), (bar.key, kind)
        waits = sum(part.ns_per_step for part in slices if part.category.startswith("idle_"))
        assert sum(each for role, each, _ in shown if role == "wait") <= 1.001 * max(0.0, waits) + 1.0


@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        ("gtx1080ti-mixed-float16", {"off"}),  # it has no Tensor Cores
        ("v100-input-bound-mixed-float16", {"unit"}),  # and nothing is left off them
        ("recorded-h200-transformer-mixed-float16", set()),  # as long as the host needs: no class of its own
    ],
)
def test_precision_alone_puts_matrix_work_on_units_that_the_card_has(name: str, kinds: set[str]) -> None:
    _, _, _, drawing = drawn(name)
    shown = {kind: ns for kind, ns, _ in segments(drawing, "attainable")}
    assert {
        kind for kind in ("unit", "off", "open") if shown.get(kind, 0.0) > 0.01 * sum(shown.values())
    } == kinds


@pytest.mark.parametrize("name", NAMES)
def test_bars_are_as_long_as_the_report_says_and_nothing_is_invented(name: str) -> None:
    document, _, found, drawing = drawn(name)
    facts, bars = document.facts, {bar.key: bar.ns for bar in found.bars}
    time = document.time
    assert bars["step"] == pytest.approx(time_whole(time) if time else facts.step_ns)
    assert ("baseline" in bars) == (facts.baseline_step_ns is not None and not facts.unlike)
    if "baseline" in bars:
        assert bars["baseline"] == pytest.approx(facts.baseline_step_ns)
    assert ("attainable" in bars) == (facts.attainable_step_ns is not None and not facts.unlike)
    if "attainable" in bars:
        assert bars["attainable"] == pytest.approx(facts.attainable_step_ns)
    if "after" in bars:
        assert bars["after"] == pytest.approx(facts.after_remedies_ns)
    assert {bar.key for bar in found.bars if bar.computed} == set(bars) & {
        "attainable", "after", "attainable-low", "attainable-high"
    }  # fmt: skip
    assert bool(found.bands) <= ("baseline" in bars)
    ends = [
        float(each.get("data-ns")) for each in drawing.iter(f"{_SVG}g") if each.get("class") == "mp-flow-bar"
    ]
    assert ends == pytest.approx(list(bars.values()))


def test_bands_join_the_two_measured_bars_and_say_what_became_of_each() -> None:
    _, _, found, drawing = drawn("v100-input-bound-mixed-float16")
    said = {band.kind: band.said for band in found.bands if band.said}
    assert said["matmul"] == "matrix work 5.5x as fast"
    assert said["wait"] == "waiting for input +19.6 ms"
    assert said["cast"] == "casts new: +3.28 ms"
    assert said["norm"] == "norms same"
    for band in found.bands:
        assert 0.0 <= band.upper[0] <= band.upper[1] <= 1.0001 * found.bars[0].ns
        assert 0.0 <= band.lower[0] <= band.lower[1] <= 1.0001 * found.bars[1].ns
    text = " ".join(drawing.itertext())
    assert all(said[kind] in text for kind in ("matmul", "wait", "cast", "norm"))


def test_a_run_without_a_baseline_has_no_upper_bar_and_no_bands() -> None:
    document = source().report("v100-input-bound-mixed-float16", None)
    found = flow.flow_of(document)
    assert [bar.key for bar in found.bars] == ["step", "after"]
    assert found.bands == ()


def test_matrix_work_of_a_baseline_whose_placement_nothing_tells_is_dotted() -> None:
    document, *_ = drawn("v100-input-bound-mixed-float16")
    upper = flow.flow_of(document, None).bars[0]
    assert [part.kind for part in upper.segments][:1] == ["open"]
    assert upper.segments[0].name == "matrix work"


@pytest.mark.parametrize("name", NAMES)
def test_segments_of_a_bar_stand_end_to_end(name: str) -> None:
    *_, found, drawing = drawn(name)
    for group in drawing.iter(f"{_SVG}g"):
        if group.get("class") != "mp-flow-bar":
            continue
        at = 0.0
        for part in group.findall(f"{_SVG}g"):
            rect = part.find(f"{_SVG}rect")
            assert float(rect.get("x", "")[:-1]) == pytest.approx(100 * at / found.whole_ns, abs=0.001)
            at += float(part.get("data-ns", ""))
            width = 100 * float(part.get("data-ns", "")) / found.whole_ns
            assert float(rect.get("width", "")[:-1]) == pytest.approx(width, abs=0.09)
        assert at <= 1.0001 * found.whole_ns


def test_a_label_is_shown_only_from_a_width_on_at_which_it_fits() -> None:
    *_, drawing = drawn("v100-input-bound-mixed-float16")
    for group in drawing.iter(f"{_SVG}g"):
        rect = group.find(f"{_SVG}rect")
        if group.get("class") != "mp-flow-part" or rect is None:
            continue
        for label in group.findall(f"{_SVG}text"):
            (least,) = re.findall(r"mp-from-(\d+)", label.get("class") or "")
            assert svg.width_of(label.text or "") <= int(least) * float(rect.get("width")[:-1]) / 100 + 0.1


@pytest.mark.parametrize("name", NAMES)
def test_what_is_said_of_a_band_ends_within_a_narrow_card(name: str) -> None:
    *_, drawing = drawn(name)
    for label in drawing.iter(f"{_SVG}text"):
        look = label.get("class") or ""
        if "mp-said-" in look and (width := int(look.rpartition("-")[2])) < 760:
            middle = float((label.get("x") or "").rstrip("%")) / 100 * width
            assert middle + svg.width_of(label.text or "") / 2 <= width + 16, label.text


@pytest.mark.parametrize("name", NAMES)
def test_a_narrow_drawing_says_all_that_a_wide_one_says_of_its_last_bar(name: str) -> None:
    _, _, found, drawing = drawn(name)
    last = found.bars[-1]
    (above,) = [each for each in drawing.iter(f"{_SVG}text") if each.get("data-of") == last.key]
    (tail,) = [each for each in drawing.iter(f"{_SVG}text") if "mp-flow-tail" in (each.get("class") or "")]
    told = "; ".join(filter(None, (above.text, tail.text)))
    assert not last.computed or told == words.joined((last.name, words.duration(last.ns), last.said))


def test_a_speedup_beside_a_profiled_step_says_what_it_is_of() -> None:
    _, _, found, _ = drawn("recorded-cpu-mixed-float16")
    bars = {bar.key: (words.duration(bar.ns), bar.said) for bar in found.bars}
    assert bars["unprofiled"] == ("7.07 ms", "0.46x")
    assert bars["step"] == ("10.1 ms", "")


def test_waits_are_named_by_the_one_that_grew_as_the_answer_names_it() -> None:
    document, _, found, _ = drawn("v100-input-bound-mixed-float16")
    assert "waiting for input grew by 19.6 ms" in " ".join(document.answer.because)
    assert "waiting for input +19.6 ms" in [band.said for band in found.bands]
    (alone,) = [bar for bar in found.bars if bar.key == "attainable"]
    assert alone.said == "about 1.74x; its waits as in float32"
    _, _, several, _ = drawn("recorded-h200-transformer-mixed-float16")
    assert [band.said for band in several.bands if band.kind == "wait"] == ["waits +16.1 ms"]


def test_words_of_what_became_of_work() -> None:
    assert words.became(0.0, 3.3e6) == "new: +3.30 ms"
    assert words.became(8.1e6, 8.2e6, "norms") == "norms same"
    assert words.became(5e6, 2e6) == "−3.00 ms"
    assert words.became(5e6, 10e6, "matrix work", as_times=True) == "matrix work 0.5x as fast"
    assert words.after_changes(2.0, 2.0, "float32", 1) == "about 2.00x"
    assert words.after_changes(2.0, 1.5, "float32", 1).endswith(
        "about 1.50x over float32 with the same change"
    )


# --- colours -----------------------------------------------------------------------------------------------


def test_the_distance_of_colours_is_that_of_the_published_pairs() -> None:
    """Sharma, Wu and Dalal 2005, table 1."""
    for first, second, distance in (
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
    ):
        assert ciede2000(first, second) == pytest.approx(distance, abs=1e-4)


def test_classes_that_can_touch_are_told_apart_by_colour_blind_readers() -> None:
    solid = {
        kind: colour
        for kind, colour in theme.FLOW_COLOURS.items()
        if kind not in (*theme.DOTTED, "plain", "skip")
    }
    for (one, first), (other, second) in itertools.combinations(solid.items(), 2):
        assert least_distance(first, second) >= 10.0, (one, other)
    assert least_distance(theme.FLOW_COLOURS["plain"], theme.FLOW_COLOURS["skip"]) >= 10.0


def test_what_can_touch_in_the_strip_is_told_apart_by_colour_blind_readers() -> None:
    """Of the device and of the host: what is unknown is hatched, and what the host does while others work outlined."""
    host = {"input", "pipeline", "launch", "sync", "compile", "op", "host"}
    for lane in (host, set(theme.LANE_COLOURS) - host):
        drawn = {theme.LANE_COLOURS[key] for key in lane - theme.QUIET_LANES - {"unknown"}}
        for first, second in itertools.combinations(sorted(drawn), 2):
            assert least_distance(first, second) >= 10.0, (first, second)


def test_every_class_and_placement_has_a_colour_and_what_is_pale_an_outline() -> None:
    assert set(SHOWN_AS) | {"matmul"} == set(CLASSES)
    assert set(theme.FLOW_PLACES) == {*PLACEMENTS, ""}
    assert {*SHOWN_AS.values(), *theme.FLOW_PLACES.values()} <= set(theme.FLOW_COLOURS)
    for kind, colour in theme.FLOW_COLOURS.items():
        for ground in ("#FFFFFF", "#191F27"):
            contrast = [_contrast(each, ground) for each in (colour, theme.FLOW_EDGES.get(kind, colour))]
            assert max(contrast) >= 3.0, (kind, ground)
    for kind in ("unit", "off", "norm", "reduce", "elementwise"):  # seen by themselves on either page
        assert min(_contrast(theme.FLOW_COLOURS[kind], each) for each in ("#FFFFFF", "#191F27")) >= 3.0, kind


def _contrast(one: str, other: str) -> float:
    low, high = sorted((theme.luminance(one), theme.luminance(other)))
    return (high + 0.05) / (low + 0.05)


# --- curves and documents ----------------------------------------------------------------------------------


def test_a_curve_keeps_extremes_and_says_nothing_of_gaps() -> None:
    at = np.arange(1.0, 10_001.0)
    values = np.full(10_000, 5e6)
    values[7000] = 4e6
    values[100:200] = np.nan
    drawing = ET.fromstring(sparks.draw(sparks.Curve("step", "10,000 steps", at, values)))
    paths = {each.get("class"): each.get("d") or "" for each in drawing.iter(f"{_SVG}path")}
    for path in paths.values():
        lines = [
            [point.split() for point in re.findall(r"[\d.]+ [\d.]+", line)] for line in path.split("M")[1:]
        ]
        ends = [(min(steps), max(steps)) for line in lines if (steps := [float(x) for x, _ in line])]
        assert len(ends) == 2  # nothing is joined across the steps 101 to 200
        assert ends[0][1] < 10.0 < 20.0 <= ends[1][0]
    heights = {float(y) for y in re.findall(r"[\d.]+ ([\d.]+)", paths["mp-curve-band"])}
    assert len(heights) == 2
    lone = np.array([5e6, np.nan, 5e6, np.nan, np.nan, 5e6, 5e6])
    assert sparks.draw(sparks.Curve("x", "", at[:7], lone)).count("h0") == 2  # a dot each
    assert sparks.draw(sparks.Curve("x", "", at[:1], values[:1])) == ""
    assert sparks.draw(sparks.Curve("x", "", at, np.full(10_000, np.nan))) == ""


def test_skipped_updates_are_ticks_on_a_rail_below_the_loss_scale() -> None:
    at = np.arange(1.0, 9.0)
    scale = np.array([8.0, 8, 4, 4, 2, 2, 2, 4])
    drawing = ET.fromstring(
        sparks.draw(sparks.Curve("scale", "", at, scale, stairs=True, ticks=[3.0, 5.0], log=True))
    )
    (ticks,) = [each for each in drawing if each.get("class") == "mp-curve-ticks"]
    assert (ticks.get("d") or "").count("M") == 2


@pytest.mark.parametrize(
    "name", ["v100-input-bound-mixed-float16", "recorded-h100-transformer-mixed-float16"]
)
def test_a_document_is_small_has_no_plotly_and_the_flow(name: str) -> None:
    baseline = choices.default_baseline(name, source().entries())
    text = export.run_html(source(), name, baseline)
    assert len(text.encode()) < 600_000
    assert "plotly" not in text.lower()
    for part in (
        'id="flow"',
        'id="whatif"',
        'id="strip"',
        'id="run-curves"',
        'id="layers-run"',
        'id="kernels"',
    ):
        assert part in text, part
    card = export.card_html(source().report(name, baseline))
    assert len(card.encode()) < 60_000
    assert 'id="flow"' in card
    assert "<script" not in card


def test_a_document_s_style_holds_what_is_in_it_and_no_more() -> None:
    card = export.card_html(source().report("v100-input-bound-mixed-float16", None))
    style = card[card.index("<style>") : card.index("</style>")]
    assert style.count("{") == style.count("}")
    assert ".mp-flow{" in style
    assert ".mp-page{" in style or ".mp-page," in style
    assert "mp-runs" not in style
    assert "@media print" in style


@pytest.mark.parametrize("name", NAMES)
def test_letters_on_hatching_and_dots_stand_on_a_ground_of_their_own(name: str) -> None:
    *_, drawing = drawn(name)
    grounds = {f"url(#{each.get('id')})" for each in drawing.iter(f"{_SVG}filter") if len(each) == 2}
    parts = [each for each in drawing.iter(f"{_SVG}g") if each.get("class") == "mp-flow-part"]
    assert parts
    for part in parts:
        textured = part.find(f"{_SVG}rect").get("fill").startswith("url(")
        for label in part.iter(f"{_SVG}text"):
            assert (label.get("filter") in grounds) == textured
