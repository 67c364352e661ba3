"""The pages in a real chromium: what they draw is what the report says, and nothing leaves this machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards import work
from mpprof_dashboards.pages import PAGES

from mpprof.api.source import LogDirectory
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.browser.visiting import MEASURED, VOCABULARY, Visit, serving, visit
from tests.builders.read_back import reading
from tests.builders.xspace import Ref, Space
from tests.dashboards.fake_source import HOSTILE, HOSTILE_KERNEL, FakeSource, kernel_rows
from tests.paths import SAMPLES, SHARED
from tests.traces.conftest import needs_shared

work = reading(work)

pytestmark = pytest.mark.browser


def assert_verdict_shows(seen: Visit, document: Any) -> None:
    """Why shows the report: its sentences, two of its values, the bars of its account and of its causes."""
    assert seen.page.locator("#headline").text_content() == document["verdict"]
    assert "".join(seen.page.locator("#hero").all_inner_texts()) == document["answer"]["figure"]
    facts = document["facts"]
    bars = seen.flow()
    expected = {
        "baseline": None if facts["unlike"] else facts["baseline_step_ns"],
        "after": facts["after_remedies_ns"],
    }
    assert {key: ns for key, ns in bars.items() if key in expected} == pytest.approx(
        {key: ns for key, ns in expected.items() if key in bars}
    )
    if document["time"] is None:
        return
    assert seen.text("step-time") == words.duration(document["time"]["step_ns"])
    share = document["tensor_core"]
    if share is not None and share["ratio"] is not None:
        assert seen.text("tensor-core-share") == words.percent(share["ratio"])
    account = seen.bars("account")
    assert sum(ns for key, ns in account.items() if key != "step") == pytest.approx(account["step"])
    added = sum(part["ns_per_step"] for part in document["time"]["slices"] if part["class"] == "profiling")
    if "profiling" in account or not added:
        assert account["step"] == pytest.approx(document["time"]["step_ns"])
    codes = [finding["code"] for finding in document["findings"]]
    assert seen.page.eval_on_selector_all(".mp-finding", "all => all.map(e => e.dataset.code)") == codes


def gap_marks(document: Any) -> dict[str, float]:
    """What the figure of a comparison's gap shows, by class; `speedup` is that of the comparison."""
    time, sums = document["time"], dict[str, float]()
    for part in document["speedup"]["slices"]:
        sums[part["class"]] = sums.get(part["class"], 0.0) + part["ns_per_step"]
    shown = {role: ns for role, ns in sums.items() if ns}
    small = {role for role, ns in shown.items() if abs(ns) < 0.002 * time["step_ns"]}
    if len(small) > 1:  # folded into one bar
        rest = sum(shown[role] for role in small)
        shown = {role: ns for role, ns in shown.items() if role not in small} | {"rest": rest}
    shown |= {"reach": time["step_ns"] - sum(sums.values()), "step": time["step_ns"]}
    return shown | {"baseline": document["facts"]["baseline_step_ns"]}


