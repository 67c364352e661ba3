"""Which traces take so long to parse that the result is worth keeping, and what it depends on.

Measured on one core of a cloud machine: an xplane is walked at 160 MB/s and more, which no cache beats
(61 MB, 2.1 million events: 0.31 s; to hash the file, load polars and read back the columns that a report
shows takes 0.42 s, and keeping them costs 0.27 s more and 22 MB of disk). Kineto's JSON is parsed at about
50 MB/s of text (22 MB packed, 360 MB text: 7 s, from the cache 0.3 s), an SQLite export at 6 to 15 MB/s
(39 MB: 6.6 s, from the cache 0.2 s). To load polars alone takes 0.15 s: what is read in less is not worth
keeping. tests/benchmarks/test_cache_speed.py measures it again.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

from mpprof import model
from mpprof._version import __version__
from mpprof.traces import beginning, chrome, nsys

_FROM_BYTES = {".json.gz": 1 << 20, ".json": 16 << 20, ".sqlite": 4 << 20}
"""By format, the size from which on reading takes twice as long as the cache does; xplanes never do."""

XSPACE = (".xplane.pb", ".xplane.pb.gz")


def is_slow(path: Path) -> bool:
    """Whether reading this file takes clearly longer than getting it from the cache."""
    try:
        size = path.stat().st_size
        format = next((each for each in _FROM_BYTES if path.name.endswith(each)), None)
        if format is None and size >= min(_FROM_BYTES.values()) and not path.name.endswith(XSPACE):
            format = _format(path)
    except OSError:
        return False
    return format is not None and size >= _FROM_BYTES[format]


def _format(path: Path) -> str | None:
    """Which of these formats a file of any other name is, by its bytes. Raises OSError."""
    with path.open("rb") as file:
        raw = file.read(beginning.HEAD_BYTES)
    head = beginning.within(raw)
    if nsys.NsysReader().recognises(head):
        return ".sqlite"
    if chrome.ChromeReader().recognises(head):
        return ".json.gz" if raw.startswith(beginning.GZIP) else ".json"
    return None


@cache
def version() -> str:
    """Changes whenever the code that reads does: what another version read is not to be trusted."""
    import hashlib  # takes as long to import as a small trace to read

    hashed = hashlib.blake2b(__version__.encode(), digest_size=8)
    for folder in (Path(__file__).parent, Path(model.__file__).parent):
        for source in sorted(folder.glob("*.py")):
            hashed.update(source.read_bytes())
    return hashed.hexdigest()
