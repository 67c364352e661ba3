"""Kernels that ran in an XLA command buffer: whose instruction they are, where their name proves it.

A command buffer is launched as one, so its kernels carry the buffer's name (`command_buffer_3`) or none in
place of their instruction's. XLA names a kernel after its fusion, which leads back to it; but equal fusions
share the first one's kernel. So a name proves the instruction only where it comes once in each launch, and
nowhere else. Any other name still states types, shapes and FLOPs, and the fusions of which it is one, because
only equal fusions share a kernel:
XLA finds it by a fingerprint of the computation and its arguments (`KernelReuseCache`). In traces of an H100
(JAX 0.11) 87 instructions used another one's kernel, as the events state, and all were equal to it in these.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from mpprof.model.trace import KernelTable, WorkKind
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.ops import Ops

Int64 = NDArray[np.int64]
Bool = NDArray[np.bool_]


def with_instructions(kernels: KernelTable, ops: Ops, strings: Interner) -> KernelTable:
    """Return the table with the ops of kernels that ran in a command buffer: the instruction that a name
    proves, or one without an owner that is equal to it. Kernels with other names keep theirs, which is one of
    the program's calls of libraries."""
    if not ops.modules:
        return kernels
    programs = ops.without_instruction()
    inside = np.isin(kernels.op, list(programs)) | ((kernels.op < 0) & (kernels.graph >= 0))
    rows = np.flatnonzero(inside & (kernels.kind == WorkKind.KERNEL) & (kernels.correlation >= 0))
    if not len(rows):
        return kernels
    proved = _once_in_each_launch(kernels, rows) & _nowhere_else(kernels, rows)
    op, texts = kernels.op.copy(), strings.texts()
    keys = np.stack([kernels.op[rows], kernels.name[rows], proved])
    pairs, group = np.unique(keys, axis=1, return_inverse=True)
    libraries: dict[int, tuple[str, int]] = {}
    for at, (of_buffer, name, alone) in enumerate(pairs.T.tolist()):
        module, program = programs.get(of_buffer, ("", -1))
        found = ops.modules.of_kernel(module, program, texts[name])
        if found is not None:
            module, program, instruction = found
            row = ops.of_hlo if alone else ops.like_hlo
            op[rows[group.reshape(-1) == at]] = row(instruction, module, program, "")
        elif of_buffer >= 0:
            libraries.setdefault(of_buffer, (module, program))
    for of_buffer, (module, program) in libraries.items():
        ops.with_library_calls(of_buffer, module, program)
    return replace(kernels, op=op)


def _once_in_each_launch(kernels: KernelTable, rows: Int64) -> Bool:
    """Return which kernels have a name that occurs only once in each launch. A launch is what shares a
    correlation id; where each kernel has an id of its own, nothing shows how often a name comes in one."""
    _, launch, size = np.unique(kernels.correlation[rows], return_inverse=True, return_counts=True)
    name = kernels.name[rows]
    _, pair, count = np.unique(np.stack([launch, name]), axis=1, return_inverse=True, return_counts=True)
    repeated = count[pair.reshape(-1)] > 1
    return (size[launch] > 1) & ~np.isin(name, name[repeated])


def _nowhere_else(kernels: KernelTable, rows: Int64) -> Bool:
    """Return for each name whether all kernels of that name have the same op, the buffer that `rows` have."""
    pairs = np.unique(np.stack([kernels.name, kernels.op]), axis=1)
    names, uses = np.unique(pairs[0], return_counts=True)
    return ~np.isin(kernels.name[rows], names[uses > 1])
