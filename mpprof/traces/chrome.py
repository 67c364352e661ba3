"""Chrome traces (`*.pt.trace.json.gz`, `*.trace.json.gz`): PyTorch's Kineto, and what TensorFlow exported."""

from __future__ import annotations

from pathlib import Path

from mpprof.errors import UnreadableError
from mpprof.model.trace import Trace
from mpprof.traces import beginning

_WORDS = ((b'"traceEvents"',), (b'"ph"', b'"ts"'), (b'"deviceProperties"',))
"""A file that begins with all of one of these is a Chrome trace: Kineto's may tell of the cards at length
before the first event."""


class ChromeReader:
    """Reads `*.trace.json` and `*.trace.json.gz` of PyTorch and TensorFlow."""

    format = "chrome"
    suffixes: tuple[str, ...] = (".trace.json.gz", ".trace.json")

    def recognises(self, head: bytes) -> bool:
        """JSON in which members of a Chrome trace come first."""
        begins = head.removeprefix(b"\xef\xbb\xbf").lstrip(b" \t\r\n")[:1] in (b"{", b"[")
        return begins and any(all(word in head for word in words) for words in _WORDS)

    def claims(self, name: str) -> bool:
        return name.endswith((".json.gz", ".json"))

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Raises UnreadableError where nothing usable is left, and with `strict` for any damage."""
        if path.stat().st_size == 0:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again")
        from mpprof.traces import chrome_read  # what another format does not need is not imported for it

        return chrome_read.read(path, strict=strict)


def looks_like_trace(path: Path) -> bool:
    """Whether a file of any name begins like a Chrome trace. Raises OSError."""
    return ChromeReader().recognises(beginning.of(path))
