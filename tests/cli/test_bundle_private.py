"""What a bundle must not hold: names of people and places, however they are written; and files of others."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import tempfile
import warnings
import zipfile
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from mpprof import load, traces
from mpprof.cli import bundle_writing
from mpprof.report.redact import Redactor
from tests.cli.conftest import MIXED, Mpprof

LETTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZäöüßéèçñøåłžшлю李雷王田中"
WORD = st.text(LETTERS, min_size=5, max_size=9).map(lambda text: f"Q{text}")
"""Long enough to be found in no other text by chance."""
NAME = st.lists(WORD, min_size=1, max_size=3)
PLACES = ("/home/{}", "/Users/{}", "/mnt/{}", "/media/{}", "/Volumes/{}", "C:\\Users\\{}", "\\\\{}\\share")


@st.composite
def a_path(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A path in a place that people have, and every word in it that tells of them."""
    place = draw(st.sampled_from(PLACES))
    own = draw(NAME) if place != PLACES[-1] else ["filer07x"]
    below = draw(st.lists(NAME, min_size=1, max_size=3))
    slash = "/" if place.startswith("/") else "\\"
    folders = slash.join([place.format(" ".join(own)), *(" ".join(names) for names in below)])
    return f"{folders}{slash}x.csv", [*own, *(word for names in below for word in names)]


def told(path: str) -> list[str]:
    """How texts of programs name a path."""
    plain = path.replace("\\", "/")
    return [
        f"[Errno 2] No such file or directory: {path!r}",
        f"cannot open {path} because it is not there",
        f"--xla_dump_to={path} --xla_gpu_autotune_level=4",
        f"read from {path},12 rows",
        json.dumps({"path": path}),
        f"file://{quote(plain)}",
        quote(f"/home{plain}" if not plain.startswith("/") else plain, safe=""),
        path,
    ]


def as_bytes(word: str) -> set[bytes]:
    escaped = json.dumps(word)[1:-1]
    return {form.encode() for form in (word, quote(word), escaped, escaped.upper(), quote(word).lower())}


def string_field(text: str) -> bytes:
    """A host's name in an XSpace, which holds any text."""
    content, length = text.encode(), b""
    rest = len(content)
    while rest > 0x7F:
        length, rest = length + bytes([rest & 0x7F | 0x80]), rest >> 7
    return b"\x22" + length + bytes([rest]) + content


@settings(max_examples=25, deadline=None, phases=[Phase.generate])
@given(a_path(), st.booleans(), st.booleans())
def test_nothing_of_a_path_is_in_any_byte_of_a_bundle(
    made: tuple[str, list[str]], escaped: bool, binary: bool
) -> None:
    path, words = made
    with tempfile.TemporaryDirectory() as folder:
        run = Path(folder) / "run"
        shutil.copytree(MIXED / "mpprof", run / "mpprof")
        facts = json.loads((run / "mpprof" / "run.json").read_text())
        facts["absent"] |= {f"text {k}": text for k, text in enumerate(told(path))}
        facts["framework"]["xla_flags"] = told(path)[2]
        facts["profile_windows"] = []
        (run / "mpprof" / "run.json").write_text(json.dumps(facts, ensure_ascii=escaped))
        with (run / "mpprof" / "steps.jsonl").open("a") as steps:
            for text in told(path):
                end = {"kind": "recording_end", "step": 3, "reason": text, "t_ns": 1}
                steps.write(json.dumps(end, ensure_ascii=escaped) + "\n")
            steps.write(json.dumps({"kind": "fit_end", "reason": path})[:-2])  # torn
        session = run / "plugins" / "profile" / "t"
        session.mkdir(parents=True)
        if binary:
            (trace,) = MIXED.rglob("*.xplane.pb")
            content = trace.read_bytes() + b"".join(map(string_field, told(path)))
            (session / "host.xplane.pb").write_bytes(content)
        else:
            events = [
                {"ph": "X", "name": f"kernel_{k}", "ts": k, "dur": 1, "pid": 1, "args": {"note": text}}
                for k, text in enumerate(told(path))
            ]
            content = json.dumps({"traceEvents": events}, ensure_ascii=escaped).encode()
            (session / "host.trace.json.gz").write_bytes(gzip.compress(content))
        packed, manifest = bundle_writing.bundle(load(run))
        assert not manifest["left_out"]
        with zipfile.ZipFile(io.BytesIO(packed)) as archive:
            members = {name: archive.read(name) for name in archive.namelist()}
            archive.extractall(Path(folder) / "back")
        (name,) = (name for name in members if "/plugins/" in name)
        if name.endswith(".gz"):
            members[name] = gzip.decompress(members[name])
        assert len(members[name]) == len(content)
        traces.read(Path(folder) / "back" / name)  # it is still a trace
    for member, held in members.items():
        for word in words:
            for form in as_bytes(word):
                assert form not in held, f"{word} in {member}"
                assert form.decode() not in member


