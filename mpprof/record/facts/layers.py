"""The walk over a Keras model's layers: what a cause may later depend on, and nothing bulky."""

from __future__ import annotations

import contextlib
import inspect
import itertools
import math
import re
import sys
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mpprof.record.backends.base import Facts, known
from mpprof.record.run_with_timeout import raise_if_signalled
from mpprof.tensors import WIDTHS

# How a layer would be written in the user's script: its constructor's arguments, as Python source.
#
# Only what differs from the defaults is written, so that a line with one argument changed can replace the
# user's own. Nothing is constructed for it: a layer made only to be compared would take names and random
# seeds from the training.

Json = Mapping[str, Any]

KEYWORDS = frozenset({"name", "zero_output_for_mask"})
"""What layers take without stating it in their signature, and what of it is worth writing."""
NOT_WRITTEN = frozenset({"trainable", "dtype", "quantization_config", "implementation"})
"""Keys of `get_config` that are no arguments of a new layer, or are written by who asks (`dtype`)."""

_MOST_CHARACTERS = 400


def arguments(layer: Any) -> dict[str, str]:
    """Return {argument: Python source} of what the layer was given beyond its defaults, its name always; a
    layer inside a wrapper is left to `...`. Empty where it has no `get_config` of its own."""
    try:
        config = layer.get_config()
    except Exception as error:  # noqa: BLE001 - Keras raises many kinds for layers that state no config
        raise_if_signalled(error)
        return {}
    if not isinstance(config, dict):
        return {}
    written = _given(type(layer).__init__, config)
    if getattr(layer, "use_cudnn", "auto") != "auto":  # which Keras does not serialise
        written["use_cudnn"] = repr(layer.use_cudnn)
    return written


def _given(constructor: Callable[..., Any], config: Json) -> dict[str, str]:
    defaults = {name: one.default for name, one in inspect.signature(constructor).parameters.items()}
    return {
        name: source(value)
        for name, value in config.items()
        if name not in NOT_WRITTEN
        and (name in defaults or (name in KEYWORDS and value))
        and value is not None
        and not _is_default(name, value, defaults.get(name, _NONE))
    }


_NONE = inspect.Parameter.empty


def _is_default(name: str, value: Any, default: Any) -> bool:
    if default is _NONE:
        return False
    if name == "data_format" and default is None:
        return bool(value == "channels_last")  # as Keras' own configuration has it, nearly always
    if isinstance(value, Mapping) and isinstance(default, str):
        named = _plain(str(value.get("class_name", ""))) == _plain(default)
        return named and not _given_object(value)
    if value == "linear" and default is None:
        return True  # what Keras makes of no activation
    same: bool = value == default or (isinstance(value, tuple | list) and _repeats(value, default))
    return same


def _repeats(value: Any, default: Any) -> bool:
    """Return whether a value repeats its default: `(1, 1)` where the default is 1, because Keras writes it
    out per axis."""
    return isinstance(default, int) and all(one == default for one in value)


def _plain(name: str) -> str:
    return re.sub(r"_|initializer$", "", name.lower())


def _given_object(value: Json) -> dict[str, str]:
    """Return the arguments of a serialised object that are not its defaults."""
    kind, config = _class_of(value), value.get("config")
    if not isinstance(config, Mapping):
        return {}
    if kind is None:
        return {name: source(one) for name, one in config.items() if one is not None}
    return _given(kind.__init__, config)


def _class_of(value: Json) -> Any:
    import importlib
    import sys

    package, _, rest = str(value.get("module") or "").partition(".")
    found: Any = sys.modules.get(package)
    for part in (*filter(None, rest.split(".")), str(value.get("class_name"))):
        found = getattr(found, part, None)
    if found is None and package and value.get("module") in sys.modules:
        found = getattr(importlib.import_module(str(value["module"])), str(value.get("class_name")), None)
    return found if inspect.isclass(found) else None


def source(value: Any) -> str:
    """Return the Python source of a value as `get_config` gives it; `...` for what cannot be written in a
    line."""
    if isinstance(value, Mapping) and "class_name" in value:
        if value["class_name"] == "function":
            return repr(value["config"]) if isinstance(value.get("config"), str) else "..."
        inside = ", ".join(f"{name}={text}" for name, text in _given_object(value).items())
        text = f"{_module(value)}{value['class_name']}({inside})"
    elif isinstance(value, tuple | list):
        inside = ", ".join(source(one) for one in value)
        text = f"({inside}{',' if len(value) == 1 else ''})" if isinstance(value, tuple) else f"[{inside}]"
    elif value is None or isinstance(value, bool | int | float | str):
        text = repr(value)
    else:
        text = "..."
    return text if len(text) <= _MOST_CHARACTERS else "..."


