"""A saved model, made again to be looked at: by the Keras that wrote it, with the classes that it needs.

Of an untrusted file only the description of the model is used: it is vetted, and no weight is read.
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, partial
from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

from mpprof.errors import MpprofError, UnreadableError, UsageError
from mpprof.record.facts import model_file
from mpprof.record.facts.model_file import ModelFile
from mpprof.record.facts.model_vetting import CODE, missing, refuse_deep, refuse_unsafe, refused
from mpprof.record.keras_compat import KERAS_2

# Models whose variables have a shape and a type, and no values: they take no memory, whatever their size.


@contextmanager
def without_values(keras: ModuleType) -> Iterator[None]:
    """Patch Keras so that it draws values for a variable only where they are asked for. The model's graph,
    its facts and a trace of its step are the same."""
    if keras.__name__ == KERAS_2:
        import tensorflow as tf

        with tf.variable_creator_scope(_variable_of_keras_2):
            yield
        return
    kind: Any = keras.Variable
    make: Any = {"tensorflow": _of_tensorflow, "torch": _of_torch}.get(keras.backend.backend())
    drawn: Any = getattr(
        kind, "_initialize_with_initializer", None
    )  # older ones than 3.7 have none, and draw

    def undrawn(self: Any, initializer: Callable[..., Any]) -> None:
        if not self._shape:  # a counter, or a scale that is asked for
            drawn(self, initializer)
        elif make is None:  # Keras itself then draws where it is asked
            self._value, self._initializer = None, initializer
        else:
            self._value = make(self, initializer)

    if drawn is None:
        yield
        return
    kind._initialize_with_initializer = undrawn
    try:
        yield
    finally:
        kind._initialize_with_initializer = drawn


def _of_tensorflow(variable: Any, initializer: Callable[..., Any]) -> Any:
    shape, dtype = tuple(variable._shape), variable._dtype
    return _undrawn(
        lambda: initializer(shape, dtype=dtype),
        shape=shape, dtype=dtype, trainable=variable.trainable, name=variable.name,
    )  # fmt: skip


def _of_torch(variable: Any, _: Callable[..., Any]) -> Any:
    import torch
    from keras.src.backend.torch.core import to_torch_dtype

    value = torch.empty(tuple(variable._shape), dtype=to_torch_dtype(variable._dtype), device="meta")
    return torch.nn.Parameter(value, requires_grad=variable.trainable and value.is_floating_point())


def _variable_of_keras_2(make: Callable[..., Any], **given: Any) -> Any:
    import tensorflow as tf

    initial, shape, dtype = given.get("initial_value"), given.get("shape"), given.get("dtype")
    if not callable(initial):
        return make(**given)
    if shape is None or dtype is None:
        traced = tf.function(initial).get_concrete_function()
        shape, dtype = traced.output_shapes, traced.output_dtypes
    if not tf.TensorShape(shape).rank:
        return make(**given)
    kept = ("trainable", "name", "constraint", "synchronization", "aggregation")
    return _undrawn(
        initial, shape=shape, dtype=dtype, **{key: given[key] for key in kept if given.get(key) is not None}
    )


def _undrawn(draw: Callable[[], Any], **given: Any) -> Any:
    """Return a variable of TensorFlow that takes no memory until it is read outside of a graph."""
    made = _undrawn_class()(**given)
    made.draw = draw
    return made


@cache
def _undrawn_class() -> Any:
    import tensorflow as tf
    from tensorflow.python.ops.resource_variable_ops import UninitializedVariable

    class Undrawn(UninitializedVariable):  # type: ignore[misc]
        draw: Callable[[], Any]

        def _read_variable_op(self, *more: Any, **named: Any) -> Any:
            if tf.executing_eagerly() and not self.is_initialized():
                self.assign(self.draw())
            return super()._read_variable_op(*more, **named)

    return Undrawn


AT_HAND = "Audit it where it is built instead: mpprof.audit(model)"
_MISSING = re.compile(r"(?:Could not locate class|Unknown layer:?|Unknown object:?) '?(\w+)'?")


@contextmanager
def loaded(path: Path, imports: Iterable[str] = (), *, trust: bool = False) -> Iterator[Any]:
    """Give a model saved by Keras 3 (`.keras`, `.h5`) or Keras 2 (also a SavedModel), made under the policy
    it was saved with: under another one, Keras would compile it without loss scaling. A model whose
    optimizer, loss or metrics cannot be loaded is given uncompiled. Variables have no values, also those
    that are made within.

    `imports`: names of modules to import first, for the classes in them that the model is made of. `trust`:
    load all of it as Keras does, also its weights and what code it holds.

    Raises `UsageError` where the Keras that wrote it is not installed, a module cannot be imported, or a
    SavedModel is not trusted; and `UnreadableError` where Keras cannot load it (damaged; a class is missing)
    or it would run code."""
    found = None if trust and model_file.is_saved_model(path) else model_file.read(path)
    keras = _keras(found, path)
    custom = {name: kind for module in imports for name, kind in _classes(module, keras)}
    with nullcontext() if trust else without_values(keras):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # of an optimizer's state, which says nothing here
                if trust or found is None:
                    model = _under_its_policy(keras, partial(_whole, keras, path, custom))
                else:
                    model = _described(keras, found, custom)
        except MpprofError:
            raise
        except Exception as error:  # Keras raises many kinds for files that it cannot load
            raise _explained(error, path) from error
        yield model


def _keras(found: ModelFile | None, path: Path) -> ModuleType:
    """Return the Keras that can read the file."""
    package = KERAS_2 if found is None else found.package
    try:
        return importlib.import_module(package)
    except ImportError as error:
        install = f"pip install {KERAS_2}" if package == KERAS_2 else "pip install 'mpprof[tensorflow]'"
        version = "2" if found is None else found.keras_version
        what = f"it was saved by Keras {version}, and {package} is not installed"
        raise UsageError(what, where=str(path), next=install) from error


def _described(keras: ModuleType, found: ModelFile, custom: dict[str, Any]) -> Any:
    """Return the model that the file describes, without its weights. How it was compiled is left out where
    that names what Keras does not have, as it is where Keras cannot load it."""
    config, compiled = found.parts()
    refuse_deep(config, str(found.path))
    refuse_deep(compiled, str(found.path))
    registered = (keras.saving if hasattr(keras, "saving") else keras.utils).get_custom_objects()
    known = {**registered, **custom}
    refuse_unsafe(config, keras, known, str(found.path))
    try:
        refuse_unsafe(compiled, keras, known, str(found.path))
    except UnreadableError:
        compiled = None
    make = _from_hdf5 if found.hdf5 else _from_config
    with _built_once(keras):
        return _under_its_policy(
            keras, lambda compile: make(keras, found, custom, compile), compiled=compiled is not None
        )


@contextmanager
def _built_once(keras: ModuleType) -> Iterator[None]:
    """Patch Keras 3 so that it makes the graph of a Sequential that it reads once, with the last layer, and
    not anew with each: of a thousand layers that took minutes."""
    kind: Any = keras.Sequential
    read, build = vars(kind)["from_config"], vars(kind).get("_maybe_rebuild")
    if build is None:  # Keras 2, which adds to the graph
        yield
        return
    reading: list[tuple[type, Any, int]] = []

    def from_config(cls: type, config: Any, custom_objects: Any = None) -> Any:
        reading.append((cls, config.get("name"), len(config.get("layers", ()))))
        try:
            return read.__func__(cls, config, custom_objects=custom_objects)
        finally:
            reading.pop()

    def build_with_the_last(self: Any) -> None:
        *read_now, layers = reading[-1] if reading else (None, None, 0)
        if read_now != [type(self), self.name] or len(self._layers) >= layers:
            build(self)

    kind.from_config, kind._maybe_rebuild = classmethod(from_config), build_with_the_last
    try:
        yield
    finally:
        kind.from_config, kind._maybe_rebuild = read, build


def _from_config(keras: ModuleType, found: ModelFile, custom: dict[str, Any], compile: bool) -> Any:
    serialization = importlib.import_module(f"{keras.__name__}.src.saving.serialization_lib")
    config, compiled = found.parts()
    with serialization.ObjectSharingScope():
        return serialization.deserialize_keras_object(
            {**config, "compile_config": compiled if compile else None}, custom_objects=custom, safe_mode=True
        )


def _from_hdf5(keras: ModuleType, found: ModelFile, custom: dict[str, Any], compile: bool) -> Any:
    """Return what Keras loads from a file that holds what was vetted and nothing else."""
    import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]  # comes with Keras

    with TemporaryDirectory(prefix="mpprof-model-") as folder, _without_weights(keras):
        path = Path(folder, "model.h5")
        with h5py.File(path, "w") as file:
            file.attrs.update({**found.texts, "keras_version": found.keras_version})
            file.create_group("model_weights")
            if found.has_slots:
                file.create_group("optimizer_weights")
        return keras.models.load_model(path, custom_objects=custom, compile=compile)


@contextmanager
def _without_weights(keras: ModuleType) -> Iterator[None]:
    """Patch Keras' reader of HDF5 so that it looks for no weights."""
    place = "saving.legacy.hdf5_format" if keras.__name__ == KERAS_2 else "legacy.saving.legacy_h5_format"
    reader = importlib.import_module(f"{keras.__name__}.src.{place}")
    answers: dict[str, Any] = {
        "load_weights_from_hdf5_group": None,
        "load_optimizer_weights_from_hdf5_group": [],
    }
    kept = {name: getattr(reader, name) for name in answers}
    try:
        for name, answer in answers.items():
            setattr(reader, name, lambda *_, answer=answer, **__: answer)
        yield
    finally:
        for name, function in kept.items():
            setattr(reader, name, function)


