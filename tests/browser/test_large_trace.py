"""A trace of two million events: its pages open, its timeline pans, and neither server nor browser fills up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest
from mpprof_dashboards import work
from mpprof_dashboards.pages import PAGES

from mpprof.api.source import LogDirectory
from mpprof.report.to_json import to_json
from tests.browser.test_interactions import _WINDOW, drawn_anew
from tests.browser.visiting import serving, visit
from tools.benchmarks import big_trace

pytestmark = [pytest.mark.browser, pytest.mark.full]
MOST_SERVER_MIB, MOST_HEAP_MIB = 1536, 128
"""Of the server's process at its peak and of the browser's scripts: 1,030 and 41 were measured."""
ROUNDS, PANS = 3, 15
MOST_MORE_MIB = 256
"""What all rounds but the first may add to the server's peak."""


@pytest.fixture(scope="module")
def logdir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("large")
    folder = root / "plugins" / "profile" / "now"
    folder.mkdir(parents=True)
    assert big_trace.write(folder / "host.xplane.pb") > 2_000_000
    assert (folder / "host.xplane.pb").stat().st_size > 60e6
    return root


@pytest.fixture
def server(logdir: Path) -> Iterator[tuple[str, psutil.Process]]:
    before = set(psutil.Process().children())
    with serving(logdir) as address:
        (process,) = (each for each in psutil.Process().children() if each not in before)
        yield address, process


def peak_mib(process: psutil.Process) -> float:
    """The most memory that a process has held so far."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return int(re.search(r"VmHWM:\s+(\d+) kB", status)[1]) / 1024


def test_pages_of_two_million_events_open_and_the_timeline_pans(
    chromium: Any, logdir: Path, server: tuple[str, psutil.Process]
) -> None:
    address, process = server
    source = LogDirectory(logdir)
    (entry,) = source.entries()
    known = source.timeline(entry.id, width=1)
    seen = visit(chromium, address)
    seen.page.set_default_timeout(120_000)
    seen.open_well("/")
    assert seen.text("headline") == to_json(source.report(entry.id, None))["verdict"]
    for page in PAGES:
        seen.page.click(f".mp-tab:text-is('{page.title}')")
        seen.page.wait_for_selector(f".mp-tab-current:text-is('{page.title}')")
        seen.settle()
        assert seen.page.locator(".mp-failure").count() == 0, page.title
        if page.path == "/kernels":
            rows = work.table(source, entry.id, source.report(entry.id, None), "kernel").rows
            assert int(seen.page.get_attribute("#kernels", "data-found")) == len(rows)
    sizes: list[int] = []
    seen.page.on(
        "response", lambda answer: "/timeline.json" in answer.url and sizes.append(len(answer.body()))
    )
    seen.page.click(".mp-tab:text-is('Timeline')")
    seen.page.wait_for_function("() => location.search.includes('t1=')")
    assert seen.page.locator("#tl-step option").count() >= len(known["steps"])
    shown = seen.page.evaluate(_WINDOW)
    span = shown[1] - shown[0]
    peaks = []
    for _ in range(ROUNDS):
        for _ in range(PANS):
            seen.page.focus("#timeline")
            moved = drawn_anew(seen, lambda: seen.page.keyboard.press("d"))
            assert moved[0] > shown[0]
            assert moved[1] - moved[0] == pytest.approx(span, rel=1e-3)
            shown = moved
        whole = drawn_anew(seen, lambda: seen.page.click("#tl-all"))
        assert whole == [0, known["steps"][-1]["end_ns"]]
        seen.page.wait_for_load_state("networkidle")
        peaks.append(peak_mib(process))
        shown = drawn_anew(seen, lambda: seen.page.click("#tl-whole"))
        span = shown[1] - shown[0]
    heap = seen.page.evaluate("performance.memory.usedJSHeapSize") / 2**20
    print(f"server {peaks} MiB; scripts {heap:.0f} MiB; largest answer {max(sizes):,} bytes of {len(sizes)}")
    assert len(sizes) > ROUNDS * PANS
    assert max(sizes) < 1e6
    assert peaks[-1] < MOST_SERVER_MIB
    assert peaks[-1] < peaks[0] + MOST_MORE_MIB
    assert heap < MOST_HEAP_MIB
    seen.assert_quiet()
