"""Serving the dashboard on this machine."""

from __future__ import annotations

import logging
import webbrowser
from collections.abc import Callable, Sequence
from functools import partial
from threading import Thread
from typing import Any

import flask
import waitress

from mpprof.errors import UsageError
from mpprof.model.source import RunSource
from mpprof_dashboards import call_bodies
from mpprof_dashboards.app import create_app
from mpprof_dashboards.components.context import listed
from mpprof_dashboards.security import Reach

# A page asks for a dozen files and callbacks at once; waitress' four threads would queue them.
_THREADS = 16
# A browser keeps up to six connections open for minutes: with waitress' hundred, seventeen readers would shut
# out the next. Below the 1,024 files that select() can watch.
_MOST_CONNECTIONS = 600


_ROOM = 8
"""When so small a part of the connections is left, those that waited longest are closed."""


def _connections() -> int:
    """Return how many connections are held open at a time: with half of the files that this process may open,
    or more, none would be left to read runs from."""
    try:
        import resource
    except ImportError:  # Windows, which sets no such limit
        return _MOST_CONNECTIONS
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _MOST_CONNECTIONS if files == resource.RLIM_INFINITY else min(_MOST_CONNECTIONS, files // 2)


def serve(
    source: RunSource,
    host: str = "127.0.0.1",
    port: int = 8050,
    open_browser: bool = False,
    *,
    base_path: str = "/",
    allow_hosts: Sequence[str] = (),
    allow_frames: Sequence[str] = (),
    announce: Callable[[str], None] | None = None,
) -> None:
    """Serve the dashboard over `source` until interrupted; port 0 takes any free one.

    Behind a proxy, `base_path` is the path that it puts before the page's own, and `allow_hosts` are the
    names under which it is asked for; `allow_frames` are origins whose pages may show it in a frame. Raises
    UsageError where the address cannot be bound, or one of these is none. Nothing is loaded from or sent to
    another host."""
    # A page's requests wait their turn for some ms, which is nothing to be warned of.
    logging.getLogger("waitress.queue").setLevel(logging.ERROR)
    reach = Reach(host, base_path, allow_hosts, allow_frames)
    server = _listening(create_app(source, reach, spare=True).server, host, port)
    bound = getattr(server, "effective_port", None) or port
    url = f"http://{_shown(host)}:{bound}{base_path}"
    say = announce or partial(print, flush=True)
    say(f"mpprof serves {source.title} at {url} (Ctrl+C stops it)")
    if open_browser:  # a browser in the terminal returns when it is left, and asks for the page before
        Thread(target=webbrowser.open, args=(url,), name="mpprof browser", daemon=True).start()
    if listed(source) == ((), None):
        say(
            f"No runs yet: {source.title} holds neither records by mpprof nor traces. "
            "Train with MPProfilerCallback(LOGDIR): the page shows runs as they appear."
        )
    try:
        server.run()
    finally:
        server.close()


def _listening(app: flask.Flask, host: str, port: int) -> Any:
    """Return a server of `app` that is bound to the address. Raises UsageError where it cannot be."""
    channels: dict[int, Any] = {}
    try:
        made = waitress.create_server(
            app,
            map=channels,
            host=host,
            port=port,
            threads=_THREADS,
            connection_limit=_connections(),
            # Without it a body of a gigabyte is written to disk first, and refused then.
            max_request_body_size=call_bodies.MOST_BYTES + 1,
            ident=None,
        )
        for one in list(channels.values()):
            if hasattr(one, "active_channels"):
                one.readable = partial(_readable, one, one.readable)
        return made
    except OSError as error:
        for channel in list(channels.values()):  # what waitress had opened before it tried to bind
            channel.close()
        raise UsageError(
            f"cannot listen there ({error.strerror or error})",
            where=f"{host}:{port}",
            next="Choose another port with --port, or --port 0 for any free one.",
        ) from error


def _readable(listening: Any, readable: Callable[[], bool]) -> bool:
    """Return whether a listening socket takes another connection, as waitress says; but where few are left,
    let go of those that waited longest for a request, or for the rest of one. Browsers open others when they
    need them; waitress closes them after two minutes, and would let no other browser in until then."""
    limit = listening.adj.connection_limit
    held = list(listening.active_channels.values())
    waiting = [one for one in held if not (one.requests or one.total_outbufs_len or one.will_close)]
    too_many = len(held) - sum(one.will_close for one in held) - (limit - limit // _ROOM)
    if too_many > 0:
        waiting.sort(key=lambda one: one.last_activity if one.request is None else one.creation_time)
        for one in waiting[:too_many]:
            one.will_close = True
    return readable()


def _shown(host: str) -> str:
    """Return the host as it goes into a URL that this machine's browser can open."""
    if host in ("0.0.0.0", "", "::"):
        return "127.0.0.1"
    return f"[{host}]" if ":" in host else host