def _module(value: Json) -> str:
    module = value.get("module")
    return f"{module}." if module and not value.get("registered_name") else ""


LAYERS = "model.layers"
"""Where a run says in `absent` that not all layers are described."""

MOST_LAYERS = 10_000
"""How many layers of one model are described. One takes about a tenth of a millisecond, all of them a second
at most."""

CONFIG = (
    "units", "filters", "kernel_size", "strides", "padding", "dilation_rate", "groups", "data_format",
    "depth_multiplier", "activation", "recurrent_activation", "use_bias", "num_heads", "key_dim",
    "value_dim", "head_dim", "num_query_heads", "num_key_value_heads", "input_dim", "output_dim",
    "vocabulary_size", "axis", "rate", "recurrent_dropout", "dropout", "return_sequences", "unroll",
    "reset_after", "go_backwards", "equation", "output_shape", "pool_size", "flash_attention",
    "quantization_mode", "lora_rank", "merge_mode", "max_tokens", "fused", "momentum", "epsilon", "seed",
    "use_cudnn", "mask_zero",
)  # fmt: skip
ATTRIBUTES = ("use_cudnn", "quantization_mode")  # of which Keras' own get_config says nothing


def model_facts(model: Any, *, written: bool = False) -> Facts:
    """Return run.json's `model`. `parameters` of a layer include those of the layers inside it; shapes and
    output types are left out where the model does not state them (subclassed models). `written`: each layer
    also as its constructor's `arguments`, which `run.json` does not hold. `layers_left_out`: how many layers
    beyond `MOST_LAYERS` there are, if any."""
    with warnings.catch_warnings(), _tensorflow_left_alone():
        warnings.simplefilter("ignore")  # of lambdas that would not survive being saved: nothing is saved
        found = walk(model)
        layers = [
            {**layer_facts(path, layer), **({"arguments": arguments(layer)} if written else {})}
            for path, layer in itertools.islice(found, MOST_LAYERS)
        ]
    facts: Facts = {
        "name": getattr(model, "name", None),
        "class": type(model).__name__,
        "parameters": _ask(model.count_params) if getattr(model, "built", False) else None,
        "trainable_parameters": _ask(lambda: _trainable(model)) if getattr(model, "built", False) else None,
        "layers": layers,
        "layers_left_out": sum(1 for _ in found) or None,
        "outputs": _ask(lambda: [_output(tensor) for tensor in model.outputs]),
        "functions": _ask(lambda: _between_layers(model)),
        "train_step": _train_step(model),
    }
    return known(facts)


@contextlib.contextmanager
def _tensorflow_left_alone() -> Iterator[None]:
    """Keep Keras 3 from importing TensorFlow. Of each object that it serialises for a `get_config` Keras asks
    whether it is TensorFlow's, and imports TensorFlow for that: seconds and hundreds of megabytes in a
    training on JAX or torch, which needs none."""
    serialization: Any = sys.modules.get("keras.src.saving.serialization_lib")
    lazy = getattr(serialization, "tf", None)
    if "tensorflow" in sys.modules or type(lazy).__name__ != "LazyModule":
        yield
        return
    serialization.tf = types.SimpleNamespace(available=False)
    try:
        yield
    finally:
        serialization.tf = lazy


def layers_not_described(facts: Facts) -> str | None:
    """Return what to say where a model's facts do not hold all of its layers."""
    if "layers_left_out" not in facts:
        return None
    left_out = facts["layers_left_out"]
    return f"{left_out:,} of {left_out + MOST_LAYERS:,} layers are not described"


def _trainable(model: Any) -> int:
    """Return the number of trainable parameters: fewer than all where layers are frozen, quantised, or
    trained through LoRA."""
    return sum(math.prod(variable.shape) for variable in model.trainable_variables)


def _output(tensor: Any) -> Facts:
    """Return which layer gives one of the model's outputs, and in which type."""
    history = tensor._keras_history
    made_by = getattr(history, "operation", None) or history.layer  # Keras 3, Keras 2
    return {"layer": str(made_by.name), "dtype": None if _says_nothing(made_by) else _text(tensor.dtype)}


def _says_nothing(layer: Any) -> bool:
    """Return whether a layer's stated output type tells nothing: a Lambda of Keras 3 states its own compute
    type as that of its output, whatever its function gives."""
    return type(layer).__name__ == "Lambda" and _package(type(layer)) == "keras"


def _train_step(model: Any) -> str | None:
    """Return "own" where the model's class overrides train_step, "clips" where its source clips gradients."""
    step = getattr(type(model), "train_step", None)
    if step is None or step.__module__.partition(".")[0] in ("keras", "tf_keras"):
        return None
    source = _ask(lambda: inspect.getsource(step)) or ""
    return "clips" if "clip_by_" in source or ".clip(" in source else "own"


