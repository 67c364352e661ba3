"""What the packages may import, seen from a running interpreter (the static contracts are in pyproject.toml)."""

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import mpprof

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize("module", ["mpprof.workflows", "mpprof.cli", "mpprof.report.text", "mpprof.traces"])
def test_analysing_imports_no_framework_no_page_and_no_heavy_table(module: str) -> None:
    assert not modules_after(f"import {module}") & (FRAMEWORKS | PAGE | HEAVY)


def test_every_public_name_resolves() -> None:
    for name in mpprof.__all__:
        assert getattr(mpprof, name) is not None
    assert set(mpprof.__all__) <= set(dir(mpprof))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        mpprof.nonsense  # noqa: B018


def test_every_extra_that_the_readme_names_exists() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    assert {"tensorflow", "jax", "torch", "all", "dev"} <= set(extras)
