"""Whose buffers a compiled program's memory holds, by XLA's buffer assignment: XLA takes a few blocks for a
whole program, and no event states what is in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np

from mpprof.analysis.layers.attribution import Ownership, attribute_ops, joined
from mpprof.analysis.memory.blocks import Blocks, allocators
from mpprof.analysis.memory.blocks import blocks as blocks_of
from mpprof.model.account import Phase
from mpprof.model.arrays import Bool, Int64
from mpprof.model.frozen import frozen
from mpprof.model.memory import UPDATE, AliveBuffer, AliveOf, Kind, Program, Taken
from mpprof.model.run import ModelFacts
from mpprof.model.trace import Op, Trace

# What is known of every block of memory: its kind, type, layer and op.

Part = tuple[dict[str, str], int]
"""Part of a block: its labels, and its bytes."""
ROUNDING = "rounding"
"""In every division, what the allocator gave beyond what was asked for."""


@frozen
class Labels:
    """The name of every block's kind, type, op and layer, as codes into lists of names. `assigned`: which
    follow from XLA's buffer assignment, not from an event."""

    codes: dict[str, Int64]
    texts: dict[str, list[str]]
    assigned: Bool

    def of(self, by: str, rows: Int64) -> list[str]:
        return [self.texts[by][code] for code in self.codes[by][rows].tolist()]

    def coded(self, by: str, names: Set[str]) -> Bool:
        """Return which blocks have one of these names."""
        return np.isin(self.codes[by], [code for code, name in enumerate(self.texts[by]) if name in names])

    def words(self, row: int) -> tuple[str, ...]:
        """Return all four words of one block."""
        return tuple(texts[int(self.codes[by][row])] for by, texts in sorted(self.texts.items()))

    def marked(self, by: str) -> tuple[Int64, list[str]]:
        """Return the codes and names of one division in which what is assigned has names of its own."""
        texts = self.texts[by]
        return self.codes[by] + len(texts) * self.assigned, [
            *texts,
            *(f"{text} (assigned)" for text in texts),
        ]


def split(blocks: Blocks, labels: Labels, parts: dict[int, Sequence[Part]]) -> tuple[Blocks, Labels]:
    """Return the blocks with those in `parts` as several that live as long; what their parts leave keeps the
    block's own labels. What the allocator gave such a block beyond what was asked for is its rounding."""
    if not parts:
        return blocks, labels
    size, asked = blocks.bytes.copy(), blocks.asked.copy()
    texts = {by: list(names) for by, names in labels.texts.items()}
    added: dict[str, list[int]] = {by: [] for by in texts}
    of: list[int] = []
    taken: list[int] = []
    for block, found in parts.items():
        rounding = int(size[block] - asked[block]) if asked[block] >= 0 else 0
        for names, part in [*found, *([(dict.fromkeys(texts, ROUNDING), rounding)] if rounding else [])]:
            for by, name in names.items():
                if name not in texts[by]:
                    texts[by].append(name)
                added[by].append(texts[by].index(name))
            of.append(block)
            taken.append(part)
            size[block] -= part
        asked[block] = size[block] if asked[block] >= 0 else -1
    more = np.array(taken, np.int64)
    by_xla = np.array([texts["kind"][code] != ROUNDING for code in added["kind"]], np.bool_)
    left = np.ones(len(blocks), np.bool_)
    left[list(parts)] = size[list(parts)] > 0
    keep = np.flatnonzero(np.append(left, np.ones(len(more), np.bool_)))
    owner = np.append(np.arange(len(blocks)), np.array(of, np.int64))[keep]
    codes = {by: np.append(labels.codes[by], np.array(added[by], np.int64))[keep] for by in texts}
    return replace(
        blocks,
        row=blocks.row[owner],
        born=blocks.born[owner],
        died=blocks.died[owner],
        bytes=np.append(size, more)[keep],
        asked=np.append(asked, np.where(by_xla, more, 0))[keep],
    ), Labels(codes, texts, np.append(labels.assigned, by_xla)[keep])


TAKES = "Build buffer allocations"
"""The host event in which XLA takes a program's memory, in the order of its assignment."""
NO_ASSIGNMENT = "the trace holds no buffer assignment of the programs that XLA ran"
NO_MATCH = "no program of the trace is assigned allocations of these sizes in this order"
SEVERAL = "several programs of the trace are assigned allocations of these sizes"
NOT_STATED = "the buffer assignment does not state which buffers are in them at one time"


def alive(program: Program, model: ModelFacts | None = None) -> tuple[AliveOf, ...]:
    """Return the buffers at the peak, those alike in layer, phase and type together, largest first. They sum
    to the assignment's `peak_bytes`."""
    made = program.assigned.alive
    owners = _owners(made, model)
    sums: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for at, one in enumerate(made):
        layer = joined(owners.layers_of(at)) or "unknown"
        sums[layer, owners.phase_of(at), one.hlo.dtype if one.hlo else "unknown"] += one.bytes
    ordered = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(AliveOf(*key, size) for key, size in ordered if size)


@frozen
class Contents:
    """The blocks that XLA took: for some their parts, for the others why these are not known."""

    parts: dict[int, Sequence[Part]]
    why_not: dict[int, str]


