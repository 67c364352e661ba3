"""The pages in a real chromium: what they draw is what the report says, and nothing leaves this machine."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import waitress
from mpprof_dashboards import create_app
from mpprof_dashboards.pages import PAGES

from mpprof.api.source import LogDirectory
from mpprof.model import document as doc
from mpprof.report import words
from mpprof.report.headline import headline, hero
from tests.builders.xspace import Ref, Space
from tests.dashboards.fake_source import HOSTILE, HOSTILE_KERNEL, FakeSource, kernel_rows

pytestmark = pytest.mark.browser

CHROMIUM = Path("/usr/bin/chromium")
ROOT = Path(__file__).parents[2]
SAMPLES = ROOT / "sample_traces"
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
_BARS = """id => Object.fromEntries(
    [...document.querySelectorAll(`#${CSS.escape(id)} .mp-bar-row`)].map(row => [row.dataset.key, +row.dataset.ns])
)"""
_MARKS = """id => {
    const plot = document.querySelector(`#${CSS.escape(id)} .js-plotly-plot`);
    return Object.fromEntries(Array.from(plot.data[0].customdata));
}"""


@dataclass
class Visit:
    """One browser page, with all that it logged and asked for."""

    page: Any
    base: str
    problems: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.page.on("console", self._logged)
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.hosts.add(urlsplit(request.url).hostname or "local"))

    def _logged(self, message: Any) -> None:
        if message.type in ("error", "warning") or "WARN" in message.text:
            self.problems.append(message.text)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)
        self.settle()

    def settle(self) -> None:
        """Waits until every figure and table of the page is drawn."""
        self.page.wait_for_selector("#page .mp-card")
        self.page.wait_for_function(
            """() => [...document.querySelectorAll('.mp-graph')].every(
                graph => graph.querySelector('.js-plotly-plot .main-svg'))
              && [...document.querySelectorAll('.mp-grid')].every(grid => grid.querySelector('.ag-row'))"""
        )

    def choose(self, query: str, verdict: str) -> None:
        """Goes to another run within the app, and waits for its verdict."""
        self.page.evaluate("search => dash_clientside.set_props('url', {search})", query)
        self.page.wait_for_function(
            "text => document.querySelector('#verdict')?.textContent === text", arg=verdict
        )
        self.settle()

    def open_well(self, path: str) -> None:
        """Opens a page that must have something to show."""
        self.open(path)
        assert self.page.locator(".mp-failure").count() == 0, self.page.inner_text("#page")

    def marks(self, graph: str) -> dict[str, float]:
        """Raw values by key of the first trace of a bar figure."""
        return self.page.evaluate(_MARKS, graph)  # type: ignore[no-any-return]

    def bars(self, chart: str) -> dict[str, float]:
        """Raw lengths by key of a chart of plain bars."""
        return self.page.evaluate(_BARS, chart)  # type: ignore[no-any-return]

    def text(self, id: str) -> str:
        return self.page.inner_text(f"#{id}")  # type: ignore[no-any-return]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return self.page.evaluate(  # type: ignore[no-any-return]
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def assert_quiet(self) -> None:
        assert self.problems == []
        assert self.hosts <= {"127.0.0.1", "local"}


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip("no /usr/bin/chromium: `apt-get install chromium` on Debian")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def fake_server() -> Iterator[str]:
    server = waitress.create_server(create_app(FakeSource()).server, host="127.0.0.1", port=0, threads=8)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


@contextmanager
def serving(logdir: Path) -> Iterator[str]:
    """`mpprof serve LOGDIR`, the way a user runs it; gives the address."""
    command = [sys.executable, "-m", "mpprof.cli", "serve", str(logdir), "--port", "0"]
    paths = os.pathsep.join((str(ROOT), str(ROOT / "dashboards")))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert "http://127.0.0.1:" in line, line
        yield "http://127.0.0.1:" + line.split("http://127.0.0.1:")[1].split("/")[0]
        process.terminate()
        process.wait(timeout=20)


@pytest.fixture(scope="module")
def sample_server() -> Iterator[str]:
    if not SAMPLES.is_dir():
        pytest.skip("no sample_traces/ in this checkout")
    with serving(SAMPLES) as address:
        yield address


def visit(browser: Any, base: str, width: int = 1440, scheme: str = "light") -> Visit:
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    return Visit(context.new_page(), base)


def assert_verdict_shows(seen: Visit, document: doc.Report) -> None:
    """Why shows the report: its sentences, two of its values, the bars of its account and of its causes."""
    assert seen.page.locator("#verdict").text_content() == document["verdict"]
    assert seen.text("headline") == headline(document)
    assert seen.text("hero") == hero(document).figure
    facts = document["facts"]
    bars = seen.bars("causes") if seen.page.locator("#causes").count() else {}
    gains = {each["code"]: each["gain_ns_per_step"] for each in facts["causes"]}
    assert {key: -ns for key, ns in bars.items() if key in gains} == pytest.approx(
        {code: ns for code, ns in gains.items() if code in bars}
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


def gap_marks(document: doc.Report) -> dict[str, float]:
    """What the figure of a comparison's gap shows, by class; `speedup` is that of the comparison."""
    time, sums = document["time"], dict[str, float]()
    for part in document["speedup"]["slices"]:
        sums[part["class"]] = sums.get(part["class"], 0.0) + part["ns_per_step"]
    shown = {role: ns for role, ns in sums.items() if ns}
    small = {role for role, ns in shown.items() if abs(ns) < 0.002 * time["step_ns"]}
    if len(small) > 1:  # folded into one bar
        rest = sum(shown[role] for role in small)
        shown = {role: ns for role, ns in shown.items() if role not in small} | {"rest": rest}
    return shown | {"reach": time["step_ns"] - sum(sums.values()), "step": time["step_ns"]}