ODD = (
    "gcc -I/home/quinn/include",
    "f()/home/quinn/x",
    "</mnt/Kunde Quinn/d>",
    "</srv/quinn/d>",
    "../quinn/secret/x.csv",
    "C:Users\\quinn",
    "D:\\Patient Quinn",
    "/home/bob quinn",
    "/data/Müller, Quinn/scan.csv",
    "/home/bob's quinn/x",
    "//server/quinn/x",
    "~quinn/x",
    "/data/Patient\\ Quinn/x",
    "quinn@gpu-node9",
    "quinn@gpu9",
    "at quinn.corp.example:8080",
)


@pytest.mark.parametrize(
    "text",
    [
        "'…/Quinn Patient/run 1/x' is not there",
        "/mnt/Quinn Meier",
        "\\\\\\\\quinn\\\\share\\\\x",
        "quinn.smith@clinic.example wrote",
        "quinn@clinic.example",
        "<path>=2024/quinn is /data/year=2024/quinn",
        "%2Fdata%2Fquinn%2Fx",
        "connect to 10.128.0.5:8470 or 8.8.8.8:53",
        "of [2001:db8::5]:8470",
        "cannot read <cwd>/Quinn Meier/file.txt or '<logdir>/old quinn'",
        "~/quinn, $HOME/quinn and '~/my quinn'",
        "year=2024/quinn and data/month=05/quinn/part-0",
        "\\\\?\\C:\\Users\\quinn\\x y\\b.txt",
        '{"p": "\\/home\\/quinn\\/x"}',
        "quinn07:/volume1/data, q@quinn:/data/x, git@quinn.example:quinn/x.git",
        "quinn.local:2222",
        *ODD,
    ],
)
def test_texts_that_name_somebody(text: str) -> None:
    redacted = Redactor([]).text(text)
    assert "quinn" not in redacted.lower()
    assert "8470" not in redacted
    trace = Redactor([]).trace(json.dumps({"note": f"a {text}"}).encode())
    assert b"8470" not in trace
    assert b"clinic" not in trace


@pytest.mark.parametrize(
    "text",
    [
        "'/job:localhost/replica:0/task:0/device:GPU:0'",
        "images/s and ms/step",
        "Keras' own 'a/b' doesn't",
        "void cutlass::Kernel<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>(Params)",
        "version 12.4.5.8",
        "ab,bc->ac",
        "fusion.12.3.4.5",
        "a/b, C/d and examples/s, ~5 ms/step, ~0.5/s",
        "jit(train_step)/jvp(dense)/dot_general",
        "f32[128,256]{1,0} and recall@k",
        "model.layers.py:120, block.0.kernel:0",
        "encoder/media/dense",
        "lr=1/2, policy=mixed_float16 and x/y, a ~ b / c",
    ],
)
def test_texts_that_name_nobody_stay(text: str) -> None:
    assert Redactor(["gpunode17"], ["/data/work"], ["alicia"]).text(text) == text


