"""A launched script is run by Python itself: what it sees and how it ends is as without mpprof."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.launch.running import SCRIPTS, Ran, launched, python, surroundings

SEES = """
import atexit, os, sys
sys.path_importer_cache.clear()
main = sys.modules["__main__"]
print(__name__, __file__, __spec__, __package__, sorted(vars(main)), sys.argv, sys.path, os.getcwd())
print({name: value for name, value in os.environ.items() if name not in ("_", "SHLVL")})
print(sys.flags, sys.warnoptions, sys.meta_path[-1], sys.excepthook is sys.__excepthook__)
atexit.register(print, "at exit")
"""


def same(tmp_path: Path, *words: str, **environment: str) -> tuple[Ran, Ran]:
    """What Python and `mpprof run` make of these words; exit code and output are the same."""
    plain = python(*words, cwd=tmp_path, **environment)
    under = launched("--logdir", "logs", *words, cwd=tmp_path, **environment)
    assert (under.code, under.out) == (plain.code, plain.out), under.err
    return plain, under


def test_a_script_sees_what_it_would_see_without_us(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "train.py").write_text(SEES)
    plain, under = same(tmp_path, "folder/train.py", "--epochs", "3", "--quiet", "-m", "--", "x y")
    assert "'--quiet', '-m', '--', 'x y'" in plain.out
    assert "at exit" in plain.out
    assert "imported no framework" in under.err
    assert sorted(os.listdir(tmp_path)) == ["folder"]


def test_a_directory_and_a_link_are_scripts_too(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "__main__.py").write_text(
        "import beside, sys; print(beside, sys.argv, __spec__ is None)"
    )
    (tmp_path / "folder" / "beside.py").touch()
    (tmp_path / "link.py").symlink_to("folder/__main__.py")
    same(tmp_path, "folder", "1")
    same(tmp_path, "link.py", "1")


def test_a_package_pickles_its_classes_and_spawns_workers(tmp_path: Path) -> None:
    (tmp_path / "package").symlink_to(SCRIPTS / "package")
    plain, _ = same(tmp_path, "-m", "package.train", "--epochs", "3")
    assert plain.code == 9
    assert plain.out.startswith("4 3\nA package that trains. __main__ package package.train")


@pytest.mark.parametrize(
    "script",
    [
        "import sys; print(1); sys.exit('a message')",
        "def f():\n    1 / 0\nf()",
        "print(1",
        "import os; os._exit(4)",
    ],
    ids=["message", "error", "syntax", "os._exit"],
)
def test_a_script_ends_as_it_would_without_us(script: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(script)
    plain, under = same(tmp_path, "train.py")
    assert under.err.startswith(plain.err)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_signal_is_the_scripts_own(number: signal.Signals, tmp_path: Path) -> None:
    """The process that was started is the script's, so a signal reaches it once, and it ends by it."""
    (tmp_path / "train.py").write_text(f"import os, time; os.kill(os.getpid(), {number:d}); time.sleep(60)")
    plain, under = same(tmp_path, "train.py")
    assert plain.code == -number
    assert under.err.startswith(plain.err)


def test_a_handler_of_the_scripts_own_is_called(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(
        "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(17))\nprint('ready', flush=True)\nsignal.pause()"
    )
    command = [sys.executable, "-m", "mpprof", "run", "train.py"]
    with subprocess.Popen(
        command, cwd=tmp_path, env=surroundings(), stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "ready\n"
        process.terminate()
        assert process.wait(60) == 17


def test_options_of_python_reach_the_script_and_the_machines_own_sitecustomize_runs(tmp_path: Path) -> None:
    (tmp_path / "site").mkdir()
    (tmp_path / "site" / "sitecustomize.py").write_text("print('the own')")
    (tmp_path / "train.py").write_text(
        "import sys; print(sys.flags.optimize, sys.flags.isolated, sys.path[1:2])"
    )
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path / "site"), str(root)])}
    said = [
        subprocess.run(
            [sys.executable, "-O", *words, "train.py"],
            cwd=tmp_path,
            env=environment,
            capture_output=True,
            text=True,
        ).stdout
        for words in ((), ("-m", "mpprof", "run"))
    ]
    # The second has the own one run twice: for mpprof, and for the script.
    assert said[0].startswith("the own\n1 ")
    assert said[1] == "the own\n" + said[0]


def test_a_script_that_is_not_there_and_none_at_all_are_wrong_usage(tmp_path: Path) -> None:
    assert launched("missing.py", cwd=tmp_path).code == 2
    nothing = launched("--steps", "3", cwd=tmp_path)
    assert (nothing.code, nothing.out) == (2, "")
    assert "no script to run" in nothing.err
    assert launched("--profile", "9:3", "x.py", cwd=tmp_path).code == 2
