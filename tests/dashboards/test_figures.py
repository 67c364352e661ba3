"""Figures: the values that went in are the values drawn, and names are text."""

from __future__ import annotations

import base64
import re
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects
import pytest
from mpprof_dashboards import export, theme, work
from mpprof_dashboards.components.bars import Row, chart
from mpprof_dashboards.components.strip import legend, strip
from mpprof_dashboards.components.text import escape, label
from mpprof_dashboards.figures import compare, memory, plain, roofline, steps, waterfall
from mpprof_dashboards.figures.plain import Figure
from mpprof_dashboards.pages import steps as page

from mpprof.model.account import Slice
from tests.builders.read_back import reading
from tests.dashboards.fake_source import (
    HOSTILE,
    HOSTILE_KERNEL,
    FakeSource,
    hardware_table,
    mixed_document,
    op_rows,
    steps_table,
)

export = reading(export)
work = reading(work)
strip = reading(strip)
compare = reading(compare)
memory = reading(memory)
plain = reading(plain)
roofline = reading(roofline)
steps = reading(steps)
waterfall = reading(waterfall)
page = reading(page)


def marks(figure: Figure) -> dict[str, float]:
    """What the first trace of a bar figure shows: raw length by key."""
    return dict(figure.data[0].customdata)


def gap_of(document: Any) -> dict[str, Row]:
    """The gap of a report's own comparison, as the page of comparisons draws it: its bars by key."""
    gain = document["speedup"]
    step_ns, known = document["time"]["step_ns"], gain["expected"] is not None
    rows = waterfall.gap(gain["slices"], step_ns, gain["baseline_step_ns"], attainable=known)
    return {row.key: row for row in rows}


def slices_of(**parts: float) -> Any:
    return [{"class": role, "layer": None, "ns_per_step": ns} for role, ns in parts.items()]


def test_gap_waterfall_draws_every_class_of_the_gap_and_closes() -> None:
    document = mixed_document()
    shown = {key: row.length_ns for key, row in gap_of(document).items()}
    slices = document["speedup"]["slices"]
    for role in {part["class"] for part in slices}:
        expected = sum(part["ns_per_step"] for part in slices if part["class"] == role)
        assert shown[role] == pytest.approx(expected)
    assert shown["step"] == document["time"]["step_ns"]
    assert shown["reach"] == pytest.approx(document["speedup"]["reach_ns"])
    assert shown["baseline"] == document["speedup"]["baseline_step_ns"]
    assert sum(shown.values()) - shown["step"] - shown["baseline"] == pytest.approx(shown["step"])


def test_without_an_expectation_the_gap_starts_from_the_baseline_and_nothing_is_hatched() -> None:
    document = mixed_document()
    assert gap_of(document)["reach"].computed
    document["speedup"]["expected"] = None
    rows = gap_of(document)
    assert next(iter(rows)) == "baseline"
    assert "reach" not in rows
    assert not any(row.computed for row in rows.values())


def test_the_computed_step_is_drawn_hatched_and_measured_ones_are_not() -> None:
    drawn = export.render(chart(list(gap_of(mixed_document()).values()), "gap")).split("<li ")[1:]
    assert [re.findall('data-key="([^"]*)"', bar) for bar in drawn if "mp-computed" in bar] == [["reach"]]
    assert {"matmul", "step"} <= {key for bar in drawn for key in re.findall('data-key="([^"]*)"', bar)}


def test_slices_too_small_to_be_seen_share_one_bar_and_the_waterfall_still_closes() -> None:
    rows = waterfall.gap(slices_of(matmul=5e6, cast=900.0, norm=-400.0, layout=15_000.0), 20e6)
    shown = {row.key: row.length_ns for row in rows}
    assert set(shown) == {"reach", "matmul", "rest", "step"}
    assert shown["rest"] == pytest.approx(15_500.0)
    assert shown["reach"] + shown["matmul"] + shown["rest"] == pytest.approx(shown["step"])
    hint = rows[2].hint
    assert all(theme.class_label(role) in hint for role in ("cast", "norm", "layout"))


