"""What servers and networks do to a download: the right bytes in the end, or one clear error."""

from __future__ import annotations

import gzip
import itertools
import json
import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.api.source import LogDirectory
from mpprof.cli import main
from mpprof.errors import MpprofError, NotFoundError, UnreadableError
from mpprof.traces.remote import errors
from mpprof.traces.remote import fetch as remote
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.servers import Web

pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for http://")

SAMPLE = SAMPLES / "v100-convnet-mixed-float16"
BLOCK = 1000
BYTES = bytes(range(256)) * 14
NAME = "w.pt.trace.json"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def file(folder: Path) -> Path:
    (folder / NAME).write_bytes(BYTES)
    return folder / NAME


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


@pytest.mark.parametrize("ranges", [True, False])
def test_a_file_comes_in_one_answer(web: Web, file: Path, kept: Path, ranges: bool) -> None:
    web.faults.ranges = ranges
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES
    assert web.sent(NAME) == len(BYTES)


def test_a_connection_that_breaks_is_tried_once_more_from_the_beginning(
    web: Web, file: Path, kept: Path
) -> None:
    web.faults.cut = [BLOCK]
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES
    assert [each.sent for each in web.content(NAME)] == [BLOCK, len(BYTES)]


def test_a_connection_that_always_breaks_is_one_error_and_leaves_nothing(
    web: Web, file: Path, kept: Path
) -> None:
    web.faults.cut = [BLOCK] * 20
    with pytest.raises(UnreadableError, match=f"^{web.url}/{NAME}: the connection breaks: "):
        remote.fetch(f"{web.url}/{NAME}", kept)
    assert len(web.content(NAME)) == 2
    assert not [path for path in kept.rglob("*") if path.is_file()]


def test_a_file_that_is_replaced_meanwhile_is_read_again_from_its_beginning(
    web: Web, file: Path, kept: Path
) -> None:
    def replace() -> None:
        if len(web.content(NAME)) == 1:
            file.write_bytes(BYTES[::-1])

    web.faults.after = replace
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES[::-1]


def test_a_file_that_never_rests_is_an_error(web: Web, file: Path, kept: Path) -> None:
    web.faults.after = lambda: os.utime(file, (len(web.requests), len(web.requests)))
    with pytest.raises(UnreadableError, match="changes while it is read"):
        remote.fetch(f"{web.url}/{NAME}", kept)
    assert not [path for path in kept.rglob("*") if path.is_file()]


def test_a_log_that_only_grows_is_taken_as_long_as_it_was(web: Web, folder: Path, kept: Path) -> None:
    log = folder / "run" / "mpprof" / "steps.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(BYTES)

    def grow() -> None:
        with log.open("ab") as file:
            file.write(b"more")

    web.faults.after = grow
    found = remote.fetch(f"{web.url}/run", kept) / "mpprof" / "steps.jsonl"
    assert found.read_bytes()[: len(BYTES)] == BYTES


