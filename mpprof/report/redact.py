"""Taking names of hosts, users and paths, and keys to services, out of records and traces.

Records are text: a name becomes `<host>`, an absolute path `<path>`, a key `<secret>`. Traces are binary
formats whose strings carry their length, so there every name is overwritten by as many `x`: the file stays
valid without being parsed, whatever its format.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import socket
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

from mpprof.folders import INSTALLED
from mpprof.model.frozen import mapped
from mpprof.model.run import Run

TRACE_SUFFIXES = (".xplane.pb", ".pt.trace.json.gz", ".trace.json.gz", ".json.gz", ".pt.trace.json", ".json")
"""Of traces: what stands before one in a file's name is the name of a host."""
_OF_PROCESS = re.compile(r"_\d+(?:\.\d+)*\Z")
"""Which process of the host and when, as PyTorch names a trace."""
SHORTEST_HOST = 4
"""Shorter host names are left in traces: three letters match too much that is no host name."""

LONGEST_BEFORE = 512
"""Bytes of a string before a name in it, among which the string's length is looked for."""
MOST_OF_TAG = 3
"""Bytes of the next field, its tag and its length, that look like a part of a path."""
SHORTEST_USER = 4
"""Shorter user names are taken out as a part of paths only."""
_NO_USERS = {
    "root",
    "user",
    "users",
    "admin",
    "ubuntu",
    "runner",
    "nobody",
    "test",
    "model",
    "keras",
    "python",
}
"""Names of users that say nothing of a person, or that other things have, too."""

