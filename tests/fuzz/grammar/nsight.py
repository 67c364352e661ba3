"""Draws valid exports of Nsight Systems: the tables of NVIDIA's schema, with what it allows and few have."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.grammar import words
from tests.traces.test_nsys import SCHEMA

Value = int | float | str | bytes | None
Row = list[Value]
Change = Callable[[random.Random, "Export"], None]

COLUMNS = {
    each.partition(" (")[0].strip(): [column.split()[0] for column in each.partition(" (")[2].split(",")]
    for each in SCHEMA.replace("\n", " ").split("create table ")[1:]
}
KERNELS, CALLS, RANGES = "CUPTI_ACTIVITY_KIND_KERNEL", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS"
COPIES, STRINGS, START = "CUPTI_ACTIVITY_KIND_MEMCPY", "StringIds", "TARGET_INFO_SESSION_START_TIME"
TIMED = (KERNELS, CALLS, RANGES, COPIES)


@dataclass
class Export:
    """The rows of each table, the names of further columns, and further tables."""

    rows: dict[str, list[Row]] = field(default_factory=lambda: {name: [] for name in COLUMNS})
    more_columns: dict[str, list[str]] = field(default_factory=dict)
    more_tables: list[str] = field(default_factory=list)

    def text(self, value: str) -> int:
        for id, known in self.rows[STRINGS]:
            if known == value:
                return int(id or 0)
        self.rows[STRINGS].append([len(self.rows[STRINGS]) + 1, value])
        return len(self.rows[STRINGS])

    def column(self, table: str, name: str) -> int:
        return COLUMNS[table].index(name)


def made(dice: random.Random) -> Export:
    """A whole export."""
    export, odd = Export(), dice.choice((0.0, 0.0, 0.03, 0.2))
    rows = export.rows
    for device in range(dice.choice((1, 1, 2, 8))):
        rows["TARGET_INFO_GPU"].append(
            [device, "NVIDIA H100", 9, 0, 85_000_000_000, 132, 1_980_000_000, 3_352_000_000_000]
        )
        number, now = 0, dice.choice((0, 1_000, 10**9, 10**12))
        own, shared = (5 + device) << 24, dice.choice((False, False, True))  # two processes may share a card
        threads = dice.choice(((1,), (1, 2), (9, 4, 7)))
        kernels = [
            export.text(dice.choice(words.KERNELS).replace("\x00", "")) for _ in range(dice.choice((1, 3, 9)))
        ]
        for step in range(dice.choice((0, 1, 3, 4))):
            begin = now
            for kernel in kernels:
                number += 1
                process = own + (8 << 24 if shared and dice.random() < 0.5 else 0)
                thread = process + dice.choice(threads)
                now += dice.randrange(1, 5_000)
                rows[CALLS].append([now, now + 10, thread, number, export.text("cudaLaunchKernel_v7000")])
                if dice.random() < 0.5:
                    rows[RANGES].append([now - 1, now + 20, 59, _op(dice, step), None, thread])
                ns = dice.choice((0, 1, 900, 20_000))
                at = now + dice.randrange(10, 9_000)
                rows[KERNELS].append(
                    [at, at + ns, device, 1, dice.choice((7, 7, 20)), number, process, kernel, kernel, None, 32, 0, 1024, 4, 1, 1, 128, 1, 1]
                )  # fmt: skip
                if dice.random() < 0.3:
                    rows[COPIES].append(
                        [
                            at,
                            at + 20,
                            device,
                            1,
                            8,
                            number,
                            process,
                            dice.choice((4096, 2**62)),
                            dice.choice((1, 2, 8, 99)),
                        ]
                    )
            now += dice.randrange(1, 9_000)
            rows[RANGES].append([begin, now, 59, f"step {step}", None, own + 1])
            rows[RANGES].append([begin + 1, now, 59, None, export.text("forward"), own + 1])
    rows[START].append([1_700_000_000_000_000_000, 500])
    for table in TIMED:
        for row in rows[table]:
            if dice.random() < odd:
                row[dice.randrange(len(row))] = dice.choice(
                    (None, 0, -1, 1, 2**31, 2**62, 2**63 - 1, -(2**63), 1.5, "x", "", b"\xff", float("inf"))
                )
    return export


def _op(dice: random.Random, step: int) -> str:
    """A range as PyTorch's `emit_nvtx` or XLA writes it."""
    name = dice.choice(("aten::addmm", "autograd::engine::evaluate_function: AddmmBackward0", "aten::conv2d"))
    return dice.choice(
        (f"{name}, seq = {step}", f"{name}, op_id = {step}", "TSL:#hlo_op=dot.3,name=dense/dot#")
    )


