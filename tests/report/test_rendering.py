"""Text and markdown: golden files of hand-made reports, and what must hold for all of them.

`MPPROF_UPDATE_GOLDEN=1 pytest tests/report` writes the golden files anew; look at the difference.
"""

import os
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpprof.model.finding import Diagnosis
from mpprof.model.steps import WorkerSummary
from mpprof.report import json as documents
from mpprof.report import words
from mpprof.report.memory import account
from tests.builders.read_back import brief, brief_comparison, content, markdown, reading, text
from tests.report import hand_made

GOLDEN = Path(__file__).parents[1] / "golden"
DIAGNOSES = {"known": hand_made.diagnosis, "bare": hand_made.bare, "cpu": hand_made.cpu}
ANSI = re.compile(r"\x1b\[[0-9;]*m")


def check(name: str, produced: str) -> None:
    path = GOLDEN / name
    if os.environ.get("MPPROF_UPDATE_GOLDEN"):
        path.write_text(produced, encoding="utf-8")
    assert produced == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", DIAGNOSES)
def test_golden_report(name: str) -> None:
    document = documents.document(DIAGNOSES[name]())
    check(f"brief-{name}.txt", brief.render(document, path="logs/bert fp16", again="mpprof report logs -v"))
    check(f"report-{name}.txt", text.render(document, width=80, path="logs/bert fp16"))
    check(f"report-{name}.md", markdown.render(document))


def test_golden_comparison() -> None:
    document = documents.compare_document(hand_made.comparison())
    check("brief-compare.txt", brief_comparison.render(document, again="mpprof compare a b -v"))
    check("compare.txt", text.render_comparison(document, width=80))
    check("compare.md", markdown.render_comparison(document))


@pytest.mark.parametrize("width", [68, 80, 100, 200])
@pytest.mark.parametrize("make", DIAGNOSES.values())
def test_no_line_is_wider_than_asked(make: Callable[[], Diagnosis], width: int) -> None:
    lines = text.render(documents.document(make()), width=width).splitlines()
    # A suggested command is never broken: it is there to be copied.
    assert max(len(line) for line in lines if not line.startswith(("  mpprof ", "  MPProf"))) <= width
    comparison = documents.compare_document(hand_made.comparison())
    assert max(map(len, text.render_comparison(comparison, width=width).splitlines())) <= width


def test_color_adds_nothing_but_color() -> None:
    document = documents.document(hand_made.diagnosis())
    painted = text.render(document, color=True)
    assert "\x1b[" in painted
    assert ANSI.sub("", painted) == text.render(document)


def test_the_ascii_fallback_is_ascii_and_keeps_the_columns() -> None:
    document = documents.document(hand_made.diagnosis())
    plain, rich = (text.render(document, width=80, ascii_only=flag) for flag in (True, False))
    assert plain.isascii()
    row = next(line for line in plain.splitlines() if line.startswith("  idle_input"))
    other = next(line for line in rich.splitlines() if line.startswith("  idle_input"))
    assert len(row) == len(other)
    assert "#" in row
    compared = brief_comparison.render(documents.compare_document(hand_made.comparison()), ascii_only=True)
    assert compared.isascii()
    assert " -> " in compared.partition("\n")[0]
    assert " > " not in compared


def test_a_name_cannot_steer_the_terminal_or_the_page() -> None:
    document = documents.document(hand_made.diagnosis())
    comparison = documents.compare_document(hand_made.comparison())
    for rendered in (brief.render(document), brief_comparison.render(comparison)):
        assert "\x1b" not in rendered
    for rendered in (text.render(document), text.render_comparison(comparison)):
        assert "\x1b" not in rendered
        assert r"\x1b[31mred" in rendered
    for rendered in (markdown.render(document), markdown.render_comparison(comparison)):
        outside_code = re.sub(r"`[^`]*`", "", rendered.replace(r"\`", ""))
        assert "<a" not in outside_code
        assert "@you" not in outside_code
        assert "#1" not in outside_code


def test_the_verdict_comes_before_every_number() -> None:
    document = documents.document(hand_made.diagnosis())
    rendered = text.render(document)
    assert rendered.index(document["answer"]["sentence"]) < rendered.index("matmul")
    assert rendered.index("matmul") < rendered.index("MP301")


