"""Which traces take so long to parse that the result is worth keeping, and what it depends on.

Measured on one core of a cloud machine: an xplane is walked at 250 MB/s and more. A cache would save half of
that (30 MB: 0.12 s; to hash the file and read back the columns that a report shows takes 0.05 s), and to keep
them costs as much as it saves, and more disk than the file. Kineto's JSON is parsed at about 50 MB/s of text
(1.8 MB packed: 0.95 s, from the cache 0.01 s), an SQLite export at 6 to 15 MB/s. What is read in less than
0.2 s is not worth the disk: columns are kept as they are, in 2 to 8 times the packed size.
tests/benchmarks/test_cache_speed.py measures it again.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mpprof import model
from mpprof._version import __version__
from mpprof.traces.common import file_head
from mpprof.traces.readers import claimed, recognised

_LEAST_BYTES = 1 << 20
"""Nothing smaller is slow, whatever it is: such a file of a foreign name is not opened to find out."""


def is_slow(path: Path) -> bool:
    """Return whether reading this file takes clearly longer than getting it from the cache."""
    try:
        size = path.stat().st_size
        reader, packed = claimed(path.name), path.name.endswith(".gz")
        if reader is None and size >= _LEAST_BYTES:
            raw = file_head.first_bytes(path)
            reader, packed = recognised(file_head.within(raw)), raw.startswith(file_head.GZIP)
    except OSError:
        return False
    least = reader.slow_from_bytes(packed=packed) if reader is not None else None
    return least is not None and size >= least


@cache
def version() -> str:
    """Return a version that changes whenever the code that reads does: what another version read is not to be
    trusted."""
    import hashlib  # takes as long to import as a small trace to read

    hashed = hashlib.blake2b(__version__.encode(), digest_size=8)
    for folder in (Path(__file__).parents[1], Path(model.__file__).parent):
        for source in sorted(folder.rglob("*.py")):
            hashed.update(source.read_bytes())
    return hashed.hexdigest()
