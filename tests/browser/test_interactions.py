"""What a reader does on a page beside opening it: steps, wheel and drag, tabs and rows, what is compared, paper."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
from mpprof_dashboards import rows, work

from mpprof.api.source import LogDirectory
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.browser.visiting import MEASURED, VOCABULARY, Visit, visit
from tests.builders.read_back import reading
from tests.paths import SAMPLES

work = reading(work)

pytestmark = pytest.mark.browser
INPUT_BOUND, ITS_BASELINE = "v100-input-bound-mixed-float16", "v100-input-bound-float32"
_WINDOW = """() => { const q = new URLSearchParams(location.search); return [+q.get('t0'), +q.get('t1')]; }"""


def drawn_anew(seen: Visit, act: Any) -> list[float]:
    """Does something to the timeline, waits until its window is another one, and returns that."""
    was = seen.page.evaluate(_WINDOW)
    act()
    seen.page.wait_for_function(f"was => String(({_WINDOW})()) !== String(was)", arg=was)
    return list(seen.page.evaluate(_WINDOW))


def test_the_timeline_shows_any_step_all_of_them_and_the_baseline_below(
    chromium: Any, sample_server: str
) -> None:
    known = LogDirectory(SAMPLES).timeline(INPUT_BOUND)
    seen = visit(chromium, sample_server)
    with seen.page.expect_response(
        lambda answer: f"/timeline.json?run={ITS_BASELINE}" in answer.url
    ) as below:
        seen.page.goto(f"{sample_server}/timeline{MEASURED}")
    assert below.value.status == 200
    seen.page.wait_for_function("() => location.search.includes('t1=')")
    steps = known["steps"]
    assert seen.page.eval_on_selector("#tl-step optgroup", "g => g.children.length") == len(
        {known["median"], known["slowest"]}
    )
    other = next(row for row in range(len(steps)) if row != known["step"])
    shown = drawn_anew(seen, lambda: seen.page.select_option("#tl-step", str(other)))
    assert shown == [steps[other]["start_ns"], steps[other]["end_ns"]]
    seen.page.reload()
    seen.page.wait_for_selector("#timeline[data-drawn]")
    assert seen.page.input_value("#tl-step") == str(other)
    assert seen.page.evaluate(_WINDOW) == shown
    assert drawn_anew(seen, lambda: seen.page.click("#tl-all")) == [0, steps[-1]["end_ns"]]
    seen.page.wait_for_selector("#timeline[data-drawn]")
    middle = seen.page.input_value("#tl-step")  # the step in the middle of what is shown
    whole = drawn_anew(seen, lambda: seen.page.click("#tl-whole"))
    assert whole == [steps[int(middle)]["start_ns"], steps[int(middle)]["end_ns"]]
    seen.assert_quiet()


def test_the_timeline_is_zoomed_by_the_wheel_and_moved_by_dragging(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.page.goto(f"{sample_server}/timeline{VOCABULARY}")
    seen.page.wait_for_function("() => location.search.includes('t1=')")
    from_ns, to_ns = seen.page.evaluate(_WINDOW)
    box = seen.page.locator("#timeline canvas").bounding_box()
    x, y = box["x"] + 0.6 * box["width"], box["y"] + 45
    seen.page.mouse.move(x, y)
    near = drawn_anew(seen, lambda: seen.page.mouse.wheel(0, -200))
    assert from_ns < near[0] < near[1] < to_ns
    seen.page.wait_for_load_state("networkidle")
    near = seen.page.evaluate(_WINDOW)
    seen.drag((x, y), (x - 60, y))
    seen.page.wait_for_function(f"was => ({_WINDOW})()[0] > was", arg=near[0])
    moved = seen.page.evaluate(_WINDOW)
    assert moved[1] - moved[0] == pytest.approx(near[1] - near[0], rel=1e-3)
    assert seen.page.locator("#tl-panel .mp-panel-title").count() == 0  # a drag is no click
    seen.assert_quiet()


def test_the_timeline_says_where_the_device_waits_and_shows_the_longest_wait(
    chromium: Any, sample_server: str
) -> None:
    known = LogDirectory(SAMPLES).timeline(INPUT_BOUND)
    waits, step = known["waits"], known["steps"][known["step"]]
    seen = visit(chromium, sample_server)
    seen.page.goto(f"{sample_server}/timeline{MEASURED}")
    seen.page.wait_for_selector("#tl-waits .mp-wait")
    shown = seen.page.eval_on_selector_all(
        "#tl-waits .mp-wait", "all => all.map(e => [e.dataset.key, +e.dataset.ns])"
    )
    assert shown == [[wait["key"], wait["total_ns"]] for wait in waits]
    assert waits[0]["key"] == "idle_input"
    idle, whole = sum(wait["total_ns"] for wait in waits), step["end_ns"] - step["start_ns"]
    said = seen.page.inner_text("#tl-waits")
    assert words.duration(idle) in said
    assert words.percent(idle / whole) in said
    assert f"for input {words.duration(waits[0]['total_ns'])}" in said
    last = seen.page.locator("#tl-waits .mp-wait").last
    near = drawn_anew(seen, last.click)
    assert near[0] <= waits[-1]["start_ns"] < waits[-1]["end_ns"] <= near[1]
    seen.assert_quiet()


_TICKS = "() => JSON.parse(document.querySelector('#timeline').dataset.ticks)"


@pytest.mark.parametrize(("width", "least"), [(1440, 6), (390, 2)])
def test_ticks_of_the_timeline_differ_at_every_zoom_and_are_several(
    chromium: Any, sample_server: str, width: int, least: int
) -> None:
    seen = visit(chromium, sample_server, width=width)
    seen.page.goto(f"{sample_server}/timeline{VOCABULARY}&t0=40000000&t1=90000000")
    seen.page.wait_for_function("() => document.querySelector('#timeline')?.dataset.ticks")
    for zoom in range(40):
        ticks = seen.page.evaluate(_TICKS)
        assert len(ticks) >= least, zoom
        assert len(set(ticks)) == len(ticks), zoom
        assert len({tick.split()[-1] for tick in ticks} - {"0"}) == 1, zoom
        drawn_anew(seen, lambda: seen.page.keyboard.press("w"))  # without a click into the drawing
        begin, end = seen.page.evaluate(_WINDOW)
        if end - begin <= 250:
            break
    assert zoom > 25
    seen.assert_quiet()


def test_the_keys_of_the_timeline_need_no_focus_and_leave_fields_alone(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    seen.page.goto(f"{sample_server}/timeline{MEASURED}")
    seen.page.wait_for_function("() => location.search.includes('t1=')")
    assert seen.page.evaluate("document.activeElement.tagName") == "BODY"
    whole = seen.page.evaluate(_WINDOW)
    near = drawn_anew(seen, lambda: seen.page.keyboard.press("w"))
    assert near[1] - near[0] < whole[1] - whole[0]
    assert drawn_anew(seen, lambda: seen.page.keyboard.press("d"))[0] > near[0]
    assert drawn_anew(seen, lambda: seen.page.keyboard.press("0")) == whole
    seen.page.keyboard.press("n")
    seen.page.wait_for_selector("#tl-panel .mp-panel-title")
    seen.page.focus("#tl-find")
    seen.page.keyboard.type("wd0")
    seen.page.wait_for_function("() => document.querySelector('#tl-found')?.textContent")
    assert seen.page.evaluate(_WINDOW) == whole
    seen.page.click(".mp-nav a >> text=Layers")  # another page: its keys are its own
    seen.page.wait_for_selector("#layers-run")
    seen.page.keyboard.press("w")
    seen.assert_quiet()


@pytest.mark.parametrize(
    "asked", ["t0=900&t1=3", "t0=x&t1=y", "t0=-1e400&t1=NaN", "t0=5e17&t1=6e17", "t0=7&t1="]
)
def test_a_window_that_is_none_shows_the_step(chromium: Any, sample_server: str, asked: str) -> None:
    known = LogDirectory(SAMPLES).timeline(INPUT_BOUND)
    seen = visit(chromium, sample_server)
    seen.page.goto(f"{sample_server}/timeline{MEASURED}&{asked}&kernel=nonsense")
    seen.page.wait_for_selector("#timeline[data-drawn]")
    assert seen.page.evaluate(_WINDOW) == [known["from_ns"], known["to_ns"]]
    assert seen.page.inner_text("#tl-panel") == ""
    seen.assert_quiet()


@pytest.mark.parametrize("width", [768, 390])
def test_a_tap_shows_the_whole_name_of_a_kernel_in_the_window(
    chromium: Any, sample_server: str, width: int
) -> None:
    context = chromium.new_context(viewport={"width": width, "height": 900}, has_touch=True)
    seen = Visit(context.new_page(), sample_server)
    seen.page.goto(f"{sample_server}/timeline{VOCABULARY}")
    seen.page.wait_for_selector("#timeline[data-drawn] canvas")
    box = seen.page.locator("#timeline canvas").bounding_box()
    seen.page.touchscreen.tap(box["x"] + 0.5 * box["width"], box["y"] + 60)
    title = seen.page.locator("#tl-panel .mp-panel-title")
    title.wait_for()
    assert title.inner_text() == "volta_fp16_sgemm_fp16_128x128_tn"
    panel = seen.page.locator("#tl-panel").bounding_box()
    assert 0 <= panel["y"] < panel["y"] + panel["height"] <= 900
    assert seen.overflow() <= 0
    seen.assert_quiet()


def other_run(seen: Visit, key: str | None = None) -> None:
    """Goes to another run by a key or by the chooser, and waits until the page shows it."""
    seen.page.wait_for_function("() => document.querySelector('#run')?.value")
    was = seen.page.input_value("#run")
    heading = seen.page.text_content("#page h1")
    if key:
        seen.page.keyboard.press(key)
    else:
        seen.page.click("#run")
        seen.page.get_by_role("option", name="gtx1080ti-mixed-float16").click()
    seen.page.wait_for_function(
        """([run, heading]) => document.querySelector('#run').value !== run
          && document.querySelector('#page h1').textContent !== heading""",
        arg=[was, heading],
    )


@pytest.mark.parametrize("key", [None, "]"])
def test_another_run_is_shown_after_the_page_wrote_into_its_address(
    chromium: Any, sample_server: str, key: str | None
) -> None:
    seen, run = visit(chromium, sample_server), "h100-mixed-bfloat16"
    for path in ("/timeline", "/layers", "/kernels"):
        seen.page.goto(f"{sample_server}{path}?run={run}")
        if path == "/timeline":
            seen.page.wait_for_function("() => location.search.includes('t1=')")
        else:
            seen.settle()
            seen.filter(f"{path[1:]}", "short", "e")
            seen.page.wait_for_function("() => location.search.includes('.short=e')")
            seen.page.evaluate("document.activeElement.blur()")
        kept = seen.page.url
        other_run(seen, key)
        assert f"run={run}&" not in seen.page.url
        seen.page.go_back()
        seen.page.wait_for_function("was => location.href === was", arg=kept)
        seen.page.wait_for_function(
            f"() => document.querySelector('#page h1')?.textContent.includes('{run}')"
        )
    seen.assert_quiet()


def test_code_to_change_is_copied(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=sample_server)
    seen.open_well(f"/{MEASURED}")
    button = seen.page.locator("#whatif .mp-copy").first
    wanted = button.get_attribute("data-copy")
    assert button.locator("xpath=../code").inner_text() == wanted
    button.click()
    seen.page.wait_for_function("() => document.querySelector('#whatif .mp-copy')?.textContent === 'copied'")
    assert seen.page.evaluate("navigator.clipboard.readText()") == wanted
    seen.assert_quiet()


def test_which_remedies_are_on_is_part_of_the_link(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{MEASURED}")
    every = seen.text("whatif-total")
    seen.page.click('#whatif tr[data-code="MP301"] .mp-switch')
    without = seen.text("whatif-total")
    assert "off=MP301" in seen.page.url
    assert without != every
    other = visit(chromium, sample_server)
    other.page.goto(seen.page.url)
    off = '#whatif tr[data-code="MP301"] .mp-switch[aria-checked="false"]'
    other.page.wait_for_selector(off)
    assert other.text("whatif-total") == without
    assert other.flow()["after"] == seen.flow()["after"] != seen.flow()["step"]
    other.page.click(off)
    assert "off=" not in other.page.url
    assert other.text("whatif-total") == every
    other.assert_quiet()


def test_a_cause_leads_to_its_own_kernels(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{VOCABULARY}")
    seen.page.click('#whatif tr[data-code="MP402"] td:last-child a')
    seen.page.wait_for_selector("#kernels[data-loaded]")
    assert seen.column("kernels", "layer") == ["logits"]
    assert "1 row of MP402" in seen.page.inner_text(".mp-rows-bar")
    seen.page.click("text=clear filters")
    seen.page.wait_for_function("() => document.getElementById('kernels').dataset.found > 1")
    assert "cause" not in seen.page.url
    seen.assert_quiet()


def test_one_table_for_kernels_ops_and_layers_whose_rows_come_as_it_is_scrolled(
    chromium: Any, sample_server: str
) -> None:
    source, seen = LogDirectory(SAMPLES), visit(chromium, sample_server)
    seen.open_well(f"/kernels{MEASURED}")
    document = to_json(source.report(INPUT_BOUND, ITS_BASELINE))
    for title, kind in (("Ops", "op"), ("Layers", "layer"), ("Kernels", "kernel")):
        seen.page.click(f"#page .mp-segment:text-is('{title}')")
        seen.page.wait_for_selector(f"#{kind}s[data-loaded]")
        total = len(work.table(source, INPUT_BOUND, document, kind).rows)
        assert seen.page.get_attribute(f"#{kind}s", "data-found") == str(total)
        count = seen.page.locator(f"#{kind}s tbody tr")
        assert count.count() == min(total, rows.AT_ONCE)
        if kind == "op":
            assert total > rows.AT_ONCE
            seen.page.eval_on_selector("#ops .mp-rows-scroll", "box => { box.scrollTop = box.scrollHeight; }")
            seen.page.wait_for_function(
                "n => document.querySelectorAll('#ops tbody tr').length === n",
                arg=min(total, 2 * rows.AT_ONCE),
            )
    seen.assert_quiet()


@pytest.mark.full
def test_dots_of_the_roofline_pick_rows_but_of_products_which_name_no_op(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    for kind, picked in (("op", True), ("product", False)):
        seen.turn(f"/kernels{VOCABULARY}&by={kind}")
        seen.page.wait_for_selector(f"#{kind}s[data-loaded]")
        found = f"() => +document.getElementById('{kind}s').dataset.found"
        whole = seen.page.evaluate(found)
        seen.page.wait_for_selector("#roofline [data-picks]")
        drawing = seen.page.locator("#roofline .nsewdrag")
        drawing.scroll_into_view_if_needed()
        box = drawing.bounding_box()
        corner = box["x"] + 2, box["y"] + 2
        seen.drag(corner, (corner[0] + box["width"] - 4, corner[1] + box["height"] - 4))
        seen.page.wait_for_selector("#roofline .outline-controllers, #roofline .select-outline")
        if picked:
            seen.page.wait_for_function(f"was => ({found})() < was", arg=whole)
        else:
            seen.filter("products", "short", " x ")  # asks the server again, with all that was picked
            assert seen.page.evaluate(found) > 0
        assert ("Drag over dots" in seen.page.inner_text("#page")) is picked
    seen.assert_quiet()


def test_the_steps_charts_zoom_together_cut_outliers_and_say_what_never_changed(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/steps{MEASURED}")
    plot = "document.querySelector('#step-times .js-plotly-plot')"
    spans = f"""() => Object.keys({plot}._fullLayout).filter(key => /^xaxis\\d*$/.test(key)).map(
        key => {plot}._fullLayout[key].range.map(Math.round).join())"""
    above = f"() => [...({plot}._fullData.find(each => (each.name || '').startsWith('above'))?.x || [])]"
    steps = LogDirectory(SAMPLES).steps(INPUT_BOUND)
    assert int(steps.interval_ns.argmax()) + 1 in seen.page.evaluate(above)
    assert "loss scale 32,768" in seen.text("steady")
    assert seen.page.locator(".mp-graph").count() == 1
    whole = seen.page.evaluate(spans)
    assert len(set(whole)) == 1
    charts = f"() => Object.keys({plot}._fullLayout).filter(key => /^yaxis\\d*$/.test(key)).length"
    assert seen.page.evaluate(charts) > 1
    box = seen.page.locator("#step-times .nsewdrag").last.bounding_box()  # the last chart: the loss
    y = box["y"] + box["height"] / 2
    seen.drag((box["x"] + 0.3 * box["width"], y), (box["x"] + 0.5 * box["width"], y))
    seen.page.wait_for_function(f"was => !({spans})().includes(was)", arg=whole[0])
    assert len(set(seen.page.evaluate(spans))) == 1
    seen.assert_quiet()


def test_compared_runs_are_chosen_held_against_the_first_and_struck_where_unlike(
    chromium: Any, sample_server: str
) -> None:
    chosen = ("v100-convnet-float32", "v100-convnet-mixed-float16", "a100-tf32-baseline-mixed-float16")
    seen = visit(chromium, sample_server)
    query = "".join(f"&with={quote(run)}" for run in chosen)
    seen.open_well(f"/compare?run={chosen[1]}&baseline={chosen[0]}{query}")
    assert seen.page.locator("#ladder tbody th").all_inner_texts() == list(chosen)
    assert seen.page.locator("#ladder th del").all_inner_texts() == [chosen[2]]
    assert "device" in seen.page.locator("#ladder th del").get_attribute("title")
    unlike = to_json(LogDirectory(SAMPLES).compare(chosen))["steps"][1]
    times = [words.speedup(unlike["observed"])]
    assert seen.page.locator("#ladder td del").all_inner_texts() == times
    assert seen.page.locator("summary del").all_inner_texts() == times
    seen.page.click("#against a:text-is('against the first')")
    seen.page.wait_for_selector("#ladder th:text-is('Against the first')")
    assert "against=first" in seen.page.url
    pair = to_json(LogDirectory(SAMPLES).compare((chosen[0], chosen[1])))["steps"][0]
    assert words.speedup(pair["observed"]) in seen.text("ladder")
    gain = to_json(LogDirectory(SAMPLES).report(chosen[1], chosen[0]))["facts"]["causes"][0]
    matrix = seen.page.locator(f".mp-matrix tr:has-text('{gain['code']}')")
    assert words.duration(gain["gain_ns_per_step"]) in matrix.inner_text()
    assert seen.page.locator("#losses-0 .main-svg").count() == 0  # folded away: drawn once it is unfolded
    seen.page.click("#rung-0 > summary")
    seen.settle()
    drawn = seen.page.locator("#losses-0 .main-svg").first.bounding_box()
    assert drawn["width"] == seen.page.locator("#losses-0").bounding_box()["width"]
    for left in (2, 1):
        seen.settle()
        seen.page.locator(".mp-chooser .mantine-Pill-remove").last.click()
        seen.page.wait_for_function(
            "n => new URLSearchParams(location.search).getAll('with').length === n", arg=left
        )
        if left > 1:  # a click while the page of that address is yet to come would be lost with the old one
            rows = "n => document.querySelectorAll('#ladder tbody th').length === n"
            seen.page.wait_for_function(rows, arg=left)
    seen.page.wait_for_selector("#page .mp-empty")
    assert "Choose at least two runs" in seen.page.inner_text("#page")
    seen.assert_quiet()


def test_paper_is_light_and_holds_no_controls(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server, scheme="dark")
    seen.open_well(f"/{MEASURED}")
    ground = "() => getComputedStyle(document.body).backgroundColor"
    ink = "() => getComputedStyle(document.querySelector('#headline')).color"
    dark = seen.page.evaluate(ground), seen.page.evaluate(ink)
    seen.page.emulate_media(media="print")
    assert seen.page.evaluate(ground) == "rgb(255, 255, 255)" != dark[0]
    assert seen.page.evaluate(ink) == "rgb(23, 32, 43)" != dark[1]
    assert not seen.page.locator(".mp-header").is_visible()
    assert seen.page.locator("#flow").is_visible()
    seen.assert_quiet()
