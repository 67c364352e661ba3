"""What `help()` shows of the public names: every argument, attribute, property and method is described."""

from __future__ import annotations

import inspect
import re
from dataclasses import fields, is_dataclass

import pytest

import mpprof

NAMES = [name for name in mpprof.__all__ if name != "__version__"]
RETURNED = ("Comparison", "Diagnosis", "Run", "Table")
"""Made by functions: users give them no arguments."""


def described(name: str, heading: str) -> set[str]:
    """Names before a colon, alone or several, below this heading of the docstring."""
    below = (inspect.getdoc(getattr(mpprof, name)) or "").partition(f"{heading}:\n")[2].partition("\n\n")[0]
    found = re.findall(r"^    (\w+(?:, \w+)*):", below, re.MULTILINE)
    return {each for names in found for each in names.split(", ")}


@pytest.mark.parametrize("name", [name for name in NAMES if name not in RETURNED])
def test_every_argument_is_described(name: str) -> None:
    assert set(inspect.signature(getattr(mpprof, name)).parameters) == described(name, "Args")


@pytest.mark.parametrize("name", RETURNED)
def test_every_attribute_is_described(name: str) -> None:
    kind = getattr(mpprof, name)
    names = {each.name for each in fields(kind)} if is_dataclass(kind) else {"kind"}
    assert names <= described(name, "Attributes")


@pytest.mark.parametrize("name", NAMES)
def test_every_method_and_property_is_described(name: str) -> None:
    kind = getattr(mpprof, name)
    for member, value in inspect.getmembers(kind) if inspect.isclass(kind) else ():
        function = getattr(value, "fget", value)
        if not member.startswith(("_", "on_")) and str(getattr(function, "__module__", "")).startswith(
            "mpprof"
        ):
            assert inspect.getdoc(value), f"{name}.{member}"
