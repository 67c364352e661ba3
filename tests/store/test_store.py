"""What is written can be read back, and what is damaged says so and takes nothing else with it."""

from __future__ import annotations

import errno
import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.errors import NotFoundError, TooNewError, UnreadableError
from mpprof.store import find_runs, formats, read_records, writing
from mpprof.store.writing import LineWriter, claim, write_run

STEPS = '{"schema":"mpprof.steps/1"}\n'


def no_trouble(path: Path, error: Exception) -> None:
    raise AssertionError(f"{path}: {error}")


def step(number: int, **more: object) -> str:
    return json.dumps({"kind": "step", "step": number, "fit": 1, "t_ns": number * 10, **more}) + "\n"


def run_with(root: Path, steps: str | bytes, facts: dict[str, object] | None = None) -> Path:
    folder = root / "mpprof"
    folder.mkdir(parents=True)
    data = steps if isinstance(steps, bytes) else steps.encode()
    (folder / "steps.jsonl").write_bytes(data)
    write_run(folder, facts or {"run_id": "r", "created_unix_ns": 5})
    return root


def test_what_was_read_after_the_last_step_is_that_steps(tmp_path: Path) -> None:
    lines = (
        STEPS
        + step(1, skipped=1, loss_scale=8)
        + step(2)
        + '{"kind":"fit_end","reason":"finished","step":2,"skipped":2,"loss_scale":4}\n'
        + step(3, skipped=1)
        + '{"kind":"fit_end","reason":"finished","step":3,"skipped":1}\n'
        + '{"kind":"fit_end","reason":"finished","step":"3","skipped":-1}\n'
        + '{"kind":"fit_end","reason":"finished","step":99,"skipped":5}\n'
    )
    table = read_records(run_with(tmp_path, lines)).steps
    assert table.skipped.tolist() == [1, 2, 2]
    assert table.loss_scale_known.tolist() == [True, True, False]
    assert table.loss_scale[:2].tolist() == [8.0, 4.0]


def test_what_a_loop_told_late_is_its_steps(tmp_path: Path) -> None:
    lines = (
        STEPS
        + step(1, skipped=1, loss=8)
        + '{"kind":"update","step":1,"t_ns":11,"loss":7.5,"accuracy":0.5}\n'
        + step(2)
        + '{"kind":"update","step":2,"t_ns":21,"skipped":1,"loss":"NaN"}\n'
        + '{"kind":"update","step":2,"t_ns":22,"loss_scale":4.0,"loss":[1]}\n'
        + '{"kind":"update","step":true,"loss_scale":9.0}\n'
        + '{"kind":"update"}\n'
    )
    records = read_records(run_with(tmp_path, lines))
    table = records.steps
    assert table.step.tolist() == [1, 2]
    assert table.skipped.tolist() == [1, 1]
    assert table.loss[0] == 7.5
    assert math.isnan(table.loss[1])
    assert table.loss_known.tolist() == [True, True]
    assert table.loss_scale_known.tolist() == [False, True]
    assert not any(column.flags.writeable for column in (table.loss, table.skipped, table.loss_scale_known))


def test_columns_hold_what_the_lines_say_and_absent_where_they_say_nothing(tmp_path: Path) -> None:
    lines = (
        STEPS
        + '{"kind":"fit","fit":1,"t_ns":0}\n'
        + step(1, epoch=0, batch=0, covers=1, interval_ns=7, duration_ns=5, synced=True, loss="NaN")
        + step(9, epoch=1, batch=7, covers=8, loss=2, loss_scale="Infinity", skipped=3, profiled=True)
        + step(10, memory=[{"device": "GPU:0", "peak_bytes": 5, "live_bytes": 4}, {"peak_bytes": 9}])
        + '{"kind":"validation","t_ns":50,"duration_ns":20}\n'
        + '{"kind":"fit_end","reason":"finished"}\n'
    )
    records = read_records(run_with(tmp_path, lines))
    table = records.steps
    assert table.step.tolist() == [1, 9, 10]
    assert table.covers.tolist() == [1, 8, 1]
    assert table.interval_ns.tolist() == [7, -1, -1]
    assert table.skipped.tolist() == [-1, 3, -1]
    assert table.loss_known.tolist() == [True, True, False]
    assert math.isnan(table.loss[0])
    assert table.loss[1] == 2.0
    assert table.loss_scale[1] == math.inf
    assert table.peak_bytes.tolist() == [-1, -1, 9]
    assert table.live_bytes.tolist() == [-1, -1, 4]
    assert table.synced.tolist() == [True, False, False]
    assert table.profiled.tolist() == [False, True, False]
    assert not table.step.flags.writeable
    assert records.validations.duration_ns.tolist() == [20]
    assert records.finished
    assert records.warnings == ()
    assert records.hardware is None


