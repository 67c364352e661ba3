"""The runs of a directory as a table for a terminal."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from mpprof.model.device import short_name
from mpprof.model.rows import terminal
from mpprof.report import tables, words

NAME_MOST, NAME_LEAST = 28, 16
CARD_LEAST, CARD_LEAST_OF_ALL = 10, 6
"""Of a name and of a card in a narrow table: a name of NAME_LEAST comes before a card of CARD_LEAST."""
_POLICIES = {"mixed_float16": "mixed f16", "mixed_bfloat16": "mixed bf16"}
_AGES = ((86_400 * 2, 86_400, "d"), (3600 * 2, 3600, "h"), (60 * 2, 60, "min"))
"""From how many seconds on, and in which unit, an age is told."""


def to_text(rows: Sequence[Mapping[str, Any]], *, now_unix_ns: int, width: int, ascii_only: bool) -> str:
    """Return a line for each run, of at most `width` columns unless names could not be told apart then (the
    middle of long names and the end of long card names are left out), and below them, uncut, how far those
    have come that are running, and why runs cannot be read."""
    columns = terminal("ls")
    titles, *cells = tables.in_words(rows, columns, partial(_cells, now_unix_ns=now_unix_ns))
    widths = _widths([titles, *cells])
    if _total(widths) > width:
        cells = [{**cell, "policy": short_policy(cell["policy"])} for cell in cells]
        widths = _widths([titles, *cells])
    free = width - _total(widths) + widths["run"] + widths["card"]
    of_card = max(CARD_LEAST, free - min(widths["run"], NAME_MOST))
    of_card = min(widths["card"], of_card, max(CARD_LEAST_OF_ALL, free - NAME_LEAST))
    widths |= {"card": of_card, "run": min(widths["run"], free - of_card)}
    names = shortened([cell["run"] for cell in cells], widths["run"])
    widths["run"] = max(widths["run"], *map(len, names))
    cells = [
        {**cell, "run": name, "card": _cut(cell["card"], of_card)}
        for cell, name in zip(cells, names, strict=True)
    ]
    lines = tables.in_columns(columns, [titles, *cells], widths)
    below = [f"{words.plain(row['run'])}: running, {row['progress']}" for row in rows if row["progress"]]
    below += [f"{words.plain(row['run'])}: {words.plain(row['problem'])}" for row in rows if row["problem"]]
    text = "\n".join([*lines, *([""] if below else []), *below]) + "\n"
    return words.ascii_only(text) if ascii_only else text


def _widths(cells: Sequence[Mapping[str, str]]) -> dict[str, int]:
    return {key: max(len(cell[key]) for cell in cells) for key in cells[0]}


def _total(widths: Mapping[str, int]) -> int:
    """Return the length of a line, with two blanks between its columns."""
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _cells(row: Mapping[str, Any], *, now_unix_ns: int) -> dict[str, str]:
    """Return the cells that say more or less than their value."""
    written = row["last_written_unix_ns"]
    return {
        "card": card(row["card"]),
        "step_ns": "-" if row["step_ns"] is None else words.duration(row["step_ns"]),
        "state": "broken" if row["problem"] else _state(row),
        "last_written_unix_ns": "-" if written is None else age(now_unix_ns - written),
    }


def _state(row: Mapping[str, Any]) -> str:
    """Return the state of a run, with the error that ended it."""
    return f"{known(row['state'])}: {known(row['error'])}" if row["error"] else known(row["state"])


def known(value: str | None) -> str:
    """Return a text from a file, made safe to print; "-" where it is not known."""
    return "-" if value is None else words.plain(value)


def short_policy(name: str) -> str:
    """Return a policy's name, abbreviated for a narrow table."""
    return _POLICIES.get(name, name)


def card(name: str | None) -> str:
    """Return a card's name without its vendor; "-" where it is not known."""
    return short_name(known(name))


def age(ns: int) -> str:
    """Return how long ago something was: "12 s ago", "3 h ago", "5 d ago"; "now" for a time that is not yet
    past."""
    seconds = ns / 1e9
    if seconds < 1:
        return "now"
    for least, one, unit in _AGES:
        if seconds >= least:
            return f"{seconds // one:,.0f} {unit} ago"
    return f"{seconds:.0f} s ago"


def _cut(text: str, width: int) -> str:
    return f"{text[: width - 1]}…" if len(text) > width else text


# --- names in a column: short, and no two alike that are not the same --------------------------------------

_MOST_ROUNDS = 16


def shortened(names: Sequence[str], width: int) -> list[str]:
    """Return each name in at most `width` characters. Where names that differ would look the same, what is
    left out is their common beginning; where even that does not tell them apart, they stay whole."""
    short = {name: words.shorten(name, width) for name in names}
    for _ in range(_MOST_ROUNDS):
        for group in _alike(short):
            short |= _apart(group, width)
    short |= {name: name for group in _alike(short) for name in group}
    return [short[name] for name in names]


def _alike(short: Mapping[str, str]) -> Iterable[list[str]]:
    """Return the names that cannot be told apart, group by group."""
    groups = defaultdict(list)
    for name, cut in short.items():
        groups[cut].append(name)
    return [group for group in groups.values() if len(group) > 1]


def _apart(names: Sequence[str], width: int) -> dict[str, str]:
    """Return each name as its head, and what follows the beginning that all of them have in common."""
    first, last = min(names), max(names)
    common = next(at for at in range(len(last)) if first[at : at + 1] != last[at])
    longest = max(map(len, names)) - common
    head = min(common, max(width // 3, width - 1 - longest))
    return {name: f"{name[:head]}…{words.shorten(name[common:], width - 1 - head)}" for name in names}
