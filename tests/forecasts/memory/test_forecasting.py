"""A training's memory before it runs: of a Keras model at hand, a saved one, a function's, and a recorded one."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import mpprof
from mpprof.errors import NotFoundError, UnableError, UsageError
from mpprof.forecasts.memory import rendering
from mpprof.model.forecast import Band
from mpprof.model.memory import MemoryForecast
from tests.cli.conftest import Mpprof
from tests.cli.conftest import mpprof as command
from tests.record.conftest import looked_at_by_a_fork
from tests.record.training import callback

keras = pytest.importorskip("keras")
pytestmark = pytest.mark.framework
__all__ = ["command", "looked_at_by_a_fork"]  # fixtures


def build() -> Any:
    """A residual block, so that the graph matters."""
    given = keras.Input((16, 16, 3))
    value = keras.layers.Conv2D(8, 3, padding="same")(given)
    inside = keras.layers.ReLU()(keras.layers.BatchNormalization()(value))
    value = keras.layers.Add()([value, keras.layers.Conv2D(8, 3, padding="same")(inside)])
    value = keras.layers.GlobalAveragePooling2D()(value + 0.0)
    model = keras.Model(given, keras.layers.Dense(4)(value))
    model.compile(keras.optimizers.Adam(amsgrad=True), "mse")
    return model


def numbers(found: MemoryForecast) -> list[tuple[object, ...]]:
    return [(one.policy, one.parameters_bytes, one.gradients_bytes, one.slots_bytes, one.activations_bytes)
            for one in found.runs]  # fmt: skip


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_the_same_is_said_of_a_model_its_file_its_function_and_its_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = build()
    at_hand = mpprof.forecast_memory(model, batch_size=8, card="a100")
    model.save(tmp_path / "model.keras")
    assert numbers(mpprof.forecast_memory(tmp_path / "model.keras", batch_size=8, card="a100")) == numbers(
        at_hand
    )
    function = f"{__name__}:build"
    assert numbers(mpprof.forecast_memory(function, batch_size=8, card="a100")) == numbers(at_hand)
    model.fit(np.zeros((8, 16, 16, 3)), np.zeros((8, 4)), batch_size=8, verbose=0,
              callbacks=[callback(tmp_path / "run")])  # fmt: skip
    assert numbers(mpprof.forecast_memory(tmp_path / "run", card="a100")) == numbers(at_hand)


@pytest.mark.parametrize("kind", ["Adafactor", "Muon"])
def test_slots_that_depend_on_the_shapes_are_counted_on_a_copy(kind: str) -> None:
    model = build()
    model.compile(getattr(keras.optimizers, kind)(), "mse")
    found = mpprof.forecast_memory(model, batch_size=8, policies=("mixed_float16", "float32", "float16"))
    assert not model.optimizer.built
    model.optimizer.build(model.trainable_variables)
    numbers = [np.asarray(one) for one in model.optimizer.variables]
    kept = sum(each.nbytes for each in numbers[2:])  # after the count of steps and the learning rate
    assert [run.slots_bytes for run in found.runs] == [kept, kept, None]
    assert found.runs[1].fixed_bytes == 2 * 4 * model.count_params() - 4 * 16 + kept
    assert any("optimizer" in each for each in found.unknown)


def test_of_a_model_without_stated_shapes_all_but_activations_is_said() -> None:
    class Subclassed(keras.Model):  # type: ignore[misc]  # keras has no types
        def __init__(self) -> None:
            super().__init__()
            self.only = keras.layers.Dense(4)

        def call(self, given: Any) -> Any:
            return self.only(np.asarray(given))  # which a symbolic input is not

    model = Subclassed()
    model(np.zeros((1, 8), "float32"))
    model.compile("adam", "mse")
    with pytest.raises(UnableError, match=r"so activations are not known\. In float32 the parameters take 144 bytes, "
                       "their gradients 144 bytes and the optimizer's slots 288 bytes"):  # fmt: skip
        mpprof.forecast_memory(model, batch_size=8)


class Residual(keras.Model):  # type: ignore[misc]
    """`build`'s model, as a class."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = (keras.layers.Conv2D(8, 3, padding="same") for _ in range(2))
        self.norm, self.relu = keras.layers.BatchNormalization(), keras.layers.ReLU()
        self.add, self.pool = keras.layers.Add(), keras.layers.GlobalAveragePooling2D()
        self.head = keras.layers.Dense(4)

    def call(self, given: Any, training: bool | None = None) -> Any:
        value = self.first(given)
        value = self.add([value, self.second(self.relu(self.norm(value, training=training)))])
        return self.head(self.pool(value + 0.0))


