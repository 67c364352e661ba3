"""Why: every number on it is one of the report's, and all of them rank and count alike."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from copy import deepcopy
from functools import lru_cache
from html import escape
from pathlib import Path
from typing import Any

import pytest
from dash import html
from mpprof_dashboards import choice as choices
from mpprof_dashboards.components import drawn
from mpprof_dashboards.components.remedies import combinations, remedies
from mpprof_dashboards.components.strip import legend, strip
from mpprof_dashboards.drawings import flow, ruler
from mpprof_dashboards.export import render
from mpprof_dashboards.pages import why

from mpprof.api import workflows
from mpprof.report import json as reporting
from mpprof.report import without_finding, words
from mpprof.report.content import time_doubt
from mpprof.report.to_json import to_json
from tests.builders import unmarked
from tests.builders.read_back import markdown, reading, text
from tests.dashboards.fake_source import cpu_document, empty_document, live_document, mixed_document
from tests.dashboards.test_compare_page import find, texts
from tests.samples import NAMES, source

why = reading(why)
flow = reading(flow)
ruler = reading(ruler)
drawn = reading(drawn)
time_doubt = reading(time_doubt)
strip = reading(strip)
legend = reading(legend)
combinations = reading(combinations)
remedies = reading(remedies)

FIRST_CHANGES_THE_TYPE = ("gtx1080ti-mixed-float16",)
"""What other remedies leave of a step in another type is not known."""


@lru_cache
def report(name: str) -> Any:
    return to_json(source().report(name, choices.default_baseline(name, source().entries())))


@pytest.mark.parametrize("name", NAMES)
def test_the_first_screen_is_the_answer(name: str) -> None:
    document = report(name)
    answer, shown = document["answer"], texts(why._hero(document, None, None))
    for said in (answer["figure"], answer["label"], answer["sentence"], *answer["because"], answer["do"]):
        assert said in shown


@pytest.mark.parametrize("name", NAMES)
def test_plan_bars_and_headline_name_the_same_first_cause_and_add_up(name: str) -> None:
    document = report(name)
    facts = document["facts"]
    bars = {bar.key: bar for bar in flow.flow_of(document).bars}
    promised = None if name in FIRST_CHANGES_THE_TYPE else document["whatif"]["best_step_ns"]
    assert facts["after_remedies_ns"] == promised
    assert ("facts.after_remedies_ns" in document["absent"]) == (promised is None)
    gains = [cause["gain_ns_per_step"] or 0.0 for cause in facts["causes"]]
    assert ("after" in bars) == (promised is not None and max(gains, default=0.0) >= 0.01 * facts["step_ns"])
    if "after" in bars:
        assert bars["after"].ns == pytest.approx(promised)
        assert facts["step_ns"] - sum(gains) == pytest.approx(promised, rel=0.006)
    listed = re.findall(r'<tr data-code="(MP\d+)"', render(remedies(document, "")))
    planned = [row["code"] for row in document["whatif"]["order"]]
    first = document["answer"]["code"]
    others = [code for code in listed if code in planned and code != first]
    assert others == [code for code in planned if code in others]
    assert not listed or first is None or first not in listed or listed[0] == first


def test_there_is_one_target_on_the_page() -> None:
    document = report("v100-input-bound-mixed-float16")
    attainable = words.speedup(document["facts"]["attainable"])
    shown = texts(why._hero(document, None, None)) + drawn_text(document)
    assert f"about {attainable}" in shown
    speedup = document["speedup"]
    others = {words.speedup(speedup[key]) for key in ("expected", "ceiling") if speedup[key]} - {attainable}
    assert not [other for other in others if other in shown]


def drawn_text(document: Any) -> str:
    return " ".join(ET.fromstring(flow.draw(flow.flow_of(document))).itertext())


def test_an_unlike_baseline_takes_the_place_of_the_speedup() -> None:
    document = to_json(source().report("v100-convnet-mixed-float16", "a100-tf32-baseline-float32"))
    assert document["answer"]["figure"] == ""
    shown = texts(why._hero(document, "a100-tf32-baseline-float32", None))
    assert "unlike" in shown
    assert document["facts"]["observed"] is not None
    assert words.speedup(document["facts"]["observed"]) not in shown
    assert "These two runs cannot be compared" in document["answer"]["sentence"]
    assert [bar.key for bar in flow.flow_of(document).bars if bar.key in ("baseline", "attainable")] == []


def test_with_skipped_updates_the_speedup_per_applied_update_stands_beside_the_other() -> None:
    document = mixed_document()
    document["facts"]["observed_per_update"] = document["facts"]["observed"] * 0.97
    assert "1.04x per applied update" in texts(why._hero(document, None, None))
    document["facts"]["observed_per_update"] = document["facts"]["observed"]
    assert "per applied update" not in texts(why._hero(document, None, None))


def test_shares_of_a_distorted_window_are_of_the_profiled_step() -> None:
    document = report("recorded-cpu-mixed-float16")
    assert "unlike" in document["time"]
    rows = why.account_rows(document["time"])
    assert "profiling" not in [row.key for row in rows]
    assert sum(row.length_ns for row in rows[:-1]) == pytest.approx(rows[-1].length_ns)
    assert max(row.length_ns for row in rows[:-1]) < rows[-1].length_ns
    assert rows[-1].name == "Profiled step"
    assert time_doubt(document["time"]) in texts(why._time(document))


@pytest.mark.parametrize("name", NAMES)
def test_the_account_adds_up(name: str) -> None:
    time = report(name)["time"]
    rows = why.account_rows(time)
    assert sum(row.length_ns for row in rows[:-1]) == pytest.approx(rows[-1].length_ns, abs=1.0)


def test_every_subset_of_remedies_comes_with_the_page() -> None:
    document = report("v100-input-bound-mixed-float16")
    steps = document["whatif"]["subsets_ns"]
    order = document["whatif"]["order"]
    assert len(steps) == 2 ** len(order)
    assert steps[0] == document["facts"]["step_ns"]
    for at, row in enumerate(order):
        assert steps[(2 << at) - 1] == pytest.approx(row["step_ns"])
    shown = combinations(document)
    assert [each["ns"] for each in shown] == steps
    assert shown[-1]["total"] == "48.0 ms → 11.7 ms; then the device limits"
    assert steps[2] == pytest.approx(steps[0] - order[1]["gain_ns"])
    assert "data-combinations" in render(remedies(document, ""))


def test_a_speedup_after_changes_says_what_float32_would_gain_by_them() -> None:
    """The input wait of 5.92 ms is float32's, too, and so is half of what the norms cost."""
    beyond = report("v100-input-bound-mixed-float16")
    assert beyond["facts"]["after_remedies_ns"] < beyond["facts"]["attainable_step_ns"]
    facts = beyond["facts"]
    shared = sum(
        cause["gain_ns_per_step"] - max(cause["added_ns_per_step"], cause["recovers_ns_per_step"])
        for cause in facts["causes"]
    )
    times, with_same = (
        ns / facts["after_remedies_ns"]
        for ns in (facts["baseline_step_ns"], facts["baseline_step_ns"] - shared)
    )
    assert with_same < 0.9 * times
    said = (
        f"about {words.speedup(times)}; about {words.speedup(with_same)} over float32 with the same changes"
    )
    assert said in drawn_text(beyond)
    within = report("v100-odd-vocabulary-mixed-float16")
    assert combinations(within)[-1]["total"].startswith("52.9 ms → 21.3 ms · about 3.37x; then")
    assert "about 3.37x" in drawn_text(within)
    assert combinations(within)[0]["said"] == words.about(words.speedup(within["facts"]["observed"]))