def test_one_small_slice_keeps_its_name() -> None:
    keys = {row.key for row in waterfall.gap(slices_of(matmul=5e6, cast=9.0), 20e6)}
    assert keys == {"reach", "matmul", "cast", "step"}


def test_bars_of_a_waterfall_stand_end_to_end() -> None:
    rows = [row for key, row in gap_of(mixed_document()).items() if key != "baseline"]
    for before, after in pairwise(rows[:-1]):
        assert after.start_ns == pytest.approx(before.start_ns + before.length_ns)
    assert rows[-2].start_ns + rows[-2].length_ns == pytest.approx(rows[-1].length_ns)
    assert rows[-1].start_ns == 0


def test_changes_stand_on_both_sides_of_zero() -> None:
    changed: Any = [
        {"key": "volta_sgemm", "by": "name", "from_ns": 9.0, "to_ns": None},
        {"key": "volta_fp16", "by": "name", "from_ns": None, "to_ns": 4.0},
        {"key": "same", "by": "name", "from_ns": 1.0, "to_ns": 1.0},
    ]
    rows = compare.changes(changed)
    assert [(row.key, row.length_ns, row.start_ns, row.note) for row in rows] == [
        ("volta_sgemm", -9.0, 9.0, "gone"), ("volta_fp16", 4.0, 9.0, "new"),
    ]  # fmt: skip
    assert compare.changes(changed[1:])[0].start_ns == 0.0
    assert {row.kind for row in rows} == {"plain"}  # no colour says that less or more is wrong


def hue(colour: str) -> tuple[int, int, int]:
    return int(colour[1:3], 16), int(colour[3:5], 16), int(colour[5:7], 16)


def test_no_class_is_red() -> None:
    for colour in theme.CLASS_COLOURS.values():
        red, green, blue = hue(colour)
        assert not (red > 150 and green < 90 and blue < 90), colour


def test_every_class_of_the_account_has_a_colour_and_a_label() -> None:
    from mpprof.model.account import CLASSES
    from mpprof.model.kernels import PLACEMENTS

    assert set(theme.CLASS_COLOURS) == set(theme.CLASS_LABELS) == set(CLASSES)
    assert set(theme.PLACEMENT_LABELS) == set(PLACEMENTS)


def test_axes_state_their_units() -> None:
    table, document = steps_table(), mixed_document()
    assert "(ms)" in steps.time_per_step(table, document["steps"]).layout.yaxis.title.text
    assert "(GiB)" in steps.memory(table).layout.yaxis.title.text
    assert {title[-1] for title, _ in steps.clocks(table, hardware_table())} == {")"}


@pytest.mark.parametrize("name", [HOSTILE, HOSTILE_KERNEL, "a %{x} b", "$x^2$", "a &lt; b", "tab\tnew\nline"])
def test_names_are_text(name: str) -> None:
    for text in (escape(name), label(name)):
        assert "<" not in text
        assert ">" not in text
        assert "%{" not in text
        assert "\n" not in text
    assert escape("a &lt; b") == "a &amp;lt; b"


def test_no_figure_holds_a_hostile_name_as_markup() -> None:
    rows = memory.at_peak(mixed_document()["memory"], "op")
    assert "<a" not in export.render(chart(rows, "peak-op"))


def displayed(node: Any, key: str = "") -> list[str]:
    """Every string that plotly draws; `customdata` of bars is data for readers, never drawn."""
    if isinstance(node, dict):
        return [text for name, item in node.items() for text in displayed(item, name)]
    if isinstance(node, list):
        return [] if key == "customdata" else [text for item in node for text in displayed(item, key)]
    return [node] if isinstance(node, str) else []


def test_long_names_stay_apart_when_they_are_shortened_alike() -> None:
    changed: Any = [
        {"key": f"{'a' * 40}{middle}{'b' * 40}", "by": "name", "from_ns": 0.0, "to_ns": ns}
        for middle, ns in (("1", 5.0), ("2", 3.0))
    ]
    rows = compare.changes(changed)
    assert [row.length_ns for row in rows] == [5.0, 3.0]
    assert len({row.key for row in rows}) == 2


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
    assert compare.changes([]) == []
    assert memory.at_peak({"peak_bytes": 1, "at_peak": []}, "op") == []
    assert steps.clocks(steps_table(), None) == []
    for table in (None, steps_table(12, recorded=False)):
        assert steps.time_per_step(table, None) is None
        assert steps.loss(table) is None
        assert steps.loss_scale(table) is None
        assert steps.memory(table) is None


