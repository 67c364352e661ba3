"""Every name in the code of the table's remedies exists in the framework that it is for, with its arguments."""

from __future__ import annotations

import ast
import importlib
import inspect
from collections.abc import Iterator
from typing import Any

import pytest

from mpprof.cli import NAMES
from mpprof.diagnosis.remedies.choosing import ROWS
from mpprof.diagnosis.remedies.shared_rows import Row
from tests.diagnosis.test_remedies import said

MODULES = {
    "keras": "keras", "tf": "tensorflow", "tf_keras": "tf_keras", "torch": "torch", "jax": "jax",
    "jnp": "jax.numpy", "np": "numpy", "optax": "optax",
}  # fmt: skip
"""How the snippets call the packages that they use."""
WITH_CODE = [row for row in ROWS if row.snippet]


def snippets() -> Iterator[tuple[Row, str, str]]:
    """Yield each row's code as a run of each framework has it, once: row, framework, code."""
    seen = set()
    for row in WITH_CODE:
        for framework in sorted(row.on):
            code = said(row, framework)[1]
            if code not in seen:
                seen.add(code)
                yield row, framework, code


def python(code: str) -> ast.Module | None:
    """The code's syntax tree; None of what is a command of a shell."""
    try:
        return ast.parse(code)
    except SyntaxError:
        return None


def path_of(node: ast.expr) -> tuple[str, ...]:
    """The names of `a.b.c`, () of anything else."""
    names: list[str] = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return (node.id, *reversed(names)) if isinstance(node, ast.Name) else ()


def resolve(path: tuple[str, ...]) -> Any:
    """What the path names. Raises AttributeError where there is no such thing; skips what is not installed."""
    found = pytest.importorskip(MODULES[path[0]])
    name = MODULES[path[0]]
    for part in path[1:]:
        name = f"{name}.{part}"
        try:
            found = getattr(found, part)
        except AttributeError:
            try:
                found = importlib.import_module(name)
            except ImportError:
                raise AttributeError(name) from None
    return found


def takes(function: Any, keyword: str) -> bool:
    """Whether a function or class takes this keyword; yes, where its signature does not say."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return True
    return any(each.name == keyword or each.kind is each.VAR_KEYWORD for each in parameters)


PYTHON = [(row, on, code) for row, on, code in snippets() if python(code) is not None]


@pytest.mark.full
@pytest.mark.parametrize(("row", "on", "code"), PYTHON, ids=[f"{row.code} {on}" for row, on, _ in PYTHON])
def test_what_a_snippet_calls_exists_and_takes_its_arguments(row: Row, on: str, code: str) -> None:
    tree = python(code)
    assert tree is not None
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and (path := path_of(node)) and path[0] in MODULES:
            resolve(path)
        if isinstance(node, ast.Call) and (path := path_of(node.func)) and path[0] in MODULES:
            function = resolve(path)
            missing = [each.arg for each in node.keywords if each.arg and not takes(function, each.arg)]
            assert missing == [], f"{row.code} {on}: {'.'.join(path)}"
        if isinstance(node, ast.Call) and path_of(node.func) == ("model", "compile"):
            keras = pytest.importorskip("keras")
            missing = [
                each.arg for each in node.keywords if each.arg and not takes(keras.Model.compile, each.arg)
            ]
            assert missing == [], f"{row.code} {on}: model.compile"


def test_commands_of_mpprof_in_snippets_exist() -> None:
    named = {
        word.split()[1]
        for _, _, code in snippets()
        for word in code.splitlines()
        if word.startswith("mpprof ")
    }
    assert named
    assert named <= set(NAMES)
