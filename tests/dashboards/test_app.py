"""The app as a browser sees it: the server's routes, the pages' content, the export."""

from __future__ import annotations

import _thread
import contextlib
import gc
import json
import re
import resource
import signal
import socket
import urllib.request
import warnings
from html import escape
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from mpprof_dashboards import choice as choices
from mpprof_dashboards import create_app, report_html, security, serve
from mpprof_dashboards.choice import Choice
from mpprof_dashboards.components.context import Context
from mpprof_dashboards.components.graph import CONFIG
from mpprof_dashboards.export import render
from mpprof_dashboards.pages import PAGES, memory, why

from mpprof.errors import UsageError
from mpprof.model.source import RunEntry
from mpprof.report import json as documents
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.builders.read_back import reading, typed
from tests.dashboards.fake_source import (
    ENTRIES,
    HOSTILE,
    HOSTILE_KERNEL,
    FakeSource,
    cpu_document,
    empty_document,
    mixed_document,
    steps_table,
)

memory = reading(memory)
why = reading(why)
report_html = reading(report_html)


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


def test_navigation_and_what_is_read_stand_there_before_any_script(client: Any) -> None:
    text = client.get("/kernels?run=mixed&baseline=fp32").text
    body = text[text.index("<body>") : text.index("<script", text.index("<body>"))]
    tabs = re.findall(r'href="([^"?]*)[^"]*" class="(mp-tab[^"]*)"', body)
    assert [path for path, _ in tabs] == [page.path for page in PAGES]
    assert [path for path, look in tabs if look == "mp-tab mp-tab-current"] == ["/kernels"]
    assert "Reading <strong>resnet-mixed</strong>" in body
    assert "<progress" in body
    hostile = client.get("/?run=%3Cimg%20src=x%3E").text
    assert "<img" not in hostile


def test_a_link_without_a_choice_is_sent_to_one_with_it(client: Any) -> None:
    response = client.get("/steps")
    assert response.status_code == 302
    assert response.headers["Location"] == "/steps?run=live&baseline=fp32"
    more = client.get("/kernels?by=op&baseline=none&kernels.short=a%20%26b").headers["Location"]
    assert more == "/kernels?run=live&baseline=none&by=op&kernels.short=a+%26b"


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
    if run == "broken" and page not in ("/compare", "/runs"):
        assert "run.json is not JSON" in text
        assert "/logs/broken" in text
    assert answer["live"]["disabled"] is (run != "live")


def test_a_run_that_is_not_there_gives_one_clear_card(client: Any) -> None:
    text = json.dumps(draw(client, "/", "?run=gone&baseline=none"))
    assert "There is no run 'gone' here." in text
    assert "Choose one of the runs" in text


def test_a_failing_page_is_one_card_and_its_traceback_goes_to_the_log(caplog: Any) -> None:
    class Failing(FakeSource):
        def kernels(self, run: str, *, in_steps: bool = False) -> list[dict[str, Any]]:
            raise RuntimeError("a bug")

    answer = draw(create_app(Failing()).server.test_client(), "/kernels", "?run=mixed")
    assert "a bug in mpprof" in json.dumps(answer)
    assert "RuntimeError: a bug" in caplog.text


def test_an_empty_directory_says_what_to_do_and_is_looked_at_again() -> None:
    source = FakeSource(entries=())
    client = create_app(source).server.test_client()
    answer = draw(client, "/", "")
    assert "No runs yet" in json.dumps(answer)
    assert answer["live"]["disabled"] is False
    source._entries = ENTRIES
    again = draw(client, "/", "", seen=answer["seen"]["data"], refresh=True)
    assert "No runs yet" not in json.dumps(again)
    assert choose(client, "")["run"]["value"] == "live"


def test_every_page_has_one_first_heading_and_one_footer(client: Any) -> None:
    for page in PAGES:
        shown = json.dumps(draw(client, page.path, "?run=mixed&baseline=fp32")["page"])
        assert shown.count('"tag": "h1"') + shown.count("<h1") == 1, page.path
    assert client.get("/?run=mixed").text.count("<footer") == 0
    assert json.dumps(client.get("/_dash-layout").get_json()).count('"type": "Footer"') == 1


def test_the_timeline_is_answered_and_nonsense_is_not(client: Any) -> None:
    answer = client.get("/timeline.json?run=mixed&width=100")
    assert answer.get_json()["names"][0] == HOSTILE_KERNEL
    assert client.get("/kernel.json?run=mixed&row=7").get_json()["op"] == HOSTILE
    for query in ("run=nowhere", "run=../../etc/passwd", "run=broken", "", "run=mixed%00"):
        assert client.get(f"/timeline.json?{query}").status_code == 404, query
    for row in ("", "x", "-1", "9" * 400, "1e3", "\u0661"):
        assert client.get("/kernel.json", query_string={"run": "mixed", "row": row}).status_code == 204, row
    assert client.get("/timeline.json?run=cpu").status_code == 204
    huge = {"run": "mixed", "from": "9" * 400, "to": "x" * 5000, "width": "-3", "step": "[]"}
    assert client.get("/timeline.json", query_string=huge).status_code == 200
    assert client.get("/timeline.json?run=mixed", headers={"Host": "evil.example"}).status_code == 403


