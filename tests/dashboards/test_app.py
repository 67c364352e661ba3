"""The app through its doors: the server's routes, the pages' content, the export."""

from __future__ import annotations

import gc
import json
import re
import socket
import warnings
from typing import Any

import jsonschema
import pytest
from mpprof_dashboards import choice as choices
from mpprof_dashboards import create_app, report_html, security, serve
from mpprof_dashboards.choice import Choice
from mpprof_dashboards.components.context import Context
from mpprof_dashboards.components.graph import CONFIG
from mpprof_dashboards.export import render
from mpprof_dashboards.pages import PAGES, memory, verdict

from mpprof.errors import UsageError
from mpprof.model.source import RunEntry
from mpprof.report import json as documents
from mpprof.report import words
from tests.dashboards.fake_source import (
    ENTRIES,
    HOSTILE,
    FakeSource,
    cpu_document,
    empty_document,
    mixed_document,
    steps_table,
)


@pytest.fixture(scope="module")
def client() -> Any:
    return create_app(FakeSource()).server.test_client()


@pytest.mark.parametrize("host", ["localhost", "127.0.0.1:8050", "[::1]:8050", "LOCALHOST:1"])
def test_own_names_are_answered(client: Any, host: str) -> None:
    assert client.get("/?run=mixed", headers={"Host": host}).status_code == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "10.1.2.3:8050", "localhost.evil:80"]
)
def test_foreign_names_are_refused(client: Any, host: str) -> None:
    for path in ("/?run=mixed", "/_dash-layout", "/report.html?run=mixed", "/assets/mpprof.css"):
        assert client.get(path, headers={"Host": host}).status_code == 403


def test_bound_to_all_interfaces_addresses_are_answered_and_foreign_names_are_not() -> None:
    assert security.allows("10.1.2.3:8050", "0.0.0.0")
    assert security.allows(socket.gethostname(), "0.0.0.0")
    assert not security.allows("evil.example", "0.0.0.0")
    assert security.allows("gpu7.lab:8050", "gpu7.lab")


def test_the_policy_of_contents_lets_nothing_in_from_elsewhere(client: Any) -> None:
    response = client.get("/?run=mixed")
    policy = response.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "http" not in policy
    scripts = next(part for part in policy.split("; ") if part.startswith("script-src"))
    assert "unsafe" not in scripts
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', response.text)


def test_the_scheme_is_set_before_anything_is_drawn(client: Any) -> None:
    text = client.get("/?run=mixed").text
    assert text.index("/assets/scheme.js") < text.index("<body>")
    assert text.count("scheme.js") == 1
    with client.get("/assets/scheme.js") as response:
        assert response.status_code == 200


def test_a_link_without_a_choice_is_sent_to_one_with_it(client: Any) -> None:
    response = client.get("/steps")
    assert response.status_code == 302
    assert response.headers["Location"] == "/steps?run=live&baseline=fp32"


def test_saved_report_is_an_attachment_and_an_unreadable_run_is_one_line(client: Any) -> None:
    response = client.get("/report.html?run=mixed&baseline=fp32")
    assert response.status_code == 200
    assert "attachment" in response.headers["Content-Disposition"]
    broken = client.get("/report.html?run=broken")
    assert broken.status_code == 404
    assert broken.text.count("\n") == 1
    assert client.get("/report.html?run=nowhere").status_code == 404


def draw(client: Any, path: str, search: str, seen: str | None = None, refresh: bool = False) -> Any:
    """What the page callback answers, as JSON text."""
    layout = client.get("/_dash-dependencies").get_json()
    draw = next(each for each in layout if "page.children" in each["output"])
    ids = [("url", "pathname", path), ("url", "search", search), ("live", "n_intervals", None)]
    outputs = [part.split(".") for part in draw["output"].strip(".").split("...")]
    body = {
        "output": draw["output"],
        "outputs": [{"id": each[0], "property": each[1]} for each in outputs],
        "inputs": [{"id": id, "property": prop, "value": value} for id, prop, value in ids],
        "state": [{"id": "seen", "property": "data", "value": seen}],
        "changedPropIds": ["live.n_intervals" if refresh else "url.search"],
    }
    response = client.post("/_dash-update-component", json=body)
    assert response.status_code == 200
    return response.get_json()["response"]