def test_every_figure_is_what_the_schema_of_plotly_takes() -> None:
    document, table = mixed_document(), steps_table()
    ops: Any = op_rows()
    curve = [{"updates": 10.0 * at, "loss": 1.0 / at} for at in (1, 2, 3)]
    learning: Any = {"curves": {"from": curve, "to": curve}, "window": [10.0, 30.0]}
    found = [
        compare.losses(learning, ("a", "b")),
        memory.treemap(document["memory"]),
        roofline.figure(ops, FakeSource().roofs("mixed"), work.per(document)),
        steps.time_per_step(table, document["steps"]),
        steps.loss(table),
        steps.loss_scale(table),
        steps.skips(table),
        steps.memory(table),
        *(figure for _, figure in steps.clocks(table, hardware_table())),
        steps.together([("Time", steps.time_per_step(table, None)), ("Skipped rail", steps.skips(table))]),
    ]
    drawn = [figure for figure in found if figure is not None]
    assert len(drawn) > 9
    for figure in drawn:
        plotly.graph_objects.Figure(figure.to_plotly_json())  # raises for what plotly.js does not know


def test_arrays_are_sent_in_base64_and_keep_their_values() -> None:
    for values in ([1, 2, 300], [-129, 1 << 40], [0.5, float("nan")]):
        figure = Figure()
        figure.add("scatter", x=np.array(values))
        sent = figure.to_plotly_json()["data"][0]["x"]
        got = np.frombuffer(base64.b64decode(sent["bdata"]), np.dtype(sent["dtype"]))
        assert np.array_equal(got, values, equal_nan=True)


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
    stacked = [trace for trace in steps.time_per_step(waits, None).data if "stackgroup" in trace]
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
    sizes = dict(zip(drawn.ids, drawn["values"], strict=True))
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


def test_live_memory_stands_on_what_the_step_does_not_change() -> None:
    course = {"time_ns": [0, 10], "total_bytes": [110, 1000], "parts": {"kind": {
        "gradients": [0, 300], "input": [5, 5], "unknown": [0, 95], "optimizer temporaries": [4, 4],
        "held before the window": [20, 20], "parameters (estimated)": [80, 80], "workspaces": [1, 496],
    }}}  # fmt: skip
    held = {"peak_bytes": 1000, "at_peak": [], "course": course}
    stacked = memory.parts(held, "kind")
    assert [part.name for part in stacked] == [
        "parameters (estimated)", "held before the window", "workspaces", "gradients", "unknown", "others",
    ]  # fmt: skip
    assert stacked[-1].bytes == (9, 9)
    assert [sum(values) for values in zip(*(part.bytes for part in stacked), strict=True)] == [110, 1000]
    figure = memory.course(held, "kind")
    shapes = {trace.name: trace.fillpattern.shape for trace in figure.data if trace.stackgroup}
    assert (shapes["parameters (estimated)"], shapes["gradients"]) == ("/", "")
    assert figure.layout.yaxis.range[1] > 1000


def test_what_is_estimated_says_so_beside_what_was_measured() -> None:
    items = [
        {"by": "kind", "name": "parameters", "bytes": 300},
        {"by": "kind", "name": "parameters", "bytes": 700, "estimated": True},
    ]
    held = {"peak_bytes": 1000, "at_peak": items}
    assert [row.computed for row in memory.at_peak(held, "kind")] == [True, False]
    (drawn,) = memory.treemap(held).data
    sizes = dict(zip(drawn.ids, drawn["values"], strict=True))
    assert sizes == {"peak": 1000, "parameters (estimated)": 700, "parameters": 300}


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