def test_a_refresh_of_another_state_draws_the_page_again(client: Any) -> None:
    first = draw(client, "/", "?run=live&baseline=none")
    changed = draw(client, "/", "?run=live&baseline=none", seen="of another state", refresh=True)
    assert changed["page"] == first["page"]


def test_the_choice_survives_the_url() -> None:
    for chosen in (
        Choice("a b/c", None),
        Choice("x", "y&z"),
        Choice("x", None, ("x", "y", "x y")),
        Choice("x", host="a b"),
    ):
        assert choices.read(chosen.query(), ENTRIES) == chosen


def entry(id: str, policy: str, created: int = 0, backend: str = "tensorflow", **more: Any) -> RunEntry:
    return RunEntry(id, id, policy, backend, created, False, **more)


def test_the_baseline_is_the_twin_and_never_a_guess_among_many() -> None:
    runs = (entry("v100-odd-float32", "float32"), entry("v100-odd-mixed-float16", "mixed_float16"),
            entry("a100-float32", "float32", 9), entry("alone-mixed", "mixed_float16"))  # fmt: skip
    assert choices.default_baseline("v100-odd-mixed-float16", runs) == "v100-odd-float32"
    assert choices.default_baseline("alone-mixed", runs) is None
    assert choices.default_baseline("a100-float32", runs) is None
    two = (entry("2026-1", "float32"), entry("2026-2", "mixed_float16"))
    assert choices.default_baseline("2026-2", two) == "2026-1"
    assert choices.default_run(two) == "2026-2"


def test_a_base_beside_a_mixed_run_is_its_baseline() -> None:
    runs = (entry("x/base", "float32"), entry("x/mixed", "mixed_float16"), entry("y/base", "float32", 9),
            entry("y/mixed", "mixed_float16", 9), entry("z/a", "float32"), entry("z/b", "mixed_bfloat16"))  # fmt: skip
    assert choices.default_baseline("x/mixed", runs) == "x/base"
    assert choices.default_baseline("y/mixed", runs) == "y/base"
    assert choices.default_baseline("z/b", runs) == "z/a"
    assert (
        choices.default_baseline("baseball-mixed", (*runs, entry("baseball-mixed", "mixed_float16"))) is None
    )


def test_traces_without_records_are_paired_by_their_names() -> None:
    names = ("x/base/plugins/profile/t/h.xplane.pb", "x/mixed/plugins/profile/t/h.xplane.pb")
    runs = tuple(RunEntry(name, name, None, None, None, False) for name in names)
    assert choices.default_baseline(names[1], runs) == names[0]
    assert choices.default_baseline(names[0], runs) is None


def test_a_run_of_another_model_or_card_is_no_baseline() -> None:
    mixed = entry("a-mixed", "mixed_float16", parameters=100, device="V100", batch_size=32)
    for other in ({"parameters": 7}, {"device": "A100"}):
        facts = {"parameters": 100, "device": "V100"} | other
        assert choices.default_baseline("a-mixed", (mixed, entry("a-float32", "float32", **facts))) is None
    alike = entry("b-float32", "float32", parameters=100, device="V100")
    unlike = entry("c-float32", "float32", parameters=7, device="V100")
    assert choices.default_baseline("a-mixed", (mixed, alike, unlike)) == "b-float32"
    same = {"parameters": 100, "device": "V100"}
    larger = entry("a-float32", "float32", 9, batch_size=64, **same)
    as_large = entry("a-fp32", "float32", 1, batch_size=32, **same)
    assert choices.default_baseline("a-mixed", (mixed, larger, as_large)) == "a-fp32"


def test_the_first_run_shown_is_one_that_could_gain_something() -> None:
    cpu = entry("cpu-mixed", "mixed_float16", 9, on_gpu=False)
    gpu = entry("gpu-float32", "float32", 1, on_gpu=True)
    assert choices.default_run((cpu, gpu)) == "gpu-float32"
    assert choices.default_run((cpu,)) == "cpu-mixed"


