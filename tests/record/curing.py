"""Small scripts with a planted cause, each with one place where the code of its remedy is copied to.

A script runs twice, on any backend of Keras: as it is, and with the code of the first remedy that has any, as the
report of the first run prints it. Names that a script leaves to the code are what the code calls them. Keras' backend
is fixed for a process: `on_jax`, `on_keras_2` and the tests of each framework run the scripts in their own.
"""

from __future__ import annotations

import ast
import importlib
import json
import os
import re
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import mpprof
from mpprof.model.audit import AuditReport
from mpprof.model.finding import Diagnosis

FEATURES, CLASSES, BATCH = 16, 4, 8
LARGE_VOCABULARY = 8200
Names = dict[str, Any]
Paste = Callable[..., Names]
"""Called where the remedy's code goes, with what the script has at hand there; returns this and what the code made."""
TF, JAX, TORCH, KERAS_2, LOOP = "tensorflow", "jax", "torch", "tf_keras", "torch loop"
EVERYWHERE = (TF, JAX, TORCH, KERAS_2)
KERAS_3 = (TF, JAX, TORCH)
FINDS = ("enable_check_numerics", "jax_debug_nans", "set_detect_anomaly")
"""What makes a training stop where its first value is not finite: the cure is in the next remedy."""


@dataclass
class Kit:
    """Keras as a script calls it, Keras 2 by the same names; where it records to; the `code` that `paste` runs."""

    name: str
    keras: Any
    folder: Path
    paste: Paste
    code: str = ""
    modules: Names = field(default_factory=dict)

    @property
    def of_keras_2(self) -> bool:
        return self.name == KERAS_2

    @property
    def layers(self) -> Any:
        return self.keras.layers

    def set_policy(self, policy: str) -> None:
        if self.of_keras_2:
            self.keras.mixed_precision.set_global_policy(policy)
        else:
            self.keras.config.set_dtype_policy(policy)

    def scaled(self, **options: Any) -> Any:
        within = self.keras.mixed_precision if self.of_keras_2 else self.keras.optimizers
        return within.LossScaleOptimizer(self.adam(), **options)

    def adam(self, **options: Any) -> Any:
        return self.keras.optimizers.Adam(1e-3, **options)

    def cast(self, x: Any, dtype: str) -> Any:
        return self.modules["tf"].cast(x, dtype) if self.of_keras_2 else self.keras.ops.cast(x, dtype)

    def classifier(self, classes: int = CLASSES, *ends: Any, dtype: str | None = None) -> Any:
        """A dense model; `ends`: its last layers, in place of logits in float32."""
        layers = self.layers
        ends = ends or (layers.Dense(classes, dtype=dtype), layers.Activation("linear", dtype="float32"))
        hidden = layers.Dense(32, activation="relu", dtype=dtype)
        return self.keras.Sequential([self.keras.Input((FEATURES,)), hidden, *ends])

    def compiled(self, model: Any, optimizer: Any = None, loss: Any = None, **options: Any) -> Any:
        loss = loss or self.keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(optimizer or self.adam(), loss, **options)
        return model

    def callback(self, where: str = "", **options: Any) -> Any:
        given: Names = {"profile_steps": None, "hardware": False, "audit": False, "verbose": 0, **options}
        return mpprof.MPProfilerCallback(self.folder / where, **given)

    def trained(self, model: Any, steps: int = 30, y: Any = None, where: str = "", **options: Any) -> Path:
        """Train on so many batches, and return where it was recorded. `y`: a target that all examples have."""
        x, labels = examples(steps)
        if y is not None:
            labels = np.full((len(x), 1), y, "float32")
        recorded = options.pop("callback", None) or self.callback(where)
        model.fit(x, labels, batch_size=BATCH, shuffle=False, verbose=0, callbacks=[recorded], **options)
        return self.folder / where


def examples(steps: int) -> tuple[Any, Any]:
    random = np.random.default_rng(3)
    x = random.standard_normal((BATCH * steps, FEATURES)).astype("float32")
    return x, random.integers(0, CLASSES, BATCH * steps)


