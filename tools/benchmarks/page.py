"""How fast the page is in a real browser, and what it sends: `python -m tools.benchmarks.page [LOGDIR RUN...]`.

MPPROF_PAGE_ROOT names another checkout, whose page is measured in turns with this one's.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
QUERIES = [
    "?run=v100-odd-vocabulary-mixed-float16&baseline=v100-odd-vocabulary-float32",
    "?run=a100-launch-bound-mixed-float16&baseline=a100-launch-bound-float32",
    "?run=v100-loss-scale-thrash&baseline=none",
    "?run=recorded-cpu-mixed-float16&baseline=recorded-cpu-float32",
]
"""Of the samples: each page is measured with all of them."""
QUIET_MS = 400
"""Without a mark drawn for so long after all that the page waits for: it is whole."""
RUN_CHANGE = "another run"
READ_MS = 3000
"""So long a reader looks at the first page, in which the next may be prepared."""
UNREAD = "Runs, before their traces are read"
"""The list is there at once, and its rows fill as the server reads trace after trace."""
# Runs `act`, and gives the milliseconds until the last mark of the page that it leads to: the last change of its
# elements (plotly's figures and tables are such), or of the canvas, which says in an attribute what it has drawn.
_TO_THE_LAST_MARK = """async ([act, of, quiet]) => {
    const page = document.querySelector('#page'), began = performance.now();
    let last = began;
    const seen = new MutationObserver(() => { last = performance.now(); });
    seen.observe(page, { childList: true, subtree: true, attributes: true, characterData: true });
    const all = (selector, test) => [...page.querySelectorAll(selector)].every(test);
    const there = () => (act === 'tab'
        ? document.querySelector('.mp-tab-current')?.textContent === of : location.search.startsWith(of))
        && last > began && page.querySelector('.mp-card') && !page.hasAttribute('data-dash-is-loading')
        && all('.mp-graph', graph => !graph.checkVisibility() || graph.querySelector('.main-svg'))
        && all('.mp-rows', table => table.dataset.loaded) && all('#runs', runs => runs.querySelector('tr[data-run]'))
        && all('#timeline', one => one.dataset.drawn)
        && !page.querySelector('#runs tr[aria-busy]');
    if (act === 'tab') [...document.querySelectorAll('.mp-tab')].find(tab => tab.textContent === of).click();
    else window.mpprof.go(location.pathname + of);
    while (!there() || performance.now() - last < quiet) {
        if (performance.now() - began > 30000) throw new Error('nothing more is drawn of ' + of);
        await new Promise(done => setTimeout(done, 20));
    }
    seen.disconnect();
    return last - began;
}"""


@dataclass
class Measured:
    """Seconds to the first card of Why with an empty and with a full cache; to the last mark of each other page
    (`first_s`: on its first visit) and, of the browser's main thread, the processor time of each, which a busy
    machine does not lengthen."""

    cold_bytes: list[int] = field(default_factory=list)
    cold_s: list[float] = field(default_factory=list)
    warm_s: list[float] = field(default_factory=list)
    change_s: dict[str, list[float]] = field(default_factory=dict)
    busy_s: dict[str, list[float]] = field(default_factory=dict)
    first_s: dict[str, list[float]] = field(default_factory=dict)

    def changes(self) -> list[float]:
        """All but those that wait for many traces."""
        return [seconds for name, each in self.change_s.items() if name != UNREAD for seconds in each]


def p95(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.95 * len(values)))]


@contextmanager
def served(root: Path, logdir: Path, **variables: str) -> Iterator[str]:
    """`mpprof serve` of a checkout, with these variables in its environment; gives the address."""
    paths = os.pathsep.join((str(root), str(root / "dashboards")))
    environment = os.environ | {"PYTHONPATH": paths} | variables
    command = [sys.executable, "-m", "mpprof", "serve", str(logdir), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment, cwd=root) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield "http://127.0.0.1:" + line.split("http://127.0.0.1:")[1].split("/")[0]
        process.terminate()
        process.wait(timeout=20)


def wire_bytes(page: Any) -> list[int]:
    """What comes over the wire from here on, packed as it is sent, in the list's one item."""
    total = [0]
    session = page.context.new_cdp_session(page)
    session.send("Network.enable")

    def finished(event: dict[str, Any]) -> None:
        total[0] += int(event["encodedDataLength"])

    session.on("Network.loadingFinished", finished)
    return total