def test_a_subclassed_model_is_called_on_symbolic_inputs() -> None:
    model = Residual()
    model.compile(keras.optimizers.Adam(amsgrad=True), "mse")
    model(np.zeros((2, 16, 16, 3)))
    found = mpprof.forecast_memory(model, batch_size=8, card="a100")
    assert numbers(found) == numbers(mpprof.forecast_memory(build(), batch_size=8, card="a100"))
    with pytest.raises(AttributeError):
        model.first.output  # noqa: B018 - the layers have forgotten it


def between(function: Callable[[Any], Any]) -> MemoryForecast:
    """Two dense layers with functions between them."""
    given = keras.Input((64,))
    value = function(keras.layers.Dense(512)(given))
    model = keras.Model(given, keras.layers.Dense(4)(value))
    model.compile("adam", "mse")
    return mpprof.forecast_memory(model, batch_size=4096, card="a100", policies="float32")


def test_functions_between_layers_count_as_the_layers_that_do_the_same() -> None:
    ops, layers = keras.ops, keras.layers
    for function, alike in (
        (ops.relu, layers.ReLU()),
        (lambda x: ops.add(x, x), lambda x: layers.Add()([x, x])),
        (lambda x: ops.multiply(x, x), lambda x: layers.Multiply()([x, x])),
        (lambda x: ops.reshape(x, (-1, 512)), layers.Reshape((512,))),
        (ops.softmax, layers.Softmax()),
        (
            lambda x: ops.concatenate([x, ops.relu(x)], -1),
            lambda x: layers.Concatenate()([x, layers.ReLU()(x)]),
        ),
    ):
        (run,), (other,) = between(function).runs, between(alike).runs
        assert run.custom_layers == ()
        assert run.activations_bytes == other.activations_bytes
        assert run.largest_batch == other.largest_batch


def test_an_attention_of_functions_keeps_its_probabilities_whatever_its_axes() -> None:
    """A reshape that joins the batch with the heads, and one that takes them apart again, change nothing."""
    ops = keras.ops

    def attention(value: Any, joined: bool) -> Any:
        value = ops.reshape(value, (-1, 32, 16))
        value = ops.reshape(value, (-1, 4, 8, 16))
        value = ops.reshape(value, (-1, 8, 16)) if joined else value
        weights = ops.softmax(ops.matmul(value, ops.swapaxes(value, -1, -2)))
        return ops.reshape(ops.matmul(weights, value), (-1, 512))

    runs = [
        between(lambda value, joined=joined: attention(value, joined)).runs[0] for joined in (False, True)
    ]
    assert runs[0].activations_bytes == runs[1].activations_bytes
    (probabilities,) = (each for each in runs[1].kept if each.what == "softmax")
    assert probabilities.bytes == 4096 * 4 * 8 * 8 * 4


def test_with_a_function_that_is_not_known_the_peak_is_at_least() -> None:
    found = between(lambda value: keras.ops.sort(value))
    (run,) = found.runs
    assert (run.custom_layers, run.largest_batch) == (("sort",), None)
    assert "peak_bytes" in run.at_least
    assert "functions keep beyond their input (sort)" in " ".join(found.unknown)


