"""Figures: the values that went in are the values drawn, and names are text."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go
import pytest
from mpprof_dashboards import theme, work
from mpprof_dashboards.components.text import escape, label
from mpprof_dashboards.figures import compare, memory, placement, roofline, steps, waterfall

from tests.dashboards.fake_source import (
    HOSTILE,
    HOSTILE_KERNEL,
    FakeSource,
    empty_document,
    hardware_table,
    kernel_rows,
    layer_rows,
    live_document,
    mixed_document,
    op_rows,
    steps_table,
)


def marks(figure: go.Figure) -> dict[str, float]:
    """What the first trace of a bar figure shows: raw length by key."""
    return dict(figure.data[0].customdata)


def gap_of(document: Any) -> go.Figure:
    """The gap of a report's own comparison, as the page of comparisons draws it."""
    gain = document["speedup"]
    step_ns = document["time"]["step_ns"]
    known = gain["expected"] is not None
    return waterfall.gap(gain["slices"], step_ns, gain["baseline_step_ns"], reachable=known)


def drawn_ns(figure: go.Figure, per: float = 1e6) -> list[float]:
    return [length * per for length in figure.data[0].x]


def test_gap_waterfall_draws_every_class_of_the_gap_and_closes() -> None:
    document = mixed_document()
    figure = gap_of(document)
    assert figure is not None
    shown = marks(figure)
    slices = document["speedup"]["slices"]
    for role in {part["class"] for part in slices}:
        expected = sum(part["ns_per_step"] for part in slices if part["class"] == role)
        assert shown[role] == pytest.approx(expected)
    assert shown["step"] == document["time"]["step_ns"]
    assert shown["reach"] == pytest.approx(document["speedup"]["reach_ns"])
    assert sum(shown.values()) - shown["step"] == pytest.approx(shown["step"])
    assert drawn_ns(figure) == pytest.approx(list(shown.values()))


def test_without_an_expectation_the_gap_starts_from_the_baseline_and_nothing_is_hatched() -> None:
    document = mixed_document()
    document["speedup"]["expected"] = None
    figure = gap_of(document)
    assert figure.layout.yaxis.ticktext[0] == "Baseline"
    assert not figure.data[0].marker.pattern.shape[0]
    measured = gap_of(mixed_document())
    assert measured.layout.yaxis.ticktext[0].startswith("Reachable")
    assert measured.data[0].marker.pattern.shape[0]


def test_slices_too_small_to_be_seen_share_one_bar_and_the_waterfall_still_closes() -> None:
    slices = [
        {"class": role, "layer": None, "ns_per_step": ns}
        for role, ns in (("matmul", 5e6), ("cast", 900.0), ("norm", -400.0), ("layout", 15_000.0))
    ]
    figure = waterfall.gap(slices, 20e6, 30e6)
    assert figure is not None
    shown = marks(figure)
    assert set(shown) == {"reach", "matmul", "rest", "step"}
    assert shown["rest"] == pytest.approx(15_500.0)
    assert shown["reach"] + shown["matmul"] + shown["rest"] == pytest.approx(shown["step"])
    hover = figure.data[0].hovertext[2]
    assert all(theme.class_label(role) in hover for role in ("cast", "norm", "layout"))


def test_one_small_slice_keeps_its_name() -> None:
    slices = [
        {"class": role, "layer": None, "ns_per_step": ns} for role, ns in (("matmul", 5e6), ("cast", 9.0))
    ]
    assert set(marks(waterfall.gap(slices, 20e6))) == {"reach", "matmul", "cast", "step"}


def test_bars_of_a_waterfall_stand_end_to_end() -> None:
    bars = gap_of(mixed_document()).data[0]
    ends = np.array(bars.base) + np.array(bars.x)
    assert np.array(bars.base)[1:-1] == pytest.approx(ends[:-2])
    assert ends[-2] == pytest.approx(bars.x[-1])
    assert bars.base[-1] == 0


