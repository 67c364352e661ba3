"""What servers and networks do to a download: the right bytes in the end, or one clear error."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

import pytest

import mpprof
from mpprof.api.source import LogDirectory
from mpprof.cli import main
from mpprof.errors import MpprofError, NotFoundError, UnreadableError
from mpprof.traces.common import lazy_fetch
from mpprof.traces.remote import fetch as remote
from mpprof.traces.remote import local_copies
from tests.paths import SAMPLES
from tests.traces.kineto import small
from tests.traces.servers import Web

pytest.importorskip("aiohttp", reason="fsspec needs aiohttp for http://")

SAMPLE = SAMPLES / "v100-convnet-mixed-float16"
BLOCK = 1000
BYTES = bytes(range(256)) * 14  # 3,584: four blocks
NAME = "w.pt.trace.json"


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_copies, "BLOCK_BYTES", BLOCK)


@pytest.fixture
def file(folder: Path) -> Path:
    (folder / NAME).write_bytes(BYTES)
    return folder / NAME


@pytest.fixture
def kept(tmp_path: Path) -> Path:
    return tmp_path / "kept"


def ranges(web: Web) -> list[str | None]:
    return [each.range for each in web.content(NAME) if each.range != "bytes=1-1"]


def test_a_file_comes_in_ranges_and_each_byte_once(web: Web, file: Path, kept: Path) -> None:
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES
    assert ranges(web) == ["bytes=0-999", "bytes=1000-1999", "bytes=2000-2999", "bytes=3000-3583"]
    assert web.sent(NAME) == len(BYTES) + 1  # and one to see whether the server gives ranges


def test_a_connection_that_breaks_costs_one_block_again(web: Web, file: Path, kept: Path) -> None:
    web.faults.cut = [1, BLOCK, 400]  # the question, a whole block, a broken one
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES
    assert ranges(web) == [
        "bytes=0-999", "bytes=1000-1999", "bytes=1000-1999", "bytes=2000-2999", "bytes=3000-3583",
    ]  # fmt: skip


def test_a_connection_that_always_breaks_is_one_error_and_leaves_nothing(
    web: Web, file: Path, kept: Path
) -> None:
    web.faults.cut = [1, *[10] * 20]
    with pytest.raises(UnreadableError, match=f"^{web.url}/{NAME}: the connection breaks: "):
        remote.fetch(f"{web.url}/{NAME}", kept)
    assert len(ranges(web)) == 3
    assert not [path for path in kept.rglob("*") if path.is_file()]


def test_a_server_without_ranges_sends_it_in_one(web: Web, file: Path, kept: Path) -> None:
    web.faults.ranges = False
    assert remote.fetch(f"{web.url}/{NAME}", kept).read_bytes() == BYTES
    assert ranges(web)[-1] is None
    web.faults.cut = [0, 700]
    os.utime(file, (5, 5))  # another version
    with pytest.raises(UnreadableError, match="the connection breaks"):
        remote.fetch(f"{web.url}/{NAME}", kept)


def test_a_file_that_is_replaced_meanwhile_is_read_again_from_its_beginning(
    web: Web, file: Path, kept: Path
) -> None:
    def replace() -> None:
        if len(web.content(NAME)) == 3:
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


def test_only_the_window_that_is_looked_at_is_fetched(
    web: Web, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(local_copies, "BLOCK_BYTES", 16 << 20)
    there = logs(folder, "a", "b", "c")
    size = (there / "plugins/profile/a/host.xplane.pb").stat().st_size
    for _ in range(2):
        assert main(["kernels", f"{web.url}/logs", "--format", "csv"]) == 0
        assert web.sent("a/host.xplane.pb") == size  # the newest by its time there, not by its name
        assert web.sent("b/host.xplane.pb") == web.sent("c/host.xplane.pb") == 0
    there_twice = capsys.readouterr().out.splitlines()
    assert main(["kernels", str(there), "--format", "csv"]) == 0
    assert len(there_twice) == 2 * len(capsys.readouterr().out.splitlines())


def test_what_is_gone_there_goes_here(web: Web, folder: Path, kept: Path) -> None:
    there = logs(folder, "a", "b")
    found = remote.fetch(f"{web.url}/logs", kept)
    for path in found.rglob("*.pb"):
        lazy_fetch.complete(path)
    (there / "plugins/profile/a/host.xplane.pb").unlink()
    remote.fetch(f"{web.url}/logs", kept)
    assert [path.parent.name for path in found.rglob("*.pb")] == ["b"]


def test_names_are_as_the_server_means_them(web: Web, folder: Path, kept: Path) -> None:
    (logs(folder, "a") / "plugins" / "profile" / "a").rename(folder / "logs/plugins/profile/a b 50%")
    found = remote.fetch(f"{web.url}/logs", kept)
    (path,) = found.rglob("*.pb")
    lazy_fetch.complete(path)
    assert path.parent.name == "a b 50%"
    assert path.read_bytes() == next(SAMPLE.rglob("*.pb")).read_bytes()


def test_a_trace_that_vanished_since_it_was_listed_is_said(web: Web, folder: Path, kept: Path) -> None:
    there = logs(folder, "a")
    (path,) = remote.fetch(f"{web.url}/logs", kept).rglob("*.pb")
    next(there.rglob("*.pb")).unlink()
    for _ in range(2):
        said = f"^{web.url}/logs/plugins/profile/a/host.xplane.pb: was removed after it was listed"
        with pytest.raises(UnreadableError, match=said):
            lazy_fetch.complete(path)


def test_of_a_log_that_grew_only_the_new_lines_are_fetched(web: Web, folder: Path, kept: Path) -> None:
    log = folder / "run" / "mpprof" / "steps.jsonl"
    log.parent.mkdir(parents=True)
    log.write_bytes(BYTES * 20)
    copy = remote.fetch(f"{web.url}/run", kept) / "mpprof" / "steps.jsonl"
    before = web.sent("steps.jsonl")
    log.write_bytes(BYTES * 20 + b"new lines")
    remote.fetch(f"{web.url}/run", kept)
    assert copy.read_bytes() == log.read_bytes()
    assert web.sent("steps.jsonl") - before == 4096 + len(b"new lines")  # and what was its end
    log.write_bytes(BYTES[::-1] * 21)  # another run's, and longer
    remote.fetch(f"{web.url}/run", kept)
    assert copy.read_bytes() == log.read_bytes()


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
    assert before is not None
    assert after is not None
    assert len(after.step) == len(before.step) + 10


def test_a_run_whose_trace_is_gone_is_reported_from_its_records(
    web: Web, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setenv("MPPROF_CACHE", str(tmp_path / "cache"))
    there = logs(folder, "a")
    (there / "mpprof" / "steps.jsonl").write_bytes(next(SAMPLE.rglob("steps.jsonl")).read_bytes())
    run = mpprof.load(f"{web.url}/logs")
    web.faults.status = {"host.xplane.pb": 403}
    absent = mpprof.diagnose(run).absent
    assert f"{web.url}/logs/plugins/profile/a/host.xplane.pb: access denied" in absent["time"]


def test_several_at_once_fetch_the_same_without_harm(web: Web, folder: Path, kept: Path) -> None:
    there = logs(folder, "a", "b")
    expected = next(there.rglob("*.pb")).read_bytes()

    def fetch(_: int) -> list[bytes]:
        paths = sorted(remote.fetch(f"{web.url}/logs", kept).rglob("*.pb"))
        for path in paths:
            lazy_fetch.complete(path)
        return [path.read_bytes() for path in paths]

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(fetch, range(4))) == [[expected, expected]] * 4
    assert not list(kept.rglob("*.part"))


def test_a_listing_never_takes_the_bytes_that_another_process_has_just_fetched(
    web: Web, folder: Path, kept: Path
) -> None:
    there = logs(folder, "a")
    (path,) = remote.fetch(f"{web.url}/logs", kept).rglob("*.pb")
    lazy_fetch.complete(path)
    content = path.read_bytes()
    (there / "plugins/profile/a/host.xplane.pb").write_bytes(content[::-1])
    remote.fetch(f"{web.url}/logs", kept)  # lists the new version, which nobody has read yet
    assert path.read_bytes() == content
    lazy_fetch.complete(path)
    assert path.read_bytes() == content[::-1]


def test_a_trace_that_was_evicted_since_it_was_listed_is_fetched_again(
    web: Web, folder: Path, kept: Path
) -> None:
    logs(folder, "a")
    (path,) = remote.fetch(f"{web.url}/logs", kept).rglob("*.pb")
    lazy_fetch.complete(path)
    content = path.read_bytes()
    remote.fetch(f"{web.url}/logs", kept)
    os.utime(path.with_name(f".{path.name}.version"), (1, 1))
    local_copies.evict(kept, 0)
    assert not path.exists()
    lazy_fetch.complete(path)
    assert path.read_bytes() == content
