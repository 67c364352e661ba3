"""What is recorded of one `fit`: policy, optimizer, loss, batch size, and how Keras will run the steps."""

from __future__ import annotations

import sys
from enum import Enum
from types import FrameType
from typing import Any

from mpprof.record.backends.base import Absent, Facts, known
from mpprof.record.facts.dataset import batch_size_of_adapter, batch_size_of_pipeline, describe_input
from mpprof.record.keras_compat import global_policy, keras_of, steps_per_execution
from mpprof.record.run_with_timeout import raise_if_signalled
from mpprof.tensors import SLOTS


def fit_facts(model: Any, fit: int, first_step: int, initial_epoch: int | None, batch: int | None) -> Facts:
    """Return one entry of run.json's `fits`. `first_step` counts from 1 over all fits; `batch`: the global
    size. `model`: the one that it trained; of several only the last is described, in run.json's own
    `model`."""
    optimizer = getattr(model, "optimizer", None)
    inner = getattr(optimizer, "inner_optimizer", optimizer)
    return known(
        {
            "fit": fit,
            "model": getattr(model, "name", None),
            "first_step": first_step,
            "initial_epoch": initial_epoch,
            "policy": policy_facts(model),
            "optimizer": optimizer_facts(optimizer),
            "batch_size": batch,
            "jit_compile": getattr(model, "jit_compile", None),
            "run_eagerly": getattr(model, "run_eagerly", None),
            "steps_per_execution": steps_per_execution(model),
            "gradient_accumulation_steps": getattr(inner, "gradient_accumulation_steps", None) or 1,
        }
    )


def policy_facts(model: Any) -> Facts:
    """Return the process' policy and the model's own types."""
    keras = keras_of(model)  # a loop without Keras has no policy
    return known(
        {
            "global": None if keras is None else global_policy(keras),
            "compute_dtype": getattr(model, "compute_dtype", None),
            "variable_dtype": getattr(model, "variable_dtype", None),
        }
    )


def optimizer_facts(optimizer: Any) -> Facts:
    """Return the class, the loss scaling and the clipping of an optimizer. `dynamic` only where there is a
    loss scale; `fixed_scale` where the optimizer multiplies by a constant."""
    if optimizer is None:
        return {}
    inner = getattr(optimizer, "inner_optimizer", None)
    applies = optimizer if inner is None else inner
    clipping = {
        name: float(value)
        for name in ("clipnorm", "global_clipnorm", "clipvalue")
        if (value := getattr(applies, name, None)) is not None
    }
    fixed = getattr(applies, "loss_scale_factor", None)
    if getattr(optimizer, "dynamic", None) is False:  # Keras 2: a LossScaleOptimizer may hold a fixed scale
        fixed, inner_scales = optimizer.initial_scale, False
    else:
        inner_scales = inner is not None
    return known(
        {
            "class": type(optimizer).__name__,
            "inner": None if inner is None else type(inner).__name__,
            "dynamic": True if inner_scales else (False if fixed is not None else None),
            "initial_scale": _float(getattr(optimizer, "initial_scale", None)),
            "growth_steps": getattr(optimizer, "dynamic_growth_steps", None),
            "fixed_scale": _float(fixed),
            "clipping": clipping or None,
            "slots": slots(applies),
        }
    )


_WITH_MORE = {
    "SGD": ("momentum",), "RMSprop": ("momentum", "centered"), "Adam": ("amsgrad",), "AdamW": ("amsgrad",),
}  # fmt: skip


def slots(optimizer: Any) -> int | None:
    """Return how many values an optimizer keeps for each trained parameter: the variables that its `build`
    adds (Keras 3.15, keras/src/optimizers). None for one whose variables depend on the shapes (Adafactor,
    Muon), or that is not Keras' own."""
    own = type(optimizer).__name__
    if own not in SLOTS or type(optimizer).__module__.partition(".")[0] not in ("keras", "tf_keras"):
        return None
    given = (*_WITH_MORE.get(own, ()), "use_ema")
    accumulates = (getattr(optimizer, "gradient_accumulation_steps", None) or 1) > 1
    return SLOTS[own] + accumulates + sum(bool(getattr(optimizer, name, None)) for name in given)


