"""A training's memory forecast from its model, held to XLA's buffer assignment (`make_assignments`)."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from mpprof.analysis.memory import held
from mpprof.errors import UnableError, UsageError
from mpprof.forecasts import targets
from mpprof.forecasts.memory import backward, kept_for_backward, training
from mpprof.model.memory import MemoryForecast, PolicyMemory
from mpprof.model.run import OptimizerFacts, Run
from mpprof.store.facts import facts_of
from tests.forecasts.make_programs import CASES, stored
from tests.forecasts.memory.models import BATCH

DATA = json.loads(Path(__file__).with_name("assignments.json").read_text())
COMPILED = [case for case in DATA["assignments"] if "not_compiled" not in case]
COUNTERS_BYTES = 32
"""The optimizer's own numbers beside its slots: steps, learning rate, and with loss scaling scale and counter."""


SEED_BYTES = 8
"""The state of a layer's random numbers, which Keras does not count among a model's parameters."""


def run_of(record: dict[str, Any]) -> Run:
    """A record of a model without functions between its layers, where it lists none."""
    model = {"functions": [], **record["model"]}
    return _older({**record, "model": model})


def _older(record: dict[str, Any]) -> Run:
    facts = facts_of({"run_id": "model", **record})
    return Run("model", Path(), facts, None, None, None, (), True)


@cache
def forecast(model: str, card: str, policy: str) -> PolicyMemory:
    facts = targets.card(card).facts
    found = training.forecast(
        run_of(DATA["models"][model]),
        BATCH[model],
        policies=(policy,),
        card_bytes=facts.memory_bytes,
        capability=facts.compute_capability,
    )
    assert not found.unknown
    return found.runs[0]


def named(case: dict[str, Any]) -> str:
    return f"{case['model']}-{case['card']}-{case['policy']}"


@pytest.mark.parametrize("case", COMPILED, ids=named)
def test_activations_are_within_a_fifth_of_xlas_assignment(case: dict[str, Any]) -> None:
    run = forecast(case["model"], case["card"], case["policy"])
    for assigned in case["temporaries_bytes"]:
        assert 0.8 <= run.activations_bytes / assigned <= 1.2, (run.activations_bytes, assigned)


@pytest.mark.parametrize("policy", ["float32", "mixed_float16"])
def test_so_are_those_of_a_network_that_the_rules_were_not_compared_with(policy: str) -> None:
    case = next(one for one in CASES if (one.model, one.policy) == ("published_convnet", policy))
    result = stored(case).result
    run = run_of({"model": result["model"], "framework": {"backend": "jax"}})
    capability = targets.card(case.card).compute_capability
    found = training.forecast(run, case.batch_size, policies=(policy,), capability=capability).runs[0]
    for program in result["programs"].values():
        assert 0.8 <= found.activations_bytes / program["temporaries_bytes"] <= 1.2


@pytest.mark.parametrize("case", COMPILED, ids=named)
def test_parameters_gradients_and_slots_are_exact(case: dict[str, Any]) -> None:
    run = forecast(case["model"], case["card"], case["policy"])
    layers = DATA["models"][case["model"]]["model"]["layers"]
    seeded = [one for one in layers if one["class"] == "LSTM" or one["config"].get("rate")]
    assert run.parameters_bytes + SEED_BYTES * len(seeded) == case["parameters_bytes"]
    assert run.slots_bytes is not None
    assert 0 <= case["slots_bytes"] - run.slots_bytes <= COUNTERS_BYTES
    model = DATA["models"][case["model"]]["model"]
    assert run.gradients_bytes == 4 * model["trainable_parameters"]


def test_all_but_what_xla_refuses_was_compiled() -> None:
    refused = {named(case) for case in DATA["assignments"] if "not_compiled" in case}
    assert len(DATA["assignments"]) == 45
    assert refused == {"transformer-v100-mixed_bfloat16"}  # attention in bfloat16


