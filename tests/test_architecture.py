"""What the packages may import, seen from a running interpreter (the static contracts are in pyproject.toml)."""

import ast
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

import mpprof
from tests.paths import ROOT

FRAMEWORKS = {"keras", "tf_keras", "tensorflow", "jax", "torch", "xprof"}
PAGE = {"dash", "plotly", "flask"}
HEAVY = {"polars", "rich", "pandas"}


def modules_after(code: str) -> set[str]:
    """Top-level modules that a fresh interpreter has loaded after running `code`."""
    code += "\nimport sys; print(' '.join({name.partition('.')[0] for name in sys.modules}))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines()[-1].split())


def test_importing_mpprof_imports_no_framework_and_no_page() -> None:
    loaded = modules_after("import mpprof")
    assert "mpprof" in loaded
    assert not loaded & (FRAMEWORKS | PAGE | HEAVY)
    assert "numpy" not in loaded


@pytest.mark.parametrize(
    "module", ["mpprof.api.workflows", "mpprof.cli", "mpprof.report.text", "mpprof.traces"]
)
def test_analysing_imports_no_framework_no_page_and_no_heavy_table(module: str) -> None:
    assert not modules_after(f"import {module}") & (FRAMEWORKS | PAGE | HEAVY)


def test_each_command_is_in_the_file_of_its_name() -> None:
    from mpprof import cli

    assert [cli.command(name).name for name in cli.NAMES] == list(cli.NAMES)


SLOW_TO_IMPORT = {
    "asyncio", "concurrent", "email", "hashlib", "html", "http", "multiprocessing", "numpy.ma",
    "random", "sqlite3", "tempfile", "zipfile",
}  # fmt: skip
"""Each takes as long as many modules of ours, and a report of one xplane needs none of them."""


@pytest.mark.parametrize(
    "arguments", [("--version",), ("report", "SAMPLE", "--format", "json", "-o", "FILE")]
)
def test_a_report_imports_nothing_that_it_does_not_use(arguments: tuple[str, ...], tmp_path: Path) -> None:
    places = {"SAMPLE": "sample_traces/v100-convnet-mixed-float16", "FILE": str(tmp_path / "report.json")}
    given = [places.get(word, word) for word in arguments]
    code = (
        "import atexit, sys\nfrom mpprof.cli import main\n"
        "atexit.register(lambda: print('\\n', *sys.modules))\n"
        f"main({given!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    loaded = set(done.stdout.splitlines()[-1].split())
    assert "mpprof.cli" in loaded
    assert not loaded & SLOW_TO_IMPORT


def test_every_public_name_resolves() -> None:
    for name in mpprof.__all__:
        assert getattr(mpprof, name) is not None
    shown = {name for name in dir(mpprof) if not name.startswith("__")}
    assert shown == {"errors", *mpprof.__all__} - {"__version__"}


def test_errors_have_their_names_after_the_one_import() -> None:
    code = "import mpprof; assert issubclass(mpprof.errors.NotFoundError, mpprof.errors.MpprofError)"
    subprocess.run([sys.executable, "-c", code], check=True, cwd=ROOT)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mpprof.nonsense  # noqa: B018


def test_every_extra_that_the_readme_names_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"tensorflow", "jax", "torch", "all", "dev"} <= set(extras)


def test_every_folder_is_in_an_import_contract_or_below_one_that_is() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    named = {
        module
        for contract in contracts
        for key in ("source_modules", "forbidden_modules", "modules", "layers")
        for text in contract.get(key, ())
        for container in contract.get("containers", ("",))
        for module in (f"{container}.{part.strip(' ()')}".strip(".") for part in re.split("[|:]", text))
    }
    folders = {path.parent.relative_to(ROOT) for path in ROOT.joinpath("mpprof").rglob("*.py")} - {
        Path("mpprof")
    }
    above = {folder: {".".join(each.parts) for each in (folder, *folder.parents)} for folder in folders}
    assert [folder for folder, names in above.items() if not names & named] == []


def sources() -> dict[str, Path]:
    """Every module of both packages by its dotted name."""
    found = {}
    for root, top in ((ROOT, "mpprof"), (ROOT / "dashboards", "mpprof_dashboards")):
        for path in (root / top).rglob("*.py"):
            parts = path.relative_to(root).with_suffix("").parts
            found[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    return found


def imported(path: Path, modules: dict[str, Path]) -> set[str]:
    """What a file imports of both packages, also within functions; not what only a type checker reads."""
    found, waiting = set(), list(ast.parse(path.read_text()).body)
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            waiting += node.orelse
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
            found |= {name if name in modules else str(node.module) for name in names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        else:
            waiting += ast.iter_child_nodes(node)
    return found & set(modules)


def test_no_files_import_each_other_in_a_circle() -> None:
    modules = sources()
    left = {name: imported(path, modules) for name, path in modules.items()}
    while ends := [name for name, needs in left.items() if not needs & set(left)]:
        for name in ends:
            del left[name]
    assert not left, "these import each other, or something that does"


def test_every_dependency_of_the_core_is_imported_somewhere() -> None:
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["dependencies"]
    sources = [path for folder in ("mpprof", "dashboards") for path in (ROOT / folder).rglob("*.py")]
    code = "\n".join(path.read_text(encoding="utf-8") for path in sources)
    imported = set(re.findall(r"^\s*(?:import|from) (\w+)", code, re.MULTILINE))
    modules: dict[str, set[str]] = {}
    for module, distributions in packages_distributions().items():
        for name in distributions:
            modules.setdefault(name.lower().replace("_", "-"), set()).add(module)
    names = [re.split(r"[\[<>=]", requirement)[0] for requirement in declared]
    assert [name for name in names if not modules[name] & imported] == []


def test_a_python_of_ours_is_started_in_one_place() -> None:
    """One that is started elsewhere would look for modules in the current directory."""
    users = {name for name, path in sources().items() if "sys.executable" in path.read_text()}
    scripts = {"mpprof.launch.command"}  # a script of the user's, which looks where it would without us
    assert users == {"mpprof.child", "mpprof.model.shell", "mpprof.record.run_with_timeout", *scripts}


def test_no_room_is_above_its_budget() -> None:
    """`python tools/size.py` prints every figure."""
    done = subprocess.run(
        [sys.executable, "tools/size.py"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    raised = "write less, or raise its line in tools/size.py in the same commit, with the reason in the commit's body"
    assert done.returncode == 0, f"{raised}\n{done.stdout}{done.stderr}"