def choose(client: Any, search: str) -> Any:
    """What the choosers' callback answers."""
    layout = client.get("/_dash-dependencies").get_json()
    choose = next(each for each in layout if "run.data" in each["output"])
    values = {"url.search": search}
    outputs = [part.split(".") for part in choose["output"].strip(".").split("...")]
    body = {
        "output": choose["output"],
        "outputs": [{"id": each[0], "property": each[1]} for each in outputs],
        "inputs": [
            each | {"value": values.get(f"{each['id']}.{each['property']}")} for each in choose["inputs"]
        ],
        "changedPropIds": ["url.search"],
    }
    response = client.post("/_dash-update-component", json=body)
    assert response.status_code == 200
    return response.get_json()["response"]


def test_switching_the_run_pairs_anew(client: Any) -> None:
    answer = choose(client, "?run=mixed&baseline=cpu")
    assert (
        answer["shown"]["data"] == [answer["run"]["value"], answer["baseline"]["value"]] == ["mixed", "cpu"]
    )
    queries = {option["value"]: option["query"] for option in answer["run"]["data"]}
    assert queries["cpu"] == "?run=cpu&baseline=none"
    assert queries["mixed"] == "?run=mixed&baseline=fp32"


def test_no_figure_can_be_shared_with_a_server() -> None:
    assert CONFIG["showSendToCloud"] is False
    assert CONFIG["plotlyServerURL"] == ""
    assert CONFIG["displaylogo"] is False


def test_what_is_absent_is_shown_with_its_reason() -> None:
    text = "".join(render(part) for part in why.content(cpu_document()))
    assert "The run used a CPU, which has no Tensor Cores." in text
    assert "No GPU allocator to ask." in text


def test_the_export_is_one_file_with_everything_in_it() -> None:
    document = mixed_document()
    text = report_html(document, steps=steps_table())
    assert "plotly" not in text.lower()
    assert len(text.encode()) < 600_000
    assert not re.findall(r'(?:src|href)="(?:https?:)?//', text)
    assert "cdn" not in text
    assert HOSTILE not in text
    assert text.count("</script>") == text.count("<script")
    found = re.search(r'id="mpprof-report">(.*?)</script>', text, re.DOTALL)
    assert found
    assert json.loads(found[1]) == to_json(typed(document))


def test_the_export_of_nothing_is_still_a_page() -> None:
    assert "Nothing can be said of this run." in report_html(empty_document())


def test_every_page_of_the_folder_is_registered_once() -> None:
    files = {path.stem for path in Path(str(why.__file__)).parent.glob("*.py")} - {"__init__"}
    assert len({page.path for page in PAGES}) == len({page.title for page in PAGES}) == len(PAGES)
    assert len(PAGES) == len(files) >= 8


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