def chain(
    *layers: dict[str, Any], backend: str = "jax", jit: object = "auto", device: str = "cpu", **facts: Any
) -> Run:
    """A Sequential model of these layers as a record."""
    filled = [{"dtype_policy": "float32", "module": "keras", "compute_dtype": "float32",
               "variable_dtype": "float32", "parameters": 0, **one} for one in layers]  # fmt: skip
    parameters = sum(one["parameters"] for one in filled)
    fit = {"fit": 1, "policy": {}, "optimizer": {"class": "Adam", "slots": 2}, "jit_compile": jit}
    return run_of({
        "framework": {"backend": backend}, "fits": [fit], "devices": [{"kind": device}],
        "model": {"name": "m", "parameters": parameters, "trainable_parameters": parameters, "layers": filled},
        **facts,
    })  # fmt: skip


def entry(*shape: int) -> dict[str, Any]:
    return {"name": "in", "class": "InputLayer", "output_dtype": "float32", "output_shape": [None, *shape]}


def layer(
    name: str, kind: str, given: list[int], out: list[int], parameters: int = 0, **config: Any
) -> dict[str, Any]:
    return {"name": name, "class": kind, "input_shape": [None, *given], "output_shape": [None, *out],
            "parameters": parameters, "config": config}  # fmt: skip


def keeps(run: Run, policy: str = "float32", batch: int = 1) -> dict[tuple[str, str], tuple[str, int]]:
    found = training.forecast(run, batch, policies=(policy,)).runs[0]
    return {(each.layer, each.what): (each.dtype, each.bytes) for each in found.kept}


BLOCK = (
    entry(8, 8, 3),
    layer("conv", "Conv2D", [8, 8, 3], [8, 8, 16], 448, kernel_size=[3, 3]),
    layer("bn", "BatchNormalization", [8, 8, 16], [8, 8, 16], 64),
    layer("relu", "ReLU", [8, 8, 16], [8, 8, 16]),
    layer("next", "Conv2D", [8, 8, 16], [8, 8, 4], 580, kernel_size=[3, 3]),
)


def test_a_convolution_keeps_its_input_and_batch_norm_its_own() -> None:
    found = keeps(chain(*BLOCK))
    assert found["conv", "output"] == ("float32", 4096)  # batch norm's input
    assert found["relu", "relu"] == ("float32", 4096)  # the next convolution's input
    assert ("bn", "output") not in found  # computed again from the convolution's


def test_op_by_op_what_xla_computes_again_is_kept() -> None:
    """PyTorch's and TensorFlow's ReLU keep their output; JAX's asks for the sign of its input."""
    run = chain(*BLOCK, layer("last", "ReLU", [8, 8, 4], [8, 8, 4]), backend="torch")
    assert keeps(run)["last", "relu"] == ("float32", 1024)
    compiled = keeps(chain(*BLOCK, layer("last", "ReLU", [8, 8, 4], [8, 8, 4])))
    assert ("last", "relu") not in compiled


def forecast_on_tensorflow(*layers: dict[str, Any], **facts: Any) -> MemoryForecast:
    """The last ReLU's output is kept op by op, and computed again where XLA compiles the step."""
    run = chain(
        *layers, *BLOCK[1:], layer("last", "ReLU", [8, 8, 4], [8, 8, 4]), backend="tensorflow", **facts
    )
    return training.forecast(run, 1, policies=("float32",))


def is_compiled(found: MemoryForecast) -> bool:
    kept = ("last", "relu") in {(each.layer, each.what) for each in found.runs[0].kept}
    assert found.assumed[0].startswith("the step runs on tensorflow, compiled by XLA") is not kept
    return not kept


