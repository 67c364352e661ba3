"""Taking names of hosts, users and paths out of records and traces.

Records are text: a name becomes `<host>`, an absolute path `<path>`. Traces are binary formats whose
strings carry their length, so there every name is overwritten by as many `x`: the file stays valid without
being parsed, whatever its format.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Any

SHORTEST_HOST = 4
"""Shorter host names are left in traces: three letters match too much that is no host name."""

_URL = re.compile(r"\b[a-zA-Z][\w+.-]*://[^\s\"',;]+")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\[^\s\"',;]+")
# Two components at least: "/device:GPU:0" is no path.
_PATH = re.compile(r"(?<![\w<>)/.])~?/(?:[^\s/\"',;:=<>]+/)+[^\s/\"',;:=<>]*")
_HOME = re.compile(rb"(/home/|/Users/|\\Users\\)([A-Za-z0-9._@+-]+)")
_SOURCE = re.compile(rb"/((?:[A-Za-z0-9._@+-]+/)+)([A-Za-z0-9._@+-]+\.py)\b")


class Redactor:
    """Knows the names to take out, and counts what it took."""

    def __init__(self, hosts: Iterable[str]) -> None:
        labels = {name for host in hosts for name in (host, host.partition(".")[0]) if name}
        self.hosts = sorted(labels - {"localhost", "host"}, key=len, reverse=True)
        self.counts: Counter[str] = Counter()
        self._host_text = [re.compile(rf"(?<!\w){re.escape(host)}(?!\w)") for host in self.hosts]
        self._host_bytes = [_in_trace(h) for h in self.hosts if len(h) >= SHORTEST_HOST and h.isascii()]

    @property
    def unsafe_hosts(self) -> list[str]:
        """Host names that `trace` leaves as they are."""
        return [host for host in self.hosts if len(host) < SHORTEST_HOST or not host.isascii()]

    def record(self, value: Any) -> Any:
        """A JSON value with every string redacted, keys included (layers and hosts may be keys)."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.record(item) for item in value]
        if isinstance(value, dict):
            return {self.text(str(key)): self.record(item) for key, item in value.items()}
        return value

    def text(self, text: str) -> str:
        for pattern, kind in ((_URL, "url"), (_WINDOWS, "path"), (_PATH, "path")):
            text = self._replaced(pattern, text, kind)
        for pattern in self._host_text:
            text = self._replaced(pattern, text, "host")
        return text

    def _replaced(self, pattern: re.Pattern[str], text: str, kind: str) -> str:
        text, count = pattern.subn(f"<{kind}>", text)
        self.counts[f"{kind} in records"] += count
        return text

    def trace(self, content: bytes) -> bytes:
        """The same number of bytes, with host names, home directories and source folders overwritten."""
        for pattern in self._host_bytes:
            content, count = pattern.subn(lambda found: b"x" * len(found[0]), content)
            self.counts["host in traces"] += count
        content, homes = _HOME.subn(lambda found: found[1] + b"x" * len(found[2]), content)
        content, sources = _SOURCE.subn(
            lambda found: b"/" + re.sub(rb"[^/]", b"x", found[1]) + found[2], content
        )
        self.counts["path in traces"] += homes + sources
        return content


def _in_trace(host: str) -> re.Pattern[bytes]:
    """A whole word; or a string of its own, which stands behind its length and before any next tag."""
    name = re.escape(host.encode())
    word = rb"(?<![A-Za-z0-9_])" + name + rb"(?![a-z0-9_])"
    if len(host) > 127:
        return re.compile(word)
    return re.compile(rb"(?<=" + re.escape(bytes([len(host)])) + rb")" + name + rb"|" + word)