@dataclass(frozen=True)
class Script:
    """A cause and how it is planted; `of`: the frameworks on which its remedy has code that a CPU can try, `stays`:
    those on which it is found again, as `STAYS` says, but asks for that code no more."""

    code: str
    plant: Callable[[Kit], Path | Diagnosis | AuditReport]
    of: tuple[str, ...] = EVERYWHERE
    light: bool = False
    stays: tuple[str, ...] = ()


# --- is mixed precision in effect


def before_its_policy(kit: Kit) -> Path:
    model = kit.classifier()
    kit.set_policy("mixed_float16")
    return kit.trained(kit.compiled(kit.paste(model=model, build_model=kit.classifier)["model"]))


def without_loss_scaling(kit: Kit) -> Path:
    """The policy is given to the layers alone, so that Keras does not wrap the optimizer."""
    model = kit.compiled(kit.classifier(dtype="mixed_float16"))
    return kit.trained(kit.paste(model=model)["model"])


def _own_step_on_tensorflow(kit: Kit) -> Any:
    tf = kit.modules["tf"]

    def train_step(self: Any, given: Any) -> Any:
        x, y = given
        with tf.GradientTape() as tape:
            loss = self.compiled_loss(y, self(x)) if kit.of_keras_2 else self.compute_loss(x, y, self(x))
            names: Names = {"tape": tape, "variables": self.trainable_variables}
            names = kit.paste(loss=loss, optimizer=self.optimizer, **({} if kit.of_keras_2 else names))
            scaled = names.get("scaled", loss)
        if kit.of_keras_2:
            names = {"optimizer": self.optimizer, "loss": loss, "scaled": scaled}
        gradients = tape.gradient(scaled, self.trainable_variables)
        self.optimizer.apply_gradients(zip(gradients, self.trainable_variables, strict=True))
        return {"loss": loss}

    return train_step


def _own_step_on_torch(kit: Kit) -> Any:
    torch = kit.modules["torch"]

    def train_step(self: Any, given: Any) -> Any:
        x, y = given
        self.zero_grad()
        loss = self.compute_loss(x, y, self(x, training=True))
        kit.paste(loss=loss, optimizer=self.optimizer).get("scaled", loss).backward()
        gradients = [variable.value.grad for variable in self.trainable_weights]
        with torch.no_grad():
            self.optimizer.apply(gradients, self.trainable_weights)
        return {"loss": loss.detach()}

    return train_step


def in_a_step_without_scaling(kit: Kit) -> Path:
    kit.set_policy("mixed_float16")
    make = {TF: _own_step_on_tensorflow, TORCH: _own_step_on_torch}[kit.name]
    own = type("Own", (kit.keras.Sequential,), {"train_step": make(kit)})
    made = kit.classifier()
    return kit.trained(kit.compiled(own([kit.keras.Input((FEATURES,)), *made.layers])))


def in_a_loop_without_scaling(kit: Kit) -> Path:
    """A stateless loop on JAX."""
    jax, keras = kit.modules["jax"], kit.keras
    kit.set_policy("mixed_float16")
    model = kit.compiled(kit.classifier())
    optimizer = model.optimizer
    optimizer.build(model.trainable_variables)

    def loss_of(trainable: Any, fixed: Any, state: Any, x: Any, y: Any) -> Any:
        outputs, fixed = model.stateless_call(trainable, fixed, x, training=True)
        with keras.StatelessScope(state_mapping=list(zip(optimizer.variables, state, strict=True))):
            loss = model.loss(y, outputs)
            return kit.paste(loss=loss, optimizer=optimizer).get("scaled", loss), fixed

    @jax.jit
    def train(trainable: Any, fixed: Any, state: Any, x: Any, y: Any) -> Any:
        (_, fixed), gradients = jax.value_and_grad(loss_of, has_aux=True)(trainable, fixed, state, x, y)
        trainable, state = optimizer.stateless_apply(state, gradients, trainable)
        return trainable, fixed, state

    values = [
        [one.value for one in each]
        for each in (model.trainable_variables, model.non_trainable_variables, optimizer.variables)
    ]
    x, y = examples(30)
    quiet: Any = {"hardware": False, "profile_steps": None, "verbose": 0}
    with mpprof.StepRecorder(
        kit.folder, model=model, optimizer=optimizer, batch_size=BATCH, **quiet
    ) as recorder:
        for at in range(0, len(x), BATCH):
            with recorder.step():
                values = train(*values, x[at : at + BATCH], y[at : at + BATCH])
            recorder.update(optimizer_variables=values[2])
    return kit.folder


@contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    os.environ[name] = value
    try:
        yield
    finally:
        del os.environ[name]


def under_a_rewrite_that_is_not_known(kit: Kit) -> Path:
    with _set("TF_ENABLE_AUTO_MIXED_PRECISION", "1"):
        names = kit.paste(build_model=kit.classifier)
        return kit.trained(kit.compiled(names.get("model") or kit.classifier()))


def _ending(kit: Kit, classes: int, product: bool) -> Path:
    """The model ends with a layer in 16 bits; `product`: the code goes behind it, and not in its place."""
    kit.set_policy("mixed_float16")
    inputs = kit.keras.Input((FEATURES,))
    x = kit.layers.Dense(32, activation="relu")(inputs)
    own = kit.layers.Dense(classes)
    outputs = kit.paste(x=own(x) if product else x).get("outputs")
    return kit.trained(kit.compiled(kit.keras.Model(inputs, own(x) if outputs is None else outputs)))


def with_a_16_bit_output(kit: Kit) -> Path:
    return _ending(kit, CLASSES, product=False)


def with_a_16_bit_vocabulary(kit: Kit) -> Path:
    return _ending(kit, LARGE_VOCABULARY, product=True)


# --- loss scaling


def regression(kit: Kit, optimizer: Any, y: float, steps: int = 60, **options: Any) -> Path:
    """Of a target so far away that scaled gradients overflow, or do not."""
    kit.set_policy("mixed_float16")
    kit.keras.utils.set_random_seed(0)
    return kit.trained(kit.compiled(kit.classifier(1), optimizer, "mse", **options), steps, y)


def overflowing_unscaled(kit: Kit) -> Path:
    """The gradients of a squared error of a million are beyond float16 whatever their scale; the loss is not."""
    kit.set_policy("mixed_float16")
    kit.paste()
    return kit.trained(kit.compiled(kit.classifier(1), loss="mse"), 120, 1e6)


def with_a_small_fixed_scale(kit: Kit) -> Path:
    kit.set_policy("mixed_float16")
    small = (
        kit.scaled(dynamic=False, initial_scale=8.0) if kit.of_keras_2 else kit.adam(loss_scale_factor=8.0)
    )
    made = kit.paste(model=kit.compiled(kit.classifier())).get("optimizer")
    options = {} if made is not None or kit.of_keras_2 else {"auto_scale_loss": False}
    return kit.trained(kit.compiled(kit.classifier(), made or small, **options))


def scaled_in_float32(kit: Kit) -> Path:
    """Nothing overflows in float32, so that the scale grows with every step."""
    model = kit.compiled(kit.classifier(), kit.scaled(initial_scale=2.0**20, dynamic_growth_steps=1))
    names = kit.paste(model=model)
    if kit.of_keras_2 and "optimizer" in names:
        kit.compiled(model, names["optimizer"])
    return kit.trained(model)


def overflowing_at_the_start(kit: Kit) -> Path:
    return regression(kit, kit.paste().get("optimizer"), 10.0)


def growing_too_often(kit: Kit) -> Path:
    often = kit.scaled(dynamic_growth_steps=2)
    return regression(kit, kit.paste().get("optimizer", often), 10.0, 90)


