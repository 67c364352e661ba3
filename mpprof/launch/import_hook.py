"""Calls a function once a module has been imported, whoever imports it."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType

Then = Callable[[ModuleType], None]


class ImportHook:
    """Stands first among Python's finders. It finds nothing itself: it has the loader that another one finds
    tell of the end of the import. One that fails may be tried again by the script.

    `then` are the functions by a module's name; each is called once, at once for what is imported already."""

    def __init__(self, then: dict[str, Then]) -> None:
        self._waiting = dict(then)

    def install(self) -> None:
        for name in [name for name in self._waiting if name in sys.modules]:
            self._waiting.pop(name)(sys.modules[name])
        sys.meta_path.insert(0, self)

    def remove(self) -> None:
        self._waiting.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that another finder returns, for a module that is waited for; else None."""
        if name not in self._waiting:
            return None
        for finder in [each for each in sys.meta_path if each is not self and hasattr(each, "find_spec")]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                self._follow(name, spec)
                return spec
        return None

    def _follow(self, name: str, spec: ModuleSpec) -> None:
        """Have the loader call `then` behind its own work. It stays the loader that it is: what is set on it
        goes again."""
        loader = spec.loader
        execute = getattr(loader, "exec_module", None)
        if execute is None or not hasattr(loader, "__dict__"):
            return

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            execute(module)
            then = self._waiting.pop(name, None)
            if then is not None:
                then(module)

        vars(loader)["exec_module"] = exec_module
