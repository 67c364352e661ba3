"""Chrome traces (`*.pt.trace.json.gz`, `*.trace.json.gz`): PyTorch's Kineto, and what TensorFlow exported."""

from __future__ import annotations

import re
from pathlib import Path

from mpprof.errors import UnreadableError
from mpprof.model.trace import Trace
from mpprof.traces.common.file_head import Kind, Reader

_WORDS = ((b'"traceEvents"',), (b'"ph"', b'"ts"'), (b'"deviceProperties"',))
"""A file that begins with all of one of these is a Chrome trace: Kineto's may tell of the cards at length
before the first event."""
_CATEGORY = rb'"cat"\s*:|"deviceProperties"'
"""Kineto gives each interval a category, and describes the cards first; TensorFlow does neither."""
_INTERVAL = rb'"ph"\s*:\s*"X"'


class ChromeReader(Reader):
    """Reads `*.trace.json` and `*.trace.json.gz` of PyTorch and TensorFlow."""

    kinds: tuple[Kind, ...] = (
        Kind("kineto", ends=(".pt.trace.json", ".pt.trace.json.gz"), may_end=(".json.gz", "trace.json")),
        Kind("chrome", ends=(".trace.json", ".trace.json.gz")),
    )
    files = (
        "profiles of PyTorch (*.pt.trace.json) and older ones of TensorFlow (*.trace.json), packed with gzip "
        "or not"
    )
    claims = (".json.gz", ".json")

    def recognises(self, head: bytes) -> bool:
        """Return whether the file is JSON in which members of a Chrome trace come first."""
        begins = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1] in (b"{", b"[")
        return begins and any(all(word in head for word in words) for words in _WORDS)

    def kind_of(self, name: str, head: bytes) -> str:
        """Return Kineto where the bytes hold what only Kineto writes, or where the name says so and nothing
        shows TensorFlow's format; else Chrome."""
        kineto, chrome = (kind.name for kind in self.kinds)
        named = name.endswith(self.kinds[0].ends) and not re.search(_INTERVAL, head)
        return kineto if named or re.search(_CATEGORY, head) else chrome

    def slow_from_bytes(self, *, packed: bool) -> int | None:
        """Return the size from which on reading is slow: about 50 MB of text are parsed a second."""
        return 1 << 20 if packed else 16 << 20

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Read a trace. Raises UnreadableError where nothing usable is left, and with `strict` for any
        damage."""
        if path.stat().st_size == 0:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again")
        from mpprof.traces.chrome import dialects  # what another format does not need is not imported for it

        return dialects.read(path, strict=strict)
