"""TensorBoard, started on a log directory of ours, lists the run, its trace and its scalars."""

from __future__ import annotations

import gzip
import html
import json
import re
import shutil
import subprocess
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from mpprof.api.source import LogDirectory
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


def plugin(logdir: Any) -> tuple[Any, Callable[[str], Any]]:
    """The tab's plugin on a log directory, and what it answers under a path."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from types import SimpleNamespace

    from werkzeug.test import Client

    from mpprof.tensorboard_plugin import MixedPrecision

    tab = MixedPrecision(SimpleNamespace(logdir=logdir))
    apps = tab.get_plugin_apps()
    return tab, lambda path: Client(apps[path.partition("?")[0]]).get(path)


def test_the_tab_shows_the_first_screen_of_each_run(tmp_path: Path) -> None:
    names = ("v100-odd-vocabulary-float32", "v100-odd-vocabulary-mixed-float16")
    for name in names:
        shutil.copytree(SAMPLES / name, tmp_path / name)
    tab, ask = plugin(str(tmp_path))
    assert tab.is_active()
    listed = ask("/runs.json").get_json()
    assert listed["chosen"] == names[1]
    assert sorted(run["id"] for run in listed["runs"]) == sorted(names)
    shown = ask(f"/card.json?run={names[1]}").get_json()
    answer = LogDirectory(tmp_path).report(names[1], names[0]).answer
    assert answer.sentence in html.unescape(shown["body"])
    assert 'id="flow"' in shown["body"]
    assert "<script" not in shown["body"]
    assert " onclick=" not in shown["body"]
    assert "mp-flow" in shown["style"]
    for path in ("/tab.js", "/why.js"):
        assert ask(path).mimetype == "text/javascript"
    assert tab.frontend_metadata().tab_name == "Mixed precision"


def test_the_tab_serves_nothing_from_outside_the_log_directory(tmp_path: Path) -> None:
    inside, outside = tmp_path / "logs", tmp_path / "private"
    shutil.copytree(SAMPLES / "v100-convnet-float32", inside / "own")
    shutil.copytree(SAMPLES / "v100-convnet-mixed-float16", outside / "secret")
    (inside / "link").symlink_to(outside / "secret")
    _, ask = plugin(str(inside))
    assert [run["id"] for run in ask("/runs.json").get_json()["runs"]] == ["own"]
    for name in ("link", "../private/secret", str(outside / "secret"), ""):
        assert ask(f"/card.json?run={name}").status_code == 404, name


@pytest.mark.parametrize("logdir", ["", None, "gs://bucket/logs", "/nowhere"])
def test_without_a_folder_of_this_machine_the_tab_is_not_active(logdir: str | None) -> None:
    tab, ask = plugin(logdir)
    assert not tab.is_active()
    assert ask("/runs.json").get_json() == {"runs": [], "chosen": None}
