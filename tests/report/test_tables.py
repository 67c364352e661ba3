"""Tables in a terminal and on the page: what their one definition makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from mpprof_dashboards import work

from mpprof.model import rows as defined
from mpprof.report import tables
from tests.dashboards.fake_source import FakeSource, kernel_rows

LAYER = {
    "device": "gpu", "layer": "dense", "class": "Dense", "compute_dtype": "float16", "calls": 2,
    "total_ns": 4_000_000, "ratio": 1.0, "forward_ns": 1_000_000, "backward_ns": 3_000_000, "other_ns": 0,
    "matmul_ns": 0, "tensor_core_ratio": None, "fused_ns": 0, "shared_ns": 0,
}  # fmt: skip


def head(row: dict[str, Any], width: int) -> list[str]:
    return tables.to_text([row], "layers", width=width).splitlines()[0].split()


def test_a_column_that_may_be_left_out_stays_where_there_is_room_for_it() -> None:
    assert "class" in head(LAYER, 100)
    long = LAYER | {"layer": "encoder/block_12/attention/query_projection_of_heads"}
    assert "class" not in head(long, 90)
    assert "class" in head(long, 200)


@pytest.mark.parametrize("kind", work.KINDS)
def test_each_column_of_the_page_has_its_value_in_the_rows(kind: str) -> None:
    source = FakeSource()
    table = work.table(source, "mixed", source.report("mixed", "fp32"), kind)
    assert table.rows
    for column in table.columns:
        assert any(row.get(column.key) not in (None, "") for row in table.rows), (
            f"the page lists {column.key}, and dashboards/mpprof_dashboards/work.py gives it no value"
        )


def test_no_number_is_lost_where_the_page_puts_the_rows_of_a_kernel_together() -> None:
    """Each number of the rows differs."""
    per, (first, *_) = work.Per(8), kernel_rows()
    numbers = [each.key for each in defined.columns("kernels") if each.number]
    rows: Any = [first | {"op": f"op {n}"} | dict.fromkeys(numbers, n * 10**6) for n in (1, 3)]
    (row,) = work.grouped(rows, [], per)
    lost = [key for key in numbers if row[key] is None]
    assert not lost, f"say at their columns in mpprof/model/rows.py how they are `grouped`: {lost}"
    assert row["total_ns"] == 4 * 10**6 / 8
    assert row["flops_per_s"] == 2.5 * 10**6  # (1 * 1 + 3 * 3) / (1 + 3): each by its time
    rows[0]["flops_per_s"] = None
    assert work.grouped(rows, [], per)[0]["flops_per_s"] is None


@pytest.mark.parametrize("kind", defined.TABLES)
def test_a_terminal_shows_columns_of_the_table_alone(kind: str) -> None:
    assert {each.key for each in defined.terminal(kind)} <= set(defined.keys(kind))
    assert defined.terminal(kind)[-1].unit == "text" or kind in ("ls", "runs")
