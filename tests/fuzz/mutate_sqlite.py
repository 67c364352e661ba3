"""Damage to SQLite files: by SQL (tables, columns, values, views, triggers), to the schema, and to pages."""

from __future__ import annotations

import random
import sqlite3

from tests.fuzz import mutate_bytes

VALUES = (
    "null", "-1", "0", "9223372036854775807", "-9223372036854775808", "1e300", "-1e300", "9e999", "'soon'", "''", "x'ff'",
    "x'c328'", "cast(x'edA080' as text)", "x'00ff80c3'", "zeroblob(3000)", "printf('%.*c', 3000, 'n')", "'1e5'", "0.5",
    "4611686018427387904", "-5", "char(0)", "'step 99999999999999999999'", "'step -1'", "'x, op_id = 9'", "2147483648",
)  # fmt: skip
TYPES = ("text", "blob", "real", "numeric", "", "integer not null default 'x'")
SCHEMA = (
    "create view {new} as with recursive r(n) as (select 1 union all select n + 1 from r) select n as start, n as end from r",
    "create trigger {new} after insert on {table} begin delete from {table}; end",
    "create index {new} on {table} ({column})",
    "alter table {table} rename to {new}",
    "alter table {table} rename column {column} to {new}",
    "alter table {table} drop column {column}",
    "drop table {table}",
    "delete from {table}",
    "create table {new} (start, end, deviceId, globalPid)",
    "create virtual table {new} using fts5(a)",
    "create table {new} (id integer primary key, value text) without rowid",
    "alter table {table} add column {new} text default (printf('%.*c', 9000, 'd'))",
)
REWRITTEN = (
    "update sqlite_master set rootpage = {number} where name = {table!r}",
    "update sqlite_master set sql = 'create table {table} (start, end, start2 as (1/0))' where name = {table!r}",
    "update sqlite_master set sql = 'create virtual table {table} using nothing(a)' where name = {table!r}",
    "update sqlite_master set sql = null where name = {table!r}",
    "update sqlite_master set sql = 'garbage' where name = {table!r}",
    "update sqlite_master set type = 'view' where name = {table!r}",
    "update sqlite_master set name = 'sqlite_stat1' where name = {table!r}",
    "update sqlite_master set sql = replace(sql, 'integer', 'integer collate nothing') where name = {table!r}",
    "update sqlite_master set sql = replace(sql, 'start integer', 'start integer generated always as (abs(end))') where name = {table!r}",
)


def changed(dice: random.Random, data: bytes) -> bytes:
    """By SQL, in pages, in any bytes; seldom so that the file has another size, which SQLite refuses at once."""
    way = dice.randrange(12)
    if way < 8:
        data = _by_sql(dice, data)
    if way in (6, 7, 8):
        data = _pages(dice, data)
    elif way in (9, 10):
        data = _overwritten(dice, data)
    elif way == 11:
        data = mutate_bytes.cut(dice, data) if dice.random() < 0.5 else mutate_bytes.changed(dice, data)
    return data


def _overwritten(dice: random.Random, data: bytes) -> bytes:
    made = bytearray(data)
    for _ in range(dice.choice((1, 4, 30))):
        at = dice.randrange(100, len(made) - 4)
        size = dice.choice((1, 1, 4))
        made[at : at + size] = dice.choice((dice.randbytes(size), b"\xff" * size, b"\x00" * size))
    return bytes(made)


def _by_sql(dice: random.Random, data: bytes) -> bytes:
    db = sqlite3.connect(":memory:", isolation_level=None)
    try:
        db.deserialize(data)
        db.execute("pragma journal_mode=off")
        tables = [
            name for (name,) in db.execute("select name from sqlite_master where type = 'table'").fetchall()
        ]
        for _ in range(dice.choice((1, 1, 2, 4))):
            try:
                _statement(dice, db, dice.choice(tables))
            except (sqlite3.Error, MemoryError):  # what SQLite itself refuses
                continue
        return db.serialize()
    except (sqlite3.Error, UnicodeDecodeError, MemoryError):
        return data
    finally:
        db.close()


def _statement(dice: random.Random, db: sqlite3.Connection, table: str) -> None:
    columns = [row[1] for row in db.execute(f'pragma table_info("{table}")')] or ["x"]
    column, value = dice.choice(columns), dice.choice(VALUES)
    match dice.randrange(8):
        case 0 | 1 | 2:
            db.execute(f"update {table} set {column} = {value} where rowid % {dice.choice((1, 2, 5))} = 0")
        case 3:
            db.execute(f"insert into {table} select * from {table} limit {dice.choice((1, 20))}")
        case 4:  # from backwards to sideways
            by = dice.choice((0, 1000, 10**18))
            db.execute(f"update {table} set {column} = {dice.choice(columns)} - {by}")
        case 5:
            new = dice.choice(
                ("CUPTI_ACTIVITY_KIND_KERNEL", "StringIds", "NVTX_EVENTS", "other", "ThreadNames", "value")
            )
            db.execute(dice.choice(SCHEMA).format(table=table, column=column, new=new))
        case 6:
            db.execute("pragma writable_schema=on")
            db.execute(
                dice.choice(REWRITTEN).format(table=table, number=dice.choice((0, 1, 2, 9, 2**31, -1)))
            )
        case _:
            db.execute(
                f"update {table} set {column} = cast({column} as {dice.choice(('text', 'real', 'blob'))})"
            )


def _pages(dice: random.Random, data: bytes) -> bytes:
    """Headers of the file and of b-tree pages, cell pointers, or a page put in another's place."""
    made = bytearray(data)
    size = int.from_bytes(data[16:18], "big") or 512
    pages = max(1, len(data) // size)
    for _ in range(dice.choice((1, 2, 6))):
        page = dice.randrange(pages) * size
        match dice.randrange(4):
            case 0:
                at = dice.choice((16, 18, 20, 24, 28, 32, 36, 44, 52, 56, 60, 92))
                made[at : at + 2] = dice.randbytes(2)
            case 1:
                at = page + dice.randrange(12) + (100 if page == 0 else 0)
                made[at : at + 1] = bytes([dice.choice((0, 1, 2, 5, 10, 13, 255, dice.randrange(256)))])
            case 2:
                at = page + 8 + 2 * dice.randrange(12)
                made[at : at + 2] = dice.randbytes(2)
            case _:
                other = dice.randrange(pages) * size
                made[page : page + size] = made[other : other + size]
    return bytes(made[: len(data)])
