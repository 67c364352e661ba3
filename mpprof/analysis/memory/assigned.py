"""Whose buffers are alive at the peak of a compiled program, by layer, phase and type."""

from __future__ import annotations

from collections import defaultdict

from mpprof.analysis.layers.attribution import attribute_ops, joined
from mpprof.model.memory import AliveOf, Program
from mpprof.model.run import ModelFacts
from mpprof.model.trace import Op


def alive(program: Program, model: ModelFacts | None = None) -> tuple[AliveOf, ...]:
    """Return the buffers at the peak, those alike in layer, phase and type together, largest first. They sum
    to the assignment's `peak_bytes`."""
    made = program.assigned.alive
    ops = [Op(one.hlo.op_name if one.hlo else "", one.hlo.opcode if one.hlo else "", one.hlo) for one in made]
    owners = attribute_ops(ops, model)
    sums: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for at, one in enumerate(made):
        layer = joined(owners.layers_of(at)) or "unknown"
        sums[layer, owners.phase_of(at), one.hlo.dtype if one.hlo else "unknown"] += one.bytes
    ordered = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(AliveOf(*key, size) for key, size in ordered if size)
