"""Below a proxy's path and in a frame of another page, in a real chromium."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
import waitress
from mpprof_dashboards import create_app
from mpprof_dashboards.security import Reach

from tests.browser.visiting import Visit, visit
from tests.dashboards.fake_source import FakeSource

pytestmark = pytest.mark.browser
QUERY = "?run=mixed&baseline=fp32"


@contextmanager
def serving(**reach: Any) -> Iterator[str]:
    app = create_app(FakeSource(), Reach(**reach)).server
    server = waitress.create_server(app, host="127.0.0.1", port=0, threads=8)
    closing = threading.Event()

    def run() -> None:
        try:
            server.run()
        except Exception:  # the loop may find its sockets closed under it
            if not closing.is_set():
                raise

    threading.Thread(target=run, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.effective_port}"
    finally:
        closing.set()
        server.close()


@contextmanager
def framing(address: str) -> Iterator[str]:
    """A page elsewhere, as a notebook is, that shows the address in a frame; gives its own origin."""

    class Notebook(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(f'<iframe src="{address}" width="1200" height="800"></iframe>'.encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Notebook)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_below_a_proxy_s_path_links_tables_and_tabs_work(chromium: Any) -> None:
    with serving(base_path="/proxy/8050/") as address:
        seen = visit(chromium, f"{address}/proxy/8050")
        seen.open_well(f"/{QUERY}")
        seen.page.click(".mp-tab:text-is('Kernels')")
        seen.page.wait_for_selector("#kernels[data-loaded]")
        assert "/proxy/8050/kernels?" in seen.page.url
        seen.page.click(".mp-tab:text-is('Timeline')")
        seen.page.wait_for_selector("#timeline[data-drawn] canvas")
        seen.page.go_back()
        seen.page.wait_for_selector("#kernels[data-loaded]")
        with seen.page.expect_navigation(url="**/proxy/8050/runs*"):
            seen.page.click(".mp-brand")
        seen.page.wait_for_selector("#runs[data-drawn] tr[data-run]:not([aria-busy])")
        seen.assert_quiet()


def refused_by(seen: Visit, address: str) -> None:
    """The browser says that the page forbids the frame."""
    with seen.page.expect_console_message(lambda message: "frame-ancestors" in message.text):
        seen.page.goto(address)


def test_a_frame_shows_the_page_only_where_its_origin_is_named(chromium: Any) -> None:
    with serving() as closed, framing(f"{closed}/{QUERY}") as notebook:
        seen = visit(chromium, notebook)
        refused_by(seen, notebook)
        with serving(allow_frames=(notebook,)) as opened, framing(f"{opened}/{QUERY}") as stranger:
            seen.page.set_content(f'<iframe id="page-frame" src="{opened}/{QUERY}"></iframe>')
            seen.page.frame_locator("#page-frame").locator("#headline").wait_for(state="attached")
            other = visit(chromium, stranger)
            refused_by(other, stranger)