def test_every_page_is_quiet_and_shows_the_report(chromium: Any, fake_server: str) -> None:
    source, seen = FakeSource(), visit(chromium, fake_server)
    document = to_json(source.report("mixed", "fp32"))
    query = "?run=mixed&baseline=fp32"

    seen.open(f"/{query}")
    assert_verdict_shows(seen, document)
    parts = next(part for part in document["time"]["slices"] if part["class"] == "matmul")["by"]
    expected = {f"{part['placement']}/{part['precision']}": part["ns_per_step"] for part in parts}
    assert seen.bars("matrix-work") == expected

    seen.page.click(".mp-tab:text-is('Steps')")
    seen.page.wait_for_selector("#step-times .main-svg")
    assert seen.text("median") == words.duration(document["steps"]["median_ns"])
    assert seen.text("skips") == words.count(document["steps"]["skipped"])

    seen.turn(f"/kernels{query}")
    rows, steps = kernel_rows(), document["time"]["window_steps"]
    unknown = sum(row["total_ns"] for row in rows if row["placement"] == "unknown")
    assert unknown == 800_000  # of 9.9 ms: it has a bar here, and none in the samples
    assert seen.bars("kernel-time")["unknown"] == unknown / steps
    assert "none of it unknown" not in seen.page.inner_text("#page")
    assert seen.column("kernels", "ns")[0] == words.duration(max(row["total_ns"] for row in rows) / steps)

    seen.turn(f"/layers{query}")
    times = dict(zip(seen.column("layers", "short"), seen.column("layers", "ns"), strict=True))
    assert times["res2a"] == words.duration(7_100_000 / steps)

    seen.turn(f"/memory{query}")
    assert seen.text("peak-bytes") == words.size(document["memory"]["peak_bytes"])
    kinds = {item["name"]: item["bytes"] for item in document["memory"]["at_peak"] if item["by"] == "kind"}
    assert seen.bars("peak-kind") == kinds

    seen.turn(f"/compare{query}")
    assert seen.bars("gap-0") == pytest.approx(gap_marks(document))
    assert seen.text("rung-0-observed") == words.speedup(document["speedup"]["observed"])

    for page in PAGES:  # those that came later have their figures checked in a test of their own
        if page.path not in ("/", "/steps", "/kernels", "/layers", "/memory", "/compare"):
            seen.turn(f"{page.path}{query}")
    seen.assert_quiet()


def test_a_name_with_markup_is_shown_as_text_everywhere(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server)
    for path in ("/", "/kernels", "/layers", "/memory", "/compare"):
        seen.turn(f"{path}?run=mixed&baseline=fp32")
        assert seen.page.locator('a[href="x"], a[*|href="x"], #page b').count() == 0
        shown = seen.page.evaluate("document.body.textContent")
        assert HOSTILE in shown, path
    assert "owned" not in seen.page.title()
    seen.assert_quiet()


@pytest.mark.full
def test_a_hostile_trace_file_is_shown_as_text(chromium: Any, tmp_path: Path) -> None:
    space = Space()
    stream = space.plane("/device:GPU:0", 0).line(7, "Stream #7(Compute)")
    for start in range(0, 50_000, 1000):
        stream.event("ampere_sgemm_128x64_nn", start, 600, {"tf_op": Ref(f"{HOSTILE}:MatMul")})
        stream.event(HOSTILE_KERNEL, start + 700, 200, {"tf_op": Ref("model/b/Relu:Relu")})
    folder = tmp_path / "plugins" / "profile" / "now"
    folder.mkdir(parents=True)
    (folder / "host.xplane.pb").write_bytes(space.to_bytes())
    with serving(tmp_path) as address:
        seen = visit(chromium, address)
        for query, name in (("", HOSTILE_KERNEL), ("&by=op", HOSTILE)):
            seen.open_well(f"/kernels?run=plugins/profile/now/host.xplane.pb&baseline=none{query}")
            assert name in seen.page.evaluate("() => document.body.textContent")
        for page in PAGES:
            seen.turn(page.path)
            assert seen.page.locator('a[href="x"], #page b').count() == 0
            assert "owned" not in seen.page.title()
        seen.assert_quiet()


def test_no_figure_offers_to_share_itself(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server)
    seen.open("/steps?run=mixed&baseline=fp32")
    seen.page.hover("#step-times")
    titles = seen.page.eval_on_selector_all(".modebar-btn", "all => all.map(e => e.dataset.title)")
    assert titles
    assert not [title for title in titles if title and ("share" in title.lower() or "cloud" in title.lower())]


