"""A run on several hosts: pages of one trace say whose it is, and show that of another when asked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards import work
from mpprof_dashboards.pages import PAGES

from mpprof.api.source import LogDirectory
from mpprof.model.source import on_host
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.browser.visiting import MEASURED, Visit, serving, visit
from tests.builders.cluster import SESSION, Cluster, Member, play, write_workers
from tests.builders.gpus import V100
from tests.builders.read_back import reading
from tests.planted.cases import F16, convnet

work = reading(work)

pytestmark = pytest.mark.browser
MEMBERS = (Member("node-a"), Member("node-b", slower=1.5), Member("node-c"))


def on_three_hosts(folder: Path) -> None:
    """A run on three hosts: the second is slow, and the trace of the third is gone."""
    cluster = Cluster(V100, F16, convnet(V100, F16), MEMBERS)
    write_workers(cluster, play(cluster), folder / "cluster")
    for trace in (folder / "cluster" / f"{SESSION}_3").iterdir():
        trace.unlink()


def shown(seen: Visit, path: str, host: str) -> None:
    """Opens a page, and takes the host by its switch."""
    seen.turn(f"{path}?run=cluster&baseline=none")
    if path == "/timeline":
        seen.page.wait_for_selector("#timeline[data-drawn]")
    seen.page.click(f"#hosts a:text-is('{host}')")
    seen.page.wait_for_selector(f"#hosts .mp-segment-on:text-is('{host}')")
    if path in ("/kernels", "/layers"):
        seen.page.wait_for_selector(f"{path.replace('/', '#')}[data-loaded*='{host}']")


def test_pages_of_one_trace_show_the_host_that_is_chosen(chromium: Any, tmp_path: Path) -> None:
    on_three_hosts(tmp_path)
    source = LogDirectory(tmp_path)
    run = on_host("cluster", "node-b")
    with serving(tmp_path) as address:
        seen = visit(chromium, address)
        slow = to_json(source.report(run))
        assert (
            source.kernels(run) != source.kernels("cluster") == source.kernels(on_host("cluster", "node-a"))
        )

        shown(seen, "/kernels", "node-b")
        assert "host=node-b" in seen.page.url
        steps = slow["time"]["window_steps"]
        longest = work.table(source, run, slow, "kernel").rows[0]
        assert seen.column("kernels", "ns")[0] == words.duration(longest["ns"])

        shown(seen, "/layers", "node-b")
        times = [words.duration(row["total_ns"] / steps) for row in source.layers(run, in_steps=True)]
        assert sorted(seen.column("layers", "ns")) == sorted(times)

        with seen.page.expect_response(lambda answer: "timeline.json?run=cluster%40node-b" in answer.url):
            shown(seen, "/timeline", "node-b")
        seen.page.wait_for_selector("#timeline[data-run='cluster@node-b'][data-drawn]")
        seen.page.wait_for_function("() => location.search.includes('t1=')")
        window = (
            "() => { const q = new URLSearchParams(location.search); return +q.get('t1') - +q.get('t0'); }"
        )
        of = source.timeline(run)
        assert seen.page.evaluate(window) == of["to_ns"] - of["from_ns"]

        shown(seen, "/memory", "node-b")
        missing = seen.page.locator("#hosts .mp-segment-missing")
        assert missing.all_inner_texts() == ["node-c"]
        assert "no trace was found in" in missing.get_attribute("title")
        seen.page.click(".mp-tab:text-is('Layers')")  # the host stays chosen
        seen.page.wait_for_selector("#layers-run")
        assert seen.page.inner_text("#hosts .mp-segment-on") == "node-b"
        seen.assert_quiet()


def test_one_control_and_only_where_there_are_several_hosts(
    chromium: Any, sample_server: str, tmp_path: Path
) -> None:
    on_three_hosts(tmp_path)
    with serving(tmp_path) as address:
        many, one = visit(chromium, address), visit(chromium, sample_server)
        for page in PAGES:
            many.turn(f"{page.path}?run=cluster&baseline=none")
            assert many.page.locator("#hosts").count() == int(page.by_host), page.path
            if page.by_host:
                one.turn(f"{page.path}{MEASURED}")
                assert one.page.locator("#hosts").count() == 0, page.path
        many.open("/layers?run=cluster&baseline=none&host=nowhere")
        assert "no host" in many.page.inner_text(".mp-failure").lower()
        many.assert_quiet()
        one.assert_quiet()
