"""A real chromium that visits the page: what it logged, asked for and shows."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.paths import ROOT

CHROMIUM = Path("/usr/bin/chromium")
PATIENCE_MS = 120_000
"""How long a page is waited for: a busy machine is slow, and a page that never comes fails all the same."""
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
_BARS = """id => Object.fromEntries(
    [...document.querySelectorAll(`#${CSS.escape(id)} .mp-bar-row`)].map(row => [row.dataset.key, +row.dataset.ns])
)"""
_FLOW = """() => Object.fromEntries(
    [...document.querySelectorAll('#flow .mp-flow-bar')].map(bar => [bar.dataset.key, +bar.dataset.ns])
)"""


@dataclass
class Visit:
    """One browser page, with all that it logged and asked for."""

    page: Any
    base: str
    problems: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(PATIENCE_MS)
        for event, heard in self._heard().items():
            self.page.on(event, heard)

    def _heard(self) -> dict[str, Callable[[Any], None]]:
        return {"console": self._logged, "pageerror": self._failed, "request": self._asked}

    def end(self) -> None:
        """Hears no more of the page, and leaves it as a new one is."""
        for event, heard in self._heard().items():
            self.page.remove_listener(event, heard)
        context = self.page.context
        context.set_offline(False)
        context.clear_permissions()
        context.clear_cookies()
        self.page.unroute_all(behavior="ignoreErrors")
        self.page.set_default_timeout(PATIENCE_MS)
        if self.page.url.startswith("http"):
            self.page.evaluate("() => { localStorage.clear(); sessionStorage.clear(); }")
        self.page.goto("about:blank")

    def _failed(self, error: Any) -> None:
        self.problems.append(str(error))

    def _asked(self, request: Any) -> None:
        self.hosts.add(urlsplit(request.url).hostname or "local")

    def _logged(self, message: Any) -> None:
        if message.type in ("error", "warning") or "WARN" in message.text:
            self.problems.append(message.text)

    def open(self, path: str) -> None:
        self.page.goto(self.base + path)
        self.settle()

    def settle(self) -> None:
        """Waits until every figure and table of the page is drawn; a figure that is folded away is not."""
        self.page.wait_for_selector("#page .mp-card")
        self.page.wait_for_function(
            """() => [...document.querySelectorAll('.mp-graph')].every(
                graph => !graph.checkVisibility() || graph.querySelector('.js-plotly-plot .main-svg'))
              && [...document.querySelectorAll('.mp-rows')].every(table => table.dataset.loaded)"""
        )

    def choose(self, query: str, verdict: str) -> None:
        """Goes to another run within the app, and waits for its verdict."""
        self.page.evaluate("search => mpprof.go(location.pathname + search)", query)
        self.page.wait_for_function(
            "text => document.querySelector('#headline')?.textContent === text", arg=verdict
        )
        self.settle()

    def look_again(self) -> None:
        """Looks whether the run has grown, as the page's clock makes it do every 5 s."""
        self.page.evaluate("() => dash_clientside.set_props('live', {n_intervals: 1000})")

    def look_until(self, function: str, arg: Any) -> None:
        """Looks again, with the page's own clock stopped, until this is so: at once, after a second, two, four …"""
        look = "dash_clientside.set_props('live', {interval: 1e9, n_intervals: now % 1e6})"
        self.page.evaluate("() => { window.lookAt = 0; window.lookAfter = 1000; }")
        self.page.wait_for_function(
            f"""arg => {{
                const now = Date.now();
                if (({function})(arg)) return true;
                if (now > window.lookAt) {{ window.lookAt = now + window.lookAfter; window.lookAfter *= 2; {look}; }}
                return false;
            }}""",
            arg=arg,
        )

    def open_well(self, path: str) -> None:
        """Opens a page that must have something to show."""
        self.open(path)
        assert self.page.locator(".mp-failure").count() == 0, self.page.inner_text("#page")

    def turn(self, path: str) -> None:
        """Goes to a page within the app, which must have something to show: a third of the work of opening it."""
        if not self.page.url.startswith(self.base):
            return self.open_well(path)
        self.page.evaluate("() => dash_clientside.set_props('page', {children: []})")
        self.page.wait_for_function("() => !document.getElementById('page').childElementCount")
        self.page.evaluate("address => mpprof.go(address)", path)
        self.settle()
        assert self.page.locator(".mp-failure").count() == 0, self.page.inner_text("#page")
        return None

    def bars(self, chart: str) -> dict[str, float]:
        """Raw lengths by key of a chart of plain bars."""
        return self.page.evaluate(_BARS, chart)  # type: ignore[no-any-return]

    def flow(self) -> dict[str, float]:
        """The flow's bars by key, with what is their whole length."""
        return self.page.evaluate(_FLOW)  # type: ignore[no-any-return]

    def column(self, table: str, field: str) -> list[str]:
        """What the rows of a table that are loaded show in one column."""
        selector = f'#{table} tbody [data-field="{field}"]'
        return self.page.eval_on_selector_all(selector, "all => all.map(e => e.innerText.trim())")  # type: ignore[no-any-return]

    def filter(self, table: str, field: str, typed: str) -> None:
        """Types a filter, and waits for its rows."""
        before = self.page.get_attribute(f"#{table}", "data-loaded")
        self.page.fill(f'#{table} input[data-field="{field}"]', typed)
        self.page.wait_for_function(
            "([id, was]) => document.getElementById(id).dataset.loaded !== was", arg=[table, before]
        )

    def drag(self, start: tuple[float, float], to: tuple[float, float]) -> None:
        """Drags the mouse between two points of the window."""
        self.page.mouse.move(*start)
        self.page.mouse.down()
        self.page.mouse.move(*to, steps=5)
        self.page.mouse.up()

    def text(self, id: str) -> str:
        return self.page.inner_text(f"#{id}")  # type: ignore[no-any-return]

    def overflow(self) -> int:
        """By how many pixels the page is wider than its window."""
        return self.page.evaluate(  # type: ignore[no-any-return]
            "document.documentElement.scrollWidth - document.documentElement.clientWidth"
        )

    def assert_quiet(self) -> None:
        assert self.problems == [], self.problems
        assert self.hosts <= {"127.0.0.1", "local"}


