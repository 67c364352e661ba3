"""The rows of a survey as a table for a terminal, and as a Parquet file."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin, get_type_hints

from mpprof.errors import MpprofError
from mpprof.model.columns import Column
from mpprof.model.rows import SurveyRow, terminal
from mpprof.report import tables, words
from mpprof.report.runs.listing import card, known, short_policy, shortened
from mpprof.report.terminal import wrapped

NAME_LEAST = 32
MOST_ANSWERS = 5


def to_text(
    rows: Sequence[Mapping[str, Any]], *, width: int | None, limit: int, ascii_only: bool = False
) -> str:
    """Return the first `limit` rows that could be analysed, the sum over all, and which runs or traces could
    not be read, and why. A `width` of None leaves lines uncut, for a pipe."""
    good = [row for row in rows if row["id"] is not None]
    lines = _table(good[:limit], width) if good[:limit] else []
    if len(good) > limit:
        lines += ["", f"{limit:,} of {len(good):,} rows; --limit 0 shows all"]
    lines += ["", *_whole(good)]
    for what, some in (
        ("analysed without a trace that could be read", [row for row in good if row["problem"]]),
        ("could not be analysed", [row for row in rows if row["id"] is None]),
    ):
        lines += _problems(what, some, limit)
    lines += _answers(good[:MOST_ANSWERS], width)
    text = "\n".join(line.rstrip() for line in lines).lstrip("\n") + "\n"
    return words.ascii_only(text) if ascii_only else text


def _answers(rows: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    """Return the answers of the first rows: figure, sentence, and what to do first."""
    lines = []
    for row in (row for row in rows if row.get("sentence")):
        head = " · ".join(filter(None, (row["figure"], row["label"])))
        first = f"First: {row['do']}" if row["do"] else ""
        said = " ".join(filter(None, (f"{head}." if head else "", row["sentence"], first)))
        text = f"{words.plain(row['run'])}: {words.plain(said)}"
        lines += wrapped(text, width, hang=2) if width is not None else [text]
    return ["", *lines] if lines else []


def _problems(what: str, rows: Sequence[Mapping[str, Any]], limit: int) -> list[str]:
    """Return a heading and the first `limit` reasons; nothing for no rows."""
    if not rows:
        return []
    said = [f"  {words.plain(row['run'])}: {words.plain(row['problem'])}" for row in rows[:limit]]
    more = [f"  and {len(rows) - limit:,} more"] if len(rows) > limit else []
    return [f"{words.plural(len(rows), 'run')} {what}:", *said, *more]


def _cells(row: Mapping[str, Any]) -> dict[str, str]:
    """Return the cells that say more or less than their value."""
    low, high = row["attainable_low"], row["attainable_high"]
    could = words.speedups(low, high).replace("x to ", "-") if low is not None else "-"
    got = words.speedup(row["speedup"]) if row["speedup"] is not None else "-"
    if row.get("difference") == "not known":
        got = words.NOT_KNOWN
    lost = row["lost_gpu_hours_per_day"]
    return {
        "lost_gpu_hours_per_day": "-" if lost is None else f"{'<' if row['one_step'] else ''}{lost:.1f}",
        "policy": short_policy(known(row["policy"])),
        "card": card(row["card"]).partition(" (")[0],
        "step_ns": "-" if row["step_ns"] is None else words.duration(row["step_ns"]),
        "speedup": "-"
        if (got, could) == ("-", "-")
        else f"{got} of {'~' if row['estimated'] else ''}{could}",
    }


def _table(rows: Sequence[Mapping[str, Any]], width: int | None) -> list[str]:
    """Return a head and a line for each row; the least needed columns are dropped until names can be read.
    Without a `width` nothing is dropped or cut."""
    columns: Sequence[Column] = terminal("survey")
    titles, *cells = lines = tables.in_words(rows, columns, _cells)
    columns, widths = tables.fitted(columns, lines, width or sys.maxsize, "run", least=NAME_LEAST)
    names = shortened([cell["run"] for cell in cells], widths["run"])
    named = [{**cell, "run": name} for cell, name in zip(cells, names, strict=True)]
    widths["run"] = max(widths["run"], *map(len, names))
    return tables.in_columns(columns, [titles, *named], widths)


def _whole(good: Sequence[Mapping[str, Any]]) -> list[str]:
    known = [row for row in good if row["lost_gpu_hours_per_day"] is not None]
    lost, possible = (
        [lost for row in known if row["one_step"] is one and (lost := row["lost_gpu_hours_per_day"])]
        for one in (False, True)
    )
    said = [f"{words.plural(len(good), 'run')} analysed"]
    if lost:
        each = words.plural(len(lost), "run")
        said.append(f"{sum(lost):,.1f} GPU-hours lost by {each} in a day of training, as estimated")
    if possible:
        said.append(
            f"at most {sum(possible):,.1f} by {words.plural(len(possible), 'run')} of one profiled step"
        )
    lines = wrapped("; ".join(said), 80)
    if any(row["one_step"] for row in good):
        lines.append("<: at most, from a single profiled step")
    if any(row["estimated"] for row in good):
        lines.append("~: estimated, without a float32 run to measure against")
    return lines


def parquet_library() -> str:
    """Return the name of the library that writes Parquet files. Raises MpprofError without one."""
    for library, used in (("pyarrow", "pyarrow.parquet"), ("polars", "polars")):
        try:
            import_module(library)
            import_module(used)
        except ImportError:
            continue
        return library
    raise MpprofError(
        "Parquet needs pyarrow or Polars, and neither is installed",
        next="pip install 'mpprof[tables]', or take --format csv",
    )


def write_parquet(columns: Mapping[str, Sequence[Any]], path: Path) -> None:
    """Write the columns of a survey as a Parquet file, by pyarrow or else Polars. A column has one type,
    whatever is known of these runs, so that files can be put together. Raises MpprofError without either."""
    kinds = column_types()
    library = parquet_library()
    if library == "polars":
        import_module(library).DataFrame(dict(columns), schema=kinds, strict=False).write_parquet(path)
        return
    arrow, parquet = import_module(library), import_module("pyarrow.parquet")
    schema = arrow.schema({name: arrow.type_for_alias(_ARROW[kind]) for name, kind in kinds.items()})
    parquet.write_table(arrow.table(dict(columns), schema=schema), path)


_ARROW = {str: "string", int: "int64", float: "float64", bool: "bool"}


def column_types() -> dict[str, type]:
    """Return the type of each column of a survey, where its value is known."""
    return {name: _type(hint) for name, hint in get_type_hints(SurveyRow).items()}


def _type(hint: Any) -> type:
    if get_origin(hint) is Literal:
        return type(get_args(hint)[0])
    kinds = [kind for kind in get_args(hint) if kind is not NoneType]
    return _type(kinds[0]) if kinds else hint