def test_nothing_unknown_is_left_out_or_shown_as_zero() -> None:
    document = documents.document(hand_made.diagnosis())
    document["tensor_core"] |= {"ratio": None, "reason": "no matrix work ran in the window"}
    for render in (text.render, markdown.render):
        rendered = render(document)
        assert "no matrix work ran in the window" in rendered
        assert "unknown: 0.17 %" in rendered
        assert "launches too slow for the device" in rendered  # MP302 could not be judged
    bare = text.render(documents.document(hand_made.bare()))
    assert " 0 ns" not in bare
    assert "0 %" not in bare


def in_float32(transforms_ns: float = 0.0) -> Any:
    """The hand-made run as one that computes in float32, with 6 ms of products and 2 ms that multiply nothing."""
    document = documents.document(hand_made.diagnosis())
    assert document["time"] is not None
    document["run"]["computes_in"] = {"kind": "float32", "dtype": "float32", "by": "kernels", "reason": ""}  # type: ignore[typeddict-item]
    (matmul,) = [part for part in document["time"]["slices"] if part["class"] == "matmul"]
    matmul["by"] = [
        {"placement": "cuda_core", "precision": "fp32", "ns_per_step": 6e6, "transforms_ns_per_step": 0.0},
        {
            "placement": "not_matmul",
            "precision": "fp32",
            "ns_per_step": 2e6,
            "transforms_ns_per_step": transforms_ns,
        },
    ]
    document["tensor_core"] |= {"matmul_ns_per_step": 8e6, "fallback_ns_per_step": 6e6}  # type: ignore[operator]
    return document


def test_a_float32_run_fell_back_from_nothing() -> None:
    said = content.tensor_core(in_float32(2e6))
    assert "fallback" not in said
    assert "6.00 ms in float32 on CUDA cores; 2.00 ms in transforms of convolutions" in said
    assert "2.00 ms in helpers of products" in content.tensor_core(in_float32())
    assert "fallback" in content.tensor_core(documents.document(hand_made.diagnosis()))


def test_of_one_step_the_time_after_it_lies_between_no_two() -> None:
    time = documents.document(hand_made.diagnosis())["time"]
    assert time is not None
    assert content.outside_the_step(time) == "Between steps"
    one: Any = {**time, "window_steps": 1, "idle_between_steps_ns": None}
    assert content.outside_the_step(one) == "Afterwards"


def test_the_steps_time_is_told_from_that_of_the_hosts_call() -> None:
    time = documents.document(hand_made.diagnosis())["time"]
    assert time is not None
    one: Any = {
        **time, "basis": "window", "wall_ns": None, "window_steps": 1, "idle_between_steps_ns": None,
        "step_ns": 8.05e6, "function_ns": 8.05e6, "call_ns": 5.41e6,
    }  # fmt: skip
    said = content.time_heading(one)
    assert "A step takes 8.05 ms from the call of the training function to the end of its last kernel" in said
    assert "on the host the call takes 5.41 ms (in the profiler window" in said
    waiting = content.time_heading({**one, "waited_ns": 2.53e6})
    assert "the call takes 5.41 ms, after which the host waits 2.53 ms for the device" in waiting
    assert "waits" not in content.time_heading({**one, "waited_ns": 0.01e6})
    assert "A step takes 8.05 ms, the call of the training function" in content.time_heading(
        {**one, "call_ns": 8.05e6}
    )
    by_profiler = content.time_heading({**one, "call_ns": 8.05e6, "step_source": "torch"})
    assert "A step takes 8.05 ms (in the profiler window" in by_profiler


def test_the_allocators_own_peak_stands_beside_the_windows() -> None:
    document = documents.document(hand_made.diagnosis())
    assert document["memory"] is not None
    document["memory"] |= {  # type: ignore[operator]
        "allocator": "GPU_0_bfc",
        "allocators": [
            {
                "name": "GPU_0_bfc", "where": "device", "peak_bytes": 50 << 20,
                "lifetime_peak_bytes": 100 << 20, "capacity_bytes": 10_000 << 20, "events": 9,
            }
        ],
    }  # fmt: skip
    said = content.memory(document)[0]
    assert "in the window, 100 MiB since the process began; 1.0 % of the 9.77 GiB" in said