VOCABULARY = "?run=v100-odd-vocabulary-mixed-float16&baseline=v100-odd-vocabulary-float32"
MEASURED = "?run=v100-input-bound-mixed-float16&baseline=v100-input-bound-float32"


@contextmanager
def serving(logdir: Path, *options: str) -> Iterator[str]:
    """`mpprof serve LOGDIR`, the way a user runs it; gives the address, without a base path."""
    command = [sys.executable, "-m", "mpprof.cli", "serve", str(logdir), "--port", "0", *options]
    paths = os.pathsep.join((str(ROOT), str(ROOT / "dashboards")))
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=os.environ | {"PYTHONPATH": paths}
    ) as process:
        line = process.stdout.readline()
        try:
            assert "http://127.0.0.1:" in line, line
            yield "http://127.0.0.1:" + line.split("http://127.0.0.1:")[1].split("/")[0]
        finally:  # else a test that fails would wait for ever for its server
            process.terminate()
            process.wait(timeout=20)


_FREE: list[Any] = []
"""Pages of tests that are over. One that has shown the page before keeps what it has fetched and compiled: a new one
takes three times the processor time to open anything."""
_VISITS: list[Visit] = []
"""Those of the test that runs."""
_HURRIES = """if (location.protocol === 'http:' && document.cookie.includes('hurries=')) {
    const timer = window.setTimeout;
    window.setTimeout = (work, ms, ...more) => timer.call(window, work, ms === 5000 ? 250 : ms, ...more);
}"""


def visit(
    browser: Any, base: str, width: int = 1440, scheme: str = "light", *, hurries: bool = False
) -> Visit:
    """Returns a page of the browser. `hurries`: a list that asks again 5 s after each answer waits a quarter of one;
    what is drawn anew by a clock is not (`Visit.look_again`)."""
    if not _FREE:
        _FREE.append(browser.new_context().new_page())
        _FREE[-1].add_init_script(_HURRIES)
    page = _FREE.pop()
    page.set_viewport_size({"width": width, "height": 900})
    page.emulate_media(color_scheme=scheme, media="null")
    if hurries:
        page.context.add_cookies([{"name": "hurries", "value": "1", "url": base}])
    _VISITS.append(Visit(page, base))
    return _VISITS[-1]


def leave(browser: Any) -> None:
    """Ends the visits of a test: their pages are left as new ones are, with nothing open, stored, intercepted or
    allowed, and each other one is closed."""
    kept = []
    while _VISITS:
        seen = _VISITS.pop()
        seen.end()
        kept.append(seen.page)
    _FREE[:] = [*_FREE, *kept][:2]
    for context in list(browser.contexts):
        if not any(page.context == context for page in _FREE):
            context.close()


def forget() -> None:
    """Of a browser that is closed there are no pages."""
    _FREE.clear()
