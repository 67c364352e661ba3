"""What the server sends, and how much of it: packed, once, and nothing where nothing changed."""

from __future__ import annotations

import gzip
import threading
from typing import Any

import pytest
from mpprof_dashboards import create_app, rendered
from mpprof_dashboards.export import run_html

from tests.builders.read_back import typed
from tests.dashboards.fake_source import ENTRIES, HOSTILE, FakeSource, mixed_document
from tests.dashboards.test_app import draw

PACKED = {"Accept-Encoding": "gzip"}


@pytest.mark.parametrize(
    "path", ["/assets/mpprof.css", "/assets/table.js", "/_dash-layout", "/rows.json?run=mixed&table=op", "/runs.json"]
)  # fmt: skip
def test_text_is_packed_for_those_who_take_it_so(client: Any, path: str) -> None:
    with client.get(path, headers=PACKED) as packed, client.get(path) as plain:
        assert packed.headers["Content-Encoding"] == "gzip"
        assert "Content-Encoding" not in plain.headers
        assert len(packed.data) < 0.6 * len(plain.data)
        assert gzip.decompress(packed.data) == plain.data
        assert int(packed.headers["Content-Length"]) == len(packed.data)


@pytest.mark.parametrize("said", ["gzip;q=0", "identity, gzip;q=0.0, *;q=0"])
def test_text_is_sent_plain_to_those_who_refuse_it_packed(client: Any, said: str) -> None:
    with client.get("/assets/mpprof.css", headers={"Accept-Encoding": said}) as plain:
        assert "Content-Encoding" not in plain.headers


def test_a_file_that_the_browser_has_is_not_sent_again(client: Any) -> None:
    with client.get("/assets/mpprof.css", headers=PACKED) as first:
        etag = first.headers["ETag"]
    with client.get("/assets/mpprof.css", headers=PACKED | {"If-None-Match": etag}) as again:
        assert again.status_code == 304


def test_a_refresh_that_changes_nothing_computes_and_sends_nothing() -> None:
    class Counting(FakeSource):
        asked = 0

        def report(self, run: str, baseline: str | None = None) -> Any:
            Counting.asked += 1
            return super().report(run, baseline)

    source = Counting()
    client = create_app(source).server.test_client()
    first = draw(client, "/", "?run=live&baseline=none")
    before, seen = Counting.asked, first["seen"]["data"]
    body = client.get("/_dash-dependencies").get_json()
    assert body
    again = refresh(client, "/", "?run=live&baseline=none", seen)
    assert again.status_code == 204
    assert Counting.asked == before
    assert refresh(client, "/", "?run=live&baseline=none", "something else").status_code == 200


def refresh(client: Any, path: str, search: str, seen: str) -> Any:
    """What the poll of a live page is answered."""
    known = client.get("/_dash-dependencies").get_json()
    callback = next(each for each in known if "page.children" in each["output"])
    outputs = [part.split(".") for part in callback["output"].strip(".").split("...")]
    inputs = [("url", "pathname", path), ("url", "search", search), ("live", "n_intervals", 3)]
    return client.post(
        "/_dash-update-component",
        json={
            "output": callback["output"],
            "outputs": [{"id": each[0], "property": each[1]} for each in outputs],
            "inputs": [{"id": id, "property": prop, "value": value} for id, prop, value in inputs],
            "state": [{"id": "seen", "property": "data", "value": seen}],
            "changedPropIds": ["live.n_intervals"],
        },
    )


def test_the_landing_page_is_the_list_where_there_are_more_than_two_runs() -> None:
    many = create_app(FakeSource()).server.test_client().get("/")
    assert many.headers["Location"] == "/runs"
    two = create_app(FakeSource(ENTRIES[:2])).server.test_client().get("/")
    assert two.headers["Location"] == "/?run=mixed&baseline=fp32"


def test_a_redacted_report_names_no_host_and_no_path(client: Any) -> None:
    class Telling(FakeSource):
        def report(self, run: str, baseline: str | None = None) -> Any:
            document = mixed_document(baseline == "fp32")
            document["warnings"] = ["gpu7.lab wrote /home/ada/runs/today/trace.pb"]
            return typed(document)

    plain, redacted = (run_html(Telling(), "mixed", "fp32", redact=redact) for redact in (False, True))
    for secret in ("gpu7.lab", "/home/ada"):
        assert secret in plain
        assert secret not in redacted
    assert "&lt;host&gt; wrote &lt;path&gt;" in redacted
    asked = client.get("/report.html?run=mixed&baseline=fp32&redacted=1")
    assert asked.status_code == 200


