"""The tables of a run by name, as `model.source.RunTables` asks, from one way to make any of them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, cast

if TYPE_CHECKING:
    from mpprof.api import workflows
    from mpprof.model import document as doc


class TableMethods(ABC):
    """`in_steps`: over the whole steps of the trace alone, where it has any; else over the whole trace."""

    def kernels(self, run: str, *, in_steps: bool = False) -> list[doc.KernelRow]:
        return cast("list[doc.KernelRow]", self._rows(run, "kernels", in_steps))

    def ops(self, run: str, *, in_steps: bool = False) -> list[doc.OpRow]:
        return cast("list[doc.OpRow]", self._rows(run, "ops", in_steps))

    def layers(self, run: str, *, in_steps: bool = False) -> list[doc.LayerRow]:
        return cast("list[doc.LayerRow]", self._rows(run, "layers", in_steps))

    @abstractmethod
    def _rows(self, run: str, kind: workflows.TableKind, in_steps: bool) -> Any:
        """Return the rows of a table."""