def million() -> Any:
    """A million steps, of which one is slow and one fast."""
    one = steps_table(1000, mixed=False)
    table = replace(one, **{f.name: np.tile(getattr(one, f.name), 1000) for f in fields(one)})
    interval = np.full(len(table), 2_000_000)
    interval[[700_123, 700_127]] = 2_600_000, 1_500_000
    return replace(
        table, step=np.arange(1, len(table) + 1), interval_ns=interval, profiled=np.zeros(len(table), bool)
    )


def test_zooming_in_draws_more_of_a_million_steps_and_no_extreme_is_lost() -> None:
    table = million()
    whole = steps.time_per_step(table, None)
    near = steps.time_per_step(steps.within(table, 700_000, 701_000), None)
    assert whole is not None
    assert near is not None
    for figure in (whole, near):
        drawn = np.concatenate([np.asarray(trace.x) for trace in figure.data if trace.mode == "markers"])
        assert {700_124, 700_128} <= set(drawn.tolist())
        assert len(drawn) <= steps.MOST_POINTS
    assert len(drawn) > 1000  # every step of the stretch, and one on either side


def test_the_charts_keep_their_places_when_one_has_nothing_to_show() -> None:
    class Many(FakeSource):
        def steps(self, run: str) -> Any:
            return replace(million(), loss_known=np.arange(1_000_000) < 1000)

    search = "?run=mixed&baseline=none"
    zoom = {"xaxis.range[0]": 500_000.0, "xaxis.range[1]": 500_100.0}
    whole = page.zoomed(Many(), search, {"xaxis.autorange": True})
    near = page.zoomed(Many(), search, zoom)
    axes = [sorted(name for name in figure.layout if name.startswith("yaxis")) for figure in (whole, near)]
    assert axes[0] == axes[1]
    assert near.layout.xaxis.range == [500_000.0, 500_100.0]
    assert near.layout.uirevision == whole.layout.uirevision
    for moved in (
        None,
        {},
        {"autosize": True},
        {"xaxis.range[0]": "1", "xaxis.range[1]": None},
        {"xaxis.range[0]": 1e300, "xaxis.range[1]": 2},
    ):
        assert page.zoomed(Many(), search, moved) is None


def contrast(one: str, other: str) -> float:
    low, high = sorted((theme.luminance(one), theme.luminance(other)))
    return (high + 0.05) / (low + 0.05)


GROUNDS = ("#FFFFFF", "#F6F7F9", "#191F27")
"""The surfaces of the light and the dark page, and the ground of a lane."""
MARKS = {
    *theme.CLASS_COLOURS.values(), *theme.LANE_COLOURS.values(), *theme.WORK_COLOURS.values(), *theme.LAYER_COLOURS,
    *(colour for kind, colour in theme.KIND_COLOURS.items() if kind != "run"), theme.ACCENT, theme.MEASURED,
    *memory._COLOURS.values(), *memory._MORE_COLOURS,
}  # fmt: skip


@pytest.mark.parametrize("colour", sorted(MARKS))
def test_every_mark_is_seen_on_the_light_and_on_the_dark_page(colour: str) -> None:
    edge = theme.EDGES.get(colour, colour)
    assert min(max(contrast(colour, ground), contrast(edge, ground)) for ground in GROUNDS) >= 3.0
    assert contrast(colour, theme.text_on(colour)) >= 4.0


