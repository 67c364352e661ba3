"""How fast the page is in a real browser, and what it sends: `python -m tests.benchmarks.page [LOGDIR RUN]`.

MPPROF_PAGE_ROOT names another checkout, whose page is measured in turns with this one's.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
CHROMIUM = "/usr/bin/chromium"
READY = "#page .mp-card"


@dataclass
class Measured:
    """Seconds to the first card of Why with an empty and with a full cache, and to each other page's."""

    cold_bytes: list[int] = field(default_factory=list)
    cold_s: list[float] = field(default_factory=list)
    warm_s: list[float] = field(default_factory=list)
    change_s: list[float] = field(default_factory=list)


@contextmanager
def served(root: Path, logdir: Path) -> Iterator[str]:
    """`mpprof serve` of a checkout; gives the address."""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join((str(root), str(root / "dashboards")))}
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


def visit(browser: Any, base: str, query: str, into: Measured) -> None:
    """One cold load, one warm load and a change to each page, each until its first card is there."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    page = context.new_page()
    sent = wire_bytes(page)
    for seconds in (into.cold_s, into.warm_s):
        began = perf_counter()
        page.goto(f"{base}/{query}")
        page.wait_for_selector("#causes")
        seconds.append(perf_counter() - began)
        page.wait_for_load_state("networkidle")
        if seconds is into.cold_s:
            into.cold_bytes.append(sent[0])
    for tab in page.locator(".mp-tab").all_inner_texts():
        began = perf_counter()
        page.click(f".mp-tab:text-is('{tab}')")
        page.wait_for_selector(f".mp-tab-current:text-is('{tab}')")
        page.wait_for_selector(READY)
        into.change_s.append(perf_counter() - began)
    context.close()


def measure(roots: dict[str, Path], logdir: Path, run: str, rounds: int) -> dict[str, Measured]:
    """All checkouts in turns, so that what else the machine does falls on each."""
    from playwright.sync_api import sync_playwright

    found = {name: Measured() for name in roots}
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-gpu"])
        for _ in range(rounds):
            for name, root in roots.items():
                with served(root, logdir) as base:
                    visit(browser, base, f"?run={run}", found[name])
        browser.close()
    return found


def line(name: str, one: Measured) -> str:
    def middle(values: list[float]) -> str:
        return f"{1000 * statistics.median(values):,.0f}"

    p95 = sorted(one.change_s)[min(len(one.change_s) - 1, round(0.95 * len(one.change_s)))]
    return (
        f"{name:8} cold {middle(one.cold_s)} ms, {max(one.cold_bytes) / 1e6:.2f} MB; warm {middle(one.warm_s)} ms; "
        f"page change {middle(one.change_s)} ms, p95 {1000 * p95:,.0f} ms"
    )


def main(arguments: list[str]) -> int:
    logdir = Path(arguments[0]) if arguments else ROOT / "sample_traces"
    run = arguments[1] if len(arguments) > 1 else "v100-odd-vocabulary-mixed-float16"
    roots = {"now": ROOT}
    if before := os.environ.get("MPPROF_PAGE_ROOT"):
        roots = {"before": Path(before), **roots}
    rounds = int(os.environ.get("MPPROF_BENCH_RUNS", "5"))
    for name, one in measure(roots, logdir, run, rounds).items():
        print(line(name, one))
    print(f"{rounds} rounds in turns; {platform.machine()}, {len(os.sched_getaffinity(0))} cores")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
