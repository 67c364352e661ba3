"""Two runs laid side by side: which cells are the same work, what has no like in the other, what changed.

Work is the same if class, phase and layer agree, and the op where both runs name it. Layers go by the mixed
run's names (`layer_names`): two models built in one process number theirs differently. Where the layers of
one run are hardly those of the other (another backend, fusions that hide them), a class is compared as a
whole.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from math import prod

from mpprof.analysis.comparison.layer_names import layer_names, process_scopes, unnumbered_op
from mpprof.analysis.comparison.ratios import MatchKey, Part, parts
from mpprof.model.account import Account, Cell, Class
from mpprof.model.finding import KernelChange, Matching, OpTime, UnmatchedLayer
from mpprof.model.run import Run
from mpprof.model.trace import LIKE, HloInstruction

LEAST_BY_LAYER = 0.5
"""With less of a class in layers of both, rows by layer would show work that moved as lost and gained."""


def aligned(
    baseline: Account, mixed: Account, baseline_run: Run, mixed_run: Run
) -> tuple[dict[MatchKey, Part], dict[MatchKey, Part]]:
    """Return the parts of both runs by role, the layers by the mixed run's names."""
    before, after = baseline.main.cells, mixed.main.cells
    names = layer_names(baseline_run, mixed_run)
    b_keys = _keys(before, baseline_run, names.of_baseline)
    m_keys = _keys(after, mixed_run, str)
    whole = _compared_whole((b_keys, before), (m_keys, after))
    b_keys, m_keys = (
        [key._replace(layer=None) if key.category in whole else key for key in keys]
        for keys in (b_keys, m_keys)
    )
    shared = set(b_keys) & set(m_keys)
    return (
        parts(before, [_coarse(key, shared) for key in b_keys]),
        parts(after, [_coarse(key, shared) for key in m_keys]),
    )


def _compared_whole(*sides: tuple[Sequence[MatchKey], Sequence[Cell]]) -> set[Class]:
    """Return the classes that both runs have, of which less than LEAST_BY_LAYER of the time of either lies in
    layers that have some of it in both."""
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


def _keys(cells: Sequence[Cell], run: Run, named: Callable[[str], str]) -> list[MatchKey]:
    """Return the role of each cell, its layer by the other run's name (`named`)."""
    scopes = process_scopes(run)
    return [_role(cell, scopes, named) for cell in cells]


def _role(cell: Cell, scopes: frozenset[str], named: Callable[[str], str]) -> MatchKey:
    layer = named(cell.layer) if cell.layer else None
    family = cell.family if cell.category == "matmul" or cell.family == "random" else None
    # the end of the scope path: what stands before it names the model, which two runs may number differently
    op = "/".join(unnumbered_op(cell.op, cell.layer, scopes).split("/")[-2:]) if cell.op else None
    if op is not None and cell.hlo is not None and op.startswith(LIKE):
        op = _work_of(cell.hlo)
    return MatchKey(cell.category, cell.phase, layer, family, op)


def _coarse(key: MatchKey, shared: set[MatchKey]) -> MatchKey:
    return key if key in shared else key._replace(op=None)


def matching(baseline: Account, mixed: Account, baseline_run: Run, mixed_run: Run) -> Matching:
    """Return what of the two runs was aligned, and the ops of each that the other does not have."""
    names = layer_names(baseline_run, mixed_run)
    sides = []
    for account, run, named in ((baseline, baseline_run, names.of_baseline), (mixed, mixed_run, str)):
        cells = [cell for cell in account.main.cells if cell.op is not None]
        sides.append(list(zip(_keys(cells, run, named), cells, strict=True)))
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
        only_from=_alone(alone[0]),
        only_to=_alone(alone[1]),
        unmatched_from=tuple(UnmatchedLayer(*each) for each in names.only_from.items()),
        unmatched_to=tuple(UnmatchedLayer(*each) for each in names.only_to.items()),
    )


def _alone(ns: Mapping[str, float]) -> tuple[OpTime, ...]:
    return tuple(OpTime(*each) for each in sorted(ns.items(), key=lambda item: -item[1]))


def _share(side: Sequence[tuple[MatchKey, Cell]], found: Collection[MatchKey]) -> float | None:
    whole = sum(cell.ns_per_step for _, cell in side)
    return sum(cell.ns_per_step for key, cell in side if key in found) / whole if whole > 0 else None