def masked_beyond_float16(kit: Kit) -> Path:
    """Masks of -1e9 are infinite in float16: of a row that is all masked the softmax is not a number."""
    kit.set_policy("mixed_float16")
    kit.paste()

    def call(self: Any, x: Any) -> Any:
        return x + kit.cast(np.full((1, 1), -1e9, "float32"), self.compute_dtype)

    masked = type("Masked", (kit.layers.Layer,), {"call": call})()
    ends = kit.layers.Dense(CLASSES), masked, kit.layers.Activation("softmax")
    model = kit.classifier(CLASSES, *ends, kit.layers.Activation("linear", dtype="float32"))
    return kit.trained(kit.compiled(model, loss="sparse_categorical_crossentropy"))


def in_a_loop_on_torch(kit: Kit, y: float, steps: int = 90, **options: Any) -> Path:
    """With a GradScaler, on a CPU."""
    torch = kit.modules["torch"]
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    names = kit.paste(model=model)
    scaler = names.get("scaler") or torch.amp.GradScaler("cpu", **options)
    made = names.get("made")
    within = made if isinstance(made, torch.autocast) else torch.autocast("cpu", torch.float16)
    quiet: Any = {"hardware": False, "profile_steps": None, "verbose": 0, "backend": "torch"}
    x, _ = examples(steps)
    with mpprof.StepRecorder(
        kit.folder, model=model, optimizer=optimizer, batch_size=BATCH, **quiet
    ) as recorder:
        for at in range(0, len(x), BATCH):
            was = scaler.get_scale()
            with recorder.step():
                optimizer.zero_grad()
                with within:
                    loss = ((model(torch.tensor(x[at : at + BATCH])).float() - y) ** 2).mean()
                scaler.scale(loss).backward()
                scaler.step(optimizer)
                scaler.update()
            scale = scaler.get_scale()
            recorder.update(loss=loss.item(), loss_scale=scale, skipped=int(scale < was))
    return kit.folder


# --- the host


def in_eager(kit: Kit) -> Path:
    return kit.trained(kit.paste(model=kit.compiled(kit.classifier(), run_eagerly=True))["model"])


def with_deterministic_ops(kit: Kit) -> Path:
    torch = kit.modules["torch"]
    torch.use_deterministic_algorithms(True)
    kit.paste()
    try:
        return kit.trained(kit.compiled(kit.classifier()))
    finally:
        torch.use_deterministic_algorithms(False)


def under_a_strategy(kit: Kit) -> Path:
    """Keras compiles nothing by itself there."""
    with kit.modules["tf"].distribute.MirroredStrategy(["CPU:0"]).scope():
        return kit.trained(kit.paste(model=kit.compiled(kit.classifier()))["model"])


def padded_in_float32(kit: Kit) -> Path:
    """Wide layers in 16 bits with hardly any work between float32 ones: the step is mostly casts."""
    kit.set_policy("mixed_bfloat16")
    parts = [kit.layers.Activation("relu", dtype=None if at % 2 else "float32") for at in range(24)]
    wide = kit.layers.Dense(1 << 14)
    ends = wide, *parts, kit.layers.Dense(CLASSES, dtype="float32")
    model = kit.compiled(kit.classifier(CLASSES, *ends), jit_compile=False)
    return kit.trained(kit.paste(model=model)["model"], 40, callback=kit.callback(profile_steps=(30, 33)))


# --- is the measurement valid


