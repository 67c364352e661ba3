"""The comparison as the page shows it: what the text says, the page says too."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from mpprof_dashboards import choice, export
from mpprof_dashboards.figures import compare as figures
from mpprof_dashboards.pages import compare, why

from mpprof.api import ladder, workflows
from mpprof.api.source import LogDirectory
from mpprof.report import json as documents
from mpprof.report import words
from mpprof.report.to_json import to_json
from tests.builders.gpus import V100
from tests.builders.read_back import comparing, reading, typed
from tests.builders.records import Recorded, imagenette_convnet, write
from tests.paths import SAMPLES
from tests.report.hand_made import comparison

export = reading(export)
figures = reading(figures)
compare = reading(compare)
why = reading(why)


def texts(node: Any) -> str:
    """All words in a tree of components."""
    if isinstance(node, (list, tuple)):
        return " ".join(map(texts, node))
    if node is None or isinstance(node, (str, int, float)):
        return "" if node is None else str(node)
    return texts(getattr(node, "children", None))


def test_ops_without_a_match_and_the_three_sentences_are_on_the_page() -> None:
    runs = [workflows.load(SAMPLES / f"v100-convnet-{policy}") for policy in ("float32", "mixed-float16")]
    document = documents.compare_document(ladder.compare(runs))
    shown = texts(compare.content(document))
    assert "Matched by op: 100 % of the baseline's op time" in shown
    assert "Only in this run: " in shown
    assert all(said in shown for said in document["steps"][0]["explanation"])
    report = document["runs"][1]
    hero = texts(why.content(report))
    assert all(said in hero for said in report["explanation"])
    assert document["steps"][0]["answer"] == report["answer"]
    assert report["answer"]["sentence"] in hero


def test_the_attainable_speedup_is_that_of_the_report_with_the_host_as_it_is() -> None:
    runs = [
        workflows.load(SAMPLES / f"a100-launch-bound-{policy}") for policy in ("float32", "mixed-float16")
    ]
    document = documents.compare_document(ladder.compare(runs))
    shown = texts(compare.content(document))
    assert (
        "attainable 0.74x with the host as it is (0.90x by the device alone)"
        in comparing.lines(document, document["steps"][0])[1]
    )
    assert "0.74x 0.90x by the device alone" in shown


def test_the_losses_of_both_runs_are_on_the_page() -> None:
    curve: list[Any] = [{"updates": 10.0 * at, "loss": 1.0 / at} for at in (1, 2, 3)]
    runs = [workflows.load(SAMPLES / f"v100-convnet-{policy}") for policy in ("float32", "mixed-float16")]
    document = documents.compare_document(ladder.compare(runs))
    told = document["steps"][0]["learning"]
    assert told["verdict"] == "alike"
    assert "no divergence of a tenth or more" in texts(compare.content(document))
    told |= {"severity": "warning", "text": "the runs diverge", "window": [10.0, 30.0],
             "curves": {"from": curve, "to": curve}}  # fmt: skip
    shown = texts(compare.content(document))
    assert "The runs diverge" in shown
    assert "Loss against applied updates" in shown
    figure = figures.losses(told, ("<a>", "b"))
    assert [list(line.x) for line in figure.data] == [[10.0, 20.0, 30.0]] * 2
    assert "<" not in figure.data[0].name
    assert (figure.layout.shapes[0].x0, figure.layout.shapes[0].x1) == (10.0, 30.0)


def test_what_was_promised_and_what_came_is_on_the_page() -> None:
    document = documents.compare_document(comparison())
    shown = texts(compare.content(document))
    assert "What the earlier report predicted, and what was obtained" in shown
    assert "MP301 input-bound: predicted 9.10 ms to 9.40 ms a step, obtained 9.20 ms" in shown
    assert "In all: predicted 11.1 ms to 11.4 ms a step, obtained 10.9 ms" in shown
    assert "Not seen in" in shown
    assert "per applied update 1.51x" in shown.lower()


def test_a_comparison_is_one_file_that_needs_no_network_and_escapes_every_name() -> None:
    document = documents.compare_document(comparison())
    told = document["steps"][0]["learning"]
    assert told is not None
    written = export.comparison_html(document)
    shown = written[written.index('<main class="mp-page">') : written.index("</main>")]
    assert "MP301 input-bound: predicted 9.10 ms to 9.40 ms a step" in shown
    assert "runs diverge. Other seeds" in shown
    assert "Loss against applied updates" not in shown  # the picture stays on the page
    assert "volta_sgemm_128x64_nn" in shown
    assert "<a href" not in shown
    assert not re.search(r"(src|href)=.https?:", shown)
    found = re.search(r'id="mpprof-compare">(.*?)</script>', written, re.DOTALL)
    assert json.loads(found[1]) == to_json(typed(document))


def test_several_batch_sizes_and_other_models_are_told_on_the_page(tmp_path: Path) -> None:
    steps = {32: 25.0, 128: 95.0, 512: 372.0}
    sizes = [
        Recorded(f"b{n}", V100, "float16", imagenette_convnet("float16"), n, ms) for n, ms in steps.items()
    ]
    other = Recorded("other", V100, "float16", imagenette_convnet("float16")[:-2], 32, 20.0)
    runs = [workflows.load(write(run, tmp_path)) for run in (*sizes, other)]
    document = documents.compare_document(ladder.compare(runs))
    shown = texts(compare.content(document))
    assert "Over the batch sizes" in shown
    assert "two explanations remain, and no recorded utilisation" in shown.lower()
    assert "These runs cannot be compared" in shown
    assert "they train different models" in shown.lower()


def ladder_of(*names: str) -> Any:
    return documents.compare_document(ladder.compare([workflows.load(SAMPLES / name) for name in names]))


def find(node: Any, id: str) -> Any:
    if getattr(node, "id", None) == id:
        return node
    children = node if isinstance(node, (list, tuple)) else getattr(node, "children", None)
    if isinstance(children, (list, tuple)):
        return next((found for child in children if (found := find(child, id)) is not None), None)
    return find(children, id) if hasattr(children, "children") else None


def test_many_runs_are_one_screen_and_their_rungs_are_folded() -> None:
    document = ladder_of(
        "v100-odd-vocabulary-float32", "v100-odd-vocabulary-mixed-float16", "v100-float32-island"
    )
    parts = compare.content(document)
    assert type(find(parts, "rung-0")).__name__ == "Details"
    assert type(find(parts, "rung-1")).__name__ == "Details"
    alone = compare.content(ladder_of("v100-convnet-float32", "v100-convnet-mixed-float16"))
    assert find(alone, "rung-0") is None


def test_a_run_that_cannot_be_compared_is_struck_through_with_its_reason() -> None:
    document = ladder_of("v100-odd-vocabulary-float32", "v100-convnet-mixed-float16")
    assert document["steps"][0]["refused"]
    html = export.render(compare.content(document))
    assert "<del" in html
    assert "different models" in html
    fine = export.render(compare.content(ladder_of("v100-convnet-float32", "v100-convnet-mixed-float16")))
    assert "<del" not in fine


def test_causes_stand_beside_one_another_with_the_gains_of_each_report() -> None:
    document = ladder_of("v100-input-bound-float32", "v100-input-bound-mixed-float16")
    table = find(compare.content(document), "causes-by-run")
    rows = [[texts(cell) for cell in row.children] for row in table.children[1].children]
    told = {row[0].split()[-1]: row[1:] for row in rows}
    for at, report in enumerate(document["runs"]):
        for cause in report["facts"]["causes"]:
            if cause["gain_ns_per_step"] is not None:
                assert told[cause["code"]][at].strip() == words.duration(cause["gain_ns_per_step"])


def test_devices_are_small_multiples_and_the_one_that_others_wait_for_is_marked() -> None:
    document = ladder_of("v100-convnet-float32", "v100-convnet-mixed-float16")
    report = document["runs"][1]
    assert report["time"] is not None
    (only,) = report["time"]["devices"]
    others = [only | {"host": host} for host in ("node-b", "node-c")]
    report["time"]["devices"] = [only | {"host": "node-a"}, *others]
    report["communication"] = {
        "devices": [], "by": [], "stragglers": [{"host": "node-b", "device": only["device"]}],
    }  # fmt: skip
    html = export.render(compare.content(document))
    items = [item for item in re.findall(r"<li [^>]*>", html) if "data-straggler" in item]
    assert [("of node-b" in item, 'data-straggler="true"' in item) for item in items] == [
        (False, False), (True, True), (False, False),
    ]  # fmt: skip


def test_runs_are_held_against_the_one_before_or_against_the_first() -> None:
    source = LogDirectory(SAMPLES)
    names = ("v100-convnet-float32", "v100-convnet-mixed-float16", "v100-float32-island")
    before, first = (to_json(each) for each in (source.compare(names), compare.against_first(source, names)))
    assert [(rung["from"], rung["to"]) for rung in first["steps"]] == [(0, 1), (0, 2)]
    pair = to_json(source.compare((names[0], names[2])))
    assert first["steps"][1]["observed"] == pair["steps"][0]["observed"] != before["steps"][1]["observed"]
    assert {change["step"] for change in first["kernels"]} == {0, 1}
    for document, heading in ((before, "Against the one before"), (first, "Against the first")):
        shown = find(compare.content(document), "ladder")
        assert heading in texts(shown)
        for rung in document["steps"]:
            assert words.speedup(rung["observed"]) in texts(shown)
    unlike = compare.against_first(source, (*names[:2], "v100-odd-vocabulary-mixed-float16"))
    struck = export.render(find(compare.content(unlike), "ladder"))
    assert re.findall(r"<del[^>]*>([^<]*)", struck) == ["v100-odd-vocabulary-mixed-float16"]


def test_a_run_after_an_unlike_one_is_held_against_the_nearest_that_it_can_be_compared_with() -> None:
    source = LogDirectory(SAMPLES)
    base, odd, mixed = (
        "v100-convnet-float32",
        "a100-tf32-baseline-mixed-float16",
        "v100-convnet-mixed-float16",
    )
    other = "v100-odd-vocabulary-float32"  # another model, which is refused as a base
    names = (base, odd, other, mixed)
    pair = to_json(source.compare((base, mixed)))
    found = to_json(compare.against_nearest(source, names))
    assert [(rung["from"], rung["to"]) for rung in found["steps"]] == [(0, 1), (1, 2), (0, 3)]
    assert found["steps"][2]["observed"] == pair["steps"][0]["observed"] != None  # noqa: E711
    assert [each | {"step": 0} for each in found["kernels"] if each["step"] == 2] == pair["kernels"]
    shown = find(compare.content(found, first=False), "ladder")
    rows = [texts(row) for row in shown.children[1].children]
    assert f"against {base}" in rows[3]
    assert "Against the one before" in texts(shown)
    struck = export.render(shown)
    assert re.findall(r"<del[^>]*>([^<]*)", struck) == [
        odd,
        words.speedup(found["steps"][0]["observed"]),  # a speedup, but none of precision
        other,
    ]
    assert f"unlike {base}: device" in struck  # by its name: it is the first and the one before
    alike = (base, mixed, "v100-float32-island")
    assert compare.against_nearest(source, alike) == source.compare(alike)


def test_what_is_compared_with_what_stands_in_the_link() -> None:
    ladder = ("a", "b", "c")
    for first in (False, True):
        chosen = choice.Choice("c", "a", ladder, first)
        assert choice.read(chosen.query(), ()) == chosen
