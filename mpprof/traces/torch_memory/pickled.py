"""Pickles that hold lists, dictionaries, texts and numbers, and nothing that runs.

Python's own unpickler imports what a file names and calls it, and a few bytes (an index of its memo) make it
take any amount of memory. This one knows the opcodes of plain data alone (protocols 2 to 5; `pickletools` has
them all) and refuses every other one where it stands. Each byte costs a bounded amount of time and memory:
keys are texts, whose hashes a file cannot choose, and numbers are short.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

_DEEPEST = 1_000
"""Marks that are open at one time; a snapshot has some ten."""
_OF_SMALL, _BYTES_OF_ONE = 1_000, 8
"""Lists, dictionaries and entries of the memo: so many, or one for each so many bytes of a larger pickle; an
event of a snapshot takes 60 bytes and more. So no byte takes more than 24 of memory."""


class NotPlainError(ValueError):
    """Bytes that are no plain data; the text says why, and at which byte."""


def plain(data: bytes) -> tuple[Any, str | None]:
    """Return what a pickle holds, and why the rest of it could not be read: None where it is whole.

    Of a pickle that is cut off this is what its outermost list or dictionary held by then. Raises
    NotPlainError for an opcode that is not plain data's, and where nothing was read.
    """
    machine = _Machine(data)
    try:
        machine.run()
    except (struct.error, IndexError, KeyError, TypeError) as error:
        if (left := machine.outermost()) is None:
            raise NotPlainError(f"byte {machine.at} is damaged: {type(error).__name__}") from error
        return left, f"the pickle is cut off or damaged at byte {machine.at}"
    return machine.stack[-1] if machine.stack else None, None


class _Machine:
    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0
        self.stack: list[Any] = []
        self.below: list[list[Any]] = []  # the stacks that marks have put aside
        self.memo: dict[int, Any] = {}
        self.left = _OF_SMALL + len(self.data) // _BYTES_OF_ONE

    def run(self) -> None:
        """Run to the end. The opcodes that an event of a snapshot consists of stand here, the others in a
        table, which takes longer."""
        data, others, whole = self.data, _OPCODES, int.from_bytes
        while True:
            code = data[self.at]
            self.at += 1
            if code == _GET:
                self.stack.append(self.memo[data[self.at]])
                self.at += 1
            elif code == _LONG_GET:
                self.stack.append(self.memo[whole(data[self.at : self.at + 4], "little")])
                self.at += 4
            elif code == _LONG:
                end = self.at + 1 + data[self.at]
                self.stack.append(whole(data[self.at + 1 : end], "little", signed=True))
                self.at = end
            elif code == _MEMOIZE:
                self.remember(len(self.memo))
            elif code in others:
                others[code](self)
            elif code == _STOP:
                return
            else:
                raise NotPlainError(f"the opcode {code:#04x} at byte {self.at - 1} is not of plain data")

    def outermost(self) -> Any:
        """Return the list or dictionary that came first, with all that belongs to it so far."""
        levels = [*self.below, self.stack]
        for outer, inner in zip(reversed(levels[:-1]), reversed(levels[1:]), strict=True):
            _put(outer[-1] if outer else None, inner)
        root, *rest = levels[0] or [None]
        _put(root, rest)
        return root if isinstance(root, (list, dict)) else None

    def take(self, count: int) -> bytes:
        """Return the next bytes. Raises IndexError where there are fewer."""
        end = self.at + count
        if end > len(self.data):
            raise IndexError
        found = self.data[self.at : end]
        self.at = end
        return found

    def count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise NotPlainError(f"more lists at byte {self.at - 1} than data of this size has")

    def remember(self, index: int) -> None:
        self.count()
        self.memo[index] = self.stack[-1]

    def number(self, form: str) -> Any:
        (value,) = struct.unpack_from(form, self.data, self.at)
        self.at += struct.calcsize(form)
        return value

    def since_mark(self) -> list[Any]:
        found, self.stack = self.stack, self.below.pop()
        return found


def _put(holder: Any, values: list[Any]) -> None:
    """Put the values that a damaged pickle left on the stack into the list or dictionary before them. What
    stands in a dictionary between a list and the next key was on its way into that list."""
    if isinstance(holder, list):
        holder.extend(values)
    elif isinstance(holder, dict):
        key, inner = None, None
        for value in values:
            if key is not None:
                holder[key], key, inner = value, None, value
            elif isinstance(value, str):
                key = value
            elif isinstance(inner, list):
                inner.append(value)


def _set(holder: dict[str, Any], pairs: list[Any]) -> None:
    keys = pairs[::2]
    if any(type(key) is not str for key in keys) or len(pairs) % 2:
        raise TypeError
    holder.update(zip(keys, pairs[1::2], strict=True))


def _mark(machine: _Machine) -> None:
    if len(machine.below) >= _DEEPEST:
        raise NotPlainError(f"{_DEEPEST} levels at byte {machine.at - 1}")
    machine.below.append(machine.stack)
    machine.stack = []


def _append(machine: _Machine, values: list[Any]) -> None:
    holder = machine.stack[-1]
    if type(holder) is not list:
        raise TypeError
    holder.extend(values)


def _setitem(machine: _Machine, values: list[Any]) -> None:
    holder = machine.stack[-1]
    if type(holder) is not dict:
        raise TypeError
    _set(holder, values)


def _last(machine: _Machine, count: int) -> list[Any]:
    if len(machine.stack) < count:
        raise IndexError
    found = machine.stack[-count:]
    del machine.stack[-count:]
    return found


def _push(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def run(machine: _Machine) -> None:
        made = make(machine)  # which may take another stack
        machine.stack.append(made)

    return run


def _made(make: Callable[[_Machine], Any]) -> Callable[[_Machine], None]:
    def run(machine: _Machine) -> None:
        machine.count()
        made = make(machine)
        machine.stack.append(made)

    return run


def _text(form: str) -> Callable[[_Machine], str]:
    return lambda machine: str(machine.take(machine.number(form)), "utf-8", "replace")


_STOP, _GET, _LONG_GET, _LONG, _MEMOIZE = ord("."), ord("h"), ord("j"), 0x8A, 0x94
_OPCODES: dict[int, Callable[[_Machine], None]] = {
    0x80: lambda machine: machine.number("<B"),  # the protocol
    0x95: lambda machine: machine.number("<Q"),  # how long a frame is, which no reading needs
    ord("("): _mark,
    ord("]"): _made(lambda _: []),
    ord("}"): _made(lambda _: {}),
    ord(")"): _push(lambda _: ()),
    ord("t"): _made(lambda machine: tuple(machine.since_mark())),
    0x85: _made(lambda machine: tuple(_last(machine, 1))),
    0x86: _made(lambda machine: tuple(_last(machine, 2))),
    0x87: _made(lambda machine: tuple(_last(machine, 3))),
    ord("a"): lambda machine: _append(machine, _last(machine, 1)),
    ord("e"): lambda machine: _append(machine, machine.since_mark()),
    ord("s"): lambda machine: _setitem(machine, _last(machine, 2)),
    ord("u"): lambda machine: _setitem(machine, machine.since_mark()),
    ord("N"): _push(lambda _: None),
    0x88: _push(lambda _: True),
    0x89: _push(lambda _: False),
    ord("K"): _push(lambda machine: machine.number("<B")),
    ord("M"): _push(lambda machine: machine.number("<H")),
    ord("J"): _push(lambda machine: machine.number("<i")),
    ord("G"): _push(lambda machine: machine.number(">d")),
    0x8C: _push(_text("<B")),
    ord("X"): _push(_text("<I")),
    ord("q"): lambda machine: machine.remember(machine.number("<B")),
    ord("r"): lambda machine: machine.remember(machine.number("<I")),
}
"""By its first byte what each opcode does. Python writes no others of plain data, nor does TorchScript."""
