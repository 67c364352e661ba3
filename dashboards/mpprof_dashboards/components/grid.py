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
        "backgroundColor: 'var(--mp-surface)', headerBackgroundColor: 'var(--mp-surface)', "
        "foregroundColor: 'var(--mp-ink)', headerTextColor: 'var(--mp-soft)', "
        "wrapperBorder: false, wrapperBorderRadius: 0, rowVerticalPaddingScale: 0.9})"
    )
}
_ROW, _HEAD, _MAX_ROWS = 28, 92, 20


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
        "filter": "agTextColumnFilter",
        "tooltipField": column.tooltip or (column.field if column.mono else None),
        "type": "rightAligned" if column.number else None,
        "cellClass": "mp-mono" if column.mono else None,
        "sort": column.sort,
        "sortingOrder": ["desc", "asc", None] if column.number else ["asc", "desc", None],
        "suppressFloatingFilterButton": True,
    }
    if column.number:
        unit = _unit(column.field)
        definition["headerTooltip"] = f"{column.header}: filter by what is shown, or {_EXAMPLE[unit]}"
        matcher = f"matchQuantity(params, '{column.field}', '{column.shown}', '{unit}')"
        definition["filterParams"] = {"filterOptions": ["contains"], "textMatcher": {"function": matcher}}
    if column.shown:
        definition["valueFormatter"] = {"function": f"params.data.{column.shown}"}
    return {key: value for key, value in definition.items() if value is not None}


_EXAMPLE = {"ns": ">= 1 ms", "bytes": ">= 1 MiB", "%": ">= 5 %", "": ">= 1000"}
"""How each unit is filtered, by what `assets/filters.js` understands."""


def _unit(field: str) -> str:
    """The unit of a filter's number where none is given: that of the field's values, as they are shown."""
    if "_ns" in field:
        return "ns"
    if "bytes" in field and "per_s" not in field:
        return "bytes"
    return "%" if "ratio" in field else ""


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
