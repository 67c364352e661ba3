"""The cache gives back what was read, whole or not at all, and never stands in the way."""

from __future__ import annotations

import errno
import multiprocessing
import os
import pickle
import signal
import threading
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import traces
from mpprof.api import workflows
from mpprof.cli import main
from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model.trace import HloInstruction, Op, Trace
from mpprof.traces.cache import entries as cache
from mpprof.traces.cache import folder as place
from tests.paths import NO_TRACES, SHARED
from tests.traces.kineto import small

NSYS = SHARED / "h100-nsys" / "h100_2gpu_1s.sqlite"
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
        np.array_equal(getattr(one, each.name), getattr(other, each.name))
        and getattr(one, each.name).dtype == getattr(other, each.name).dtype
        for each in fields(one)
        if getattr(one, each.name) is not None or getattr(other, each.name) is not None
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
        "missing",
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


@pytest.mark.parametrize("damage", ["column", "trace", "cut", "empty", "another"])
def test_a_damaged_entry_is_read_afresh_and_replaced(
    path: Path, folder: Path, damage: str, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(place, "_said", set())
    whole = fill(path)
    (entry,) = entries(folder)
    caplog.clear()
    content = entry.read_bytes()
    match damage:
        case "cut":
            entry.write_bytes(content[: len(content) // 2])
        case "empty":
            entry.write_bytes(b"")
        case "another":
            np.savez(entry, nothing=np.zeros(3))
        case _:
            within = {"column": whole.kernels.start_ns.tobytes(), "trace": b'"strings": '}[damage]
            at = content.index(within)
            entry.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
    read = []
    again = cache.trace(path, "1", lambda: read.append(1) or traces.read(path))  # type: ignore[func-returns-value]
    assert same(again.kernels, whole.kernels)
    assert read == [1]
    (warning,) = caplog.messages
    assert "damaged entry" in warning
    assert str(entry) in warning
    cache.trace(path, "1", lambda: traces.read(path))  # a column's damage shows when it is read
    assert same(cache.trace(path, "1", never).kernels, whole.kernels)
    assert entries(folder) == [entry]


def test_no_damaged_byte_of_an_entry_gives_a_wrong_figure(path: Path, folder: Path) -> None:
    whole = fill(path)
    (entry,) = entries(folder)
    content = entry.read_bytes()
    directory = content.index(b"PK\x01\x02")  # of the archive, after its members
    header = content.index(b"NUMPY")
    for at in (*range(0, directory, 331), *range(header, header + 120), *range(directory, len(content), 7)):
        entry.write_bytes(content[:at] + bytes([content[at] ^ (1 << at % 8)]) + content[at + 1 :])
        found = cache.trace(path, "1", lambda: whole)
        assert all(same(getattr(found, name), getattr(whole, name)) for name in TABLES), at
        assert found.strings == whole.strings


@pytest.mark.parametrize("stands_there", ["pipe", "device", "directory", "nested", "loop"])
def test_whatever_stands_in_the_place_of_an_entry_is_no_obstacle(
    path: Path, folder: Path, stands_there: str
) -> None:
    whole = fill(path)
    (entry,) = entries(folder)
    entry.unlink()
    match stands_there:
        case "pipe":
            os.mkfifo(entry)
        case "device":
            entry.symlink_to("/dev/zero")
        case "directory":
            (entry / "more").mkdir(parents=True)
        case "nested":
            np.savez(entry, trace=np.frombuffer(b"[" * 100_000, np.uint8))
        case _:
            entry.symlink_to(entry.name)
    assert same(fill(path).kernels, whole.kernels)
    assert same(cache.trace(path, "1", never).kernels, whole.kernels)


def test_a_trace_that_changes_while_it_is_read_is_not_kept(path: Path, folder: Path) -> None:
    whole = path.read_bytes()

    def cut_off() -> Trace:
        path.write_bytes(whole[: len(whole) // 2])  # after it was looked up
        return traces.read(path)

    damaged = cache.trace(path, "1", cut_off)
    path.write_bytes(whole)
    assert len(damaged.kernels) < len(fill(path).kernels)


def test_columns_of_another_trace_are_never_taken(path: Path, folder: Path) -> None:
    fill(path)
    kept = cache.trace(path, "1", lambda: traces.read(path))
    os.truncate(entries(folder)[0], 100)
    path.write_bytes(path.read_bytes() + b" ")
    with pytest.raises(UnreadableError, match="changed while it was shown"):
        kept.kernels.start_ns  # noqa: B018
    path.unlink()
    with pytest.raises(NotFoundError):
        kept.kernels.start_ns  # noqa: B018


def test_what_a_killed_writer_left_is_no_entry_and_goes(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True)
    left, young, older = folder / "part-1-abcd", folder / "part-2-abcd", folder / "of-an-older-version"
    left.write_bytes(b"half")
    young.write_bytes(b"half")
    (older / "columns").mkdir(parents=True)
    os.utime(left, (1, 1))
    fill(path)
    assert not left.exists()
    assert not older.exists()
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
    size = first.stat().st_size
    fill(paths[1])
    (second,) = set(entries(folder)) - {first}
    os.utime(second, (1000, 1000))
    os.utime(first, (500, 500))
    cache.trace(paths[0], "1", never)  # used: now it is the younger one
    cache.trace(paths[2], "1", lambda: traces.read(paths[2]), limit_bytes=int(2.5 * size))
    assert first.exists()
    assert not second.exists()
    assert len(entries(folder)) == 2


def test_a_place_that_cannot_be_written_is_no_obstacle(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    for where in (str(tmp_path / "file" / "cache"), "n" * 300, "/".join("n" * 4000)):
        monkeypatch.setenv("MPPROF_CACHE", where)
        assert len(fill(path).kernels) == 12
        assert len(fill(path).kernels) == 12


@pytest.mark.parametrize("reach", ["belongs to another user", "may be written by every user"])
def test_what_another_user_could_have_put_there_is_not_shown(
    path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, reach: str
) -> None:
    """The entry is whole, and says what no reader has read."""
    forged = replace(traces.read(path), warnings=("all is well",))
    cache.Cache(folder).save(cache.digest(path, "1"), forged)
    assert fill(path).warnings == forged.warnings
    monkeypatch.setattr(place, "_said", set())
    if reach == "belongs to another user":
        monkeypatch.setattr(place.os, "geteuid", lambda: os.getuid() + 1)
    else:
        folder.parent.chmod(0o777)
    assert fill(path).warnings == traces.read(path).warnings
    assert [reach in text for text in caplog.messages] == [True]


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
        ("a.xplane.pb", 1 << 40, False), ("a.pt.trace.json.gz", 1 << 19, False),
        ("a.pt.trace.json.gz", 1 << 20, True), ("a.sqlite", 1 << 22, True),
    ):  # fmt: skip
        path = tmp_path / name
        with path.open("wb") as file:
            file.truncate(size)
        assert traces.is_slow(path) is expected
        path.unlink()


@pytest.mark.parametrize("value", ["off", "", "0"])
def test_it_can_be_switched_off_for_good(value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MPPROF_CACHE", value)
    assert place.folder() is None


# --- what a warm report reads ------------------------------------------------------------------------------


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The bytes of each array of an entry, as they are read."""
    seen: dict[str, int] = {}
    member = cache._Entry.member

    def noted(self: Any, name: str) -> Any:
        found = member(self, name)
        assert name not in seen, "read twice"
        seen[name] = found.nbytes
        return found

    monkeypatch.setattr(cache._Entry, "member", noted)
    return seen


def test_a_warm_report_reads_only_the_columns_it_shows(
    slow: Path, folder: Path, opened: dict[str, int], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", str(slow)]) == 0
    assert opened == {}
    assert main(["report", str(slow)]) == 0
    (entry,) = entries(folder)
    with np.load(entry) as every:
        assert opened.keys() < set(every.files)
    assert "kernels.start_ns" in opened


@pytest.mark.skipif(not NSYS.exists(), reason=NO_TRACES)
def test_of_a_recorded_trace_a_warm_report_reads_a_part(
    folder: Path, opened: dict[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(traces, "is_slow", lambda path: True)
    assert main(["report", str(NSYS)]) == 0
    cold = capsys.readouterr().out
    assert main(["report", str(NSYS)]) == 0
    assert capsys.readouterr().out == cold
    (entry,) = entries(folder)
    assert 0 < sum(opened.values()) < entry.stat().st_size
    assert "host.start_ns" in opened  # what the device waited for is shown, without steps, too


def test_nothing_is_read_of_a_table_until_it_is_asked_for(path: Path, opened: dict[str, int]) -> None:
    fill(path)
    kept = cache.trace(path, "1", never)
    assert opened.keys() == {"trace"}
    assert len(kept.kernels) == 12
    assert kept.kernels.start_ns is kept.kernels.start_ns
    assert opened.keys() == {"trace", "kernels.start_ns"}


def test_a_kept_table_can_be_changed_and_sent_like_any_other(path: Path) -> None:
    read = fill(path)
    kept = cache.trace(path, "1", never)
    assert same(pickle.loads(pickle.dumps(kept.kernels)), read.kernels)
    later = replace(kept.kernels, start_ns=kept.kernels.start_ns + 1)
    assert (later.start_ns == read.kernels.start_ns + 1).all()
    assert (later.name == read.kernels.name).all()
    with pytest.raises(AttributeError):
        _ = kept.kernels.nothing  # type: ignore[attr-defined]


@pytest.mark.parametrize("loss", ["gone", "replaced", "overwritten", "cut"])
def test_an_entry_that_is_lost_while_it_is_read_is_no_loss(path: Path, folder: Path, loss: str) -> None:
    read = fill(path)
    times: list[int] = []
    kept = cache.trace(path, "1", lambda: times.append(1) or traces.read(path))  # type: ignore[func-returns-value]
    assert (kept.kernels.start_ns == read.kernels.start_ns).all()
    (entry,) = entries(folder)
    other = replace(read, kernels=replace(read.kernels, name=read.kernels.name[::-1].copy()))
    elsewhere = folder.parent.parent / "other"
    cache.Cache(elsewhere).save("key", other)
    match loss:
        case "gone":
            entry.unlink()
        case "replaced":
            (elsewhere / "key.npz").rename(entry)
        case "overwritten":
            entry.write_bytes((elsewhere / "key.npz").read_bytes())
        case _:
            os.truncate(entry, 200)
    for name in TABLES:
        assert same(getattr(kept, name), getattr(read, name)), name
    assert times == ([] if loss in ("gone", "replaced") else [1])


# --- processes ---------------------------------------------------------------------------------------------


def _write_and_hang(path: Path, share: float, told: Any) -> None:
    """Fills the cache and stops for good when this share of the entry is written."""
    write = cache._write

    def hanging(to: Path, columns: dict[str, Any]) -> None:
        write(to, columns)
        os.truncate(to, int(share * to.stat().st_size))
        told.set()
        threading.Event().wait()

    cache._write = hanging
    fill(path)


@pytest.mark.parametrize("share", [0.0, 0.5, 1.0])
def test_a_writer_that_is_killed_leaves_no_entry(path: Path, folder: Path, share: float) -> None:
    context = multiprocessing.get_context("spawn")
    told = context.Event()
    writer = context.Process(target=_write_and_hang, args=(path, share, told))
    writer.start()
    assert told.wait(60)
    writer.kill()
    writer.join()
    assert writer.exitcode == -signal.SIGKILL
    (part,) = entries(folder)
    read: list[int] = []
    whole = cache.trace(path, "1", lambda: read.append(1) or traces.read(path))  # type: ignore[func-returns-value]
    assert read == [1]
    assert same(cache.trace(path, "1", never).kernels, whole.kernels)
    os.utime(part, (1, 1))
    fill(path, "2")
    assert not part.exists()


def _save_often(path: Path, together: Any) -> None:
    trace, kept = traces.read(path), cache.Cache(Path(os.environ["MPPROF_CACHE"]) / "traces")
    together.wait()
    for _ in range(30):
        kept.save("key", trace)


def test_two_writers_of_one_entry_and_a_reader_get_along(
    path: Path, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = multiprocessing.get_context("spawn")
    together = context.Barrier(3)
    writers = [context.Process(target=_save_often, args=(path, together)) for _ in range(2)]
    for writer in writers:
        writer.start()
    expected, kept = traces.read(path), cache.Cache(folder)
    together.wait(60)
    found = 0
    while any(writer.is_alive() for writer in writers) or not found:
        one = kept.load("key", lambda: expected)
        if one is not None:
            assert same(one.kernels, expected.kernels)
            found += 1
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [entry.name for entry in entries(folder)] == ["key.npz"]


# --- a cache that cannot be used ---------------------------------------------------------------------------


@pytest.fixture
def notes(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(place, "_said", set())
    return caplog


def reports(path: Path) -> None:
    for _ in range(2):
        assert main(["report", str(path)]) == 0


def test_a_full_disk_is_said_once_and_the_report_comes(
    slow: Path, folder: Path, notes: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, columns: dict[str, Any]) -> None:
        path.write_bytes(b"half")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(cache, "_write", full)
    reports(slow)
    (said,) = notes.messages
    assert "No space left" in said
    assert "MPPROF_CACHE" in said
    assert entries(folder) == []


def test_a_folder_that_cannot_be_made_is_said_once_and_the_report_comes(
    slow: Path, tmp_path: Path, notes: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "file" / "cache"))
    reports(slow)
    (said,) = notes.messages
    assert str(tmp_path / "file" / "cache") in said


def test_a_user_without_a_home_is_told_once_and_gets_the_report(
    slow: Path, notes: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.delenv("MPPROF_CACHE")
    monkeypatch.setattr(Path, "home", homeless)
    reports(slow)
    (said,) = notes.messages
    assert "no home directory" in said


def test_quiet_is_quiet(
    slow: Path, tmp_path: Path, notes: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "file" / "cache"))
    assert main(["report", str(slow), "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert notes.messages == []