def _by_layer(
    side: Sequence[tuple[MatchKey, Cell]], shared: Collection[MatchKey], layers: Collection[MatchKey]
) -> float | None:
    either = {key for key, _ in side if key in shared or key._replace(op=None) in layers}
    return _share(side, either)


def kernel_changes(
    baseline: Account, mixed: Account, baseline_run: Run, mixed_run: Run
) -> tuple[KernelChange, ...]:
    """Return the time per step of each kernel name and of each op in both runs, the largest difference first.
    What both runs have goes by the mixed run's name."""
    names = layer_names(baseline_run, mixed_run)
    sides = (
        (baseline.main.cells, process_scopes(baseline_run), names.of_baseline),
        (mixed.main.cells, process_scopes(mixed_run), str),
    )
    changes = [
        KernelChange(text, "name" if by == "name" else "op", before.get(key), after.get(key))
        for by in ("name", "op")
        for before, after, texts in [_changes(sides, by)]
        for key, text in _told_apart(texts).items()
    ]
    return tuple(sorted(changes, key=lambda change: -abs((change.to_ns or 0.0) - (change.from_ns or 0.0))))


def _told_apart(texts: Mapping[_WorkKey, str]) -> dict[_WorkKey, str]:
    """Return the names; one that stands for several kinds of work is followed by what each is."""
    uses = Counter(texts.values())
    return {
        key: f"{text} ({key[1].rpartition('/')[2]})" if uses[text] > 1 and key[1] != text else text
        for key, text in texts.items()
    }


_WorkKey = tuple[str | None, str]
_WorkSide = tuple[Sequence[Cell], frozenset[str], Callable[[str], str]]


def _changes(
    sides: tuple[_WorkSide, _WorkSide], by: str
) -> tuple[dict[_WorkKey, float], dict[_WorkKey, float], dict[_WorkKey, str]]:
    """Return the times of both runs by a key that they share, and the name of each: the later run's."""
    found: list[dict[_WorkKey, float]] = []
    texts: dict[_WorkKey, str] = {}
    for cells, scopes, named in sides:
        times: dict[_WorkKey, float] = defaultdict(float)
        for cell in cells:
            text = cell.kernel if by == "name" else cell.op
            if text is None:
                continue
            key = _work_key(cell, text, by, scopes, named)
            texts[key] = text
            times[key] += cell.ns_per_step
        found.append(times)
    return found[0], found[1], texts


def _work_key(
    cell: Cell, text: str, by: str, scopes: frozenset[str], named: Callable[[str], str]
) -> _WorkKey:
    """Return the key of an op or a kernel. An op is identified by its layer as well; so is a kernel that has
    the name of its op, as on a CPU. Work that XLA compiled is identified by op, operands and sizes."""
    like = cell.op is not None and cell.op.startswith(LIKE)
    op = "" if cell.op is None or like else unnumbered_op(cell.op, cell.layer, scopes)
    if cell.hlo is not None and (like or (by == "name" and cell.hlo.called)):
        # XLA numbers what it compiles anew in each program: one name may stand for two kinds of work
        return None, f"{op} {_work_of(cell.hlo)}".strip()
    if cell.op is None or cell.op not in text:
        return None, text
    return (named(cell.layer) if cell.layer else None), text.replace(cell.op, op)


_NO_WORK = frozenset((
    "parameter", "constant", "tuple", "get-tuple-element", "bitcast", "broadcast", "iota", "reshape", "copy",
    "convert", "fusion",
))  # fmt: skip
"""What a program in another precision may have more or less of around the same work."""


def _work_of(hlo: HloInstruction) -> str:
    """Return what a compiled instruction does, whatever it is called: its body's opcodes, and the sizes of
    its largest operand and of its results."""
    does = sorted({inner.opcode for inner in hlo.called} - _NO_WORK) or [hlo.opcode]
    results = hlo.tensors[len(hlo.operand_shapes) :]
    sizes = (max(hlo.operand_shapes, key=prod, default=()), *(shape for _, shape in results))
    return " ".join(("+".join(does), *(_size(shape) for shape in sizes)))


def _size(shape: Sequence[int]) -> str:
    return "x".join(str(length) for length in shape if length != 1)
