"""From where the page may be reached: closed by default, and open as far as it is told."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urljoin

import pytest
from mpprof_dashboards import create_app
from mpprof_dashboards.security import Reach

from mpprof.cli.serve import _base_path
from mpprof.errors import UsageError
from tests.dashboards.fake_source import FakeSource

QUERY = "?run=mixed&baseline=fp32"
PATHS = ("/", "/timeline", "/runs", "/runs.json", "/report.md", "/assets/why.js")


def client(**reach: Any) -> Any:
    return create_app(FakeSource(), Reach(**reach)).server.test_client()


CONTENT = ("page.children", "live.disabled", "seen.data")
TABS = (
    "run.value",
    "run.data",
    "baseline.value",
    "baseline.data",
    "shown.data",
    "nav.children",
    "reading.children",
)


def drawn(client: Any, path: str, outputs: tuple[str, ...] = CONTENT) -> Any:
    """What the page asks for once its scripts run: the content or the tabs of a path as the browser shows it."""
    listed = [{"id": id, "property": property} for id, property in (each.split(".") for each in outputs)]
    given = {"url.pathname": path, "url.search": QUERY, "live.n_intervals": None}
    order = ("url.search", "live.n_intervals", "url.pathname") if outputs is TABS else given
    inputs = [{"id": (at := key.split("."))[0], "property": at[1], "value": given[key]} for key in order]
    body = {
        "output": f"..{'...'.join(outputs)}..", "outputs": listed, "inputs": inputs,
        "changedPropIds": ["url.pathname"],
        "state": [{"id": "seen", "property": "data", "value": None}] if outputs is CONTENT else [],
    }  # fmt: skip
    return client.post("/_dash-update-component", json=body)


def links(answer: Any) -> list[str]:
    """The addresses of all links in what a call of the page is answered with."""
    found: list[str] = []

    def walk(value: Any, key: str = "") -> None:
        if isinstance(value, dict):
            for name, each in value.items():
                walk(each, name)
        elif isinstance(value, list):
            for each in value:
                walk(each)
        elif isinstance(value, str):
            found.extend([value] if key == "href" else re.findall(r'<\w[^<>]* href="([^"]*)"', value))

    walk(answer.get_json())
    return [each for each in found if not each.startswith("#")]


@pytest.mark.parametrize("path", PATHS)
def test_by_default_a_foreign_name_and_a_frame_are_refused(path: str) -> None:
    page = client()
    assert page.get(path + QUERY, headers={"Host": "proxy.lab"}).status_code == 403
    answer = page.get(path + QUERY)
    assert answer.status_code == 200
    assert "frame-ancestors 'none'" in answer.headers["Content-Security-Policy"]


def test_a_named_host_is_answered_and_no_other() -> None:
    page = client(allow_hosts=("Proxy.lab", "gpu7.lab:8080"))
    for name, status in (
        ("proxy.lab", 200), ("PROXY.LAB:443", 200), ("gpu7.lab:8080", 200), ("localhost:8050", 200),
        ("gpu7.lab", 403), ("gpu7.lab:81", 403), ("evil.proxy.lab", 403), ("proxy.lab.evil.example", 403),
    ):  # fmt: skip
        assert page.get("/runs.json", headers={"Host": name}).status_code == status, name


def test_only_a_named_origin_may_show_the_page_in_a_frame() -> None:
    page = client(allow_frames=("https://notebooks.lab:8888", "http://127.0.0.1"))
    policy = page.get("/" + QUERY).headers["Content-Security-Policy"]
    assert policy.endswith("frame-ancestors https://notebooks.lab:8888 http://127.0.0.1")


@pytest.mark.parametrize("kept", [True, False])
def test_below_a_proxy_s_path_every_address_begins_with_it(kept: bool) -> None:
    """Some proxies hand the whole path on, others take their own part away."""
    page = client(base_path="/proxy/8050/")
    before = "/proxy/8050" if kept else ""
    for path in PATHS:
        assert page.get(before + path + QUERY).status_code == 200, path
    index = page.get(f"{before}/{QUERY}").text
    assert 'data-base="/proxy/8050"' in index
    addresses = re.findall(r'(?:src|href)="(/[^"]*)"', index)
    assert addresses
    assert all(each.startswith("/proxy/8050/") for each in addresses)
    sent = page.get(f"{before}/timeline")
    assert sent.status_code == 302
    to = sent.headers["Location"]
    assert not to.startswith("/")  # some proxies put their prefix before a path
    assert urljoin("/proxy/8050/timeline", to).startswith("/proxy/8050/timeline?run=")
    if kept:
        assert urljoin("/proxy/8050", page.get("/proxy/8050").headers["Location"]).startswith("/proxy/8050/")
    for own in ("/proxy/8050/", "/proxy/8050/timeline", "/proxy/8050/kernels"):
        answer = drawn(page, own)
        assert "There is no such page" not in answer.text
        tabs = links(drawn(page, own, TABS))
        assert len(tabs) > 5
        found = links(answer) + tabs
        assert all(each.startswith("/proxy/8050/") for each in found), found


def test_without_a_proxy_s_path_no_address_has_one() -> None:
    page = client()
    assert 'data-base=""' in page.get(f"/{QUERY}").text
    found = links(drawn(page, "/", TABS))
    assert any(each.startswith("/timeline?") for each in found)
    assert "There is no such page" in drawn(page, "/proxy/8050/timeline").text


def test_what_is_drawn_once_keeps_its_links() -> None:
    page = client(base_path="/p/")
    first, second = (links(drawn(page, "/p/")) for _ in range(2))
    assert first == second
    assert not [each for each in second if each.startswith("/p/p/")]


@pytest.mark.parametrize(
    "given",
    [
        {"base_path": "p/"}, {"base_path": "/p"}, {"base_path": '/"><script>/'}, {"base_path": "//evil.example/"},
        {"allow_hosts": ("*",)}, {"allow_hosts": ("",)}, {"allow_hosts": ("http://proxy.lab",)},
        {"allow_frames": ("*",)}, {"allow_frames": ("notebooks.lab",)}, {"allow_frames": ("https://a; script-src *",)},
    ],
)  # fmt: skip
def test_what_is_no_path_name_or_origin_is_refused_with_what_to_give(given: dict[str, Any]) -> None:
    with pytest.raises(UsageError) as refused:
        Reach(**given)
    assert "Give one such as" in str(refused.value.next)


def test_the_variables_of_dash_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DASH_REQUESTS_PATHNAME_PREFIX", "/given/")
    assert _base_path() == "/given/"
    assert _base_path() == "/"
