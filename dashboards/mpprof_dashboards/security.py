"""The page is local: which hosts it answers to, and what a browser may load for it."""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from mpprof.errors import UsageError

_PREFIX = re.compile(r"/(?:[A-Za-z0-9._~%+@:-]+/)*")
_ORIGIN = re.compile(r"https?://(?:[a-z0-9.-]+|\[[0-9a-f:]+\])(?::[0-9]{1,5})?")


@dataclass(frozen=True, slots=True)
class Reach:
    """From where a page may be reached, beyond this machine: the address that it is bound to, the path that a
    proxy puts before its own (begins and ends with a slash), further names in the Host header, and the
    origins that may show it in a frame. The defaults are closed. Raises UsageError for anything else."""

    host: str = "127.0.0.1"
    base_path: str = "/"
    allow_hosts: Sequence[str] = ()
    allow_frames: Sequence[str] = ()

    def __post_init__(self) -> None:
        if not _PREFIX.fullmatch(self.base_path):
            what = "is not a path that a page can lie under"
            raise UsageError(
                what, where=self.base_path, next="Give one such as /proxy/8050/, with both slashes."
            )
        for name in self.allow_hosts:
            if not name or re.search(r"[\s/*,@]", name):
                what = "is not the name of a host"
                raise UsageError(what, where=name, next="Give one such as gpu7.lab, or gpu7.lab:8080.")
        for origin in self.allow_frames:
            if not _ORIGIN.fullmatch(origin.lower()):
                what = "is not the origin of a page"
                raise UsageError(what, where=origin, next="Give one such as https://notebooks.lab:8888.")

    @property
    def prefix(self) -> str:
        """What stands before the paths of the page's own links: "" or "/proxy/8050"."""
        return self.base_path[:-1]

    def within(self, path: str) -> str:
        """Return the page's own part of a path; a proxy may have taken the rest away already."""
        return path[len(self.prefix) :] or "/" if f"{path}/".startswith(self.base_path) else path

    def answers(self, header: str) -> bool:
        """Return whether a request with this Host header is meant for this server."""
        named = {name.lower() for name in self.allow_hosts}
        return allows(header, self.host) or header.lower() in named or host_name(header) in named


LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def host_name(header: str) -> str:
    """Return the name in a Host header, without port and brackets: "[::1]:8050" -> "::1"."""
    if header.startswith("[") and "]" in header:
        return header[1:].partition("]")[0].lower()
    return header.partition(":")[0].lower() if header.count(":") == 1 else header.lower()


def _address(name: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(name)
    except ValueError:
        return None


def allows(header: str, bound: str) -> bool:
    """Return whether a request with this Host header is meant for this server.

    Loopback names and the bound host are. Bound to every interface, this machine's own names and plain
    addresses are too: a foreign site that points its name at us (DNS rebinding) always sends its name.
    """
    name = host_name(header)
    if name in LOOPBACK or name == bound.lower():
        return True
    address = _address(bound)
    if address is not None and address.is_unspecified:
        return _address(name) is not None or name in {socket.gethostname().lower(), socket.getfqdn().lower()}
    return False


def content_policy(script_hashes: Iterable[str], frames: Sequence[str] = ()) -> str:
    """Return a Content-Security-Policy: own files and the hashed inline scripts of Dash, nothing from
    elsewhere; only `frames` may show it in a frame.

    Styles must be allowed inline: plotly and Mantine write theirs at run time."""
    shown = " ".join(frames) or "'none'"
    scripts = " ".join(["'self'", *script_hashes])
    return "; ".join(
        (
            "default-src 'none'",
            f"script-src {scripts}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self' data:",
            "connect-src 'self'",
            "worker-src 'self' blob:",
            "base-uri 'none'",
            "form-action 'none'",
            f"frame-ancestors {shown}",
        )
    )