@pytest.mark.parametrize(
    ("facts", "compiled"),
    [
        ({"jit": False}, True),  # what Keras decides on a machine without a GPU
        ({"jit": False, "device": "gpu"}, False),
        ({"jit": True}, True),
        ({"jit": "auto", "device": "gpu"}, True),
        ({"jit": False, "distribution": "MirroredStrategy"}, False),
        ({"jit": False, "deterministic_ops": True}, False),
        ({"jit": False, "framework": {"backend": "tensorflow", "keras": "2.15.0"}}, False),
        ({"jit": False, "framework": {"backend": "tensorflow", "loop": "custom"}}, False),
    ],
)
def test_a_step_is_compiled_as_it_would_be_on_a_gpu(facts: dict[str, Any], compiled: bool) -> None:
    found = forecast_on_tensorflow(entry(8, 8, 3), **facts)
    assert is_compiled(found) is compiled
    assert ("by default on a GPU" in found.assumed[0]) is (facts["jit"] is False and "device" not in facts)


@pytest.mark.parametrize(
    ("config", "compiled"), [({"use_cudnn": "auto"}, False), ({"use_cudnn": "auto", "unroll": True}, True)]
)
def test_a_layer_that_takes_cudnn_on_a_gpu_turns_xla_off(config: dict[str, Any], compiled: bool) -> None:
    lstm = layer("lstm", "LSTM", [8, 24], [8, 24], 4704, units=24, return_sequences=True, **config)
    back = layer("back", "Reshape", [8, 24], [8, 8, 3])
    assert is_compiled(forecast_on_tensorflow(entry(8, 24), lstm, back, jit=False)) is compiled


@pytest.mark.parametrize(
    ("loss", "backend", "kept", "of_gradients"),
    [
        ("sparse_categorical_crossentropy", "tensorflow", {("logits", "output")}, 0),
        ("CategoricalCrossentropy(label_smoothing=0.1)", "tensorflow", {("logits", "output")}, 0),
        (None, "tensorflow", {("logits", "output")}, 0),
        ("mean_squared_error", "tensorflow", {("soft", "softmax")}, 4000),
        ("sparse_categorical_crossentropy", "torch", {("soft", "softmax")}, 8000),
    ],
)
def test_op_by_op_on_tensorflow_the_cross_entropy_writes_the_logits_gradient_in_their_place(
    loss: str | None, backend: str, kept: set[tuple[str, str]], of_gradients: int
) -> None:
    """Keras gives it the logits of a softmax (`_get_logits`); `SparseXentWithLogits` forwards its input."""
    run = chain(entry(8), layer("logits", "Dense", [8], [1000], 9000), layer("soft", "Softmax", [1000], [1000]),
                backend=backend, jit=False, device="gpu")  # fmt: skip
    assert run.facts is not None
    (fit,) = run.facts.fits
    run = replace(run, facts=replace(run.facts, fits=(replace(fit, loss=loss),)))
    (found,) = training.forecast(run, 1, policies=("float32",)).runs
    assert {(each.layer, each.what) for each in found.kept} == kept
    assert found.of_gradients_bytes == of_gradients


def test_16_bits_halve_what_is_computed_in_them_and_keep_a_cast_input() -> None:
    narrow = keeps(chain(*BLOCK), "mixed_float16")
    assert narrow["conv", "output"] == ("float16", 2048)
    assert narrow["conv", "input"] == ("float16", 384)  # of the float32 batch
    assert ("conv", "input") not in keeps(chain(*BLOCK))


def test_a_layer_of_another_policy_keeps_it() -> None:
    wide = {**layer("soft", "Softmax", [8], [8]), "dtype_policy": "float32"}
    dense = [{**one, "dtype_policy": "mixed_float16"}
             for one in (layer("a", "Dense", [8], [8], 72), layer("b", "Dense", [8], [8], 72))]  # fmt: skip
    model = training.under(chain(entry(8), *dense, wide).facts.model, "mixed_bfloat16")  # type: ignore[union-attr, arg-type]
    assert [one.compute_dtype for one in model.layers[1:]] == ["bfloat16", "bfloat16", "float32"]


def test_a_dropout_keeps_a_byte_for_each_element_and_none_without_a_rate() -> None:
    def model(rate: float) -> Run:
        return chain(entry(8), layer("a", "Dense", [8], [64], 576), layer("drop", "Dropout", [64], [64], rate=rate),
                     layer("b", "Dense", [64], [8], 520))  # fmt: skip

    assert keeps(model(0.5))["drop", "mask"] == ("bool", 64)
    assert ("drop", "mask") not in keeps(model(0.0))


