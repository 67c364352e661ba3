"""Which line of a stack is the user's own: the innermost that is in no installed package.

PyTorch's profiler gives none, even `with_stack=True`: a frame of its Python tracer states the line on which
its function begins or, of one that ran already, the line it was on when the profiler started; never the line
that called an op. It also cuts the folders of `sys.path` off, so that packages look like the user's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from mpprof.model.installed import FOLDERS

_OF_OTHERS = re.compile(rf"(?:^|/)(?:{FOLDERS})/".replace("/", r"[/\\]"))
_OVERWRITTEN = re.compile(r"[/\\]?(?:x+[/\\])+[^/\\]*$")
"""Where a bundle took the folder out: whose code it is shows only beside files that are left as installed."""
_FOLDERS = re.compile(r".*[/\\]", re.DOTALL)
_LONGEST = 200


def installed(file: str) -> bool:
    """Return whether a file is known to be of an installed package or of Python."""
    return _OF_OTHERS.search(file) is not None


def own_line(frames: Iterable[tuple[str, int]], *, told: bool = False) -> str:
    """Return `model.py:37` of the first of these (file, line), innermost first, that is in no installed
    package; "" where none is. The folder of the file is left out: it says whose machine it was. `told`:
    files of packages are marked as such even where folders were overwritten."""
    for file, line in frames:
        if (
            file
            and line > 0
            and file[0] != "<"
            and not installed(file)
            and (told or not _OVERWRITTEN.match(file))
        ):
            return f"{_FOLDERS.sub('', file)[-_LONGEST:]}:{line}"
    return ""
