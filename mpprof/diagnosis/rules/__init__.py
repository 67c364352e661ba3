"""The rules: one file per cause, its docstring is its manual page.

Adding a cause: CONTRIBUTING.md, "A rule".
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from mpprof.diagnosis.outcomes import Rule

ALL = cast(
    "tuple[Rule, ...]", tuple(import_module(f"{__name__}.{each.name}") for each in iter_modules(__path__))
)
"""Every rule, by code: every file here. The engine's result does not depend on the order."""