def test_layers_of_unequal_policies_are_all_under_the_one_that_is_named() -> None:
    def model(*policies: str) -> Any:
        value = given = keras.Input((64,))
        for policy in policies:
            value = keras.layers.Dense(512, dtype=policy)(value)
        made = keras.Model(given, keras.layers.Dense(4, dtype="float32")(value))
        made.compile("adam", "mse")
        return mpprof.forecast_memory(made, batch_size=4096)

    half, mixed = ("mixed_float16", "mixed_bfloat16"), "mixed_float16"
    plain = {run.policy: run.activations_bytes for run in model(mixed, mixed, mixed, mixed).runs}
    found = model(*half, *half)
    assert {run.policy: run.activations_bytes for run in found.runs} == plain
    assert "mixed_bfloat16 and mixed_float16" in found.assumed[0]
    alone = model("float32", "float32", mixed, "float32")
    assert alone.runs[0].activations_bytes == model(*["float32"] * 4).runs[0].activations_bytes


def test_an_optimizer_that_cannot_be_made_again_stays_unknown() -> None:
    class Own(keras.optimizers.Adafactor):  # type: ignore[misc]  # keras has no types
        def get_config(self) -> dict[str, Any]:
            raise NotImplementedError

    model = build()
    model.compile(Own(), "mse")
    found = mpprof.forecast_memory(model, batch_size=8, policies=("float32",))
    assert found.runs[0].slots_bytes is None
    assert any("optimizer" in each for each in found.unknown)


def test_gradients_and_slots_are_those_of_the_optimizer() -> None:
    model = build()
    run = mpprof.forecast_memory(model, batch_size=8).runs[0]
    model.optimizer.build(model.trainable_variables)
    state = [v for v in model.optimizer.variables if len(v.shape)]
    assert run.slots_bytes == sum(4 * int(np.prod(v.shape)) for v in state)
    assert run.gradients_bytes == sum(4 * int(np.prod(v.shape)) for v in model.trainable_variables)
    assert run.largest_batch is None  # no card


@pytest.mark.parametrize("size", [0, -1, 1.5, float("nan"), "32", True, 10**20])
def test_a_batch_is_a_whole_number(size: Any) -> None:
    with pytest.raises(
        UsageError, match=r"the batch cannot be .{1,30} examples\. Give a whole number from 1 to"
    ):
        mpprof.forecast_memory(build(), batch_size=size)


def test_several_cards_are_forecast_each() -> None:
    model = build()
    found = mpprof.forecast_memory(model, batch_size=8, card=("v100", "a100"))
    apart = [mpprof.forecast_memory(model, batch_size=8, card=card) for card in ("v100", "a100")]
    assert found.runs == (*apart[0].runs, *apart[1].runs)
    assert found == mpprof.forecast_memory(model, batch_size=8, card="v100,a100")
    for one in apart:
        for run in one.runs:
            assert found.saving_bytes(run.policy, one.card) == one.saving_bytes(run.policy)
    assert "on Tesla V100" in repr(found)
    said = rendering.text(found)
    apart_in_text = "compiled by XLA" in found.assumed[0]  # which widens bfloat16 on a V100
    assert ("On NVIDIA A100-SXM4-40GB\n" in said) is apart_in_text
    assert said.count("largest batch at 90 % of ") == 2


def test_without_an_optimizer_the_figures_are_bounds() -> None:
    model = build()
    bare = keras.Model(model.input, model.output)
    found, known = (mpprof.forecast_memory(one, batch_size=8, card="v100") for one in (bare, model))
    assert any("the model is not compiled: the peak is at least" in each for each in found.unknown)
    for run, other in zip(found.runs, known.runs, strict=True):
        assert (run.slots_bytes, other.at_least, other.at_most) == (None, (), ())
        assert run.peak_bytes < other.peak_bytes
        assert run.largest_batch is not None
        assert other.largest_batch is not None
        assert run.largest_batch >= other.largest_batch
    said, document = rendering.text(found), rendering.document(found)
    assert re.search(r"^  peak +at least ", said, re.MULTILINE)
    assert re.search(r"^  largest batch at 90 % of the card +at most ", said, re.MULTILINE)
    assert document["runs"][0]["at_least"] == ["fixed_bytes", "peak_bytes"]
    assert document["runs"][0]["at_most"] == ["largest_batch"]
    assert "the optimizer's slots are not known" in str(mpprof.audit(bare, batch_size=8, gpu="V100"))


