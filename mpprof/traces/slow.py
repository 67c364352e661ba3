"""Which traces take so long to parse that the result is worth keeping, and what it depends on.

Measured on one core of a cloud machine: an xplane is walked at 160 MB/s and more, which no cache beats
(61 MB, 2.1 million events: 0.4 s). Kineto's JSON is parsed at about 50 MB/s of text (22 MB packed, 360 MB
text: 7 s, from the cache 0.3 s), an SQLite export at 6 to 15 MB/s (39 MB: 6.6 s, from the cache 0.2 s).
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mpprof import model
from mpprof._version import __version__

_FROM_BYTES = {".json.gz": 2 << 20, ".json": 32 << 20, ".sqlite": 8 << 20}
"""By suffix, the size from which on reading takes about a second; xplanes never do."""


def is_slow(path: Path) -> bool:
    """Whether reading this file takes about a second or more."""
    for suffix, size in _FROM_BYTES.items():
        if path.name.endswith(suffix):
            try:
                return path.stat().st_size >= size
            except OSError:
                return False
    return False


@cache
def version() -> str:
    """Changes whenever the code that reads does: what another version read is not to be trusted."""
    import hashlib  # takes as long to import as a small trace to read

    hashed = hashlib.blake2b(__version__.encode(), digest_size=8)
    for folder in (Path(__file__).parent, Path(model.__file__).parent):
        for source in sorted(folder.glob("*.py")):
            hashed.update(source.read_bytes())
    return hashed.hexdigest()