def attention(card: tuple[int, int] | None, policy: str) -> dict[tuple[str, str], tuple[str, int]]:
    run = chain(
        entry(16, 32), layer("mha", "MultiHeadAttention", [16, 32], [16, 32], 4224, num_heads=4, key_dim=8)
    )
    found = training.forecast(run, 1, policies=(policy,), capability=card).runs[0]
    return {(each.layer, each.what): (each.dtype, each.bytes) for each in found.kept}


def test_attention_keeps_float32_scores_whatever_the_policy_unless_it_is_fused() -> None:
    assert attention((7, 0), "mixed_float16")["mha", "scores"] == ("float32", 4096)
    assert attention((7, 0), "mixed_float16")["mha", "probabilities"] == ("float16", 2048)
    assert ("mha", "scores") not in attention((8, 0), "mixed_float16")
    assert attention((8, 0), "float32")["mha", "scores"] == ("float32", 4096)


def test_a_loop_keeps_more_of_a_recurrent_layer_than_cudnn() -> None:
    def gates(**config: Any) -> int:
        run = chain(entry(10, 4), layer("lstm", "LSTM", [10, 4], [6], 264, units=6, **config))
        return keeps(run)["lstm", "gates and states"][1]

    assert gates() == 5 * 10 * 6 * 4
    assert gates(use_cudnn=False) == 12 * 10 * 6 * 4


def test_frozen_layers_before_the_first_trained_one_keep_nothing() -> None:
    frozen = [{**one, "trainable": False} for one in BLOCK[1:4]]
    found = keeps(chain(BLOCK[0], *frozen, BLOCK[4]))
    assert set(found) == {("relu", "relu"), ("next", "output")}  # the second is the loss's


@pytest.mark.parametrize("jit", [False, "auto"])
def test_of_a_frozen_model_the_fullest_moment_is_in_the_forward_pass(jit: object) -> None:
    """ReLU's result of 4096 bytes waits for the other branch's, and both for their sum."""
    fork = {**layer("fork", "Conv2D", [8, 8, 16], [8, 8, 16], 2320, kernel_size=[3, 3]), "inbound": ["relu"]}
    both = {**layer("both", "Add", [8, 8, 16], [8, 8, 16]), "inbound": ["relu", "fork"],
            "input_shape": [[None, 8, 8, 16], [None, 8, 8, 16]]}  # fmt: skip
    before = ("in", "conv", "bn")
    order = ({**one, "inbound": [name]} for one, name in zip(BLOCK[1:4], before, strict=True))
    frozen = [{**one, "trainable": False} for one in (*order, fork, both)]
    pool = {**layer("pool", "GlobalAveragePooling2D", [8, 8, 16], [16]), "inbound": ["both"]}
    last = {**layer("last", "Dense", [16], [2], 34), "inbound": ["pool"]}
    start = {**BLOCK[0], "inbound": []}
    run = training.forecast(chain(start, *frozen, pool, last, backend="tensorflow", jit=jit), 1).runs[0]
    assert run.activations_bytes == 3 * 4096
    assert run.fullest_layer == "both"
    assert sum(one.bytes for one in run.kept) == 4 * (16 + 2)


def test_an_optimizer_keeps_nothing_for_what_is_not_trained() -> None:
    run = chain(*BLOCK)
    assert run.facts.model is not None
    model = replace(run.facts.model, trainable_parameters=580)
    found = held.recorded(replace(run, facts=replace(run.facts, model=model)))
    assert (found.parameters, found.trained, found.slots) == (4 * 1092, 4 * 580, 2 * 4 * 580)


