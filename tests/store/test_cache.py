"""The cache gives back what was read, whole or not at all, and never stands in the way."""

from __future__ import annotations

import multiprocessing
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import traces, workflows
from mpprof.cli import main
from mpprof.errors import UnreadableError
from mpprof.model.trace import HloInstruction, Op, Trace
from mpprof.store import cache
from tests.traces.kineto import small

TABLES = ("kernels", "host", "markers", "allocations")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "traces"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return small().write(tmp_path / "w.pt.trace.json")


def entries(folder: Path) -> list[Path]:
    return sorted(folder.iterdir()) if folder.exists() else []


def never() -> Trace:
    raise AssertionError("the trace was read again")


def fill(path: Path, version: str = "1") -> Trace:
    return cache.trace(path, version, lambda: traces.read(path))


def same(one: Any, other: Any) -> bool:
    return all(
        np.array_equal(getattr(one, name), getattr(other, name))
        and getattr(one, name).dtype == getattr(other, name).dtype
        for name in type(one).__slots__
    )


def test_what_comes_back_is_what_was_read(path: Path) -> None:
    read = fill(path)
    kept = cache.trace(path, "1", never)
    for name in TABLES:
        assert same(getattr(kept, name), getattr(read, name)), name
        assert len(getattr(kept, name))
    for name in (
        "source",
        "origin_unix_ns",
        "strings",
        "devices",
        "streams",
        "threads",
        "ops",
        "basis",
        "warnings",
        "lacks",
    ):
        assert getattr(kept, name) == getattr(read, name), name


def test_a_copy_of_the_file_finds_the_entry_and_keeps_its_own_name(path: Path, tmp_path: Path) -> None:
    fill(path)
    copy = tmp_path / "copy.pt.trace.json"
    copy.write_bytes(path.read_bytes())
    assert cache.trace(copy, "1", never).source.path == copy


def test_other_content_or_another_reader_makes_another_entry(path: Path, folder: Path) -> None:
    fill(path)
    fill(path, "2")
    stat = path.stat()
    path.write_bytes(path.read_bytes().replace(b'"stream": 7', b'"stream": 8'))
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))  # same size, same time
    assert fill(path).streams[0].number == 8
    assert len(entries(folder)) == 3


@pytest.mark.parametrize("name", ["meta.json", "kernels.parquet", "strings.parquet"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "gone", "empty"])
def test_a_damaged_entry_is_read_afresh_and_replaced(
    path: Path, folder: Path, name: str, damage: str
) -> None:
    whole = fill(path)
    (entry,) = entries(folder)
    file = entry / name
    content = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        middle = len(content) // 2
        flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
        file.write_bytes({"flipped": flipped, "cut": content[:middle], "empty": b""}[damage])
    read = []
    again = cache.trace(path, "1", lambda: read.append(1) or traces.read(path))  # type: ignore[func-returns-value]
    assert read
    assert same(again.kernels, whole.kernels)
    assert same(cache.trace(path, "1", never).kernels, whole.kernels)
    assert entries(folder) == [entry]


def test_what_a_killed_writer_left_is_no_entry_and_goes(path: Path, folder: Path) -> None:
    left = folder / "part-1-abcd"
    left.mkdir(parents=True)
    (left / "kernels.parquet").write_bytes(b"half")
    young = folder / "part-2-abcd"
    young.mkdir()
    os.utime(left, (1, 1))
    fill(path)
    assert not left.exists()
    assert young.exists()  # another process may be writing it
    cache.trace(path, "1", never)


def test_the_least_recently_used_goes_first(tmp_path: Path, folder: Path) -> None:
    paths = []
    for at in range(3):
        kineto = small()
        kineto.launch(f"kernel {at}", 5000, 5010, 1)
        paths.append(kineto.write(tmp_path / f"{at}.pt.trace.json"))
    fill(paths[0])
    (first,) = entries(folder)
    size = sum(file.stat().st_size for file in first.iterdir())
    fill(paths[1])
    (second,) = set(entries(folder)) - {first}
    os.utime(second / "meta.json", (1000, 1000))
    os.utime(first / "meta.json", (500, 500))
    cache.trace(paths[0], "1", never)  # used: now it is the younger one
    cache.trace(paths[2], "1", lambda: traces.read(paths[2]), limit_bytes=int(2.5 * size))
    assert first.exists()
    assert not second.exists()
    assert len(entries(folder)) == 2


def test_a_place_that_cannot_be_written_is_no_obstacle(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "file" / "cache"))
    assert len(fill(path).kernels) == 12
    assert len(fill(path).kernels) == 12


def test_errors_of_the_reader_pass_through_and_are_not_kept(path: Path, folder: Path) -> None:
    def fail() -> Trace:
        raise UnreadableError("no trace", where="here")

    with pytest.raises(UnreadableError):
        cache.trace(path, "1", fail)
    assert entries(folder) == []


def test_compiled_programs_are_not_kept(path: Path, folder: Path) -> None:
    hlo = HloInstruction("m", "dot.1", "dot", "", "f16", (), (), ())
    trace = replace(traces.read(path), ops=(Op("x", "dot", hlo),))
    cache.trace(path, "1", lambda: trace)
    assert entries(folder) == []


def _fill(path: Path) -> int:
    return len(fill(path).kernels)


def test_processes_at_the_same_time_agree(path: Path, folder: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        assert pool.map(_fill, [path] * 4) == [12] * 4
    assert len(entries(folder)) == 1
    cache.trace(path, "1", never)


# --- where it is used --------------------------------------------------------------------------------------


@pytest.fixture
def slow(path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A small file that counts as slow to read."""
    monkeypatch.setattr(traces, "is_slow", lambda path: True)
    return path


def test_a_second_look_reads_the_cache_and_says_the_same(
    slow: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(slow), "--format", "json"]) == 0
    first = capsys.readouterr().out
    assert len(entries(folder)) == 1
    monkeypatch.setattr(traces, "read", lambda path, strict=False: never())
    assert main(["report", str(slow), "--format", "json"]) == 0
    assert capsys.readouterr().out == first


def test_no_cache_neither_reads_nor_writes_it(
    slow: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["kernels", str(slow), "--no-cache"]) == 0
    assert entries(folder) == []
    assert main(["kernels", str(slow)]) == 0
    assert len(entries(folder)) == 1


def test_strict_meets_the_damage_itself(slow: Path) -> None:
    slow.write_bytes(slow.read_bytes()[:-400])
    run = workflows.load(slow)
    assert workflows.analyse(run).trace is not None
    with pytest.raises(UnreadableError, match="cut off"):
        workflows.analyse(run, strict=True)


def test_only_formats_that_are_slow_to_read_are_cached(tmp_path: Path) -> None:
    for name, size, expected in (
        ("a.xplane.pb", 1 << 40, False), ("a.pt.trace.json.gz", 1 << 20, False),
        ("a.pt.trace.json.gz", 1 << 22, True), ("a.sqlite", 1 << 25, True),
    ):  # fmt: skip
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(size)
        assert traces.is_slow(path) is expected
        path.unlink()


@pytest.mark.parametrize("value", ["off", "", "0"])
def test_it_can_be_switched_off_for_good(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPPROF_CACHE", value)
    assert cache.folder() is None
