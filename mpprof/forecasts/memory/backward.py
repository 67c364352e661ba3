"""Which results of the forward pass are still there in the backward pass, and where most is.

The forward pass leaves what the gradients need. The backward pass goes through the operations in reverse:
each needs the gradient of what it gave, makes that of what it took, and lets go of what no other needs.
Where much of a model is frozen little is kept, and most is there in the forward pass: what an operation takes
and gives.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from mpprof.forecasts.memory.kept_for_backward import Graph, Held, Machine, Operation
from mpprof.model.frozen import frozen


@frozen
class Kept:
    """Of one example: a result of the forward pass that is there when the backward pass begins."""

    layer: str
    what: str
    dtype: str
    bytes: int


@frozen
class Backward:
    """Of one example. `peak_bytes` is the most that results and gradients of activations take at once, in the
    backward pass or before it; `gradients_bytes` and `layer` what of it are gradients, and whose operation it
    is in."""

    kept: tuple[Kept, ...]
    peak_bytes: int
    gradients_bytes: int
    layer: str

    @property
    def kept_bytes(self) -> int:
        return sum(each.bytes for each in self.kept)


def backward(graph: Graph, machine: Machine) -> Backward:
    """Return what the backward pass of one example needs. Where XLA compiles the step, results which are
    cheap to compute from others are not kept, and gradients between such operations not written."""
    return _Pass(graph.operations, machine).run()


class _Pass:
    def __init__(self, operations: tuple[Operation, ...], machine: Machine) -> None:
        self.operations, self.compiled, self.reuses = operations, machine.compiled, machine.reuses
        self.needed = _needing_gradients(operations)
        self.users: dict[int, list[int]] = defaultdict(list)
        for at, one in enumerate(operations):
            for given in one.inputs:
                self.users[given].append(at)
        self.needers: dict[int, set[int]] = defaultdict(set)  # by kept result, the operations that need it
        self._written = self._in_memory()
        for at, one in enumerate(operations):
            if self.needed[at]:
                for given in (*one.keeps, *((at,) if one.keeps_output else ())):
                    for base in self._bases(given):
                        self.needers[base].add(at)

    def _in_memory(self) -> set[int]:
        """Return the results that an operation reads from memory: they are kept whole where they are
        needed."""
        read: set[int] = set()
        for at, one in enumerate(self.operations):
            if one.in_memory and self.needed[at]:
                read.update(self._named(given) for given in one.keeps)
        return read

    def _named(self, at: int) -> int:
        """Return the result whose memory this one uses."""
        while self.operations[at].renamed:
            at = self.operations[at].inputs[0]
        return at

    def _bases(self, wanted: int) -> set[int]:
        """Return the results to keep so that this one is available."""
        found: set[int] = set()
        waiting, seen = [wanted], set()
        while waiting:
            at = self._named(waiting.pop())
            one = self.operations[at]
            if at in seen:
                continue
            seen.add(at)
            if self.compiled and one.cheap and not one.costly and one.inputs and at not in self._written:
                waiting.extend(one.inputs)
            elif one.inputs:  # what has no inputs is the batch, which is counted as such
                found.add(at)
        return found

    def run(self) -> Backward:
        operations = self.operations
        kept = [
            Kept(operations[at].layer, operations[at].what, operations[at].dtype, operations[at].bytes)
            for at in sorted(self.needers)
        ]
        for at, one in enumerate(operations):
            kept += [_of(one, held) for held in one.held] if self.needed[at] else []
        forward, forward_layer = self._forward()
        self._live = sum(each.bytes for each in kept)
        self._due: dict[int, list[tuple[int, int]]] = defaultdict(list)  # until when results are needed
        for base, needers in self.needers.items():
            for at in needers:
                self._due[at].append((base, at))
        self._rests: dict[int, frozenset[int]] = {}  # by result, the written gradients that its own rests on
        self._written_for: Counter[int] = Counter()  # by written gradient, how many rest on it
        most, of_gradients, where = self._live, 0, ""
        for at in reversed(range(len(operations))):
            if not self.needed[at]:
                continue
            for gradients in self._gradients_of(at):
                if self._live + gradients > most:
                    most, of_gradients, where = self._live + gradients, gradients, operations[at].layer
        if forward > most:
            most, of_gradients, where = forward, 0, forward_layer
        return Backward(tuple(kept), most, of_gradients, where)

    def _forward(self) -> tuple[int, str]:
        """Return the most bytes that results take in the forward pass, and the operation in which they do. A
        result is there until its last user has run, and to the end where the backward pass needs it."""
        operations, last = self.operations, list(range(len(self.operations)))
        for at in reversed(
            range(len(operations))
        ):  # what is fused with its users reads its inputs as they run
            for given in operations[at].inputs:
                last[given] = max(last[given], at if self._is_there(at) else last[at])
        live, most, where = 0, 0, ""
        ends: defaultdict[int, int] = defaultdict(int)
        for at, one in enumerate(operations):
            if self._is_there(at):
                live += one.bytes
                if at not in self.needers:
                    ends[last[at]] += one.bytes
            live += sum(held.bytes for held in one.held) if self.needed[at] else 0
            if live > most:
                most, where = live, one.layer
            live -= ends.pop(at, 0)
        return most, where

    def _is_there(self, at: int) -> bool:
        """Return whether the forward pass writes this result to memory of its own. The batch is counted on
        its own."""
        one = self.operations[at]
        return bool(one.inputs) and not one.renamed and (at in self.needers or self._is_written(at))

    def _gradients_of(self, at: int) -> Iterator[int]:
        """Go back through one operation; yields the bytes of gradients at its two fullest moments: before its
        inputs' gradients are made, and after."""
        one = self.operations[at]
        inputs = [given for given in dict.fromkeys(one.inputs) if self.needed[given]]
        yield self._gradients()
        weighs = one.trains and one.in_memory
        if weighs or one.in_place:  # the weights' gradient comes first, and needs the input last
            self._let_go(at)
        for given in inputs:
            if self._is_written(given) and not self._takes_over(one, given):
                self._rests.setdefault(given, frozenset((given,)))
                self._written_for[given] = max(1, self._written_for[given])
            else:
                mine = self._rests.get(at, frozenset()) - self._rests.get(given, frozenset())
                self._rests[given] = self._rests.get(given, frozenset()) | mine
                self._written_for.update(mine)
        yield self._gradients() + (sum(each.bytes for each in one.passing) if inputs else 0)
        fused = next((given for given in inputs if not self._is_written(given)), None)
        if fused is None or weighs:
            self._let_go(at)
        else:
            self._due[fused] += self._due.pop(at, [])  # one kernel reads it and writes the next gradient
        self._live -= sum(each.bytes for each in one.held)
        for source in self._rests.pop(at, frozenset()):
            self._written_for[source] -= 1

    def _takes_over(self, one: Operation, given: int) -> bool:
        """Return whether the gradient of an input is in the memory of this operation's own."""
        passes = one.renamed or (self.reuses and one.cheap and not one.keeps)
        return passes and one.what != "loss" and self.operations[given].bytes == one.bytes

    def _gradients(self) -> int:
        return sum(self.operations[at].bytes for at, users in self._written_for.items() if users > 0)

    def _let_go(self, at: int) -> None:
        for base, needer in self._due.pop(at, []):
            self.needers[base].discard(needer)
            if not self.needers[base]:
                self._live -= self.operations[base].bytes

    def _is_written(self, at: int) -> bool:
        """Return whether the gradient of this result is in memory: a gradient between operations that are
        fused is not."""
        if not self.compiled:
            return True
        one = self.operations[at]
        fused = one.cheap and all(self.operations[user].cheap for user in self.users[at])
        return not fused


def _of(one: Operation, held: Held) -> Kept:
    return Kept(one.layer, held.what, held.dtype, held.bytes)


def _needing_gradients(operations: tuple[Operation, ...]) -> list[bool]:
    """Return whether a gradient flows through each operation: it trains something, or something before it
    does."""
    needed: list[bool] = []
    for one in operations:
        needed.append(one.trains or any(needed[given] for given in one.inputs))
    return needed