@pytest.mark.parametrize(
    ("status", "says"),
    [
        (401, "access denied"), (403, "access denied"), (404, "nothing was found at this address"),
        (410, "nothing was found"), (500, "the server answers 500"), (503, "the server answers 503"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("path", [NAME, "run"])
def test_what_the_server_refuses_is_named(
    web: Web, file: Path, kept: Path, path: str, status: int, says: str
) -> None:
    web.faults.status = {path: status}
    with pytest.raises(MpprofError, match=says) as caught:
        remote.fetch(f"{web.url}/{path}", kept)
    assert isinstance(caught.value, NotFoundError) == (status in (404, 410))
    assert str(caught.value).startswith(f"{web.url}/{path}: ")


def test_redirects_are_followed_and_a_circle_is_an_error(web: Web, file: Path, kept: Path) -> None:
    web.faults.redirect = {"old.pt.trace.json": f"/{NAME}", "round.json": "/round.json"}
    assert remote.fetch(f"{web.url}/old.pt.trace.json", kept).read_bytes() == BYTES
    with pytest.raises(UnreadableError, match=r"round\.json: redirect loop"):
        remote.fetch(f"{web.url}/round.json", kept)


def test_a_server_that_knows_no_head_is_asked_otherwise(web: Web, file: Path, kept: Path) -> None:
    web.faults.head = False
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES


@pytest.fixture
def certificate(tmp_path: Path) -> Path:
    """A key and a certificate for 127.0.0.1 that nobody has signed."""
    pytest.importorskip("cryptography")
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    path = tmp_path / "server.pem"
    path.write_bytes(private + made.public_bytes(pem))
    return path


def test_over_https_a_server_must_be_known(folder: Path, file: Path, kept: Path, certificate: Path) -> None:
    server = Web(folder, certificate)
    with pytest.raises(UnreadableError, match=f"^{server.url}/{NAME}: cannot be reached: .*certificate"):
        remote.fetch(f"{server.url}/{NAME}", kept)
    assert not kept.exists()
    code = "import sys; from pathlib import Path; from mpprof.traces.remote import fetch; fetch.fetch(sys.argv[1], Path(sys.argv[2]))"
    subprocess.run(
        [sys.executable, "-c", code, f"{server.url}/{NAME}", str(kept)],
        env={**os.environ, "SSL_CERT_FILE": str(certificate)},
        check=True,
    )
    assert next(kept.rglob(NAME)).read_bytes() == BYTES
    server.close()


def test_without_any_sign_of_its_version_a_file_is_fetched_each_time(
    web: Web, file: Path, kept: Path
) -> None:
    web.faults.validators = False
    remote.fetch(f"{web.url}/{NAME}", kept)
    file.write_bytes(BYTES[::-1])
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES[::-1]


@pytest.mark.parametrize("packed", [False, True])
def test_a_packed_trace_is_read_also_where_the_server_says_so_twice(
    web: Web, folder: Path, packed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    here = small().write(folder / "w.pt.trace.json.gz")
    assert main(["kernels", str(here), "--format", "csv"]) == 0
    expected = capsys.readouterr().out
    if packed:  # "Content-Encoding: gzip" on a file that is packed: clients unpack it on the way
        web.faults.packed = (".gz",)
    assert gzip.decompress(here.read_bytes())
    assert main(["kernels", f"{web.url}/{here.name}", "--format", "csv"]) == 0
    assert capsys.readouterr().out == expected


# --- a log directory ---------------------------------------------------------------------------------------


def logs(folder: Path, *sessions: str) -> Path:
    """A run with a window for each of these times, the first of them the newest."""
    (folder / "logs" / "mpprof").mkdir(parents=True)
    facts = json.loads(next(SAMPLE.rglob("run.json")).read_text())
    (folder / "logs" / "mpprof" / "run.json").write_text(json.dumps(facts | {"profile_windows": []}))
    trace = next(SAMPLE.rglob("*.xplane.pb"))
    for at, session in enumerate(sessions):
        path = folder / "logs" / "plugins" / "profile" / session / "host.xplane.pb"
        path.parent.mkdir(parents=True)
        path.write_bytes(trace.read_bytes())
        os.utime(path, (1_700_000_000 - at, 1_700_000_000 - at))
    return folder / "logs"


def test_the_traces_of_all_windows_come_when_the_run_is_opened_and_the_newest_is_read(
    web: Web, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    logs(folder, "a", "b", "c")
    for _ in range(2):
        found = mpprof.load(f"{web.url}/logs").traces
        assert found[-1].parent.name == "a"  # by its time there, not by its name
        assert [path.read_bytes() for path in found] == [next(SAMPLE.rglob("*.xplane.pb")).read_bytes()] * 3
        assert len(web.content("host.xplane.pb")) == 3


def test_what_is_gone_there_goes_here(web: Web, folder: Path, kept: Path) -> None:
    there = logs(folder, "a", "b")
    found = remote.fetch(f"{web.url}/logs", kept)
    (there / "plugins/profile/a/host.xplane.pb").unlink()
    remote.fetch(f"{web.url}/logs", kept)
    assert [path.parent.name for path in found.rglob("*.pb")] == ["b"]


def test_names_are_as_the_server_means_them(web: Web, folder: Path, kept: Path) -> None:
    (logs(folder, "a") / "plugins" / "profile" / "a").rename(folder / "logs/plugins/profile/a b 50%")
    found = remote.fetch(f"{web.url}/logs", kept)
    (path,) = found.rglob("*.pb")
    assert path.parent.name == "a b 50%"
    assert path.read_bytes() == next(SAMPLE.rglob("*.pb")).read_bytes()


def test_the_page_sees_a_run_grow(
    web: Web, folder: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mpprof.api.source.REFRESH_S", 0.0)
    records = folder / "logs" / "mpprof"
    records.mkdir(parents=True)
    lines = next(SAMPLE.rglob("steps.jsonl")).read_text().splitlines(keepends=True)
    (records / "run.json").write_bytes(next(SAMPLE.rglob("run.json")).read_bytes())
    (records / "steps.jsonl").write_text("".join(lines[:10]))
    address = f"{web.url}/logs"

    def refresh() -> None:
        remote.fetch(address, kept)

    source = LogDirectory(remote.fetch(address, kept), refresh=refresh)
    (entry,) = source.entries()
    before = source.steps(entry.id)
    (records / "steps.jsonl").write_text("".join(lines[:20]))
    source.entries()
    after = source.steps(entry.id)
    assert len(after.step) == len(before.step) + 10


def test_a_run_whose_traces_are_refused_is_reported_from_its_records(
    web: Web, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    there = logs(folder, "a")
    (there / "mpprof" / "steps.jsonl").write_bytes(next(SAMPLE.rglob("steps.jsonl")).read_bytes())
    (folder / "logs/plugins/profile/b").mkdir()
    small().write(folder / "logs/plugins/profile/b/w.pt.trace.json")
    web.faults.status = {"host.xplane.pb": 403, "w.pt.trace.json": 403}
    run = mpprof.load(f"{web.url}/logs")
    assert run.steps is not None
    assert run.traces == ()
    (said,) = caplog.messages
    assert said.startswith("mpprof: a trace was not fetched, and 1 more: ")
    assert "access denied" in said
    assert f"{web.url}/logs/plugins/profile/" in said


def test_several_at_once_fetch_the_same_without_harm(web: Web, folder: Path, kept: Path) -> None:
    there = logs(folder, "a", "b")
    expected = next(there.rglob("*.pb")).read_bytes()

    def fetch(_: int) -> list[bytes]:
        paths = sorted(remote.fetch(f"{web.url}/logs", kept).rglob("*.pb"))
        return [path.read_bytes() for path in paths]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fetch, range(4))) == [[expected, expected]] * 4
    assert not list(kept.rglob("*.part"))


PUBLIC = "8.8.8.8"


@pytest.fixture
def public(web: Web, monkeypatch: pytest.MonkeyPatch) -> str:
    """The address of the test's server under a name of the public network."""
    looked_up, connect = socket.getaddrinfo, socket.socket.connect

    def lookup(host: Any, port: Any, *more: Any, **other: Any) -> Any:
        if host in ("elsewhere.example", b"elsewhere.example"):
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (PUBLIC, int(port)))]
        return looked_up(host, port, *more, **other)

    def connected(self: socket.socket, address: Any) -> None:
        connect(self, ("127.0.0.1", *address[1:]) if address[0] == PUBLIC else address)

    monkeypatch.setattr(socket, "getaddrinfo", lookup)
    monkeypatch.setattr(socket.socket, "connect", connected)
    return f"http://elsewhere.example:{web.server.server_port}"


def test_a_redirect_from_a_public_to_a_private_address_is_not_followed(
    web: Web, public: str, file: Path, folder: Path, kept: Path
) -> None:
    (folder / "secret.pt.trace.json").write_bytes(BYTES)
    web.faults.redirect[NAME] = f"{web.url}/secret.pt.trace.json"
    with pytest.raises(UnreadableError, match="redirect"):
        remote.fetch(f"{public}/{NAME}", kept)
    assert not any("secret" in request.path for request in web.requests)


def test_within_the_private_network_redirects_are_followed(
    web: Web, file: Path, folder: Path, kept: Path
) -> None:
    (folder / "moved.pt.trace.json").write_bytes(BYTES)
    web.faults.redirect[NAME] = f"{web.url}/moved.pt.trace.json"
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES


def test_a_file_that_comes_too_slowly_is_given_up(
    web: Web, file: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a clock on which an hour passes between two looks: 3,584 bytes took that long."""
    monkeypatch.setattr(remote, "clock", itertools.count(0, 3_600).__next__)
    with pytest.raises(UnreadableError, match="comes too slowly: 3,584 bytes in 3600 s"):
        remote.fetch(f"{web.url}/{NAME}", kept)
    assert not list(kept.rglob("*.part"))


def test_a_listing_longer_than_any_is_given_up(
    web: Web, file: Path, kept: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One without an end took 5.7 GB within half a minute."""
    monkeypatch.setattr(errors, "_LONGEST_PAGE", 10)
    with pytest.raises(UnreadableError, match="its listing has more than 10 bytes"):
        remote.fetch(f"{web.url}/", kept)
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES
