"""One browser and two servers for all tests of the page."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
import waitress
from mpprof_dashboards import create_app

from tests.browser.visiting import CHROMIUM, FLAGS, forget, leave, serving
from tests.dashboards.fake_source import FakeSource
from tests.paths import SAMPLES


@pytest.fixture(scope="package")
def chromium() -> Iterator[Any]:
    if not CHROMIUM.exists():
        pytest.skip("no /usr/bin/chromium: `apt-get install chromium` on Debian")
    sync_api = pytest.importorskip("playwright.sync_api")
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        yield browser
        forget()
        browser.close()


@pytest.fixture(autouse=True)
def _pages_are_left(request: pytest.FixtureRequest) -> Iterator[None]:
    """By a test that is over: each page keeps connections to its server open."""
    yield
    if "chromium" in request.fixturenames:
        leave(request.getfixturevalue("chromium"))


@pytest.fixture(scope="package")
def fake_server() -> Iterator[str]:
    server = waitress.create_server(create_app(FakeSource()).server, host="127.0.0.1", port=0, threads=8)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.effective_port}"
    server.close()


@pytest.fixture(scope="package")
def sample_server() -> Iterator[str]:
    if not SAMPLES.is_dir():
        pytest.skip("no sample_traces/ in this checkout")
    with serving(SAMPLES) as address:
        yield address