def test_causes_of_memory_are_held_against_the_gap_that_they_split() -> None:
    document = documents.document(hand_made.diagnosis())
    mib = 1 << 20
    document["memory"] |= {  # type: ignore[operator]
        "saved_bytes": -3 * mib, "expected_saving_bytes": 8 * mib, "reachable_bytes": 11 * mib,
        "gap": [{"code": "MP605", "bytes": 23 * mib}, {"code": "MP604", "bytes": 8 * mib}],
        "unexplained_bytes": -20 * mib,
    }  # fmt: skip
    said = " ".join(content.memory(document))
    assert "3.00 MiB more than the baseline, 11.0 MiB could still be saved" in said
    assert (
        "in the way of these 11.0 MiB: MP605 23.0 MiB, MP604 8.00 MiB; "
        "together 20.0 MiB more than that: they overlap, or other memory shrank by more than was expected"
    ) in said
    lines = reading(account).saving(document)
    assert any("the causes together are more than the gap: they overlap, or other" in line for line in lines)
    assert any(line.endswith("MP605  (mpprof explain MP605)") for line in lines)
    document["memory"]["shrank"] = [{"kind": "rounding", "bytes": 19 * mib}]  # type: ignore[index]
    assert any(
        line.endswith("more than the gap: other memory shrank, too (rounding by 19.0 MiB)")
        for line in reading(account).saving(document)
    )


@pytest.mark.parametrize(
    ("layer", "size", "named"), [("unknown", 9, True), ("dense", 9, False), ("unknown", 3, False)]
)
def test_what_may_be_most_of_an_unexplained_gap_is_named(layer: str, size: int, named: bool) -> None:
    """Recorded on an H200: of 1.09 GiB 1.03 GiB were the logits in float32 for the loss."""
    document = documents.document(hand_made.diagnosis())
    mib = 1 << 20
    tensor = {
        "kind": "activations kept for backward", "op": "model/float_Cast", "layer": layer, "dtype": "unknown",
        "shape": "unknown", "count": 1, "bytes": size * mib, "born_ns": 0, "life_ns": 5,
    }  # fmt: skip
    document["memory"] |= {  # type: ignore[operator]
        "reachable_bytes": 11 * mib, "gap": [{"code": "MP605", "bytes": mib}], "unexplained_bytes": 10 * mib,
        "tensors": [tensor],
    }  # fmt: skip
    said = next(line for line in content.memory(document) if "unexplained" in line)
    assert (
        said.endswith("10.0 MiB unexplained: model/float_Cast holds 9.00 MiB, outside of all layers") is named
    )


def test_more_saved_than_expected_leaves_no_gap_to_split() -> None:
    document = documents.document(hand_made.diagnosis())
    mib = 1 << 20
    document["memory"] |= {  # type: ignore[operator]
        "saved_bytes": 9 * mib, "expected_saving_bytes": 8 * mib, "reachable_bytes": 0,
        "gap": [{"code": "MP604", "bytes": 8 * mib}], "unexplained_bytes": -9 * mib,
    }  # fmt: skip
    said = " ".join(content.memory(document))
    assert "9.00 MiB saved against the baseline the peak could still fall by: MP604 8.00 MiB" in said
    assert reading(account).saving(document)[0] == (
        "Saved against the baseline 9.00 MiB, more than the 8.00 MiB expected of 16 bits"
    )


def test_nothing_is_launched_on_a_cpu() -> None:
    time = documents.document(hand_made.diagnosis())["time"]
    waits: Any = {
        "class": "idle_launch", "ns_per_step": 6e6, "ratio": 0.15, "hidden_ns_per_step": 0.0, "by": [],
        "causes": [
            {"cause": "between launches", "ns_per_step": 4e6}, {"cause": "calling the function", "ns_per_step": 2e6},
        ],
    }  # fmt: skip
    on_cpu: Any = {**time, "basis": "host", "slices": [*time["slices"], waits]}
    rows = {row.label: row.text for row in content.time_rows(on_cpu)}
    assert rows["idle_launch"] == "no op runs"
    assert "between ops" in rows
    assert "between launches" not in rows


def test_an_estimate_is_called_one() -> None:
    rendered = text.render(documents.document(hand_made.cpu()))
    assert "estimated, not measured: 0.90x to 1.20x" in rendered
    assert "observed 1" not in rendered


