"""The table of ops that a trace names, built while its planes are read."""

from __future__ import annotations

from dataclasses import replace

from mpprof.model import limits
from mpprof.model.trace import LIKE, HloInstruction, Op
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.hlo import Modules
from mpprof.traces.common.names import OP

NO_OP = frozenset(("", "XlaModule", "XlaModule:"))
"""What XLA's annotation says where it names no op of the framework."""


class Ops:
    """Rows of distinct ops, in the order of first use. -1 is "no op"."""

    def __init__(self, modules: Modules, strings: Interner) -> None:
        self.modules = modules
        self.strings = strings
        self._rows: dict[tuple[str, str, str, str, int], int] = {}
        self._ops: list[Op] = []
        self._asked = 0

    def warnings(self) -> list[str]:
        """Return warnings about what was not read of the compiled programs."""
        most = limits.MOST_INSTRUCTIONS
        if self._asked <= most:
            return []
        return [
            f"the first {most} of {self._asked} instructions of compiled programs that ran were read; "
            "shapes, types and FLOPs of the others are not known"
        ]

    def table(self) -> tuple[Op, ...]:
        return tuple(self._ops)

    def named(self, text: str) -> int:
        """Return the row of `scope/name:Type`, as TensorFlow writes it; an annotation's `#…#` tail is
        dropped."""
        text = text.partition("#")[0]
        if text in NO_OP:
            return -1
        match = OP.match(text)
        name, type = (match["name"], match["type"]) if match else (text.removesuffix(":"), "")
        return self._row((name, type, "", "", -1), None)

    def of_hlo(self, instruction: str, module: str, program: int, name: str) -> int:
        """Return the row of an HLO instruction; `name` is the framework's name for it where the event states
        one."""
        key = (name, "", instruction, module, program)
        if key in self._rows:
            return self._rows[key]
        self._asked += bool(self.modules)
        known = self._asked <= limits.MOST_INSTRUCTIONS
        hlo = self.modules.instruction(module, program, instruction) if known else None
        if hlo is None:
            return self._row(key, Op(name or instruction, ""))
        # For a fusion the event may state only what the names inside it begin with.
        stated = hlo.op_name if hlo.op_name.startswith(name) else name
        return self._row(key, Op(stated or instruction, hlo.opcode, hlo))

    def like_hlo(self, instruction: str, module: str, program: int, name: str) -> int:
        """Return the row of what is equal to an HLO instruction in types, shapes and FLOPs, and whose own
        name, owner and operands are not known."""
        row = self.of_hlo(instruction, module, program, name)
        hlo = self._ops[row].hlo
        if hlo is None:
            return row
        named = f"{LIKE}{instruction}"
        key = ("", "", named, module, program)
        if key in self._rows:
            return self._rows[key]
        # For matrix work only: reading what the others are made of takes three times as long as the rest.
        equal = self.modules.equal_to(module, program, instruction) if multiplies(hlo) else []
        candidates = tuple(self.of_hlo(each, module, program, "") for each in equal)
        return self._row(key, Op(named, hlo.opcode, _unowned(hlo, named), candidates))

    def with_library_calls(self, row: int, module: str, program: int) -> None:
        """Give the op in this row, which names no instruction, those of its program that call a library."""
        calls = self.modules.library_calls(module, program)
        candidates = tuple(self.of_hlo(each, module, program, "") for each in calls)
        self._ops[row] = replace(self._ops[row], candidates=candidates)

    def without_instruction(self) -> dict[int, tuple[str, int]]:
        """Return the module and the program of each row that names something in a compiled program which is
        none of its instructions, such as a command buffer."""
        return {
            row: (module, program)
            for (_, _, instruction, module, program), row in self._rows.items()
            if instruction and self._ops[row].hlo is None
        }

    def resolve(
        self, tf_op: str, annotation: str, name: str, hlo_op: str, hlo_module: str, program: int
    ) -> int:
        """Return the op of a device event from its stats; the framework's own op comes first."""
        for stated in (tf_op, annotation):
            text = stated.partition("#")[0]
            if text in NO_OP:
                continue
            if not hlo_op:
                return self.named(text)
            match = OP.match(text)
            scope = match["name"] if match else text.removesuffix(":")
            return self.of_hlo(hlo_op, hlo_module, program, scope)
        if hlo_op:
            return self.of_hlo(hlo_op, hlo_module, program, name)
        return self.named(name)

    def _row(self, key: tuple[str, str, str, str, int], op: Op | None) -> int:
        row = self._rows.get(key)
        if row is None:
            row = self._rows[key] = len(self._ops)
            self._ops.append(op or Op(key[0], key[1]))
        return row


def multiplies(hlo: HloInstruction) -> bool:
    """Return whether an instruction, or one that it calls, is a product or a convolution."""
    return hlo.opcode in ("dot", "convolution") or any(map(multiplies, hlo.called))


def _unowned(hlo: HloInstruction, name: str) -> HloInstruction:
    called = tuple(_unowned(inner, inner.name) for inner in hlo.called)
    return replace(hlo, name=name, op_name="", operands=(), called=called)
