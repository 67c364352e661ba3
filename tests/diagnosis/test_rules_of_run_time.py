"""Rules that rest on what the records timed: input, callbacks and compiles, of fits that were played."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import mpprof
from mpprof.analysis.steps import statistics as stepping
from mpprof.analysis.steps.run_time import run_time
from mpprof.analysis.steps.stalls import LOADER
from mpprof.diagnosis.signals import Case
from mpprof.model.account import Account
from mpprof.model.finding import Diagnosis
from mpprof.model.run import Run
from mpprof.report import json as documents
from mpprof.report import text
from mpprof.runs.loading import load
from tests.builders import cases as c
from tests.builders import played_fit
from tests.builders.played_fit import MS, Hook, Play, play
from tests.diagnosis.saying import finding, says

SLOW = Hook("Slow", batch_end=30)


def case(given: Play, folder: Path, account: Account | None = None) -> Case:
    run = load(play(replace(given, epochs=1, calls=100), folder).root)
    steps = stepping.summarise(run.steps, run.facts, finished=True)
    assert steps is not None
    if given.backend == "jax" and given.waits is None:
        steps = replace(steps, mean_ns=_mean(given) * MS, first_steady=2)
    return c.case(account=account, run=run, steps=steps)


def _mean(given: Play) -> float:
    return (
        given.call + given.loop + given.batch + sum(hook.batch_end / hook.every for hook in given.callbacks)
    )


# --- MP301 input-bound


def test_a_loader_that_blocks_torch_on_the_host_is_found(tmp_path: Path) -> None:
    got = finding("MP301", case(Play(backend="torch", batch=40), tmp_path))
    assert got.severity == "error"
    assert got.cost_ns_per_step == pytest.approx(40 * MS, rel=0.02)  # an epoch's first fetch is out
    assert got.summary.startswith("training waits 39.6 ms a step for input")


def test_a_wait_of_all_steps_is_not_lessened_by_profiled_steps_that_waited_less(tmp_path: Path) -> None:
    """Where the device does not run behind, the host's wait is the wait."""
    account = c.account(c.cell("idle_input", 2), c.cell("idle_between_steps", 3), c.healthy(95))
    got = finding("MP301", case(Play(backend="torch", batch=40), tmp_path, account))
    assert got.cost_ns_per_step == pytest.approx(40 * MS, rel=0.02)
    assert got.severity == "error"


def test_a_quick_loader_is_clear_where_its_wait_was_recorded(tmp_path: Path) -> None:
    assert says("MP301", case(Play(backend="torch"), tmp_path)) == "clear"


