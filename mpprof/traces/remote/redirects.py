"""Where a server of the public network may send a client on to: not into the network that the client is in.

What lies at an address of its own network (127.0.0.1, 10.0.0.1, 169.254.169.254) a machine may read that the
server could not: with a redirect the server would have it read. What is looked up is what is connected to.
"""

from __future__ import annotations

from contextvars import ContextVar
from ipaddress import ip_address
from typing import Any

from mpprof.errors import UnreadableError

_via_public: ContextVar[list[bool]] = ContextVar("_via_public")
"""Of the request that is made: whether it was at a public address; a list, since tasks copy the variable."""


_LONGEST_PAGE = 32 << 20
"""Bytes of an answer that is read as a whole, as a listing is; files are read part by part."""


class IntoOwnNetworkError(OSError):
    """A public address led to one of the own network."""


async def client(**options: Any) -> Any:
    """Return an aiohttp session in which no request that was at a public address follows a redirect to one
    that is not, and no answer that is read as a whole is longer than a listing is."""
    import aiohttp
    from aiohttp.resolver import DefaultResolver
    from yarl import URL

    is_public: dict[str, bool] = {}  # by host; a connection that is used again looks up nothing

    def note(host: str) -> None:
        via = _via_public.get()
        if is_public[host]:
            via[0] = True
        elif via[0]:
            raise IntoOwnNetworkError(f"a redirect leads from a public address to {host}, in the own network")

    class Resolver(DefaultResolver):  # type: ignore[misc, valid-type]
        async def resolve(self, host: str, *more: Any, **other: Any) -> Any:
            found = await super().resolve(host, *more, **other)
            is_public[host] = all(_is_global(one["host"]) for one in found)
            note(host)
            return found

    def at(url: URL) -> None:
        host = url.host or ""
        if (literal := _is_global(host)) is not None:  # an address itself, which nothing looks up
            is_public[host] = literal
        if host in is_public:
            note(host)

    async def started(session: Any, context: Any, given: Any) -> None:
        _via_public.set([False])
        at(given.url)

    async def redirected(session: Any, context: Any, given: Any) -> None:
        at(given.url.join(URL(given.response.headers.get("Location") or "")))

    class Bounded(aiohttp.ClientResponse):
        async def read(self) -> bytes:
            if self._body is None:
                found = bytearray()
                async for part in self.content.iter_any():
                    found += part
                    if len(found) > _LONGEST_PAGE:
                        self.close()
                        raise UnreadableError(
                            f"its listing has more than {_LONGEST_PAGE:,} bytes",
                            next="Give the address of one run",
                        )
                self._body = bytes(found)
                await self._wait_released()
            return self._body

    traced = aiohttp.TraceConfig()
    traced.on_request_start.append(started)
    traced.on_request_redirect.append(redirected)
    connector = aiohttp.TCPConnector(resolver=Resolver(), use_dns_cache=False)
    return aiohttp.ClientSession(
        connector=connector, trace_configs=[traced], response_class=Bounded, **options
    )


def _is_global(address: str) -> bool | None:
    """Return whether an address is of the public network; None for what is no address."""
    try:
        return ip_address(address.partition("%")[0]).is_global
    except ValueError:
        return None
