"""The list of runs in a real chromium: which to look at, all of it in the window, 300 of them, some corrupt."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards.choice import default_baselines

from mpprof.api.source import LogDirectory
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.browser.visiting import Visit, serving, visit
from tests.builders.gpus import V100
from tests.builders.records import Recorded, imagenette_convnet, write
from tests.paths import SAMPLES

pytestmark = pytest.mark.browser
_ALL_FILLED = (
    "() => document.querySelector('#runs[data-drawn]') && !document.querySelector('#runs [aria-busy]')"
    " && !document.querySelector('#runs-worst')?.textContent.startsWith('Reading ')"
)
FIRST = "recorded-h200-transformer-mixed-float16"
"""The measured sample that is the furthest from what precision alone could give."""
_CUT = """() => { const box = document.querySelector('#runs .mp-scroll');
    return box.scrollWidth - box.clientWidth; }"""


def open_list(seen: Visit) -> None:
    seen.page.goto(f"{seen.base}/runs")
    seen.page.wait_for_function(_ALL_FILLED)


def test_the_list_of_runs_is_the_landing_page_and_says_which_to_look_at(
    chromium: Any, sample_server: str
) -> None:
    source, seen = LogDirectory(SAMPLES), visit(chromium, sample_server)
    seen.page.goto(sample_server + "/")
    seen.page.wait_for_selector("#runs[data-drawn]")
    assert seen.page.url.endswith("/runs")
    seen.page.wait_for_function(_ALL_FILLED)
    row = '#runs tr[data-run="v100-odd-vocabulary-mixed-float16"]'
    document = to_json(source.report("v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32"))
    cell = f'{row} [data-field="%s"]'
    assert seen.page.inner_text(cell % "step") == words.duration(document["facts"]["step_ns"])
    answer = document["answer"]
    shown = (answer["figure"], answer["label"])
    assert tuple(seen.page.locator(cell % "speedup").locator("strong, .mp-note").all_inner_texts()) == shown
    assert seen.page.inner_text(cell % "share") == words.percent(document["tensor_core"]["ratio"])
    assert seen.page.inner_text(cell % "cause") == answer["sentence"]
    assert seen.page.inner_text("#runs-worst a") == FIRST
    assert len(seen.page.query_selector_all("#runs tr[data-run]")) == len(source.entries())
    for run in ("v100-convnet-mixed-float16", "v100-convnet-float32"):
        seen.page.check(f'#runs tr[data-run="{run}"] input')
    seen.page.click("#runs-compare")
    seen.page.wait_for_selector("#rung-0-observed")
    assert "with=v100-convnet-float32&with=v100-convnet-mixed-float16" in seen.page.url
    seen.assert_quiet()


@pytest.mark.parametrize("width", [1440, 1366, 1341, 1201, 390])
def test_every_column_of_the_list_lies_in_the_window(chromium: Any, sample_server: str, width: int) -> None:
    seen = visit(chromium, sample_server, width=width)
    open_list(seen)
    assert seen.page.evaluate(_CUT) <= 0
    assert seen.overflow() <= 0
    state = seen.page.locator('#runs tr[data-run="v100-convnet-float32"] [data-field="state"]')
    box = state.bounding_box()
    assert state.inner_text() == "ended"
    assert box["x"] + box["width"] <= width
    seen.assert_quiet()


def test_a_row_that_is_drawn_anew_keeps_the_focus_of_its_link(chromium: Any, tmp_path: Path) -> None:
    model = imagenette_convnet("float16")
    for name in ("one", "two", "three"):
        write(Recorded(name, V100, "float16", model, 64, 22.0), tmp_path)
    (tmp_path / "three").rename(later := tmp_path.parent / f"{tmp_path.name}-three")
    with serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        open_list(seen)
        seen.page.focus('#runs tr[data-run="two"] a')
        later.rename(tmp_path / "three")
        seen.page.wait_for_selector('#runs tr[data-run="three"]')
        seen.page.wait_for_function(_ALL_FILLED)
        assert seen.page.evaluate("document.activeElement.closest('tr')?.dataset.run") == "two"
        seen.assert_quiet()


def _order(seen: Visit) -> list[str]:
    return list(seen.page.eval_on_selector_all("#runs tr[data-run]", "all => all.map(e => e.dataset.run)"))


def _measured(source: LogDirectory) -> dict[str, float]:
    """Return the speedup of each run whose answer has one."""
    measured = {}
    for run, baseline in default_baselines(source.entries()).items():
        document = to_json(source.report(run, baseline))
        observed = document["facts"]["observed"]
        if document["answer"]["figure"] and not document["facts"]["unlike"] and observed is not None:
            measured[run] = observed
    return measured


def test_the_list_is_sorted_by_any_column_and_back_and_the_order_is_in_the_link(
    chromium: Any, sample_server: str
) -> None:
    source, seen = LogDirectory(SAMPLES), visit(chromium, sample_server)
    open_list(seen)
    groups, heading = _order(seen), "#runs thead th[data-field='%s'] button"
    steps = {entry.id: to_json(source.report(entry.id))["facts"]["step_ns"] for entry in source.entries()}
    slowest = sorted(groups, key=lambda run: -steps[run])
    seen.page.click(heading % "step")
    assert _order(seen) == slowest
    assert seen.page.locator("#runs .mp-runs-group").count() == 0
    first = seen.page.inner_text("#runs tbody tr:first-child [data-field='name']")
    assert first == slowest[0]  # by its whole name, as no experiment stands above it
    again = visit(chromium, sample_server)
    again.page.goto(seen.page.url)
    again.page.wait_for_function(_ALL_FILLED)
    assert _order(again) == slowest
    assert again.page.get_attribute("#runs th[data-field='step']", "aria-sort") == "descending"
    seen.page.click(heading % "step")
    assert _order(seen) == sorted(groups, key=lambda run: steps[run])
    seen.page.click(heading % "step")
    assert _order(seen) == groups
    seen.page.click(heading % "speedup")
    measured = _measured(source)
    most = sorted(measured, key=lambda run: -measured[run])
    assert _order(seen)[: len(most)] == most
    rest = _order(seen)[len(most) :]
    bullets = "#runs tbody tr:has(.mp-bullet)"
    assert (
        seen.page.locator(bullets).count() == len(most) < len(groups)
    )  # no bar, and last, without a speedup
    seen.page.click(heading % "speedup")
    assert _order(seen) == [*reversed(most), *rest]
    seen.page.set_viewport_size({"width": 390, "height": 900})
    seen.page.select_option("#runs-sort", "name")
    assert _order(seen) == sorted(groups)
    seen.assert_quiet()
    again.assert_quiet()


def test_runs_without_a_baseline_are_ranked_apart_by_what_they_could_gain(
    chromium: Any, sample_server: str, tmp_path: Path
) -> None:
    seen = visit(chromium, sample_server)
    open_list(seen)
    links = seen.page.locator("#runs-worst a").all_inner_texts()
    assert links == [FIRST, "v100-float32-island"]
    assert seen.page.locator(".mp-runs-first").count() == 1
    for run in ("v100-float32-island", "v100-truncated"):
        shutil.copytree(SAMPLES / run, tmp_path / run)
    answer = to_json(LogDirectory(tmp_path).report("v100-float32-island"))["answer"]
    with serving(tmp_path) as address:
        alone = visit(chromium, address)
        open_list(alone)
        said = alone.page.inner_text("#runs-worst")
        assert said.startswith("Look at first: v100-float32-island")
        assert f"{answer['figure']} · {answer['label']}: {answer['sentence']}" in said
        assert alone.page.get_attribute(".mp-runs-first", "data-run") == "v100-float32-island"
        speedup = '#runs tr[data-run="v100-float32-island"] [data-field="speedup"]'
        assert alone.page.locator(speedup).locator("strong, .mp-note").all_inner_texts() == [
            answer["figure"],
            answer["label"],
        ]
        unreadable = alone.page.locator('#runs tr[data-run="v100-truncated"] [data-field="speedup"] strong')
        assert unreadable.inner_text() == "—"  # its answer has no figure
        alone.assert_quiet()


def test_a_trace_that_turns_out_to_be_unreadable_says_why_like_any_other(
    chromium: Any, tmp_path: Path
) -> None:
    """Cut off so that only reading it shows it: its first bytes are those of a trace."""
    shutil.copytree(SAMPLES / "v100-convnet-float32", tmp_path / "whole")
    trace = next((SAMPLES / "v100-convnet-float32").rglob("*.xplane.pb"))
    (tmp_path / "cut").mkdir()
    (tmp_path / "cut" / "host.xplane.pb").write_bytes(trace.read_bytes()[:30_000])
    entries = {entry.id: entry.problem for entry in LogDirectory(tmp_path).entries()}
    assert entries == {"whole": None, "cut/host.xplane.pb": None}
    with serving(tmp_path) as address:
        seen = visit(chromium, address)
        open_list(seen)
        line = seen.page.locator('#runs tr[data-run="cut/host.xplane.pb"]')
        assert "cannot be read: " in line.inner_text()
        assert "cut off or damaged" in line.inner_text()
        assert line.locator("input, a").count() == 0
        assert seen.page.locator('#runs tr[data-run="whole"] input').count() == 1
        seen.assert_quiet()


@pytest.mark.parametrize("width", [1440, 1280, 1024, 768, 390])
def test_long_names_are_whole_and_push_nothing_out_of_the_window(
    chromium: Any, long_names: str, width: int
) -> None:
    seen = visit(chromium, long_names, width=width)
    open_list(seen)
    for query in ("", "?runs.sort=-step"):
        seen.page.goto(f"{long_names}/runs{query}")
        seen.page.wait_for_function(_ALL_FILLED)
        assert seen.page.evaluate(_CUT) <= 0
        assert seen.overflow() <= 0
        cut = """all => all.filter(e => e.scrollWidth > e.clientWidth + 1).map(e => e.textContent)"""
        assert seen.page.eval_on_selector_all("#runs [data-field='name']", cut) == []
        ends = """all => all.map(e => e.getBoundingClientRect()).flatMap(box => [box.left, box.right])"""
        shown = seen.page.eval_on_selector_all(
            "#runs tbody :is([data-field='step'], [data-field='state'])", ends
        )
        assert 0 < min(shown) < max(shown) <= width
    assert seen.page.get_attribute("#run", "title") == seen.page.input_value("#run") != ""
    seen.assert_quiet()


LONG = "vision-transformer-large-patch16-384-imagenet21k-finetune-lr3e-4-wd0.05-warmup10k-seed17"


@pytest.fixture(scope="module")
def long_names(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("long")
    names = (
        f"{LONG}/base",
        f"{LONG}/mixed-float16-dynamic-loss-scale-2pow15",
        f"{LONG}_alone_mixed_float16",
        "a",
    )
    for at, name in enumerate(names):
        dtype = "float16" if "mixed" in name else "float32"
        model = imagenette_convnet(dtype)
        write(Recorded(name, V100, dtype, model, 64, 42.0 - at, steps=40, seed=at), folder)
    with serving(folder) as address:
        yield address


def many_runs(folder: Path, count: int) -> tuple[int, list[str]]:
    """`count` runs in experiments of two, every tenth one corrupt; gives how many can be read, and which not."""
    model = {dtype: imagenette_convnet(dtype) for dtype in ("float32", "float16")}
    base = Recorded("", V100, "float32", model["float32"], 64, 42.0, steps=40)
    corrupt = []
    for at in range(count):
        dtype = "float16" if at % 2 else "float32"
        name = f"sweep-{at // 2:03d}/{'mixed' if at % 2 else 'base'}"
        run = replace(
            base, name=name, dtype=dtype, layers=model[dtype], step_ms=42.0 - 20.0 * (at % 2), seed=at
        )
        written = write(run, folder)
        if at % 10 == 9:
            (written / "mpprof" / "run.json").write_text('{"schema": "mpprof.run/1", "run_id"')
            corrupt.append(name)
    return count - len(corrupt), corrupt


@pytest.mark.parametrize("count", [40, pytest.param(300, marks=pytest.mark.full)])
def test_of_many_runs_all_are_listed_and_unreadable_ones_say_why(
    chromium: Any, tmp_path: Path, count: int
) -> None:
    readable, corrupt = many_runs(tmp_path, count)
    with serving(tmp_path) as address:
        seen = visit(chromium, address, hurries=True)
        open_list(seen)
        assert seen.page.locator("#runs tr[data-run]").count() == count
        assert seen.page.locator("#runs tr[data-filled]").count() == readable
        assert seen.page.locator("#runs .mp-runs-group").count() == count // 2
        for name in corrupt:
            line = seen.page.locator(f'#runs tr[data-run="{name}"]')
            assert "cannot be read: " in line.inner_text()
            assert "run.json" in line.inner_text()
            assert line.locator("input, a").count() == 0
        assert seen.page.evaluate(_CUT) <= 0
        for name in ("sweep-000/mixed", "sweep-001/mixed", "sweep-001/base"):
            # Ages of some seconds change the list as often: an element may be gone before a pointer is there.
            choose = f'#runs tr[data-run="{name}"] input'
            seen.page.evaluate("choose => document.querySelector(choose).click()", choose)
        polls = "() => Number(document.querySelector('#runs').dataset.polls)"
        before = seen.page.evaluate(polls)
        seen.page.wait_for_function(f"was => ({polls})() > was + 1", arg=before)  # looked at again, twice
        assert seen.page.inner_text("#runs-compare") == "compare 3 runs"
        seen.page.click("#runs-compare")
        seen.page.wait_for_selector("#ladder")
        shown = seen.page.locator("#ladder tbody th").all_inner_texts()
        assert shown == ["sweep-001/base", "sweep-000/mixed", "sweep-001/mixed"]
        seen.assert_quiet()


def test_which_run_to_look_at_is_judged_once_all_are_read_and_a_search_finds_rows(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    held: list[Any] = []
    seen.page.route("**/run.json*", lambda route: held.append(route))
    seen.page.goto(f"{sample_server}/runs")
    count = len(LogDirectory(SAMPLES).entries())
    worst = "() => document.querySelector('#runs-worst')?.textContent"
    seen.page.wait_for_function(f"said => ({worst})() === said", arg=f"Reading 0 of {count}")
    seen.page.wait_for_function("() => document.querySelectorAll('#runs [aria-busy]').length > 0")
    seen.page.unroute("**/run.json*")  # which lets those go that were held
    seen.page.wait_for_function(f"() => ({worst})()?.startsWith('Look at first: ')")
    assert seen.page.locator("#runs [aria-busy]").count() == 0
    seen.page.fill("#runs-search", "gtx1080ti float16")
    shown = seen.page.locator("#runs tr[data-run]:visible")
    assert shown.evaluate_all("all => all.map(e => e.dataset.run)") == ["gtx1080ti-mixed-float16"]
    seen.page.fill("#runs-search", "no such run")
    seen.page.wait_for_selector(".mp-runs-none:visible")
    seen.page.fill("#runs-search", "")
    assert shown.count() == count
    seen.assert_quiet()


def test_navigation_name_and_size_are_there_while_a_trace_is_being_read(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    held: list[Any] = []

    def hold(route: Any) -> None:
        if "..page.children" in (route.request.post_data or ""):
            held.append(route)
        else:
            route.continue_()

    seen.page.route("**/_dash-update-component*", hold)
    seen.page.goto(f"{sample_server}/?run=v100-convnet-mixed-float16&baseline=none")
    seen.page.wait_for_selector("#nav .mp-tab-current:text-is('Why')")
    seen.page.wait_for_selector("#reading:visible progress")
    said = seen.text("reading")
    assert said.startswith("Reading v100-convnet-mixed-float16 · ")
    assert said.endswith("iB")
    assert held
    held.pop().continue_()
    seen.page.wait_for_selector("#headline")
    assert not seen.page.is_visible("#reading")
    assert seen.page.locator("#first").count() == 0
    seen.assert_quiet()


def test_what_is_read_is_said_before_any_script_has_come(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.page.route("**/*.js*", lambda route: route.abort())
    seen.page.goto(f"{sample_server}/timeline?run=v100-convnet-mixed-float16&baseline=none")
    assert seen.page.inner_text("#first .mp-tab-current") == "Timeline"
    assert seen.page.is_visible("#first progress")
    assert seen.page.inner_text("#first strong").startswith("v100-convnet-mixed-float16 \u00b7 ")
