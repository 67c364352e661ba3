"""What a model was compiled to minimise, in one line: two runs whose losses differ are not held against each
other."""

from __future__ import annotations

from typing import Any

from mpprof.record.keras_compat import keras_of
from mpprof.record.run_with_timeout import raise_if_signalled

LONGEST = 200
_DEFAULTS = (None, False, 0, -1, "sum_over_batch_size")
_NO_SETTINGS = ("name", "dtype", "fn")


def describe_loss(model: Any) -> str | None:
    """Return the compiled loss: "mean_squared_error", "SparseCategoricalCrossentropy(from_logits=True)", of
    several outputs as a list or by output; None where the model states none, or has no way to."""
    loss = _by_function(model, getattr(model, "loss", None))
    computed = getattr(type(model), "compute_loss", None)
    if computed is not None and computed.__module__.partition(".")[0] not in ("keras", "tf_keras"):
        return f"{computed.__qualname__} over {_text(loss)}"[:LONGEST]
    if loss is None:
        return None
    weights = _weights(model)
    return (_text(loss) + (f", weighted {weights}" if weights else ""))[:LONGEST]


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
        if key not in _NO_SETTINGS and isinstance(value, str | int | float) and value not in _DEFAULTS
    )
    return type(loss).__name__ + (f"({settings})" if settings else "")


def _weights(model: Any) -> str:
    for owner in ("_compile_loss", "compiled_loss"):  # Keras 3, Keras 2
        found = getattr(getattr(model, owner, None), "_user_loss_weights", None)
        if found:
            return str(found)
    return ""