def test_every_page_is_quiet_and_shows_the_report(chromium: Any, fake_server: str) -> None:
    source, seen = FakeSource(), visit(chromium, fake_server)
    document = source.report("mixed", "fp32")
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

    seen.open(f"/ops{query}")
    rows = kernel_rows()
    unknown = sum(row["total_ns"] for row in rows if row["placement"] == "unknown")
    assert seen.marks("kernel-time")["unknown"] == unknown
    first = max(rows, key=lambda row: row["total_ns"])
    cell = seen.page.locator('#kernels-grid [row-index="0"] [col-id="total_ns"]')
    assert cell.text_content() == words.duration(first["total_ns"])

    seen.open(f"/layers{query}")
    assert seen.marks("layers")["res2a"] == 7_100_000

    seen.open(f"/memory{query}")
    assert seen.text("peak-bytes") == words.size(document["memory"]["peak_bytes"])
    kinds = {item["name"]: item["bytes"] for item in document["memory"]["at_peak"] if item["by"] == "kind"}
    assert seen.marks("peak-kind") == kinds

    seen.open(f"/compare{query}")
    assert seen.marks("gap-0") == pytest.approx(gap_marks(document))
    assert seen.text("rung-0-observed") == words.speedup(document["speedup"]["observed"])

    for page in PAGES:  # those that came later have their figures checked in a test of their own
        if page.path not in ("/", "/steps", "/ops", "/layers", "/memory", "/compare"):
            seen.open_well(f"{page.path}{query}")
    seen.assert_quiet()


def test_a_name_with_markup_is_shown_as_text_everywhere(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server)
    for path in ("/", "/ops", "/layers", "/memory", "/compare"):
        seen.open(f"{path}?run=mixed&baseline=fp32")
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
        seen.open_well("/ops")
        shown = seen.page.evaluate("() => document.body.textContent")
        assert HOSTILE in shown
        assert HOSTILE_KERNEL in shown
        for page in PAGES:
            seen.open_well(page.path)
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
    seen.open("/ops?run=mixed&baseline=fp32")
    light = seen.page.evaluate(ground)
    seen.page.click("#scheme")
    seen.page.wait_for_function("() => document.body.dataset.agThemeMode === 'dark'")
    dark = seen.page.evaluate(ground)
    assert dark != light
    seen.page.reload(wait_until="commit")
    seen.page.wait_for_selector("#page .mp-card")
    assert seen.page.evaluate("document.documentElement.dataset.mantineColorScheme") == "dark"
    assert seen.page.evaluate("document.body.dataset.agThemeMode") == "dark"
    assert seen.page.evaluate(ground) == dark
    seen.assert_quiet()


@pytest.mark.full
def test_a_narrow_window_needs_no_sideways_scrolling(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server, width=390)
    seen.open("/?run=mixed&baseline=fp32")
    for page in PAGES:
        seen.page.click(f".mp-tab:text-is('{page.title}')")
        seen.page.wait_for_selector(f".mp-tab-current:text-is('{page.title}')")
        seen.settle()
        assert seen.overflow() <= 0, page.title
    seen.assert_quiet()


