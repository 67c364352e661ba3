"""Which training comes next, what is kept, and what is said of it: ladders of trainings whose times are known."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.errors import UnableError, UsageError
from mpprof.trial import text, trying
from mpprof.trial.journal import Journal
from mpprof.trial.ladder import Turn
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import Choices, Setting
from tests.trial.known import BFLOAT16, FLOAT16, FLOAT32, TWO, Known, climbed

WIGGLE = (0.0, 0.004, -0.003, 0.002, -0.002, 0.001)
"""A scatter between trainings that is the same in each run of the tests."""


def steps(**ms: float) -> Any:
    """The step of a setting: of its policy, less a quarter by XLA, 1.6 times as much for twice the batch."""

    def step_ms(setting: Setting, at: int) -> float:
        own = ms[str(setting.policy)] * (0.75 if setting.jit else 1.0) * (1.0 if setting.batch == 1 else 1.6)
        return own * (1 + WIGGLE[at % len(WIGGLE)])

    return step_ms


def asked_of(folder: Path) -> trying.Asked:
    return trying.Asked(("train.py",), "train.py", folder, TWO)


def test_two_settings_take_turns_and_the_order_changes() -> None:
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0))
    tried = climbed(train)
    assert train.names == ["float32", "mixed_bfloat16", "mixed_bfloat16", "float32"] * 2
    assert [turn.round for turn in train.turns] == [1, 1, 2, 2, 3, 3, 4, 4]
    assert tried.keep == "mixed_bfloat16"
    assert tried.sentence.startswith("mixed_bfloat16: 2.0")
    assert tried.code() == ['keras.config.set_dtype_policy("mixed_bfloat16")  # before the model is built']


def test_two_equal_settings_are_no_difference_and_the_first_is_kept() -> None:
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=20.0)))
    assert tried.keep == "float32"
    assert "no difference" in tried.sentence


def test_a_difference_that_few_noisy_rounds_do_not_show_is_not_called_none() -> None:
    noisy = (1.0, 1.3, 0.8, 1.1, 0.9)
    tried = climbed(Known(lambda setting, at: 20.0 * noisy[at % 5]), most_rounds=4)
    assert "too wide to tell)" in tried.sentence
    wild = climbed(Known(lambda setting, at: 20.0 * (1.0, 9.0, 0.3, 2.0, 5.0)[at % 5]), most_rounds=4)
    assert wild.sentence == "Keep float32: mixed_bfloat16 too wide to tell."


@pytest.mark.parametrize("bfloat16_ms", [10.0, 30.0])
def test_fewer_than_four_rounds_claim_no_difference(bfloat16_ms: float) -> None:
    """Seen on a CPU: "0.82x (0.68 to 0.99)" after three rounds, as if it were known."""
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=bfloat16_ms)), minutes=1)
    assert [len(row.rounds) for row in tried.rows] == [3, 3]
    found = tried.rows[1].speedup
    assert found is not None
    assert not found.faster
    assert not found.slower
    assert "3 rounds are too few)" in tried.sentence
    assert tried.keep != "mixed_bfloat16"
    on_cpu = climbed(
        Known(steps(float32=20.0, mixed_bfloat16=bfloat16_ms), lambda setting: {"is_cpu": True}), minutes=1
    )
    assert "3 rounds are too few)" in on_cpu.sentence


def test_one_round_decides_nothing_and_nothing_is_kept() -> None:
    """Seen on an H200: "Keep float32: mixed_bfloat16 1.39x (one round)", when the minutes were over."""
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=14.4)), minutes=0.4)
    assert tried.keep is None
    assert tried.code() == []
    assert tried.sentence.startswith(
        "Fewer than 4 rounds decide nothing: mixed_bfloat16 not known after one round."
    )
    slower = climbed(Known(steps(float32=20.0, mixed_bfloat16=30.0)), minutes=0.4)
    assert slower.keep == "float32"


def test_rounds_end_with_the_scatter_or_at_the_most_that_are_asked_for() -> None:
    noisy = (1.0, 1.3, 0.8, 1.1)
    train = Known(lambda setting, at: 20.0 * noisy[at * at % 4] * noisy[at % 3])
    assert any(len(row.rounds) > 4 for row in climbed(train, minutes=5).rows)
    train = Known(lambda setting, at: 20.0 * noisy[at * at % 4] * noisy[at % 3])
    assert [len(row.rounds) for row in climbed(train, most_rounds=4).rows] == [4, 4]


def test_the_usual_ladder_puts_one_change_to_the_best_so_far() -> None:
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0))
    tried = climbed(train, None)
    assert [row.setting.name for row in tried.rows] == [
        "float32", "mixed_bfloat16", "mixed_bfloat16 with XLA", "mixed_bfloat16 with XLA and batch x2",
    ]  # fmt: skip
    assert all(row.kept for row in tried.rows)
    last = tried.rows[-1].speedup
    assert last.value == pytest.approx(20 / 10 / 0.75 * 2 / 1.6, rel=0.02)
    assert set(train.names[8:11]) == {"float32", "mixed_bfloat16", "mixed_bfloat16 with XLA"}
    assert tried.rows[1].changes == ("policy mixed_bfloat16",)
    assert tried.rows[3].changes == ("policy mixed_bfloat16", "with XLA", "batch x2")


def test_a_change_that_does_not_pay_is_not_built_upon() -> None:
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=30.0)), None)
    assert [row.setting.name for row in tried.rows] == [
        "float32", "mixed_bfloat16", "float32 with XLA", "float32 with XLA and batch x2",
    ]  # fmt: skip
    assert [row.kept for row in tried.rows] == [True, False, True, True]


@pytest.mark.parametrize(
    ("facts", "policy"),
    [
        ({"asked": ("mixed_float16",)}, "mixed_float16"),
        ({"asked": ("float32",)}, "mixed_bfloat16"),
        ({"capability": (7, 0)}, "mixed_float16"),
        ({"capability": (8, 0)}, "mixed_bfloat16"),
        ({"capability": None, "is_cpu": True}, "mixed_bfloat16"),
    ],
)
def test_16_bits_are_the_scripts_own_or_what_the_card_computes_in(facts: dict[str, Any], policy: str) -> None:
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0, mixed_float16=10.0), lambda setting: facts)
    climbed(train, None)
    assert train.turns[1].setting == Setting(policy)


def test_a_script_with_xla_has_no_rung_of_it() -> None:
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0), lambda setting: {"jit": True})
    climbed(train, None)
    assert not any(turn.setting.jit for turn in train.turns)


def test_rungs_that_do_not_fit_are_dropped_from_the_end_by_name() -> None:
    """A training takes 10 s, so two settings take 80 and each rung more 120."""
    said: list[str] = []
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0))
    asked = trying.Asked(("train.py",), "train.py", Path("/logs"), None, minutes=4)
    tried = trying.climb(asked, train, said.append, clock=lambda: train.now_s)
    assert tried.dropped == ("batch x2",)
    assert "no time for: batch x2" in said[0]
    assert "No time was left for: batch x2" in text.render(tried)


@pytest.mark.parametrize("is_cpu", [True, False])
def test_a_ladder_on_a_cpu_ends_after_two_minutes(is_cpu: bool) -> None:
    train = Known(lambda setting, at: 20.0 * (1 + at * at % 7), lambda setting: {"is_cpu": is_cpu})
    climbed(train)
    assert (train.now_s <= 120) is is_cpu


def test_no_time_for_a_second_training_is_an_answer_too() -> None:
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0)), minutes=0.01)
    assert tried.keep == "float32"
    assert tried.dropped == ("policy mixed_bfloat16",)


def test_a_setting_that_fails_is_marked_and_the_others_go_on() -> None:
    def facts(setting: Setting) -> dict[str, Any]:
        return {"error": "ValueError: no", "step_ns": None} if setting == FLOAT16 else {}

    train = Known(steps(float32=20.0, mixed_bfloat16=10.0, mixed_float16=5.0), facts)
    tried = climbed(train, Choices(("float32", "mixed_float16", "mixed_bfloat16")))
    assert train.names.count("mixed_float16") == 1
    assert tried.keep == "mixed_bfloat16"
    failed = tried.rows[1]
    assert (failed.error, failed.speedup, failed.step_ns) == ("ValueError: no", None, None)
    assert "mixed_float16: ValueError: no" in text.render(tried)


def test_the_time_of_a_setting_that_fails_is_left_for_the_next() -> None:
    """A training takes 10 s: one of each of the first two settings, and then eight."""
    failed = {"error": "ended by SIGKILL", "step_ns": None}
    train = Known(
        steps(float32=20.0, mixed_bfloat16=1.0, mixed_float16=10.0),
        lambda setting: failed if setting == BFLOAT16 else {},
    )
    choices = Choices(("float32", "mixed_bfloat16", "mixed_float16"))
    tried = climbed(train, choices, minutes=1.75)
    assert tried.keep == "mixed_float16"
    assert train.names.count("mixed_float16") == 4


def test_a_first_setting_that_finds_no_memory_leaves_speedups_unknown() -> None:
    def facts(setting: Setting) -> dict[str, Any]:
        return {"error": "out of memory", "step_ns": None} if setting == FLOAT32 else {}

    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0), facts))
    assert (tried.rows[0].error, tried.rows[1].speedup) == ("out of memory", None)
    assert tried.keep == "mixed_bfloat16"


def test_a_setting_that_reached_no_layer_has_no_speedup() -> None:
    def facts(setting: Setting) -> dict[str, Any]:
        return {"took": (0, 54)} if setting == BFLOAT16 else {}

    train = Known(steps(float32=20.0, mixed_bfloat16=10.0), facts)
    tried = climbed(train)
    assert train.names == ["float32", "mixed_bfloat16"]
    assert tried.rows[1].error == "did not take: 0 of 54 layers"
    assert tried.rows[1].speedup is None
    assert tried.keep == "float32"


@pytest.mark.parametrize(
    ("facts", "said"),
    [
        ({"finite": False}, "its loss is not finite"),
        ({"curve": ((30.0, 1.0), (60.0, 0.9))}, "its loss is higher"),
    ],
)
def test_a_setting_that_learns_worse_is_not_kept_however_fast(facts: dict[str, Any], said: str) -> None:
    train = Known(
        steps(float32=20.0, mixed_bfloat16=10.0), lambda setting: facts if setting == BFLOAT16 else {}
    )
    tried = climbed(train)
    assert tried.keep == "float32"
    assert said in tried.sentence


def test_where_no_loss_was_recorded_none_is_called_finite() -> None:
    facts = {FLOAT32: {"finite": True, "curve": ((60.0, 0.9),)}}
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0), lambda setting: facts.get(setting, {})))
    assert [row["loss_finite"] for row in tried.to_dict()["settings"][:2]] == [True, None]
    assert tried.keep == "mixed_bfloat16"


def test_why_no_loss_is_compared_is_said() -> None:
    ms = steps(float32=20.0, mixed_bfloat16=10.0)
    assert "Loss: not compared" in text.render(climbed(Known(ms, lambda setting: {"curve": ()})))
    assert "Loss:" not in text.render(climbed(Known(ms)))


def test_skipped_updates_and_memory_are_in_the_sentence() -> None:
    def facts(setting: Setting) -> dict[str, Any]:
        if setting == FLOAT16:
            return {"skipped": 3}
        return {"peak_memory_bytes": 100 if setting == FLOAT32 else 59}

    train = Known(steps(float32=18.2, mixed_bfloat16=10.0, mixed_float16=10.0), facts)
    tried = climbed(train, Choices(("float32", "mixed_bfloat16", "mixed_float16")))
    assert tried.keep == "mixed_bfloat16"
    assert tried.sentence.endswith("), 41.0 % less memory; mixed_float16 brings no more and skips updates.")


def test_why_no_energy_is_known_is_said_where_none_is() -> None:
    def facts(setting: Setting) -> dict[str, Any]:
        return {"energy_absent": "Not Supported"}

    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0), facts))
    assert tried.to_dict()["energy_absent"] == "Not Supported"
    assert "Energy: Not Supported" in text.render(tried)
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0), lambda setting: {"joules_per_example": 0.25})
    tried = climbed(train)
    assert tried.energy_absent is None
    assert "Energy" not in text.render(tried)
    assert "J/example" in text.render(tried)


def test_trainings_on_a_busy_machine_are_counted() -> None:
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0), lambda setting: {"busy": setting == BFLOAT16})
    tried = climbed(train)
    assert "Other work kept the machine busy in 4 of 8 trainings" in text.render(tried)
    assert tried.to_dict()["busy_trainings"] == 4
    assert "busy" not in text.render(climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0))))


def test_on_a_cpu_no_policy_is_recommended() -> None:
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0), lambda setting: {"is_cpu": True}))
    assert tried.keep is None
    assert tried.code() == []
    shown = text.render(tried)
    assert shown.startswith("Measured on a CPU: it says nothing about a GPU.\n")
    assert "kept" not in shown
    facts = {"is_cpu": True, "finite": False}
    tried = climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0), lambda setting: facts))
    assert tried.sentence.endswith(", and its loss is not finite.")


def test_all_combinations_take_turns() -> None:
    train = Known(steps(float32=20.0, mixed_bfloat16=10.0))
    tried = climbed(train, Choices(("float32", "mixed_bfloat16"), (False, True)), together=True)
    assert len(set(train.names[:4])) == 4
    assert train.names[4:8] == train.names[3::-1]
    assert tried.keep == "mixed_bfloat16 with XLA"
    assert [row.kept for row in tried.rows] == [True, False, False, True]


def test_a_script_that_fails_under_another_setting_keeps_what_was_measured() -> None:
    """A fit may end early under one setting alone: half as many steps with twice the batch, or a loss that is
    not finite."""

    def facts(setting: Setting) -> dict[str, Any]:
        early = {"error": "it ended after 36 of 60 steady steps", "script_failed": True, "step_ns": None}
        return early if setting == FLOAT16 else {}

    train = Known(steps(float32=20.0, mixed_bfloat16=10.0, mixed_float16=5.0), facts)
    tried = climbed(train, Choices(("float32", "mixed_float16", "mixed_bfloat16")))
    assert tried.keep == "mixed_bfloat16"
    assert tried.rows[1].error == "it ended after 36 of 60 steady steps"
    assert train.names.count("mixed_float16") == 1


def test_the_script_itself_failing_is_an_error(tmp_path: Path) -> None:
    train = Known(
        steps(float32=20.0), lambda setting: {"error": "no fit of Keras was called", "script_failed": True}
    )
    with pytest.raises(UnableError, match="no fit of Keras was called"):
        climbed(train)
    assert len(train.turns) == 1
    journal = asked_of(tmp_path).journal()
    with pytest.raises(UnableError):
        trying.climb(asked_of(tmp_path), train, lambda said: None, journal.begin(resume=False), journal.add)
    assert journal.begin(resume=True) == []  # it may be mended, and then gone on with
    train = Known(steps(float32=20.0, mixed_bfloat16=20.0), lambda setting: {"error": "NameError: x"})
    with pytest.raises(UnableError, match="NameError: x"):
        climbed(train)
    assert len(train.turns) == 2


def test_what_was_measured_until_an_interrupt_is_kept_and_gone_on_with(tmp_path: Path) -> None:
    whole = Known(steps(float32=20.0, mixed_bfloat16=10.0))
    expected = climbed(whole)

    class Stops(Known):
        def __call__(self, turn: Turn, within_s: float) -> Trained:
            if len(self.turns) == 5:
                raise KeyboardInterrupt
            return super().__call__(turn, within_s)

    asked = trying.Asked(("train.py",), "train.py", tmp_path, TWO)
    journal, first = asked.journal(), Stops(steps(float32=20.0, mixed_bfloat16=10.0))
    with pytest.raises(trying.Interrupted) as stopped:
        trying.climb(asked, first, lambda text: None, journal.begin(resume=False), journal.add)
    assert [len(row.rounds) for row in stopped.value.tried.rows] == [3, 2]
    asked_more = trying.Asked(("train.py",), "train.py", tmp_path, Choices((*TWO.policies, "mixed_float16")))
    with pytest.raises(trying.Interrupted) as stopped:
        trying.climb(asked_more, Stops(steps(float32=20.0, mixed_bfloat16=10.0)), lambda text: None)
    assert "Broken off before: policy mixed_float16" in text.render(stopped.value.tried)
    with journal.path.open("a") as file:
        file.write('{"setting": {"pol')  # a line that was cut off
    done = asked.journal().begin(resume=True)
    assert len(done) == 5
    second = Known(lambda setting, at: steps(float32=20.0, mixed_bfloat16=10.0)(setting, at + 5))
    tried = trying.climb(asked, second, lambda text: None, done)
    assert first.names + second.names == whole.names
    assert tried.sentence == expected.sentence
    journal.add(done[0])
    assert len(journal.begin(resume=True)) == 6


def test_a_training_that_lacked_time_is_run_anew_where_the_ladder_goes_on(tmp_path: Path) -> None:
    asked = trying.Asked(("train.py",), "train.py", tmp_path, TWO, minutes=0.1)
    late = {"error": "60 steady steps were not reached in time", "step_ns": None}
    journal, slow = asked.journal(), Known(steps(float32=20.0), lambda setting: late)
    trying.climb(asked, slow, lambda said: None, journal.begin(resume=False), journal.add, lambda: slow.now_s)
    assert slow.names == ["float32"]
    assert asked.journal().begin(resume=True) == []


def test_a_journal_is_not_gone_on_with_unasked_or_for_something_else(tmp_path: Path) -> None:
    asked = trying.Asked(("train.py",), "train.py", tmp_path, TWO)
    asked.journal().begin(resume=False)
    with pytest.raises(UsageError, match="--resume"):
        asked.journal().begin(resume=False)
    assert asked.journal().begin(resume=True) == []
    other = trying.Asked(("train.py",), "train.py", tmp_path, TWO, steps=30)
    with pytest.raises(UsageError, match="another steps"):
        other.journal().begin(resume=True)
    with pytest.raises(UsageError, match="another script"):
        Journal(tmp_path, {"script": ["b.py"]}).begin(resume=True)


def test_the_document_keeps_the_contract() -> None:
    document = json.loads(json.dumps(climbed(Known(steps(float32=20.0, mixed_bfloat16=10.0))).to_dict()))
    assert document["schema"] == "mpprof.try/1"
    assert {"script", "settings", "overridden", "left_out", "keep", "sentence"} <= document.keys()
    first, second = document["settings"]
    assert {
        "name", "policy", "jit", "batch", "changes", "rounds", "step_ns", "examples_per_s", "speedup",
        "speedup_interval", "peak_memory_bytes", "skipped", "loss", "kept", "error",
    } <= first.keys()  # fmt: skip
    assert (first["speedup"], first["speedup_interval"]) == (None, None)
    low, high = second["speedup_interval"]
    assert low < second["speedup"] < high