def test_the_runs_own_directory_and_the_users_are_known_wherever_they_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Outside of the places that are homes everywhere, and as words of their own."""
    home = tmp_path / "accounts" / "quillon"
    run = home / "Study Zwölf" / "run"
    shutil.copytree(MIXED, run)
    facts = json.loads((run / "mpprof" / "run.json").read_text())
    facts["absent"]["note"] = f"{run}/x of quillon, in {home}"
    (run / "mpprof" / "run.json").write_text(json.dumps(facts))
    trace = next(run.rglob("*.xplane.pb"))
    note = f"see {run}/x of quillon, quoted {quote(str(home))}"
    trace.write_bytes(trace.read_bytes() + string_field(note))
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("LOGNAME", "quillon")
    packed, _ = bundle_writing.bundle(load(run))
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        for name in archive.namelist():
            held = archive.read(name)
            for word in ("quillon", "Zwölf", "Study", "accounts"):
                assert not any(form in held for form in as_bytes(word)), name


SESSION = "sub My Patient Quill/plugins/profile/alice.quill@corp.example_gpu-node17"


@pytest.mark.parametrize("recorded", [True, False])
def test_the_names_of_sessions_and_hosts_are_in_no_name_of_a_bundle(
    recorded: bool, mpprof: Mpprof, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(MIXED / "mpprof", run / "mpprof")
    facts = json.loads((run / "mpprof" / "run.json").read_text())
    facts["profile_windows"][-1]["trace"] = SESSION
    if not recorded:
        facts["profile_windows"] = []
    (run / "mpprof" / "run.json").write_text(json.dumps(facts))
    trace = next(MIXED.rglob("*.xplane.pb"))
    (run / SESSION).mkdir(parents=True)
    for host in ("gpu-node17.corp.example", "quillhost"):
        shutil.copy(trace, run / SESSION / f"{host}.xplane.pb")
    other = run / "plugins" / "profile" / "of quill"
    if not recorded:
        shutil.copytree(run / SESSION, other)
    _, members = held(mpprof, run, "--all-traces")
    written = " ".join(members) + members["MANIFEST.json"].decode() + members["run/mpprof/run.json"].decode()
    assert not [word for word in ("quill", "Patient", "node17", "corp") if word in written.lower()]
    assert len([name for name in members if name.endswith(".pb")]) == (2 if recorded else 4)
    opened = [
        json.loads(mpprof("report", path, "--format", "json").out) for path in (run, tmp_path / "out.zip")
    ]
    assert opened[0]["steps"] == opened[1]["steps"]
    assert len(opened[0]["hosts"]) == len(opened[1]["hosts"])
    for device in (*opened[0]["time"]["devices"], *opened[1]["time"]["devices"]):
        del device["host"]
    assert opened[0]["time"] == opened[1]["time"]


def test_the_host_that_a_trace_is_named_after_is_in_no_name_of_a_bundle(
    mpprof: Mpprof, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As torch.profiler names it, for the host and the process."""
    events = [{"ph": "X", "name": "k on gpu-node7.corp.example", "ts": 1, "dur": 1, "pid": 1}]
    path = tmp_path / "gpu-node7.corp.example_1234.1700000000.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))
    monkeypatch.chdir(tmp_path)
    done = mpprof("bundle", path)
    assert done.code == 0, done.err
    assert done.out.startswith("trace.mpprof.zip: ")
    with zipfile.ZipFile(tmp_path / "trace.mpprof.zip") as archive:
        for name in archive.namelist():
            assert "node7" not in name
            assert b"node7" not in archive.read(name)


# --- files of others ---------------------------------------------------------------------------------------


@pytest.fixture
def stranger(tmp_path: Path) -> Path:
    """A log directory whose links lead to what is not of the run."""
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "config.json").write_text('{"token": "hunter2"}')
    (secret / "passwd").write_text("hunter2:x:0:0\n" * 50)
    trace = next(MIXED.rglob("*.xplane.pb"))
    shutil.copy(trace, secret / "other.xplane.pb")
    run = tmp_path / "run"
    shutil.copytree(MIXED, run)
    return run


def held(mpprof: Mpprof, run: Path, *more: str) -> tuple[str, dict[str, bytes]]:
    out = run.parent / "out.zip"
    done = mpprof("bundle", run, "-o", out, *more)
    assert done.code == 0, done.err
    with zipfile.ZipFile(out) as archive:
        return done.err, {name: archive.read(name) for name in archive.namelist()}


@pytest.mark.parametrize("to", ["passwd", "other.xplane.pb"])
def test_a_trace_that_is_a_link_out_of_the_run_is_not_packed(mpprof: Mpprof, stranger: Path, to: str) -> None:
    trace = next(stranger.rglob("*.xplane.pb"))
    trace.unlink()
    trace.symlink_to(stranger.parent / "secret" / to)
    said, members = held(mpprof, stranger, "--all-traces")
    assert not any(name.endswith(".pb") for name in members)
    assert not any(b"hunter2" in content for content in members.values())
    if to != "passwd":
        assert "a link that leads out of the run is not followed" in said
        assert "plugins/profile" in said


def test_a_linked_directory_of_sessions_or_records_is_not_packed(mpprof: Mpprof, stranger: Path) -> None:
    outside = stranger.parent / "secret" / "plugins"
    shutil.move(stranger / "plugins", outside)
    (stranger / "plugins").symlink_to(outside)
    worker = stranger.parent / "secret" / "worker"
    shutil.copytree(stranger / "mpprof", worker)
    (stranger / "mpprof" / "worker-1").symlink_to(worker)
    said, members = held(mpprof, stranger)
    assert {name.rpartition("/")[2] for name in members} <= {
        "MANIFEST.json", "run.json", "steps.jsonl", "hardware.jsonl",
    }  # fmt: skip
    assert not any("worker-1" in name for name in members)
    assert "mpprof/worker-1/run.json: a link that leads out of the run is not followed" in said


def test_only_records_of_mpprof_are_packed(mpprof: Mpprof, stranger: Path) -> None:
    folder = stranger / "mpprof"
    shutil.copy(stranger.parent / "secret" / "config.json", folder / "config.json")
    os.link(stranger.parent / "secret" / "config.json", folder / "linked.json")
    (folder / "hardware.jsonl").write_text("hunter2\n")
    (folder / "deeper").mkdir()
    (folder / "deeper" / "run.json").write_text('{"token": "hunter2"}')
    said, members = held(mpprof, stranger)
    assert not any(b"hunter2" in content for content in members.values())
    assert "mpprof/hardware.jsonl: it is not a record of mpprof" in said