class _Recorder:
    """The recorder as the printed code calls it, writing to the script's own folder."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self.made: Any = None

    def __call__(self, logdir: str, **options: Any) -> None:
        self.made = self._kit.callback(**options)


def _windowed(kit: Kit, steps: int, **options: Any) -> Path:
    recorder = _Recorder(kit)
    kit.paste(MPProfilerCallback=recorder)
    return kit.trained(
        kit.compiled(kit.classifier()), steps, callback=recorder.made or kit.callback(**options)
    )


def window_at_the_start(kit: Kit) -> Path:
    return _windowed(kit, 80, profile_steps=(1, 1))


def of_many_shapes(kit: Kit) -> Path:
    """Four files, each with a last batch of its own size."""
    tf, parts = importlib.import_module("tensorflow"), []
    model = kit.compiled(kit.classifier(), jit_compile=True)
    for left in range(1, 5):
        whole = examples(164)
        data = tf.data.Dataset.from_tensor_slices(tuple(each[: 64 * 20 + left] for each in whole))
        made = kit.paste(data=data)["data"]
        parts.append(data.batch(64) if made is data else made)
    data = parts[0]
    for part in parts[1:]:
        data = data.concatenate(part)
    model.fit(data, epochs=2, verbose=0, callbacks=[kit.callback()])
    return kit.folder


def window_after_the_end(kit: Kit) -> Path:
    return _windowed(kit, 40, profile_steps=(200, 204))


def epochs_of_one_call(kit: Kit) -> Path:
    """All data in one batch. The code trains on `data`, repeated."""
    tf, model, recorder = kit.modules["tf"], kit.compiled(kit.classifier()), kit.callback()
    data = tf.data.Dataset.from_tensor_slices(examples(4)).batch(BATCH * 4)

    class Recorded:
        def fit(self, given: Any, **options: Any) -> None:
            model.fit(given, verbose=0, epochs=2, callbacks=[recorder], **options)
            self.did = True

    recorded = Recorded()
    if not hasattr(kit.paste(model=recorded, data=data)["model"], "did"):
        model.fit(data, verbose=0, epochs=8, callbacks=[recorder])
    return kit.folder


def against_a_baseline_in_16_bits(kit: Kit) -> Diagnosis:
    kit.set_policy("mixed_float16")
    mixed = kit.trained(kit.compiled(kit.classifier()), where="mixed")
    kit.paste()
    baseline = kit.trained(kit.compiled(kit.classifier()), where="baseline")
    return mpprof.diagnose(mixed, baseline=baseline)


# --- what is seen before training

Part = Callable[[Any], Any]
"""Makes a layer, of `keras.layers`."""


def audited(*parts: Part, policy: str = "mixed_float16", shape: tuple[int, ...] = (8,), **more: Any) -> Any:
    """A model of these layers, looked over. The code is for the one called `at`: a layer in its place, what it is
    given, or the model's outputs; where there is none, it is for the whole model."""

    def plant(kit: Kit) -> AuditReport:
        kit.set_policy(policy)
        if not any(_at(part(kit.layers)) for part in parts):
            kit.paste()
        inputs = tensor = kit.keras.Input(shape)
        for part in parts:
            made = part(kit.layers)
            if _at(made):
                names = kit.paste(x=tensor, images=tensor)
                tensor = names["x"] if names["x"] is not tensor else names["images"]
                made = names.get("made", made)
            tensor = made(tensor)
        return mpprof.audit(kit.compiled(kit.keras.Model(inputs, tensor), loss="mse"), **more)

    return plant


def clipping_by_itself(kit: Kit) -> AuditReport:
    """A training step that clips gradients which the optimizer has not un-scaled yet."""
    tf = kit.modules["tf"]

    def train_step(self: Any, data: Any) -> Any:
        return {"loss": tf.clip_by_global_norm([data[0]], 1.0)[1]}

    kit.set_policy("mixed_float16")
    own = type("Clips", (kit.keras.Sequential,), {"train_step": train_step})
    model = kit.compiled(own([kit.keras.Input((FEATURES,)), *kit.classifier().layers]))
    return mpprof.audit(kit.paste(model=model)["model"])


def quantised(units: int, gpu: str, batch: int) -> Callable[[Kit], AuditReport]:
    """A model of Keras 3 in float8; the code stands in place of the call that quantises it."""

    def plant(kit: Kit) -> AuditReport:
        kit.set_policy("mixed_bfloat16")

        def build_model(middle: Any = None) -> Any:
            dense = kit.layers.Dense
            layers = (
                dense(1024, name="first"),
                middle or dense(units, name="middle"),
                dense(1024, name="last"),
            )
            return kit.keras.Sequential([kit.keras.Input((1024,)), *layers, _end(kit.layers)])

        built = build_model()
        names = kit.paste(model=built, build_model=build_model)
        model = (
            build_model(names["made"]) if isinstance(names.get("made"), kit.layers.Dense) else names["model"]
        )
        if "quantize" not in kit.code:
            model.quantize("float8")
        return mpprof.audit(kit.compiled(model, loss="mse"), gpu=gpu, batch_size=batch)

    return plant


