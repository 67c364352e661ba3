"""Hosts' planes that are walked in a thread beside the devices': the same trace, and no error is lost."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from threading import Thread, active_count, get_ident

import pytest

from mpprof.traces.common import walk
from mpprof.traces.xspace import host_planes, reader
from tests.column_digests import digest

SAMPLES = sorted((Path(__file__).resolve().parents[2] / "sample_traces").rglob("*.xplane.pb"))


def test_a_call_runs_in_a_thread_that_ends() -> None:
    before = active_count()
    assert reader.start_beside(get_ident)() != get_ident()
    assert active_count() == before


def test_an_error_is_raised_where_the_result_is_asked_for() -> None:
    result = reader.start_beside(lambda: [][0])
    with pytest.raises(IndexError):
        result()


def test_an_interrupt_in_the_thread_is_not_lost() -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reader.start_beside(interrupted)()


def test_without_a_thread_the_call_runs_where_its_result_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refused(thread: Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(Thread, "start", refused)
    assert reader.start_beside(get_ident)() == get_ident()


@pytest.mark.skipif(not walk.COMPILED, reason="only the compiled walk lets other threads run")
def test_a_large_trace_is_the_same_and_its_hosts_are_walked_in_a_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    alone = [digest(path) for path in SAMPLES]
    threads = set()

    def walks(planes: object, of: object = host_planes.walks) -> Iterator[object]:
        threads.add(get_ident())
        yield from of(planes)  # type: ignore[operator]

    monkeypatch.setattr(host_planes, "walks", walks)
    monkeypatch.setattr(reader, "BESIDE_BYTES", 0)
    assert [digest(path) for path in SAMPLES] == alone
    assert threads
    assert get_ident() not in threads
