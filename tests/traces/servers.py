"""Servers on this machine that the remote tests read from; each keeps what it was asked and what it sent.

`Web` is plain HTTP over a folder, with the faults that servers and networks have. `S3` is moto, which answers
as Amazon's S3 does. `Gcs` answers the four requests of Google's JSON API that reading needs, as its reference
describes them (https://cloud.google.com/storage/docs/json_api/v1/objects): it is ours, so it proves that
gcsfs is used rightly, not that Google's service behaves so.
"""

from __future__ import annotations

import base64
import hashlib
import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass(frozen=True)
class Request:
    """One request as the server saw it, and how many bytes of content it sent."""

    method: str
    path: str  # with its query
    range: str | None
    status: int
    sent: int


@dataclass
class Faults:
    """What goes wrong; the tests set it."""

    ranges: bool = True  # False: the server sends the whole file, whatever was asked
    head: bool = True
    validators: bool = True
    status: dict[str, int] = field(default_factory=dict)  # by the end of the path
    redirect: dict[str, str] = field(default_factory=dict)
    packed: tuple[str, ...] = ()  # endings that are said to be packed on the way
    stalls: int = 0  # of so many of the next answers with content only the beginning comes, and no end
    cut: list[int] = field(default_factory=list)  # of the next answers with content, so many bytes come
    after: Callable[[], None] | None = None  # called before content is sent that is settled already


class _Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Nothing: a client that does not trust a certificate hangs up."""


class _Server:
    """A handler's server on a free port, in a thread of its own."""

    def __init__(self, handler: type[BaseHTTPRequestHandler], certificate: Path | None = None) -> None:
        self.requests: list[Request] = []
        self.closing = threading.Event()
        self.server = _Quiet(("127.0.0.1", 0), handler)
        self.server.daemon_threads = True
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.server.socket = context.wrap_socket(self.server.socket, server_side=True)
        self.url = f"http{'s' if certificate else ''}://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    def close(self) -> None:
        self.closing.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def content(self, suffix: str) -> list[Request]:
        """The requests for the content of paths that end so."""
        return [
            each for each in self.requests if each.method == "GET" and unquote(_path(each)).endswith(suffix)
        ]

    def sent(self, suffix: str) -> int:
        return sum(each.sent for each in self.content(suffix))


def _path(request: Request) -> str:
    return request.path.partition("?")[0]


class _Handler(BaseHTTPRequestHandler):
    """Answers with whole bodies or ranges of them, and notes it."""

    owner: Any

    def log_message(self, *_: Any) -> None:
        """Nothing: the requests are kept."""

    def answer(self, status: int, body: bytes = b"", headers: dict[str, str] | None = None) -> None:
        faults: Faults = self.owner.faults
        asked = self.headers.get("Range")
        said = dict(headers or {})
        if status == 200 and asked and faults.ranges and self.command == "GET":
            first, _, last = asked.removeprefix("bytes=").partition("-")
            begin, end = int(first), min(int(last) + 1 if last else len(body), len(body))
            said["Content-Range"] = f"bytes {begin}-{end - 1}/{len(body)}"
            status, body = 206, body[begin:end]
        sent = 0
        if self.command == "GET":
            cut = faults.cut.pop(0) if status in (200, 206) and faults.cut else len(body)
            sent = min(cut, len(body))
        # Before anything is sent: whoever has the bytes may look at the notes.
        self.owner.requests.append(Request(self.command, self.path, asked, status, sent))
        if sent and faults.after is not None:
            faults.after()
        with suppress(OSError):
            self.send_response(status)
            for name, value in {**said, "Content-Length": str(len(body)), "Connection": "close"}.items():
                self.send_header(name, value)
            self.end_headers()
            if sent > 1 and faults.stalls:
                faults.stalls -= 1
                self.wfile.write(body[:1])
                self.owner.closing.wait(60)
                return
            self.wfile.write(body[:sent])
        self.close_connection = True


class Web(_Server):
    """A folder over HTTP, with listings."""

    def __init__(self, folder: Path, certificate: Path | None = None) -> None:
        self.folder, self.faults = folder, Faults()
        super().__init__(type("Handler", (_WebHandler,), {"owner": self}), certificate)


class _WebHandler(_Handler):
    def do_HEAD(self) -> None:
        if self.owner.faults.head:
            self.do_GET()
        else:
            self.answer(405)

    def do_GET(self) -> None:
        web: Web = self.owner
        name = unquote(urlsplit(self.path).path)
        path = web.folder / name.strip("/")
        status = next((s for end, s in web.faults.status.items() if name.endswith(end)), 200)
        target = next((to for end, to in web.faults.redirect.items() if name.endswith(end)), None)
        if target is not None:
            self.answer(302, headers={"Location": target})
        elif status != 200:
            self.answer(status, b"no")
        elif path.is_dir():
            links = (
                f'<li><a href="{p.name.replace(" ", "%20")}{"/" if p.is_dir() else ""}">x</a>'
                for p in sorted(path.iterdir())
            )
            self.answer(200, "".join(links).encode(), {"Content-Type": "text/html"})
        elif not path.is_file():
            self.answer(404)
        else:
            self._file(path, name)

    def _file(self, path: Path, name: str) -> None:
        body = path.read_bytes()
        headers = {"Content-Type": "application/octet-stream"}
        if self.owner.faults.validators:
            headers["ETag"] = f'"{hashlib.sha1(body).hexdigest()}"'
            headers["Last-Modified"] = formatdate(path.stat().st_mtime, usegmt=True)
        if name.endswith(self.owner.faults.packed or ("\0",)):
            headers["Content-Encoding"] = "gzip"
        self.answer(200, body, headers)


