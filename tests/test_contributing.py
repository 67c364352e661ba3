"""Each of the examples is whole: it is added to a copy of the tree, and its test passes there.

Also the functions that docs/ARCHITECTURE.md names exist.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.paths import ROOT

EXAMPLES = ROOT / "examples"
PARTS = sorted(path.parent for path in EXAMPLES.glob("*/changes.diff"))
READ_ALL_PARTS = (
    "tests/test_contributing.py::test_the_architecture_is_one_page",
    "tests/test_contributing.py::test_the_architecture_lists_every_folder_and_every_module_that_is_in_none",
    "tests/fuzz/test_files.py::test_no_damage_is_more_than_one_clear_error[kernel-list]",
    "tests/test_docs.py::test_the_table_of_formats_in_the_docs_has_each_reader",
    "tests/diagnosis/test_manual.py",
    "tests/diagnosis/test_remedies.py::test_every_row_is_of_a_rule_or_of_what_is_to_be_recorded",
    "tests/diagnosis/test_remedies.py::test_every_value_is_filled_in",
    "tests/record/test_remedies_cure.py::test_every_cause_is_tried_or_has_a_reason_why_not",
    "tests/planted/test_promises.py::test_each_planted_cause_with_a_switch_among_its_remedies_has_a_case_above",
    "tests/dashboards/test_app.py::test_every_page_of_the_folder_is_registered_once",
)
"""Tests that a new part has to pass beside its own."""
_FILE_OF_DIFF = re.compile(r"^--- a/(\S+)\n\+\+\+ b/\1\n((?:[-+](?!-- a/|\+\+ b/).*\n)+)", re.MULTILINE)


def changed(text: str, diff: str) -> str:
    """The text with each run of "-" lines, which must be in it, replaced by the "+" lines after it."""
    for old, new in re.findall(r"((?:^-.*\n)+)((?:^\+.*\n)+)", diff, re.MULTILINE):
        before, after = (re.sub(r"^[-+]", "", side, flags=re.MULTILINE) for side in (old, new))
        assert before in text, f"no such lines any more: {before}"
        text = text.replace(before, after)
    return text


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree with all examples added, so that one does not spoil another."""
    copy = tmp_path_factory.mktemp("tree")
    ignored = shutil.ignore_patterns("__pycache__", "golden", "*.c", "build")
    for folder in ("mpprof", "dashboards", "tests", "docs", "examples"):
        shutil.copytree(ROOT / folder, copy / folder, ignore=ignored)
    for path in (ROOT / "pyproject.toml", *ROOT.glob("*.md")):
        shutil.copy(path, copy)
    for part in PARTS:
        for source in part.rglob("*.py"):
            path = copy / source.relative_to(part)
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, path)
        diff = (part / "changes.diff").read_text()
        files = _FILE_OF_DIFF.findall(diff)
        assert "".join(f"--- a/{name}\n+++ b/{name}\n{lines}" for name, lines in files) == diff
        for name, lines in files:
            (copy / name).write_text(changed((copy / name).read_text(), lines))
    return copy


def test_every_example_is_named_and_is_one_file_one_test_and_its_lines() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    parts = [part.name for part in PARTS]
    assert parts == sorted(re.findall(r"\(`examples/(\w+)`\)", text))
    for part in parts:
        folders = sorted(
            "tests" if "tests" in path.parts else "code"
            for path in (EXAMPLES / part).rglob("*.py")
            if path.name != "__init__.py"
        )
        assert folders == ["code", "tests"]


def test_the_examples_pass_their_tests(tree: Path) -> None:
    tests = [path.relative_to(part).as_posix() for part in PARTS for path in part.glob("tests/**/*.py")]
    assert len(tests) == 5
    paths = os.pathsep.join((str(tree), str(tree / "dashboards")))
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", *tests, *READ_ALL_PARTS],
        cwd=tree, env=os.environ | {"PYTHONPATH": paths}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"{name} ." in done.stdout for name in tests)


def test_the_file_that_is_named_for_a_causes_remedies_has_them() -> None:
    named = re.findall(r"`rows_of_(\w+)\.py`\s+\(([^)]*)\)", (ROOT / "CONTRIBUTING.md").read_text())
    folder = ROOT / "mpprof" / "diagnosis" / "remedies"
    assert {f"rows_of_{name}.py" for name, _ in named} == {path.name for path in folder.glob("rows_of_*.py")}
    for name, codes in named:
        text = (folder / f"rows_of_{name}.py").read_text()
        assert set(re.findall(r'\bRow\(\s*"(MP\d)\d\d"', text)) == set(codes.split(", ")), name


def test_the_functions_that_the_architecture_names_exist() -> None:
    named = re.findall(r"`(mpprof[\w.]*):([\w.]+)`", (ROOT / "docs" / "ARCHITECTURE.md").read_text())
    assert len(named) > 20
    for module, name in named:
        path = ROOT / module.replace(".", "/")
        body = ast.parse(
            next(p for p in (path / "__init__.py", path.with_suffix(".py")) if p.exists()).read_text()
        ).body
        for part in name.split("."):
            found = [node for node in body if getattr(node, "name", None) == part]
            assert found, f"{module}:{name}"
            body = getattr(found[0], "body", [])


def _tree() -> list[str]:
    """Paths of the architecture's tree, with a slash at the end of a folder."""
    text = (ROOT / "docs" / "ARCHITECTURE.md").read_text()
    paths: list[str] = []
    above: list[str] = []
    for line in text.partition("```text\n")[2].partition("```")[0].splitlines():
        indent = (len(line) - len(line.lstrip())) // 2
        above = above[:indent]
        names = re.match(r"\s*((?:[\w.]+\.py\s+)+|[\w.<>]+/)", line)
        assert names is not None, line
        paths += ["".join([*above, name]) for name in names[1].split()]
        above.append(names[1])
    return paths


def test_the_architecture_is_one_page() -> None:
    lines = (ROOT / "docs" / "ARCHITECTURE.md").read_text().splitlines()
    assert len(lines) <= 90, (
        f"docs/ARCHITECTURE.md has {len(lines)} lines and is to stay one page of 90: put two small folders or "
        "modules on one line, or leave out a step of a way"
    )
    assert not [line for line in lines if len(line) > 120 and not line.startswith("|")]


def test_the_architecture_lists_every_folder_and_every_module_that_is_in_none() -> None:
    """Folders of formats, each with its `reader.py`, share a line."""
    listed = [path for path in _tree() if path.startswith("mpprof/") and "<" not in path]
    folders = {
        path.parent.relative_to(ROOT).as_posix() + "/"
        for path in ROOT.joinpath("mpprof").rglob("*.py")
        if not (path.parent / "reader.py").exists()
    }
    modules = {
        path.relative_to(ROOT).as_posix()
        for path in ROOT.joinpath("mpprof").glob("*.py")
        if not path.name.startswith("_")
    }
    wrong = set(listed) ^ (folders | modules)
    assert not wrong, f"add to the tree of docs/ARCHITECTURE.md, or take out there: {sorted(wrong)}"
    assert len(listed) == len(set(listed))
