"""Which ops of a Kineto trace without a card are the work: what stands for kernels there.

The innermost op is not always it. A product of matrices on the CPU contains views of its operands and the
copy of its bias, a convolution the allocation of its result: the work is the outer op's own time. And the
outer op is not it either where it only hands on, as `aten::linear` does to `aten::addmm`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

Int64 = NDArray[np.int64]

_OWN_RATIO = 0.5
"""An op does the work itself if at least so much of its time lies in none of the ops that it calls."""
_HELPER_NAMES = """
    aten::empty aten::empty_strided aten::empty_like aten::new_empty aten::new_empty_strided aten::resize_
    aten::resize_as_ aten::set_ aten::as_strided aten::as_strided_ aten::view aten::_unsafe_view
    aten::_reshape_alias aten::reshape aten::t aten::transpose aten::permute aten::expand aten::squeeze
    aten::unsqueeze aten::select aten::slice aten::narrow aten::detach detach aten::alias aten::lift_fresh
    aten::resolve_conj aten::resolve_neg aten::result_type aten::_nnpack_available aten::to
"""
_HELPERS = frozenset(_HELPER_NAMES.split())
"""Views, allocations and questions: they belong to the op that calls them."""
_HANDS_ON = ("autograd::engine::", "aten::to", "aten::_to_copy")
"""How the names of ops begin that leave all work to those they call, however little that is."""


def working(start_ns: Int64, duration_ns: Int64, names: Sequence[str]) -> NDArray[np.bool_]:
    """Return which ops of one thread, given by start and longest first, are the work. Of ops that are nested
    exactly one is, so their times do not overlap."""
    parent, called_ns = _nested(start_ns.tolist(), duration_ns.tolist(), names)
    covered = np.zeros(len(names), np.bool_)
    work = np.zeros(len(names), np.bool_)
    for row, name in enumerate(names):
        around = parent[row]
        covered[row] = around >= 0 and (covered[around] or work[around])
        if not covered[row]:
            own_ns = int(duration_ns[row]) - called_ns[row]
            alone = called_ns[row] == 0
            work[row] = alone or (own_ns >= _OWN_RATIO * int(duration_ns[row]) and not _hands_on(name))
    return work


def _hands_on(name: str) -> bool:
    return name.startswith(_HANDS_ON) or name.rstrip("0123456789").endswith("Backward")


def _nested(starts: list[int], durations: list[int], names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return for each op the row of the op around it (-1: none), and the time of the ops that it calls,
    without helpers that call nothing themselves."""
    parent, called_ns, calls = [-1] * len(names), [0] * len(names), [False] * len(names)
    stack: list[int] = []

    def leave(row: int) -> None:
        around = parent[row]
        if around >= 0 and (calls[row] or names[row] not in _HELPERS):
            called_ns[around] += durations[row]
            calls[around] = True

    for row, start in enumerate(starts):
        while stack and starts[stack[-1]] + durations[stack[-1]] <= start:
            leave(stack.pop())
        if stack:
            parent[row] = stack[-1]
        stack.append(row)
    while stack:
        leave(stack.pop())
    return parent, called_ns