def _whole(keras: ModuleType, path: Path, custom: dict[str, Any], compile: bool) -> Any:
    return keras.models.load_model(path, custom_objects=custom, compile=compile, safe_mode=False)


def _classes(name: str, keras: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the layers and models that a module of the user's defines."""
    here = str(Path.cwd())
    sys.path.insert(0, here)  # as `python -m` would have it, whatever is installed under the module's name
    try:
        module = importlib.import_module(name)
    except Exception as error:  # the user's module may do anything
        raise UsageError(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove(here)
    for key, kind in vars(module).items():
        if inspect.isclass(kind) and issubclass(kind, keras.layers.Layer):
            yield key, kind


def _under_its_policy(keras: ModuleType, make: Callable[[bool], Any], *, compiled: bool = True) -> Any:
    """Make the model uncompiled first, for its policies; then under them, as it was compiled, if it was."""
    before = (
        keras.mixed_precision.global_policy() if keras.__name__ == KERAS_2 else keras.config.dtype_policy()
    )
    model = make(False)
    mixed = _mixed_policy(model)
    if mixed is None and not compiled:
        return model
    try:
        if mixed is not None:
            _set_policy(keras, mixed)
        try:
            return make(compiled)
        except Exception:  # noqa: BLE001 - a loss or a metric that this Keras cannot load: the layers are there
            return make(False)
    finally:
        _set_policy(keras, before)


def _mixed_policy(model: Any) -> str | None:
    """Return the mixed policy that the model was built under: its own, else that of half of its layers with
    weights or more, as inputs and activations are float32 often. The layers within layers were made anew just
    now, under the process' policy."""
    weighted = [one for one in model.layers if one.weights] or model.layers
    policies = [one.dtype_policy for one in (model, *weighted) if hasattr(one, "dtype_policy")]
    names = [str(policy.name).rpartition("_from_")[2] for policy in policies]  # float8_from_mixed_bfloat16
    mixed = [name for name in names if name.startswith("mixed_")]
    if not mixed or (names[0] not in mixed and len(mixed) < len(names[1:]) / 2):
        return None
    return max(set(mixed), key=mixed.count)


def _set_policy(keras: ModuleType, policy: Any) -> None:
    if keras.__name__ == KERAS_2:
        keras.mixed_precision.set_global_policy(policy)
    else:
        keras.config.set_dtype_policy(policy)


def _explained(error: Exception, file: Path) -> MpprofError:
    """Return the error that tells what is missing: Keras' errors name it far down their causes, or far down
    their text."""
    texts = list(_texts(error))
    absent = next((found[1] for text in texts if (found := _MISSING.search(text))), None)
    if absent is not None:
        return missing(absent, str(file))
    if any("Lambda" in text for text in texts):
        return refused(CODE["Lambda"], str(file))
    first = next(iter(texts[0].strip().splitlines()), "")
    said = f"Keras cannot load it: {type(error).__name__}: {first}"[:300]
    return UnreadableError(said.rstrip(" ."), where=str(file), next=AT_HAND)


def _texts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__
