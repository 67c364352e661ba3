"""What leaves the page: a link, Markdown, a picture, one HTML file that opens without a network."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards.pages import PAGES

import mpprof
from mpprof.api.source import LogDirectory
from mpprof.cli import main
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.browser.visiting import MEASURED, VOCABULARY, visit
from tests.builders.read_back import markdown
from tests.paths import SAMPLES

pytestmark = pytest.mark.browser
RUN, BASELINE = "v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32"
MOST_BYTES = 6_000_000


def shared(chromium: Any, address: str, saved: Path) -> None:
    """Saves the page of the run as one HTML file, as a reader does."""
    seen = visit(chromium, address)
    seen.open(f"/{VOCABULARY}")
    with seen.page.expect_download() as download:
        seen.page.click("#share summary")
        seen.page.click("[data-share=html]")
    download.value.save_as(saved)
    seen.assert_quiet()


def reported(saved: Path) -> None:
    arguments = ["report", str(SAMPLES / RUN), "--baseline", str(SAMPLES / BASELINE)]
    assert main([*arguments, "--format", "html", "--redact", "--output", str(saved)]) == 0


@pytest.mark.parametrize("by", ["page", "command"])
def test_one_file_holds_why_the_strip_layers_and_kernels_and_opens_without_a_network(
    chromium: Any, sample_server: str, tmp_path: Path, by: str
) -> None:
    source, saved = LogDirectory(SAMPLES), tmp_path / "report.html"
    shared(chromium, sample_server, saved) if by == "page" else reported(saved)
    document = to_json(source.report(RUN, BASELINE))
    assert saved.stat().st_size < MOST_BYTES
    alone, asked = visit(chromium, saved.as_uri()), list[str]()
    alone.page.context.set_offline(True)
    alone.page.on("request", lambda request: asked.append(request.url))
    alone.page.goto(saved.as_uri())
    assert alone.text("headline") == document["answer"]["sentence"]
    for selector in ("#strip img", "#layers-run .mp-ice-node", "#layers-baseline", "#kernels tbody tr"):
        assert alone.page.locator(selector).count(), selector
    layer = source.layers(RUN, in_steps=True)[0]
    assert words.duration(layer["total_ns"] / document["time"]["window_steps"]) in alone.text("layers")
    total = alone.page.inner_text("#whatif-total")
    alone.page.click(".mp-switch")
    assert alone.page.inner_text("#whatif-total") != total
    assert [url for url in asked if not url.startswith(("data:", "blob:"))] == [saved.as_uri()]
    assert alone.problems == []


def test_the_file_that_is_saved_from_the_timeline_shows_its_step(
    chromium: Any, sample_server: str, tmp_path: Path
) -> None:
    source, saved = LogDirectory(SAMPLES), tmp_path / "report.html"
    median = source.timeline(RUN)
    other = source.timeline(RUN, step=median["slowest"])
    assert median["slowest"] != median["median"]
    seen = visit(chromium, sample_server)
    seen.page.goto(f"{sample_server}/timeline{VOCABULARY}")
    seen.page.wait_for_function("() => location.search.includes('step=')")
    was = seen.page.url
    seen.page.select_option("#tl-step", str(median["slowest"]))
    seen.page.wait_for_function("was => location.href !== was", arg=was)
    with seen.page.expect_download() as download:
        seen.page.click("#share summary")
        seen.page.click("[data-share=html]")
    download.value.save_as(saved)
    alone = visit(chromium, saved.as_uri())
    alone.page.goto(saved.as_uri())
    step = other["steps"][other["step"]]
    length = words.duration(step["end_ns"] - step["start_ns"])
    said = f"step {step['number']}, one of {len(other['steps'])} profiled, {length}"
    assert said in alone.page.inner_text("main")
    seen.assert_quiet()


def test_the_page_is_copied_as_markdown_and_as_a_link(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=sample_server)
    seen.open(f"/{VOCABULARY}")
    seen.page.click("#share summary")
    for kind, said in (("markdown", "Markdown copied"), ("link", "link copied")):
        seen.page.click(f"[data-share={kind}]")
        seen.page.wait_for_function(
            "said => document.querySelector('#share-said')?.textContent === said", arg=said
        )
        text = seen.page.evaluate("navigator.clipboard.readText()")
        expected = {
            "markdown": markdown.render(LogDirectory(SAMPLES).report(RUN, BASELINE)),
            "link": seen.page.url,
        }
        assert text == expected[kind]
    seen.assert_quiet()


@pytest.mark.parametrize("path", ["/", "/timeline"])
def test_the_browser_draws_the_page_as_a_picture(
    chromium: Any, sample_server: str, tmp_path: Path, path: str
) -> None:
    seen = visit(chromium, sample_server)
    seen.page.goto(f"{sample_server}{path}{VOCABULARY}")
    seen.page.wait_for_selector("#flow" if path == "/" else "#timeline[data-drawn] canvas")
    seen.page.click("#share summary")
    with seen.page.expect_download() as download:
        seen.page.click("[data-share=png]")
    saved = tmp_path / "page.png"
    download.value.save_as(saved)
    head = saved.read_bytes()
    assert head[:8] == b"\x89PNG\r\n\x1a\n"
    width, height = (int.from_bytes(head[at : at + 4], "big") for at in (16, 20))
    assert width >= 1400
    assert height > 300
    assert len(head) > 20_000  # not one colour: a picture of nothing is smaller
    seen.assert_quiet()


def test_titles_paper_and_files_name_the_run_the_date_and_the_version(
    chromium: Any, sample_server: str
) -> None:
    run, version = "v100-convnet-mixed-float16", mpprof.__version__
    seen = visit(chromium, sample_server)
    seen.open(f"/kernels?run={run}&baseline=none")
    seen.page.wait_for_function(
        "title => document.title === title", arg=f"Kernels \u00b7 {run} \u00b7 mpprof {version}"
    )
    seen.page.click(".mp-tab:text-is('Steps')")
    seen.page.wait_for_function(
        "title => document.title === title", arg=f"Steps \u00b7 {run} \u00b7 mpprof {version}"
    )
    day = seen.page.evaluate("() => window.mpprof.stamp().date")
    stamp = f"Steps \u00b7 {run} \u00b7 {day} \u00b7 mpprof {version}"
    seen.page.emulate_media(media="print")
    content = "() => getComputedStyle(document.querySelector('.mp-footer'), '::after').content"
    assert stamp in seen.page.evaluate(content)
    seen.page.emulate_media(media="screen")
    assert seen.page.evaluate(content) == "none"
    assert (
        seen.page.evaluate("() => window.mpprof.file('', 'png')") == f"mpprof-{version}-{run}-steps-{day}.png"
    )
    named = seen.page.evaluate(
        "run => fetch('/report.html?run=' + run).then(answer => answer.headers.get('Content-Disposition'))",
        run,
    )
    assert re.search(rf'filename="mpprof-{re.escape(version)}-{run}-\d{{4}}-\d\d-\d\d\.html"', named)
    seen.assert_quiet()


def test_a_printed_page_is_light_and_no_column_is_cut(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server, width=718, scheme="dark")  # A4 between its margins
    scheme = "() => document.documentElement.dataset.mantineColorScheme"
    for path in (page.path for page in PAGES if page.path != "/runs"):
        seen.turn(f"{path}{MEASURED}")
        seen.page.emulate_media(media="print", color_scheme="dark")
        cut = """() => [...document.querySelectorAll('#page table')].filter(
            e => e.getBoundingClientRect().right > innerWidth + 1).map(e => e.className)"""
        assert seen.page.evaluate(cut) == [], path
        assert seen.overflow() <= 0, path
        seen.page.evaluate("() => dispatchEvent(new Event('beforeprint'))")
        assert seen.page.evaluate(scheme) == "light"
        seen.page.evaluate("() => dispatchEvent(new Event('afterprint'))")
        assert seen.page.evaluate(scheme) == "dark"
        seen.page.emulate_media(media="null", color_scheme="dark")
    seen.assert_quiet()