def _at(layer: Any) -> bool:
    return bool(layer.name == "at")


def _end(layers: Any) -> Any:
    return layers.Activation("relu", dtype="float32")


def _dense(layers: Any) -> Any:
    return layers.Dense(16)


IMAGE, SERIES = (16, 16, 8), (4, 8)
AUDITED: dict[str, Script] = {
    "MP104 of a layer": Script(
        "MP104", audited(lambda of: of.Dense(16, dtype="float32", name="at"), _dense, _end)
    ),
    "MP401": Script("MP401", audited(lambda of: of.Dense(100, activation="relu", name="at"), _end)),
    "MP401 of a filter": Script("MP401", audited(lambda of: of.Conv2D(12, 3, name="at"), _end, shape=IMAGE)),
    "MP401 of features": Script("MP401", audited(lambda of: of.Dense(64, name="at"), _end, shape=(30,))),
    "MP402": Script("MP402", audited(lambda of: of.Dense(33708, name="at"), _end)),
    "MP403": Script(
        "MP403", audited(lambda of: of.Conv2D(8, 3, strides=2, name="at"), _end, shape=(16, 16, 3))
    ),
    "MP406": Script(
        "MP406",
        audited(lambda of: of.DepthwiseConv2D(3, name="at"), lambda of: of.Conv2D(8, 1), _end, shape=IMAGE),
    ),
    "MP407": Script("MP407", audited(lambda of: of.Conv2D(16, 3, groups=4, name="at"), _end, shape=IMAGE)),
    "MP410": Script(
        "MP410",
        audited(lambda of: of.LSTM(16, activation="relu", name="at"), _end, shape=SERIES),
        (TF, TORCH, KERAS_2),
    ),
    "MP413": Script("MP413", quantised(1000, "H100", 4096), KERAS_3),
    "MP414": Script("MP414", quantised(32, "H100", 4096), KERAS_3),
    "MP506": Script("MP506", clipping_by_itself, (TF,)),
    "MP801": Script("MP801", audited(_dense, _end, gpu="GTX 1080 Ti"), stays=EVERYWHERE),
    "MP802": Script("MP802", audited(_dense, _end, gpu="GTX 1650"), stays=EVERYWHERE),
    "MP804": Script("MP804", audited(_dense, _end, policy="mixed_bfloat16", gpu="T4")),
    "MP808": Script("MP808", quantised(1024, "A100", 4096), KERAS_3),
    "MP806": Script("MP806", audited(_dense, _end, gpu="TPU v4")),
}
"""Judged by `mpprof.audit`, before any training."""

SCRIPTS: dict[str, Script] = {
    "MP101": Script("MP101", before_its_policy, light=True),
    "MP102": Script("MP102", without_loss_scaling, light=True),
    "MP103": Script("MP103", in_a_step_without_scaling, (TF, TORCH)),
    "MP103 in a loop": Script("MP103", in_a_loop_without_scaling, (JAX,)),
    "MP105": Script("MP105", under_a_rewrite_that_is_not_known, (TF, KERAS_2)),
    "MP106": Script("MP106", with_a_16_bit_output, light=True),
    "MP106 of a vocabulary": Script("MP106", with_a_16_bit_vocabulary),
    "MP201": Script("MP201", overflowing_unscaled),
    "MP202": Script("MP202", with_a_small_fixed_scale),
    "MP203": Script("MP203", scaled_in_float32),
    "MP204": Script("MP204", overflowing_at_the_start),
    "MP205": Script("MP205", growing_too_often),
    "MP206": Script("MP206", masked_beyond_float16),
    "MP307": Script("MP307", with_deterministic_ops, (TORCH,)),
    "MP308": Script("MP308", in_eager),
    "MP309": Script("MP309", under_a_strategy, (TF,)),
    "MP906": Script("MP906", against_a_baseline_in_16_bits),
    "MP910": Script("MP910", window_after_the_end),
    "MP911": Script("MP911", epochs_of_one_call, (TF, KERAS_2)),
    "MP503": Script("MP503", padded_in_float32, (TF, KERAS_2), stays=(TF, KERAS_2)),
    "MP901": Script("MP901", window_at_the_start, (TF, JAX, KERAS_2), stays=(TF, JAX, KERAS_2)),
    "MP902": Script("MP902", of_many_shapes, (JAX,)),
    "MP201 in a loop": Script("MP201", lambda kit: in_a_loop_on_torch(kit, 1e6, 120), (LOOP,)),
    "MP204 in a loop": Script("MP204", lambda kit: in_a_loop_on_torch(kit, 10.0), (LOOP,)),
    "MP205 in a loop": Script("MP205", lambda kit: in_a_loop_on_torch(kit, 10.0, growth_interval=2), (LOOP,)),
    **AUDITED,
}