def walk(model: Any) -> Iterator[tuple[str, Any]]:
    """Yield all layers below a model with their paths, `encoder/dense_1`, outer before inner, each once."""
    seen = {id(model)}
    stack = [("", layer) for layer in reversed(_children(model))]
    while stack:
        prefix, layer = stack.pop()
        if id(layer) in seen:
            continue
        seen.add(id(layer))
        path = f"{prefix}{layer.name}"
        yield path, layer
        stack.extend((f"{path}/", child) for child in reversed(_children(layer)))


def _children(layer: Any) -> list[Any]:
    inner = getattr(layer, "_layers", None)
    if inner is None:  # Keras 2 keeps them among everything it tracks
        inner = [
            one for one in getattr(layer, "_self_tracked_trackables", ()) if hasattr(one, "count_params")
        ]
        inner += getattr(layer, "cells", None) or ()  # tracked as one list
    return list(inner)


def layer_facts(path: str, layer: Any) -> Facts:
    """Return one entry of run.json's `model.layers`."""
    policy = _policy(layer)
    facts: Facts = {
        "name": path,
        "class": type(layer).__name__,
        "base": _base(type(layer)),
        "module": _package(type(layer)),
        "compute_dtype": _text(_ask(lambda: layer.compute_dtype)),
        "variable_dtype": _text(_ask(lambda: layer.variable_dtype)),
        "output_dtype": None if _says_nothing(layer) else _ask(lambda: _dtype(layer.output)),
        "input_dtype": _ask(lambda: _dtype(layer.input)),
        "dtype_policy": _text(getattr(policy, "name", None)),
        "dtype_given": _ask(lambda: _dtype_given(layer)) or None,
        "config": _config(layer),
        "input_shape": _ask(lambda: _shape(layer.input)),
        "output_shape": _ask(lambda: _shape(layer.output)),
        "parameters": _ask(layer.count_params) if getattr(layer, "built", False) else None,
        "parameter_bytes": _ask(lambda: _bytes_of_whole_numbers(layer, policy)),
        "trainable": _ask(lambda: bool(layer.trainable)),
        "supports_jit": getattr(layer, "supports_jit", None),
        "masked": _ask(lambda: _masked(layer)) or None,
        "inbound": _ask(lambda: inbound(layer)),
        "takes": _ask(lambda: _takes(layer)),
    }
    return known(facts)


def _policy(layer: Any) -> Any:
    """Return the policy of a layer, of a `DTypePolicyMap` the one that the layer's path has in it."""
    policy: Any = getattr(layer, "dtype_policy", None)
    return _ask(lambda: policy[layer.path]) if hasattr(policy, "default_policy") else policy


def _bytes_of_whole_numbers(layer: Any, policy: Any) -> int | None:
    """Return the bytes of the parameters of a layer that is quantised to whole numbers, whose kernel is of
    another type than its other variables; None: of any other."""
    if not str(getattr(policy, "quantization_mode", None)).startswith(("int", "gptq", "awq")):
        return None
    return sum(math.prod(map(int, one.shape)) * WIDTHS[str(one.dtype)] for one in layer.weights)


def _between_layers(model: Any) -> list[Facts] | None:
    """Return the functions between layers; None of a model that cannot have any: a chain, or one without a
    graph."""
    found = list(itertools.islice(_functions(model), MOST_LAYERS))
    may = getattr(model, "outputs", None) and type(model).__name__ != "Sequential"
    return found if found or may else None


def _dtype_given(layer: Any) -> bool:
    """Return whether the script has named the layer's type as it made it. Keras keeps a constructor's
    arguments where all of them are plain values; a layer of a saved model, or in another layer, gets a policy
    object, or with the type all else that a configuration holds."""
    given = getattr(getattr(layer, "_auto_config", None), "config", None) or {}
    return isinstance(given.get("dtype"), str) and "trainable" not in given


def _functions(model: Any) -> Iterator[Facts]:
    """Yield the functions of `keras.ops` between the layers of a functional model of Keras 3, and of those
    inside it, under the names of the paths that layers have: what they take, and what they give."""
    inside = ((f"{path}/", one) for path, one in walk(model) if hasattr(one, "operations"))
    for prefix, one in (("", model), *inside):
        for operation in getattr(one, "operations", ()):
            if not hasattr(operation, "count_params"):
                yield _function(prefix, operation)


def _function(prefix: str, operation: Any) -> Facts:
    facts: Facts = {
        "name": f"{prefix}{operation.name}",
        "class": type(operation).__name__,
        "module": _package(type(operation)),
        "takes": _taken(operation),
        "output_shape": _ask(lambda: _shape(operation.output)),
        "output_dtype": _ask(lambda: _dtype(operation.output)),
    }
    return known(facts)