@pytest.mark.parametrize(("batch_us", "expected"), [(60, "clear"), (160, "error")])
def test_what_keras_takes_to_hand_out_a_batch_in_memory_is_no_input_bound(
    batch_us: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of steps of 0.3 ms, as of a small model on a CPU."""
    monkeypatch.setattr(played_fit, "MS", 1_000)
    quick = case(Play(backend="torch", call=200, batch=batch_us, loop=1), tmp_path)
    assert says("MP301", quick) == expected


def test_an_old_log_of_torch_and_one_of_tensorflow_without_a_trace_are_unable(tmp_path: Path) -> None:
    old = says("MP301", case(Play(backend="torch", batch=40, old=True), tmp_path / "old"))
    assert old.startswith(
        "unable: the wait for input was not measured separately: recorded by an mpprof that"
    )
    why = {"run_time.input": "Keras' names are not those that are known here"}
    unnamed = says("MP301", case(Play(backend="torch", absent=why), tmp_path / "unnamed"))
    assert unnamed.endswith(why["run_time.input"])
    assert "unable" in says("MP301", case(Play(backend="tensorflow", batch=40), tmp_path / "tensorflow"))


def test_where_the_device_runs_behind_a_blocked_host_is_a_cause_only_if_the_device_idled(
    tmp_path: Path,
) -> None:
    blocked = Play(backend="jax", batch=40)
    alone = says("MP301", case(blocked, tmp_path / "alone"))
    assert alone.startswith("unable: the host waits for input")
    assert "only a trace shows whether the device idles meanwhile" in alone
    idle = c.account(c.cell("idle_between_steps", 70), c.healthy(30))
    got = finding("MP301", case(blocked, tmp_path / "idle", idle))
    assert got.severity == "error"
    assert got.cost_ns_per_step == pytest.approx(40 * MS, rel=0.03)  # as much as was waited, of 70 ms
    assert says("MP301", case(blocked, tmp_path / "busy", c.account(c.healthy(100)))) == "clear"


def test_without_a_trace_a_blocked_host_is_a_cause_where_it_does_not_wait_for_the_device(
    tmp_path: Path,
) -> None:
    """A device that takes longer than the host is waited for every 16 calls: 16 times what it lacks."""
    keeps_up = Play(backend="jax", batch=100, waits=2)
    got = finding("MP301", case(keeps_up, tmp_path / "keeps up"))
    assert (got.severity, got.confidence) == ("error", "medium")
    assert got.cost_ns_per_step == pytest.approx(100 * MS, rel=0.02)
    behind = says("MP301", case(replace(keeps_up, waits=16 * 200), tmp_path / "behind"))
    assert behind.startswith("unable: the host waits for input")
    found = mpprof.diagnose(
        mpprof.load(play(replace(keeps_up, epochs=1, calls=100), tmp_path / "leads").root)
    )
    assert (found.answer.leads, found.answer.code) == ("time", "MP301")
    assert found.answer.sentence == "The GPU waits for data 99 of each 111 ms step."


def test_waits_for_the_device_in_calls_that_have_no_time_are_not_taken_for_none(tmp_path: Path) -> None:
    """Of 17 calls an epoch the last one waits, and nobody knows how long it took."""
    given = Play(backend="jax", batch=100, waits=16 * 200, epochs=20, calls=17)
    found = mpprof.diagnose(mpprof.load(play(given, tmp_path).root))
    assert "MP301" not in {each.code for each in found.findings}
    (why,) = (each.reason for each in found.unable if each.code == "MP301")
    assert "only a trace shows whether the device idles meanwhile" in why


@pytest.mark.parametrize("waits", [2, 40])
def test_bursts_of_a_loader_on_jax_are_found_and_said_though_steps_are_timed_in_groups(
    waits: int, tmp_path: Path
) -> None:
    """Of 16 steps, as many as are timed together, two wait: no group differs from another."""
    bursts = Play(backend="jax", epochs=1, calls=200, burst=(8, 1900), workers=8, waits=waits)
    found = mpprof.diagnose(mpprof.load(play(bursts, tmp_path).root))
    assert (found.answer.leads, found.answer.code) == ("time", "MP301")
    (said,) = [said for said in found.warnings if said.startswith("mean ")]
    assert said.endswith("every 8th step takes 1.91 s on the host: it waits for the loader")


def test_a_recorded_loop_that_waits_now_and_then_says_one_thing(tmp_path: Path) -> None:
    bursts = Play(backend="loop", epochs=1, calls=200, call=2, burst=(8, 320))
    found = mpprof.diagnose(mpprof.load(play(bursts, tmp_path).root))
    assert (found.answer.leads, found.answer.code) == ("time", "MP301")
    (said,) = [said for said in found.warnings if said.startswith("mean ")]
    assert said.endswith("every 8th step takes 323 ms: it waits for the loader")


def test_what_comes_as_often_as_the_workers_deliver_is_the_loader(tmp_path: Path) -> None:
    """On TensorFlow without a trace: the warning and the rule say the same."""
    bursts = Play(epochs=1, calls=200, call=2, burst=(8, 320))
    for workers in (8, 5):
        root = play(replace(bursts, workers=workers), tmp_path / str(workers)).root
        found, is_loader = mpprof.diagnose(mpprof.load(root)), workers == 8
        (said,) = [said for said in found.warnings if said.startswith("mean ")]
        assert ("every 8th step takes 323 ms: it waits for the loader" in said) == is_loader
        assert ("loader" in said) == is_loader == (found.answer.code == "MP301")
        assert ("MP301" in {each.code for each in found.unable}) != is_loader


def test_a_loaders_stalls_count_on_jax_though_no_profiled_step_holds_one(tmp_path: Path) -> None:
    """What the profiled steps lack of the mean step was no work of the device, and no profiler adds it."""
    stalls = c.account(c.cell("idle_stall", 70), c.healthy(30))
    got = finding("MP301", case(Play(backend="jax", batch=40), tmp_path, stalls))
    assert got.cost_ns_per_step == pytest.approx(40 * MS, rel=0.03)


def test_stalls_of_no_known_cause_leave_it_open_whether_they_wait_for_input(tmp_path: Path) -> None:
    cells = {None: "unable", "runs Slow": "clear", LOADER: "error"}
    for cause, said in cells.items():
        stalls = c.account(c.cell("idle_stall", 40, cause=cause), c.healthy(60))
        assert says("MP301", case(Play(), tmp_path / said, stalls)).startswith(said)


def test_a_window_that_profiling_distorted_tells_of_steps_without_stalls(tmp_path: Path) -> None:
    """Of 4 ms of a profiled step 2 are idle for input; an unprofiled one takes 1 ms, and 16 with its stalls."""
    cells = (c.cell("idle_input", 2), c.healthy(2), c.cell("idle_stall", 15), c.cell("profiling", -3))
    account = c.account(*cells, window_ns=4.0 * MS, usual_ns=1.0 * MS, step_ns=16.0 * MS)
    assert says("MP301", case(Play(), tmp_path, account)).startswith("unable: stalls of no known cause")
    cells = (c.cell("idle_input", 2), c.healthy(2), c.cell("idle_stall", 15, cause=LOADER), cells[-1])
    account = c.account(*cells, window_ns=4.0 * MS, usual_ns=1.0 * MS, step_ns=16.0 * MS)
    got = finding("MP301", case(Play(), tmp_path / "loader", account))
    assert got.severity == "error"
    assert 15 * MS <= got.cost_ns_per_step <= 16 * MS  # of an unprofiled step, in which stalls are


def test_a_window_of_shorter_steps_tells_the_least_of_the_wait_and_clears_nothing(tmp_path: Path) -> None:
    """A loader works ahead while the profiler starts: profiled steps of 20 ms, the others of 60."""
    for waited, said in ((4, "warning"), (0, "unable: profiled steps wait for input 0 % of the step, but")):
        cells = (c.cell("idle_input", waited), c.healthy(20 - waited), c.cell("profiling", 40))
        account = c.account(*cells, window_ns=20.0 * MS, usual_ns=60.0 * MS, step_ns=60.0 * MS)
        played = case(Play(), tmp_path / str(waited), account)
        assert says("MP301", played).startswith(said)
        if waited:
            got = finding("MP301", played)
            assert "waits for data 4.0 to 44.0 of each 60.0 ms step" in got.summary
            assert (got.confidence, got.gain_ns_per_step) == ("low", None)


def test_idle_time_between_steps_of_jax_is_not_cleared_where_the_wait_was_not_recorded(
    tmp_path: Path,
) -> None:
    old = replace(Play(backend="jax", batch=40), old=True)
    idle = c.account(c.cell("idle_between_steps", 70), c.healthy(30))
    said = says("MP301", case(old, tmp_path, idle))
    assert said.startswith("unable: the device idles 70.0 % of the step between steps")
    assert says("MP301", case(old, tmp_path / "busy", c.account(c.healthy(100)))) == "clear"


def test_of_fits_too_short_for_a_steady_step_it_is_not_said_that_there_is_no_log() -> None:
    table = replace(c.steps(320), fit=np.repeat(np.arange(1, 41), 8))
    short = c.case(
        records=c.facts(framework={"keras": "3.15.1", "backend": "jax"}),
        account=c.account(c.cell("idle_between_steps", 70), c.healthy(30)),
        table=table,
        steps=replace(c.summary(table, steady=0), first_steady=None),
    )
    assert says("MP301", short).endswith("that wait was not recorded: no recorded step is a steady one")


# --- MP305 slow-callbacks


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_slow_callback_is_found_by_its_name(backend: str, tmp_path: Path) -> None:
    quick = Hook("Quick", batch_end=1)
    got = finding("MP305", case(Play(backend=backend, callbacks=(quick, SLOW)), tmp_path))
    assert got.summary.startswith("Slow takes 30.0 ms a step")
    assert got.cost_ns_per_step == pytest.approx(31 * MS, rel=0.05)
    assert (got.severity, got.confidence) == ("error", "high")


@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_checkpoint_every_five_steps_counts_though_the_median_gap_is_short(
    backend: str, tmp_path: Path
) -> None:
    saves = Hook("ModelCheckpoint", batch_end=100, every=5)
    got = finding("MP305", case(Play(backend=backend, callbacks=(saves,)), tmp_path))
    assert got.cost_ns_per_step == pytest.approx(20 * MS, rel=0.06)
    assert "ModelCheckpoint takes" in got.summary


def test_what_callbacks_take_is_of_the_steps_that_the_step_time_is_the_mean_of(tmp_path: Path) -> None:
    """On JAX the steps behind the epoch's last wait for the device have no time: their checkpoint is in no
    mean step."""
    saves = Hook("ModelCheckpoint", batch_end=400, every=50)
    got = finding("MP305", case(Play(backend="jax", waits=0, callbacks=(saves,)), tmp_path))
    assert got.cost_ns_per_step == pytest.approx(400 / 80 * MS, rel=0.01)  # steps 17 to 96
    assert got.summary.startswith("ModelCheckpoint takes 5.00 ms a step, 31.2 %")


def test_what_a_callback_sets_up_in_the_warm_up_of_a_later_fit_is_in_no_mean_step(tmp_path: Path) -> None:
    run = load(play(Play(backend="jax", waits=0, epochs=1, calls=100, fits=2), tmp_path).root)
    assert run.spans is not None
    spent = run.spans.spent
    at = spent.rows("callbacks", ("batch",)) & (spent.fit == 2)
    assert at.sum() == 1
    second = np.where(at, 102, spent.first_step)
    slow = replace(spent, ns=np.where(at, 900 * MS, spent.ns), first_step=second, last_step=second)
    run = replace(run, spans=replace(run.spans, spent=slow))
    steps = stepping.summarise(run.steps, run.facts, finished=True)
    assert says("MP305", c.case(run=run, steps=steps)) == "clear"


def test_of_two_slow_callbacks_no_one_is_said_to_take_the_time_of_both(tmp_path: Path) -> None:
    other = Hook("Other", batch_end=25)
    got = finding("MP305", case(Play(callbacks=(SLOW, other)), tmp_path / "both"))
    assert got.said == "callbacks, most of all `Slow`, take[ {time}]"
    assert got.cost_ns_per_step == pytest.approx(56 * MS, rel=0.05)
    assert got.summary.startswith("Slow takes 30.0 ms a step")  # its own
    alone = finding("MP305", case(Play(callbacks=(SLOW, Hook("Quick", batch_end=1))), tmp_path / "alone"))
    assert alone.said == "`Slow` takes[ {time}]"


def test_a_checkpoint_has_the_stalls_of_the_account(tmp_path: Path) -> None:
    saves = Hook("ModelCheckpoint", batch_end=100, every=5)
    stalls = c.account(c.cell("idle_stall", 25), c.cell("idle_between_steps", 1), c.healthy(74))
    got = finding("MP305", case(Play(callbacks=(saves,)), tmp_path, stalls))
    assert got.cost_ns_per_step == pytest.approx(20 * MS, rel=0.08)
    assert {part.category for part in got.claimed} == {"idle_stall", "idle_between_steps"}


def test_callbacks_that_were_not_timed_are_found_by_the_gap_and_else_not_cleared(tmp_path: Path) -> None:
    got = finding("MP305", case(Play(old=True, callbacks=(SLOW,)), tmp_path / "behind"))
    assert "in callbacks and the loop" in got.summary
    assert got.cost_ns_per_step == pytest.approx(31 * MS, rel=0.05)
    quiet = says("MP305", case(Play(old=True, call=100, loop=0), tmp_path / "before"))
    assert quiet.startswith(
        "unable: between steps lies 0 % of the step; callbacks that stand before mpprof's"
    )
    assert (
        says("MP305", case(Play(call=100, callbacks=(Hook("Quick", batch_end=1),)), tmp_path / "new"))
        == "clear"
    )
    told = {"run_time.callbacks": "a loop of the user's own has no callbacks"}  # as its recorder writes
    quick = case(Play(backend="loop", call=100, loop=0, absent=told), tmp_path / "loop")
    assert says("MP305", quick) == "clear"


def test_of_a_loop_that_took_its_batches_by_itself_the_wait_for_them_is_said_to_be_in_it(
    tmp_path: Path,
) -> None:
    slow = Play(backend="loop", loop=30)
    assert finding("MP305", case(slow, tmp_path / "known")).said == "the loop between steps takes[ {time}]"
    found = replace(case(slow, tmp_path / "own"), run=_without_waits(tmp_path / "own"))
    assert finding("MP305", found).said == "the loop between steps and its wait for data take[ {time}]"
    assert finding("MP305", found).summary.endswith("in the loop and its wait for data")
    times = run_time(found.run)
    assert times is not None
    named = {part.name: [each.name for each in part.by] for part in times.parts}
    assert (named["steps"][0], named["loop"]) == ("steps", ["loop and the wait for its input"])


def test_what_lies_between_synchronous_steps_costs_all_its_time_though_the_trace_tells_only_a_part(
    tmp_path: Path,
) -> None:
    """The rest is idle time of no known cause; work that is queued may hide as much on JAX."""
    idle = c.account(c.cell("idle_between_steps", 18), c.cell("idle_other", 50), c.healthy(32))
    for backend, cost in (("loop", 30), ("jax", 18)):
        given = Play(
            backend=backend,
            loop=30 if backend == "loop" else 0,
            callbacks=() if backend == "loop" else (SLOW,),
        )
        got = finding("MP305", case(given, tmp_path / backend, idle))
        assert got.cost_ns_per_step == pytest.approx(cost * MS, rel=0.02)


def test_what_a_loop_does_on_the_host_within_its_steps_is_said_where_the_device_idles(tmp_path: Path) -> None:
    """A step's function that sleeps, where the device runs behind: the records have the sleep in the step."""
    idle = c.account(c.cell("idle_between_steps", 90), c.healthy(10))
    got = finding("MP305", case(Play(backend="loop", call=99, loop=1), tmp_path / "loop", idle))
    assert got.said == "the loop's own code on the host takes[ {time}]"
    assert got.cost_ns_per_step == pytest.approx(90 * MS, rel=0.01)
    assert "out of the step's function" in got.remedy
    busy = c.account(c.cell("idle_between_steps", 1), c.healthy(99))
    assert says("MP305", case(Play(backend="loop", call=99, loop=1), tmp_path / "busy", busy)) == "clear"


def _without_waits(folder: Path) -> Run:
    """A run whose loop does not iterate over `recorder.batches`."""
    steps, facts = (folder / "mpprof" / name for name in ("steps.jsonl", "run.json"))
    lines = map(json.loads, steps.read_text().splitlines())
    waits = "input_wait_ns"
    steps.write_text(
        "".join(f"{json.dumps({k: v for k, v in one.items() if k != waits})}\n" for one in lines)
    )
    told = json.loads(facts.read_text())
    told["absent"] |= {waits: "recorded where the loop iterates over recorder.batches(data)"}
    facts.write_text(json.dumps(told))
    return load(folder)


def test_the_wait_for_input_before_a_call_is_no_callbacks(tmp_path: Path) -> None:
    assert says("MP305", case(Play(backend="torch", batch=40, call=100), tmp_path / "torch")) == "clear"
    assert says("MP305", case(Play(backend="loop", batch=40, call=100), tmp_path / "loop")) == "clear"


def without_spent(folder: Path, given: Play, *, killed: bool) -> Case:
    """A log without the lines of what was spent; `killed`: it also ends before an epoch does."""
    made = case(given, folder)
    path = folder / "mpprof" / "steps.jsonl"
    left_out = {"spent", "epoch", "fit_end"} if killed else {"spent"}
    lines = [line for line in path.read_text().splitlines() if json.loads(line).get("kind") not in left_out]
    path.write_text("".join(f"{line}\n" for line in lines))
    return replace(made, run=load(folder))


@pytest.mark.parametrize(
    ("killed", "why"),
    [(False, "an mpprof that did not time it"), (True, "the log ends before its first line")],
)
def test_what_a_log_does_not_say_was_spent_is_no_zero(tmp_path: Path, killed: bool, why: str) -> None:
    made = without_spent(tmp_path, Play(loop=0), killed=killed)
    assert says("MP305", made).startswith("unable")
    times = run_time(made.run)
    assert times is not None
    assert not {"callbacks", "compile", "input"} & {part.name for part in times.parts}
    assert why in times.absent["callbacks"]
    assert sum(part.ns for part in times.parts) + times.unknown_ns == times.wall_ns


def test_callbacks_of_a_list_of_the_users_own_are_not_timed_by_our_own_hooks(tmp_path: Path) -> None:
    why = {"run_time.callbacks": "this CallbackList was made before"}
    assert says("MP305", case(Play(loop=0, absent=why), tmp_path)).endswith(why["run_time.callbacks"])


# --- MP902 recompiles


def compiled(folder: Path, given: Play, name: str, rows: dict[int, int | None]) -> Case:
    """A training whose steps were compiled as well, by step; ms, None where only counted."""
    made = case(given, folder)
    path = folder / "mpprof" / "steps.jsonl"
    lines = [
        {
            "kind": "spent", "part": "compile", "name": name, "at": "batch", "fit": 1, "first_step": step,
            "last_step": step, "calls": 1, **({} if ms is None else {"ns": ms * MS}),
        }
        for step, ms in rows.items()
    ]  # fmt: skip
    path.write_text(path.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    return replace(made, run=load(folder))


def test_compiles_that_come_back_are_found_with_their_time(tmp_path: Path) -> None:
    each_fourth = dict.fromkeys(range(1, 101, 4), 30)
    got = finding("MP902", compiled(tmp_path / "often", Play(backend="jax", call=40), "jax", each_fourth))
    assert got.severity == "warning"
    assert got.cost_ns_per_step == pytest.approx(24 * 30 * MS / 99)  # the first step's is warm-up
    assert "24" in str([each.value for each in got.evidence])
    once = compiled(tmp_path / "once", Play(backend="jax", call=40), "jax", {1: 900, 50: 30})
    assert says("MP902", once) == "clear"


def test_tracings_that_are_only_counted_are_a_cause_of_the_long_steps_beside_them(tmp_path: Path) -> None:
    stalls = Hook("tracing", batch_end=900, every=25)
    slow = Play(callbacks=(stalls,))
    traced = compiled(tmp_path / "traced", slow, "tensorflow tracing", dict.fromkeys((1, 26, 51, 76), None))
    got = finding("MP902", traced)
    assert got.confidence == "medium"
    assert got.summary.startswith("the step was traced 3 times anew")
    assert says("MP902", case(slow, tmp_path / "untold")).startswith("unable")


@pytest.mark.parametrize("every", [25, 60])  # in 100 steps three, or a single one
@pytest.mark.parametrize(("jit", "said"), [(True, "unable"), (False, "clear")])
def test_where_xla_compiles_that_nothing_was_traced_anew_tells_nothing(
    jit: bool, said: str, every: int, tmp_path: Path
) -> None:
    stalls = Play(callbacks=(Hook("compiles", batch_end=900, every=every),))
    made = compiled(tmp_path, stalls, "tensorflow tracing", {1: None})
    assert made.run.facts is not None
    fits = tuple(replace(fit, jit_compile=jit) for fit in made.run.facts.fits)
    run = replace(made.run, facts=replace(made.run.facts, fits=fits))
    assert says("MP902", replace(made, run=run)).partition(":")[0] == said


# --- what no step's time holds

EPOCHS = Play(epochs=5, calls=40)
OUTSIDE = {
    "epoch end": (replace(EPOCHS, callbacks=(Hook("Slow", epoch_end=500),)), "MP305", "`Slow` takes 2.50 s"),
    "epoch begin": (replace(EPOCHS, callbacks=(Hook("Slow", epoch_begin=500),)), "MP305", "`Slow` takes 2.50 s"),
    "first batch": (replace(EPOCHS, first_batch=400), "MP301", "The first batches of epochs take 1.60 s"),
    "each fit": (
        replace(EPOCHS, epochs=1, fits=5, compile=900), "MP902",
        "Compiling anew in 4 later fits or epochs takes 3.60 s",
    ),
    "each fit's begin": (
        replace(EPOCHS, epochs=1, fits=5, callbacks=(Hook("Board", train_begin=300),)), "MP305",
        "`Board` takes 1.20 s",  # not of the first
    ),
}  # fmt: skip


def judged(given: Play, folder: Path) -> Diagnosis:
    return mpprof.diagnose(mpprof.load(play(given, folder).root))


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
@pytest.mark.parametrize("name", OUTSIDE)
def test_what_takes_much_of_the_run_leads_though_no_steps_time_holds_it(
    name: str, backend: str, tmp_path: Path
) -> None:
    given, code, said = OUTSIDE[name]
    report = judged(replace(given, backend=backend), tmp_path)
    if backend == "tensorflow" and code != "MP305":  # neither fetches nor compiles are timed there
        assert report.answer.code != code
        return
    assert (report.answer.leads, report.answer.code) == ("time", code)
    assert report.answer.sentence.startswith(said)
    times = run_time(report.run)
    (found,) = (each for each in report.findings if each.code == code)
    share = times.share(found.cost_ns_of_run)
    assert f"outside the steps, {100 * share:.1f} % of the run without mpprof" in report.answer.sentence
    assert found.severity == "error"
    shown = " ".join(text.render(documents.report(report), width=200).split())
    cost = f"s outside the steps ({100 * share:.1f} % of the run without mpprof) [error"
    assert cost in shown or found.cost_ns_per_step


def test_what_mpprof_itself_takes_lessens_no_share_of_the_run(tmp_path: Path) -> None:
    """In a short run, profiling and the verdict take most of the wall time."""
    given = replace(EPOCHS, callbacks=(Hook("Slow", epoch_end=500),), window=(10, 12, 3000, 3000))
    played = play(given, tmp_path)
    rest = played.wall - played.truth["profiler"] - played.by_name["mpprof"]
    assert rest < played.wall / 1.9
    report = mpprof.diagnose(mpprof.load(played.root))
    assert f"outside the steps, {100 * 2500 / rest:.1f} % of the run without" in report.answer.sentence


def test_what_happens_once_as_the_first_fit_begins_leads_nothing(tmp_path: Path) -> None:
    once = replace(
        EPOCHS, epochs=1, first_batch=900, compile=900, callbacks=(Hook("Board", train_begin=900),)
    )
    for backend in ("tensorflow", "torch"):
        report = judged(replace(once, backend=backend), tmp_path / backend)
        assert not any(each.cost_ns_of_run for each in report.findings)


def test_of_a_callback_in_steps_and_outside_them_the_larger_part_is_said(tmp_path: Path) -> None:
    both = Hook("Slow", batch_end=10, epoch_end=50)
    report = judged(replace(EPOCHS, callbacks=(both,)), tmp_path / "steps")
    assert re.fullmatch("`Slow` takes 11.. of each 21.. ms step.", report.answer.sentence)
    both = Hook("Slow", batch_end=5, epoch_end=500)
    report = judged(replace(EPOCHS, callbacks=(both,)), tmp_path / "epochs")
    assert report.answer.sentence.startswith("`Slow` takes 2.50 s outside the steps")
    (found,) = (each for each in report.findings if each.code == "MP305")
    assert found.cost_ns_per_step == pytest.approx(6 * MS, rel=0.01)


@pytest.mark.parametrize("backend", ["tensorflow", "jax", "torch"])
def test_a_validation_is_no_fault_and_is_said_where_it_takes_much_of_the_run(
    backend: str, tmp_path: Path
) -> None:
    report = judged(replace(EPOCHS, backend=backend, validation=400), tmp_path)
    assert report.answer.leads != "time"
    times = run_time(report.run)
    share = 100 * times.share(times.part("validation").ns)
    assert (
        f"Validation took 2.00 s, {share:.1f} % of the run without mpprof, which is in no step's time."
        in report.answer.because
    )


def test_a_step_that_each_fit_traces_anew_is_found_by_the_first_calls(tmp_path: Path) -> None:
    """TensorFlow tells how often it traced, and not for how long."""
    given = replace(EPOCHS, epochs=1, fits=5, first_call=900)
    folder = play(given, tmp_path).root
    assert "MP902" not in {each.code for each in mpprof.diagnose(mpprof.load(folder)).findings}
    path = folder / "mpprof" / "steps.jsonl"
    lines = [
        {
            "kind": "spent", "part": "compile", "name": "tensorflow tracing", "at": "batch", "fit": fit,
            "first_step": 40 * fit - 39, "last_step": 40 * fit, "calls": 1,
        }
        for fit in range(1, 6)
    ]  # fmt: skip
    path.write_text(path.read_text() + "".join(json.dumps(line) + "\n" for line in lines))
    report = mpprof.diagnose(mpprof.load(folder))
    assert (report.answer.leads, report.answer.code) == ("time", "MP902")
    (found,) = (each for each in report.findings if each.code == "MP902")
    assert (found.confidence, found.cost_ns_of_run) == ("medium", 4 * 910 * MS)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            replace(EPOCHS, first_batch=400),
            r"The first calls of 4 epochs took 1\.60 s above a usual step, 38.0 % of the run without mpprof; "
            "whether for input is not known.",
        ),
        (
            replace(EPOCHS, epochs=1, fits=5, first_call=900),
            r"Starting 4 more fits took 3\.6. s, 5... % of the run without mpprof.*",
        ),
        (
            replace(EPOCHS, epochs=1, fits=2, first_call=900),
            r"Starting another fit took 9.. ms, .* % of the run without mpprof.*",
        ),
    ],
)
def test_what_tensorflow_does_not_tell_apart_is_said_where_it_takes_much_of_the_run(
    given: Play, said: str, tmp_path: Path
) -> None:
    answer = judged(given, tmp_path).answer
    assert answer.leads != "time"
    assert any(re.fullmatch(said, each) for each in answer.because), answer