def test_connections_leave_files_to_read_runs_from(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def refuses(*_: Any, connection_limit: int, **more: Any) -> Any:
        asked.append(connection_limit)
        raise OSError

    monkeypatch.setattr("waitress.create_server", refuses)
    for files in (128, 1024, 1 << 20, resource.RLIM_INFINITY):
        monkeypatch.setattr(resource, "getrlimit", lambda _, files=files: (files, resource.RLIM_INFINITY))
        with pytest.raises(UsageError):
            serve(FakeSource(), port=0)
    assert asked == [64, 512, 600, 600]


def test_a_browser_in_the_terminal_gets_the_page_before_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As lynx does: it returns when its reader leaves it, which here ends the server, too."""
    shown: list[int] = []

    def open_(url: str) -> None:
        try:
            with urllib.request.urlopen(f"{url}runs.json", timeout=20) as answer:
                shown.append(answer.status)
        finally:
            _thread.interrupt_main()

    monkeypatch.setattr("webbrowser.open", open_)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in a shell's background job
    try:
        with contextlib.suppress(KeyboardInterrupt):  # within an answer it ends the server's loop
            serve(FakeSource(), port=0, open_browser=True, announce=lambda _: None)
    finally:
        signal.signal(signal.SIGINT, before)
    assert shown == [200]


def test_context_refuses_a_run_that_is_not_listed() -> None:
    from mpprof.errors import NotFoundError

    with pytest.raises(NotFoundError):
        _ = Context(FakeSource(), ENTRIES, Choice("nowhere")).run


def test_the_memory_page_says_what_is_in_the_way_of_a_saving() -> None:
    document = mixed_document()
    assert memory._saved(document) is None  # no gap is stated
    gap = [{"code": "MP601", "bytes": 2 << 30}]
    document["memory"] |= {
        "saved_bytes": 1 << 30, "expected_saving_bytes": 4 << 30, "gap": gap, "unexplained_bytes": 1 << 30,
    }  # fmt: skip
    drawn = json.dumps(memory._saved(document).to_plotly_json(), default=str)
    for said in ("Saved against the baseline 1.00 GiB, of 4.00 GiB that 16 bits could save", "2.00 GiB MP601",
                 "1.00 GiB unexplained"):  # fmt: skip
        assert said in drawn


def test_a_peak_of_the_records_is_not_shown_as_one_of_the_trace() -> None:
    document = mixed_document()
    with_events = json.dumps(memory._summary(document).to_plotly_json(), default=str)
    assert "What was live is not known" not in with_events
    document["memory"]["at_peak"] = []
    document["absent"]["memory.allocator"] = "there is no trace"
    without = json.dumps(memory._summary(document).to_plotly_json(), default=str)
    assert "What was live is not known: there is no trace." in without


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
    query = "?run=mixed&baseline=fp32&with=fp32&with=mixed&with=mixed"
    observed = words.speedup(to_json(FakeSource().compare(("fp32", "mixed")))["steps"][0]["observed"])
    for more, heading in (("", "Against the one before"), ("&against=first", "Against the first")):
        text = json.dumps(draw(client, "/compare", query + more)["page"], ensure_ascii=False)
        assert heading in text
        assert text.count(f">{observed}<") >= 2  # of both runs
        assert escape(f"{query}&against=first") in text


def test_kernels_and_ops_are_told_apart(client: Any) -> None:
    text = json.dumps(draw(client, "/compare", "?run=mixed&baseline=fp32")["page"])
    assert text.index("Kernels that changed") < text.index("Ops that changed")
    assert "against=first" not in text


def test_a_ladder_with_a_run_that_is_not_there_says_so_and_keeps_the_chooser(client: Any) -> None:
    text = json.dumps(draw(client, "/compare", "?run=mixed&baseline=fp32&with=fp32&with=gone")["page"])
    assert "mp-failure" in text
    assert "gone" in text
    assert '"value": ["fp32"]' in text


@pytest.mark.parametrize("against", ["", "&against=first"])
def test_runs_of_an_address_that_cannot_be_compared_are_named_and_the_rest_is(
    client: Any, against: str
) -> None:
    query = "?run=mixed&baseline=fp32&with=broken&with=fp32&with=gone&with=mixed" + against
    text = json.dumps(draw(client, "/compare", query)["page"])
    assert "mp-failure" not in text
    assert "Left out: broken, which cannot be read: " in text
    assert "Left out: gone, which is not among these runs." in text
    assert words.speedup(to_json(FakeSource().compare(("fp32", "mixed")))["steps"][0]["observed"]) in text
    assert '"value": ["fp32", "mixed"]' in text


def test_the_chooser_says_what_each_run_is_held_against(client: Any) -> None:
    def said(query: str) -> str:
        page = json.dumps(draw(client, "/compare", f"?run=mixed&baseline=fp32{query}")["page"])
        return re.search(r'"description": "([^"]*)"', page)[1]

    three = "&with=fp32&with=mixed&with=mixed"
    assert said("") == "The first is the baseline."
    assert "the nearest one before it" in said(three)
    assert said(three + "&against=first") == "Each run is compared with the first."


def ladder_written(client: Any, runs: list[str], search: str) -> str | None:
    """What the chooser of runs writes into the address; None: nothing."""
    known = client.get("/_dash-dependencies").get_json()
    (output,) = (each["output"] for each in known if each["inputs"][0]["id"] == "compare-runs")
    body = {
        "output": output, "outputs": {"id": "url", "property": output.partition(".")[2]},
        "inputs": [{"id": "compare-runs", "property": "value", "value": runs}],
        "state": [{"id": "url", "property": "search", "value": search}],
        "changedPropIds": ["compare-runs.value"],
    }  # fmt: skip
    answer = client.post("/_dash-update-component", json=body)
    assert answer.status_code in (200, 204), answer.text
    written = answer.get_json()["response"] if answer.status_code == 200 else {}
    return json.dumps(written) if written else None


def test_the_address_is_not_rewritten_because_a_run_of_it_cannot_be_chosen(client: Any) -> None:
    query = "?run=mixed&baseline=fp32&with=fp32&with=gone&with=mixed"
    assert ladder_written(client, ["fp32", "mixed"], query) is None
    assert "with=mixed&with=fp32" in ladder_written(client, ["mixed", "fp32"], query)


@pytest.mark.parametrize("entry", [entry.id for entry in ENTRIES if entry.problem is None])
def test_the_pages_are_tested_on_documents_of_the_contract(entry: str) -> None:
    validator = jsonschema.Draft202012Validator(documents.schema("report"))
    assert not list(validator.iter_errors(to_json(FakeSource().report(entry, "fp32"))))
    assert not list(validator.iter_errors(empty_document()))
    compare = jsonschema.Draft202012Validator(documents.schema("compare"))
    assert not list(compare.iter_errors(to_json(FakeSource().compare(("fp32", "mixed")))))