def batch_size_of_running_fit() -> int | Absent:
    """Return the batch size of the `fit` that is calling us.

    Keras tells callbacks neither the batch size nor the data, and a data set knows its own only in its
    adapter: the epoch iterator in `fit`'s frame, further up this very call stack, has it.
    """
    variables = _variables_of_running_fit()
    if "epoch_iterator" in variables:
        return batch_size_of_adapter(getattr(variables["epoch_iterator"], "data_adapter", None))
    if "data_handler" in variables:
        return _batch_size_of_keras_2(variables["data_handler"])
    return Absent("only a Keras fit states it")


def input_of_running_fit() -> Facts:
    """Return what feeds the `fit` that is calling us (see `describe_input`); empty where it is not known."""
    variables = _variables_of_running_fit()
    if "epoch_iterator" in variables:
        adapter = getattr(variables["epoch_iterator"], "data_adapter", None)
    else:
        adapter = getattr(variables.get("data_handler"), "_adapter", None)
    if "Array" in type(adapter).__name__ or "TensorLike" in type(adapter).__name__:
        return {"kind": "arrays"}
    if "Generator" in type(adapter).__name__:
        return {"kind": "generator"}
    for name in ("_dataloader", "py_dataset", "_keras_sequence", "_dataset"):
        if found := describe_input(getattr(adapter, name, None)):
            return found
    return {}


def callbacks_of_running_fit() -> list[Any]:
    """Return all callbacks of the `fit` that is calling us, in order; empty where there is none."""
    found = getattr(_variables_of_running_fit().get("callbacks"), "callbacks", None)
    return list(getattr(found, "original", found)) if isinstance(found, list) else []


def epoch_iterator_of_running_fit() -> Any:
    """Return Keras 3's own iterator over the batches of the `fit` that is calling us; None where there is
    none."""
    return _variables_of_running_fit().get("epoch_iterator")


def batches_of_running_fit() -> Any:
    """Return what hands out the batches of the `fit` that is calling us; None where there is none."""
    variables = _variables_of_running_fit()
    return variables.get("epoch_iterator", variables.get("data_handler"))


def running_fit() -> Any:
    """Return an object that stands for the `fit` that is calling us: the list of its callbacks, which Keras
    makes anew for each one. None where there is none."""
    found = _variables_of_running_fit().get("callbacks")
    return found if hasattr(found, "callbacks") else None


def thread_of(fit: Any) -> int | None:
    """Return the thread in which this `fit` (see `running_fit`) runs. None: the fit has ended, for whatever
    reason."""
    for thread, top in sys._current_frames().items():
        frame: FrameType | None = top
        while frame is not None:
            if frame.f_code.co_name == "fit" and frame.f_locals.get("callbacks") is fit:
                return thread
            frame = frame.f_back
    return None


class Evaluation(Enum):
    """From where Keras' `evaluate` calls us."""

    OF_FIT = "fit's own, or a callback's between epochs"
    WITHIN_EPOCH = "a callback's, as a batch begins or has ended"
    ALONE = "there is no fit"


def running_evaluation() -> Evaluation:
    """Return which evaluation calls us; `OF_FIT` where none does."""
    frame: FrameType | None = sys._getframe(1)
    evaluates = within = False
    while frame is not None:
        name = frame.f_code.co_name
        if name == "fit":
            return Evaluation.WITHIN_EPOCH if within else Evaluation.OF_FIT
        within |= evaluates and name in _BATCH_HOOKS
        package = str(frame.f_globals.get("__name__", "")).partition(".")[0]
        evaluates |= name == "evaluate" and package in ("keras", "tf_keras")
        frame = frame.f_back
    return Evaluation.ALONE if evaluates else Evaluation.OF_FIT


def part_of_running_fit(without: str | None = None) -> str | None:
    """Return what of a `fit` calls us: "batch", its train function, "epoch", what it does at an epoch's begin
    and end, or "validation"; where there is no fit, `without`. None: a hook of its callbacks calls."""
    frame: FrameType | None = sys._getframe(1)
    part: str | None = None
    called = ""
    while frame is not None:
        module = str(frame.f_globals.get("__name__", ""))
        if module.endswith(".callback_list"):
            return None
        if part is None and is_fit(frame):
            part = _PARTS.get(called, "batch")
        if not module.endswith(".traceback_utils"):  # which Keras lays around its methods
            called = frame.f_code.co_name
        frame = frame.f_back
    return without if part is None else part