def test_a_model_that_is_not_built_says_how_to_build_it() -> None:
    model = Residual()
    model.compile("adam", "mse")
    with pytest.raises(UnableError, match=r"is not built: it has neither weights nor shapes\. Call it once"):
        mpprof.forecast_memory(model)


def test_the_audit_says_what_a_batch_takes() -> None:
    report = mpprof.audit(build(), batch_size=8, gpu="A100")
    assert [one.policy for one in report.memory] == ["float32", "mixed_float16"]
    assert "Memory at batch 8, estimated:" in str(report)
    assert mpprof.audit(build()).memory == ()


@pytest.mark.usefixtures("looked_at_by_a_fork")
def test_the_command_prints_a_table_and_json(command: Mpprof, tmp_path: Path) -> None:
    build().save(tmp_path / "model.keras")
    done = command("memory", tmp_path / "model.keras", "--card", "v100", "--batch", "8")
    assert done.code == 0
    assert "largest batch at 90 % of the card" in done.out
    assert "* estimated" in done.out
    made = json.loads(command("memory", tmp_path / "model.keras", "--batch", "8", "--format", "json").out)
    assert made["schema"] == "mpprof.memory_forecast/1"
    assert [one["policy"] for one in made["runs"]] == ["float32", "mixed_float16", "mixed_bfloat16"]
    assert made["runs"][0]["largest_batch"] is None
    assert sum(one["bytes"] for one in made["runs"][0]["kept"]) == made["runs"][0]["kept_bytes"]


def test_what_is_asked_wrongly_says_what_to_do(command: Mpprof, tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        mpprof.forecast_memory(build(), card="no such card")
    with pytest.raises(UsageError, match="no card"):
        mpprof.forecast_memory(build(), compile=True)
    build().save(tmp_path / "model.keras")
    assert command("memory", tmp_path / "model.keras", "--by", "layer").code == 2
    assert command("memory", "no.module.here:build").code == 2


def test_xlas_own_assignment_takes_the_estimates_place(monkeypatch: pytest.MonkeyPatch) -> None:
    def forecast(*args: Any, **kwargs: Any) -> Any:
        memory = SimpleNamespace(temporaries_bytes=Band(1e6, 2e6), peak_bytes=Band(5e6, 6e6))
        return SimpleNamespace(
            runs=(SimpleNamespace(policy="float32", memory=memory),),
            not_compiled=(SimpleNamespace(policy="mixed_float16", reason="it crashed"),),
        )

    monkeypatch.setattr("mpprof.forecasts.forecasting.forecast", forecast)
    policies = ("float32", "mixed_float16")
    found = mpprof.forecast_memory(build(), batch_size=8, card="v100", policies=policies, compile=True)
    assigned, estimated = found.runs
    assert (assigned.peak_bytes, assigned.xla_temporaries_bytes) == (6_000_000, (1_000_000, 2_000_000))
    assert estimated.xla_peak_bytes is None
    assert any("not compiled" in each and "it crashed" in each for each in found.unknown)
    document, said = rendering.document(found), rendering.text(found)
    assert "peak_bytes" not in document["runs"][0]["estimated"]
    assert "peak_bytes" in document["runs"][1]["estimated"]
    assert all("largest_batch" in run["estimated"] for run in document["runs"])
    assert "temporaries, XLA's assignment" in said
    assert "not compiled" in said