def test_skipped_updates_have_a_bar_and_a_size() -> None:
    document = report("v100-loss-scale-thrash")
    bars = {bar.key: bar for bar in flow.flow_of(document).bars}
    applied = 1 - document["steps"]["skipped"] / document["steps"]["count"]
    assert bars["update"].ns * applied == pytest.approx(document["facts"]["step_ns"])
    assert [(part.key, part.kind) for part in bars["update"].segments] == [
        ("applied", "plain"),
        ("skipped", "skip"),
    ]
    assert "update" not in {bar.key for bar in flow.flow_of(report("v100-float32-island")).bars}


def test_the_total_of_a_run_that_skips_updates_is_per_applied_update() -> None:
    document = report("v100-loss-scale-thrash")
    assert combinations(document)[-1]["total"].startswith("32.5 ms → 11.5 ms per applied update")
    said = texts(why._hero(document, None, None))
    assert "scaled gradients were not finite" in said
    assert "of 160 updates skipped, loss scale " in said


def test_what_the_baseline_measured_is_the_gain_of_going_back_to_its_type() -> None:
    document = report("gtx1080ti-mixed-float16")
    saved = document["facts"]["step_ns"] - document["facts"]["baseline_step_ns"]
    shown = render(remedies(document, ""))
    (row,) = re.findall(r'<tr data-code="MP801".*?</tr>', shown)
    assert words.duration(saved) in row
    assert words.duration(document["facts"]["baseline_step_ns"]) in row
    assert row.count("measured") == 2
    alone = to_json(source().report("gtx1080ti-mixed-float16"))
    (row,) = re.findall(r'<tr data-code="MP801".*?</tr>', render(remedies(alone, "")))
    assert "measured" not in row


