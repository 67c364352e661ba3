"""What a later run takes less of what a cause had claimed: divided among causes, by layer, without the profiler."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.analysis.comparison.obtained import Side, obtained, scatter_ns
from mpprof.model.account import Cell
from mpprof.model.finding import ClaimedPart
from tests.analysis.pieces import account_of, layer, model, run_of

RUN = run_of("run", "float16", model("head"))


def side(*cells: Cell, run: object = RUN, undistorted: float = 1.0) -> Side:
    return Side(run, account_of(cells), undistorted)  # type: ignore[arg-type]


def matmul(name: str, ns: float) -> Cell:
    return Cell("matmul", ns, ns, 1.0, kernel="gemm", layer=name, phase="forward", family="gemm")


def claim(category: str, ns: float, layer: str | None = None, phase: str = "other") -> ClaimedPart:
    return ClaimedPart(category, phase, layer, None, ns)  # type: ignore[arg-type]


def test_two_causes_of_one_wait_share_what_it_gave_as_they_claimed_it() -> None:
    before, after = side(Cell("idle_launch", 8e6)), side(Cell("idle_launch", 0.0))
    found = obtained(
        {"MP302": [claim("idle_launch", 3e6)], "MP307": [claim("idle_launch", 1e6)]}, before, after
    )
    assert (found["MP302"].ns, found["MP307"].ns) == (pytest.approx(6e6), pytest.approx(2e6))


def test_only_the_layer_that_was_claimed_counts_by_whatever_name_it_goes() -> None:
    built_again = run_of("after", "float16", model("dense_2", "dense_3"))
    before = side(
        matmul("dense", 5e6), matmul("dense_1", 9e6), run=run_of("a", "float16", model("dense", "dense_1"))
    )
    after = side(matmul("dense_2", 2e6), matmul("dense_3", 1e6), run=built_again)
    found = obtained({"MP104": [claim("matmul", 3e6, "dense", "forward")]}, before, after)
    assert found["MP104"].ns == pytest.approx(3e6)


def test_a_layer_that_the_later_run_has_not_is_not_judged() -> None:
    other = run_of("after", "float16", model(layer("trunk")))
    before, after = side(matmul("head", 5e6)), side(matmul("trunk", 1e6), run=other)
    found = obtained({"MP104": [claim("matmul", 3e6, "head", "forward")]}, before, after)
    assert found["MP104"].ns is None
    assert "head has no counterpart" in (found["MP104"].reason or "")


def test_a_layer_that_the_remedy_padded_is_judged() -> None:
    runs = [
        run_of("run", "float16", model(layer(f"dense_{size}", "Dense", parameters=size)))
        for size in (337, 344)
    ]
    before, after = side(matmul("dense_337", 5e6), run=runs[0]), side(matmul("dense_344", 2e6), run=runs[1])
    found = obtained({"MP402": [claim("matmul", 2e6, "dense_337", "forward")]}, before, after)
    assert found["MP402"].ns == pytest.approx(3e6)


@pytest.mark.parametrize(
    ("size", "judged"), [(1_000, True), (1_090, True), (910, True), (1_200, False), (250, False)]
)
def test_a_layer_of_the_users_name_is_not_judged_where_its_size_is_far_another(
    size: int, judged: bool
) -> None:
    """A vocabulary that was cut to a quarter gave more than its remedy did."""
    runs = [run_of("run", "float16", model(layer("words", "Dense", parameters=of))) for of in (1_000, size)]
    before, after = side(matmul("words", 8e6), run=runs[0]), side(matmul("words", 2e6), run=runs[1])
    found = obtained({"MP402": [claim("matmul", 2e6, "words", "forward")]}, before, after)["MP402"]
    assert found.ns == (pytest.approx(6e6) if judged else None)
    assert judged or f"1,000 parameters, and {size:,} in the other run" in (found.reason or "")


def test_what_a_layer_took_is_sought_among_the_work_of_no_known_layer() -> None:
    unknown = Cell("matmul", 1e6, 1e6, 1.0, kernel="gemm")
    claimed = {"MP402": [claim("matmul", 2e6, "head", "forward")]}
    before, after = side(matmul("head", 5e6), unknown), side(replace(unknown, ns_per_step=4e6))
    found = obtained(claimed, before, after)["MP402"]
    assert found.ns == pytest.approx(2e6)  # 5 less the 3 that others grew by
    assert found.corrections_ns == pytest.approx(3e6)
    seen = side(matmul("head", 1e6), replace(unknown, ns_per_step=4e6))
    assert obtained(claimed, before, seen)["MP402"].ns == pytest.approx(4e6)
    more = side(replace(unknown, ns_per_step=9e6))
    assert obtained(claimed, before, more)["MP402"].ns == pytest.approx(0.0)


def test_parts_share_what_the_work_of_no_known_layer_grew_by() -> None:
    runs = {"run": run_of("run", "float16", model("head", "trunk"))}
    unknown = Cell("matmul", 4e6, 4e6, 1.0, kernel="gemm")
    before, after = side(matmul("head", 6e6), matmul("trunk", 2e6), **runs), side(unknown, **runs)
    head, trunk = claim("matmul", 2e6, "head", "forward"), claim("matmul", 1e6, "trunk", "forward")
    found = obtained({"MP402": [head], "MP401": [trunk]}, before, after)
    assert (found["MP402"].ns, found["MP401"].ns) == (pytest.approx(3e6), pytest.approx(1e6))
    alone = obtained({"MP402": [head]}, before, after)["MP402"]
    assert alone.ns == pytest.approx(3e6)  # nobody claimed the trunk: its work is there all the same
    seen = side(matmul("trunk", 2e6), unknown, **runs)
    assert obtained({"MP402": [head]}, before, seen)["MP402"].ns == pytest.approx(2e6)


def test_the_growth_of_claimed_work_of_no_layer_counts_once() -> None:
    before = side(matmul("head", 5e6), Cell("matmul", 1e6, 1e6, 1.0, kernel="gemm"))
    after = side(Cell("matmul", 4e6, 4e6, 1.0, kernel="gemm"))
    parts = [claim("matmul", 2e6, "head", "forward"), claim("matmul", 1e6)]
    assert obtained({"MP402": parts}, before, after)["MP402"].ns == pytest.approx(2e6)  # 6 less 4


def test_a_layer_without_counterpart_is_not_sought_among_the_work_of_no_layer() -> None:
    runs = run_of("run", "float16", model("head", "trunk")), run_of("after", "float16", model("head"))
    before = side(matmul("head", 4e6), matmul("trunk", 4e6), run=runs[0])
    after = side(Cell("matmul", 4e6, 4e6, 1.0, kernel="gemm"), run=runs[1])
    found = obtained({"MP402": [claim("matmul", 2e6, "head", "forward")]}, before, after)
    assert found["MP402"].ns == pytest.approx(0.0)


def test_what_the_profiler_adds_is_taken_off_the_wait_and_widens_the_interval() -> None:
    before = side(Cell("idle_launch", 8e6), Cell("profiling", -2e6), matmul("head", 4e6))
    after = side(Cell("idle_launch", 1e6), matmul("head", 4e6))
    found = obtained({"MP302": [claim("idle_launch", 7e6)]}, before, after)["MP302"]
    assert found.ns == pytest.approx(5e6)
    assert found.corrections_ns == pytest.approx(2e6)


def test_the_parts_of_a_distorted_window_are_taken_as_shares() -> None:
    before = side(Cell("idle_launch", 8e6), Cell("profiling", -4e6), undistorted=0.5)
    found = obtained({"MP302": [claim("idle_launch", 8e6)]}, before, side(Cell("idle_launch", 1e6)))["MP302"]
    assert found.ns == pytest.approx(3e6)


def test_a_part_that_grew_gave_less_than_nothing() -> None:
    found = obtained({"MP503": [claim("cast", 1e6)]}, side(Cell("cast", 1e6)), side(Cell("cast", 3e6)))
    assert found["MP503"].ns == pytest.approx(-2e6)


def test_a_single_profiled_step_has_no_scatter() -> None:
    one, many = side(Cell("cast", 1e6)), side(Cell("cast", 1e6))
    assert scatter_ns(one, many) == 0.0
    single = replace(one, account=replace(one.account, lengths_ns=(1e6,)))
    assert scatter_ns(single, many) is None
