"""Two runs laid side by side: which cells are the same work, what has no like in the other, what changed.

Work is the same if class, phase and layer agree, and the op where both runs name it. Layers go by the mixed
run's names: two models built in one process number theirs differently. Where the layers of one run are hardly
those of the other (another backend, fusions that hide them), a class is compared as a whole.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence

from mpprof.analysis.comparison.attainable import MatchKey, Part, parts
from mpprof.model.account import Account, Cell, Class
from mpprof.model.finding import KernelChange, Matching
from mpprof.model.run import Run

LEAST_BY_LAYER = 0.5
"""With less of a class in layers of both, rows by layer would show work that moved as lost and gained."""


def aligned(
    baseline: Account, mixed: Account, baseline_run: Run, mixed_run: Run
) -> tuple[dict[MatchKey, Part], dict[MatchKey, Part]]:
    """The parts of both runs by role, the layers by the mixed run's names."""
    renamed = _layer_names(baseline_run, mixed_run)
    before, after = baseline.main.cells, mixed.main.cells
    b_keys = [_role(cell, renamed) for cell in before]
    m_keys = [_role(cell, {}) for cell in after]
    whole = _compared_whole((b_keys, before), (m_keys, after))
    b_keys, m_keys = ([_without_layer(key, whole) for key in keys] for keys in (b_keys, m_keys))
    shared = set(b_keys) & set(m_keys)
    return (
        parts(before, [_coarse(key, shared) for key in b_keys]),
        parts(after, [_coarse(key, shared) for key in m_keys]),
    )


def _compared_whole(*sides: tuple[Sequence[MatchKey], Sequence[Cell]]) -> set[Class]:
    """Classes that both runs have, of which less than LEAST_BY_LAYER of the time of either lies in layers
    that have some of it in both."""
    times: list[dict[tuple[Class, str | None], float]] = []
    for keys, cells in sides:
        held: dict[tuple[Class, str | None], float] = defaultdict(float)
        for key, cell in zip(keys, cells, strict=True):
            held[(key.category, key.layer)] += cell.ns_per_step
        times.append({key: ns for key, ns in held.items() if ns > 0})
    both = times[0].keys() & times[1].keys()
    whole: set[Class] = set()
    for name in {name for name, _ in times[0]} & {name for name, _ in times[1]}:
        for held in times:
            own = {key: ns for key, ns in held.items() if key[0] == name}
            if sum(ns for key, ns in own.items() if key in both) < LEAST_BY_LAYER * sum(own.values()):
                whole.add(name)
    return whole


def _without_layer(key: MatchKey, whole: Collection[Class]) -> MatchKey:
    return key._replace(layer=None) if key.category in whole else key


def _role(cell: Cell, renamed: Mapping[str, str]) -> MatchKey:
    layer = renamed.get(cell.layer, cell.layer) if cell.layer else None
    family = cell.family if cell.category == "matmul" or cell.family == "random" else None
    # the end of the scope path: what stands before it names the model, which two runs may number differently
    op = "/".join(cell.op.split("/")[-2:]) if cell.op else None
    return MatchKey(cell.category, cell.phase, layer, family, op)


def _coarse(key: MatchKey, shared: set[MatchKey]) -> MatchKey:
    return key if key in shared else key._replace(op=None)


def _layer_names(baseline: Run, mixed: Run) -> dict[str, str]:
    """The baseline's layers by the mixed run's names. They differ only where both models were built in one
    process and named by number: then layers are matched by their place, if all classes agree."""
    sides = [run.facts.model.layers if run.facts and run.facts.model else () for run in (baseline, mixed)]
    if len(sides[0]) != len(sides[1]):
        return {}
    pairs = list(zip(*sides, strict=True))
    if any(one.class_name != other.class_name for one, other in pairs):
        return {}
    return {one.name: other.name for one, other in pairs}


def matching(baseline: Account, mixed: Account, baseline_run: Run, mixed_run: Run) -> Matching:
    """What of the two runs was aligned, and the ops of each that the other does not have."""
    renamed = _layer_names(baseline_run, mixed_run)
    sides = [
        [(_role(cell, names), cell) for cell in account.main.cells if cell.op is not None]
        for account, names in ((baseline, renamed), (mixed, {}))
    ]
    keys = [{key for key, _ in side} for side in sides]
    shared = keys[0] & keys[1]
    layers = {key._replace(op=None) for key in keys[0]} & {key._replace(op=None) for key in keys[1]}
    layers = {key for key in layers if key.layer is not None}
    alone: list[dict[str, float]] = [{}, {}]
    for only, side in zip(alone, sides, strict=True):
        for key, cell in side:
            if key not in shared and cell.op is not None:
                only[cell.op] = only.get(cell.op, 0.0) + cell.ns_per_step
    return Matching(
        by_op_ratio=(_share(sides[0], shared), _share(sides[1], shared)),
        by_layer_ratio=(_by_layer(sides[0], shared, layers), _by_layer(sides[1], shared, layers)),
        only_from=tuple(sorted(alone[0].items(), key=lambda item: -item[1])),
        only_to=tuple(sorted(alone[1].items(), key=lambda item: -item[1])),
    )


def _share(side: Sequence[tuple[MatchKey, Cell]], found: Collection[MatchKey]) -> float | None:
    whole = sum(cell.ns_per_step for _, cell in side)
    return sum(cell.ns_per_step for key, cell in side if key in found) / whole if whole > 0 else None


def _by_layer(
    side: Sequence[tuple[MatchKey, Cell]], shared: Collection[MatchKey], layers: Collection[MatchKey]
) -> float | None:
    either = {key for key, _ in side if key in shared or key._replace(op=None) in layers}
    return _share(side, either)


def kernel_changes(baseline: Account, mixed: Account) -> tuple[KernelChange, ...]:
    """Time per step of each kernel name and of each op in both runs, the largest difference first."""
    changes = [*_changes(baseline, mixed, "name"), *_changes(baseline, mixed, "op")]
    return tuple(sorted(changes, key=lambda change: -abs((change.to_ns or 0.0) - (change.from_ns or 0.0))))


def _changes(baseline: Account, mixed: Account, by: str) -> Sequence[KernelChange]:
    sides: list[dict[str, float]] = []
    for account in (baseline, mixed):
        times: dict[str, float] = defaultdict(float)
        for cell in account.main.cells:
            key = cell.kernel if by == "name" else cell.op
            if key is not None:
                times[key] += cell.ns_per_step
        sides.append(times)
    before, after = sides
    return [
        KernelChange(key, "name" if by == "name" else "op", before.get(key), after.get(key))
        for key in dict.fromkeys((*before, *after))
    ]
