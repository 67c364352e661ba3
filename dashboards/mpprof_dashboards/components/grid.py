"""One helper makes every table: AG Grid in the page's type and colours, with columns that stay readable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import dash_ag_grid as dag

# The Theming API; dark or light follows `document.body.dataset.agThemeMode`, which scheme.js keeps.
_THEME = {
    "function": (
        "themeQuartz.withParams({fontFamily: 'inherit', fontSize: 13, headerFontSize: 12, "
        "backgroundColor: 'transparent', headerBackgroundColor: 'transparent', "
        "wrapperBorder: false, wrapperBorderRadius: 0, rowVerticalPaddingScale: 0.9})"
    )
}
_ROW, _HEAD, _MAX_ROWS = 38, 104, 15


@dataclass(frozen=True, slots=True)
class Column:
    """A column. With `shown`, the cells show that other field (words with a unit), sorted by `field`."""

    field: str
    header: str
    flex: int = 1
    width: int = 110  # at least, in pixels
    number: bool = False
    shown: str = ""
    tooltip: str = ""  # field whose text appears on hover
    mono: bool = False
    sort: str | None = None  # "desc" on the one column that the table starts sorted by


def _definition(column: Column) -> dict[str, Any]:
    definition: dict[str, Any] = {
        "field": column.field,
        "headerName": column.header,
        "flex": column.flex,
        "minWidth": column.width,
        "filter": "agNumberColumnFilter" if column.number else "agTextColumnFilter",
        "tooltipField": column.tooltip or (column.field if column.mono else None),
        "type": "rightAligned" if column.number else None,
        "cellClass": "mp-mono" if column.mono else None,
        "sort": column.sort,
        "sortingOrder": ["desc", "asc", None] if column.number else ["asc", "desc", None],
    }
    if column.number:
        definition["headerTooltip"] = f"{column.header}: filtered in {_unit(column.field)}"
    else:
        definition["suppressFloatingFilterButton"] = True
    if column.shown:
        definition["valueFormatter"] = {"function": f"params.data.{column.shown}"}
    return {key: value for key, value in definition.items() if value is not None}


def _unit(field: str) -> str:
    """What a filter's number means: the unit in the field's name."""
    return (
        "nanoseconds"
        if "_ns" in field
        else "FLOP/s"
        if field == "flops_per_s"
        else "bytes"
        if "bytes" in field
        else "a ratio from 0 to 1"
        if ("ratio" in field)
        else "counts"
    )


def grid(id: str, columns: Sequence[Column], rows: list[dict[str, Any]]) -> dag.AgGrid:
    """`rows` under `columns`, sortable and filterable. Cells are text: no cell renders markup."""
    height = _HEAD + _ROW * min(max(len(rows), 2), _MAX_ROWS)
    return dag.AgGrid(
        id=id,
        columnDefs=[_definition(column) for column in columns],
        rowData=rows,
        defaultColDef={
            "sortable": True,
            "resizable": True,
            "floatingFilter": True,
            "suppressHeaderMenuButton": True,
            "suppressHeaderFilterButton": True,
        },
        dashGridOptions={
            "theme": _THEME,
            "rowHeight": _ROW,
            "tooltipShowDelay": 300,
            "enableCellTextSelection": True,
            "ensureDomOrder": True,
            "animateRows": False,
            "suppressCellFocus": True,
        },
        dangerously_allow_code=False,
        className="mp-grid",
        style={"height": f"{height}px", "width": "100%"},
    )
