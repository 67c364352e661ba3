"""`mpprof try --remedies`: what is tried, what is kept, and what is said of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.api import workflows
from mpprof.cli import main
from mpprof.diagnosis.remedies import choosing
from mpprof.errors import UsageError
from mpprof.model.answer import Remedy
from mpprof.runs.loading import load_at
from mpprof.store import read_tried
from mpprof.trial import remedies, text, trying
from mpprof.trial.journal import Journal
from mpprof.trial.remedies import Advice, ByHand, Promise
from mpprof.trial.result import Tried
from mpprof.trial.settings import Setting
from tests.paths import ROOT
from tests.trial.known import Known

PREFETCH = Promise("MP301", "input-bound", "sets", ("prefetch", "auto"), 10e6, 10e6)
SCALE = Promise("MP204", "startup-skips", "sets", ("loss_scale", "1024"))
PAD = ByHand("MP402", "odd-vocabulary", "pad the vocabulary", "vocabulary = 64")
CACHE = ByHand("MP301", "input-bound", ".cache() the data", "")
SKIPS = (40, 41, 40, 39, 40, 41)


def climbed(train: Known, *promises: Promise, by_hand: tuple[ByHand, ...] = (), **more: Any) -> Tried:
    """The ladder of a script whose first training has this advice, and takes 20 ms a step."""
    given = Advice(20e6, promises, by_hand)
    own = train._facts
    train._facts = lambda setting: {**own(setting), **({"advice": given} if setting == Setting() else {})}
    asked = trying.Asked(("train.py",), "train.py", Path("/logs"), remedies=True, **more)
    return trying.climb(asked, train, lambda said: None, clock=lambda: train.now_s)


def times(without_ms: float, **with_ms: float) -> Any:
    wiggle = (0.0, 0.004, -0.003, 0.002, -0.002, 0.001)

    def step_ms(setting: Setting, at: int) -> float:
        own = [with_ms[name] for name, _ in setting.sets if name in with_ms]
        return (own[-1] if own else without_ms) * (1 + wiggle[at % len(wiggle)])

    return step_ms


def test_what_pays_is_kept_and_its_promise_stands_beside_what_it_brought() -> None:
    train = Known(times(20.0, prefetch=10.5, steps_per_execution=10.5))
    several = Promise("MP302", "launch-bound", "sets", ("steps_per_execution", "16"), 5e6, 15e6)
    tried = climbed(train, PREFETCH, several, by_hand=(CACHE, PAD))
    kept, not_kept = tried.outcomes
    assert (kept.kept, not_kept.kept) == (True, False)
    assert kept.promised == (2.0, 2.0)
    assert kept.obtained.value == pytest.approx(20 / 10.5, rel=0.01)
    assert not_kept.obtained.value == pytest.approx(1.0, rel=0.01)  # over the best so far, not over the first
    assert tried.rows[2].setting.sets == (("prefetch", "auto"), ("steps_per_execution", "16"))
    shown = text.render(tried)
    assert "    MP301 input-bound, prefetch=auto: promised 2.00x, obtained 1.91x (" in shown
    assert ", no difference); not kept" in shown
    assert "    MP402 odd-vocabulary: pad the vocabulary\n        vocabulary = 64\n" in shown
    assert CACHE not in tried.by_hand  # its cause is remedied
    assert "data = data.prefetch(tf.data.AUTOTUNE)" in shown
    document = tried.to_dict()
    assert [each["kept"] for each in document["remedies"]] == [True, False]
    assert document["by_hand"] == [PAD._asdict()]


def test_a_promise_that_the_hosts_launches_would_limit_is_a_range() -> None:
    fused = Promise("MP506", "gradient-clipping", "jit", True, 2e6, after_ns=16e6, freed_ns=10e6)
    (outcome,) = (tried := climbed(Known(times(20.0)), fused)).outcomes
    assert outcome.said.startswith("promised 1.25x to 2.00x, obtained ")
    assert tried.to_dict()["remedies"][0]["promised_range"] == [1.25, 2.0]


def test_the_cause_of_a_remedy_that_did_not_pay_is_left_to_the_author() -> None:
    tried = climbed(Known(times(20.0, prefetch=20.0)), PREFETCH, by_hand=(CACHE,))
    assert tried.by_hand == (CACHE,)
    assert tried.keep == "the script's own policy"


def test_a_faster_remedy_under_which_it_learns_worse_is_not_kept() -> None:
    worse = {"curve": ((30.0, 1.0), (60.0, 0.9))}
    train = Known(times(20.0, prefetch=10.0), lambda setting: worse if setting.sets else {})
    (outcome,) = climbed(train, PREFETCH).outcomes
    assert outcome.obtained.faster
    assert not outcome.kept


@pytest.mark.parametrize(
    ("after", "kept"), [((0, 0, 0, 0, 0, 0), True), ((0, 0, 40, 0, 0, 40), False)], ids=["none", "as before"]
)
def test_another_loss_scale_is_kept_where_it_skips_fewer_updates(after: tuple[int, ...], kept: bool) -> None:
    rounds = {True: iter(SKIPS * 9), False: iter(after * 9)}

    def facts(setting: Setting) -> dict[str, Any]:
        return {"skipped": next(rounds[setting == Setting()])}

    tried = climbed(Known(times(20.0), facts), SCALE)
    (outcome,) = tried.outcomes
    assert outcome.kept is kept
    assert outcome.skipped[0] == pytest.approx(40, abs=0.5)
    if kept:
        assert "skipped updates 40 before and 0 with it; kept" in text.render(tried)


def test_a_loss_scale_that_makes_steps_slower_is_not_kept() -> None:
    train = Known(times(20.0, loss_scale=24.0), lambda setting: {"skipped": 0 if setting.sets else 40})
    (outcome,) = climbed(train, SCALE).outcomes
    assert not outcome.kept


def test_the_report_has_what_a_remedy_brought_among_the_evidence(tmp_path: Path) -> None:
    root = tmp_path / "own" / "1"
    shutil.copytree(ROOT / "sample_traces" / "v100-input-bound-mixed-float16", root)
    train = Known(times(20.0, prefetch=10.5), lambda setting: {"root": str(root)})
    text.write(climbed(train, PREFETCH, SCALE, minutes=1.9), tmp_path)
    findings = {each.code: each for each in mpprof.diagnose(root).findings}
    said = [f"{each.name} {each.value}" for each in findings["MP301"].evidence if "tried" in each.name]
    assert len(said) == 1
    assert said[0].startswith("tried: prefetch=auto: promised 2.00x, obtained 1.91x (")
    assert said[0].endswith("); kept")
    assert [each.code for each in load_at(root).tried] == ["MP301"]  # for the other no time was left


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"schema": "mpprof.tried/1"}', "[" * 100_000, '{"schema": "mpprof.tried/2", "remedies": []}',
     '{"schema": "mpprof.tried/1", "remedies": [3, {"code": "MP301", "change": "prefetch=auto", "said": 4}]}'],
    ids=range(7),
)  # fmt: skip
def test_a_file_of_remedies_that_is_none_is_named_and_passed_over(content: str, tmp_path: Path) -> None:
    (tmp_path / "mpprof").mkdir()
    (file := tmp_path / "mpprof" / "tried.json").write_text(content)
    found, said = read_tried(tmp_path)
    assert found == ()
    assert [each.partition(":")[0] for each in said] == [str(file)]
    file.unlink()
    assert read_tried(tmp_path) == ((), ())


def test_remedies_without_time_or_that_fail_say_so() -> None:
    failed = {"error": "prefetch cannot be changed: a list has no prefetch", "step_ns": None}
    train = Known(times(20.0), lambda setting: failed if setting.sets else {})
    tried = climbed(train, PREFETCH, SCALE, minutes=0.5)
    assert [each.error for each in tried.outcomes] == [failed["error"], "no time was left"]
    assert tried.dropped == ("loss_scale=1024",)


def test_nothing_to_try_is_an_answer_too() -> None:
    train = Known(times(20.0))
    tried = climbed(train, by_hand=(PAD,))
    assert train.names == ["the script's own policy"]
    assert "MP402 odd-vocabulary" in text.render(tried)


@pytest.mark.parametrize("by_hand", [(), (PAD,)])
def test_where_the_diagnosis_has_no_remedy_that_is_said(
    by_hand: tuple[ByHand, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").write_text("")
    train = Known(times(20.0), lambda setting: {"advice": Advice(20e6, (), by_hand)})
    monkeypatch.setattr(trying, "in_processes", lambda asked: train)
    assert main(["try", "--remedies", "train.py"]) == 0
    shown = capsys.readouterr()
    assert ("has no remedy to try" in shown.err) is (not by_hand)
    assert ("MP402 odd-vocabulary" in shown.out) is bool(by_hand)


def test_a_ladder_that_was_broken_off_knows_what_it_was_advised(tmp_path: Path) -> None:
    asked = trying.Asked(("train.py",), "train.py", tmp_path, remedies=True)
    journal = asked.journal()
    journal.begin(resume=False)
    train = Known(times(20.0), lambda setting: {"advice": Advice(20e6, (PREFETCH, SCALE), (PAD,))})
    one = train(trying.Turn(Setting(), 0, 0, 1), 1.0)
    journal.add(one)
    assert asked.journal().begin(resume=True) == [one]
    other = trying.Asked(("train.py",), "train.py", tmp_path)
    with pytest.raises(UsageError):
        Journal(tmp_path, {**other.journal()._asked, "remedies": False}).begin(resume=True)
    assert json.loads(journal.path.read_text().splitlines()[0])["remedies"] is True


@pytest.mark.parametrize(
    ("code", "framework", "change"),
    [
        ("MP309", "keras on tensorflow", ("jit", True)),
        ("MP301", "keras on tensorflow", ("sets", ("prefetch", "auto"))),
        ("MP301", "keras on jax", ("sets", ("workers", "8"))),
        ("MP302", "keras on tensorflow", ("sets", ("steps_per_execution", "16"))),
        ("MP302", "keras on tensorflow", ("batch", 2.0)),
        ("MP303", "keras on tensorflow", ("batch", 2.0)),
        ("MP304", "keras on tensorflow", ("policy", "mixed_bfloat16")),
        ("MP204", "keras on tensorflow", ("sets", ("loss_scale", "1024"))),
    ],
)
def test_the_tables_remedies_are_known_by_their_code(code: str, framework: Any, change: Any) -> None:
    found = [remedies.switch_of(each, code) for each in choosing.of_framework(code, framework)]
    assert change in found


def test_a_remedy_without_a_switch_has_none() -> None:
    for snippet in (
        "",
        "data = data.cache()",
        "model.fit(data, workers=8)",
        "optimizer = LossScaleOptimizer(o, dynamic=False, initial_scale=2.0**15)",
    ):
        assert remedies.switch_of(Remedy("a Sequence in place of the generator", snippet), "MP203") is None


def test_a_diagnosed_run_is_advised_in_the_order_of_what_remedies_promise() -> None:
    run = load_at(ROOT / "sample_traces" / "a100-launch-bound-mixed-float16")
    given = remedies.advice(workflows.judge(workflows.analyse(run)))
    changes = [each.change for each in given.promises]
    assert changes[:3] == [("jit", True), ("sets", ("steps_per_execution", "16")), ("batch", 2.0)]
    assert len(set(changes)) == len(changes)
    assert given.promises[0].code == "MP302"
    assert given.step_ns is not None
    assert given.promises[0].after_ns == pytest.approx(0.317 * given.step_ns, rel=0.01)
    twice = given.promises[2]  # the examples share what a step costs once
    assert twice.after_ns == pytest.approx((1 + 0.317) / 2 * given.step_ns, rel=0.01)
    assert [each.code for each in given.by_hand] == ["MP302"]


def test_the_switch_that_names_xla_too_is_tried_as_the_switch() -> None:
    """The ladder has a setting for XLA. If this line counted as XLA alone, 16 bits would not be tried."""
    both = 'keras.config.set_dtype_policy("mixed_float16")\nmodel.compile(model.optimizer, model.loss, jit_compile=True)'
    assert remedies.switch_of(Remedy("with jit_compile=True", both)) == ("policy", "mixed_float16")
