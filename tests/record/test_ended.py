"""How a training ended that raised: what run.json keeps of it, and what is reported of one that found no memory."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.record import StepRecorder
from mpprof.record.facts.ended import MOST_CHARACTERS, ended
from mpprof.record.fit_calls import uncaught
from mpprof.report import json as documents
from mpprof.store import read_records
from tests.builders.read_back import text as plain
from tests.cli.conftest import Mpprof
from tests.cli.conftest import mpprof as command
from tests.record.test_endings import at, fit, small
from tests.record.training import BATCH, callback, data

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


def interrupting() -> None:
    raise KeyboardInterrupt


def ends(folder: Path) -> list[str]:
    """Why the fits of a run ended, by its step log."""
    lines = map(json.loads, next(folder.rglob("steps.jsonl")).read_text().splitlines())
    return [line["reason"] for line in lines if line.get("kind") == "fit_end"]


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


@pytest.mark.parametrize(
    ("heads", "words"),
    [
        (("Detected at node PyFunc defined at (most recent call last):", "<stack traces unavailable>"),
         "RuntimeError: file 71 is corrupt"),
        (("Detected at node loss/Cross defined at (most recent call last):", '  File "a.py", line 26, in run', "",
          '  File "b.py", line 5, in fit', ""), "Received a label value of 7"),
        (("2 root error(s) found.",), "(0) INVALID_ARGUMENT: indices[0] = 99 is not in [0, 10)"),
    ],
)  # fmt: skip
def test_of_an_error_in_tensorflows_graph_its_own_words_are_kept(heads: tuple[str, ...], words: str) -> None:
    text = "\n".join(("Graph execution error:", "", *heads, words, "Traceback (most recent call last):"))
    assert ended(ValueError(text)) == {"reason": "error", "error": "ValueError", "text": words}


def test_an_error_in_the_graph_without_words_keeps_its_head() -> None:
    assert ended(ValueError("Graph execution error:\n"))["text"] == "Graph execution error:"


def test_an_exit_is_no_error(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    with pytest.raises(SystemExit), contextlib.closing(mine):
        fit(small(), 8, mine, at(5, lambda: sys.exit(3)))
    assert run_json(tmp_path)["ended"] == {"reason": "exit", "error": "SystemExit"}


@pytest.mark.parametrize(
    ("work", "told"),
    [
        (failing, {"reason": "error", "error": "ZeroDivisionError", "text": "no examples"}),
        (interrupting, {"reason": "interrupted", "error": "KeyboardInterrupt"}),
        (lambda: sys.exit(3), {"reason": "exit", "error": "SystemExit"}),
    ],
)
def test_an_error_that_the_script_catches_closes_the_run_as_it_leaves_fit(
    tmp_path: Path, work: Callable[[], Any], told: dict[str, str]
) -> None:
    mine = callback(tmp_path)
    with contextlib.suppress(ZeroDivisionError, KeyboardInterrupt, SystemExit):
        fit(small(), 8, mine, at(5, work))
    assert run_json(tmp_path)["ended"] == told
    assert ends(tmp_path) == [told["reason"]]
    with pytest.raises(ResourceExhaustedError):  # one of something else is not this fit's
        out_of_memory()
    mine.close()
    assert run_json(tmp_path)["ended"] == told


@pytest.mark.parametrize("hook", ["on_epoch_begin", "on_epoch_end", "on_test_batch_end"])
def test_an_error_between_two_steps_is_known_too(tmp_path: Path, hook: str) -> None:
    mine = callback(tmp_path)
    with contextlib.suppress(ZeroDivisionError):
        fit(small(), 8, mine, raises(hook, failing), validation_data=data(2))
    assert run_json(tmp_path)["ended"]["reason"] == "error"
    assert ends(tmp_path) == ["error"]


def test_the_end_of_the_data_is_no_error(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    x, y = data(4)
    batches = ((x[k : k + BATCH], y[k : k + BATCH]) for k in (0, BATCH))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        small().fit(batches, steps_per_epoch=4, verbose=0, callbacks=[mine])
    assert ends(tmp_path) == ["finished"]
    assert "ended" not in run_json(tmp_path)


def test_the_error_of_a_fit_within_another_is_its_own_runs(tmp_path: Path) -> None:
    outer, inner, told = callback(tmp_path / "outer"), callback(tmp_path / "inner"), []

    def train() -> None:
        with contextlib.suppress(ZeroDivisionError):
            fit(small(), 8, inner, at(2, failing))
        told.extend(ends(tmp_path / "inner"))

    fit(small(), 8, outer, at(5, train))
    assert (told, ends(tmp_path / "outer")) == (["error"], ["finished"])
    assert "ended" not in run_json(tmp_path / "outer")


def test_an_error_of_a_nested_fit_with_the_same_callback_is_not_the_outer_ones(tmp_path: Path) -> None:
    mine = callback(tmp_path)

    def train() -> None:
        with contextlib.suppress(ZeroDivisionError):
            fit(small(), 8, mine, at(2, failing))

    fit(small(), 8, mine, at(5, train))
    assert ends(tmp_path) == ["finished"]


def test_the_next_fit_tells_within_the_handler_and_one_that_ends_well_takes_it_back(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    told = []
    try:
        fit(small(), 8, mine, at(5, out_of_memory))
    except ResourceExhaustedError:
        fit(small(), 8, mine, at(1, lambda: told.append(run_json(tmp_path).get("ended"))))
    assert ends(tmp_path) == ["out_of_memory", "finished"]
    assert "ended" not in run_json(tmp_path)


def raises(hook: str, work: Callable[[], Any]) -> Any:
    """A callback of the user's that does this at each such hook."""
    import keras

    def raising(*_: Any, **__: Any) -> None:
        work()

    return type("Theirs", (keras.callbacks.Callback,), {hook: raising})()