def test_another_vendors_matrix_units_go_by_their_own_name() -> None:
    document = documents.document(hand_made.diagnosis())
    document["time"]["slices"][0]["by"][0]["placement"] = "matrix_core"
    document["tensor_core"]["unit"] = "matrix_core"
    document["answer"]["floor"] = ""  # a sentence, made for the hand-made run's card
    rendered = text.render(document)
    assert "Matrix cores" in rendered
    assert "Tensor Cores" not in rendered


@pytest.mark.parametrize(
    ("transforms", "label", "said"),
    [
        (0.0, "helpers fp32", ""),
        (5.0, "transforms fp32", "50.0 % of it for convolutions"),
        (10.0, "transforms fp32", "of convolutions"),
    ],
)
def test_helpers_of_matrix_work_are_named_where_they_transform_convolutions(
    transforms: float, label: str, said: str
) -> None:
    document = documents.document(hand_made.diagnosis())
    assert document["time"] is not None
    (matmul,) = [part for part in document["time"]["slices"] if part["class"] == "matmul"]
    matmul["by"] = [
        {
            "placement": "not_matmul",
            "precision": "fp32",
            "ns_per_step": 10.0,
            "transforms_ns_per_step": transforms,
        }
    ]
    (row,) = [row for row in content.time_rows(document["time"]) if row.label == label]
    assert row.text == said


def test_what_is_hardly_anything_has_no_row_and_is_in_the_sum() -> None:
    """A reader's count: "idle_sync 0.000 ms" of 3.61 ms."""
    document = documents.document(hand_made.diagnosis())
    assert document["time"] is not None
    first, *_ = document["time"]["slices"]
    two = [
        {**first, "class": name, "ns_per_step": ns} for name, ns in (("matmul", 3e6), ("idle_sync", 300.0))
    ]
    time: Any = {**document["time"], "slices": two, "step_ns": 3_000_300.0}
    assert [row.label for row in content.time_rows(time) if not row.part] == ["matmul"]
    assert content.time_whole(time) == 3_000_300.0


def test_small_slices_are_folded_and_the_sum_still_holds() -> None:
    rendered = text.render(documents.document(hand_made.diagnosis()))
    assert re.search(r"3 smaller .*cast, reduce, layout", rendered)
    total = next(line for line in rendered.splitlines() if line.strip().startswith("sum"))
    assert "41.23 ms" in total
    assert "100 %" in total


@pytest.mark.parametrize(
    ("value", "expected"),
    [(None, "not known"), (32768.0, "32,768 (2^15)"), (0.25, "2^-2"), (3.0, "3"), ("Infinity", "infinite"),
     (2.0**126, "2^126"), (0.0, "0"), ("NaN", "not a number")],
)  # fmt: skip
def test_loss_scales(value: object, expected: str) -> None:
    assert words.scale(value) == expected


@pytest.mark.parametrize(
    ("value", "unit", "expected"),
    [("Infinity", "ns", "infinite"), ("NaN", "ratio", "not a number"), (True, "text", "yes"),
     (None, "bytes", "not known"), ("a\x07b", "text", "a\\x07b"), (0.5, "ratio", "50.0 %")],
)  # fmt: skip
def test_quantities_of_json(value: object, unit: str, expected: str) -> None:
    assert words.quantity(value, unit) == expected


@pytest.mark.parametrize("width", range(1, 30))
def test_a_name_is_shortened_to_what_was_asked(width: int) -> None:
    name = "volta_h884gemm_256x64_ldg8_nn"
    assert len(words.shorten(name, width)) == min(width, len(name))


def test_bars_are_never_longer_than_asked() -> None:
    assert len(words.bar(1.0, 20)) == 20
    assert len(words.bar(7.0, 20)) == 20
    assert words.bar(0.0, 20) == ""
    assert words.bar(-1.0, 20) == ""


def test_several_workers_are_told_with_the_slowest() -> None:
    given = hand_made.diagnosis()
    assert given.steps is not None

    def told(*means: float | None) -> str:
        workers = tuple(WorkerSummary(k, 40, mean, mean, mean) for k, mean in enumerate(means))
        document = documents.document(replace(given, steps=replace(given.steps, workers=workers)))
        return content.steps(document)

    assert told(10e6, 14e6).endswith("2 workers, steps of 10.0 ms to 14.0 ms (the slowest is worker 1)")
    assert told(10e6, 10e6, None).endswith("2 workers, steps of 10.0 ms each")
    assert "worker" not in told()
    assert "worker" not in told(10e6)
