"""What a loop gives by hand, `update(loss_scale=…, skipped=…)`: its alarms, and that nothing counts twice."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from mpprof.record import StepRecorder
from mpprof.store import Records, read_records


def recorder(logdir: Path, **more: Any) -> StepRecorder:
    quiet = {"hardware": False, "verbose": 0, "announce": None, "profile_steps": None, "backend": "none"}
    return StepRecorder(logdir, **{**quiet, **more})


def records(root: Path) -> Records:
    read = read_records(root)
    assert read.steps is not None
    assert read.facts is not None
    assert read.finished
    return read


def alarms(root: Path) -> list[tuple[str, int]]:
    facts = json.loads((root / "mpprof" / "run.json").read_text())
    return [(alarm["kind"], alarm["step"]) for alarm in facts.get("alarms", ())]


def stopped_at(root: Path, steps: list[dict[str, Any]], **more: Any) -> int | None:
    """The step after which a loop that gives these values is asked to stop; None: it never is."""
    with recorder(root, **more) as record:
        for step, values in enumerate(steps, 1):
            with record.step():
                pass
            if values:
                record.update(**values)
            if record.stop_requested:
                return step
    return None


@pytest.mark.parametrize("read_every", [1, 16])
@pytest.mark.parametrize("within", [{}, {"loss": 1.0, "loss_scale": 1024.0}])
def test_endless_skips_that_a_loop_gives_stop_it(
    tmp_path: Path, read_every: int, within: dict[str, float]
) -> None:
    steps = [{**within, "skipped": 1} for _ in range(200)]
    assert stopped_at(tmp_path, steps, stop_on="endless_skips", read_every=read_every) == 30
    assert alarms(tmp_path) == [("endless_skips", 30)]
    assert int(records(tmp_path).steps.skipped.sum()) == 30  # type: ignore[union-attr]


def test_skips_given_only_where_they_happen_are_not_taken_for_all(tmp_path: Path) -> None:
    """Every third step is skipped, and of the others only the loss is told: no ten in a row."""
    steps = [{"loss": 1.0, **({"skipped": 1} if step % 3 == 0 else {})} for step in range(1, 600)]
    # No alarm until over 400 steps it is more than one in twenty.
    assert stopped_at(tmp_path / "b", steps, stop_on="endless_skips") == 420
    rare = [{"skipped": 1} if step % 21 == 0 else {} for step in range(1, 2000)]
    assert stopped_at(tmp_path / "c", rare, stop_on="endless_skips") is None


def test_several_skips_given_at_once_count_as_the_steps_since_they_were_given_last(tmp_path: Path) -> None:
    steps = [{"skipped": 4} if step % 4 == 0 else {} for step in range(1, 100)]
    assert stopped_at(tmp_path, steps, stop_on="endless_skips") == 32


def test_a_scale_that_falls_stops_a_loop_that_gives_it(tmp_path: Path) -> None:
    steps = [{"loss_scale": 64.0 / 2**step} for step in range(1, 50)]
    assert stopped_at(tmp_path, steps, stop_on=("loss_scale_low", "endless_skips")) == 7
    assert alarms(tmp_path) == [("loss_scale_low", 7)]


def test_a_count_that_is_no_number_raises_no_alarm(tmp_path: Path) -> None:
    steps = [{"skipped": "all of them"} for _ in range(100)]
    assert stopped_at(tmp_path, steps, stop_on="endless_skips") is None
    assert "update.skipped" in records(tmp_path).facts.absent  # type: ignore[union-attr]


def test_without_a_framework_nothing_is_said_of_a_profiler(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert stopped_at(tmp_path, [{"loss": 1.0}] * 40, profile_steps="auto") is None
    assert caplog.records == []
    facts = records(tmp_path).facts
    assert facts.absent["profile_windows"].startswith("not wanted")
    assert facts.absent["batch_size"] == "not given: pass batch_size="


@pytest.mark.framework
@pytest.mark.usefixtures("keras")
class TestWithAnOptimizer:
    def train(
        self, root: Path, optimizer: Any, steps: int, bad: tuple[int, ...], **more: Any
    ) -> StepRecorder:
        """A loop that is skipped at the `bad` steps, counts them by itself and gives that, too."""
        import tensorflow as tf

        weights = tf.Variable([1.0, 2.0])
        optimizer.build([weights])
        scales = hasattr(optimizer, "inner_optimizer")
        with recorder(root, optimizer=optimizer, backend="tensorflow", **more) as record:
            for step in range(1, steps + 1):
                with record.step():
                    gradient = tf.constant([float("inf") if step in bad else 0.5, 0.5])
                    if scales or step not in bad:
                        optimizer.apply([gradient], [weights])
                given = {"loss_scale": float(optimizer.dynamic_scale.numpy())} if scales else {}
                record.update(skipped=int(step in bad), **given)
                if record.stop_requested:
                    break
        return record

    def test_skips_that_are_read_and_given_count_once(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        import keras

        bad = (2, 5, 40, 41, 60)
        self.train(tmp_path, keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD()), 70, bad)
        read = records(tmp_path)
        assert int(read.steps.skipped[read.steps.skipped > 0].sum()) == len(bad)
        assert [said.getMessage() for said in caplog.records] == [
            "mpprof: update(skipped=…) is ignored: skipped steps are read from the optimizer's own counters"
        ]
        assert "is ignored" in read.facts.absent["update.skipped"]
        assert "skipped" not in read.facts.absent

    def test_an_optimizer_that_scales_no_loss_leaves_skips_to_the_loop(
        self, tmp_path: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        """The loop scales by itself, and does not call the optimizer where gradients are not finite."""
        import keras

        bad = (2, 5, 40, 41, 60)
        self.train(tmp_path, keras.optimizers.SGD(), 70, bad)
        read = records(tmp_path)
        assert tuple(read.steps.step[read.steps.skipped > 0].tolist()) == bad
        assert "skipped" not in read.facts.absent
        assert caplog.records == []

    @pytest.mark.parametrize("read_every", [1, 16])
    def test_endless_skips_beside_such_an_optimizer_stop_the_loop(
        self, tmp_path: Path, read_every: int
    ) -> None:
        import keras

        bad = tuple(range(25, 200))
        more: Any = {"read_every": read_every, "stop_on": "endless_skips"}
        record = self.train(tmp_path, keras.optimizers.SGD(), 200, bad, **more)
        assert record.stop_requested
        assert alarms(tmp_path) == [("endless_skips", 34)]


class OfAnotherLibrary:
    """A model that Keras did not make."""


def test_a_model_that_is_none_of_keras_has_no_policy_of_keras(tmp_path: Path) -> None:
    keras = pytest.importorskip("keras")
    assert keras.config.dtype_policy() is not None
    with recorder(tmp_path, model=OfAnotherLibrary()) as recorded, recorded.step():
        pass
    facts = json.loads((tmp_path / "mpprof" / "run.json").read_text())
    assert "keras" not in facts["framework"]
    assert "global" not in facts["fits"][0].get("policy", {})