def _takes(layer: Any) -> list[str] | None:
    """Return what a layer of a functional model takes, where functions of `keras.ops` are among it: the names
    of layers and functions; else None."""
    parents = [one for node in getattr(layer, "_inbound_nodes", ()) for one, _ in _parents(node)]
    between = any(one is not None and not hasattr(one, "count_params") for one in parents)
    return list(dict.fromkeys(_taken(layer))) if between else None


def _taken(operation: Any) -> list[str]:
    """Return the names of what an operation takes, in their order, twice what it takes twice."""
    parents = [one for node in getattr(operation, "_inbound_nodes", ()) for one, _ in _parents(node)]
    return [str(one.name) for one in parents if one is not None]


def inbound(layer: Any) -> list[str] | None:
    """Return the layers whose results a layer of a functional model takes, each by its own name, in their
    order; functions of `keras.ops` that lie between are passed over. None where the model states no graph."""
    found: dict[str, None] = {}
    nodes = list(getattr(layer, "_inbound_nodes", ()))
    if not nodes:
        return None
    waiting = [parent for node in reversed(nodes) for parent in reversed(_parents(node))]
    seen = set()
    while waiting:
        operation, node = waiting.pop()
        if hasattr(operation, "count_params"):
            found[str(operation.name)] = None
        elif id(node) not in seen:
            seen.add(id(node))
            waiting.extend(reversed(_parents(node)))
    return list(found)


def _parents(node: Any) -> list[tuple[Any, Any]]:
    """Return the operations that a node of a functional model's graph takes its inputs from, with their
    nodes."""
    found = list(getattr(node, "parent_nodes", ()))
    return [(getattr(one, "operation", None) or getattr(one, "layer", None), one) for one in found]


def _package(kind: type) -> str:
    return kind.__module__.partition(".")[0]


def _base(kind: type) -> str | None:
    """Return the layer of Keras' own that a class of the user's derives from; None for Keras' own classes,
    and for a class that derives only from Keras' base classes of layers or models."""
    if _package(kind) in _KERAS:
        return None
    base = next((one.__name__ for one in kind.__mro__ if _package(one) in _KERAS), None)
    return None if base in ("Layer", "Model", "Functional", "Sequential") else base


_KERAS = ("keras", "tf_keras")


def _config(layer: Any) -> Facts:
    """Return the part of the configuration that a cause may depend on, attributes where there is no
    config."""
    config = _ask(layer.get_config)
    if not isinstance(config, dict):
        config = {key: getattr(layer, key) for key in CONFIG if hasattr(layer, key)}
    config = {**{key: getattr(layer, key) for key in ATTRIBUTES if hasattr(layer, key)}, **config}
    return {key: _simple(config[key]) for key in CONFIG if key in config and config[key] is not None}


def _simple(value: Any) -> Any:
    """Return numbers, names and shapes as they are; a serialised object by its class."""
    if isinstance(value, dict):
        name = value.get("class_name")
        inner = value.get("config")
        return inner if name == "function" and isinstance(inner, str) else name
    if isinstance(value, list | tuple):
        return [_simple(item) for item in value[:16]]
    return value if value is None or isinstance(value, bool | int | float) else str(value)[:200]


def _masked(layer: Any) -> bool:
    """Return whether a recurrent layer is fed a mask: by an Embedding with `mask_zero` or a Masking before
    it."""
    if not hasattr(layer, "return_sequences"):
        return False
    inputs = layer.input if isinstance(layer.input, list | tuple) else [layer.input]
    return getattr(layer, "input_mask", None) is not None or any(_mask(one) is not None for one in inputs)


def _mask(tensor: Any) -> Any:
    """Return the mask of a tensor: Keras 3 keeps a mask with the tensor that it belongs to."""
    return getattr(tensor, "_keras_mask", None)


def _shape(tensor: Any) -> Any:
    if isinstance(tensor, list | tuple):
        return [_shape(item) for item in tensor]
    if isinstance(tensor, dict):
        return [_shape(item) for item in tensor.values()]
    return [None if size is None else int(size) for size in tensor.shape]


def _dtype(tensor: Any) -> str | None:
    if isinstance(tensor, dict):
        tensor = list(tensor.values())
    if isinstance(tensor, list | tuple):
        names = {_dtype(item) for item in tensor}
        return names.pop() if len(names) == 1 else None
    return _text(tensor.dtype)


def _text(value: Any) -> str | None:
    return None if value is None else str(getattr(value, "name", value))


def _ask(question: Callable[[], Any]) -> Any:
    """Return the answer, None where the layer has none: Keras raises many kinds of errors for a question that
    a layer cannot answer, and a layer of the user's own may raise any."""
    try:
        return question()
    except Exception as error:  # noqa: BLE001 - see above; what is not stated is left out
        raise_if_signalled(error)
        return None