_PARTS = {
    "evaluate": "validation",
    **dict.fromkeys(("reset_metrics", "_get_metrics_result_or_logs", "jax_state_sync"), "epoch"),
}
"""Of methods that Keras' `fit` calls beside the train function."""


_BATCH_HOOKS = frozenset({"on_train_batch_begin", "on_train_batch_end"})


def _variables_of_running_fit() -> dict[str, Any]:
    """Return the local variables of Keras' `fit` further up this call stack; empty where there is none."""
    frame: FrameType | None = sys._getframe(1)
    for _ in range(14):
        if frame is None:
            break
        if is_fit(frame):
            return dict(frame.f_locals)
        frame = frame.f_back
    return {}


def is_fit(frame: FrameType) -> bool:
    """Return whether this is a call of Keras' `fit`, of Keras 3 or Keras 2."""
    names = frame.f_code.co_varnames
    return frame.f_code.co_name == "fit" and ("epoch_iterator" in names or "data_handler" in names)


def _batch_size_of_keras_2(handler: Any) -> int | Absent:
    """Return the batch size from the handler's adapter, or for a data set from the shape of its elements."""
    adapter = getattr(handler, "_adapter", None)
    size = batch_size_of_adapter(adapter)
    if isinstance(size, int) or adapter is None:
        return size
    dataset = adapter.get_dataset()
    specification = dataset.element_spec
    while isinstance(specification, tuple | list) and specification:
        specification = specification[0]
    shape = getattr(specification, "shape", None) or (None,)
    found = shape[0] or batch_size_of_pipeline(dataset)
    return int(found) if found else size


def _float(value: Any) -> float | None:
    return None if value is None else float(value)


# What a model was compiled to minimise, in one line: two runs whose losses differ are not held against each
# other.

LONGEST_OF_LOSS = 200
_USUAL = (None, False, 0, -1, "sum_over_batch_size")
_NO_SETTINGS = ("name", "dtype", "fn")


def describe_loss(model: Any) -> str | None:
    """Return the compiled loss: "mean_squared_error", "SparseCategoricalCrossentropy(from_logits=True)", of
    several outputs as a list or by output; None where the model states none, or has no way to."""
    loss = _by_function(model, getattr(model, "loss", None))
    computed = getattr(type(model), "compute_loss", None)
    if computed is not None and computed.__module__.partition(".")[0] not in ("keras", "tf_keras"):
        return f"{computed.__qualname__} over {_text(loss)}"[:LONGEST_OF_LOSS]
    if loss is None:
        return None
    weights = _weights(model)
    return (_text(loss) + (f", weighted {weights}" if weights else ""))[:LONGEST_OF_LOSS]


def _by_function(model: Any, loss: Any) -> Any:
    """Return the function that a short name stands for ("mse"), so that both are described alike."""
    keras = keras_of(model)
    if not isinstance(loss, str) or keras is None:
        return loss
    try:
        return keras.losses.get(loss)
    except Exception as error:  # noqa: BLE001 - a name that this Keras does not know is described as it is
        raise_if_signalled(error)
        return loss


def _text(loss: Any) -> str:
    if isinstance(loss, dict):
        return "{" + ", ".join(f"{key}: {_text(one)}" for key, one in sorted(loss.items())) + "}"
    if isinstance(loss, list | tuple):
        return f"[{', '.join(map(_text, loss))}]"
    if loss is None or isinstance(loss, str):
        return str(loss)
    if (name := getattr(loss, "__name__", None)) is not None:
        return str(name)
    config = loss.get_config() if hasattr(loss, "get_config") else {}
    settings = ", ".join(
        f"{key}={value!r}"
        for key, value in sorted(config.items())
        if key not in _NO_SETTINGS and isinstance(value, str | int | float) and value not in _USUAL
    )
    return type(loss).__name__ + (f"({settings})" if settings else "")


def _weights(model: Any) -> str:
    for owner in ("_compile_loss", "compiled_loss"):  # Keras 3, Keras 2
        found = getattr(getattr(model, owner, None), "_user_loss_weights", None)
        if found:
            return str(found)
    return ""
