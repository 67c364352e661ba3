"""Which objects a model's file may name: those of Keras that compute, and those that the user imported.

Keras finds a class or a function by names in the file, and gives it arguments of the file. Its own safe mode
does not keep to objects that compute in every version, and knows neither Keras 2 nor HDF5. So each name is
looked up here, before Keras sees the file, without importing anything.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any

from mpprof.errors import UnreadableError
from mpprof.model.limits import DEEPEST_LAYER, DEEPEST_OBJECT
from mpprof.model.shell import quoted
from mpprof.record.facts.model_file import TRUST
from mpprof.record.keras_compat import KERAS_2

CODE = {
    "Lambda": "a Lambda layer, whose code is not run from a file",
    "__lambda__": "a Lambda layer, whose code is not run from a file",
    "TorchModuleWrapper": "a pickled module of PyTorch, whose code is not run from a file",
    "TFSMLayer": "a layer that loads a SavedModel, whose code is not run",
    "JaxLayer": "a layer of JAX, whose code is not run from a file",
    "FlaxLayer": "a layer of Flax, whose code is not run from a file",
    "ResidualWrapper": "a cell's wrapper, whose code is not run from a file",
    "DropoutWrapper": "a cell's wrapper, whose code is not run from a file",
    "TensorFlowOpLayer": "an op of TensorFlow as a graph, which is not run from a file",
    "ClassMethod": "a method of a class of TensorFlow, which is not called from a file",
    "InstanceMethod": "a method of a tensor, which is not called from a file",
}
"""Classes of Keras' own that run what the file holds, or what it names."""

_PLAIN = frozenset(
    {"__tensor__", "__numpy__", "__bytes__", "__slice__", "__ellipsis__", "__keras_tensor__", "__tuple__",
     "TensorShape"}
)  # fmt: skip
_KINDS = (
    "Operation", "layers.Layer", "initializers.Initializer", "regularizers.Regularizer",
    "constraints.Constraint", "optimizers.Optimizer", "optimizers.legacy.Optimizer",
    "optimizers.schedules.LearningRateSchedule", "losses.Loss", "metrics.Metric", "mixed_precision.Policy",
    "dtype_policies.DTypePolicy", "dtype_policies.DTypePolicyMap", "Quantizer", "random.SeedGenerator",
    "quantizers.QuantizationConfig",
)  # fmt: skip
_OF_FUNCTIONS = (
    "activations", "losses", "metrics", "initializers", "regularizers", "constraints", "ops", "random",
)  # fmt: skip
_OF_CLASSES = (
    "layers", "models", "", "src.layers", "src.models", "initializers", "regularizers", "constraints",
    "optimizers", "optimizers.legacy", "optimizers.schedules", "losses", "metrics", "mixed_precision",
    "dtype_policies", "src.engine.functional", "src.engine.sequential", "src.layers.core.tf_op_layer",
    "src.mixed_precision.loss_scale_optimizer", "src.mixed_precision.policy",
)  # fmt: skip
"""Where a class is looked for whose module the file does not name: HDF5 names none."""
_OP_LAYERS = ("TFOpLambda", "SlicingOpLambda")
_OPS = ("", "math", "nn", "linalg", "signal", "image", "strings", "random", "bitwise", "sparse", "ragged",
        "sets", "dtypes", "quantization", "__operators__")  # fmt: skip
_NOT_OPS = ("py_function", "numpy_function", "print")
_SPECS = ("TensorSpec", "RaggedTensorSpec", "SparseTensorSpec")


def refuse_deep(config: Any, where: str) -> None:
    """Raise `UnreadableError` where more models or more objects of any class lie in one another than are
    read: Keras goes through all that lies below at each level."""
    waiting = [(config, 0, 0)]
    while waiting:
        value, models, objects = waiting.pop()
        if isinstance(value, dict):
            objects += "class_name" in value
            models += isinstance(value.get("layers"), list)
            if models > DEEPEST_LAYER or objects > DEEPEST_OBJECT:
                raise UnreadableError(
                    f"its layers lie in one another more than {DEEPEST_LAYER} deep", where=where,
                    next="No model needs as much",
                )  # fmt: skip
            value = value.values()
        elif not isinstance(value, list):
            continue
        waiting.extend((each, models, objects) for each in value)


def refuse_unsafe(config: Any, keras: ModuleType, custom: Mapping[str, Any], where: str) -> None:
    """Raise `UnreadableError` where the configuration names an object that is neither Keras' own, of a kind
    that computes, nor among `custom`; and for objects that run code or read files that the file names."""
    for one in _objects(config):
        if isinstance(one.get("vocabulary"), str):
            raise refused("a vocabulary in another file, which is not read", where)
        if "class_name" in one or "spec_name" in one:
            _check(one, keras, custom, where)