STAYS = {
    "MP503": "how long casts take depends on how busy the machine is: it may be found with no code left to try",
    "MP801": "the card has no fast 16-bit arithmetic in float32 either",
    "MP802": "the card has no Tensor Cores in float32 either",
    "MP901": "where warm-up ends depends on how busy the machine is: it may ask for a later window",
}
"""Causes that may be found again once the code has run, and why."""

LOCATED = ("MP201", "MP201 in a loop", "MP206")
"""Scripts whose first remedy finds where a value is not finite."""

_GPU = "it is judged by the kernels of an accelerator"
_MEMORY = "it is judged by the allocator of a card"
_SEVERAL = "it is of several devices"
_WORDS = "its remedies hold no code that changes a training"
NOT_TRIED = {
    **dict.fromkeys(
        (
            "MP107", "MP302", "MP304", "MP306", "MP310", "MP311", "MP312", "MP404", "MP405", "MP409", "MP411", "MP412",
            "MP501", "MP502", "MP504", "MP505", "MP507", "MP508", "MP803", "MP807", "MP903", "MP907", "MP908", "MP912",
        ),
        _GPU,
    ),
    **dict.fromkeys(("MP303", "MP601", "MP602", "MP603", "MP604", "MP605", "MP606", "MP607"), _MEMORY),
    **dict.fromkeys(("MP701", "MP702", "MP703", "MP704", "MP705"), _SEVERAL),
    **dict.fromkeys(("MP305", "MP805", "MP904", "MP913"), _WORDS),
    "MP301": "how long a batch takes depends on how busy the machine is; `mpprof demo` mends a slow input",
    "MP408": "its remedy is another version of a library",
    "MP905": "how long a profiled step takes depends on how busy the machine is",
    "MP909": "its remedy is to record, or to copy, the file again",
}  # fmt: skip
"""Causes whose remedy is not tried on a CPU, and why."""


def kit_of(name: str, folder: Path, paste: Paste) -> Kit:
    """The framework of this process, by name."""
    keras = importlib.import_module("tf_keras" if name == KERAS_2 else "keras")
    modules: Names = {"keras": keras, "mpprof": mpprof}
    module = {KERAS_2: TF, LOOP: TORCH}.get(name, name)
    called = "tf" if module == TF else module
    modules[called] = importlib.import_module(module)
    modules["tf_keras"] = keras
    return Kit(name, keras, folder, paste, modules=modules)


def codes(result: Path | Diagnosis | AuditReport) -> dict[str, list[str]]:
    """The code to copy of each cause that is found, in the order in which it is printed."""
    if isinstance(result, AuditReport):
        return {note.code: [note.remedy] for note in result.notes}
    findings = (result if isinstance(result, Diagnosis) else mpprof.diagnose(result)).findings
    return {each.code: [one.snippet for one in each.remedies if one.snippet] for each in findings}


