"""The page is local: which hosts it answers to, and what a browser may load for it."""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

LOOPBACK = frozenset(("localhost", "127.0.0.1", "::1"))


def host_name(header: str) -> str:
    """Return the name in a Host header, without port and brackets: "[::1]:8050" -> "::1"."""
    if header.startswith("["):
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


def content_policy(script_hashes: Iterable[str]) -> str:
    """Return a Content-Security-Policy: own files and the hashed inline scripts of Dash, nothing from
    elsewhere.

    Styles must be allowed inline: plotly and Mantine write theirs at run time."""
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
            "frame-ancestors 'none'",
        )
    )
