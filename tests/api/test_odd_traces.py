"""Valid traces that hold what few collectors write: the report is that of the same trace without it."""

from __future__ import annotations

import json
import random
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

import mpprof
from mpprof import traces
from mpprof.api import workflows
from mpprof.report import json as documents
from tests.builders.xspace import Space
from tests.fuzz.grammar import same_xplane, saying
from tests.fuzz.grammar.xplane_tree import Plane, Stat, parse
from tests.paths import SAMPLES
from tests.traces.kineto import Kineto
from tests.traces.test_nsys import export

TREES = ("recorded-cpu-float32", "v100-float32-island")
FAR_NS = (1, 10**17 + 1, 2**61, 2**62, 2**63 - 1, -(2**63))


def tree_of(run: Path) -> Path:
    return next(run.glob("**/*.xplane.pb"))


def started(space_bytes: bytes, at_ns: int) -> bytes:
    """The trace, its profile begun at another time."""
    space = parse(space_bytes)
    environment = next((p for p in space.planes if p.name == "Task Environment"), None)
    if environment is None:
        space.planes.append(environment := Plane("Task Environment"))
    key = environment.stat_id("profile_start_time")
    environment.stats = [stat for stat in environment.stats if stat.key != key] + [Stat(key, 4, at_ns)]
    return space.to_bytes()


@pytest.mark.parametrize("at_ns", FAR_NS)
def test_a_profile_that_began_at_no_date_is_joined_with_its_records(at_ns: int, tmp_path: Path) -> None:
    run = Path(shutil.copytree(SAMPLES / TREES[0], tmp_path / "run"))
    whole = saying.said(run)
    tree_of(run).write_bytes(started(tree_of(run).read_bytes(), at_ns))
    document = saying.said(run, whole=True)
    assert document["time"]["step_ns"] == whole["time"]["step_ns"]


@pytest.mark.parametrize("at_ns", FAR_NS)
@pytest.mark.parametrize("format", ["kineto", "nsight"])
def test_so_is_one_of_another_collector(format: str, at_ns: int, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(SAMPLES / TREES[0] / "mpprof", run / "mpprof")
    if format == "nsight":
        path = export(run / "w.sqlite")
        with sqlite3.connect(path) as db:
            db.execute("update TARGET_INFO_SESSION_START_TIME set utcEpochNs = ?", (at_ns,))
        db.close()
    else:
        trace = Kineto(base_ns=at_ns)
        for step in range(3):
            trace.launch("volta_sgemm_128x64_nt", 100.0 * step + 5, 100.0 * step + 20, 30)
            trace.host("user_annotation", f"ProfilerStep#{step}", 100.0 * step, 90)
        path = run / "host.pt.trace.json"
        path.write_text(json.dumps(trace.document()))
    mine = workflows.analyse(mpprof.load(run))
    assert mine.trace is not None
    assert not [
        each for each in documents.document(workflows.judge(mine))["unable"] if "internal" in each["reason"]
    ]


@pytest.mark.parametrize("op", ["model/dense/MatMul:MatMul", "train_function", "mpprof_step"])
def test_host_events_without_length_at_one_time_are_no_step(op: str, tmp_path: Path) -> None:
    space = Space()
    line = space.plane("/host:CPU").line(1, "tf_XLAEigen/1")
    for name in (op, "model/dense/MatMul:MatMul"):
        line.event(name, 0, 0, {"step_num": 1})
        line.event(name, 0, 0, {"step_num": 2})
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    document = saying.said(path, whole=True)
    assert document["time"] is None


@pytest.mark.parametrize("times", [(0, 0), (0, 0, 0), (700, 700)])
@pytest.mark.parametrize("told_by", ["groups", "steps line"])
def test_steps_of_a_device_whose_clock_stood_still_are_none(
    told_by: str, times: tuple[int, ...], tmp_path: Path
) -> None:
    document = saying.said(_steps_at(tmp_path, told_by, times, 0), whole=True)
    assert document["time"] is None


@pytest.mark.parametrize("told_by", ["groups", "steps line"])
def test_a_step_without_length_beside_others_is_no_step(told_by: str, tmp_path: Path) -> None:
    document = saying.said(_steps_at(tmp_path, told_by, (0, 0, 1000), 400), whole=True)
    assert document["time"]["step_ns"] == 1000
    assert "1 of 2 steps begin and end at one instant" in str(document)


def _steps_at(folder: Path, told_by: str, times: tuple[int, ...], length_ns: int) -> Path:
    """A trace of a GPU with a kernel at each of these times, each the first of a step."""
    space = Space()
    device = space.plane("/device:GPU:0")
    stream, steps = device.line(7, "Stream #7(Compute)"), device.line(0x7FFFFFFF, "Steps")
    for number, at in enumerate(times):
        group = {"group_id": number} if told_by == "groups" else {}
        stream.event("volta_sgemm_128x64_nt", at, length_ns, group)
        if told_by != "groups":
            steps.event(str(number), at, 0)
    path = folder / "host.xplane.pb"
    path.write_bytes(space.to_bytes())
    return path


@pytest.mark.parametrize("change", [same_xplane.counts_added, same_xplane.unknown_planes_added])
@pytest.mark.parametrize("run", TREES)
def test_what_lies_nowhere_in_the_training_changes_no_finding(
    run: str, change: Callable[..., None], tmp_path: Path
) -> None:
    """Events that only count how often something ran, and planes of no known kind."""
    path = tmp_path / "host.xplane.pb"
    path.write_bytes(tree_of(SAMPLES / run).read_bytes())
    before = saying.said(path)
    for seed in range(3):
        space = parse(tree_of(SAMPLES / run).read_bytes())
        change(random.Random(seed), space)
        assert space.to_bytes() != path.read_bytes()
        path.write_bytes(space.to_bytes())
        assert not list(saying.differences(before, saying.said(path)))


@pytest.mark.parametrize(
    "name", ["/host:tfstreamz", "/host:CPU-counters", "/device:CUSTOM:Timeline", "Host CPUs"]
)
@pytest.mark.parametrize("run", TREES)
def test_what_a_plane_of_an_unknown_kind_holds_is_no_work(run: str, name: str, tmp_path: Path) -> None:
    """Not even where it holds what a host's plane does, calls of the training among it, at another time, and
    is in the file twice."""
    root = Path(shutil.copytree(SAMPLES / run, tmp_path / "run"))
    before = saying.said(root)
    space = parse(tree_of(root).read_bytes())
    for _ in range(2):
        added = parse(tree_of(root).read_bytes()).planes
        host = next(plane for plane in added if plane.name == "/host:CPU")
        host.name = name
        for line in host.lines:
            line.timestamp_ns = 7
            for event in line.events[:3]:
                event.metadata = host.name_id("PjitFunction(step)")
        space.planes.append(host)
    tree_of(root).write_bytes(space.to_bytes())
    assert not list(saying.differences(before, saying.said(root)))
    assert f"planes of other kinds were not read: {name}" in traces.read(tree_of(root)).notes