def test_unknown_slots_are_said_to_be_left_out_of_the_peak() -> None:
    run = chain(*BLOCK)
    optimizer = OptimizerFacts("Adafactor")
    fits = tuple(replace(fit, optimizer=optimizer) for fit in run.facts.fits)
    found = training.forecast(replace(run, facts=replace(run.facts, fits=fits)), 1)
    assert found.runs[0].slots_bytes is None
    assert any("optimizer" in each for each in found.unknown)
    assert not training.forecast(run, 1).unknown


def test_the_graph_is_followed_where_it_is_recorded() -> None:
    """A skip connection's result is needed after the block, however the layers are listed."""
    conv = {**layer("conv", "Conv2D", [8, 8, 4], [8, 8, 4], 148, kernel_size=[3, 3]), "inbound": ["in"]}
    inside = {**layer("inside", "Conv2D", [8, 8, 4], [8, 8, 4], 148, kernel_size=[3, 3]), "inbound": ["conv"]}
    both = {**layer("both", "Multiply", [8, 8, 4], [8, 8, 4]), "inbound": ["conv", "inside"],
            "input_shape": [[None, 8, 8, 4], [None, 8, 8, 4]]}  # fmt: skip
    start = {**entry(8, 8, 4), "inbound": []}
    assert {name for name, _ in keeps(chain(start, conv, inside, both))} == {"conv", "inside"}


def test_the_largest_batch_fills_nine_tenths() -> None:
    assert training.largest_batch(1000, 400, 50) == 10
    assert training.largest_batch(1000, 901, 50) == 0
    assert training.largest_batch(None, 0, 1) is None
    run = forecast("resnet", "a100", "mixed_float16")
    assert run.largest_batch is not None
    card = targets.card("a100").memory_bytes
    filled = [
        run.fixed_bytes + batch * run.bytes_per_example
        for batch in (run.largest_batch, run.largest_batch + 1)
    ]
    assert filled[0] <= 0.9 * card < filled[1]


def test_everything_but_the_fixed_bytes_grows_with_the_batch() -> None:
    one, four = (training.forecast(run_of(DATA["models"]["unet"]), batch).runs[0] for batch in (1, 4))
    assert four.fixed_bytes == one.fixed_bytes
    assert four.activations_bytes == 4 * one.activations_bytes
    assert four.peak_bytes == four.fixed_bytes + 4 * four.bytes_per_example


def test_the_peak_is_never_below_what_is_kept() -> None:
    for name, record in DATA["models"].items():
        compiled, op_by_op = (kept_for_backward.Machine("jax", one) for one in (True, False))
        graph = kept_for_backward.graph(run_of(record).facts.model, compiled)  # type: ignore[union-attr, arg-type]
        for machine in (compiled, op_by_op):
            found = backward.backward(graph, machine)
            assert found.peak_bytes >= found.kept_bytes, name
        assert found.kept_bytes >= backward.backward(graph, compiled).kept_bytes


def test_an_unknown_layer_is_named() -> None:
    own = {**layer("mine", "Swirl", [8], [8], 8), "module": "project"}
    found = training.forecast(chain(entry(8), layer("a", "Dense", [8], [8], 72), own), 1)
    assert any("mine" in each for each in found.unknown)


def test_with_a_layer_of_no_known_kind_the_peak_is_at_least_and_no_batch_is_largest() -> None:
    own = {**layer("mine", "Swirl", [8], [8], 8), "module": "project"}
    known = training.forecast(chain(entry(8), layer("a", "Dense", [8], [8], 72)), 1, card_bytes=1 << 30)
    found = training.forecast(chain(entry(8), layer("a", "Dense", [8], [8], 72), own), 1, card_bytes=1 << 30)
    assert (known.runs[0].custom_layers, known.runs[0].at_least) == ((), ())
    assert known.runs[0].largest_batch
    for run in found.runs:
        assert run.custom_layers == ("mine",)
        assert {"peak_bytes", "activations_bytes"} <= set(run.at_least)
        assert run.largest_batch is None
    assert "at least" in repr(found)
    assert "at least" not in repr(known)
    compiled = replace(found.runs[0], xla_peak_bytes=(5, 6), peak_bytes=6, largest_batch=7)
    assert "peak_bytes" not in compiled.at_least


