"""`mpprof serve` as a process of its own, over odd names and damaged runs, asked what no browser asks: every answer
is one of the caller's, its log stays empty, and it goes on."""

from __future__ import annotations

import http.client
import json
import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from mpprof.api.source import LogDirectory
from tests.dashboards.test_hostile import WRONG, call, run

NAMES = (
    b"new\nline", "日本\u202e".encode(), b"<b>m<script>alert(1)<", b"x" * 250, b"bytes\xff\xfe", b"-rf",
    b"a&b=c?d#e%41+f", b"none", b" ", b"\x1b[31m", b"..x", b"'\"", b"{}", b"__proto__", b"latest",
)  # fmt: skip
PATHS = (
    "/nope", "/_dash-component-suites/", "/_dash-component-suites/x/y", "/_dash-component-suites/dash/%ff",
    "/assets/..%2f..%2fapp.py", "/%00", "/%ff", "//evil.example/", "/" + "a" * 9000, "/.git/config",
)  # fmt: skip
ROUTES = ("/", "/compare", "/report.html", "/runs.json", "/run.json", "/rows.json", "/rows.csv",
          "/timeline.json", "/kernel.json", "/next.json", "/trace.json")  # fmt: skip
QUERIES = (
    "?run=nope", "?run=%ff", "?run=%00", "?run=..%2f..", "?run=%0d%0aSet-Cookie:x", "?run=" + "a" * 20_000,
    "?run=-rf&table=kernels&from=-1&count=999999999999", "?run=-rf&table=ops&search=" + "(" * 500,
    "?run=-rf&step=-1&from=5&to=1&width=0", "?run=-rf&from=1&to=2&width=999999999999999999",
    "?run=-rf&row=999999999999999999", "?run=-rf&row=%D9%A3", "?" + "run=x&" * 5000,
)  # fmt: skip
HOSTS = ("evil.example", "", ":80", "[::1", "127.0.0.1@evil", "127.0.0.1, evil", "a" * 5000)
CALLERS = {200, 204, 302, 400, 403, 404, 405, 413, 414, 431}


class Server:
    def __init__(self, port: int) -> None:
        self.port = port

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            given = {"Host": f"127.0.0.1:{self.port}", "Content-Type": "application/json", **headers}
            if body is not None:
                given["Content-Length"] = str(len(body))
            for name, value in given.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return answer.status, answer.read()
        finally:
            connection.close()


@pytest.fixture(scope="module")
def logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """In a directory whose own name is no text either."""
    top = Path(os.fsdecode(os.fsencode(tmp_path_factory.mktemp("serve")) + b"/top\xff"))
    for name in NAMES:
        run(Path(os.fsdecode(os.fsencode(top) + b"/" + name)))
    whole = (top / "-rf" / "mpprof" / "run.json").read_bytes()
    newer = whole.replace(b"mpprof.run/1", b"mpprof.run/9")
    for number, damaged in enumerate((b"", b"[" * 99_999, b"\xff\xfe" + whole, whole[:700], newer)):
        (run(top / f"damaged{number}") / "mpprof" / "run.json").write_bytes(damaged)
    (run(top / "folder") / "plugins" / "profile" / "1" / "d.xplane.pb").mkdir(parents=True)
    os.mkfifo(run(top / "pipe") / "mpprof" / "hardware.jsonl")
    return top


@pytest.fixture(scope="module")
def server(logs: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    log = tmp_path_factory.mktemp("said") / "stderr"
    with log.open("wb") as said:
        process = subprocess.Popen(
            [sys.executable, "-m", "mpprof", "serve", str(logs), "--port", "0"],
            env={**os.environ, "MPPROF_CACHE": "off"}, stdout=subprocess.PIPE, stderr=said,
        )  # fmt: skip
        found = re.search(rb":(\d+)/", process.stdout.readline())
        assert found is not None, log.read_text()
        try:
            yield Server(int(found[1]))
            assert process.poll() is None
        finally:
            process.terminate()
            process.wait(30)
            process.stdout.close()
    assert log.read_text() == ""


def test_every_run_has_its_pages_whatever_it_is_called(server: Server, logs: Path) -> None:
    entries = LogDirectory(logs).entries()
    assert len(entries) == len(NAMES) + 7
    status, text = server.ask("GET", "/runs.json")
    assert status == 200
    assert {each["id"] for group in json.loads(text)["groups"] for each in group["runs"]} == {
        entry.id for entry in entries
    }
    for entry in entries:
        query = f"?run={quote(entry.id)}"
        status, text = server.ask("POST", "/_dash-update-component", json.dumps(call("/", query)).encode())
        assert (status, b"a bug in mpprof" in text) == (200, False)
        assert server.ask("GET", f"/run.json{query}")[0] == (404 if entry.problem else 200), entry.id
    assert server.ask("GET", f"/report.html?run={quote(entries[-1].id)}")[0] in (200, 404)
    assert server.ask("GET", "/report.html?run=bytes%5Cudcff%5Cudcfe")[0] == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "TRACE", "FOO"])
