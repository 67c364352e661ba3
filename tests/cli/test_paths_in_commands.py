"""A command that mpprof prints can be copied into a shell, whatever the path is called."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from mpprof import demo, diagnose
from mpprof.cli import NAMES, main
from mpprof.model.shell import program, quoted
from tests.cli.conftest import FLOAT32, MIXED, Mpprof
from tests.paths import SAMPLES

NAME = "its & my $runs"

_A_COMMAND = re.compile(rf"(?:mpprof (?:{'|'.join(NAMES)})|nsys export)\b[^.:\n]*$")


def unquoted(text: str, path: object) -> list[str]:
    """The commands in a text that hold the path as no shell reads it."""
    found = []
    for match in re.finditer(re.escape(str(path)), text):
        before = text[max(0, match.start() - 120) : match.start()]
        if _A_COMMAND.search(before) and not before.endswith("'"):
            found.append(before[-40:] + match[0])
    return found


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Sample runs in a folder whose name has blanks in it and more that a shell does not take as it is."""
    made = tmp_path / NAME
    for run in (FLOAT32, MIXED):
        shutil.copytree(run, made / run.name)
    (trace,) = MIXED.glob("plugins/profile/*/*.xplane.pb")
    shutil.copy(trace, made / "lone.xplane.pb")
    (made / "w.nsys-rep").write_bytes(b"NVTX")
    (made / "not a bundle.zip").write_bytes(b"PK\x03\x04")
    return made


TRIED: dict[str, tuple[tuple[str, ...], ...]] = {
    "demo": (),  # below: it trains
    "serve": (("lone.xplane.pb",),),
    "report": (
        (MIXED.name,), (FLOAT32.name,), ("lone.xplane.pb",), ("w.nsys-rep",), ("not a bundle.zip",), (".",),
        (MIXED.name, "--format", "json"), ("lone.xplane.pb", "--format", "json"), (MIXED.name, "--format", "markdown"),
        (FLOAT32.name, "--format", "html"),
    ),
    "run": (("missing.py",),),  # one that is there takes the place of this process
    "try": (("missing.py",),),
    "numerics": ((MIXED.name,), ("missing",)),
    "ls": ((".",), ("missing",)),
    "survey": ((".",), ("missing",)),
    "check": ((MIXED.name, "--bounds", "missing.toml"),),
    "compare": (("a", "b"), (FLOAT32.name, MIXED.name), ("lone.xplane.pb", MIXED.name, "--format", "json")),
    **dict.fromkeys(("ops", "kernels", "products", "layers", "memory"), ((MIXED.name,), ("missing",))),
    "classify": (),  # it takes no path
    "counters": (("missing.csv", "--run", MIXED.name),),
    "verify": (("--run", "lone.xplane.pb", "--", "true"),),
    "explain": (),
    "audit": (("missing.keras",), ("not a bundle.zip",)),  # one that names a class: see test_saved_model
    "forecast": (("missing.keras", "--card", "t4"),),
    "doctor": (),
    "completion": (),
    "bundle": ((MIXED.name, "-o", "mine.zip"), ("missing",)),
}  # fmt: skip


def test_every_command_that_takes_a_path_is_tried() -> None:
    assert set(TRIED) == set(NAMES)


@pytest.mark.parametrize("command", [name for name, tried in TRIED.items() if tried])
def test_a_path_in_a_printed_command_is_quoted(
    command: str, folder: Path, mpprof: Mpprof, monkeypatch: pytest.MonkeyPatch
) -> None:
    for words in TRIED[command]:
        given = [str(folder / word) if "." in word or (folder / word).exists() else word for word in words]
        done = mpprof(command, *given)
        assert unquoted(done.out + done.err, folder) == []
        monkeypatch.chdir(folder.parent)
        relative = [word.replace(str(folder), NAME) for word in given]
        done = mpprof(command, *relative, *(["--force"] if "-o" in words else []))
        assert unquoted(done.out + done.err, NAME) == []


def test_the_commands_of_a_report_can_be_copied(folder: Path, mpprof: Mpprof) -> None:
    run = folder / MIXED.name
    out = mpprof("report", run, "-v").out
    (line,) = re.findall(r"mpprof report .* --baseline BASE\b", out)
    assert shlex.split(line) == ["mpprof", "report", str(run), "--baseline", "BASE"]
    document = mpprof("report", run, "--format", "json").out
    assert f"mpprof compare {quoted(run)} RUN_WITH_TWICE_THE_BATCH" in document
    # Not even a line that is wrapped breaks it.
    assert f"mpprof report {quoted(run)}" in re.sub(r"mpprof\s+report\s+", "mpprof report ", out)