def written(export: Export) -> dict[str, bytes]:
    db = sqlite3.connect(":memory:", isolation_level=None)
    db.execute("pragma page_size=512")
    db.executescript(SCHEMA)
    for table, columns in export.more_columns.items():
        for column in columns:
            db.execute(f"alter table {table} add column {column} integer")
    for table in export.more_tables:
        db.execute(f"create table {table} (start integer, end integer, x text)")
        db.execute(f"insert into {table} values (1, 5, 'x')")
    for table, rows in export.rows.items():
        if rows:
            known = COLUMNS[table][: len(rows[0])]  # older versions have fewer columns
            names, marks = ", ".join(known), ", ".join("?" * len(known))
            db.executemany(f"insert into {table} ({names}) values ({marks})", rows)
    content = db.serialize()
    db.close()
    return {"w.sqlite": content}


# --- changes after which it says the same ------------------------------------------------------------------


def rows_shuffled(dice: random.Random, export: Export) -> None:
    """But for rows of one time: of these the file's order says which lies in which."""
    for table in TIMED:
        place: dict[str, float] = {}
        export.rows[table].sort(key=lambda row: place.setdefault(str(row[0]), dice.random()))


def strings_renumbered(dice: random.Random, export: Export) -> None:
    """Where each is an id of the table, or none: SQLite makes a number of anything else, too."""
    by = dice.randrange(1, 1 << 30)
    known: set[Value] = {None, *(row[0] for row in export.rows[STRINGS] if type(row[0]) is int)}
    named = (row[export.column(table, column)] for table, column in _REFERENCES for row in export.rows[table])
    if any(value not in known or type(value) is float for value in named):
        return
    for table, column in ((STRINGS, "id"), *_REFERENCES):
        at = export.column(table, column)
        for row in export.rows[table]:
            if type(value := row[at]) is int:
                row[at] = value + by


_REFERENCES = ((KERNELS, "demangledName"), (KERNELS, "shortName"), (CALLS, "nameId"), (RANGES, "textId"))


def correlations_renumbered(dice: random.Random, export: Export) -> None:
    """Where each is a number."""
    by, tables = dice.randrange(1, 1 << 20), (KERNELS, CALLS, COPIES)
    if not all(type(row[export.column(t, "correlationId")]) is int for t in tables for row in export.rows[t]):
        return
    for table in tables:
        at = export.column(table, "correlationId")
        for row in export.rows[table]:
            if type(value := row[at]) is int and 0 < value < 1 << 20:
                row[at] = value + by


def clock_shifted(dice: random.Random, export: Export) -> None:
    """The session began earlier; where each time is one."""
    times = [value for table in TIMED for row in export.rows[table] for value in row[:2]]
    if not all(type(value) is int and 0 <= value < 1 << 60 for value in times):
        return
    by = dice.randrange(1, 10**9)
    for table in TIMED:
        for row in export.rows[table]:
            row[0], row[1] = row[0] + by, row[1] + by  # type: ignore[operator]
    export.rows[START][0][0] -= by  # type: ignore[operator]


def threads_renamed(dice: random.Random, export: Export) -> None:
    """Processes and their threads have other ids, in another order; where each id is one."""
    at = {table: export.column(table, "globalTid") for table in (CALLS, RANGES)}
    at |= {table: export.column(table, "globalPid") for table in (KERNELS, COPIES)}
    ids = {row[column] for table, column in at.items() for row in export.rows[table]}
    if not all(type(id) is int and 0 < id < 1 << 40 for id in ids):
        return
    parts = [sorted({part(id) for id in ids}) for part in (_process_of, _thread_of)]  # type: ignore[arg-type]
    process, thread = (
        dict(zip(part, dice.sample(range(1, 1 << 20), len(part)), strict=True)) for part in parts
    )
    for table, column in at.items():
        for row in export.rows[table]:
            id = row[column]
            of_process = table in (KERNELS, COPIES)
            row[column] = process[_process_of(id)] << 24 | (0 if of_process else thread[_thread_of(id)])  # type: ignore[arg-type]


def _process_of(id: int) -> int:
    return id >> 24


def _thread_of(id: int) -> int:
    return id & 0xFFFFFF


def columns_unknown(dice: random.Random, export: Export) -> None:
    for table in TIMED:
        export.more_columns[table] = [f"unknown{n}" for n in range(dice.choice((0, 1, 3)))]


def tables_unknown(dice: random.Random, export: Export) -> None:
    export.more_tables += ["CUPTI_ACTIVITY_KIND_UNKNOWN", "ENUM_UNKNOWN", "sched"][: dice.choice((1, 3))]


CHANGES: tuple[Change, ...] = (
    rows_shuffled, strings_renumbered, correlations_renumbered, clock_shifted, columns_unknown, tables_unknown,
    threads_renamed,
)  # fmt: skip
