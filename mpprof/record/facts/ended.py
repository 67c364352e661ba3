"""How a `fit` ended: what is kept of an exception that left it, and whether the weights are still numbers."""

from __future__ import annotations

import itertools
import re
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from mpprof.model.limits import MOST_WEIGHTS_NAMED
from mpprof.record.keras_compat import KERAS_2, keras_of
from mpprof.record.recorder import Recorder

OUT_OF_MEMORY = re.compile(r"RESOURCE_?EXHAUSTED|\bOOM\b|out of memory|_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""As TensorFlow, XLA, PyTorch and NVIDIA's libraries say it."""
MOST_CHARACTERS = 60_000
"""How much of an error's text is kept: XLA lists the largest buffers first."""
MOST_OF_A_LINE = 300
_GRAPH_ERROR = "Graph execution error:"
_OF_THE_GRAPH = re.compile(
    r'Detected at node .*|<stack traces unavailable>|File ".*|\d+ root error\(s\) found\.|'
)
"""What TensorFlow writes above an error's own words: the op, and where in the program it was made."""
_OF_A_CALL = re.compile(
    r"Exception encountered when calling (.*?)\.?|Could not automatically infer .*Error encountered:|"
)
"""What Keras 3 writes above the words of an error that a layer's `call` has raised, which it sets in bold."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MOST_CAUSES = 20
_REASONS = ((KeyboardInterrupt, "interrupted"), (SystemExit, "exit"))


def ended(error: BaseException | None) -> dict[str, Any]:
    """Return run.json's `ended`. `reason`: "out_of_memory", "interrupted" (by the keyboard), "exit" (by
    `sys.exit`, where it can be seen), "error", or "unknown". `error`: the text of an out-of-memory error, of
    any other its type's name; `text`: the first line of what another error says (below the heads that
    TensorFlow puts above it)."""
    if error is None:
        return {"reason": "unknown"}
    for one in _causes(error):
        name, text = type(one).__name__, str(one)
        if isinstance(one, MemoryError) or OUT_OF_MEMORY.search(name + " " + text):
            return {"reason": "out_of_memory", "error": f"{name}: {text}"[:MOST_CHARACTERS]}
    reason = next((told for kind, told in _REASONS if isinstance(error, kind)), "error")
    words = _own_words(str(error))[:MOST_OF_A_LINE] if reason == "error" else ""
    return {"reason": reason, "error": type(error).__name__, **({"text": words} if words else {})}


def in_a_line(error: BaseException) -> str:
    """Return an error's type, and the first line of what it says."""
    return f"{type(error).__name__}: {_own_words(str(error))}"[:MOST_OF_A_LINE]


def _own_words(text: str) -> str:
    """Return the first line of an error's text that says what went wrong."""
    first, *rest = map(str.strip, _COLOURS.sub("", text).strip().split("\n"))
    if first == _GRAPH_ERROR:
        return next((line for line in rest if not _OF_THE_GRAPH.fullmatch(line)), first)
    if _OF_A_CALL.fullmatch(first) is None:
        return first
    heads = [found for found in map(_OF_A_CALL.fullmatch, (first, *rest)) if found is not None]
    inner = next((line for line in rest if not _OF_A_CALL.fullmatch(line)), first)
    called = next((found[1] for found in reversed(heads) if found[1]), None)
    return inner if called is None else f"{inner} (in {called})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, and those that it was raised from or while handling."""
    one: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__


# Whether a model's weights are still numbers when a training has ended.
#
# A fixed loss scale skips no step, and a loss need not show it: a ReLU makes 0 of a weight that is NaN.


def non_finite_weights(model: Any) -> list[str] | None:
    """Return the paths of weights that hold a NaN or an infinity, the first 20 of them; None where `model`
    has no weights to look at: it is neither Keras' nor a module of PyTorch. Reads every weight once."""
    torch = sys.modules.get("torch")
    weights, keras = getattr(model, "weights", None), keras_of(model)
    if not weights and torch is not None and isinstance(model, torch.nn.Module):
        named = ((name, weight) for name, weight in model.named_parameters() if weight.is_floating_point())
        lost = (name for name, weight in named if not bool(torch.isfinite(weight).all()))
        return list(itertools.islice(lost, MOST_WEIGHTS_NAMED))
    if not weights or keras is None:
        return None
    finite = _finite_in_keras_2 if keras.__name__ == KERAS_2 else _finite
    floats = [weight for weight in weights if "float" in str(weight.dtype)]
    found = (str(getattr(weight, "path", weight.name)) for weight in floats if not finite(weight))
    return list(itertools.islice(found, MOST_WEIGHTS_NAMED))


def _finite(weight: Any) -> bool:
    import keras

    jax = sys.modules.get("jax") if keras.backend.backend() == "jax" else None
    if jax is not None and jax.default_backend() == "cpu":  # each shape would be compiled for
        return bool(np.isfinite(np.asarray(weight)).all())
    return bool(keras.ops.all(keras.ops.isfinite(weight)))


def _finite_in_keras_2(weight: Any) -> bool:
    import tensorflow as tf

    return bool(tf.reduce_all(tf.math.is_finite(weight)))


NO_WEIGHTS = "no model was given whose weights could be looked at"


def describe_weights(recorder: Recorder, model: Any) -> None:
    """Describe in a fit's facts, at its end, which weights are not finite any more. `model`: or a loop, which
    has one."""
    framework = recorder.facts.get("framework") or {}
    if framework.get("loop") and framework.get("backend") == "jax":
        recorder.absent["non_finite_weights"] = "a JAX loop holds its weights itself"
        return
    # Without a timeout: TensorFlow starts anew in each thread, and crashes if it cannot open files there.
    found = non_finite_weights(getattr(model, "model", model))
    if found is None:
        recorder.absent["non_finite_weights"] = NO_WEIGHTS
    elif recorder.facts.get("fits"):
        recorder.facts["fits"][-1]["non_finite_weights"] = found