@pytest.mark.full
def test_dark_and_light_are_switched_and_kept(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server, scheme="light")
    ground = "getComputedStyle(document.body).backgroundColor"
    seen.open("/kernels?run=mixed&baseline=fp32")
    light = seen.page.evaluate(ground)
    seen.page.click("#scheme")
    seen.page.wait_for_function("() => document.documentElement.dataset.mantineColorScheme === 'dark'")
    dark = seen.page.evaluate(ground)
    assert dark != light
    seen.page.reload(wait_until="commit")
    seen.page.wait_for_selector("#page .mp-card")
    assert seen.page.evaluate("document.documentElement.dataset.mantineColorScheme") == "dark"
    assert seen.page.evaluate(ground) == dark
    seen.assert_quiet()


@pytest.mark.full
@pytest.mark.parametrize("width", [720, 390], ids=["1440 at 200 %", "phone"])
def test_a_narrow_window_needs_no_sideways_scrolling(chromium: Any, fake_server: str, width: int) -> None:
    seen = visit(chromium, fake_server, width=width)
    seen.open("/?run=mixed&baseline=fp32")
    for page in PAGES:
        seen.page.click(f".mp-tab:text-is('{page.title}')")
        seen.page.wait_for_selector(f".mp-tab-current:text-is('{page.title}')")
        seen.settle()
        assert seen.overflow() <= 0, page.title
    seen.assert_quiet()


@pytest.mark.parametrize("path", ["/kernels", "/layers"])
def test_a_table_on_a_phone_shows_rows_with_their_times_and_which_page_it_is(
    chromium: Any, sample_server: str, path: str
) -> None:
    seen = visit(chromium, sample_server, width=390)
    seen.open_well(f"{path}{MEASURED}")
    for inside in (f"#{path[1:]} tbody tr:nth-child(5) [data-field=ns]", ".mp-tab-current"):
        box = seen.page.locator(inside).bounding_box()
        assert box["height"] > 0
        assert 0 <= box["x"] < box["x"] + box["width"] <= 390, inside
    seen.page.click(".mp-tab:text-is('Runs')")
    seen.page.wait_for_selector(".mp-tab-current:text-is('Runs')")
    in_sight = """() => { const box = document.querySelector('.mp-tab-current').getBoundingClientRect();
        return box.left >= 0 && box.right <= innerWidth; }"""
    seen.page.wait_for_function(in_sight)
    seen.assert_quiet()