def test_a_folder_named_almost_like_a_workers_is_not_packed(mpprof: Mpprof, stranger: Path) -> None:
    """Two spellings of one number would give two members of one name."""
    folder = stranger / "mpprof"
    for name in ("worker-1", "worker-01", "worker-\u0661", "worker-0"):
        (folder / name).mkdir(exist_ok=True)
        shutil.copy(folder / "run.json", folder / name / "run.json")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, members = held(mpprof, stranger)
    assert sorted(name for name in members if "worker" in name) == ["run/mpprof/worker-1/run.json"]


def test_a_file_that_only_begins_as_a_trace_is_not_packed(mpprof: Mpprof, stranger: Path) -> None:
    trace = next(stranger.rglob("*.xplane.pb"))
    trace.write_bytes(trace.read_bytes()[:64] + b"\xff" * 10 + b"hunter2" * 100)
    said, members = held(mpprof, stranger)
    assert not any(b"hunter2" in content for content in members.values())
    assert "left out trace.xplane.pb" in said


@pytest.mark.parametrize("part", ["mpprof/steps.jsonl", "mpprof", "plugins", "trace"])
def test_what_becomes_a_link_once_it_was_looked_at_is_not_followed(
    mpprof: Mpprof, stranger: Path, monkeypatch: pytest.MonkeyPatch, part: str
) -> None:
    """Each time that a path is resolved, its owner puts a link in a part's place as soon as that is answered."""
    secret, trace = stranger.parent / "secret", next(stranger.rglob("*.xplane.pb"))
    place = trace if part == "trace" else stranger / part
    shutil.copytree(stranger / "mpprof", secret / "mpprof")
    shutil.copytree(stranger / "plugins", secret / "plugins")
    for record in (secret / "mpprof").glob("*.json*"):
        record.write_text(record.read_text() + '{"token":"hunter2"}\n')
    for other in secret.rglob("*.xplane.pb"):
        other.write_bytes(other.read_bytes().replace(b"/host:CPU", b"/host:hunter2")[:-1])
    (secret / "steps.jsonl").write_text((secret / "mpprof" / "steps.jsonl").read_text())
    resolve, kept = Path.resolve, stranger.parent / "kept"

    def resolved(self: Path, strict: bool = False) -> Path:
        answer = resolve(self, strict)
        if not place.is_symlink() and answer.is_relative_to(place):
            place.rename(kept)
            place.symlink_to(
                secret / place.relative_to(stranger) if part in ("mpprof", "plugins") else secret / place.name
            )
        return answer

    if part == "trace":
        shutil.copy(next((secret / "plugins").rglob("*.xplane.pb")), secret / trace.name)
    monkeypatch.setattr(Path, "resolve", resolved)
    _, members = held(mpprof, stranger)
    assert place.is_symlink()
    assert not any(b"hunter2" in content for content in members.values())


KEY = "hf_" + "Ab1" * 12
_ENVIRONMENT = {
    "HF_TOKEN": KEY, "DB_PASSWORD": 'pa"ss word', "WANDB_API_KEY": "0123456789abcdef" * 2, "aws_secret_access_key": "q/Z9" * 9,
    "TOKENIZERS_PARALLELISM": "false", "MAX_TOKENS": "4096",
}  # fmt: skip


def test_keys_in_the_environment_that_a_trace_holds_are_overwritten() -> None:
    """A public PyTorch trace has the whole environment of its process in its metadata, with a key to a service."""
    whole = {
        "metadata": {"env": _ENVIRONMENT, "written": json.dumps(_ENVIRONMENT)},
        "traceEvents": [{"name": KEY}],
    }
    before = json.dumps(whole).encode()
    after = Redactor([]).trace(before)
    assert len(after) == len(before)
    found = json.loads(after)
    for env in (found["metadata"]["env"], json.loads(found["metadata"]["written"])):
        assert {env[name].strip("x") for name in list(_ENVIRONMENT)[:4]} == {""}
        assert (env["TOKENIZERS_PARALLELISM"], env["MAX_TOKENS"]) == ("false", "4096")
    assert found["traceEvents"][0]["name"] == "x" * len(KEY)


def test_keys_in_records_are_taken_out() -> None:
    found = Redactor([]).record({"HF_TOKEN": "anything", "note": f"with {KEY} it works", "tokens": "128"})
    assert found == {"HF_TOKEN": "<secret>", "note": "with <secret> it works", "tokens": "128"}


def test_keys_in_a_binary_trace_are_known_by_their_form() -> None:
    content = b"\x0a" + bytes([len(KEY)]) + KEY.encode() + b"\x12\x02ok"
    assert Redactor([]).trace(content) == b"\x0a" + bytes([len(KEY)]) + b"x" * len(KEY) + b"\x12\x02ok"