def test_the_command_for_the_rest_is_the_one_that_was_given(folder: Path, mpprof: Mpprof) -> None:
    given = ["report", str(folder / MIXED.name), "--run", "latest", "--baseline", str(folder / FLOAT32.name)]
    (line,) = [each for each in mpprof(*given).out.splitlines() if each.startswith("mpprof report")]
    command = line.partition("   ")[0]
    assert sorted(shlex.split(command)) == sorted(["mpprof", *given, "-v"])
    assert "Checked and clear" in mpprof(*shlex.split(command)[1:]).out
    pair = [str(folder / FLOAT32.name), str(folder / MIXED.name)]
    (line,) = [
        each for each in mpprof("compare", *pair).out.splitlines() if each.startswith("mpprof compare")
    ]
    assert shlex.split(line.partition("   ")[0]) == ["mpprof", "compare", *pair, "-v"]


def test_a_bundle_goes_by_the_name_that_was_given(folder: Path, mpprof: Mpprof) -> None:
    bundle = folder / "for a colleague.zip"
    assert mpprof("bundle", folder / MIXED.name, "-o", bundle).code == 0
    assert zipfile.is_zipfile(io.BytesIO(bundle.read_bytes()))
    assert f"mpprof report {quoted(bundle)} -v" in mpprof("report", bundle).out


@pytest.mark.skipif(shutil.which("sh") is None, reason="no shell")
def test_the_demos_commands_run_as_printed(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the directory that the demo was called in, by the program that it was called as."""
    called = Path(sys.executable).with_name("mpprof")
    if not called.is_file():
        pytest.skip("mpprof is not installed as a program")
    monkeypatch.setattr(sys, "argv", [os.path.relpath(called, folder)])
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    monkeypatch.chdir(folder)

    def trained(name: str, directory: Path) -> None:
        shutil.copytree(SAMPLES / ("recorded-cpu-float32" if "mixed" not in name else MIXED.name), directory)
        records = directory / "mpprof" / "run.json"
        records.write_text(json.dumps(json.loads(records.read_text()) | {"run_id": name}))

    monkeypatch.setattr(demo, "train", trained)
    monkeypatch.setattr(demo, "launch", lambda words: None)
    demo.run(Path("it's here"), main, serve=False, port=0)
    out = capsys.readouterr().out
    printed = [line.removeprefix("$ ") for line in out.splitlines() if line.startswith(("$ ", "../"))]
    assert len(printed) > 10
    assert all(line.startswith("../") for line in printed)
    assert unquoted(out, "it's here") == []
    for command in sorted({line.partition("   ")[0] for line in printed}):
        if any(f"{word} --logdir" in command for word in (" run", " try")) or " serve " in command:
            continue  # these train, and do not end
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
        assert done.returncode == 0, (command, done.stderr)


@pytest.mark.parametrize(
    ("called", "on_the_path", "says"),
    [
        ("{bin}/mpprof", "{bin}", "mpprof"),
        ("{bin}/mpprof", "/nowhere", "'{bin}/mpprof'"),
        ("/lib/mpprof/__main__.py", "/nowhere", "{python} -m mpprof"),
        ("train.py", "/nowhere", "mpprof"),
        ("/project/__main__.py", "/nowhere", "mpprof"),
    ],
)
def test_mpprof_goes_by_what_it_was_called(
    called: str, on_the_path: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = tmp_path / "my tools"
    place.mkdir()
    (place / "mpprof").touch(mode=0o755)
    names = {"bin": place, "python": sys.executable}
    monkeypatch.setattr(sys, "argv", [called.format(**names)])
    monkeypatch.setenv("PATH", on_the_path.format(**names))
    assert program() == says.format(**names)


@pytest.mark.full
@pytest.mark.framework
def test_the_demo_finds_and_mends_its_slow_input(tmp_path: Path) -> None:
    for name in (demo.SLOW, demo.MENDED):
        demo.train(name, tmp_path / name)
    slow, mended = (diagnose(tmp_path / name).document() for name in (demo.SLOW, demo.MENDED))
    (found,) = [each for each in slow["findings"] if each["code"] == "MP301"]
    assert ".cache()" in found["remedy"]
    assert slow["facts"]["step_ns"] > 2 * mended["facts"]["step_ns"]


@pytest.mark.skipif(shutil.which("bash") is None, reason="bash is not installed")
@pytest.mark.parametrize(
    "path", ["plain/run", "a b", "it's", "-x", "tab\there", "line\nbreak", "ü $HOME `id` \\"]
)
def test_a_shell_reads_back_what_was_quoted(path: str) -> None:
    printed = subprocess.run(["bash", "-c", f"printf %s {quoted(path)}"], capture_output=True, check=True)
    assert printed.stdout.decode() == path
    assert "\n" not in quoted(path)