def test_paths_that_are_none(server: Server, method: str) -> None:
    for path in (*PATHS, *ROUTES):
        assert server.ask(method, path, b"" if method in ("POST", "PUT") else None)[0] in CALLERS, path


@pytest.mark.parametrize("route", ROUTES)
def test_queries_that_are_none(server: Server, route: str) -> None:
    for query in QUERIES:
        assert server.ask("GET", route + query)[0] in CALLERS, query


def test_hosts_that_are_none(server: Server) -> None:
    for host in HOSTS:
        assert server.ask("GET", "/", Host=host)[0] in (400, 403, 431), host


def test_connections_that_browsers_keep_open_keep_no_reader_out(server: Server) -> None:
    """Six of each of 25 readers, as a browser holds them when its page is there."""
    idle = [socket.create_connection(("127.0.0.1", server.port), timeout=20) for _ in range(150)]
    try:
        assert server.ask("GET", "/runs.json")[0] == 200
    finally:
        for one in idle:
            one.close()


def test_neither_do_connections_that_somebody_opens_and_leaves(server: Server) -> None:
    """More than the server holds; half of them begin a request. Of a process with few files it holds fewer."""
    idle = []
    try:
        for number in range(650):
            idle.append(socket.create_connection(("127.0.0.1", server.port), timeout=20))
            if number % 2:
                idle[-1].sendall(b"GET / HTTP/1.1\r\nHost: 127.0.0.1")
        assert server.ask("GET", "/runs.json")[0] == 200
    finally:
        for one in idle:
            one.close()
    assert server.ask("GET", "/runs.json")[0] == 200


def test_calls_with_any_value_in_each_place(server: Server) -> None:
    def asked(body: Any) -> int:
        return server.ask("POST", "/_dash-update-component", json.dumps(body).encode())[0]

    callbacks = json.loads(server.ask("GET", "/_dash-dependencies")[1])
    for known in callbacks:
        output = known["output"]
        if known["clientside_function"]:
            forged = {"output": output, "outputs": [], "inputs": [], "state": [], "changedPropIds": []}
            assert asked(forged) == 400
            continue
        names = output[2:-2].split("...") if output.startswith("..") else [output]
        outputs = [dict(zip(("id", "property"), name.rsplit(".", 1), strict=True)) for name in names]
        whole = {
            "output": output,
            "outputs": outputs if output.startswith("..") else outputs[0],
            "inputs": [{**each, "value": None} for each in known["inputs"]],
            "state": [{**each, "value": None} for each in known["state"]],
            "changedPropIds": [],
        }
        assert asked(whole) in (200, 204)
        for key in whole:
            assert asked({name: value for name, value in whole.items() if name != key}) in (200, 400)
        for wrong in (*WRONG, "\ud800", "?run=%ED%A0%80", 1e308):
            body = json.loads(json.dumps(whole))
            for argument in (*body["inputs"], *body["state"]):
                argument["value"] = wrong
                assert asked(body) in (200, 204, 400), (output, wrong)
                argument["value"] = None


@pytest.mark.parametrize(
    "text", [b"\x16\x03\x01\x02\x00", b"GET / HTTP/9.9\r\n\r\n", b"GET / HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n",
             b"POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nZZZ\r\n"]
)  # fmt: skip
def test_what_is_no_request(server: Server, text: bytes) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as connection:
        connection.sendall(text)
        connection.shutdown(socket.SHUT_WR)
        assert not re.match(rb"HTTP/1.\d 5", connection.recv(99))
    assert server.ask("GET", "/_dash-layout")[0] == 200


def test_a_body_beyond_any_call_is_refused_before_it_is_sent(server: Server) -> None:
    """Else it is waited for, up to a gigabyte, and kept on disk."""
    head = b"POST /_dash-update-component HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2000000\r\n\r\n"
    with socket.create_connection(("127.0.0.1", server.port), timeout=20) as connection:
        connection.sendall(head)
        assert connection.recv(99).startswith(b"HTTP/1.1 413")
