"""How a training ended that raised: what run.json keeps of it, and what is reported of one that found no memory."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.record import StepRecorder
from mpprof.record.facts.ended import MOST_CHARACTERS, ended
from mpprof.report import json as documents
from tests.builders.read_back import text as plain
from tests.cli.conftest import Mpprof
from tests.cli.conftest import mpprof as command
from tests.record.test_endings import at, fit, small
from tests.record.training import callback

__all__ = ["command"]  # a fixture
pytestmark = pytest.mark.framework

OOM = """Graph execution error: OOM when allocating tensor with shape[256,64,112,112] and type float on
/job:localhost/replica:0/task:0/device:GPU:0 by allocator GPU_0_bfc [[{{node model/conv/Conv2D}}]]
Allocator (GPU_0_bfc) ran out of memory trying to allocate 784.00MiB (rounded to 822083584) requested by op model/conv
Limit:                     15500000000
InUse:                     15000000000
"""


class ResourceExhaustedError(Exception):
    """As TensorFlow names it."""


def out_of_memory() -> None:
    raise ResourceExhaustedError(OOM)


def failing() -> None:
    raise ZeroDivisionError("no examples\na secret of the data")


def run_json(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(next(folder.rglob("run.json")).read_text())
    return found


def test_close_while_the_error_is_handled_keeps_it(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    try:
        fit(small(), 8, mine, at(5, out_of_memory))
    except ResourceExhaustedError:
        mine.close()
    assert run_json(tmp_path)["ended"]["reason"] == "out_of_memory"
    assert "InUse:" in run_json(tmp_path)["ended"]["error"]


def test_of_another_error_the_type_and_its_first_line_are_kept(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    with pytest.raises(ZeroDivisionError), contextlib.closing(mine):
        fit(small(), 8, mine, at(5, failing))
    assert run_json(tmp_path)["ended"] == {
        "reason": "error",
        "error": "ZeroDivisionError",
        "text": "no examples",
    }


def test_an_exit_is_no_error(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    with pytest.raises(SystemExit), contextlib.closing(mine):
        fit(small(), 8, mine, at(5, lambda: sys.exit(3)))
    assert run_json(tmp_path)["ended"] == {"reason": "exit", "error": "SystemExit"}


def test_an_error_that_nobody_can_see_any_more_is_unknown(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fit(small(), 8, mine, at(5, failing))
    mine.close()
    assert run_json(tmp_path)["ended"] == {"reason": "unknown"}


def test_an_error_of_something_else_is_not_this_fits(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    with pytest.raises(ZeroDivisionError):
        fit(small(), 8, mine, at(5, failing))
    try:
        raise ResourceExhaustedError(OOM)
    except ResourceExhaustedError:
        mine.close()
    assert run_json(tmp_path)["ended"] == {"reason": "unknown"}


def test_the_next_fit_tells_within_the_handler_and_one_that_ends_well_takes_it_back(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    told = []
    try:
        fit(small(), 8, mine, at(5, out_of_memory))
    except ResourceExhaustedError:
        fit(small(), 8, mine, at(1, lambda: told.append(run_json(tmp_path).get("ended"))))
    lines = [json.loads(line) for line in next(tmp_path.rglob("steps.jsonl")).read_text().splitlines()]
    assert [line["reason"] for line in lines if line.get("kind") == "fit_end"] == [
        "out_of_memory",
        "finished",
    ]
    assert "ended" not in run_json(tmp_path)


SCRIPT = """
import sys
from pathlib import Path
from tests.record.test_endings import at, fit, small
from tests.record.test_ended import out_of_memory
from tests.record.training import callback
hook = sys.excepthook
mine = callback(Path(sys.argv[1]))
if sys.argv[2] == "raised":
    assert sys.excepthook is hook
    fit(small(), 8, mine, at(5, out_of_memory))
if sys.argv[2] == "left":
    fit(small(), 8, mine, at(5, lambda: sys.exit(3)))