def test_a_note_whose_remedy_is_listed_above_is_left_out() -> None:
    notes = {name: _notes(report(name)) for name in NAMES}
    assert "XLA is off" not in notes["a100-tf32-baseline-mixed-float16"]  # norms: jit_compile=True
    assert "The batch could be larger" not in notes["a100-launch-bound-mixed-float16"]
    assert "The batch could be larger" in notes["v100-convnet-mixed-float16"]


def _notes(document: Any) -> str:
    found = re.search(r'id="notes".*', render(remedies(document, "")))
    return found[0] if found else ""


def test_what_no_cause_explains_is_said_beside_the_flow() -> None:
    said = texts(drawn.flow_of(report("v100-input-bound-mixed-float16"), None))
    assert "328 µs not explained, which no remedy recovers" in said


def test_what_comes_to_light_after_the_plan_is_said() -> None:
    document = deepcopy(report("v100-input-bound-mixed-float16"))
    document["whatif"]["surfacing"] = [
        {"code": "MP504", "gain_ns": 3.51e6},
        {"code": "MP507", "gain_ns": 1.0},
    ]
    about = escape(without_finding.about("MP504"))
    assert f"Comes to light then: MP504 {about} (3.51 ms)</span>" in _notes(document)


def test_what_stays_after_the_plan_is_named_once_below_the_bar() -> None:
    name = "recorded-h200-transformer-mixed-float16"
    pair = source().report(name, choices.default_baseline(name, source().entries()))
    assert combinations(pair)[-1]["total"] == "89.8 ms → 26.9 ms · about 1.34x"
    _head, first, *_ = find(why.content(pair), "limits").children
    assert " ".join(texts(first).split()).startswith("elementwise 6.57 ms: ")


def test_a_measurement_to_make_is_no_first_change() -> None:
    document = report("h100-mixed-bfloat16")
    screen = texts(why.content(document))
    assert "First: " not in screen
    assert "Whether it pays: mpprof try train.py measures it" in " ".join(screen.split())
    assert "the changes that were found; " in screen
    assert "First: " in texts(why.content(report("v100-input-bound-mixed-float16")))


def test_a_gain_of_mixed_precision_that_is_not_known_says_what_measures_it() -> None:
    row = texts(remedies(report("v100-xla-convnet-float32"), ""))
    assert "not known: mpprof try measures it" in row


def test_kernels_name_the_peak_and_what_their_shares_are_of() -> None:
    page = texts(why._kernels(report("v100-odd-vocabulary-mixed-float16")))
    assert "its share of the 52.4 ms of work" in page
    assert "38.43 ms · 73.3 % · 11.0 TFLOP/s · 35.2 % of its roof, 31.4 TFLOP/s" in page
    assert "2.31 ms · 4.4 % · no rate" in page


def test_a_gain_shows_what_float32_would_gain_too() -> None:
    section = render(remedies(report("v100-input-bound-mixed-float16"), ""))
    own, shared = re.findall(r'class="mp-gain-(?:own|shared)" style="width: ([\d.]+)%', section)[:2]
    assert float(own) / (float(own) + float(shared)) == pytest.approx(19612 / 25533, abs=0.01)
    assert "outlined: float32 would gain it, too" in section


def test_a_ruler_has_one_figure_for_each_mark_and_none_for_precision_alone() -> None:
    marks = ruler.marks_of(report("v100-input-bound-mixed-float16"))
    assert [(mark.key, mark.said) for mark in marks] == [
        ("one", "1x"), ("now", "this run"), ("after", "first change: about 2.17x"),
        ("alone", "precision alone"),
    ]  # fmt: skip
    for name in ("v100-input-bound-mixed-float16", "recorded-h200-transformer-mixed-float16"):
        drawing, marks = ruler.draw(ruler.marks_of(report(name))), ruler.marks_of(report(name))
        assert [f">{mark.said}<" in drawing for mark in marks] == [True] * len(marks)
    assert ruler.draw(ruler.marks_of(report("v100-float32-island"))) == ""


def test_the_strip_explains_the_host_s_colours_and_shortens_kernels() -> None:
    timeline = deepcopy(source().timeline("a100-launch-bound-mixed-float16", width=1200))
    said = texts(legend(timeline, "Tensor Cores"))
    assert "launches, ops" in said
    assert "host waits for the device" in said
    assert not [word for word in texts(strip(timeline)).split() if word == "void"]


