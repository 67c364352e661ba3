"""A saved model, loaded to be looked at: by the Keras that wrote it, with the classes that it needs."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import sys
import warnings
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

from mpprof.errors import MpprofError, NotFoundError, UnreadableError, UsageError
from mpprof.model.shell import quoted
from mpprof.record.keras_compat import KERAS_2

AT_HAND = "Audit it where it is built instead: mpprof.audit(model)"
HDF5 = b"\x89HDF\r\n\x1a\n"
_MISSING = re.compile(r"(?:Could not locate class|Unknown layer:?|Unknown object:?) '?(\w+)'?")
_MOST_METADATA_BYTES = 1 << 20


def load_model(path: str | os.PathLike[str], imports: Iterable[str] = ()) -> Any:
    """Return a model saved by Keras 3 (`.keras`, `.h5`) or Keras 2 (also a SavedModel), loaded under the
    policy it was saved with: under another one, Keras would compile it without loss scaling. A model whose
    optimizer, loss or metrics cannot be loaded is returned uncompiled.

    `imports`: names of modules to import first, for the classes in them that the model is made of.

    Raises `NotFoundError`; `UsageError` where the Keras that wrote it is not installed or a module cannot be
    imported; and `UnreadableError` where Keras cannot load it (damaged; a class is missing; Lambda layers are
    not run from a file)."""
    file = Path(path)
    if not file.exists():
        raise NotFoundError("no such file", where=str(file), next="Give a model that model.save() wrote")
    keras = _writer(file)
    custom = {name: kind for module in imports for name, kind in _classes(module, keras)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of an optimizer's state, which says nothing here
            return _loaded(keras, file, custom)
    except Exception as error:  # Keras raises many kinds for files that it cannot load
        raise _explained(error, file) from error


def _writer(file: Path) -> ModuleType:
    """Return the Keras that can read the file: by the version that is written in it."""
    version = _version(file)
    package = KERAS_2 if version.startswith(("1.", "2.")) else "keras"
    try:
        return importlib.import_module(package)
    except ImportError as error:
        install = f"pip install {KERAS_2}" if package == KERAS_2 else "pip install 'mpprof[tensorflow]'"
        what = f"it was saved by Keras {version}, and {package} is not installed"
        raise UsageError(what, where=str(file), next=install) from error


def _version(file: Path) -> str:
    """Return the version of the Keras that wrote the file. Raises `UnreadableError` where it is no model's
    file."""
    if file.is_dir():
        if (file / "saved_model.pb").is_file() and (file / "keras_metadata.pb").is_file():
            return "2.0"  # Keras 3 writes no models as directories
        raise UnreadableError(
            "a directory without a model in it", where=str(file), next="Give the model's file"
        )
    try:
        with file.open("rb") as opened:
            head = opened.read(8)
        if head == HDF5:
            return _version_of_hdf5(file)
        with zipfile.ZipFile(file) as archive, archive.open("metadata.json") as entry:
            return str(json.loads(entry.read(_MOST_METADATA_BYTES)).get("keras_version", ""))
    except (OSError, KeyError, ValueError, AttributeError, zipfile.BadZipFile) as error:
        raise UnreadableError(
            "not a whole model as .keras or .h5, or the file is cut off", where=str(file),
            next="Save it anew: model.save('model.keras')",
        ) from error  # fmt: skip


def _version_of_hdf5(file: Path) -> str:
    import h5py  # type: ignore[import-not-found, import-untyped, unused-ignore]  # comes with Keras

    with h5py.File(file, "r") as opened:
        if "model_config" not in opened.attrs:
            raise UnreadableError(
                "weights alone, without the model", where=str(file), next="Save the whole: model.save(...)"
            )
        version = opened.attrs.get("keras_version", "")
        return version.decode() if isinstance(version, bytes) else str(version)


def _classes(name: str, keras: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the layers and models that a module of the user's defines."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)  # as `python -m` would have it
    try:
        module = importlib.import_module(name)
    except Exception as error:  # the user's module may do anything
        raise UsageError(f"the module {name} cannot be imported: {type(error).__name__}: {error}") from error
    for key, kind in vars(module).items():
        if inspect.isclass(kind) and issubclass(kind, keras.layers.Layer):
            yield key, kind


def _loaded(keras: ModuleType, file: Path, custom: dict[str, Any]) -> Any:
    """Load the model uncompiled first, for its policies; then under them, as it was compiled."""
    before = (
        keras.mixed_precision.global_policy() if keras.__name__ == KERAS_2 else keras.config.dtype_policy()
    )
    mixed = _mixed_policy(keras.models.load_model(file, custom_objects=custom, compile=False))
    try:
        if mixed is not None:
            _set_policy(keras, mixed)
        try:
            return keras.models.load_model(file, custom_objects=custom)
        except Exception:  # noqa: BLE001 - a loss or a metric that this Keras cannot load: the layers are there
            return keras.models.load_model(file, custom_objects=custom, compile=False)
    finally:
        _set_policy(keras, before)


def _mixed_policy(model: Any) -> str | None:
    """Return the mixed policy that the model was built under: its own, else that of half of its layers or
    more. The layers within layers were made anew just now, under the process' policy."""
    names = [str(one.dtype_policy.name) for one in (model, *model.layers) if hasattr(one, "dtype_policy")]
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
    missing = next((found[1] for text in texts if (found := _MISSING.search(text))), None)
    if missing is not None:
        return UnreadableError(
            f"it needs the class {missing}, which was not imported", where=str(file),
            next=f"mpprof audit {quoted(file)} --import MODULE (the one that defines {missing}), or "
            "mpprof.audit(model) where it is built",
        )  # fmt: skip
    if any("Lambda" in text for text in texts):
        return UnreadableError(
            "it holds a Lambda layer, whose code is not run from a file", where=str(file),
            next="If you trust the file: mpprof.audit(keras.saving.load_model(path, safe_mode=False))",
        )  # fmt: skip
    first = next(iter(texts[0].strip().splitlines()), "")
    said = f"Keras cannot load it: {type(error).__name__}: {first}"[:300]
    return UnreadableError(said.rstrip(" ."), where=str(file), next=AT_HAND)


def _texts(error: BaseException | None) -> Iterator[str]:
    while error is not None:
        yield str(error)
        error = error.__cause__ or error.__context__