def oklab(colour: str) -> np.ndarray:
    """Where a colour lies in OKLab, in which equal distances look about equally large."""
    rgb = np.array([int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    cones = np.cbrt(_CONES @ linear)
    return _OPPONENTS @ cones


_CONES = np.array(
    [
        [0.41222147, 0.53633254, 0.05144599],
        [0.2119035, 0.68069955, 0.10739696],
        [0.08830246, 0.28171884, 0.6299787],
    ]
)
_OPPONENTS = np.array(
    [[0.21045426, 0.79361779, -0.00407205], [1.9779985, -2.42859221, 0.45059371], [0.02590404, 0.78277177, -0.80867577]]
)  # fmt: skip


def test_every_wait_is_pale_with_an_outline() -> None:
    waits = {
        colour for key, colour in theme.LANE_COLOURS.items() if key.startswith("idle_") or key == "input"
    }
    assert waits == {theme.KIND_COLOURS["wait"]} == {theme.FLOW_COLOURS["wait"]}
    assert waits <= set(theme.EDGES)


def test_nothing_else_looks_like_matrix_units_work_off_them_or_waiting() -> None:
    taken = {colour: oklab(colour) for colour in map(theme.KIND_COLOURS.__getitem__, ("unit", "off", "wait"))}
    others = {
        *(colour for key, colour in theme.CLASS_COLOURS.items() if not key.startswith("idle_")),
        *theme.LAYER_COLOURS, *memory._COLOURS.values(), *memory._MORE_COLOURS, theme.ACCENT,
    }  # fmt: skip
    near = {
        (one, other) for one in others for other in taken if np.linalg.norm(oklab(one) - taken[other]) < 0.06
    }
    assert near == set()


def test_what_the_host_does_while_others_work_is_an_outline_and_the_unknown_is_hatched() -> None:
    lane = {"kind": "host", "name": "Host", "start_ns": [0, 60], "length_ns": [60, 40], "key": [0, 1],
            "label": [-1, -1], "count": [1, 1], "row": [-1, -1]}  # fmt: skip
    timeline: Any = {"from_ns": 0, "to_ns": 100, "keys": ["sync", "unknown"], "names": [], "lanes": [lane]}
    (row, _) = strip(timeline).children
    image, hatched, said, *_ = row.children[1].children
    drawn = base64.b64decode(image.src.partition(",")[2]).decode()
    quiet, unknown = (theme.LANE_COLOURS[key] for key in ("sync", "unknown"))
    assert f'fill="{quiet}" fill-opacity="{theme.QUIET_OPACITY}" stroke="{quiet}"' in drawn
    assert f'fill="{unknown}" d=' in drawn
    assert (hatched.className, hatched.style) == ("mp-strip-unknown", {"left": "60.000%", "width": "40.000%"})
    assert said.style["color"] == "var(--mp-ink)"


def test_what_is_merged_into_a_pixel_of_the_strip_has_its_shares_of_the_height() -> None:
    lane = {"kind": "device", "name": "GPU", "start_ns": [0, 90], "length_ns": [90, 10], "key": [0, 0],
            "label": [-1, -1], "count": [1, 5], "row": [-1, -1], "mixed": {"1": [(0, 0.6), (1, 0.4)]}}  # fmt: skip
    keys = ["off_matrix_unit", "matrix_unit"]
    timeline: Any = {"from_ns": 0, "to_ns": 100, "keys": keys, "names": [], "lanes": [lane]}
    (row, _) = strip(timeline).children
    image = row.children[1].children[0]
    drawn = base64.b64decode(image.src.partition(",")[2]).decode()
    off, unit = (theme.LANE_COLOURS[key] for key in keys)
    assert f'fill="{off}" d="M0.0 0h9000.0v1h-9000.0zM9000.0 0.4h1000.0v0.6h-1000.0z"' in drawn
    assert f'fill="{unit}" d="M9000.0 0h1000.0v0.4h-1000.0z"' in drawn
    assert image.alt == "The device in this step: matrix work off Tensor Cores 96.0 ns, Tensor Cores 4.00 ns"
    assert "Tensor Cores" in [item.children[1] for item in legend(timeline, "Tensor Cores").children]
    assert not any("Tensor" in item.children[1] for item in legend(timeline, "Matrix cores").children)


def test_plotly_writes_a_part_as_it_does_where_orjson_is_installed() -> None:
    """It asks what it writes for `to_plotly_json` then, which an unset entry answered with None."""
    layout = plain.part({"title": {"text": "a"}})
    assert layout.to_plotly_json() == {"title": {"text": "a"}}
    assert layout.title.to_plotly_json() == {"text": "a"}


def test_a_negative_row_has_one_name_wherever_it_stands() -> None:
    """`idle_stall` below 0 is what profiling added: its hover said "rare long steps"."""
    less, more = (Slice("idle_stall", ns, 0.0) for ns in (-240e3, 240e3))
    assert "added by profiling" in waterfall.account_hover(less)
    assert "rare long steps" not in waterfall.account_hover(less)
    assert "rare long steps" in waterfall.account_hover(more)