def contents(
    trace: Trace,
    blocks: Blocks,
    programs: Sequence[Program],
    model: ModelFacts | None = None,
    batch: int | None = None,
) -> Contents:
    """Return what is in each block that XLA took for a program, of `batch` examples (None: not known).

    Which program it was follows from the sizes asked for, one after the other: those of its assignment. Where
    several have the same, they must agree on what is in them."""
    by_sizes: defaultdict[tuple[int, ...], list[Program]] = defaultdict(list)
    for program in programs:
        by_sizes[tuple(one.bytes for one in program.assigned.taken)].append(program)
    known: dict[tuple[int, ...], tuple[Sequence[Sequence[Part]], str]] = {}
    found = Contents({}, {})
    asked = blocks.asked
    for run in _runs(trace, blocks):
        sizes = tuple(asked[run].tolist())
        if sizes not in known:
            known[sizes] = _agreed([_parts(each, model, batch) for each in by_sizes.get(sizes, ())])
        each, why = known[sizes]
        for at, block in enumerate(run.tolist()):
            parts = each[at] if each else ()
            if (
                parts
                and all(size > 0 for _, size in parts)
                and sum(size for _, size in parts) <= asked[block]
            ):
                found.parts[block] = parts
            else:
                found.why_not[block] = (why or NOT_STATED) if programs else NO_ASSIGNMENT
    return found


def sizes_taken(trace: Trace) -> frozenset[tuple[int, ...]]:
    """Return the sizes that XLA asked for at once, of the allocator that the account is of."""
    found = () if TAKES not in trace.strings else allocators(trace)
    if not found:
        return frozenset()
    mine = blocks_of(trace.allocations, found[0][1])
    return frozenset(tuple(mine.asked[run].tolist()) for run in _runs(trace, mine))


def _agreed(candidates: Sequence[Sequence[Sequence[Part]]]) -> tuple[Sequence[Sequence[Part]], str]:
    """Return what all candidates agree on for each block, or the reason if they do not agree."""
    if not candidates:
        return (), NO_MATCH
    if any(each != candidates[0] for each in candidates[1:]):
        return (), SEVERAL
    return candidates[0], ""


def _runs(trace: Trace, blocks: Blocks) -> list[Int64]:
    """Return the blocks that XLA took at once, in the order in which it asked for them."""
    table, host = trace.allocations, trace.host
    if table.thread is None or TAKES not in trace.strings:
        return []
    taking = np.flatnonzero(host.name == trace.strings.index(TAKES))
    taking = taking[np.lexsort((host.start_ns[taking], host.thread[taking]))]
    time_ns, thread = table.time_ns[blocks.row], table.thread[blocks.row]
    found = []
    for one in np.unique(host.thread[taking]).tolist():
        rows, mine = taking[host.thread[taking] == one], np.flatnonzero(thread == one)
        at = np.searchsorted(host.start_ns[rows], time_ns[mine], side="right") - 1
        end_ns = (host.start_ns + host.duration_ns)[rows]
        inside = (at >= 0) & (time_ns[mine] <= end_ns[at])
        mine, at = mine[inside], at[inside]
        found += [mine[at == event] for event in np.unique(at).tolist()]
    return found


def _parts(program: Program, model: ModelFacts | None, batch: int | None) -> Sequence[Sequence[Part]]:
    """Return the parts of each allocation of a program, equal parts together, the largest first."""
    taken = program.assigned.taken
    made = [buffer for one in taken for buffer in one.alive]
    owners = _owners(made, model)
    of_program = {owners.phase_of(at) for at in range(len(made))}
    found, at = [], 0
    for one in taken:
        rows = range(at, at + len(one.alive))
        at += len(one.alive)
        of_block = {owners.phase_of(row) for row in rows}
        sums: defaultdict[tuple[str, str, str, str], int] = defaultdict(int)
        for row, buffer in zip(rows, one.alive, strict=True):
            copies = _copies_a_weight(buffer, batch)
            kind = _kind(owners.phase_of(row), buffer, one, of_block, of_program)
            kind = "16-bit weight copies" if copies else kind
            layer = joined(owners.layers_of(row)) or "unknown"
            op = (buffer.hlo.op_name or buffer.hlo.name) if buffer.hlo else "unknown"
            sums[kind, buffer.hlo.dtype if buffer.hlo else "unknown", layer, op] += buffer.bytes
        ordered = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
        names = ("kind", "dtype", "layer", "op")
        found.append([(dict(zip(names, key, strict=True)), size) for key, size in ordered if size])
    return found


def _kind(
    phase: Phase, buffer: AliveBuffer, taken: Taken, of_block: set[Phase], of_program: set[Phase]
) -> Kind:
    """Return the kind of a buffer. An activation that is alive together with a buffer of the backward pass is
    kept for it; for an activation that is alive without one in a training, the kind is not known."""
    if buffer.scratch:
        return "workspaces"
    if phase == "forward" and "backward" in of_program:
        return "activations kept for backward" if "backward" in of_block else "unknown"
    if phase in UPDATE:
        return "other" if taken.result else "optimizer temporaries"
    kinds: dict[Phase, Kind] = {"forward": "other activations", "backward": "gradients", "input": "input"}
    return kinds.get(phase, "other")


def _copies_a_weight(buffer: AliveBuffer, batch: int | None) -> bool:
    """Return whether a buffer is an argument in 16 bits that does not grow with the batch."""
    if not buffer.recasts or buffer.hlo is None or buffer.hlo.dtype not in ("f16", "bf16"):
        return False
    return bool(buffer.hlo.shape) and batch is not None and buffer.hlo.shape[0] != batch


def _owners(made: Sequence[AliveBuffer], model: ModelFacts | None) -> Ownership:
    ops = [Op(one.hlo.op_name if one.hlo else "", one.hlo.opcode if one.hlo else "", one.hlo) for one in made]
    return attribute_ops(ops, model)