_CUT = """all => all.filter(e => e.offsetWidth && getComputedStyle(e).overflowX !== 'visible'
    && e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""


@pytest.mark.parametrize("width", [768, 390])
def test_no_name_of_a_table_or_chart_is_cut_on_a_small_screen(
    chromium: Any, sample_server: str, width: int
) -> None:
    seen = visit(chromium, sample_server, width=width)
    for path, names in (
        ("/kernels", "#kernels tbody td:nth-child(-n + 2), #kernels .mp-row-name"),
        ("/kernels?by=op", "#ops tbody td:nth-child(-n + 2), #ops .mp-row-name"),
        ("/layers", "#layers tbody td:nth-child(-n + 2), #layers .mp-row-name"),
        ("/compare", ".mp-bar-name, #ladder th, #causes-by-run th"),
    ):
        path, _, more = path.partition("?")
        seen.turn(f"{path}{VOCABULARY}&{more}")
        assert seen.page.locator(names).count() > 2
        assert seen.page.eval_on_selector_all(names, _CUT) == []
    for cell in seen.page.locator(
        "#ladder tbody tr:last-child :is(th, td:nth-child(3), td:nth-child(5))"
    ).all():
        box = cell.bounding_box()  # the name, the step and the speedup
        assert 0 <= box["x"] < box["x"] + box["width"] <= width
    seen.assert_quiet()


def test_what_a_scope_of_the_icicle_is_stands_below_it_for_keyboard_and_touch(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server, width=390)
    seen.open_well(f"/layers{VOCABULARY}")
    face = seen.page.locator('#layers-run [data-layer="block_*/up"]').first
    assert face.inner_text() == ""  # no room
    face.focus()
    assert seen.text("layers-said") == face.get_attribute("title")
    assert seen.text("layers-said").startswith("up: ")
    phases = seen.page.locator("#layers-run .mp-ice-column").all()
    tops = [phase.bounding_box()["y"] for phase in phases]
    assert tops == sorted(set(tops))  # below one another
    wide = seen.page.locator("#layers-baseline .mp-ice-column").nth(1).bounding_box()
    assert wide["width"] > 300  # the longest phase takes the width
    seen.assert_quiet()


_HATCHED = """() => [...document.querySelectorAll('.mp-k-unknown:not(.mp-cell-bar)')].map(
    each => (getComputedStyle(each).backgroundImage.match(/repeating-linear-gradient/g) || []).length)"""


@pytest.mark.parametrize("path", ["/kernels", "/layers"])
def test_what_is_unknown_is_cross_hatched(chromium: Any, fake_server: str, path: str) -> None:
    seen = visit(chromium, fake_server)
    seen.open_well(f"{path}?run=mixed&baseline=fp32")
    hatched = seen.page.evaluate(_HATCHED)
    assert hatched
    assert set(hatched) == {2}  # across each other
    if path == "/layers":
        band = seen.page.locator(".mp-ice-unknown").first.bounding_box()
        assert band["width"] > 0
    seen.assert_quiet()


@pytest.mark.full
def test_choosing_a_run_writes_the_link_and_draws_its_page(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server)
    seen.open("/?run=mixed&baseline=fp32")
    seen.page.click("#run")
    seen.page.get_by_role("option", name="laptop-cpu").click()
    seen.page.wait_for_function(
        "() => document.querySelector('#headline')?.textContent.includes('used a CPU')"
    )
    assert "run=cpu" in seen.page.url
    assert "baseline=none" in seen.page.url
    seen.page.go_back()
    seen.page.wait_for_function("() => document.querySelector('#headline')?.textContent.includes('1.07x')")
    assert seen.page.input_value("#run").startswith("resnet-mixed")
    seen.assert_quiet()


def test_typing_into_a_chooser_looks_for_a_run_and_escape_leaves_it_as_it_was(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well("/kernels?run=v100-input-bound-mixed-float16&baseline=v100-input-bound-float32")
    run, options = "v100-input-bound-mixed-float16", seen.page.locator("[role=option]:visible")
    shows = "name => document.querySelector('#run').value === name"
    seen.page.wait_for_function("() => document.querySelector('#run').title")
    for reach in (lambda: seen.page.click("#run"), lambda: seen.page.focus("#run")):
        reach()
        seen.page.keyboard.type("gtx")
        seen.page.wait_for_function(shows, arg="gtx")
        options.nth(1).wait_for()
        assert options.all_inner_texts() == ["gtx1080ti-float32", "gtx1080ti-mixed-float16"]
        seen.page.keyboard.type("?!")
        seen.page.get_by_text("nothing matches").wait_for()
        seen.page.keyboard.press("Escape")
        seen.page.wait_for_function(shows, arg=run)
        options.first.wait_for(state="hidden")
    seen.page.click("#run")
    seen.page.keyboard.type("gtx1080ti-m")
    seen.page.locator("[role=option][data-combobox-selected]:visible").wait_for()
    seen.page.keyboard.press("Enter")
    seen.page.wait_for_url("**/kernels?run=gtx1080ti-mixed-float16*")
    seen.assert_quiet()


def test_the_choosers_show_the_run_of_the_address_before_the_server_answers_for_them(
    chromium: Any, fake_server: str
) -> None:
    seen = visit(chromium, fake_server)
    seen.open("/?run=mixed&baseline=fp32")
    seen.page.wait_for_function("() => document.querySelector('#run').value.startsWith('resnet-mixed')")
    asked = []

    def hold(route: Any) -> None:
        if "run.value" in (route.request.post_data_json or {}).get("output", ""):
            asked.append(route)  # answered at the end
        else:
            route.continue_()

    seen.page.route("**/_dash-update-component*", hold)
    seen.choose("?run=cpu&baseline=none", to_json(FakeSource().report("cpu"))["verdict"])
    assert seen.page.input_value("#run").startswith("laptop-cpu")
    assert seen.page.input_value("#baseline") == ""
    seen.page.go_back()
    seen.page.wait_for_function("() => document.querySelector('#headline')?.textContent.includes('1.07x')")
    assert seen.page.input_value("#run").startswith("resnet-mixed")
    assert seen.page.input_value("#baseline").startswith("resnet-fp32")
    assert len(asked) >= 2
    for route in asked:
        route.continue_()
    assert seen.page.input_value("#run").startswith("resnet-mixed")
    seen.assert_quiet()


@pytest.mark.full
def test_an_unreadable_run_and_an_unknown_one_are_one_card(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server)
    for run in ("broken", "nowhere"):
        seen.open(f"/?run={run}&baseline=none")
        assert seen.page.locator(".mp-failure").count() == 1
        assert "Traceback" not in seen.page.inner_text("#page")
    seen.assert_quiet()


def test_the_saved_report_stands_alone(chromium: Any, fake_server: str, tmp_path: Path) -> None:
    seen = visit(chromium, fake_server)
    seen.open("/?run=mixed&baseline=fp32")
    with seen.page.expect_download() as download:
        seen.page.click("#share summary")
        seen.page.click("[data-share=html]")
    saved = tmp_path / "report.html"
    download.value.save_as(saved)
    alone = visit(chromium, saved.as_uri(), width=390)
    alone.page.goto(alone.base)
    alone.page.wait_for_selector("#flow .mp-flow")
    assert alone.text("headline") == to_json(FakeSource().report("mixed", "fp32"))["verdict"]
    assert HOSTILE in alone.page.evaluate("document.body.textContent")
    assert alone.page.locator('a[href="x"], #flow b').count() == 0
    assert alone.overflow() <= 0
    alone.page.set_viewport_size({"width": 1440, "height": 900})
    alone.page.reload()
    alone.page.wait_for_load_state("load")
    inside = """() => { const card = document.querySelector('#flow').getBoundingClientRect();
        return [...document.querySelectorAll('#flow rect, #flow text')].every(each => {
            const box = each.getBoundingClientRect();
            return !box.width || (box.left >= card.left && box.right <= card.right); }); }"""
    assert alone.page.evaluate(inside)
    assert alone.problems == []
    assert alone.hosts <= {"local"}


@pytest.mark.full
def test_the_samples_are_served_as_the_report_prints_them(chromium: Any, sample_server: str) -> None:

    source = LogDirectory(SAMPLES)
    entries = source.entries()
    seen = visit(chromium, sample_server)
    seen.open_well(f"/?run={entries[0].id}&baseline=none")
    for entry in entries:
        twin = entry.name.replace("mixed-float16", "float32")
        baseline = next((other.id for other in entries if other.name == twin and other is not entry), None)
        document = to_json(source.report(entry.id, baseline))
        seen.choose(f"?run={entry.id}&baseline={baseline or 'none'}", document["verdict"])
        assert_verdict_shows(seen, document)
    seen.assert_quiet()


@pytest.mark.full
def test_every_page_of_a_sample_shows_its_tables(chromium: Any, sample_server: str) -> None:

    source = LogDirectory(SAMPLES)
    run, baseline = "v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32"
    query = f"?run={run}&baseline={baseline}"
    document, seen = to_json(source.report(run, baseline)), visit(chromium, sample_server)

    seen.open_well(f"/steps{query}")
    assert seen.text("median") == words.duration(document["steps"]["median_ns"])
    assert seen.text("step-count") == words.count(document["steps"]["count"])

    seen.turn(f"/kernels{query}")
    sums: dict[str, float] = {}
    for row in source.kernels(run):
        sums[row["placement"]] = sums.get(row["placement"], 0.0) + row["total_ns"] / 5
    assert seen.bars("kernel-time") == pytest.approx(sums)
    assert "unknown" not in sums
    assert "none of it unknown" in seen.page.inner_text("#page")
    seen.turn(f"/kernels{query}&by=op")
    longest = max(source.ops(run), key=lambda row: row["total_ns"])
    assert seen.column("ops", "ns")[0] == words.duration(longest["total_ns"] / 5)

    seen.turn(f"/layers{query}")
    times = {
        row["layer"] or "not attributed": words.duration(row["total_ns"] / 5) for row in source.layers(run)
    }
    assert dict(zip(seen.column("layers", "short"), seen.column("layers", "ns"), strict=True)) == times

    seen.turn(f"/memory{query}")
    assert seen.text("peak-recorded") == words.size(document["steps"]["peak_memory_bytes"])

    seen.turn(f"/compare{query}")
    rung = to_json(source.compare((baseline, run)))["steps"][0]
    rung |= {"baseline_step_ns": document["speedup"]["baseline_step_ns"]}
    assert seen.text("rung-0-observed") == words.speedup(rung["observed"])
    assert seen.bars("gap-0") == pytest.approx(gap_marks(document | {"speedup": rung}))
    seen.assert_quiet()


def test_the_memory_page_shows_what_allocator_events_tell(chromium: Any, sample_server: str) -> None:
    run, baseline = "gtx1080ti-mixed-float16", "gtx1080ti-float32"
    memory = to_json(LogDirectory(SAMPLES).report(run, baseline))["memory"]
    seen = visit(chromium, sample_server)
    seen.open_well(f"/memory?run={run}&baseline={baseline}")
    assert seen.text("peak-bytes") == words.size(memory["peak_bytes"])
    assert seen.text("saved") == words.size(memory["saved_bytes"])
    for by in ("kind", "dtype", "layer"):
        held = [item["bytes"] for item in memory["at_peak"] if item["by"] == by]
        assert sum(seen.bars(f"peak-{by}").values()) == sum(held) == memory["peak_bytes"]
        assert max(seen.bars(f"peak-{by}").values()) == max(held)
    (cause,) = [part for part in memory["gap"] if part["code"] == "MP604"]
    assert f"{words.size(cause['bytes'])} MP604" in seen.text("memory-saved")
    for figure in ("peak-map", "memory-kind", "memory-dtype"):
        assert seen.page.locator(f"#{figure} .js-plotly-plot").count() == 1
    ops = seen.page.locator("#memory-tensors tbody td:nth-child(7)").all_inner_texts()
    assert ops == [work.short_op(tensor["op"]) for tensor in memory["tensors"]]
    assert not any("StatefulPartitionedCall" in op for op in ops)
    assert "open a window" not in seen.page.inner_text("#page")
    assert seen.overflow() == 0
    seen.assert_quiet()


# --- Why ---------------------------------------------------------------------------------------------------


def test_switching_remedies_shows_the_steps_that_came_with_the_page(
    chromium: Any, sample_server: str
) -> None:
    report = LogDirectory(SAMPLES).report("v100-input-bound-mixed-float16", "v100-input-bound-float32")
    steps = report.whatif.subsets_ns
    every = len(steps) - 1
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{MEASURED}")
    total = "() => document.querySelector('#whatif-total').textContent"
    assert words.duration(steps[every]) in seen.page.evaluate(total)
    first, second, *_ = seen.page.locator(".mp-switch").all()
    # The page loads plotly.js ahead, by itself. Its security policy forbids to wait by `wait_for_function`.
    seen.page.evaluate(
        """() => new Promise(done => { const look = () => window.Plotly ? done() : setTimeout(look, 50);
                                       look(); })"""
    )
    asked: list[str] = []
    seen.page.on("request", lambda request: asked.append(request.url))
    first.click()
    assert words.duration(steps[every ^ 1]) in seen.page.evaluate(total)
    assert seen.flow()["after"] == steps[every ^ 1]
    assert seen.page.locator('[data-after="0"]').text_content() == "—"
    assert seen.page.locator('[data-after="1"]').text_content() == words.duration(steps[2])
    second.press("Space")
    assert f"→ {words.duration(steps[every ^ 3])}" in seen.page.evaluate(total)
    second.press("Enter")
    first.click()
    assert words.duration(steps[every]) in seen.page.evaluate(total)
    # Each click is over when it returns: what it shows waits for no timer and no answer.
    shown = seen.page.evaluate(
        """() => { const one = document.querySelector('.mp-switch');
                   const total = () => document.querySelector('#whatif-total').textContent;
                   return [0, 1, 2, 3].map(() => { one.click(); return total(); }); }"""
    )
    expected = (steps[every ^ 1], steps[every], steps[every ^ 1], steps[every])
    assert all(words.duration(ns) in text for ns, text in zip(expected, shown, strict=True))
    assert [url for url in asked if not url.startswith("data:")] == []  # nothing leaves the page
    seen.assert_quiet()


@pytest.mark.parametrize("width", [1440, 390])
def test_a_switch_of_a_remedy_changes_its_figures_and_moves_nothing(
    chromium: Any, sample_server: str, width: int
) -> None:
    seen = visit(chromium, sample_server, width=width)
    seen.open_well(f"/{MEASURED}")
    said = "() => [...document.querySelectorAll('[data-of=after], .mp-flow-tail')].map(e => e.textContent)"
    places, every = seen.page.evaluate(_PLACES), seen.page.evaluate(said)
    report = LogDirectory(SAMPLES).report("v100-input-bound-mixed-float16", "v100-input-bound-float32")
    steps, switches = report.whatif.subsets_ns, seen.page.locator(".mp-switch")
    for at in range(switches.count()):
        switches.nth(at).click()
        assert seen.page.evaluate(_PLACES) == places, at
        left = (1 << switches.count()) - (2 << at)
        assert words.duration(steps[left]) in seen.page.evaluate(said)[0]
        assert not seen.page.is_visible("#limits")  # of the step after all changes
    for at in range(switches.count()):
        switches.nth(at).click()
    assert seen.page.evaluate(said) == every
    assert seen.page.is_visible("#limits")
    assert every[1] == "about 3.01x over float32 with the same changes"
    seen.assert_quiet()


_PLACES = """() => [...document.querySelectorAll(
    '#page section, #page h2, #page tr, #page td, #whatif-total, #flow .mp-flow-bar:not([data-key=after])'
)].filter(e => e.checkVisibility()).map(e => { const box = e.getBoundingClientRect();
    return [box.left, box.top + scrollY, box.height].map(Math.round).join(); })"""


@needs_shared()
def test_a_tpu_has_no_tensor_cores_though_no_matrix_work_tells(chromium: Any) -> None:
    of_units = "#hero, .mp-inline-figures, .mp-legend, th"
    with serving(SHARED / "tpu-v6e-jax") as address:
        seen = visit(chromium, address)
        for path in ("/", "/layers", "/kernels"):
            seen.turn(f"{path}?run=inference.xplane.pb")
            shown = " ".join(seen.page.locator(of_units).all_text_contents())
            assert "Matrix cores" in shown, path
            assert "Tensor Cores" not in shown, path
        seen.turn("/timeline?run=inference.xplane.pb")
        labels = seen.page.evaluate(
            "() => JSON.parse(document.getElementById('timeline').dataset.colours).labels"
        )
        assert labels["matrix_unit"] == "Matrix cores"
        assert labels["off_matrix_unit"] == "matrix work off Matrix cores"


def test_a_cause_leads_to_its_proof_within_two_clicks(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{MEASURED}")
    seen.page.click('#whatif tr[data-code="MP301"] a')
    seen.page.wait_for_selector("#timeline[data-drawn] canvas")
    assert "run=v100-input-bound-mixed-float16" in seen.page.url
    seen.turn(f"/{MEASURED}")
    seen.page.click('#whatif tr[data-code="MP501"] a')
    seen.page.wait_for_selector("#kernels[data-loaded]")
    seen.assert_quiet()
