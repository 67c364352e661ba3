"""Prints a digest of all columns of each trace file, as JSON: what one installed mpprof read, to hold against
another's. Run as a script, so that it is the mpprof on PYTHONPATH that reads.

    python tests/column_digests.py FILE...
"""

from __future__ import annotations

import hashlib
import json
import sys
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mpprof import traces
from mpprof.errors import MpprofError
from mpprof.traces.common import walk


def digest(path: Path) -> str:
    """Of all that was read, or the error."""
    try:
        hashed = hashlib.blake2b(digest_size=16)
        _take(traces.read(path), hashed)
        return hashed.hexdigest()
    except MpprofError as error:
        return str(error)


def _take(value: Any, hashed: Any) -> None:
    if isinstance(value, np.ndarray):
        hashed.update(f"{value.dtype}{value.shape}".encode() + np.ascontiguousarray(value).tobytes())
    elif is_dataclass(value):
        for field in fields(value):
            _take(getattr(value, field.name), hashed)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _take(item, hashed)
    else:
        hashed.update(repr(value).encode())


if __name__ == "__main__":
    files = {name: digest(Path(name)) for name in sys.argv[1:]}
    print(json.dumps({"compiled": walk.COMPILED, "package": traces.__file__, "files": files}))