@pytest.mark.parametrize(
    ("backend", "steps"),
    [
        ("tensorflow", "steps and the wait for their input, with callbacks ahead of mpprof's"),
        ("jax", "steps, with callbacks and loop"),
    ],
)
def test_callbacks_that_were_not_timed_are_named_where_they_are(
    backend: str, steps: str, tmp_path: Path
) -> None:
    why = {"run_time.callbacks": "this CallbackList was made before"}
    report = judged(replace(EPOCHS, backend=backend, between=900, loop=0, absent=why), tmp_path)
    named = {part.name: [each.name for each in part.by] for part in run_time(report.run).parts}
    assert steps in named["steps"]
    assert "callbacks and what is between epochs" in named["between_epochs"]
    assert any(
        each.startswith("Callbacks (not timed), or what Keras and the data do between epochs, took")
        for each in report.answer.because
    )


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            replace(EPOCHS, loop=0, absent={"run_time.callbacks": "this CallbackList was made before"}),
            "is callbacks",
        ),
        (replace(EPOCHS, burst=(8, 200)), "long steps, "),
    ],
)
def test_on_a_cpu_the_answer_says_what_of_the_step_is_not_known(
    given: Play, said: str, tmp_path: Path
) -> None:
    folder = play(given, tmp_path).root
    facts = folder / "mpprof" / "run.json"
    no_window = {"profile_windows": "not wanted (profile_steps=None)"}
    told = json.loads(facts.read_text())
    facts.write_text(json.dumps(told | {"devices": [{"kind": "cpu"}], "absent": told["absent"] | no_window}))
    sentence = mpprof.diagnose(mpprof.load(folder)).answer.sentence
    assert sentence.startswith("On a CPU mixed precision says nothing about a GPU")
    assert said in sentence
    assert sentence.endswith(" is not known.")


