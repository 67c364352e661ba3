"""What stands in a file's place is not waited for."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpprof import regular, store
from mpprof.errors import UnreadableError


def test_a_file_that_would_be_waited_for_cannot_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As `/proc/kmsg` answers: a regular file by its mode, and no bytes before the kernel says something."""
    ends = []

    def opened(path: Path) -> object:
        out, into = os.pipe()
        ends.append(into)
        os.set_blocking(out, False)
        return os.fdopen(out, "rb")

    monkeypatch.setattr(regular, "open_regular", opened)
    (tmp_path / "mpprof").mkdir()
    for name, read in (("run.json", store.read_records), ("counters.json", store.read_counters)):
        (tmp_path / "mpprof" / name).touch()
        with pytest.raises(UnreadableError, match=rf"{name}: cannot be read: it holds nothing now"):
            read(tmp_path)
    for end in ends:
        os.close(end)