def visit(browser: Any, base: str, queries: list[str], into: Measured) -> None:
    """One cold load and one warm load of Why, then every page of each run, until its last mark is drawn."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    sent = wire_bytes(page)
    for seconds in (into.cold_s, into.warm_s):
        began = perf_counter()
        page.goto(f"{base}/{queries[0]}")
        page.wait_for_selector("#flow")
        seconds.append(perf_counter() - began)
        page.wait_for_load_state("networkidle")
        if seconds is into.cold_s:
            into.cold_bytes.append(sent[0])
    page.wait_for_timeout(READ_MS)
    page.wait_for_load_state("networkidle")
    processor = _processor_of(page)
    tabs = page.locator(".mp-tab").all_inner_texts()
    for at, query in enumerate(queries):
        changes = [("tab", tab, UNREAD if tab == "Runs" and not at else tab) for tab in (*tabs[1:], tabs[0])]
        if at:
            changes.insert(0, ("run", query, RUN_CHANGE))
        for act, of, name in changes:
            before = processor()
            ms = page.evaluate(_TO_THE_LAST_MARK, [act, of, QUIET_MS])
            into.change_s.setdefault(name, []).append(ms / 1000)
            if not at:
                into.first_s.setdefault(name, []).append(ms / 1000)
            into.busy_s.setdefault(name, []).append(processor() - before)
    context.close()


def _processor_of(page: Any) -> Callable[[], float]:
    """Return what tells the seconds that the page's main thread has worked so far."""
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable", {"timeDomain": "threadTicks"})

    def read() -> float:
        told = session.send("Performance.getMetrics")["metrics"]
        return float(next(each["value"] for each in told if each["name"] == "TaskDuration"))

    return read


def measure(roots: dict[str, Path], logdir: Path, queries: list[str], rounds: int) -> dict[str, Measured]:
    """All checkouts in turns, so that what else the machine does falls on each."""
    from playwright.sync_api import sync_playwright

    found = {name: Measured() for name in roots}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(rounds):
            for name, root in roots.items():
                with served(root, logdir) as base:
                    visit(browser, base, queries, found[name])
        browser.close()
    return found


def line(name: str, one: Measured) -> str:
    """What was measured of a checkout: loads, all changes, and the changes to each page."""

    def middle(values: list[float]) -> str:
        return f"{1000 * statistics.median(values):,.0f}"

    changes = one.changes()
    lines = [
        f"{name:8} cold {middle(one.cold_s)} ms, {max(one.cold_bytes) / 1e6:.2f} MB; warm {middle(one.warm_s)} ms; "
        f"change {middle(changes)} ms, p95 {1000 * p95(changes):,.0f} ms of {len(changes)}"
    ]
    for page, seconds in one.change_s.items():
        lines.append(
            f"  {page:12} last mark after {middle(seconds)} ms, p95 {1000 * p95(seconds):,.0f} ms; "
            f"processor {middle(one.busy_s[page])} ms, p95 {1000 * p95(one.busy_s[page]):,.0f} ms; "
            f"first visit {middle(one.first_s.get(page, seconds))} ms"
        )
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    logdir = Path(arguments[0]) if arguments else ROOT / "sample_traces"
    queries = [f"?run={run}" for run in arguments[1:]] or QUERIES
    roots = {"now": ROOT}
    if before := os.environ.get("MPPROF_PAGE_ROOT"):
        roots = {"before": Path(before), **roots}
    rounds = int(os.environ.get("MPPROF_BENCH_RUNS", "5"))
    for name, one in measure(roots, logdir, queries, rounds).items():
        print(line(name, one))
    print(f"{rounds} rounds in turns; {platform.machine()}, {len(os.sched_getaffinity(0))} cores")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
