"""The file of a saved model, read as data: neither Keras nor a weight is loaded, and no code is run."""

from __future__ import annotations

import json
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mpprof.errors import NotFoundError, UnreadableError, UsageError, optional_package
from mpprof.record.keras_compat import KERAS_2

LARGEST_CONFIG_BYTES = 64 << 20
"""Size of what a file states of its model: that of ResNet-152 has half a mebibyte."""

HDF5 = b"\x89HDF\r\n\x1a\n"
_LARGEST_METADATA_BYTES = 1 << 20
_PACKINGS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)


@dataclass(frozen=True, slots=True)
class ModelFile:
    """`texts`: by their names in the file, what describes the model and how it was compiled, as JSON.
    `has_slots`: whether an optimizer's variables lie beside it."""

    path: Path
    keras_version: str
    hdf5: bool
    texts: dict[str, str]
    has_slots: bool = False

    @property
    def package(self) -> str:
        """The Keras that can read it: by the version that is written in it."""
        return KERAS_2 if self.keras_version.startswith(("1.", "2.")) else "keras"

    def parts(self) -> tuple[Any, Any]:
        """Return the model's configuration, and how it was compiled. Raises `UnreadableError` for JSON that
        is none, or nested too deeply."""
        try:
            read = {name: json.loads(text) for name, text in self.texts.items()}
            if self.hdf5:
                return read["model_config"], read.get("training_config")
            config = read["config.json"]
            return {key: config[key] for key in config if key != _COMPILED}, config.get(_COMPILED)
        except (ValueError, RecursionError, AttributeError, TypeError) as error:
            raise _damaged(self.path) from error


_COMPILED = "compile_config"


def is_saved_model(path: Path) -> bool:
    """Return whether the path is a SavedModel of Keras 2; Keras 3 writes no models as directories."""
    return (path / "saved_model.pb").is_file() and (path / "keras_metadata.pb").is_file()


def check_kind(path: Path) -> None:
    """Raise `NotFoundError` where there is nothing, `UsageError` for a SavedModel, which holds code, and
    `UnreadableError` for another directory."""
    if not path.exists():
        raise NotFoundError("no such file", where=str(path), next="Give a model that model.save() wrote")
    if is_saved_model(path):
        raise UsageError("a SavedModel holds code, which is not run", where=str(path), next=TRUST)
    if path.is_dir():
        raise UnreadableError(
            "a directory without a model in it", where=str(path), next="Give the model's file"
        )
    if not path.is_file():  # a pipe would wait for a writer
        raise UnreadableError("is not a regular file", where=str(path), next="Give the model's file")


def read(path: Path) -> ModelFile:
    """Return what a `.keras` or HDF5 file says of its model. Raises as `check_kind`, and `UnreadableError`
    where it is not a model's file."""
    check_kind(path)
    try:
        with path.open("rb") as opened:
            head = opened.read(len(HDF5))
        return _of_hdf5(path) if head == HDF5 else _of_zip(path)
    except (OSError, EOFError, KeyError, ValueError, RuntimeError, AttributeError, RecursionError,
            struct.error, zlib.error, zipfile.BadZipFile) as error:  # fmt: skip
        raise _damaged(path) from error


TRUST = "If you trust whoever made it: --trust (in Python: trust=True) loads it with its code"


def _damaged(path: Path) -> UnreadableError:
    return UnreadableError(
        "not a whole model as .keras or .h5, or the file is cut off", where=str(path),
        next="Save it anew: model.save('model.keras')",
    )  # fmt: skip


def _of_zip(path: Path) -> ModelFile:
    with zipfile.ZipFile(path) as archive:
        metadata = json.loads(_member(archive, "metadata.json", _LARGEST_METADATA_BYTES))
        text = _member(archive, "config.json", LARGEST_CONFIG_BYTES)
    return ModelFile(path, str(metadata.get("keras_version", "")), False, {"config.json": text})


def _member(archive: zipfile.ZipFile, name: str, most_bytes: int) -> str:
    """Return a member's text, of which no more is unpacked than is allowed."""
    if archive.getinfo(name).compress_type not in _PACKINGS:  # whose tables may take any amount of memory
        raise UnreadableError(
            "is packed as no model is (LZMA or bzip2)", where=archive.filename or "",
            next="Save it anew: model.save('model.keras')",
        )  # fmt: skip
    with archive.open(name) as entry:
        content = entry.read(most_bytes + 1)
    return _bounded(archive.filename or "", name, content, most_bytes).decode()


def _of_hdf5(path: Path) -> ModelFile:
    """Read the attributes of the file alone: its groups may be links to other files."""
    h5py = optional_package("h5py")  # comes with Keras
    with h5py.File(path, "r") as opened:
        if "model_config" not in opened.attrs:
            raise UnreadableError(
                "weights alone, without the model", where=str(path), next="Save the whole: model.save(...)"
            )
        texts = {}
        for name in ("model_config", "training_config", "keras_version"):
            if name in opened.attrs:
                value = opened.attrs[name]
                content = value if isinstance(value, bytes) else str(value).encode()
                texts[name] = _bounded(str(path), name, content, LARGEST_CONFIG_BYTES).decode()
        has_slots = opened.get("optimizer_weights", getlink=True) is not None
    return ModelFile(path, texts.pop("keras_version", ""), True, texts, has_slots)


def _bounded(path: str, name: str, content: bytes, most_bytes: int) -> bytes:
    if len(content) > most_bytes:
        raise UnreadableError(
            f"its {name} has more than {most_bytes >> 20} MiB", where=path, next="No model needs as much"
        )
    return content