@pytest.mark.parametrize("page", [page.path for page in PAGES])
@pytest.mark.parametrize("run", [entry.id for entry in ENTRIES])
def test_every_page_of_every_run_says_something(client: Any, page: str, run: str) -> None:
    answer = draw(client, page, f"?run={run}&baseline=none")
    text = json.dumps(answer["page"])
    assert "a bug in mpprof" not in text
    if run == "broken" and page != "/compare":
        assert "run.json is not JSON" in text
        assert "/logs/broken" in text
    assert answer["live"]["disabled"] is (run != "live")


def test_a_run_that_is_not_there_gives_one_clear_card(client: Any) -> None:
    text = json.dumps(draw(client, "/", "?run=gone&baseline=none"))
    assert "There is no run 'gone' here." in text
    assert "Choose one of the runs" in text


def test_a_failing_page_is_one_card_and_its_traceback_goes_to_the_log(caplog: Any) -> None:
    class Failing(FakeSource):
        def kernels(self, run: str) -> list[dict[str, Any]]:
            raise RuntimeError("a bug")

    answer = draw(create_app(Failing()).server.test_client(), "/ops", "?run=mixed")
    assert "a bug in mpprof" in json.dumps(answer)
    assert "RuntimeError: a bug" in caplog.text


def test_an_empty_directory_says_what_to_do() -> None:
    answer = draw(create_app(FakeSource(entries=())).server.test_client(), "/", "")
    assert "No runs yet" in json.dumps(answer)


def test_a_refresh_that_changes_nothing_leaves_the_page_alone(client: Any) -> None:
    first = draw(client, "/", "?run=live&baseline=none")
    again = draw(client, "/", "?run=live&baseline=none", seen=first["seen"]["data"], refresh=True)
    assert "page" not in again
    changed = draw(client, "/", "?run=live&baseline=none", seen="of another state", refresh=True)
    assert changed["page"] == first["page"]


def test_the_choice_survives_the_url() -> None:
    for chosen in (Choice("a b/c", None), Choice("x", "y&z"), Choice("x", None, ("x", "y", "x y"))):
        assert choices.read(chosen.query(), ENTRIES) == chosen


def entry(id: str, policy: str, created: int = 0, backend: str = "tensorflow") -> RunEntry:
    return RunEntry(id, id, policy, backend, created, False, True)


def test_the_baseline_is_the_twin_and_never_a_guess_among_many() -> None:
    runs = (entry("v100-odd-float32", "float32"), entry("v100-odd-mixed-float16", "mixed_float16"),
            entry("a100-float32", "float32", 9), entry("alone-mixed", "mixed_float16"))  # fmt: skip
    assert choices.default_baseline("v100-odd-mixed-float16", runs) == "v100-odd-float32"
    assert choices.default_baseline("alone-mixed", runs) is None
    assert choices.default_baseline("a100-float32", runs) is None
    two = (entry("2026-1", "float32"), entry("2026-2", "mixed_float16"))
    assert choices.default_baseline("2026-2", two) == "2026-1"
    assert choices.default_run(two) == "2026-2"


def test_no_figure_can_be_shared_with_a_server() -> None:
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["plotlyServerURL"] == ""
    assert CONFIG["displaylogo"] is False


def test_what_is_absent_is_shown_with_its_reason() -> None:
    text = "".join(render(part) for part in verdict.content(cpu_document()))
    assert "The run used a CPU, which has no Tensor Cores." in text
    assert "No GPU allocator to ask." in text


def test_the_export_is_one_file_with_everything_in_it() -> None:
    document = mixed_document()
    text = report_html(document, steps=steps_table())
    assert text.count("plotly.js v") == 1
    outside = text[: text.index("/**\n* plotly.js")] + text[text.index("</script>\n</head>") :]
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', outside)
    assert "cdn" not in outside
    assert HOSTILE not in outside
    assert outside.count("</script>") == outside.count("<script")
    found = re.search(r'id="mpprof-report">(.*?)</script>', text, re.DOTALL)
    assert found
    assert json.loads(found[1]) == document
    assert "send-to-cloud" not in outside
    assert '"showSendToCloud": false' in outside


