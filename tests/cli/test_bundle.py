"""Bundles: what is taken out, what stays, and that foreign zips do no harm."""

import gzip
import json
import shutil
import socket
import zipfile
from pathlib import Path

import pytest

from mpprof.cli import bundle_reading
from mpprof.report.redact import Redactor
from tests.cli.conftest import MIXED, Mpprof


@pytest.fixture
def private_run(tmp_path: Path) -> Path:
    """A run with a host name, a user name and paths in its records, its trace and its trace's name."""
    run = tmp_path / "secret-run"
    shutil.copytree(MIXED, run)
    facts = json.loads((run / "mpprof" / "run.json").read_text())
    facts["host"] = "gpunode17.corp.example"
    facts["script"] = "alice/train.py"
    facts["framework"]["xla_flags"] = "--xla_dump_to=/home/alice/dumps --xla_gpu_autotune_level=4"
    facts["absent"]["memory"] = "cannot open gs://alice-bucket/x on gpunode17"
    (run / "mpprof" / "run.json").write_text(json.dumps(facts))
    with (run / "mpprof" / "steps.jsonl").open("a") as steps:
        steps.write('{"kind": "fit_end", "reason": "FileNotFoundError: /home/alice/data/x.tfrecord"}\n')
    trace = next(run.rglob("*.xplane.pb"))
    # Field 4 of XSpace: host names. Appended, it is read as one more of them.
    content = trace.read_bytes() + b"\x22\x16gpunode17.corp.example"
    content += b"\x22\x1b/home/alice/project/train.py"[:1] + bytes([28]) + b"/home/alice/project/train.py"
    trace.with_name("gpunode17.corp.example.xplane.pb").write_bytes(content)
    trace.unlink()
    return run


def packed(path: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(path) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def test_names_are_gone_and_the_report_is_the_same(private_run: Path, mpprof: Mpprof, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    assert mpprof("bundle", private_run, "-o", out).code == 0
    files = packed(out)
    for name, content in files.items():
        for secret in (b"gpunode17", b"alice", b"/project/", socket.gethostname().encode()):
            assert secret not in content or len(secret) < 4
            assert secret.decode() not in name
    facts = json.loads(files["secret-run/mpprof/run.json"])
    assert (facts["host"], facts["script"]) == ("<host>", "train.py")
    assert facts["framework"]["xla_flags"] == "--xla_dump_to=<path> --xla_gpu_autotune_level=4"
    assert facts["absent"]["memory"] == "cannot open <url> on <host>"
    manifest = json.loads(files["MANIFEST.json"])
    assert manifest["redacted"]["host in traces"] >= 1
    assert manifest["redacted"]["path in traces"] >= 1
    assert manifest["not_redacted"]
    before = json.loads(mpprof("report", private_run, "--format", "json").out)
    after = json.loads(mpprof("report", out, "--format", "json").out)
    for finding in (*before["findings"], *after["findings"]):
        finding.pop("remedies")  # commands to copy name the path that each was given
    for key in ("steps", "time", "tensor_core", "memory", "findings", "verdict"):
        assert after[key] == before[key]


def test_a_bundle_hides_where_it_was_unpacked(mpprof: Mpprof, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    assert mpprof("bundle", MIXED, "-o", out).code == 0
    for args in (
        ("report", out),
        ("report", out, "--format", "json"),
        ("memory", out),
        ("compare", MIXED, out),
    ):
        done = mpprof(*args)
        assert "mpprof-bundle-" not in done.out + done.err


def test_a_lone_trace_makes_a_bundle(mpprof: Mpprof, tmp_path: Path) -> None:
    trace = next(MIXED.rglob("*.xplane.pb"))
    out = tmp_path / "trace.zip"
    assert mpprof("bundle", trace, "-o", out).code == 0
    rows = json.loads(mpprof("kernels", out, "--format", "json").out)
    assert rows == json.loads(mpprof("kernels", trace, "--format", "json").out)


def test_a_large_trace_is_left_out_and_said(mpprof: Mpprof, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    done = mpprof("bundle", MIXED, "-o", out, "--max-size", 0)
    assert done.code == 0
    assert "left out" in done.err
    assert not [name for name in packed(out) if name.endswith(".pb")]
    assert json.loads(packed(out)["MANIFEST.json"])["left_out"]
    assert mpprof("report", out).code == 0


def test_an_existing_bundle_is_not_replaced(mpprof: Mpprof, tmp_path: Path) -> None:
    out = tmp_path / "out.zip"
    out.write_text("mine")
    assert mpprof("bundle", MIXED, "-o", out).code == 2
    assert out.read_text() == "mine"


def test_compressed_json_traces_are_redacted_too(tmp_path: Path, mpprof: Mpprof) -> None:
    run = tmp_path / "run"
    (run / "plugins" / "profile" / "t").mkdir(parents=True)
    shutil.copytree(MIXED / "mpprof", run / "mpprof")
    facts = json.loads((run / "mpprof" / "run.json").read_text())
    facts["profile_windows"] = []
    (run / "mpprof" / "run.json").write_text(json.dumps(facts))
    trace = run / "plugins" / "profile" / "t" / "gpunode17.trace.json.gz"
    text = json.dumps({"traceEvents": [{"ph": "X", "name": "k on gpunode17", "ts": 1, "dur": 1, "pid": 1}]})
    trace.write_bytes(gzip.compress(text.encode()))
    from mpprof.cli import bundle_writing
    from mpprof.model.run import Run

    lone = Run("run", run, None, None, None, None, (trace,), True)
    content, manifest = bundle_writing.bundle(lone)
    (tmp_path / "x.zip").write_bytes(content)
    stored = next(data for name, data in packed(tmp_path / "x.zip").items() if name.endswith(".gz"))
    assert b"gpunode17" not in gzip.decompress(stored)
    assert len(gzip.decompress(stored)) == len(text)
    assert manifest["redacted"]["host in traces"] >= 1


# --- redaction ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/device:GPU:0", "/device:GPU:0"),
        ("encoder/dense_1/MatMul", "encoder/dense_1/MatMul"),
        ("abc,cde->abde", "abc,cde->abde"),
        ("at /opt/x/y.py line 3", "at <path> line 3"),
        ("~/secret/x", "<path>"),
        ("C:\\Users\\bob\\x.txt", "<path>"),
        ("s3://bucket/key", "<url>"),
        ("node-a.corp said", "<host> said"),
        ("node-a/x", "<host>/x"),
        ("anode-ab", "anode-ab"),
    ],
)
def test_text(text: str, expected: str) -> None:
    assert Redactor(["node-a.corp"]).text(text) == expected


# "2" could be a tag, "0" the length of all that follows.
NAME = b"\x12\x40encoder/layer_20/self_attention/query/einsum_layer/ReadVariableO\x18\x01"
LONG = b"/scratch/" + b"project/" * 20 + b"x.tfrecord"


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        # One-byte length, then the next field's tag; a length that is a printable character; two bytes.
        (b'R\x13/tmp/logs/.window-1"\x01a', b'R\x13/xxx/xxxx/xxxxxxxxx"\x01a'),
        (b"R3/tmp/a/bc/train/logs/custom/mpprof/.window-26971-11", None),
        (b"\x0a" + bytes([len(LONG) & 0x7F | 0x80, len(LONG) >> 7]) + LONG, None),
        (b'{"a": "/data/alice/x.tfrecord"}', b'{"a": "/xxxx/xxxxx/xxxxxxxxxx"}'),
        (b"\x0a\x12/data/al/proj/a.py", b"\x0a\x12/xxxx/xx/xxxx/a.py"),
        # Devices and names of ops stay, even where a letter before a slash could be a length.
        (b"\x0a\x0d/device:GPU:0", b"\x0a\x0d/device:GPU:0"),
        (NAME, NAME),
    ],
)
def test_whole_paths_leave_traces(content: bytes, expected: bytes | None) -> None:
    redacted = Redactor([]).trace(content)
    assert len(redacted) == len(content)
    if expected is not None:
        assert redacted == expected
    else:
        assert not any(word in redacted for word in (b"tmp", b"train", b"window", b"scratch", b"project"))


