"""A batch in a file of NumPy's, for a command."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from mpprof.errors import NotFoundError, UnreadableError, UsageError

PARTS = ("x", "y", "sample_weight")
HOW = "Write it with numpy.savez(path, x=x, y=y)"


def read(path: Path) -> tuple[Any, Any, Any]:
    """Return `x`, `y` and `sample_weight`, None where the file has none: an array each, or several by name
    ("x.left" and "x.right" are a dictionary), as `numpy.savez` writes them.

    Raises `NotFoundError`, `UnreadableError` for another kind of file, and `UsageError` for other names."""
    try:
        with np.load(path, allow_pickle=False) as file:
            if not isinstance(file, Mapping):
                raise ValueError("it holds one array without a name")
            arrays = dict(file)
    except FileNotFoundError as error:
        raise NotFoundError("there is no such file", where=str(path), next=HOW) from error
    except (OSError, ValueError, EOFError, BadZipFile) as error:
        raise UnreadableError(f"not a batch: {error}".rstrip("."), where=str(path), next=HOW) from error
    others = sorted(name for name in arrays if name.partition(".")[0] not in PARTS)
    if others or not any(name.partition(".")[0] == "x" for name in arrays):
        what = f"it holds {', '.join(others)}" if others else "it holds no x"
        raise UsageError(what, where=str(path), next=HOW)
    x, y, sample_weight = (_part(arrays, name) for name in PARTS)
    return x, y, sample_weight


def _part(arrays: dict[str, Any], name: str) -> Any:
    found = {key.partition(".")[2]: array for key, array in arrays.items() if key.partition(".")[0] == name}
    return found.get("") if len(found) < 2 and "" in found else found or None