def test_the_computed_step_is_hatched_and_measured_ones_are_not() -> None:
    bars = gap_of(mixed_document()).data[0]
    patterns = dict(zip((key for key, _ in bars.customdata), bars.marker.pattern.shape, strict=True))
    assert patterns["reach"] == theme.ESTIMATED_PATTERN
    assert patterns["step"] == patterns["matmul"] == ""


def hue(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def test_no_class_and_no_decrease_is_red() -> None:
    for colour in (*theme.CLASS_COLOURS.values(), compare.GAIN):
        red, green, blue = hue(colour)
        assert not (red > 150 and green < 90 and blue < 90), colour
    figure = compare.changes([{"key": "k", "by": "name", "from_ns": 5.0, "to_ns": 2.0}])
    assert figure is not None
    assert figure.data[0].marker.color == (compare.GAIN,)


def test_every_class_of_the_account_has_a_colour_and_a_label() -> None:
    from mpprof.model.account import CLASSES
    from mpprof.model.kernels import PLACEMENTS

    assert set(theme.CLASS_COLOURS) == set(theme.CLASS_LABELS) == set(CLASSES)
    assert set(theme.PLACEMENT_COLOURS) == set(theme.PLACEMENT_LABELS) == set(PLACEMENTS)


def test_axes_state_their_units() -> None:
    table, document = steps_table(), mixed_document()
    assert "(ms)" in steps.time_per_step(table, document["steps"]).layout.yaxis.title.text
    assert "(GiB)" in steps.memory(table).layout.yaxis.title.text
    assert "(GiB)" in memory.at_peak(document["memory"], "kind").layout.xaxis.title.text
    assert {title[-1] for title, _ in steps.hardware(hardware_table())} == {")"}


def test_matrix_work_and_kernel_time_show_their_unknown_share() -> None:
    document = mixed_document()
    figure = placement.matrix_work(document)
    assert figure is not None
    matmul = document["time"]["slices"][0]
    assert marks(figure) == {
        f"{part['placement']}/{part['precision']}": part["ns_per_step"] for part in matmul["by"]
    }
    known_only = [row for row in kernel_rows() if row["placement"] != "unknown"]
    assert marks(placement.kernel_time(known_only))["unknown"] == 0
    assert marks(placement.kernel_time(kernel_rows()))["unknown"] == 800_000


def test_ranked_layers_keep_what_no_layer_owns() -> None:
    figure = placement.ranked(layer_rows(), "layer", limit=1)
    assert marks(figure) == {"res2a": 7_100_000, "more": 2_000_000, "": 3_800_000}


@pytest.mark.parametrize("name", [HOSTILE, HOSTILE_KERNEL, "a %{x} b", "$x^2$", "a &lt; b", "tab\tnew\nline"])
def test_names_are_text(name: str) -> None:
    for text in (escape(name), label(name)):
        assert "<" not in text
        assert ">" not in text
        assert "%{" not in text
        assert "\n" not in text
    assert escape("a &lt; b") == "a &amp;lt; b"


def test_no_figure_holds_a_hostile_name_as_markup() -> None:
    document = mixed_document()
    figures = [
        gap_of(document),
        placement.ranked(layer_rows(), "layer"),
        memory.at_peak(document["memory"], "op"),
        compare.changes([{"key": HOSTILE, "by": "op", "from_ns": 1.0, "to_ns": 2.0}]),
    ]
    for figure in figures:
        for text in displayed(json.loads(figure.to_json())):
            assert "<a" not in text, text


def displayed(node: Any, key: str = "") -> list[str]:
    """Every string that plotly draws; `customdata` of bars is data for readers, never drawn."""
    if isinstance(node, dict):
        return [text for name, item in node.items() for text in displayed(item, name)]
    if isinstance(node, list):
        return [] if key == "customdata" else [text for item in node for text in displayed(item, key)]
    return [node] if isinstance(node, str) else []


def test_long_names_stay_apart_when_they_are_shortened_alike() -> None:
    rows = [
        {"layer": f"{'a' * 40}{middle}{'b' * 40}", "total_ns": ns} for middle, ns in (("1", 5.0), ("2", 3.0))
    ]
    figure = placement.ranked(rows, "layer")
    assert list(figure.data[0].y) == [0, 1, 2]
    assert sorted(marks(figure).values()) == [0, 3.0, 5.0]


def test_step_times_are_those_of_the_table_and_profiled_ones_are_marked() -> None:
    table, document = steps_table(), mixed_document()
    figure = steps.time_per_step(table, document["steps"] | {"first_steady": 11})
    by_name = {trace.name: trace for trace in figure.data}
    assert list(by_name["profiled"].x) == [20, 21, 22, 23, 24]
    above = next(trace for name, trace in by_name.items() if name and name.startswith("above"))
    assert sorted([*by_name["warm-up"].x, *above.x]) == list(range(1, 11))
    measured = dict(zip(by_name["step"].x, by_name["step"].y, strict=True))
    assert 120 not in measured  # the last of an epoch has no interval, and is not drawn as zero
    assert measured[50] * 1e6 == pytest.approx(table.interval_ns[49])
    assert by_name["median 17.2 ms"].customdata[0] == document["steps"]["median_ns"]


def test_thinning_keeps_the_extremes() -> None:
    values = np.ones(100_000)
    values[54_321], values[7] = 99.0, 0.1
    rows = steps.thin(len(values), values)
    assert len(rows) <= steps.MOST_POINTS
    assert {54_321, 7} <= set(rows.tolist())


def test_a_loss_that_is_not_finite_is_marked_and_not_drawn_as_a_number() -> None:
    table = steps_table()
    figure = steps.loss(table)
    line, broken = figure.data
    assert np.isnan(line.y[40])
    assert list(broken.x) == [41]
    assert "not a number" in broken.customdata[0]


def test_skips_stand_on_the_loss_scale() -> None:
    table = steps_table()
    figure = steps.loss_scale(table)
    assert list(figure.data[0].x) == list(range(4, 121, 4))
    assert list(figure.data[1].x) == [4, 8, 12, 16, 20, 24, 28, 32, 36]
    assert figure.layout.yaxis.type == "log"


def test_nothing_measured_draws_nothing() -> None:
    for document in (empty_document(), live_document()):
        assert placement.matrix_work(document) is None
    assert placement.kernel_time([]) is None
    assert placement.ranked([], "layer") is None
    assert compare.changes([]) is None
    assert memory.at_peak({"peak_bytes": 1, "at_peak": []}, "op") is None
    assert steps.hardware(None) == []
    for table in (None, steps_table(12, recorded=False)):
        assert steps.time_per_step(table, None) is None
        assert steps.loss(table) is None
        assert steps.loss_scale(table) is None
        assert steps.memory(table) is None


# --- one axis for all --------------------------------------------------------------------------------------


def test_the_steps_share_one_axis_and_keep_a_domain_each() -> None:
    table = steps_table()
    panels = [
        ("Time", steps.time_per_step(table, None)),
        ("Loss scale", steps.loss_scale(table)),
        ("Skipped rail", steps.skips(table)),
        ("Loss", steps.loss(table)),
    ]
    figure = steps.together(panels)
    assert {trace.xaxis for trace in figure.data} == {"x"}
    assert {trace.yaxis for trace in figure.data} == {"y", "y2", "y3", "y4"}
    ends = [figure.layout[name].domain for name in ("yaxis", "yaxis2", "yaxis3", "yaxis4")]
    assert all(upper[0] > lower[1] for upper, lower in pairwise(ends))
    assert figure.layout.yaxis2.type == "log"


def test_what_never_changes_is_a_line_of_text_and_no_panel() -> None:
    table = steps_table(mixed=False)
    flat = replace(table, peak_bytes=np.full(len(table), 3 << 30), live_bytes=np.full(len(table), 1 << 30))
    assert not steps.changes(flat, "memory")
    said = steps.steady_texts(flat, hardware_table())
    assert "peak memory 3.00 GiB" in said
    assert "SM clock 1,410 MHz" in said
    assert not [text for text in said if text.startswith("Power")]
    assert "SM clock (MHz)" not in dict(steps.clocks(table, hardware_table()))


def test_skips_are_ticks_of_their_own_rail() -> None:
    table = steps_table()
    (trace,) = steps.skips(table).data
    assert list(trace.x) == table.step[table.skipped > 0].tolist()
    assert steps.skips(replace(table, skipped=np.full(len(table), -1))) is None


def test_a_few_slow_steps_do_not_flatten_the_others_and_stay_visible() -> None:
    table = steps_table(2000)
    slow = table.interval_ns.copy()
    slow[[900, 1200]] = 900_000_000
    figure = steps.time_per_step(replace(table, interval_ns=slow), None)
    above = next(trace for trace in figure.data if trace.name and trace.name.startswith("above"))
    assert {901, 1201} <= set(above.x)
    assert max(above.y) < 100


def test_input_wait_dispatch_and_the_rest_stand_on_one_another() -> None:
    table = steps_table(50)
    waits = replace(table, input_wait_ns=np.full(50, 2_000_000), dispatch_ns=np.full(50, 1_000_000))
    stacked = [trace for trace in steps.time_per_step(waits, None).data if trace.stackgroup]
    assert [trace.name for trace in stacked] == ["input wait", "dispatch", "rest"]
    whole = np.sum([trace.y for trace in stacked], axis=0)
    by_step = dict(zip(waits.step.tolist(), (steps.step_ns(waits) / 1e6).tolist(), strict=True))
    assert whole == pytest.approx([by_step[step] for step in stacked[0].x])


def test_the_memory_map_holds_every_kind_and_no_more_than_its_tensors() -> None:
    held = mixed_document()["memory"]
    kinds = {item["name"]: item["bytes"] for item in held["at_peak"] if item["by"] == "kind"}
    first = next(iter(kinds))
    tensor = {
        "kind": first, "op": "a/MatMul", "layer": HOSTILE, "dtype": "float16", "shape": "[64,10]", "count": 2,
        "bytes": 1_000_000, "born_ns": 0, "life_ns": None,
    }  # fmt: skip
    (drawn,) = memory.treemap(held | {"tensors": [tensor]}).data
    sizes = dict(zip(drawn.ids, drawn.values, strict=True))
    assert {name: sizes[name] for name in kinds} == kinds
    assert sizes["peak"] == sum(kinds.values())
    assert sizes[f"{first}/0"] == 1_000_000
    assert not any("<a" in label for label in drawn.labels)
    assert memory.treemap({"at_peak": [], "peak_bytes": 0}) is None


def test_the_baseline_s_memory_is_an_outline_over_the_areas() -> None:
    course = {"time_ns": [0, 10], "total_bytes": [4 << 30, 8 << 30],
              "parts": {"dtype": {"float32": [4 << 30, 8 << 30]}}}  # fmt: skip
    held = {"peak_bytes": 8 << 30, "at_peak": [], "course": course}
    alone, beside = (memory.course(held, "dtype", other) for other in (None, held))
    assert [trace.name for trace in beside.data if trace.name == "baseline"] == ["baseline"]
    assert not [trace for trace in alone.data if trace.name == "baseline"]


def test_the_roofline_stands_under_its_roofs_and_names_are_text() -> None:
    source = FakeSource()
    ops = [row | {"flops_per_call": 4e9, "bytes_per_call": 1e7, "flops_per_s": 9e12, "bound": "compute"}
           for row in op_rows()[:2]]  # fmt: skip
    figure = roofline.figure(ops, source.roofs("mixed"), work.Per(8))
    dots = [trace for trace in figure.data if trace.mode == "markers"]
    roofs = [trace for trace in figure.data if trace.mode == "lines"]
    assert [list(trace.x) for trace in dots] == [[400.0], [400.0]]
    assert max(max(trace.y) for trace in roofs) == pytest.approx(312)
    assert not any("<a" in text for trace in dots for text in trace.hovertext)
    assert roofline.figure(ops, None, work.Per(8)) is None
    assert roofline.figure([], source.roofs("mixed"), work.Per(8)) is None
