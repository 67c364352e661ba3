"""The list of runs in a real chromium: which to look at, all of it in the window, 300 of them, some corrupt."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpprof.api.source import LogDirectory
from mpprof.report import words
from tests.browser.visiting import SAMPLES, Visit, serving, visit
from tests.builders.gpus import V100
from tests.builders.records import Recorded, imagenette_convnet, write

pytestmark = pytest.mark.browser
_ALL_FILLED = (
    "() => document.querySelector('#runs[data-drawn]') && !document.querySelector('#runs [aria-busy]')"
)
_CUT = """() => { const box = document.querySelector('#runs .mp-scroll');
    return box.scrollWidth - box.clientWidth; }"""


def open_list(seen: Visit) -> None:
    seen.page.goto(f"{seen.base}/runs")
    seen.page.wait_for_function(_ALL_FILLED, timeout=120_000)


def test_the_list_of_runs_is_the_landing_page_and_says_which_to_look_at(
    chromium: Any, sample_server: str
) -> None:
    source, seen = LogDirectory(SAMPLES), visit(chromium, sample_server)
    seen.page.goto(sample_server + "/")
    seen.page.wait_for_selector("#runs[data-drawn]")
    assert seen.page.url.endswith("/runs")
    seen.page.wait_for_function("() => !document.querySelector('#runs [aria-busy]')")
    row = '#runs tr[data-run="v100-odd-vocabulary-mixed-float16"]'
    document = source.report("v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32")
    cell = f'{row} [data-field="%s"]'
    assert seen.page.inner_text(cell % "step") == words.duration(document["facts"]["step_ns"])
    assert words.speedup(document["facts"]["attainable"]) in seen.page.inner_text(cell % "speedup")
    assert seen.page.inner_text(cell % "share") == words.percent(document["tensor_core"]["ratio"])
    assert seen.page.inner_text(cell % "cause") == document["findings"][0]["title"]
    assert seen.page.inner_text("#runs-worst a") == "v100-odd-vocabulary-mixed-float16"
    assert len(seen.page.query_selector_all("#runs tr[data-run]")) == len(source.entries())
    for run in ("v100-convnet-mixed-float16", "v100-convnet-float32"):
        seen.page.check(f'#runs tr[data-run="{run}"] input')
    seen.page.click("#runs-compare")
    seen.page.wait_for_selector("#rung-0-observed")
    assert "with=v100-convnet-float32&with=v100-convnet-mixed-float16" in seen.page.url
    seen.assert_quiet()


@pytest.mark.parametrize("width", [1440, 390])
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
        seen = visit(chromium, address)
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
            seen.page.check(f'#runs tr[data-run="{name}"] input')
        polls = "() => Number(document.querySelector('#runs').dataset.polls)"
        before = seen.page.evaluate(polls)
        seen.page.wait_for_function(f"was => ({polls})() > was + 1", arg=before)  # looked at again, twice
        assert seen.page.inner_text("#runs-compare") == "compare 3 runs"
        seen.page.click("#runs-compare")
        seen.page.wait_for_selector("#ladder")
        shown = seen.page.locator("#ladder tbody th").all_inner_texts()
        assert shown == ["sweep-001/base", "sweep-000/mixed", "sweep-001/mixed"]
        seen.assert_quiet()