# In a text a component of a path ends at a blank, unless a separator follows within a few words more.
_WORD = r"(?:[^\s/\\\"'<>|:;,]|[:;,](?=[^\s/\\\"'<>|:;,])|\\ (?=\S)|(?<=\w)'(?=\w))+"
_NO_FILE = r"(?<!\.\w\w )(?<!\.\w\w\w )(?<!\.\w\w\w\w )"
_CAPITAL = r"(?=[A-Z\u0080-\uffff])"
_BLANKS = rf"(?:(?: |, {_CAPITAL}){_NO_FILE}{_WORD}){{0,4}}"
_LAST = rf"{_WORD}(?: {_NO_FILE}{_CAPITAL}{_WORD})*"
_NO_DEVICE = r"(?!(?:job|device|host|replica|task):)"
_URL = re.compile(rf"\b[a-zA-Z][\w+.-]{{0,30}}://(?:(?:{_WORD}{_BLANKS})?/)*[^\s\"',;]*")
_ROOT = r"(?:<(?:cwd|logdir|path)>|(?<![\w/\\])(?:~|\$HOME|\$\{HOME\}|%USERPROFILE%))"
"""What stands for a directory, also as the recorder writes it: names follow it."""
_QUOTED_TEXT = re.compile(
    rf"(?<!\w)(?P<quote>[\"'])(?:{_ROOT}[/\\]|(?:\.\.?|…)?/{_NO_DEVICE}(?:(?!(?P=quote))[^\n/])+/"
    r"|[A-Za-z]:[\\/]|\\\\)(?:(?!(?P=quote))[^\n])*(?P=quote)"
)
_BELOW = re.compile(rf"{_ROOT}[=/\\]+(?:{_WORD}{_BLANKS}[/\\]+)*(?:{_LAST})?")
_WINDOWS = re.compile(
    rf"(?:(?:\\{{2,8}}[?.]\\{{1,4}}|(?<!\w))[A-Za-z]:(?:[\\/]+|(?=[\w.-]+\\))|(?<![\\\w])\\{{2,4}}(?={_WORD}\\))(?:{_WORD}{_BLANKS}[\\/]+)*(?:{_LAST})?"
)
_ESCAPED_SLASH, _ESCAPED_WORD = r"(?:%2F|\\/|\\u002f)", r"[\w.~%+-]+"
_ESCAPED_PATH = re.compile(
    rf"(?:{_ESCAPED_SLASH}{_ESCAPED_WORD}(?:(?: {_ESCAPED_WORD}){{0,4}}(?={_ESCAPED_SLASH}))?){{2,}}",
    re.IGNORECASE,
)
_PARTITION = re.compile(
    rf"(?<![\w./-])(?:[\w.-]+/)*[A-Za-z_]\w*=[\w.%-]+/(?=\S*[A-Za-z_])(?:{_WORD}{_BLANKS}/+)*{_WORD}"
)
_COPIED = re.compile(r"(?<![\w.+-])[\w.+-]+@[\w.-]+:[\w.~-]*/[\w./~-]+")
_EMAIL = re.compile(
    r"(?<![\w.+-])[\w.+-]+@(?:[\w-]+(?:\.[\w-]+)+|[A-Za-z]\w*-[\w-]+|[A-Za-z]{3}[A-Za-z_]*\d[\w-]*)"
)
_NO_SOURCE = r"(?<!\.py)(?<!\.cc)(?<!\.cpp)(?<!\.cu)(?<!\.h)"
_LOCAL = r"\.(?:local|localdomain|internal|intranet|lan|corp|home)"
_PORT = re.compile(
    rf"(?<![\w./-])[A-Za-z][\w-]*(?:(?:\.[\w-]+){{2,}}{_NO_SOURCE}|{_LOCAL}):\d{{2,5}}(?![\w.:])"
)
_EXPORT = re.compile(rf"(?<![\w./-])[A-Za-z][\w-]*(?:\d|\.\w)[\w.-]*{_NO_SOURCE}(?=:<path>)")
_PRIVATE_IP = r"(?:10|127|169\.254|172\.(?:1[6-9]|2\d|3[01])|192\.168)(?:\.\d{1,3}){2,3}"
_IP = re.compile(
    rf"(?<![\w.])(?:\d{{1,3}}(?:\.\d{{1,3}}){{3}}:\d{{1,5}}|{_PRIVATE_IP})(?![\w.]*\d)"
    r"|\[[0-9a-fA-F]*:[0-9a-fA-F:.]+\](?::\d{1,5})?|(?<![\w:])(?:fe80|f[cd]\w\w|2\w{3}):[0-9a-fA-F:]*:[0-9a-fA-F:]+"
)
# Two components at least: "/device:GPU:0" is no path. Below a home or a mount one that ends in further names.
_OPTION = r"(?<=[\s=]-[A-Za-z])"
_HOME_TEXT = re.compile(
    rf"(?:(?<![\w/.\\])|{_OPTION}|^)(?:~|…)?/{{1,2}}(?:home|Users|mnt|media|Volumes)/+"
    rf"(?:\w+ \w+$|(?:{_WORD}{_BLANKS}/+)*(?:{_LAST})?)"
)
_PATH = re.compile(
    rf"(?:(?<![\w>)/.\\])|{_OPTION})(?:~|…)?/{{1,2}}"
    rf"{_NO_DEVICE}{_WORD}{_BLANKS}/+(?:{_WORD}{_BLANKS}/+)*(?:{_WORD})?"
)
_RELATIVE = re.compile(rf"(?<![\w~./\\])(?:\.\.?|~[A-Za-z_][\w.-]*)/+(?:{_WORD}{_BLANKS}/+)*{_WORD}")
_TEXTS = (
    (_URL, "url"), (_QUOTED_TEXT, "path"), (_BELOW, "path"), (_COPIED, "path"), (_WINDOWS, "path"),
    (_HOME_TEXT, "path"), (_PATH, "path"), (_RELATIVE, "path"), (_ESCAPED_PATH, "path"), (_PARTITION, "path"),
    (_EMAIL, "email"), (_IP, "ip"), (_PORT, "host"), (_EXPORT, "host"),
)  # fmt: skip