def execute(code: str, names: Names) -> None:
    """Run the code in these names; the value of a lone expression is called `made`."""
    body = ast.parse(code).body
    if len(body) == 1 and isinstance(body[0], ast.Expr):
        names["made"] = eval(code, names)
    else:
        exec(code, names)


def run(script: Script, name: str, folder: Path, code: str = "") -> dict[str, list[str]]:
    """What the script is judged, with the code in its place."""
    kit = kit_of(name, folder, lambda **_: {})
    if name == LOOP:
        code = code.replace('"cuda"', '"cpu"')

    def paste(**given: Any) -> Names:
        names = {**kit.modules, **given}
        if code:
            execute(code, names)
        return names

    kit.paste, kit.code = paste, code
    try:
        return codes(script.plant(kit))
    finally:
        kit.set_policy("float32")


@dataclass(frozen=True)
class Cured:
    """What became of a cause: whether it was `found`, the `code` of its first remedy that has any ("": none), and
    whether the cause `remains` with it: is found again, or, where it `stays`, asks for the same code. `trouble`: what
    went wrong."""

    found: bool
    code: str = ""
    remains: bool = True
    trouble: str = ""


def cure(script: Script, name: str, folder: Path) -> Cured:
    before = run(script, name, folder / "before")
    if script.code not in before:
        return Cured(False, trouble=f"found were {sorted(before)}")
    snippets = [each for each in before[script.code] if not any(call in each for call in FINDS)]
    if not snippets:
        return Cured(True)
    after = run(script, name, folder / "after", snippets[0])
    if name not in script.stays:
        return Cured(True, snippets[0], script.code in after)
    left = {_unnumbered(each) for each in after.get(script.code, [])}
    return Cured(True, snippets[0], _unnumbered(snippets[0]) in left)


def _unnumbered(code: str) -> str:
    """The code without the numbers that Keras gives to names."""
    return re.sub(r"_\d+\b", "", code)


def finding(script: Script, name: str, folder: Path) -> str:
    """Return the code that finds what is not finite."""
    found = run(script, name, folder / "found")[script.code]
    return next(each for each in found if any(call in each for call in FINDS))


def located(script: Script, name: str, folder: Path, code: str) -> str:
    """Return the error that ends the script with this code; "": none did."""
    try:
        run(script, name, folder / "located", code)
    except Exception as error:  # noqa: BLE001 - of whatever class the framework's is
        return f"{type(error).__name__}: {error}"
    return ""


def all_of(name: str, folder: Path) -> None:
    """Try every script that is for this framework, and write what became of it into `cured.json`. What finds a
    value is tried last: it stays on."""
    results: dict[str, Any] = {}
    for key, script in SCRIPTS.items():
        if name in script.of:
            try:
                results[key] = asdict(cure(script, name, folder / key.replace(" ", "-")))
            except Exception:  # noqa: BLE001 - the test of this script shows it
                results[key] = asdict(Cured(False, trouble=traceback.format_exc()))
    ways = {
        key: (SCRIPTS[key], name, folder / key.replace(" ", "-"))
        for key in LOCATED
        if name in SCRIPTS[key].of
    }
    codes_to_find = {key: finding(*way) for key, way in ways.items()}
    for key, way in ways.items():
        results[f"{key} located"] = located(*way, codes_to_find[key])
    (folder / "cured.json").write_text(json.dumps(results))


def on_jax(folder: Path) -> None:
    all_of(JAX, folder)


def tried(name: str) -> list[str]:
    return [key for key, script in SCRIPTS.items() if name in script.of]


def assert_cured(results: dict[str, Any], key: str) -> None:
    became = Cured(**results[key])
    assert became.found, became.trouble
    assert became.code, "its remedies have no code"
    assert not became.remains, became.code


def assert_located(results: dict[str, Any], name: str) -> None:
    """Each is stopped by an error of the framework's, which says that the value is not finite."""
    for key in LOCATED:
        if name in SCRIPTS[key].of:
            assert re.search(r"\b(nan|inf)\b", results[f"{key} located"], re.IGNORECASE), key