def test_a_peak_that_was_reset_behind_its_call_is_not_measured(tmp_path: Path) -> None:
    """It falls to what is live; one that falls to more than that, or rises, is what it says."""
    told = [(9, 4), (4, 4), (7, 4), (6, 4), (6, 6), (5, 5)]
    lines = "".join(
        step(k, memory=[{"peak_bytes": peak, "live_bytes": live}]) for k, (peak, live) in enumerate(told, 1)
    )
    table = read_records(run_with(tmp_path, STEPS + lines)).steps
    assert table is not None
    assert table.peak_bytes.tolist() == [9, -1, 7, 6, 6, -1]
    assert table.live_bytes.tolist() == [live for _, live in told]


def test_a_torn_last_line_is_dropped_with_its_byte(tmp_path: Path) -> None:
    whole = STEPS + '{"kind":"fit","fit":1,"t_ns":0}\n' + step(1) + step(2)
    records = read_records(run_with(tmp_path, whole + step(3)[:-9]))
    assert records.steps.step.tolist() == [1, 2]
    assert not records.finished
    assert len(records.warnings) == 1
    assert f"byte {len(whole)}" in records.warnings[0]
    assert "steps.jsonl" in records.warnings[0]


def test_the_log_opens_wherever_it_is_cut(tmp_path: Path) -> None:
    whole = (STEPS + '{"kind":"fit","fit":1,"t_ns":0}\n' + step(1) + step(2, loss="NaN")).encode()
    root = run_with(tmp_path, whole)
    for length in range(len(whole) + 1):
        (root / "mpprof" / "steps.jsonl").write_bytes(whole[:length])
        records = read_records(root)
        assert len(records.steps) == max(whole[:length].count(b"\n") - 2, 0)
        assert bool(records.warnings) == (length == 0 or whole[length - 1 : length] != b"\n")


def test_bad_lines_in_the_middle_are_counted_and_skipped(tmp_path: Path) -> None:
    bad = [
        '{"kind":"step","step":2', "\x00\x00", "[1,2]", '{"kind":"step"},{"kind":"step"}', "[" * 100_000,
        '{"kind":"step","step":"x","fit":1,"t_ns":1}', '{"kind":"step","step":1.5,"fit":1,"t_ns":1}',
        f'{{"kind":"step","step":{1 << 70},"fit":1,"t_ns":1}}', '{"kind":"step","fit":1,"t_ns":1}',
        '{"kind":"step","step":1,"fit":1,"t_ns":1,"loss":"much"}',
    ]  # fmt: skip
    lines = STEPS + step(1) + "".join(line + "\n" for line in bad) + step(3)
    records = read_records(run_with(tmp_path, lines))
    assert records.steps.step.tolist() == [1, 3]
    said = " ".join(records.warnings)
    assert "5 lines could not be read" in said
    assert f"first at byte {len(STEPS + step(1))}" in said
    assert "5 step lines hold values of the wrong type" in said


def test_unknown_kinds_and_keys_are_a_newer_additions(tmp_path: Path) -> None:
    lines = STEPS + '{"kind":"alarm","what":1}\n' + step(1, mood="good") + '{"no":"kind"}\n'
    records = read_records(run_with(tmp_path, lines))
    assert len(records.steps) == 1
    assert records.warnings == ()


