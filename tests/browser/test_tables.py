"""Long tables in a real chromium: filters, rows that open, sorting, and figures that pick rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.browser.visiting import MEASURED, VOCABULARY, visit

pytestmark = pytest.mark.browser


def test_filters_speak_the_units_that_are_shown(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/kernels{MEASURED}")
    whole = seen.column("kernels", "ns")
    typed = whole[0].split(".")[0].split()[0]
    seen.filter("kernels", "ns", typed)
    assert whole[0] in seen.column("kernels", "ns")
    assert all(typed in text for text in seen.column("kernels", "ns"))
    seen.filter("kernels", "ns", ">= 1 ms")
    assert seen.column("kernels", "ns") == [text for text in whole if text.endswith(" ms")]
    assert "kernels.ns=%3E%3D+1+ms" in seen.page.url
    again = visit(chromium, sample_server)
    again.page.goto(seen.page.url)
    again.page.wait_for_selector("#kernels[data-loaded]")
    assert again.column("kernels", "ns") == seen.column("kernels", "ns")
    seen.page.click("#kernels button:text-is('clear filters')")
    seen.page.wait_for_function(
        "n => +document.querySelector('#kernels')?.dataset.found === n", arg=len(whole)
    )
    again.assert_quiet()
    seen.assert_quiet()


def test_filters_stay_where_they_are_when_nothing_matches(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/kernels{MEASURED}")
    places = """() => [...document.querySelectorAll('#kernels .mp-rows-filters input')].map(
        e => Math.round(e.getBoundingClientRect().left))"""
    before = seen.page.evaluate(places)
    for typed in ("gemm", "no such kernel"):
        seen.filter("kernels", "short", typed)
        assert seen.page.evaluate(places) == before
    assert seen.page.locator("#kernels tbody").inner_text().strip() == "nothing matches"
    seen.filter("kernels", "short", "")
    assert seen.page.evaluate(places) == before
    seen.assert_quiet()


def test_a_row_opens_beside_the_table_and_the_table_is_sorted_by_its_heads(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/kernels{VOCABULARY}")
    name = seen.page.locator("#kernels tbody .mp-row-name").first
    name.focus()
    seen.page.keyboard.press("Enter")
    panel = seen.page.locator("#kernels .mp-rows-panel")
    assert "not a multiple of 8" in panel.inner_text()
    assert name.get_attribute("aria-expanded") == "true"
    seen.page.keyboard.press("Enter")
    assert not panel.is_visible()
    was = seen.page.get_attribute("#kernels", "data-loaded")
    seen.page.click("#kernels th button:text-is('Calls')")
    seen.page.wait_for_function("was => document.querySelector('#kernels').dataset.loaded !== was", arg=was)
    calls = [float(text.replace(",", "")) for text in seen.column("kernels", "calls")]
    assert calls == sorted(calls, reverse=True)
    with seen.page.expect_download() as download:
        seen.page.click("#kernels a:text-is('CSV')")
    lines = Path(download.value.path()).read_text().splitlines()
    assert lines[0].startswith("place,short,layer,ns,ratio,could,why")
    assert len(lines) == len(calls) + 1
    seen.assert_quiet()


def test_dots_of_the_roofline_pick_rows_and_a_scope_of_the_icicle_filters(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/kernels{VOCABULARY}&by=op")
    whole = seen.column("ops", "short")
    seen.page.wait_for_selector("#roofline .js-plotly-plot[data-picks]")
    seen.page.evaluate(
        """() => { const plot = document.querySelector('#roofline .js-plotly-plot');
                   const off = plot.data.find(each => each.name === 'matrix work off Tensor Cores');
                   plot.emit('plotly_selected', {points: off.customdata.map(customdata => ({customdata}))}); }"""
    )
    seen.page.wait_for_function("n => +document.querySelector('#ops')?.dataset.found < n", arg=len(whole))
    assert all("logits" in name for name in seen.column("ops", "short"))
    seen.turn(f"/layers{VOCABULARY}")
    seen.page.click('#layers-run [data-layer="logits"] >> nth=0')
    seen.page.wait_for_function("() => +document.querySelector('#layers')?.dataset.found === 1")
    assert seen.column("layers", "short") == ["logits"]  # and not logits_float beside it
    seen.page.click('#layers-run [data-layer="block_*"] >> nth=0')
    seen.page.wait_for_function("() => +document.querySelector('#layers')?.dataset.found > 3")
    shown = seen.column("layers", "short")
    assert len(shown) % 3 == 0
    assert {name.partition("/")[0] for name in shown} == {"block_0", "block_1", "block_2"}
    seen.page.click('#layers-run [data-layer="block_*/up"] >> nth=0')
    seen.page.wait_for_function("() => +document.querySelector('#layers')?.dataset.found === 3")
    seen.page.click('#layers-run [data-layer="block_*/up"] >> nth=0')  # once more: all
    seen.page.wait_for_function("n => +document.querySelector('#layers')?.dataset.found > n", arg=len(shown))
    seen.assert_quiet()


def test_a_link_in_a_page_loads_nothing_anew_and_figures_can_be_drawn_by_then(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{VOCABULARY}")
    assert seen.page.locator(".mp-graph").count() == 0
    seen.page.wait_for_function("() => window.Plotly")  # though no figure has asked for it
    seen.page.evaluate("() => { window.sameDocument = true; }")
    seen.page.click("#whatif a[data-link]")
    seen.page.wait_for_selector(".mp-tab-current:not(:text-is('Why'))")
    seen.settle()
    assert seen.page.evaluate("() => window.sameDocument")
    seen.page.go_back()
    seen.page.wait_for_selector("#flow")
    seen.assert_quiet()
