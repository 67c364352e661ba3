"""Memory snapshots of PyTorch: what they tell, what they lack, and what in a pickle is refused."""

from __future__ import annotations

import gzip
import json
import os
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from mpprof import traces
from mpprof.errors import UnreadableError
from mpprof.traces.torch_memory import snapshot
from mpprof.traces.torch_memory.snapshot import stack
from tests.builders import torch_memory
from tests.builders.torch_memory import MIB, Snapshot, training
from tests.cli.conftest import Mpprof
from tests.fuzz.mutate_pickle import Runs
from tests.traces.kineto import Kineto


def _kinds(mpprof: Mpprof, path: Path) -> dict[str, int]:
    rows = json.loads(mpprof("memory", path, "--format", "json").out)
    return {row["name"]: row["bytes"] for row in rows if row["by"] == "kind"}


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_the_peak_is_divided_by_what_the_stacks_tell(
    mpprof: Mpprof, tmp_path: Path, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The batch was allocated by a line of the training that is in no module: what it is for is not known."""
    monkeypatch.setenv("COLUMNS", "100")  # a narrow terminal has no room for the lines of code
    path = training().write(tmp_path / "snapshot.pickle", protocol=protocol)
    assert _kinds(mpprof, path) == {
        "parameters": 8 * MIB, "optimizer slots": 16 * MIB, "gradients": 8 * MIB,
        "activations kept for backward": 6 * MIB, "unknown": 4 * MIB,
    }  # fmt: skip
    done = mpprof("memory", path)
    assert done.out.startswith("Peak 42.0 MiB on GPU_0_caching\n")
    assert "model.py:37 forward 6.00 MiB" in done.out
    assert "What all of it is for is not known: 2 of 12 allocations" in " ".join(done.out.split())


def test_what_the_ring_of_events_has_lost_is_told_by_the_blocks_in_use(
    mpprof: Mpprof, tmp_path: Path
) -> None:
    """PyTorch keeps the last events: the parameters are older, the slots too."""
    made = training()
    del made.events[: next(at for at, one in enumerate(made.events) if one["frames"] == torch_memory.UPDATE)]
    kinds = _kinds(mpprof, made.write(tmp_path / "snapshot.pickle"))
    assert (kinds["parameters"], kinds["optimizer slots"], sum(kinds.values())) == (
        8 * MIB,
        16 * MIB,
        42 * MIB,
    )


def test_without_a_history_it_is_what_was_in_use_at_the_end(mpprof: Mpprof, tmp_path: Path) -> None:
    path = training(history=False).write(tmp_path / "snapshot.pickle")
    assert _kinds(mpprof, path) == {"parameters": 8 * MIB, "optimizer slots": 16 * MIB}
    assert "When it was live is not known: the snapshot holds no history" in mpprof("memory", path).out


def test_without_stacks_all_is_unknown_and_said_why(mpprof: Mpprof, tmp_path: Path) -> None:
    path = training(stacks=False).write(tmp_path / "snapshot.pickle")
    assert _kinds(mpprof, path) == {"unknown": 42 * MIB}
    assert "_record_memory_history(max_entries=100_000)" in mpprof("memory", path).out


def test_the_segments_that_old_versions_wrote(mpprof: Mpprof, tmp_path: Path) -> None:
    """PyTorch 1.12 and 1.13: a list, its blocks without an address and with a history of their own."""
    blocks: list[dict[str, Any]] = [
        {"size": 2 * MIB, "state": "active_allocated",
         "history": [{"addr": 1 << 40, "real_size": MIB, "frames": torch_memory.TO_DEVICE}]},
        {"size": MIB, "state": "inactive"},
    ]  # fmt: skip
    path = tmp_path / "snapshot.pickle"
    segment = {"device": 0, "address": 1 << 40, "total_size": 3 * MIB, "blocks": blocks}
    path.write_bytes(pickle.dumps([segment], protocol=2))
    assert _kinds(mpprof, path) == {"parameters": MIB}
    assert traces.read(path).allocations.reserved_bytes.tolist() == [3 * MIB]


@pytest.mark.parametrize("ended", [True, False])
def test_what_an_update_keeps_is_a_slot_unless_it_was_cut_short(
    mpprof: Mpprof, tmp_path: Path, ended: bool
) -> None:
    """Momentum of SGD: the update itself allocates it. Where memory runs out in the midst of an update, what is
    there may be its temporaries."""
    made = Snapshot()
    made.alloc(8 * MIB, torch_memory.UPDATE)
    made.free(made.alloc(MIB, torch_memory.UPDATE))
    if not ended:
        made.out_of_memory(1 << 30, MIB)
    kinds = _kinds(mpprof, made.write(tmp_path / "snapshot.pickle"))
    kept = {"optimizer slots": 8 * MIB, "optimizer temporaries": MIB}
    assert kinds == (kept if ended else {"optimizer temporaries": 9 * MIB})


def test_the_line_is_that_of_ones_own_code_or_of_a_module(mpprof: Mpprof, tmp_path: Path) -> None:
    made, packages = Snapshot(), "/opt/venv/lib/python3.12/site-packages"
    called = f"{packages}/torch/nn/modules/module.py:1784 _call_impl"
    own = [
        f"{packages}/einops/_backends.py:288 einsum",
        "/home/me/model.py:22 attend",
        "/home/me/model.py:50 forward",
        called,
    ]
    bought = [f"{packages}/transformers/modeling.py:310 forward", called, "/home/me/train.py:9 <module>"]
    for places in (own, bought):
        made.alloc(MIB, torch_memory.frames(*places))
    rows = json.loads(mpprof("memory", made.write(tmp_path / "snapshot.pickle"), "--format", "json").out)
    assert {row["name"] for row in rows if row["by"] == "op"} == {
        "model.py:22 attend",
        "modeling.py:310 forward",
    }


def test_events_without_times_have_an_order_and_no_life(mpprof: Mpprof, tmp_path: Path) -> None:
    """As older versions of PyTorch wrote them."""
    made = training()
    for event in made.events:
        del event["time_us"]
    path = made.write(tmp_path / "snapshot.pickle")
    memory = json.loads(mpprof("report", path, "--format", "json").out)["memory"]
    assert memory["peak_bytes"] == 42 * MIB
    assert {tensor["life_ns"] for tensor in memory["tensors"]} == {None}
    assert not re.search(r"\d ns|µs|outlives", mpprof("memory", path).out)


def test_an_error_of_memory_is_told(mpprof: Mpprof, tmp_path: Path) -> None:
    made = training()
    made.out_of_memory(1 << 30, 5 * MIB)
    done = mpprof("memory", made.write(tmp_path / "snapshot.pickle"))
    assert "memory ran out on GPU 0: 1.00 GiB were asked for, and the driver had 5.00 MiB left" in done.err


def test_ls_lists_it_and_report_gives_its_peak(mpprof: Mpprof, tmp_path: Path) -> None:
    training().write(tmp_path / "snapshot.pickle")
    assert mpprof("ls", tmp_path).out.splitlines()[1].startswith("snapshot.pickle")
    done = mpprof("report", tmp_path)
    assert (done.code, "peak\n  42.0 MiB in the window" in done.out) == (0, True)


def test_beside_a_trace_of_kernels_it_is_not_the_run(mpprof: Mpprof, tmp_path: Path) -> None:
    made = Kineto()
    made.op("aten::addmm", 10, 60)
    trace = made.write(tmp_path / "host.pt.trace.json")
    training().write(tmp_path / "snapshot.pickle")
    assert traces.find_traces(tmp_path) == (trace,)
    assert len(mpprof("ls", tmp_path).out.splitlines()) == 3


def test_of_a_file_that_is_cut_off_what_is_whole_is_read(tmp_path: Path) -> None:
    path = training(steps=20).write(tmp_path / "snapshot.pickle")
    whole = len(traces.read(path).allocations)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    found = traces.read(path)
    assert 0 < len(found.allocations) < whole
    assert found.allocations.live_bytes.min() >= 0
    assert [warning for warning in found.warnings if "cut off or damaged at byte" in warning]
    with pytest.raises(UnreadableError, match="cut off or damaged at byte"):
        traces.read(path, strict=True)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_nothing_in_a_pickle_runs(mpprof: Mpprof, tmp_path: Path, protocol: int) -> None:
    found = training().found() | {"more": Runs(str(tmp_path / "ran"))}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(found, protocol=protocol))
    for command in ("memory", "report", "ls"):
        done = mpprof(command, path)
        assert (done.code != 2, "more than plain data" in done.err + done.out) == (
            command == "ls",
            command != "ls",
        )
    assert os.listdir(tmp_path) == ["snapshot.pickle"]


@pytest.mark.parametrize(
    ("opcodes", "why"),
    [
        (b"r\xff\xff\xff\xff", ""),  # an index of the memo for which Python's own unpickler takes 64 GB
        (b"]" * 100_000, "more lists"),
        (b"(" * 100_000, "levels"),
        (b"\x94" * 100_000, "more lists"),
        (b"X\xff\xff\xff\x7f", ""),
        (b"\x8b\xff\xff\xff\x7f", "opcode 0x8b"),
        (b"cos\nsystem\n", "opcode 0x63"),
    ],
)
def test_what_asks_for_memory_gets_none(tmp_path: Path, opcodes: bytes, why: str) -> None:
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(b"\x80\x04}\x8c\x08segments]" + opcodes)
    with pytest.raises(UnreadableError, match=why or "damaged|holds no block"):
        traces.read(path)


def test_another_pickle_is_refused_with_what_to_do(mpprof: Mpprof, tmp_path: Path) -> None:
    path = tmp_path / "weights.pickle"
    path.write_bytes(pickle.dumps({"weight": [1.0]}))
    done = mpprof("memory", path)
    assert done.code == 2
    assert "not a memory snapshot of PyTorch" in done.err
    assert "_dump_snapshot" in done.err


def test_a_snapshot_in_gzip_says_so(tmp_path: Path) -> None:
    path = tmp_path / "snapshot.pickle.gz"
    path.write_bytes(gzip.compress(pickle.dumps(training().found())))
    with pytest.raises(UnreadableError, match="packed with gzip"):
        traces.read(path)


# --- one object in many places, each of which takes two bytes -------------------------------------------------


def looked_at(monkeypatch: pytest.MonkeyPatch, path: Path, content: dict[str, Any]) -> int:
    """How many entries of lists are looked at for each byte of the file's."""
    seen = [0]
    monkeypatch.setattr(snapshot, "_dicts", lambda value: (seen.append(len(value)), [])[1])
    path.write_bytes(pickle.dumps(content, protocol=4))
    with pytest.raises(UnreadableError):
        snapshot.read(path, strict=False)
    return sum(seen) // path.stat().st_size


@pytest.mark.parametrize("place", ["segments", "device_traces"])
def test_a_list_that_stands_in_many_places_is_not_gone_through_for_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    shared: list[object] = [1] * 10_000
    content = {"segments": shared, "device_traces": [shared] * 256}
    assert looked_at(monkeypatch, tmp_path / "snapshot.pickle", content) == 0


def test_of_a_blocks_history_the_first_event_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many blocks share it."""
    asked: list[int] = []
    dicts = snapshot._dicts
    monkeypatch.setattr(snapshot, "_dicts", lambda value: (asked.append(len(value)), dicts(value))[1])
    block = {"state": "active_allocated", "size": 8, "address": 1, "history": [{"real_size": 4}] * 5_000}
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps([{"device": 0, "address": 1, "blocks": [block] * 500}], protocol=4))
    made = snapshot.read(path, strict=False)
    assert set(made.allocations.bytes.tolist()) == {4}
    assert max(asked) <= 500


def test_a_category_that_pytorch_does_not_have_makes_no_stack_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[object] = []
    monkeypatch.setattr(snapshot, "stack", lambda *given: (made.append(given), stack(*given))[1])
    event = {"action": "alloc", "addr": 1, "size": 8, "frames": [{"filename": "a.py", "line": 3}]}
    events = [{**event, "category": f"c{number}"} for number in range(100)]
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps({"segments": [], "device_traces": [events]}, protocol=4))
    snapshot.read(path, strict=False)
    assert len(made) == 1


def test_a_stack_is_as_deep_as_python_goes_and_a_name_as_long_as_others() -> None:
    update = {"filename": "torch/optim/adam.py", "name": "step", "line": 1}
    other = {"filename": "a.py", "name": "f", "line": 1}
    assert stack([other] * 999 + [update]).phase == "optimizer"
    assert stack([other] * 1_000 + [update]).phase == "code"
    assert stack([{**update, "filename": "torch/optim/" + "x" * 1_000}]).phase == ""