def test_the_one_file_holds_its_parts_and_escapes_names(client: Any) -> None:
    text = client.get("/report.html?run=mixed&baseline=fp32").text
    for id in ('id="strip"', 'id="layers-run"', 'id="kernels"', 'id="run-curves"', 'id="mpprof-report"'):
        assert id in text, id
    assert HOSTILE not in text
    assert "http://" not in text.replace("http://www.w3.org", "").partition("<script>")[0]


def test_markdown_is_for_those_runs_that_are_there(client: Any) -> None:
    answer = client.get("/report.md?run=mixed&baseline=fp32")
    assert answer.mimetype == "text/markdown"
    assert answer.text.startswith("### mpprof: resnet")
    assert client.get("/report.md?run=nowhere").status_code == 404
    for path in (
        "/report.md?run=mixed",
        "/rows.json?run=mixed&table=op",
        "/rows.csv",
        "/runs.json",
        "/run.json",
    ):
        assert client.get(path, headers={"Host": "evil.example"}).status_code == 403


class Drawn(FakeSource):
    """Counts how often a report is asked for; a change of `written` is one of the run's files."""

    asked = 0
    written = 0

    def report(self, run: str, baseline: str | None = None) -> Any:
        self.asked += 1
        return super().report(run, baseline)

    def version(self, run: str, baseline: str | None = None) -> str:
        return f"{super().version(run, baseline)} {self.written}"


def test_a_page_is_drawn_once_until_its_run_changes() -> None:
    source = Drawn()
    client = create_app(source).server.test_client()
    first = draw(client, "/kernels", "?run=mixed&baseline=fp32")
    asked = source.asked
    assert draw(client, "/kernels", "?run=mixed&baseline=fp32") == first
    assert source.asked == asked
    draw(client, "/kernels", "?run=mixed&baseline=none")
    assert source.asked > asked
    asked = source.asked
    source.written = 1
    draw(client, "/kernels", "?run=mixed&baseline=fp32")
    assert source.asked > asked


def test_a_page_is_drawn_while_the_browser_still_loads_its_scripts() -> None:
    source = Drawn()
    client = create_app(source).server.test_client()
    begun = threading.active_count()
    assert client.get("/kernels?run=mixed&baseline=fp32").status_code == 200
    for thread in threading.enumerate()[begun:]:
        thread.join()
    asked = source.asked
    assert asked
    draw(client, "/kernels", "?run=mixed&baseline=fp32")
    assert source.asked == asked


def test_the_other_pages_of_a_run_are_drawn_while_one_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rendered, "SPARE_S", 0.0)
    compared, begun = threading.Event(), set(threading.enumerate())

    class Compared(Drawn):
        def compare(self, runs: tuple[str, ...]) -> Any:
            compared.set()
            return super().compare(runs)

    source = Compared()
    query = "?run=mixed&baseline=fp32"
    client = create_app(source, spare=True).server.test_client()
    draw(client, "/", query)
    assert compared.wait(60)
    for thread in set(threading.enumerate()) - begun:
        thread.join()
    asked = source.asked
    compared.clear()
    draw(client, "/compare", query)
    draw(client, "/kernels", query)
    assert source.asked == asked
    assert not compared.is_set()


def test_pages_that_are_kept_are_bounded_and_a_failure_is_not_kept() -> None:
    kept = rendered.Rendered()
    for n in range(rendered.MOST_PAGES + 50):
        kept.get(n, 1, lambda: ["x" * 1000])
    assert len(kept._kept) == rendered.MOST_PAGES
    large = "x" * (rendered.MOST_CHARACTERS // 3)
    for n in range(5):
        assert kept.get(n, 2, lambda: [large]) == [large]
    assert len(kept._kept) <= 3
    with pytest.raises(ZeroDivisionError):
        kept.get("bad", 1, lambda: 1 // 0)
    assert kept.get("bad", 1, lambda: "good") == "good"