def test_a_remedy_for_memory_stands_behind_those_for_time() -> None:
    document = deepcopy(report("v100-input-bound-mixed-float16"))
    held = {**document["findings"][0], "code": "MP604", "title": "Activations", "cost_bytes": 3 * 2**30}
    held |= {"gain_ns_per_step": None, "cost_ns_per_step": None, "severity": "warning"}
    document["findings"].append(held)
    document["facts"]["causes"].append(
        {**document["facts"]["causes"][0], "code": "MP604", "gain_ns_per_step": None}
    )
    section = render(remedies(document, ""))
    assert re.findall(r'<tr data-code="(MP\d+)"', section) == ["MP301", "MP501", "MP310", "MP604"]
    assert ">memory</span>" in section
    assert "3.00 GiB" in section
    assert ">first</span>" not in section


def test_a_cpu_that_emulates_16_bits_has_a_remedy_on_the_page() -> None:
    section = remedies(report("recorded-cpu-mixed-float16"), "")
    assert section is not None
    assert "Train in float32 on this CPU" in texts(section)


def test_sentences_without_sense_are_gone() -> None:
    assert words.speedups(1.141, 1.144) == "1.14x"
    assert words.speedups(1.1, 1.3) == "1.10x to 1.30x"
    assert words.saved(-2.24 * 2**30) == "2.24 GiB more than the baseline"
    assert words.saved(0) == "as much as the baseline"
    assert words.saved(2**30) == "1.00 GiB less than the baseline"
    assert words.saved(None) == words.NOT_KNOWN


def test_what_is_not_measured_stands_once_for_each_reason_and_by_names() -> None:
    section = why._absent(source().report("recorded-cpu-float32", None))
    (table,) = [part for part in section.children[1].children if not isinstance(part, html.Summary)]
    rows = [[cell.children for cell in row.children] for row in table.children.children.children]
    names, reasons = zip(*rows, strict=True)
    assert len(set(reasons)) == len(reasons)
    assert "Needs a measured baseline." in reasons
    assert any("the baseline's step time" in name for name in names)
    assert not [name for name in names if "_" in name or name[0].islower()]


def test_nothing_known_is_still_a_page_without_an_empty_box() -> None:
    for document in (empty_document(), live_document(), cpu_document()):
        for baseline in (None, "x"):
            shown = [part for part in why.content(document, baseline=baseline, query="?run=x") if part]
            assert texts(shown).strip()
    assert flow.draw(flow.flow_of(empty_document())) == ""


def test_a_kernel_without_a_rate_says_why_on_the_page_as_in_the_texts() -> None:
    document = deepcopy(report("v100-odd-vocabulary-mixed-float16"))
    kernel = document["kernels"][0]
    assert "reason" not in kernel
    kernel |= {"flops_per_s": None, "bytes_per_s": None, "peak_ratio": None, "reason": "it fits several"}
    page = texts(why._kernels(document))
    assert "No rate for " in page
    for said in (page, text.render(document), markdown.render(document)):
        assert ": it fits several" in " ".join(said.split())


def test_a_mean_of_unlike_steps_comes_with_their_spread(tmp_path: Path) -> None:
    path = tmp_path / "steps.pt.trace.json"
    path.write_bytes(unmarked.lasting((115_000, 1_021_000, 1_076_000)).text())
    document = to_json(reporting.report(workflows.diagnose(path)))
    assert "step (mean of 3 steps of 115 ms to 1.08 s, median 1.02 s)" in texts(
        why._hero(document, None, None)
    )
    assert "3 steps of 115 ms to 1.08 s, median 1.02 s" in texts(why._time(document))


def test_code_that_a_row_above_shows_is_not_said_again() -> None:
    text = render(remedies(report("recorded-h200-transformer-mixed-float16"), ""))
    table = text.partition("</table>")[0]
    assert table.count("the same line as above: this gain comes on top") == 2  # of MP306 and MP302
    line = "model.compile(optimizer=model.optimizer, loss=model.loss, jit_compile=True)"
    assert table.count(f'data-copy="{line}"') == 1


def test_a_run_that_ran_out_of_memory_shows_the_memory_first() -> None:
    document = deepcopy(report("v100-convnet-float32"))
    ids = ["flow", "whatif"]
    order = [each for part in why.content(document) for each in ids if f'id="{each}"' in render(part)]
    assert order == ids
    document["answer"]["leads"] = "error"
    document["run"]["ended"] = {"reason": "out_of_memory", "error": "Out of memory"}
    order = [each for part in why.content(document) for each in ids if f'id="{each}"' in render(part)]
    assert order == ids[::-1]
