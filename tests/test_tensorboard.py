"""TensorBoard, started on a log directory of ours, lists the run, its trace and its scalars."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from mpprof.record.tensorboard_sink import EventFile
from tests.paths import SAMPLES

RECORDED = SAMPLES / "recorded-cpu-mixed-float16"


@pytest.fixture(scope="module")
def ask(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Any]]:
    """What TensorBoard answers under a path; it runs on a recorded run, to which scalars were written."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    logs = tmp_path_factory.mktemp("logs")
    shutil.copytree(RECORDED, logs / "mixed")
    events = EventFile(logs / "mixed")
    events.scalars(1, 1.8e9, {"mpprof/loss": 3.0})
    events.close()
    command = [
        sys.executable,
        "-m",
        "tensorboard.main",
        "--logdir",
        str(logs),
        "--host",
        "127.0.0.1",
        "--port=0",
    ]
    command += [
        "--load_fast=false",
        "--reload_task=blocking",
        "--reload_interval=0",
    ]  # loaded once it answers
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr
        try:
            found = (re.search(r"http://\S+:\d+/", line) for line in process.stderr)
            address = next(filter(None, found), None)
            assert address, "TensorBoard does not start"
            yield lambda path: answer(address[0] + path)
        finally:
            process.terminate()


def answer(url: str) -> Any:
    with urllib.request.urlopen(url, timeout=60) as response:
        content = response.read()
    return json.loads(gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content)


def test_the_run_is_listed_with_its_scalars(ask: Callable[[str], Any]) -> None:
    assert ask("data/runs") == ["mixed"]
    assert list(ask("data/plugin/scalars/tags")["mixed"]) == ["mpprof/loss"]


def test_its_trace_is_listed_by_the_profile_plugin(ask: Callable[[str], Any]) -> None:
    pytest.importorskip("xprof", reason="tensorboard-plugin-profile is not installed")
    (session,) = (RECORDED / "plugins" / "profile").iterdir()
    assert ask("data/plugin/profile/runs") == [f"mixed/{session.name}"]
    assert "trace_viewer@" in ask(f"data/plugin/profile/run_tools?run=mixed/{session.name}")