fit(small(), 8, mine, at(5, lambda: (_ for _ in ()).throw(KeyboardInterrupt)))
"""


@pytest.mark.parametrize(
    ("how", "reason"),
    [
        ("raised", "out_of_memory"),
        pytest.param("stopped", "interrupted", marks=pytest.mark.full),
        pytest.param("left", "unknown", marks=pytest.mark.full),
    ],
)
def test_a_script_that_nobody_catches_tells_at_its_exit(tmp_path: Path, how: str, reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "run"), how],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode != 0
    assert run_json(tmp_path)["ended"]["reason"] == reason, done.stderr[-2000:]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
@pytest.mark.parametrize("closing", [True, False])
def test_an_error_that_ended_a_thread_is_known_to_a_with_statement_alone(
    tmp_path: Path, *, closing: bool
) -> None:
    mine = callback(tmp_path)

    def train() -> None:
        with contextlib.closing(mine) if closing else contextlib.nullcontext():
            fit(small(), 8, mine, at(5, out_of_memory))

    thread = threading.Thread(target=train)
    thread.start()
    thread.join()
    mine.close()
    assert run_json(tmp_path)["ended"]["reason"] == ("out_of_memory" if closing else "unknown")


def test_a_recorder_of_a_loop_keeps_it_too(tmp_path: Path) -> None:
    with (
        pytest.raises(ResourceExhaustedError),
        StepRecorder(tmp_path, hardware=False, profile_steps=None, verbose=0, backend="none") as recorder,
        recorder.step(),
    ):
        out_of_memory()
    assert run_json(tmp_path)["ended"]["reason"] == "out_of_memory"


def test_a_long_text_is_cut_and_a_wrapped_error_is_found() -> None:
    try:
        try:
            raise ResourceExhaustedError(OOM + "x" * MOST_CHARACTERS)
        except ResourceExhaustedError as error:
            raise RuntimeError("training failed") from error
    except RuntimeError as error:
        told = ended(error)
    assert told["reason"] == "out_of_memory"
    assert len(told["error"]) == MOST_CHARACTERS


def test_report_and_memory_say_what_filled_the_card_and_what_to_try(tmp_path: Path, command: Mpprof) -> None:
    mine = callback(tmp_path)
    try:
        fit(small(), 8, mine, at(5, out_of_memory))
    except ResourceExhaustedError:
        mine.close()
    document = documents.document(workflows.diagnose(workflows.load(tmp_path)))
    assert document["run"]["ended"]["reason"] == "out_of_memory"
    failed = document["out_of_memory"]
    assert (failed["asked_bytes"], failed["limit_bytes"]) == (822083584, 15500000000)
    assert any("instead of" in each["text"] for each in failed["advice"])
    assert any(each["cause"] == "elsewhere" for each in failed["advice"])
    said = plain.render(document)
    assert "It ran out of memory" in said
    assert "784 MiB did not fit" in said
    done = command("memory", tmp_path)
    assert done.code == 0
    assert done.out.startswith("784 MiB did not fit on GPU_0_bfc")
    assert "What to try" in done.out


def test_a_run_that_an_error_ended_fails_a_gate_and_says_so_everywhere(
    tmp_path: Path, command: Mpprof
) -> None:
    with pytest.raises(ZeroDivisionError), contextlib.closing(callback(tmp_path)) as mine:
        fit(small(), 8, mine, at(5, failing))
    assert command("report", tmp_path, "--fail-on", "error").code == 1
    assert command("report", tmp_path, "--fail-on", "MP101", "--allow-unable").code == 0
    for given in ((), ("-v",), ("--format", "markdown"), ("--format", "html")):
        assert "ZeroDivisionError: no examples" in " ".join(command("report", tmp_path, *given).out.split())
    assert "failed: ZeroDivisionError" in command("ls", tmp_path).out
    lines = next(tmp_path.rglob("steps.jsonl")).read_text().splitlines()
    assert [each["reason"] for each in map(json.loads, lines) if each.get("kind") == "fit_end"] == ["error"]


def interrupting() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("stop", "within", "state", "by"),
    [
        (interrupting, True, "interrupted", "by the keyboard"),
        (lambda: sys.exit(3), True, "exit", "by sys.exit"),
        (failing, False, "interrupted", "by what is not known"),
        (interrupting, None, "interrupted", "by what is not known"),
    ],
)
def test_a_training_that_was_broken_off_says_so_at_once(
    stop: Callable[[], Any], within: bool | None, state: str, by: str, tmp_path: Path, command: Mpprof
) -> None:
    """`within`: it is closed while the exception is handled. None: run.json does not say how it ended."""
    mine = callback(tmp_path)
    try:
        fit(small(), 8, mine, at(5, stop))
    except (KeyboardInterrupt, SystemExit, ZeroDivisionError):  # as a notebook does
        if within:
            mine.close()
    mine.close()
    if within is None:
        file = next(tmp_path.rglob("run.json"))
        file.write_text(
            json.dumps({key: value for key, value in run_json(tmp_path).items() if key != "ended"})
        )
    first = " ".join(command("report", tmp_path).out.split())
    steps = len(
        [line for line in next(tmp_path.rglob("steps.jsonl")).read_text().splitlines() if '"step",' in line]
    )
    assert f"! training was broken off after step {steps} ({by})" in first
    document = json.loads(command("report", tmp_path, "--format", "json").out)
    assert "MP913" not in {found["code"] for found in document["findings"]}
    assert [row["state"] for row in json.loads(command("ls", tmp_path, "--format", "json").out)] == [state]
    assert state in command("ls", tmp_path).out.split()