def unwatched(*callbacks: Any) -> None:
    """A `fit` that was looked up before our callback was made."""
    made = small()
    x, y = data(8)
    fit_of_keras = type(made).fit.__wrapped__
    fit_of_keras(
        made, x, y, batch_size=BATCH, verbose=0, callbacks=list(callbacks), validation_data=(x[:8], y[:8])
    )


@pytest.mark.parametrize(
    "hook", ["on_train_batch_begin", "on_train_batch_end", "on_epoch_begin", "on_epoch_end"]
)
@pytest.mark.parametrize("order", [1, -1])
def test_an_error_of_such_a_fit_that_the_script_catches_is_known(
    tmp_path: Path, hook: str, order: int
) -> None:
    mine = callback(tmp_path)
    with contextlib.suppress(ZeroDivisionError):
        unwatched(*[mine, raises(hook, failing)][::order])
    assert run_json(tmp_path)["ended"] == {
        "reason": "error",
        "error": "ZeroDivisionError",
        "text": "no examples",
    }
    assert ends(tmp_path) == ["error"]


def test_a_fit_that_was_looked_up_before_ends_and_raises_as_it_does_without_us(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    unwatched(mine)
    assert ends(tmp_path) == ["finished"]
    assert "ended" not in run_json(tmp_path)
    made, (x, y) = small(), data(4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of data that end too early
        generated = ((x[k : k + BATCH], y[k : k + BATCH]) for k in (0, BATCH))
        type(made).fit.__wrapped__(made, generated, steps_per_epoch=4, verbose=0, callbacks=[mine])
    assert ends(tmp_path) == ["finished", "finished"]
    assert read_records(tmp_path).steps.step.tolist() == list(range(1, 11))


def test_of_a_fit_that_was_looked_up_before_our_callback_was_made_the_uncaught_error_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = callback(tmp_path)
    for _ in range(2):  # a fit that failed before is another one, and so is an error of it
        with pytest.raises(ZeroDivisionError) as seen:
            unwatched(mine, raises("on_test_batch_end", failing))
    with pytest.raises(ZeroDivisionError) as other:
        failing()
    monkeypatch.setattr(sys, "last_value", other.value, raising=False)
    call = seen.tb.tb_next.tb_frame.f_code, seen.tb.tb_next.tb_lasti
    assert uncaught(call) is None
    monkeypatch.setattr(sys, "last_value", seen.value, raising=False)
    assert uncaught(call) is seen.value
    mine.close()
    assert run_json(tmp_path)["ended"]["error"] == "ZeroDivisionError"
    assert ends(tmp_path) == ["interrupted", "error"]


def test_an_error_in_the_validation_of_such_a_fit_that_nobody_can_see_any_more_is_unknown(
    tmp_path: Path, command: Mpprof
) -> None:
    mine = callback(tmp_path)
    with pytest.raises(ZeroDivisionError):
        unwatched(mine, raises("on_test_batch_end", failing))
    try:
        out_of_memory()
    except ResourceExhaustedError:  # one of something else is not this fit's
        mine.close()
    assert run_json(tmp_path)["ended"] == {"reason": "unknown"}
    assert ends(tmp_path) == ["interrupted"]
    assert "(by what is not known)" in " ".join(command("report", tmp_path).out.split())


class Speechless(Exception):
    def __str__(self) -> str:
        raise ValueError("nothing to say")


def speechless() -> None:
    raise Speechless


def test_an_error_of_such_a_fit_that_cannot_say_what_it_is_costs_no_step(tmp_path: Path) -> None:
    with contextlib.suppress(Speechless):
        unwatched(callback(tmp_path), at(5, speechless))
    assert run_json(tmp_path).get("ended") is None
    assert ends(tmp_path) == ["interrupted"]
    assert read_records(tmp_path).steps.step.tolist() == [1, 2, 3, 4]


SCRIPT = """
import sys
from pathlib import Path
from mpprof import MPProfilerCallback
from tests.record.test_endings import at, fit, small
from tests.record.test_ended import ResourceExhaustedError, out_of_memory
from tests.record.training import callback, data
hook = sys.excepthook
if sys.argv[2] == "raised":
    try:  # `fit` is looked up before the first callback is made
        small().fit(*data(8), verbose=0, callbacks=[MPProfilerCallback(sys.argv[1] + "/caught"), at(2, out_of_memory)])
    except ResourceExhaustedError:
        pass
mine = callback(Path(sys.argv[1], "run"))
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
        pytest.param("left", "exit", marks=pytest.mark.full),
    ],
)
def test_a_script_that_nobody_catches_tells_at_its_exit(tmp_path: Path, how: str, reason: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path), how],
        capture_output=True,
        check=False,
        text=True,
    )
    assert done.returncode != 0
    for run in tmp_path.iterdir():
        assert run_json(run)["ended"]["reason"] == reason, (run.name, done.stderr[-2000:])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_error_that_ended_a_thread_is_known(tmp_path: Path) -> None:
    mine = callback(tmp_path)
    thread = threading.Thread(target=lambda: fit(small(), 8, mine, at(5, out_of_memory)))
    thread.start()
    thread.join()
    assert run_json(tmp_path)["ended"]["reason"] == "out_of_memory"


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
    assert ends(tmp_path) == ["error"]


@pytest.mark.parametrize(
    ("stop", "states", "state", "by"),
    [
        (interrupting, True, "interrupted", "by the keyboard"),
        (lambda: sys.exit(3), True, "exit", "by sys.exit"),
        (interrupting, False, "interrupted", "by what is not known"),
    ],
)
def test_a_training_that_was_broken_off_says_so_at_once(
    stop: Callable[[], Any], states: bool, state: str, by: str, tmp_path: Path, command: Mpprof
) -> None:
    """`states`: run.json says how it ended."""
    with contextlib.suppress(KeyboardInterrupt, SystemExit):  # as a notebook does
        fit(small(), 8, callback(tmp_path), at(5, stop))
    if not states:
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
