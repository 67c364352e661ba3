"""Answers in gzip: the page's scripts are megabytes of text, its documents hundreds of kilobytes."""

from __future__ import annotations

import gzip
import zlib
from collections import OrderedDict
from threading import Lock

import flask

LEAST_BYTES = 1024
KEPT_BYTES = 32 << 20
"""Of packed static files; a file is packed once while the server runs."""
_TYPES = ("text/", "application/json", "application/javascript", "image/svg+xml")


class Packer:
    """Packs what a browser takes packed. Static files are packed well and kept, answers packed fast."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[str, str], bytes] = OrderedDict()
        self._lock = Lock()

    def __call__(self, response: flask.Response) -> flask.Response:
        kind = response.mimetype or ""
        if (
            response.status_code != 200
            or not flask.request.accept_encodings.quality("gzip")  # "gzip;q=0" refuses it
            or "Content-Encoding" in response.headers
            or not kind.startswith(_TYPES)
        ):
            return response
        etag = response.headers.get("ETag")
        static = flask.request.method == "GET" and etag is not None
        response.direct_passthrough = False
        if static:
            packed = self._static((flask.request.full_path, etag or ""), response)
        else:
            body = response.get_data()
            packed = gzip.compress(body, 4, mtime=0) if len(body) >= LEAST_BYTES else None
        if packed is None:
            return response
        response.set_data(packed)
        response.headers["Content-Encoding"] = "gzip"
        response.headers["Content-Length"] = str(len(packed))
        response.headers.add("Vary", "Accept-Encoding")
        return response

    def _static(self, key: tuple[str, str], response: flask.Response) -> bytes | None:
        with self._lock:
            packed = self._kept.get(key)
        if packed is not None:
            close = getattr(response.response, "close", None)
            if close is not None:
                close()  # the file, which nobody will read
            return packed
        body = response.get_data()
        if len(body) < LEAST_BYTES:
            return None
        packed = gzip.compress(body, zlib.Z_BEST_COMPRESSION - 3, mtime=0)
        with self._lock:
            self._kept[key] = packed
            while sum(map(len, self._kept.values())) > KEPT_BYTES:
                self._kept.popitem(last=False)
        return packed
