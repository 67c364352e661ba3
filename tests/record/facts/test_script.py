"""The script that trains here, as a command names it."""

from __future__ import annotations

import json
import sysconfig
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import pytest

from mpprof import diagnose
from mpprof.record.facts.process import script_of
from tests.paths import SAMPLES


def main(path: str | None, name: str | None = None) -> ModuleType:
    module = ModuleType("__main__")
    module.__spec__ = None if name is None else ModuleSpec(name, None)
    if path is not None:
        module.__file__ = path
    return module


def test_a_script_is_named_as_in_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    here = str(tmp_path / "work")
    assert script_of(main(f"{here}/src/train.py")) == "src/train.py"
    assert script_of(main(f"{here}/src/package/train.py", "package.train")) == "-m package.train"
    assert script_of(main(f"{here}/package/__main__.py", "package.__main__")) == "-m package"
    assert script_of(main(f"{here}/folder/__main__.py", "__main__")) == "folder"
    assert script_of(main(f"{tmp_path}/secret/train.py")) == "train.py"


def test_what_is_no_script_of_the_users_has_no_name() -> None:
    assert script_of(main(None)) is None
    assert script_of(main("/usr/bin/ipython")) is None
    installed = Path(sysconfig.get_path("purelib")) / "ipykernel_launcher.py"
    assert script_of(main(str(installed), "ipykernel_launcher")) is None
    assert script_of() is None  # of these tests


@pytest.mark.parametrize(
    ("recorded", "shown"),
    [
        ("src/fine tune.py", "mpprof try 'src/fine tune.py' measures it"),
        ("-m package.train", "mpprof try -m package.train measures it"),
        ("-m a; rm -rf b", "mpprof try -m 'a; rm -rf b' measures it"),
        (f"{'x' * 99}.py", "mpprof try train.py measures it"),
        (3, "mpprof try train.py measures it"),
    ],
)
def test_the_report_names_the_script_that_was_recorded(recorded: object, shown: str, tmp_path: Path) -> None:
    sample = SAMPLES / "v100-odd-vocabulary-mixed-float16" / "mpprof"
    facts = json.loads((sample / "run.json").read_text())
    (tmp_path / "mpprof").mkdir()
    (tmp_path / "mpprof" / "run.json").write_text(json.dumps({**facts, "script": recorded}))
    (tmp_path / "mpprof" / "steps.jsonl").write_bytes((sample / "steps.jsonl").read_bytes())
    document = json.dumps(diagnose(tmp_path).document(), ensure_ascii=False)
    assert shown in document.replace('\\"', '"')