@pytest.mark.parametrize(
    ("name", "text", "error"),
    [
        ("run.json", '{"schema":"mpprof.run/2"}', TooNewError),
        ("run.json", "Hello, I am a text.", UnreadableError),
        ("run.json", "", UnreadableError),
        ("run.json", "[]", UnreadableError),
        ("run.json", "[" * 100_000, UnreadableError),
        ("run.json", '{"schema":"mpprof.steps/1"}', UnreadableError),
        ("run.json", '{"schema":"mpprof.run/-1"}', UnreadableError),
        ("run.json", '{"schema":7}', UnreadableError),
        ("steps.jsonl", '{"schema":"mpprof.steps/2"}\n', TooNewError),
        ("steps.jsonl", "Hello, I am a text.\n", UnreadableError),
        ("steps.jsonl", "Hello, I am a text without an end", UnreadableError),
        ("hardware.jsonl", '{"schema":"mpprof.hardware/9"}\n', TooNewError),
    ],
)
def test_what_is_not_ours_or_too_new_is_one_clear_error(
    tmp_path: Path, name: str, text: str, error: type[Exception]
) -> None:
    root = run_with(tmp_path, STEPS)
    (root / "mpprof" / name).write_text(text)
    with pytest.raises(UnreadableError) as raised:
        read_records(root)
    assert type(raised.value) is error
    assert name in str(raised.value)
    assert "\n" not in str(raised.value)


def test_a_run_without_facts_still_gives_its_steps(tmp_path: Path) -> None:
    root = run_with(tmp_path, STEPS + step(1))
    (root / "mpprof" / "run.json").unlink()
    records = read_records(root)
    assert records.facts is None
    assert len(records.steps) == 1
    assert "run.json: missing" in records.warnings[0]
    with pytest.raises(NotFoundError):
        read_records(tmp_path / "nowhere")


def test_facts_of_the_wrong_type_are_absent_and_not_believed(tmp_path: Path) -> None:
    facts = {
        "run_id": 7,
        "created_unix_ns": "soon",
        "clock": [],
        "devices": [{"kind": "gpu", "name": "Tesla V100-SXM2-16GB", "compute_capability": [7, 0]}, 3],
        "model": {"layers": [{"name": "a/b", "class": "Dense", "output_shape": [None, 8]}]},
        "fits": [{"fit": 1, "policy": {"global": "mixed_float16"}, "optimizer": {"initial_scale": "NaN"}}],
        "tf32_enabled": 1,
        "profile_plan": {"first_step": 10, "automatic": "no"},
        "absent": {"memory": "no GPU"},
    }
    read = read_records(run_with(tmp_path, STEPS, facts)).facts
    assert read.run_id == "unnamed"
    assert read.created_unix_ns == 0
    assert read.tf32_enabled is None
    assert read.profile_plan is None
    assert [(device.vendor, device.compute_capability) for device in read.devices] == [("nvidia", (7, 0))]
    assert read.model.layers[0].output_shape == (None, 8)
    assert read.fits[0].policy.global_name == "mixed_float16"
    assert read.fits[0].optimizer.initial_scale is not None
    assert math.isnan(read.fits[0].optimizer.initial_scale)
    assert read.absent == {"memory": "no GPU"}


def test_every_version_up_to_the_newest_has_an_upgrader() -> None:
    for family, newest in formats.NEWEST.items():
        assert all((family, version) in formats.UPGRADERS for version in range(1, newest))


def test_an_old_version_passes_through_its_upgrader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(formats.NEWEST, "mpprof.steps", 2)
    monkeypatch.setitem(
        formats.UPGRADERS, ("mpprof.steps", 1), lambda old: {**old, "step": old.get("step", 0) + 100}
    )
    steps = read_records(run_with(tmp_path, STEPS + step(1))).steps
    assert steps.step.tolist() == [101]


