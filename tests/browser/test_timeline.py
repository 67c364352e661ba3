"""The Timeline page in a real chromium: zooming, colours, searching, saving."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.api.source import LogDirectory
from mpprof.report import words
from tests.browser.visiting import MEASURED, VOCABULARY, Visit, visit
from tests.dashboards.fake_source import HOSTILE_KERNEL
from tests.paths import SAMPLES

pytestmark = pytest.mark.browser


def test_the_timeline_zooms_picks_and_keeps_its_window_in_the_link(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.page.goto(f"{sample_server}/timeline{MEASURED}")
    seen.page.wait_for_selector("#timeline[data-drawn] canvas")
    seen.page.wait_for_function("() => location.search.includes('t1=')")
    window = "() => { const q = new URLSearchParams(location.search); return +q.get('t1') - +q.get('t0'); }"
    whole = seen.page.evaluate(window)
    document = LogDirectory(SAMPLES).timeline("v100-input-bound-mixed-float16")
    assert whole == document["to_ns"] - document["from_ns"]
    drawn = seen.page.get_attribute("#timeline", "data-drawn")
    seen.page.focus("#timeline")
    seen.page.keyboard.press("w")
    seen.page.wait_for_function("was => document.querySelector('#timeline').dataset.drawn !== was", arg=drawn)
    assert seen.page.evaluate(window) < 0.8 * whole
    box = seen.page.locator("#timeline canvas").bounding_box()
    seen.page.mouse.click(box["x"] + 0.93 * box["width"], box["y"] + 40)
    seen.page.wait_for_selector("#tl-panel .mp-panel-row")
    kernel = seen.page.inner_text("#tl-panel .mp-panel-title")
    assert "ran on" in seen.page.inner_text("#tl-panel")
    link = seen.page.url
    assert "kernel=" in link
    again = visit(chromium, sample_server)
    again.page.goto(link)
    again.page.wait_for_selector("#tl-panel .mp-panel-row")
    assert again.page.inner_text("#tl-panel .mp-panel-title") == kernel
    again.page.wait_for_selector("#timeline[data-drawn]")
    assert again.page.evaluate(window) == seen.page.evaluate(window)
    again.page.fill("#tl-find", "MemcpyH2D")
    again.page.wait_for_function(
        "() => /^[1-9]\\d* found/.test(document.querySelector('#tl-found').textContent)"
    )
    again.assert_quiet()
    seen.assert_quiet()


def _timeline(seen: Visit, query: str) -> None:
    seen.page.goto(f"{seen.base}/timeline{query}")
    seen.page.wait_for_selector("#timeline[data-drawn] canvas")


def test_a_click_moves_nothing_and_what_lies_between_two_points_is_measured(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    _timeline(seen, MEASURED)
    seen.page.wait_for_selector("#timeline[data-base]")  # which has a lane of its own
    canvas = seen.page.locator("#timeline canvas")
    box = canvas.bounding_box()
    right = box["x"] + 0.93 * box["width"]
    seen.page.mouse.click(right, box["y"] + 60)
    seen.page.wait_for_selector("#tl-panel .mp-panel-row")
    assert canvas.bounding_box() == box
    details = seen.page.locator("#tl-panel").bounding_box()
    assert details["y"] >= box["y"] + 60  # below what was clicked
    window = "() => { const q = new URLSearchParams(location.search); return [+q.get('t0'), +q.get('t1')]; }"
    begin, end = seen.page.evaluate(window)
    seen.page.keyboard.down("Shift")
    seen.page.mouse.move(right - 200, box["y"] + 60)
    seen.page.mouse.down()
    seen.page.mouse.move(right - 100, box["y"] + 60)
    seen.page.mouse.up()
    seen.page.keyboard.up("Shift")
    said = seen.page.text_content("#tl-span")
    lanes = 118 / box["width"]  # at least: the names of the lanes
    most = 100 / box["width"] / (1 - lanes) * (end - begin)
    assert 0.5 * most < _ns(said.removeprefix("between the marks: ")) <= 1.3 * most
    assert canvas.bounding_box() == box
    assert seen.page.evaluate(window) == [begin, end]  # nothing was dragged along
    seen.page.keyboard.press("Escape")
    assert seen.page.text_content("#tl-span") == ""
    seen.assert_quiet()


def _ns(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"ns": 1, "\u00b5s": 1e3, "ms": 1e6, "s": 1e9}[unit]


def test_a_baseline_that_ends_beyond_the_step_says_where(chromium: Any, sample_server: str) -> None:
    base = LogDirectory(SAMPLES).timeline("v100-convnet-float32")
    step = base["steps"][base["step"]]
    seen = visit(chromium, sample_server)
    _timeline(seen, "?run=v100-convnet-mixed-float16&baseline=v100-convnet-float32")
    beyond = "said => document.querySelector('#timeline').dataset.beyond === said"
    seen.page.wait_for_function(beyond, arg=words.duration(step["end_ns"] - step["start_ns"]))
    seen.page.click("#tl-all")
    seen.page.wait_for_function(beyond, arg="")
    seen.assert_quiet()


def test_the_strip_above_leads_to_any_step(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    _timeline(seen, MEASURED)
    begins = "() => +new URLSearchParams(location.search).get('t0')"
    seen.page.wait_for_function(f"() => ({begins})() > 0")
    box = seen.page.locator("#timeline canvas").bounding_box()
    left = seen.page.evaluate("() => document.querySelector('#timeline canvas').clientWidth * 0.18")
    seen.page.mouse.click(box["x"] + left + 1, box["y"] + 5)
    first = LogDirectory(SAMPLES).timeline("v100-input-bound-mixed-float16")["steps"][0]
    seen.page.wait_for_function(f"end => ({begins})() < end", arg=first["end_ns"])
    seen.assert_quiet()


def test_the_timeline_is_coloured_by_what_is_asked_for(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    _timeline(seen, VOCABULARY)
    expected = {
        "precision": {"fp16 on Tensor Cores", "fp16 on Ordinary cores", "other work"},
        "layer": {"logits", "block_0/up", "no layer", "other layers"},
        "class": {"Matrix work", "Normalisation", "Optimizer"},
    }
    for by, names in expected.items():
        drawn = seen.page.get_attribute("#timeline", "data-drawn")
        seen.page.select_option("#tl-colour", by)
        seen.page.wait_for_function(
            "was => document.querySelector('#timeline').dataset.drawn !== was", arg=drawn
        )
        assert names <= set(seen.page.locator("#tl-legend li").all_inner_texts())
        assert f"colour={by}" in seen.page.url
    again = visit(chromium, sample_server)
    again.page.goto(seen.page.url)
    again.page.wait_for_selector("#timeline[data-drawn]")
    assert again.page.input_value("#tl-colour") == "class"
    seen.page.select_option("#tl-colour", "placement")
    seen.page.wait_for_function("() => !location.search.includes('colour=')")
    assert "matrix work off Tensor Cores" in seen.page.locator("#tl-legend li").all_inner_texts()
    again.assert_quiet()
    seen.assert_quiet()


def test_the_timeline_is_searched_and_walked_by_keys(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    _timeline(seen, VOCABULARY)
    run = "v100-odd-vocabulary-mixed-float16"
    source = LogDirectory(SAMPLES)
    everywhere = source.timeline(run, from_ns=0, to_ns=10**12, width=4000, search="logits/")
    seen.page.focus("#timeline")
    seen.page.keyboard.press("/")
    seen.page.keyboard.type("logits/")
    seen.page.wait_for_function(
        "n => document.querySelector('#tl-found')?.textContent === `${n} found`", arg=everywhere["found"]
    )
    title = "() => document.querySelector('#tl-panel .mp-panel-title')?.textContent"
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_function(f"() => ({title})()")
    assert "logits" in seen.page.inner_text("#tl-panel")
    first = seen.page.url
    seen.page.focus("#timeline")
    seen.page.keyboard.press("n")
    seen.page.wait_for_function("was => location.href !== was", arg=first)
    seen.page.keyboard.press("p")
    seen.page.wait_for_function("was => location.href === was", arg=first)
    seen.page.keyboard.press("p")  # before the first of the window: the window follows
    seen.page.wait_for_function("was => location.href !== was", arg=first)
    number = "() => +new URLSearchParams(location.search).get('kernel')"
    kernel = source.kernel(run, seen.page.evaluate(number))
    assert kernel["layer"] in ("logits", "logits_float")
    seen.assert_quiet()


def test_the_window_is_saved_for_perfetto(chromium: Any, sample_server: str, tmp_path: Path) -> None:
    seen = visit(chromium, sample_server)
    _timeline(seen, VOCABULARY)
    run = "v100-odd-vocabulary-mixed-float16"
    source = LogDirectory(SAMPLES)
    with seen.page.expect_download() as download:
        seen.page.click("#tl-save")
    saved = tmp_path / "trace.json"
    download.value.save_as(saved)
    events = json.loads(saved.read_text())["traceEvents"]
    shown = source.timeline(run, width=4000)
    device = shown["lanes"][0]
    kernels = [each for each in events if each.get("cat") == "kernel"]
    assert len(kernels) == sum(n for n, row in zip(device["count"], device["row"], strict=True) if row >= 0)
    off = [each["args"] for each in kernels if each["args"]["ran on"] == "cuda_core"]
    assert {args["layer"] for args in off} == {"logits"}
    assert all(args["because"] and args["shapes"] for args in off)
    named = {(each["pid"], each["tid"]) for each in events if each["name"] == "thread_name"}
    assert {(each["pid"], each["tid"]) for each in events if each["ph"] == "X"} <= named
    starts = {each["id"]: each["ts"] for each in events if each["ph"] == "s"}
    ends = {each["id"]: each["ts"] for each in events if each["ph"] == "f"}
    assert starts.keys() == ends.keys()
    assert all(starts[key] <= ends[key] for key in starts)
    seen.assert_quiet()


def test_a_hostile_kernel_name_is_text_on_the_timeline(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server)
    seen.page.goto(f"{fake_server}/timeline?run=mixed&baseline=none&kernel=7")
    seen.page.wait_for_selector("#tl-panel .mp-panel-row")
    assert seen.page.inner_text("#tl-panel .mp-panel-title") == HOSTILE_KERNEL
    assert seen.page.locator("#page b, a[href='x']").count() == 0
    assert "owned" not in seen.page.title()
    seen.open("/?run=mixed&baseline=fp32")
    assert seen.page.locator("#strip b").count() == 0
    seen.assert_quiet()
