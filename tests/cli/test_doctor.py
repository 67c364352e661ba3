"""`mpprof doctor` on this machine, and on machines made up of files."""

import json
from pathlib import Path

import pytest

from mpprof.cli import doctor_checks
from tests.cli.conftest import Mpprof, in_a_process


def test_it_says_what_it_saw(mpprof: Mpprof) -> None:
    done = mpprof("doctor", "--format", "json")
    assert done.code == 0
    document = json.loads(done.out)
    assert document["schema"] == "mpprof.doctor/1"
    checks = {check["name"]: check for check in document["checks"]}
    assert checks["trace reader"]["value"] in ("compiled", "plain Python")
    assert {check["status"] for check in checks.values()} <= {"ok", "info", "missing"}
    for check in checks.values():
        assert check["value"]
        assert check["status"] != "missing" or check["effect"]
    text = mpprof("doctor").out
    assert all(name in text for name in checks)


@pytest.mark.parametrize(
    ("place", "status", "says"),
    [("off", "info", "off"), ("new", "ok", "new"), ("file/x", "missing", "cannot be written")],
)
def test_it_says_where_the_cache_is_and_makes_nothing(
    place: str, status: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("MPPROF_CACHE", place if place == "off" else str(tmp_path / place))
    (check,) = [check for check in doctor_checks.checks() if check.name == "cache"]
    assert check.status == status
    assert says in check.value
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_it_says_which_addresses_can_be_read(monkeypatch: pytest.MonkeyPatch) -> None:
    version = doctor_checks._version
    monkeypatch.setattr(
        doctor_checks, "_version", lambda *names: None if "s3fs" in names else version(*names)
    )
    (check,) = [check for check in doctor_checks.checks() if check.name == "addresses"]
    assert "https://" in check.value
    assert "s3://" in check.effect
    assert "s3fs" in check.next


@pytest.mark.parametrize(
    ("version", "said"), [("2.13.0+cpu", True), ("2.13.0+cu130", False), ("2.13.0", False)]
)
def test_a_torch_built_for_cpus_is_told(version: str, said: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    real = doctor_checks._version
    monkeypatch.setattr(
        doctor_checks, "_version", lambda *names: version if "torch" in names else real(*names)
    )
    found = {check.name: check for check in doctor_checks.checks()}
    assert found["torch"].value == version
    assert ("torch build" in found) is said


CLUSTER = {"cluster": {"chief": ["a:1"], "worker": ["b:1"]}, "task": {"type": "worker", "index": 0}}


@pytest.mark.parametrize(
    ("config", "keras", "status", "value", "unsupported"),
    [
        (json.dumps(CLUSTER), "3.15.1", "info", "2 workers, this one is worker 0", True),
        (json.dumps(CLUSTER), "2.15.0", "info", "2 workers, this one is worker 0", False),
        (
            '{"cluster": {"worker": ["a:1"]}, "task": {"type": "worker", "index": 0}}',
            "3.15.1",
            "info",
            "1 worker, ",
            False,
        ),
        ("no json", "3.15.1", "missing", "not a cluster (JSONDecodeError", False),
        ("[1]", "3.15.1", "missing", "not a cluster (TypeError", False),
        ('{"cluster": {"worker": 3}}', "3.15.1", "missing", "not a cluster (TypeError", False),
    ],
)
def test_several_workers_are_told_what_keras_3_cannot_do(
    config: str, keras: str, status: str, value: str, unsupported: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = doctor_checks._version
    monkeypatch.setattr(doctor_checks, "_version", lambda *names: keras if "keras" in names else real(*names))
    monkeypatch.setenv("TF_CONFIG", config)
    (check,) = [check for check in doctor_checks.checks() if check.name == "TF_CONFIG"]
    assert (check.status, value in check.value) == (status, True)
    assert (
        "fit does not support MultiWorkerMirroredStrategy: train with tf_keras" in check.effect
    ) is unsupported
    monkeypatch.delenv("TF_CONFIG")
    assert "TF_CONFIG" not in {check.name for check in doctor_checks.checks()}


def test_it_imports_no_framework() -> None:
    import subprocess
    import sys

    code = (
        "import sys\nfrom mpprof.cli import doctor_checks\ndoctor_checks.checks()\n"
        "print(*({'tensorflow', 'keras', 'jax', 'torch', 'dash'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""
    assert in_a_process("doctor").code == 0


@pytest.mark.parametrize(
    ("params", "capabilities", "status"),
    [
        ("RmProfilingAdminOnly: 1\n", "0000000000000000", "missing"),
        ("RmProfilingAdminOnly: 1\n", "00000000a80425fb", "missing"),  # docker's default, without SYS_ADMIN
        ("RmProfilingAdminOnly: 1\n", "000001ffffffffff", "ok"),
        ("ResmanDebugLevel: 1\nRmProfilingAdminOnly: 0\n", "0000000000000000", "ok"),
        ("ResmanDebugLevel: 1\n", "0000000000000000", "ok"),
        (None, "0000000000000000", "info"),
    ],
)
def test_profiling_permission(params: str | None, capabilities: str, status: str, tmp_path: Path) -> None:
    if params is not None:
        (tmp_path / "params").write_text(params)
    (tmp_path / "status").write_text(f"Name:\tx\nCapEff:\t{capabilities}\n")
    check = doctor_checks.permission(tmp_path / "params", tmp_path / "status")
    assert check.status == status
    assert (status == "missing") == ("NVreg_RestrictProfilingToAdminUsers=0" in check.next)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"backend": "jax"}'])
def test_keras_settings(content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KERAS_HOME", str(tmp_path))
    monkeypatch.delenv("KERAS_BACKEND", raising=False)
    (tmp_path / "keras.json").write_text(content)
    values = {check.name: check.value for check in doctor_checks.checks()}
    assert values["keras backend"].startswith("jax" if "jax" in content else "tensorflow")
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    values = {check.name: check.value for check in doctor_checks.checks()}
    assert values["keras backend"] == "torch (KERAS_BACKEND)"