# Keys to services: by their form, or by the name of the variable or field that they stand in. A trace may
# hold the whole environment of the process beside its events.
_TOKENS = (
    r"\b(?:hf_[A-Za-z0-9]{20,}|gh[opsur]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}|sk-[\w-]{20,}"
    r"|xox[abprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]+)"
)
_SECRET_NAME = (
    r"(?i:(?:token|secret|passw(?:or)?d|passphrase|api_?key|access_?key|private_?key|credentials?))"
)
_SECRET = re.compile(_TOKENS)
_OF_SECRET = re.compile(rf"\w*{_SECRET_NAME}")
_TOKEN_BYTES = re.compile(_TOKENS.encode())
_VALUES_BYTES = (
    re.compile(_SECRET_NAME.encode() + rb"([\"'])\s*:\s*\1((?:\\.|(?!\1)[^\\\n])+)\1"),
    re.compile(_SECRET_NAME.encode() + rb"(\\[\"'])\s*:\s*\1((?:\\{2,}.|(?!\1)[^\n])+)\1"),
)
"""In JSON, and in JSON that is a string of another."""

# The same in the bytes of a trace: UTF-8, or as JSON and addresses escape it.
_UTF8 = rb"[\xc2-\xdf][\x80-\xbf]|[\xe0-\xef][\x80-\xbf]{2}|[\xf0-\xf4][\x80-\xbf]{3}"
_WORD_BYTES = (
    rb"(?:[A-Za-z0-9._@+=~#$&!(){}\[\]-]|" + _UTF8 + rb"|\\{1,4}u[0-9a-fA-F]{4}|%(?!2[Ff])[0-9a-fA-F]{2})+"
)
_BLANKS_BYTES = _WORD_BYTES + rb"(?:(?: |%20|,|'|\\\\?')+" + _WORD_BYTES + rb"){0,4}"
_SLASHES = rb"(?:\\?/|%2[Ff])+"
_BACK = rb"\\{1,8}"
_REST = rb"(?:" + _SLASHES + _BLANKS_BYTES + rb"(?=\\?/|%2[Ff]))*(?:" + _SLASHES + _WORD_BYTES + rb")?"
_BACK_REST = rb"(?:" + _BACK + _BLANKS_BYTES + rb"(?=\\))*"
_HOME = re.compile(
    _SLASHES + rb"(?:home|Users|mnt|media|Volumes)(?=\\?/|%2[Ff])" + _REST
    + rb"|" + _BACK + rb"Users" + _BACK_REST + rb"(?:" + _BACK + _WORD_BYTES + rb")?"
    + rb"|(?<!\\)\\{2,8}[A-Za-z0-9.-]{2,}" + _BACK_REST + _BACK + _WORD_BYTES
)  # fmt: skip
"""Below a home, a mount, or on another machine."""
_ADDRESS = re.compile(
    rb"(?<![\d.])\d{1,3}(?:\.\d{1,3}){3}:\d{1,5}|(?<![\w.])" + _PRIVATE_IP.encode() + rb"(?![\w.])"
    rb"|\[[0-9a-fA-F]{0,4}:[0-9a-fA-F:.]+\]:\d{1,5}"
)
_LINK = re.compile(rb"(?<=file:)" + _REST + rb"|(?:%2F[\w.~%+-]+){2,}", re.IGNORECASE)
_DOMAIN = re.compile(rb"@[A-Za-z0-9-]+(?:\.[A-Za-z0-9-]+)+")
_MAILBOX = re.compile(rb"[A-Za-z0-9._+-]+\Z")
_SOURCE = re.compile(rb"/((?:[A-Za-z0-9._@+-]+/)+)([A-Za-z0-9._@+-]+\.py)\b")
_PART = rb"[^\x00-\x1f\x7f\"\\:<>|/]"
_PATH_BYTES = rb"/(?:" + _PART + rb"+/)+" + _PART + rb"*"
_ESCAPED = re.compile(rb"\\{1,4}u[0-9a-fA-F]{4}")
_PART_JSON = rb"(?:" + _PART + rb"|\\{1,4}u[0-9a-fA-F]{4}|\\\\|\\\")"
_QUOTED = re.compile(rb'(?<=")\\?/(?:' + _PART_JSON + rb"+\\?/)+" + _PART_JSON + rb'*(?=")')
_WHOLE = re.compile(_PATH_BYTES)
_SLASH = re.compile(rb"/(?=" + _PART + rb")")