def test_runs_are_found_at_any_depth_and_workers_are_no_runs(tmp_path: Path) -> None:
    for name in ("a", "b/c", "a/20260101T000000Z-7"):
        run_with(tmp_path / name, STEPS)
    worker = tmp_path / "a" / "mpprof" / "worker-1"
    worker.mkdir()
    (worker / "steps.jsonl").write_text(STEPS + step(4))
    (tmp_path / "mpprof").mkdir()  # a folder of that name alone is not a run
    found = find_runs(tmp_path)
    assert [path.relative_to(tmp_path).as_posix() for path in found] == ["a", "a/20260101T000000Z-7", "b/c"]
    assert find_runs(tmp_path / "b" / "c" / "mpprof" / "run.json") == (tmp_path / "b" / "c",)
    assert find_runs(tmp_path / "b" / "c" / "mpprof") == (tmp_path / "b" / "c",)
    extra = read_records(tmp_path / "a", worker=1).steps
    assert extra.step.tolist() == [4]
    with pytest.raises(NotFoundError):
        find_runs(tmp_path / "nowhere")


def test_a_directory_that_holds_a_run_is_never_claimed_again(tmp_path: Path) -> None:
    roots = [claim(tmp_path, "stamp-1") for _ in range(3)]
    assert roots == [tmp_path, tmp_path / "stamp-1", tmp_path / "stamp-1-2"]


def test_json_is_strict_whatever_is_given(tmp_path: Path) -> None:
    record = {
        "a": math.nan, "b": [math.inf, -math.inf], "c": np.float32(1.5), "d": np.int64(3), "e": (1, None),
        "f": Path("x"), "g": "\udcff", 5: True,
    }  # fmt: skip

    def refuse(name: str) -> None:
        raise AssertionError(name)

    for text in (formats.line(record), formats.document(record)):
        read = json.loads(text.encode(), parse_constant=refuse)
        assert read["a"] == "NaN"
        assert read["b"] == ["Infinity", "-Infinity"]
        assert (read["c"], read["d"], read["e"]) == (1.5, 3, [1, None])
        assert read["5"] is True


def test_run_json_is_replaced_whole_and_leaves_nothing_beside_it(tmp_path: Path) -> None:
    write_run(tmp_path, {"run_id": "first"})
    write_run(tmp_path, {"run_id": "second"})
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]
    assert json.loads((tmp_path / "run.json").read_text()) == {"schema": "mpprof.run/1", "run_id": "second"}


def test_a_writer_keeps_the_order_and_writes_everything(tmp_path: Path) -> None:
    writer = LineWriter(tmp_path / "steps.jsonl", formats.STEPS_SCHEMA, no_trouble)
    for number in range(1000):
        writer.put({"kind": "step", "step": number})
    writer.flush()
    writer.put({"kind": "step", "step": 1000})
    writer.close()
    going_on = LineWriter(tmp_path / "steps.jsonl", None, no_trouble)
    going_on.put({"kind": "step", "step": 1001})
    going_on.close()
    lines = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert lines[0] == {"schema": "mpprof.steps/1"}
    assert [line["step"] for line in lines[1:]] == list(range(1002))


