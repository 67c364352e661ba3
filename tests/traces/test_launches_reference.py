"""Which call launched each kernel, against the rule in plain Python, for any table of calls and kernels."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st

from mpprof.model.trace import HostTable, KernelTable, WorkKind
from mpprof.traces.common.columns import Interner
from mpprof.traces.common.launches import join_launches

NAMES = ("cudaLaunchKernel", "cuLaunchKernel", "cudaGraphLaunch", "cuGraphLaunch", "MatMul")
GRAPHS = (2, 3)
MOST_OF_CALL = 4


class Call(NamedTuple):
    thread: int
    start: int
    length: int
    name: int
    id: int


class Work(NamedTuple):
    device: int
    kind: int
    id: int
    graph: int


ids = st.sampled_from([1, 1, 1, 2, 2, 3, 0, -1, -7, 1 << 40, 1 << 62])
calls = st.builds(
    Call, st.integers(0, 1), st.integers(0, 12), st.integers(0, 6), st.integers(0, len(NAMES) - 1), ids
)
works = st.builds(Work, st.integers(0, 1), st.sampled_from([0, 0, 0, 0, 1, 2]), ids, st.sampled_from([-1, -1, -1, 0, 3]))  # fmt: skip


def by_the_rule(host: list[Call], work: list[Work]) -> list[int]:
    """Return the row of each kernel's call: the earliest with its id; -1 where a later one with it lies outside
    of that or on another thread, and where the call has more kernels on a device than one call enqueues."""
    found = []
    for each in work:
        same = [row for row, call in enumerate(host) if call.id == each.id >= 0]
        first = min(same, key=lambda row: (host[row].start, row), default=-1)
        end = host[first].start + host[first].length if same else 0
        apart = any(host[row].start > end or host[row].thread != host[first].thread for row in same)
        found.append(-1 if apart else first)
    single = Counter(
        (call, each.device)
        for call, each in zip(found, work, strict=True)
        if call >= 0 and each.kind == WorkKind.KERNEL and each.graph < 0 and host[call].name not in GRAPHS
    )
    crowded = {call for (call, _), count in single.items() if count > MOST_OF_CALL}
    return [-1 if call in crowded else call for call in found]


def column(values: list[int], of: type[np.signedinteger] = np.int64) -> np.ndarray:  # type: ignore[type-arg]
    return np.array(values, of)


ONE = [Call(0, 0, 2, 0, 1)]


@settings(max_examples=300)
@example(ONE, [Work(0, 0, 1, -1)], MOST_OF_CALL - 1, True)
@example(ONE, [Work(0, 0, 1, -1)], MOST_OF_CALL, True)
@given(
    st.lists(calls, max_size=8),
    st.lists(works, max_size=6),
    st.sampled_from([0, MOST_OF_CALL - 1, MOST_OF_CALL]),
    st.booleans(),
)
def test_launches_are_those_of_the_rule(
    host: list[Call], work: list[Work], repeated: int, ordered: bool
) -> None:
    work = [*work, *work[:1] * repeated]
    if ordered:
        host = sorted(host, key=lambda call: (call.thread, call.start, -call.length))
    strings = Interner()
    names = [strings(name) for name in NAMES]
    thread, start, length, name, id = zip(*host, strict=True) if host else [[]] * 5
    none, nothing = column([-1] * len(work), np.int32), column([-1] * len(work))
    table = HostTable(
        column(thread, np.int32), column(start), column(length), column([0] * len(host), np.int8),
        column([names[row] for row in name], np.int32), column([-1] * len(host), np.int32), column(id),
    )  # fmt: skip
    kernels = KernelTable(
        column([w.device for w in work], np.int32), none * 0, column(list(range(len(work)))), nothing * -1,
        column([w.kind for w in work], np.int8), none * 0, none, column([w.id for w in work]), none, none,
        none, column([-1] * len(work), np.int8), nothing, column([w.graph for w in work]), nothing,
    )  # fmt: skip
    expected = by_the_rule(host, work)
    joined = join_launches(kernels, table, strings)
    assert joined.kernels.launch.tolist() == expected
    lost = sum(
        call < 0 <= w.id and any(c.id == w.id for c in host) for call, w in zip(expected, work, strict=True)
    )
    said = [f"{lost} of {len(work)} kernels"] if lost else []
    assert [text.partition(" and copies")[0] for text in joined.warnings] == said
