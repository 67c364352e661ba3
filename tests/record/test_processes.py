"""What the tests of trainings rest on."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

from mpprof.record.run_with_timeout import in_own_process
from tests.record import hangs, processes


@pytest.mark.parametrize("clone", [Path("/home/mpprof"), Path("/tmp/of mpprof/mpprof")])
def test_a_path_in_which_our_name_stands_is_no_message_of_ours(
    clone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = [
        f"{clone}/.venv/lib/python3.11/site-packages/keras/src/trainer.py:12: UserWarning: the input ran out",
        f'  File "{clone}/tests/record/training.py", line 3, in fit',
        "mpprof: the loss is nan by step 7 (MP206)",
    ]
    ours = [
        "mpprof stops recording, training goes on: OSError",
        "WARNING:mpprof:mpprof no longer records memory: RuntimeError",
        "Exception in thread mpprof hardware:",
    ]
    assert processes.our_lines("\n".join([*theirs, *ours])) == ours
    traceback = f'  File "{processes.ROOT}/mpprof/record/loop.py", line 3, in step'
    assert processes.our_lines(traceback) == [traceback]


def test_what_is_no_text_in_the_path_of_imports_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, tmp_path])
    assert in_own_process("os:fspath", tmp_path, deadline_s=60) == str(tmp_path)


def test_a_wait_ends_with_the_thread_or_with_its_hanging_and_at_no_time() -> None:
    slow, released = threading.Event(), threading.Event()

    def hangs_first() -> None:
        hangs.hanging()
        released.wait(hangs.GIVEN_UP_S)

    ends = threading.Thread(target=slow.set, name="mpprof ends", daemon=True)
    stays = threading.Thread(target=hangs_first, name="mpprof stays", daemon=True)
    for thread in (ends, stays):
        thread.start()
        thread.join(1e-9)
    assert slow.is_set()
    assert not ends.is_alive()
    assert stays.is_alive()
    released.set()