@pytest.mark.full
def test_choosing_a_run_writes_the_link_and_draws_its_page(chromium: Any, fake_server: str) -> None:
    seen = visit(chromium, fake_server)
    seen.open("/?run=mixed&baseline=fp32")
    seen.page.click("#run")
    seen.page.get_by_role("option", name="laptop-cpu").click()
    seen.page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('used a CPU')")
    assert "run=cpu" in seen.page.url
    assert "baseline=none" in seen.page.url
    seen.page.go_back()
    seen.page.wait_for_function("() => document.querySelector('#verdict').textContent.includes('1.07x')")
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
        seen.page.click("#export")
    saved = tmp_path / "report.html"
    download.value.save_as(saved)
    alone = visit(chromium, saved.as_uri(), width=390)
    alone.page.goto(alone.base)
    alone.page.wait_for_selector("#step-times .main-svg")
    assert alone.text("verdict") == FakeSource().report("mixed", "fp32")["verdict"]
    assert HOSTILE in alone.page.evaluate("document.body.textContent")
    assert alone.page.locator('a[href="x"], #causes b').count() == 0
    assert alone.overflow() <= 0
    alone.page.set_viewport_size({"width": 1440, "height": 900})
    alone.page.reload()
    alone.page.wait_for_load_state("load")
    alone.page.wait_for_function(
        """() => [...document.querySelectorAll('.js-plotly-plot')].every(plot =>
            plot.querySelector('.main-svg').getBoundingClientRect().width
            <= plot.closest('.mp-card').clientWidth)"""
    )
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
        document = source.report(entry.id, baseline)
        seen.choose(f"?run={entry.id}&baseline={baseline or 'none'}", document["verdict"])
        assert_verdict_shows(seen, document)
    seen.assert_quiet()


@pytest.mark.full
def test_every_page_of_a_sample_shows_its_tables(chromium: Any, sample_server: str) -> None:

    source = LogDirectory(SAMPLES)
    run, baseline = "v100-odd-vocabulary-mixed-float16", "v100-odd-vocabulary-float32"
    query = f"?run={run}&baseline={baseline}"
    document, seen = source.report(run, baseline), visit(chromium, sample_server)

    seen.open_well(f"/steps{query}")
    assert seen.text("median") == words.duration(document["steps"]["median_ns"])
    assert seen.text("step-count") == words.count(document["steps"]["count"])

    seen.open_well(f"/ops{query}")
    sums: dict[str, float] = {"unknown": 0.0}
    for row in source.kernels(run):
        sums[row["placement"]] = sums.get(row["placement"], 0.0) + row["total_ns"]
    assert seen.marks("kernel-time") == sums
    longest = max(source.ops(run), key=lambda row: row["total_ns"])
    cell = seen.page.locator('#ops-grid [row-index="0"] [col-id="total_ns"]')
    assert cell.text_content() == words.duration(longest["total_ns"])

    seen.open_well(f"/layers{query}")
    rows = {row["layer"] or "": row["total_ns"] for row in source.layers(run)}
    shown = {name: ns for name, ns in seen.marks("layers").items() if name != "more"}
    assert shown == {name: rows.get(name, 0) for name in shown}
    assert len(shown) > 2

    seen.open_well(f"/memory{query}")
    assert seen.text("peak-recorded") == words.size(document["steps"]["peak_memory_bytes"])

    seen.open_well(f"/compare{query}")
    rung = source.compare((baseline, run))["steps"][0]
    assert seen.text("rung-0-observed") == words.speedup(rung["observed"])
    assert seen.marks("gap-0") == pytest.approx(gap_marks(document | {"speedup": rung}))
    seen.assert_quiet()


# --- Why ---------------------------------------------------------------------------------------------------

MEASURED = "?run=v100-input-bound-mixed-float16&baseline=v100-input-bound-float32"