def test_what_cannot_be_forecast_says_why() -> None:
    shapeless = {"name": "a", "class": "Dense", "parameters": 8}
    with pytest.raises(UnableError, match="does not state the shape"):
        training.forecast(chain(entry(8), shapeless), 1)
    with pytest.raises(UnableError, match="no fixed size"):
        training.forecast(
            chain(entry(8), {**layer("a", "Dense", [8], [8], 72), "output_shape": [None, None, 8]}), 1
        )
    with pytest.raises(UsageError, match="dtype policy"):
        training.forecast(chain(*BLOCK), 1, policies=("int8",))
    with pytest.raises(UsageError, match="batch"):
        training.forecast(chain(*BLOCK), 0)
    with pytest.raises(UnableError, match="no model"):
        training.forecast(Run("r", Path(), None, None, None, None, (), True), 1)


def quantised(*policies: str) -> Run:
    """A model of Dense layers of these policies."""
    first = {
        "name": "x",
        "class": "InputLayer",
        "output_shape": [None, 512],
        "inbound": [],
        "output_dtype": "float32",
    }
    names = ["x", *(f"d{place}" for place in range(len(policies)))]
    layers = [
        {"name": name, "class": "Dense", "module": "keras", "dtype_policy": policy, "compute_dtype": "float16",
         "variable_dtype": "float32", "output_dtype": "float16", "parameters": 512 * 512, "config": {"units": 512},
         "input_shape": [None, 512], "output_shape": [None, 512], "inbound": [before], "trainable": True}
        for before, name, policy in zip(names, names[1:], policies, strict=False)
    ]  # fmt: skip
    return run_of({
        "framework": {"backend": "jax"},
        "model": {"name": "m", "parameters": 512 * 512 * len(policies), "layers": [first, *layers], "outputs": [{"layer": names[-1], "dtype": "float16"}]},
    })  # fmt: skip


@pytest.mark.parametrize("policy", ["float32", "mixed_float16", "mixed_bfloat16"])
def test_a_model_quantised_from_mixed_float16_is_one_of_mixed_float16(policy: str) -> None:
    """What it keeps in 8 bits is not counted, and said; all else is that of the policy it was quantised from."""
    mixed, narrow = "mixed_float16", "float8_from_mixed_float16"
    plain = training.forecast(quantised(*[mixed] * 3), 256, policies=(policy,))
    for policies in ([narrow] * 3, [narrow, narrow, mixed], [narrow, mixed, mixed]):
        found = training.forecast(quantised(*policies), 256, policies=(policy,))
        assert found.runs[0].peak_bytes == plain.runs[0].peak_bytes, policies
        assert any(
            f"what {policies.count(narrow)} float8 layers keep in 8 bits" in said for said in found.unknown
        )


def test_functions_that_an_older_record_does_not_list_make_the_peak_a_lower_bound() -> None:
    """A chain of layers has none, whoever recorded it."""
    for model, bound in (("resnet", True), ("vgg", False), ("lstm", False)):
        record = DATA["models"].get(model)
        if record is None:
            continue
        found = training.forecast(_older(record), 8, policies=("float32",), card_bytes=1 << 36)
        (run,) = found.runs
        assert ("peak_bytes" in run.at_least, run.at_most == ("largest_batch",)) == (bound, bound)
        assert any("functions of keras.ops" in text for text in found.unknown) == bound


def test_what_float8_layers_keep_beside_the_count_makes_the_peak_a_lower_bound() -> None:
    layer = {"name": "d", "class": "Dense", "parameters": 72, "input_shape": [None, 8], "output_shape": [None, 8],
             "dtype_policy": "float8_from_mixed_float16"}  # fmt: skip
    (run,) = training.forecast(chain(layer), 8, policies=("mixed_float16",), card_bytes=1 << 36).runs
    assert "peak_bytes" in run.at_least
    assert run.at_most == ("largest_batch",)
