"""Tables in a terminal and on the page: what their one definition makes of them."""

from __future__ import annotations

from typing import Any

import pytest
from mpprof_dashboards import work

from mpprof.model import rows as defined
from mpprof.report import tables
from tests.dashboards.fake_source import FakeSource

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
        assert any(row.get(column.key) not in (None, "") for row in table.rows) or column.key in {
            key for row in table.rows for key in row
        }


@pytest.mark.parametrize("kind", defined.TABLES)
def test_a_terminal_shows_columns_of_the_table_alone(kind: str) -> None:
    assert {each.key for each in defined.terminal(kind)} <= set(defined.keys(kind))
    assert defined.terminal(kind)[-1].unit == "text" or kind in ("ls", "runs")