def bottom(seen: Visit, selector: str) -> float:
    return float(seen.page.locator(selector).first.bounding_box()["y"]) + float(
        seen.page.locator(selector).first.bounding_box()["height"]
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_the_first_screen_holds_the_answer_the_causes_and_the_remedies(
    chromium: Any, sample_server: str, scheme: str
) -> None:
    seen = visit(chromium, sample_server, scheme=scheme)
    for run in ("v100-input-bound-mixed-float16", "v100-loss-scale-thrash", "v100-float32-island"):
        seen.open_well(f"/?run={run}&baseline=none")
        for selector in ("#headline", "#causes", "#whatif .mp-remedies"):
            assert bottom(seen, selector) <= 900, (run, selector)
    narrow = visit(chromium, sample_server, width=390, scheme=scheme)
    narrow.page.set_viewport_size({"width": 390, "height": 844})
    narrow.open_well(f"/{MEASURED}")
    assert bottom(narrow, "#hero") < bottom(narrow, '#causes [data-key="MP301"]') <= 844
    assert narrow.overflow() <= 0
    seen.assert_quiet()


def test_switching_remedies_shows_the_steps_that_came_with_the_page(
    chromium: Any, sample_server: str
) -> None:
    document = LogDirectory(SAMPLES).report("v100-input-bound-mixed-float16", "v100-input-bound-float32")
    steps = document["whatif"]["subsets_ns"]
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{MEASURED}")
    total = "() => document.querySelector('#whatif-total').textContent"
    assert words.duration(steps[3]) in seen.page.evaluate(total)
    first, second = seen.page.locator(".mp-switch").all()
    asked: list[str] = []
    seen.page.on("request", lambda request: asked.append(request.url))
    first.click()
    assert words.duration(steps[2]) in seen.page.evaluate(total)
    assert seen.bars("causes")["after"] == steps[2]
    assert seen.page.locator('[data-after="0"]').text_content() == "—"
    assert seen.page.locator('[data-after="1"]').text_content() == words.duration(steps[2])
    second.press("Space")
    assert f"→ {words.duration(steps[0])}" in seen.page.evaluate(total)
    second.press("Enter")
    first.click()
    assert words.duration(steps[3]) in seen.page.evaluate(total)
    assert asked == []
    # Each click is over when it returns: what it shows waits for no timer and no answer.
    shown = seen.page.evaluate(
        """() => { const one = document.querySelector('.mp-switch');
                   const total = () => document.querySelector('#whatif-total').textContent;
                   return [0, 1, 2, 3].map(() => { one.click(); return total(); }); }"""
    )
    expected = (steps[2], steps[3], steps[2], steps[3])
    assert all(words.duration(ns) in text for ns, text in zip(expected, shown, strict=True))
    assert asked == []
    seen.assert_quiet()


def test_a_cause_leads_to_its_proof_within_two_clicks(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{MEASURED}")
    seen.page.click('#causes [data-key="MP301"] a')
    seen.page.wait_for_selector("#timeline[data-drawn] canvas")
    assert "run=v100-input-bound-mixed-float16" in seen.page.url
    seen.open_well(f"/{MEASURED}")
    seen.page.click('#causes [data-key="MP501"] a')
    seen.page.wait_for_selector("#kernels-grid .ag-row")
    seen.assert_quiet()


# --- the timeline ------------------------------------------------------------------------------------------


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


# --- tables ------------------------------------------------------------------------------------------------


def test_filters_speak_the_units_that_are_shown(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/ops{MEASURED}")
    rows = LogDirectory(SAMPLES).kernels("v100-input-bound-mixed-float16")
    times = [row["total_ns"] for row in rows]
    shown = words.duration(max(times))
    grid = seen.page.locator("#kernels-grid")
    field = grid.locator(".ag-floating-filter input").nth(1)
    texts = "() => [...document.querySelectorAll('#kernels-grid .ag-row [col-id=total_ns]')].map(e => e.innerText)"
    cells = grid.locator(".ag-row [col-id=total_ns]")
    digits = shown.split(".")[0].split()[0]
    field.fill(digits)
    cells.filter(has_not_text=digits).first.wait_for(state="detached")
    assert shown in seen.page.evaluate(texts)
    field.fill(">= 1 ms")
    cells.filter(has_not_text=re.compile(r" ms$")).first.wait_for(state="detached")
    assert 0 < len(seen.page.evaluate(texts)) <= sum(ns >= 1e6 for ns in times)
    ground = (
        "() => getComputedStyle(document.querySelector('#kernels-grid .ag-root-wrapper')).backgroundColor"
    )
    assert seen.page.evaluate(ground) not in ("rgba(0, 0, 0, 0)", "transparent")
    seen.assert_quiet()