class Gcs(_Server):
    """Buckets over the JSON API: {"bucket/name": content}."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.faults = Faults()
        super().__init__(type("Handler", (_GcsHandler,), {"owner": self}))

    def put(self, bucket: str, name: str, content: bytes) -> None:
        self.objects[f"{bucket}/{name}"] = content


class _GcsHandler(_Handler):
    def do_GET(self) -> None:
        gcs: Gcs = self.owner
        parts = urlsplit(self.path)
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        path = unquote(parts.path)
        status = next((s for end, s in gcs.faults.status.items() if path.endswith(end)), 200)
        bucket, _, rest = path.partition("/b/")[2].partition("/")
        name = rest.removeprefix("o/") if rest.startswith("o/") else ""
        if status != 200:
            return self._json(status, {"error": {"code": status, "message": "refused for the test"}})
        if rest == "o":
            return self._json(200, _listing(gcs.objects, bucket, query))
        content = gcs.objects.get(f"{bucket}/{name}")
        if content is None:
            return self._json(404, {"error": {"code": 404, "message": "No such object"}})
        if query.get("alt") == "media":
            return self.answer(200, content, {"Content-Type": "application/octet-stream"})
        return self._json(200, _resource(bucket, name, content))

    def _json(self, status: int, body: dict[str, Any]) -> None:
        self.answer(status, json.dumps(body).encode(), {"Content-Type": "application/json"})


def _resource(bucket: str, name: str, content: bytes) -> dict[str, Any]:
    md5 = base64.b64encode(hashlib.md5(content).digest()).decode()
    return {"kind": "storage#object", "bucket": bucket, "name": name, "size": str(len(content)), "etag": md5,
            "md5Hash": md5, "generation": str(len(content)), "updated": "2026-01-02T03:04:05.000Z",
            "timeCreated": "2026-01-02T03:04:05.000Z"}  # fmt: skip


def _listing(objects: dict[str, bytes], bucket: str, query: dict[str, str]) -> dict[str, Any]:
    prefix, delimiter = query.get("prefix", ""), query.get("delimiter")
    items, prefixes = [], set()
    for key, content in sorted(objects.items()):
        name = key.removeprefix(f"{bucket}/")
        if name == key or not name.startswith(prefix):
            continue
        below = name[len(prefix) :]
        if delimiter and delimiter in below:
            prefixes.add(prefix + below.partition(delimiter)[0] + delimiter)
        else:
            items.append(_resource(bucket, name, content))
    return {"kind": "storage#objects", "items": items, "prefixes": sorted(prefixes)}


class Silent:
    """Takes every connection and never answers."""

    def __init__(self) -> None:
        self.taken: list[socket.socket] = []
        self.socket = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self.socket.getsockname()[1]}"
        self.thread = threading.Thread(target=self._take, daemon=True)
        self.thread.start()

    def _take(self) -> None:
        with suppress(OSError):  # closed
            while True:
                self.taken.append(self.socket.accept()[0])

    def close(self) -> None:
        self.socket.shutdown(socket.SHUT_RDWR)
        self.socket.close()
        self.thread.join()
        for each in self.taken:
            each.close()


class S3:
    """moto behind a server that counts, and that may refuse or cut answers."""

    def __init__(self) -> None:
        from moto.server import DomainDispatcherApplication, create_backend_app
        from werkzeug.serving import WSGIRequestHandler, make_server

        class Silent(WSGIRequestHandler):
            def log(self, *_: Any) -> None:
                """Nothing: the requests are kept."""

        self.requests: list[Request] = []
        self.closing = threading.Event()
        self.faults = Faults()
        self.backend = DomainDispatcherApplication(create_backend_app)
        self.server = make_server("127.0.0.1", 0, self._answer, threaded=True, request_handler=Silent)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.02,), daemon=True)
        self.thread.start()

    content, sent, close = _Server.content, _Server.sent, _Server.close

    def _answer(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path, asked = environ["REQUEST_METHOD"], environ["PATH_INFO"], environ.get("HTTP_RANGE")
        status = next((s for end, s in self.faults.status.items() if path.endswith(end)), 200)
        if status != 200:
            self.requests.append(Request(method, path, asked, status, 0))
            start(f"{status} no", [("Content-Type", "application/xml"), ("Content-Length", "0")])
            return []
        said: list[int] = []

        def note(line: str, headers: Any, *rest: Any) -> Any:
            said.append(int(line.split()[0]))
            return start(line, headers, *rest)

        body = b"".join(self.backend(environ, note))
        of_object = method == "GET" and "list-type" not in environ.get("QUERY_STRING", "")
        cut = self.faults.cut.pop(0) if of_object and said[0] in (200, 206) and self.faults.cut else len(body)
        sent = min(cut, len(body)) if method == "GET" else 0
        full = f"{path}?{environ.get('QUERY_STRING', '')}"
        self.requests.append(Request(method, full, asked, said[0], sent))
        if of_object and self.faults.after is not None:
            self.faults.after()
        return [body[:cut]]