class Redactor:
    """Knows the names to take out, and counts what it took."""

    def __init__(self, hosts: Iterable[str], paths: Iterable[str] = (), users: Iterable[str] = ()) -> None:
        """Take out `paths`, which are directories, wherever they stand, and `users` by name."""
        labels = {name for host in hosts for name in (host, host.partition(".")[0]) if name}
        self.hosts = sorted(labels - {"localhost", "host"}, key=len, reverse=True)
        self.counts: Counter[str] = Counter()
        self._host_text = [re.compile(rf"(?<!\w){re.escape(host)}(?!\w)", re.I) for host in self.hosts]
        known = sorted({path.rstrip("/\\") for path in paths}, key=len, reverse=True)
        known = [path for path in known if sum(path.count(mark) for mark in "/\\") > 1]
        self._path_text = [
            re.compile(rf"{re.escape(written)}(?![\w-])") for path in known for written in _written(path)
        ]
        self._path_bytes = [
            re.compile(re.escape(written.encode("utf-8", "surrogateescape")) + rb"(?![A-Za-z0-9_-])" + _REST)
            for path in known
            for written in _written(path)
        ]
        names = sorted(set(users) - _NO_USERS, key=len, reverse=True)
        names = [name for name in names if len(name) >= SHORTEST_USER]
        self._user_text = [re.compile(rf"(?<!\w){re.escape(name)}(?!\w)") for name in names]
        self._user_bytes = [
            re.compile(rb"(?<![A-Za-z0-9_])" + re.escape(written.encode()) + rb"(?![A-Za-z0-9_])")
            for name in names
            for written in _written(name)
        ]
        self._host_bytes = [_in_trace(h) for h in self.hosts if len(h) >= SHORTEST_HOST and h.isascii()]

    @property
    def unsafe_hosts(self) -> list[str]:
        """Host names that `trace` leaves as they are."""
        return [host for host in self.hosts if len(host) < SHORTEST_HOST or not host.isascii()]

    def record(self, value: Any) -> Any:
        """Return a JSON value, or a type of the model, with every string redacted, including keys (layers and
        hosts may be keys)."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(str(key)): self._item(str(key), item) for key, item in value.items()}
        return mapped(value, lambda _, each: self.record(each))

    def _item(self, key: str, value: Any) -> Any:
        if isinstance(value, str) and value and _OF_SECRET.fullmatch(key):
            self.counts["secret in records"] += 1
            return "<secret>"
        return self.record(value)

    def text(self, text: str) -> str:
        text = self._replaced(_SECRET, text, "secret")
        if text.isidentifier():  # as most are: nothing but a name could stand in it
            return self._named(text)
        for pattern in self._path_text:
            text = pattern.sub("/known/known", text)  # which is a path, and with it goes what follows
        for pattern, kind in _TEXTS:
            text = self._replaced(pattern, text, kind)
        return self._named(text)

    def _named(self, text: str) -> str:
        for pattern in self._host_text:
            text = self._replaced(pattern, text, "host")
        for pattern in self._user_text:
            text = self._replaced(pattern, text, "user")
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
        content, whole = _without_whole_paths(content)
        content, sources = _SOURCE.subn(lambda found: _masked(b"/" + found[1]) + found[2], content)
        binary = content[:1] not in (b"{", b"[")
        spans: list[tuple[int, int]] = []
        secrets = {each.span() for each in _TOKEN_BYTES.finditer(content)}
        if not binary:
            secrets |= {each.span(2) for every in _VALUES_BYTES for each in every.finditer(content)}
        self.counts["secret in traces"] += len(secrets)
        for pattern in (_HOME, _LINK, *self._path_bytes, _ADDRESS, *self._user_bytes):
            spans += [each.span() for each in pattern.finditer(content)]
        spans += _mail_addresses(content)
        redacted = bytearray(content)
        for start, end in secrets:
            redacted[start:end] = b"x" * (end - start)
        for start, end in spans:
            end = _end_of_string(content, start, end) if binary else end
            redacted[start:end] = _overwritten(content[start:end], rb"/\\")
        self.counts["path in traces"] += len(spans) + sources + whole
        return bytes(redacted)


def _written(text: str) -> set[str]:
    """Return the ways in which a name may stand in a text: as it is, and escaped for JSON and addresses."""
    ways = {
        text,
        quote(text),
        quote(text, safe=""),
        json.dumps(text)[1:-1],
        json.dumps(text, ensure_ascii=False)[1:-1],
    }
    return ways | {way.replace("/", "\\/") for way in ways}


def _mail_addresses(content: bytes) -> Iterator[tuple[int, int]]:
    for domain in _DOMAIN.finditer(content):
        before = content[max(0, domain.start() - 64) : domain.start()]
        if box := _MAILBOX.search(before):
            yield domain.start() - len(box[0]), domain.end()


def _end_of_string(content: bytes, start: int, end: int) -> int:
    """Return where the string ends that holds these bytes of a protobuf, by the length before it: the tag of
    the next field may look like a letter or two of a path. `end` where no length says so."""
    for first in range(start, max(0, start - LONGEST_BEFORE), -1):
        for length in _lengths_before(content, first):
            if 0 <= end - first - length <= MOST_OF_TAG and _may_be_tag(content, first + length):
                return first + length
    return end


def _in_trace(host: str) -> re.Pattern[bytes]:
    """Return a pattern for the host name as a whole word, or as a string of its own, which follows its length
    and precedes any next tag."""
    name = rb"(?i:" + re.escape(host.encode()) + rb")"
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


def _overwritten(path: bytes, kept: bytes = b"/") -> bytes:
    """Return the path with only its slashes and the name of a Python file kept: that name says which code an
    op is from."""
    path = _ESCAPED.sub(lambda found: b"x" * len(found[0]), path)
    folder, slash, name = path.rpartition(b"/")
    if not (slash and name.endswith(b".py")):
        folder, slash, name = path, b"", b""
    return _masked(folder, kept) + slash + name


_INSTALLED = rb"(?<=/)(" + INSTALLED.encode() + rb")(?=/|\Z)"


def _masked(folder: bytes, kept: bytes = b"/") -> bytes:
    """Return the folder overwritten but for its slashes and what says that a package was installed there:
    else its files would pass for the user's own code."""
    return re.sub(_INSTALLED + rb"|[^" + kept + rb"]", lambda found: found[0] if found[1] else b"x", folder)


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


def redactor_of(run: Run) -> Redactor:
    """Return a redactor that knows the run's hosts, where the run lies, and whose account this is."""
    places = [run.path, run.path.absolute(), Path.cwd(), Path.home()]
    users = {Path.home().name}
    for known in ("LOGNAME", "USER", "USERNAME"):
        users.add(os.environ.get(known, ""))
    with contextlib.suppress(OSError, KeyError, ImportError):  # a process whose user has no name
        users.add(getpass.getuser())
    paths = {str(path) for path in places} | {os.path.realpath(path) for path in places}
    return Redactor(hosts_of(run), paths, users)


def hosts_of(run: Run) -> set[str]:
    """Return the host names that the run states, those in its traces' file names, and this machine's own."""
    hosts = {socket.gethostname()}
    if run.facts:
        hosts |= {run.facts.host or ""} | {window.host or "" for window in run.facts.profile_windows}
    hosts |= {each.host.partition(" ")[0] for each in run.hosts}
    for path in run.traces:
        suffix = next((suffix for suffix in TRACE_SUFFIXES if path.name.endswith(suffix)), "")
        stem = path.name.removesuffix(suffix) if suffix else ""
        hosts |= {stem, _OF_PROCESS.sub("", stem)}
    return {host for host in hosts if host}