def _objects(config: Any) -> Iterator[dict[str, Any]]:
    """Yield each object of JSON at whatever depth: what stands for a class may stand anywhere."""
    waiting = [config]
    while waiting:
        value = waiting.pop()
        if isinstance(value, dict):
            yield value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)


def _check(one: dict[str, Any], keras: ModuleType, custom: Mapping[str, Any], where: str) -> None:
    name, module, registered = one.get("class_name"), one.get("module"), one.get("registered_name")
    inner = one.get("config")
    if not all(value is None or isinstance(value, str) for value in (name, module, registered)):
        raise refused("a class without a name", where)
    if name == "__typespec__" or "spec_name" in one:
        tensorflow = str(module).startswith("tensorflow.python.") and str(module) in sys.modules
        if not tensorflow or one.get("spec_name") not in _SPECS or registered is not None:
            raise refused(f"a type of {module}, which is not taken from a file", where)
        return
    if name in _PLAIN:
        return
    if name == "function":
        if not isinstance(inner, str) or not _is_known_function(inner, module, keras, custom):
            raise missing(str(inner), where)
        return
    found = custom.get(registered or "")
    if getattr(found, "__name__", None) != name:  # HDF5 goes by the class' own name
        found = custom.get(name or "") or _class(keras, module, name or "")
    ancestors = getattr(found, "__mro__", ())
    named = isinstance(inner, dict) and isinstance(inner.get("function"), dict)
    if keras.__name__ != KERAS_2 and named and name == "Lambda":
        return  # a function by its name, which is an object of its own here
    runs = [CODE[each] for each in CODE if each == name or _within(keras, f"layers.{each}") in ancestors]
    if runs:
        raise refused(CODE.get(name or "", runs[0]), where)
    if found is None:
        raise missing(name or "", where)
    if name in _OP_LAYERS and not _is_op(inner):
        raise refused("a function of TensorFlow that is not an op, which is not called from a file", where)


def _class(keras: ModuleType, module: str | None, name: str) -> Any:
    """Return Keras' own class of that name, if it is of a kind that computes."""
    kinds = tuple(kind for each in _KINDS if isinstance(kind := _within(keras, each), type))
    places = _OF_CLASSES if module is None else _place(module)
    for place in places:
        found = vars(holder).get(name) if (holder := _module(keras, place)) is not None else None
        if isinstance(found, type) and issubclass(found, kinds):
            return found
    return None


def _place(module: str) -> tuple[str, ...]:
    """Return where in its package a module of Keras' lies, none for another's."""
    package, _, rest = module.partition(".")
    return (rest,) if package in ("keras", KERAS_2) else ()


def _module(keras: ModuleType, place: str) -> ModuleType | None:
    """Return a module within Keras that is imported, without importing it."""
    found = sys.modules.get(f"{keras.__name__}.{place}") if place else keras
    found = _within(keras, place) if found is None else found
    return found if type(found) is ModuleType else None


def _within(keras: ModuleType, place: str) -> Any:
    found: Any = keras
    for part in place.split("."):
        found = vars(found).get(part) if isinstance(found, ModuleType) else None
    return found


def _is_known_function(name: str, module: str | None, keras: ModuleType, custom: Mapping[str, Any]) -> bool:
    if name in custom:
        return True
    places = _OF_FUNCTIONS if module in (None, "builtins") else _place(str(module))
    return name not in ("get", "serialize", "deserialize") and any(
        place.partition(".")[0] in _OF_FUNCTIONS and callable(_within(keras, f"{place}.{name}"))
        for place in places
    )


def _is_op(config: Any) -> bool:
    """Return whether what an op layer of Keras 2 calls is an op that computes: a function of TensorFlow that
    takes Keras' tensors, and neither reads nor writes nor calls another."""
    path = config.get("function") if isinstance(config, dict) else None
    if not isinstance(path, str):
        return False
    place, _, name = path.rpartition(".")
    from tensorflow.python.util.tf_export import get_symbol_from_name

    found = get_symbol_from_name(path)
    return place in _OPS and name not in _NOT_OPS and hasattr(found, "_tf_fallback_dispatchers")


def refused(what: str, where: str) -> UnreadableError:
    """Return the error for a file that holds what is not done for one that is not trusted."""
    return UnreadableError(f"it holds {what}", where=where, next=TRUST)


def missing(name: str, where: str) -> UnreadableError:
    """Return the error for a file of a model of which a class is not at hand."""
    name = name.rpartition(">")[2]
    return UnreadableError(
        f"it needs the class {name}, which was not imported", where=where,
        next=f"mpprof audit {quoted(where)} --import MODULE (the one that defines {name}), or "
        "mpprof.audit(model) where it is built",
    )  # fmt: skip