def test_the_export_of_nothing_is_still_a_page() -> None:
    assert "Nothing can be said of this run." in report_html(empty_document())


def test_every_page_is_registered_once() -> None:
    assert len({page.path for page in PAGES}) == len({page.title for page in PAGES}) == len(PAGES) == 6


def test_a_port_in_use_is_an_error_with_the_next_step_and_leaves_nothing_open() -> None:
    with socket.socket() as taken, warnings.catch_warnings(record=True) as said:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        gc.collect()
        warnings.simplefilter("always", ResourceWarning)
        with pytest.raises(UsageError, match="--port"):
            serve(FakeSource(), port=taken.getsockname()[1])
        gc.collect()
    assert [str(each.message) for each in said if "unclosed" in str(each.message)] == []


def test_context_refuses_a_run_that_is_not_listed() -> None:
    from mpprof.errors import NotFoundError

    with pytest.raises(NotFoundError):
        _ = Context(FakeSource(), ENTRIES, Choice("nowhere")).run


@pytest.mark.parametrize(("with_host", "shown"), [(1.2, True), (9.9, False), (None, False)])
def test_the_host_is_named_only_where_it_holds_the_run_back(with_host: float | None, shown: bool) -> None:
    document = mixed_document()
    document["speedup"]["expected_with_host"] = with_host
    tile = json.dumps(verdict._speedup_tile(document).to_plotly_json(), default=str)
    assert ("by the device alone" in tile) is shown


def test_a_peak_of_the_records_is_not_shown_as_one_of_the_trace() -> None:
    document = mixed_document()
    with_events = json.dumps(memory._summary(document).to_plotly_json(), default=str)
    assert memory._NO_EVENTS not in with_events
    document["memory"]["at_peak"] = []
    assert memory._NO_EVENTS in json.dumps(memory._summary(document).to_plotly_json(), default=str)


@pytest.mark.parametrize(
    "body",
    ["{", "[]", '{"a": 1}', '{"output": "x", "inputs": [], "changedPropIds": []}', '{"output": []}'],
    ids=str,
)
def test_a_malformed_call_is_the_callers_error(client: Any, body: str) -> None:
    answer = client.post("/_dash-update-component", data=body, content_type="application/json")
    assert answer.status_code == 400
    assert "does not come from a page" in answer.text


def test_a_ladder_of_three_shows_each_run_with_its_speedups(client: Any) -> None:
    answer = draw(client, "/compare", "?run=mixed&baseline=fp32&with=fp32&with=mixed&with=mixed")
    text = json.dumps(answer["page"], ensure_ascii=False)
    observed = FakeSource().compare(("fp32", "mixed"))["steps"][0]["observed"]
    assert "Against the first" in text
    assert text.count(words.speedup(observed**2)) == 1


def test_kernels_and_ops_are_told_apart(client: Any) -> None:
    text = json.dumps(draw(client, "/compare", "?run=mixed&baseline=fp32")["page"])
    assert text.index("Kernels that changed") < text.index("Ops that changed")
    assert "Against the first" not in text


def test_a_ladder_with_a_run_that_is_not_there_says_so_and_keeps_the_chooser(client: Any) -> None:
    text = json.dumps(draw(client, "/compare", "?run=mixed&baseline=fp32&with=fp32&with=gone")["page"])
    assert "mp-failure" in text
    assert "gone" in text
    assert '"value": ["fp32"]' in text


@pytest.mark.parametrize("entry", [entry.id for entry in ENTRIES if entry.problem is None])
def test_the_pages_are_tested_on_documents_of_the_contract(entry: str) -> None:
    validator = jsonschema.Draft202012Validator(documents.schema("report"))
    validator.validate(FakeSource().report(entry, "fp32"))
    validator.validate(empty_document())
    compare = jsonschema.Draft202012Validator(documents.schema("compare"))
    compare.validate(FakeSource().compare(("fp32", "mixed")))