def test_traces_keep_their_length() -> None:
    redactor = Redactor(["node-a.corp", "ab"])
    content = b"\x0bnode-a.corp\x32\x00 node-a anode-ab /home/bob/x C:\\Users\\bob\\y /srv/team/z/train.py ab"
    redacted = redactor.trace(content)
    assert len(redacted) == len(content)
    assert b"node-a.corp" not in redacted
    assert b"bob" not in redacted
    assert b"/srv/team" not in redacted
    assert b"train.py" in redacted
    assert b"anode-ab" in redacted
    assert redactor.unsafe_hosts == ["ab"]


# --- foreign zips ------------------------------------------------------------------------------------------


def a_zip(path: Path, files: dict[str, str], schema: str = "mpprof.bundle/1") -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("MANIFEST.json", json.dumps({"schema": schema}))
        for name, content in files.items():
            archive.writestr(name, content)
    return path


@pytest.mark.parametrize("name", ["../escaped", "/escaped", "run/../../escaped", "run\\..\\escaped"])
def test_no_file_is_written_outside(name: str, mpprof: Mpprof, tmp_path: Path) -> None:
    done = mpprof("report", a_zip(tmp_path / "x.zip", {name: "x"}))
    assert done.code == 2
    assert "outside" in done.err
    assert not list(tmp_path.rglob("escaped"))


@pytest.mark.parametrize(
    ("schema", "says"), [("mpprof.bundle/2", "newer"), ("other/1", "not an mpprof bundle")]
)
def test_other_schemas_are_refused(schema: str, says: str, mpprof: Mpprof, tmp_path: Path) -> None:
    done = mpprof("report", a_zip(tmp_path / "x.zip", {}, schema))
    assert done.code == 2
    assert says in done.err


def test_a_zip_without_a_manifest_and_a_damaged_one(mpprof: Mpprof, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("x", "y")
    assert "not an mpprof bundle" in mpprof("report", tmp_path / "x.zip").err
    with zipfile.ZipFile(tmp_path / "model.keras", "w") as archive:
        for name in ("metadata.json", "config.json", "model.weights.h5"):
            archive.writestr(name, "{}")
    assert f"mpprof audit {tmp_path / 'model.keras'}" in mpprof("report", tmp_path / "model.keras").err
    good = a_zip(tmp_path / "y.zip", {"run/x": "z" * 1000}).read_bytes()
    (tmp_path / "y.zip").write_bytes(good[: len(good) // 2])
    assert mpprof("report", tmp_path / "y.zip").code == 2


def test_a_bomb_is_not_unpacked(mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bundle_reading, "MAX_BYTES", 1000)
    done = mpprof("report", a_zip(tmp_path / "x.zip", {"run/x": "z" * 5000}))
    assert done.code == 2
    assert "unpacks to more" in done.err


def test_a_bundle_is_refused_that_unpacks_to_too_many_times_its_size(
    mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bundle_reading, "_CHUNK", 1 << 12)
    path = tmp_path / "x.zip"
    with zipfile.ZipFile(a_zip(path, {}), "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("run/x", bytes(4 << 20))
    done = mpprof("report", path)
    assert done.code == 2
    assert "30 times its size" in done.err