def test_lines_that_are_whole_were_seen_where_a_write_fails_behind_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of a recording names the last step that is on disk."""
    seen: list[int] = []
    path, write = tmp_path / "steps.jsonl", os.write
    path.touch()
    monkeypatch.setattr(writing, "FLUSH_SECONDS", 3600)
    writer = LineWriter(path, None, lambda path, error: None, lambda record: seen.append(record["step"]))
    full = OSError(errno.ENOSPC, "No space left on device")

    def a_part(file: int, data: Any) -> int:
        if path.stat().st_size:
            raise full
        return write(file, bytes(data)[: len(bytes(data)) * 3 // 4])

    monkeypatch.setattr(os, "write", a_part)
    for step in range(5):
        writer.append({"kind": "step", "step": step})
    writer.flush()
    monkeypatch.undo()
    writer.close()
    assert seen == list(range(path.read_text().count("\n")))
    assert seen


def test_a_vanished_directory_is_trouble_once_and_then_silence(tmp_path: Path) -> None:
    folder = tmp_path / "mount"
    folder.mkdir()
    said: list[Exception] = []
    writer = LineWriter(folder / "steps.jsonl", formats.STEPS_SCHEMA, lambda path, error: said.append(error))
    shutil.rmtree(folder)
    for _ in range(3):
        writer.put({"kind": "step"})
        writer.flush()
    writer.close()
    assert len(said) == 1


def test_a_disk_that_hangs_does_not_eat_the_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpprof.store.writing.MOST_QUEUED", 10)
    monkeypatch.setattr("mpprof.store.writing.FLUSH_SECONDS", 1000.0)
    said: list[Exception] = []
    writer = LineWriter(tmp_path / "s", formats.STEPS_SCHEMA, lambda path, error: said.append(error))
    for _ in range(100):
        writer.put({"kind": "step"})
    writer.close()
    assert [type(error) for error in said] == [TimeoutError]


def test_a_full_disk_keeps_what_is_there_readable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[Exception] = []
    folder = tmp_path / "mpprof"
    folder.mkdir()
    writer = LineWriter(folder / "steps.jsonl", formats.STEPS_SCHEMA, lambda path, error: said.append(error))
    writer.put({"kind": "step", "step": 1, "fit": 1, "t_ns": 1})
    writer.flush()
    real = os.write

    def full(file: int, data: bytes) -> int:
        if len(data) < 20:
            raise OSError(28, "No space left on device")
        return real(file, bytes(data[:10]))

    monkeypatch.setattr(os, "write", full)
    writer.put({"kind": "step", "step": 2, "fit": 1, "t_ns": 1})
    writer.flush()
    writer.put({"kind": "step", "step": 3, "fit": 1, "t_ns": 1})
    writer.close()
    monkeypatch.undo()
    assert [getattr(error, "errno", None) for error in said] == [28]
    records = read_records(tmp_path)
    assert records.steps.step.tolist() == [1]
    assert any("cut off" in warning for warning in records.warnings)


def test_lines_that_span_blocks_are_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mpprof.store.lines.BLOCK_BYTES", 64)
    lines = STEPS + "".join(step(n, loss=n / 3) for n in range(1, 50)) + "x" * 300 + "\n" + step(50)
    records = read_records(run_with(tmp_path, lines))
    assert records.steps.step.tolist() == list(range(1, 51))
    assert "1 line could not be read" in " ".join(records.warnings)


@pytest.mark.parametrize(
    "odd",
    [
        {"memory": {"device": "GPU:0"}},
        {"covers": 0},
        {"covers": 10**12},
        {"interval_ns": -5},
        {"t_ns": -2},
        {"step": 2.5},
    ],
)
def test_a_line_that_cannot_be_true_is_left_out_and_said(tmp_path: Path, odd: dict[str, object]) -> None:
    lines = (
        STEPS + step(1) + step(2, **{key: value for key, value in odd.items() if key not in ("step", "t_ns")})
    )
    if {"step", "t_ns"} & set(odd):
        lines = STEPS + step(1) + json.dumps({"kind": "step", "step": 2, "fit": 1, "t_ns": 20, **odd}) + "\n"
    records = read_records(run_with(tmp_path, lines + step(3)))
    assert records.steps.step.tolist() == [1, 3]
    assert any("wrong" in warning for warning in records.warnings)


def test_a_memory_size_out_of_range_is_absent_and_nothing_more(tmp_path: Path) -> None:
    records = read_records(run_with(tmp_path, STEPS + step(1, memory=[{"peak_bytes": 1 << 70}])))
    assert records.steps.peak_bytes.tolist() == [-1]


def test_a_log_written_twice_is_said_to_be(tmp_path: Path) -> None:
    lines = "".join(step(number) for number in range(1, 9))
    records = read_records(run_with(tmp_path, STEPS + lines + lines))
    assert any("does not grow" in warning for warning in records.warnings)
    assert not read_records(run_with(tmp_path / "once", STEPS + lines)).warnings


def test_a_pipe_in_place_of_a_log_is_an_error_and_no_wait(tmp_path: Path) -> None:
    root = run_with(tmp_path, STEPS + step(1))
    os.mkfifo(root / "mpprof" / "hardware.jsonl")
    records = read_records(root)
    assert records.steps is not None
    assert any("not a regular file" in warning for warning in records.warnings)
    (root / "mpprof" / "steps.jsonl").unlink()
    os.mkfifo(root / "mpprof" / "steps.jsonl")
    with pytest.raises(UnreadableError, match="not a regular file"):
        read_records(root)


def test_numbers_beyond_64_bits_and_nulls_are_as_if_left_out(tmp_path: Path) -> None:
    facts = {
        "run_id": "r",
        "replicas": 1 << 64,
        "framework": {"backend": ["jax"], "keras": "3.9", "python": {}},
    }
    root = run_with(tmp_path, STEPS + step(1, interval_ns=None, memory=None) + step(2, loss=None), facts)
    samples = '{"schema":"mpprof.hardware/1"}\n{"t_ns":1,"gpu":9223372036854775808}\n{"t_ns":2,"gpu":-5}\n'
    (root / "mpprof" / "hardware.jsonl").write_text(samples)
    records = read_records(root)
    assert records.facts.replicas is None
    assert {key: value for key, value in records.facts.framework.items() if value is not None} == {
        "keras": "3.9"
    }
    assert records.steps.step.tolist() == [1, 2]
    assert records.steps.interval_ns.tolist() == [-1, -1]
    assert records.hardware.gpu.tolist() == [-1, -1]
    assert records.warnings == ()


def test_what_the_log_holds_is_not_absent(tmp_path: Path) -> None:
    """run.json says what is missing as a run begins; a value may come later, and a part may fail later."""
    absent = {
        "input_wait_ns": "recorded where the loop iterates over recorder.batches(data)",
        "loss": "nothing was seen",
        "loss_scale": "no step has run",
        "skipped": "failed while recording: RuntimeError: broken",
        "memory": "no GPU",
        "batch_size": "the input does not state it",
        "distribution": "not asked",
    }
    given = {"run_id": "r", "created_unix_ns": 5, "absent": absent, "fits": [{"fit": 1, "first_step": 1}]}
    lines = STEPS + step(1, input_wait_ns=3, loss=2.0, skipped=0)
    facts = read_records(run_with(tmp_path / "first", lines, given)).facts
    assert set(facts.absent) == set(absent) - {"input_wait_ns", "loss"}
    given["fits"] = [{"fit": 1, "first_step": 1, "batch_size": 8}]
    lines += step(2, loss_scale=8.0, memory=[{"device": "GPU:0", "peak_bytes": 5}])
    facts = read_records(run_with(tmp_path / "later", lines, given)).facts
    assert set(facts.absent) == {"skipped", "distribution"}


def _writer(folder: Path) -> tuple[writing.LineWriter, list[BaseException]]:
    said: list[BaseException] = []
    made = writing.LineWriter(
        folder / "steps.jsonl", "mpprof.steps/1", lambda path, error: said.append(error)
    )
    return made, said


def test_lines_go_into_their_own_file_where_the_descriptor_was_closed_and_used_again(tmp_path: Path) -> None:
    """Another part of the process closes what it takes for its own, and opens a file of the user's."""
    writer, said = _writer(tmp_path)
    os.close(writer._file)
    users = os.open(tmp_path / "results.csv", os.O_WRONLY | os.O_CREAT)
    if users != writer._file:
        os.dup2(users, writer._file)
    theirs = writer._file
    writer.put({"kind": "fit"})
    writer.flush()
    assert writer.close()
    os.write(theirs, b"accuracy\n")  # still open: it was not ours to close
    assert ((tmp_path / "results.csv").read_text(), said) == ("accuracy\n", [])
    assert (tmp_path / "steps.jsonl").read_text().splitlines()[1:] == ['{"kind":"fit"}']
    os.close(theirs)


def test_recording_ends_where_another_file_has_the_name(tmp_path: Path) -> None:
    writer, said = _writer(tmp_path)
    (tmp_path / "other").write_text("not ours\n")
    os.replace(tmp_path / "other", tmp_path / "steps.jsonl")
    writer.put({"kind": "fit"})
    writer.flush()
    assert writer.close()
    assert [str(error) for error in said] == [
        f"[Errno 17] another file has taken its name: '{tmp_path / 'steps.jsonl'}'"
    ]
    assert (tmp_path / "steps.jsonl").read_text() == "not ours\n"
