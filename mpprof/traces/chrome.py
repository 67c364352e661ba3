"""Chrome traces (`*.pt.trace.json.gz`, `*.trace.json.gz`): PyTorch's Kineto, and what TensorFlow exported."""

from __future__ import annotations

from pathlib import Path

from mpprof.errors import UnreadableError
from mpprof.model.trace import Trace


class ChromeReader:
    """Reads `*.trace.json` and `*.trace.json.gz` of PyTorch and TensorFlow."""

    format = "chrome"
    suffixes: tuple[str, ...] = (".trace.json.gz", ".trace.json")

    def recognises(self, path: Path, head: bytes) -> bool:
        """By name; other `.json` by their first character, other `.json.gz` as they are."""
        if path.name.endswith(self.suffixes):
            return True
        if path.name.endswith((".json.gz", ".json")):
            return head[:2] == b"\x1f\x8b" or head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"[")
        return False

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Raises UnreadableError where nothing usable is left, and with `strict` for any damage."""
        if path.stat().st_size == 0:
            raise UnreadableError("the file is empty", where=str(path), next="Record the trace again")
        from mpprof.traces import chrome_read  # what another format does not need is not imported for it

        return chrome_read.read(path, strict=strict)


def looks_like_trace(path: Path) -> bool:
    """Whether a `.json.gz` of any name begins like a Chrome trace. Raises OSError."""
    from mpprof.traces import chrome_json

    text = chrome_json.peek(path)
    return '"traceEvents"' in text or ('"ph"' in text and '"ts"' in text) or '"deviceProperties"' in text