def own(folder: Path, read_every: int) -> Path:
    """A run in which mpprof's own hooks take 3 of 14 ms a step, as its log says."""
    no_window = {"profile_windows": "not wanted (profile_steps=None)"}
    folder = play(replace(EPOCHS, loop=4, absent=no_window), folder).root
    steps, facts = (folder / "mpprof" / name for name in ("steps.jsonl", "run.json"))
    lines = [json.loads(line) for line in steps.read_text().splitlines()]
    for line in lines:
        if line.get("name") == "mpprof":
            line |= {"first_step": line["last_step"] - 39, "calls": 40, "ns": 40 * 3 * MS}
    steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    told = json.loads(facts.read_text())
    told["timing"]["read_every"] = read_every
    facts.write_text(json.dumps(told))
    return folder


def test_mpprofs_own_hooks_are_no_callbacks_of_the_users(tmp_path: Path) -> None:
    """What is advised can be done: where it read more often than by default, to read less often."""
    often = mpprof.diagnose(mpprof.load(own(tmp_path / "often", 1)))
    assert (often.answer.leads, often.answer.code) == ("time", "MP305")
    assert often.answer.sentence.startswith("The hooks of mpprof itself take 2")
    assert often.answer.do.startswith("read_every=16")
    usual = mpprof.diagnose(mpprof.load(own(tmp_path / "usual", 16)))
    (found,) = (each for each in usual.findings if each.code == "MP305")
    assert (found.severity, found.remedies[0].text.partition(":")[0]) == ("info", "none needed")
    assert usual.answer.code != "MP305"
