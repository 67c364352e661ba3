"""Taking names of hosts, users and paths out of records and traces.

Records are text: a name becomes `<host>`, an absolute path `<path>`. Traces are binary formats whose
strings carry their length, so there every name is overwritten by as many `x`: the file stays valid without
being parsed, whatever its format.
"""

from __future__ import annotations

import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mpprof.model.run import Run

TRACE_SUFFIXES = (".xplane.pb", ".pt.trace.json.gz", ".trace.json.gz", ".json.gz", ".pt.trace.json", ".json")
"""Of traces: what stands before one in a file's name is the name of a host."""
SHORTEST_HOST = 4
"""Shorter host names are left in traces: three letters match too much that is no host name."""

_URL = re.compile(r"\b[a-zA-Z][\w+.-]*://[^\s\"',;]+")
_WINDOWS = re.compile(r"\b[A-Za-z]:\\[^\s\"',;]+")
# Two components at least: "/device:GPU:0" is no path.
_PATH = re.compile(r"(?<![\w<>)/.])~?/(?:[^\s/\"',;:=<>]+/)+[^\s/\"',;:=<>]*")
_HOME = re.compile(rb"(/home/|/Users/|\\Users\\)([A-Za-z0-9._@+-]+)")
_SOURCE = re.compile(rb"/((?:[A-Za-z0-9._@+-]+/)+)([A-Za-z0-9._@+-]+\.py)\b")
_PART = rb"[^\x00-\x1f\x7f\"'\\,;:=<>()|/]"
_PATH_BYTES = rb"/(?:" + _PART + rb"+/)+" + _PART + rb"*"
_QUOTED = re.compile(rb'(?<=")' + _PATH_BYTES + rb'(?=")')
_WHOLE = re.compile(_PATH_BYTES)
_SLASH = re.compile(rb"/(?=" + _PART + rb")")


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
        """Return a JSON value with every string redacted, including keys (layers and hosts may be keys)."""
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
        """Return the same number of bytes, with host names, home directories, source folders and whole paths
        overwritten."""
        for pattern in self._host_bytes:
            content, count = pattern.subn(lambda found: b"x" * len(found[0]), content)
            self.counts["host in traces"] += count
        content, homes = _HOME.subn(lambda found: found[1] + b"x" * len(found[2]), content)
        content, sources = _SOURCE.subn(
            lambda found: b"/" + re.sub(rb"[^/]", b"x", found[1]) + found[2], content
        )
        content, whole = _without_whole_paths(content)
        self.counts["path in traces"] += homes + sources + whole
        return content


def _in_trace(host: str) -> re.Pattern[bytes]:
    """Return a pattern for the host name as a whole word, or as a string of its own, which follows its length
    and precedes any next tag."""
    name = re.escape(host.encode())
    word = rb"(?<![A-Za-z0-9_])" + name + rb"(?![a-z0-9_])"
    if len(host) > 127:
        return re.compile(word)
    return re.compile(rb"(?<=" + re.escape(bytes([len(host)])) + rb")" + name + rb"|" + word)


def _without_whole_paths(content: bytes) -> tuple[bytes, int]:
    """Overwrite every string that is an absolute path and nothing else, and return the content with the
    number of such strings.

    JSON puts a quote on both sides of it. A protobuf field has a tag and the string's length before it, and
    without that length the first letters of a path cannot be told from the bytes around it.
    """
    content, quoted = _QUOTED.subn(lambda found: _overwritten(found[0]), content)
    redacted = bytearray(content)
    fields = 0
    for slash in _SLASH.finditer(content):
        start = slash.start()
        for length in _lengths_before(content, start):
            end = start + length
            if _WHOLE.fullmatch(content, start, end) and _may_be_tag(content, end):
                redacted[start:end] = _overwritten(content[start:end])
                fields += 1
                break
    return bytes(redacted), quoted + fields


def _overwritten(path: bytes) -> bytes:
    """Return the path with only its slashes and the name of a Python file kept: that name says which code an
    op is from."""
    folder, _, name = path.rpartition(b"/")
    kept = name if name.endswith(b".py") else b"x" * len(name)
    return re.sub(rb"[^/]", b"x", folder) + b"/" + kept


def _lengths_before(content: bytes, start: int) -> Iterator[int]:
    """Yield the lengths that one or two bytes before `start` state, where the tag of a string stands before
    them."""
    if start and content[start - 1] < 0x80 and _is_tag(content, start - 2):
        yield content[start - 1]
    if start >= 2 and content[start - 2] >= 0x80 > content[start - 1] and _is_tag(content, start - 3):
        yield content[start - 2] & 0x7F | content[start - 1] << 7


def _is_tag(content: bytes, at: int) -> bool:
    """Return whether the tag of a string is here. A letter may look like a tag, but it stands among
    letters."""
    return at >= 0 and content[at] & 7 == 2 and not (at and 0x20 <= content[at - 1] < 0x7F)


def _may_be_tag(content: bytes, at: int) -> bool:
    """Return whether a field could begin here: a longer name, of which a part looks like a path, continues
    here instead."""
    return at == len(content) or (at < len(content) and content[at] & 7 in (0, 1, 2, 5))


def hosts_of(run: Run) -> set[str]:
    """Return the host names that the run states, those in its traces' file names, and this machine's own."""
    hosts = {socket.gethostname()}
    if run.facts:
        hosts |= {run.facts.host or ""} | {window.host or "" for window in run.facts.profile_windows}
    hosts |= {each.host.partition(" ")[0] for each in run.hosts}
    for path in run.traces:
        suffix = next((suffix for suffix in TRACE_SUFFIXES if path.name.endswith(suffix)), "")
        hosts.add(path.name.removesuffix(suffix) if suffix else "")
    return {host for host in hosts if host}
