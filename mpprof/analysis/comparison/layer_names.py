"""Which layer of one run is which layer of another.

A name that the user gave stands for the layer. Keras' own names do not: it numbers the layers of a class over
the whole process, so that a model that is built a second time has `dense_2` where the first has `dense`. Such
layers are paired by class, parameter count and order among the auto-named layers of the same parent, level by
level. Where more than one pairing keeps the order, none is chosen. A remedy may change the size of a layer a
little (a vocabulary is padded): such layers are told apart from the true pairs.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cached_property, lru_cache
from itertools import pairwise

import numpy as np

from mpprof.model.arrays import Bool, Int32
from mpprof.model.frozen import frozen
from mpprof.model.run import LayerFacts, Run

MOST_PAIRS = 1 << 20
"""Auto-named layers below one parent, of both runs multiplied, that are aligned."""
MOST_RESIZED = 1.1
"""Times the parameters that a layer with a changed size has. Its work grows as they do, so at most a tenth of
what it takes comes from its size."""

_WORDS = re.compile(r"(?<=.)(?=[A-Z][a-z])|(?<=[a-z])(?=[A-Z])")
_NUMBERS = re.compile(r"(_\d+)+$")
_PART = re.compile(r"[^/()]+")
_KERAS_2 = {"InputLayer": "input", "Functional": "model", "Model": "model"}  # named otherwise than the class
_UNLISTED = ""  # the class of a parent that run.json does not list
_OP_LAYERS = ("TFOpLambda", "SlicingOpLambda")  # Keras 2 names them by the function: tf.math.add_1


@frozen(slots=False)
class LayerNames:
    """Layers of a baseline by the names that the other run has for them.

    `counterparts`: a name of the baseline to a name of the other run. `only_from`, `only_to`: the layers of
    either run without a counterpart, each with the reason. `resized`: of those the ones that stand in the
    same place with slightly more or fewer parameters, and what lies inside them. `other_size`: layers with a
    counterpart of far more or fewer parameters, whose time tells of their size, each with that. All empty:
    one of the runs recorded no layers."""

    counterparts: dict[str, str] = field(default_factory=dict)
    only_from: dict[str, str] = field(default_factory=dict)
    only_to: dict[str, str] = field(default_factory=dict)
    resized: dict[str, str] = field(default_factory=dict)
    other_size: dict[str, str] = field(default_factory=dict)

    @cached_property
    def _taken(self) -> frozenset[str]:
        """The other run's names that have a counterpart: cells in thousands of layers are asked for."""
        return frozenset(self.counterparts.values())

    def of_baseline(self, layer: str) -> str:
        """Return the other run's name of a layer of the baseline. One without a counterpart keeps its own,
        marked where the other run calls another layer so."""
        if (found := self.counterparts.get(layer)) is not None:
            return found
        if layer not in self.only_from:
            return layer
        taken = layer in self.only_to or layer in self._taken
        return f"{layer} (baseline's)" if taken else layer


def layer_names(baseline: Run, mixed: Run) -> LayerNames:
    """Pair the layers that `run.json` of both runs lists."""
    before, after = baseline.layers, mixed.layers
    return pair_layers(before, after) if before and after else LayerNames()


def pair_layers(before: Sequence[LayerFacts], after: Sequence[LayerFacts]) -> LayerNames:
    """Pair layers whose names are paths (`encoder/dense_1`): below paired parents, user-given names by name,
    auto-given ones by class, parameter count and order."""
    trees = _children(before), _children(after)
    pairs: dict[str, str] = {}
    resized: dict[str, str] = {}
    only: tuple[dict[str, str], dict[str, str]] = {}, {}
    pending = [(("", ""), pairs)]
    while pending:
        parents, into = pending.pop()
        levels = [tree.pop(parent, []) for tree, parent in zip(trees, parents, strict=True)]
        found, other_size, alone = _level(*levels)
        into |= found
        resized |= other_size
        pending += [(pair, into) for pair in found.items()]
        pending += [(pair, resized) for pair in other_size.items()]
        for reasons, more in zip(only, alone, strict=True):
            reasons |= more
        if into is resized:
            only[0].update((name, _inside(parents[0])) for name in found)
            only[1].update((name, _inside(parents[1])) for name in found.values())
    for tree, reasons in zip(
        trees, only, strict=True
    ):  # what is left lies inside a layer without counterpart
        for parent, layers in tree.items():
            reasons |= {layer.name: _inside(parent) for layer in layers}
    listed = {layer.name for layer in (*before, *after)}
    counterparts, only_from, only_to, of_another_size = (
        {name: told for name, told in each.items() if name in listed} for each in (pairs, *only, resized)
    )
    changed = _size_changes(counterparts | of_another_size, before, after)
    return LayerNames(counterparts, only_from, only_to, of_another_size, changed)


def _size_changes(
    pairs: Mapping[str, str], before: Sequence[LayerFacts], after: Sequence[LayerFacts]
) -> dict[str, str]:
    """Return the pairs, which the user's names alone may have made, that differ in size by far."""
    sizes, others = ({layer.name: layer.parameters for layer in side} for side in (before, after))
    both = {name: (sizes.get(name), others.get(other)) for name, other in pairs.items()}
    return {
        name: f"it has {one:,} parameters, and {other:,} in the other run"
        for name, (one, other) in both.items()
        if one and other and max(one, other) > MOST_RESIZED * min(one, other)
    }


def _inside(parent: str) -> str:
    return f"inside {parent}, which has no counterpart"


def is_auto_named(layer: LayerFacts) -> bool:
    """Return whether the last part of the layer's name is what Keras calls a layer of this class that was
    given no name."""
    last = layer.name.rpartition("/")[2]
    if layer.class_name in _OP_LAYERS:
        return last.startswith("tf.")
    bare = last.removeprefix("forward_").removeprefix("backward_")  # the halves of a Bidirectional
    own = {snake_case(layer.class_name), _KERAS_2.get(layer.class_name)}
    return bare in own or re.sub(r"_\d+$", "", bare) in own


@lru_cache(maxsize=1 << 12)  # a model has few classes and thousands of layers
def snake_case(class_name: str) -> str:
    """Return a class' name as Keras makes a layer's of it: "Conv2DTranspose" as "conv2d_transpose"."""
    return _WORDS.sub("_", re.sub(r"\W", "", class_name)).lower()


def process_scopes(run: Run) -> frozenset[str]:
    """Return the names of the model and of its optimizer, without numbers: scopes that Keras counts on within
    the process as it does layers."""
    model = run.facts.model.name if run.facts and run.facts.model else None
    optimizer = run.last_fit.optimizer if run.last_fit else None
    classes = (optimizer.class_name, optimizer.inner) if optimizer else ()
    return frozenset(
        _NUMBERS.sub("", name) for name in (model, *map(snake_case, filter(None, classes))) if name
    )


def unnumbered_op(op: str, layer: str | None, scopes: frozenset[str]) -> str:
    """Return an op's scope path without the numbers of `process_scopes` and of the scopes of its layer, which
    two runs may number differently: "functional_1_1/dense_2_1/MatMul_1" as "functional/dense/MatMul_1"."""
    known = scopes | {_bare(name) for name in (layer or "").split("/") if name}
    return _PART.sub(lambda part: _unnumbered(part[0], known), op) if known else op


def _unnumbered(part: str, scopes: frozenset[str]) -> str:
    bare = _bare(part)
    return bare if bare in scopes else part


@lru_cache(maxsize=1 << 14)  # the same scopes stand in the paths of thousands of ops
def _bare(name: str) -> str:
    return _NUMBERS.sub("", name)


def _children(layers: Sequence[LayerFacts]) -> dict[str, list[LayerFacts]]:
    """Return the layers by the path of the parent; "" is the model itself. A parent that is not listed goes
    by its name."""
    listed = {layer.name for layer in layers}
    found: dict[str, list[LayerFacts]] = defaultdict(list)
    for layer in layers:
        parents = layer.name.split("/")[:-1]
        for depth in range(1, len(parents) + 1):
            if (path := "/".join(parents[:depth])) not in listed:
                listed.add(path)
                found["/".join(parents[: depth - 1])].append(LayerFacts(path, _UNLISTED, None, None, None))
        found["/".join(parents)].append(layer)
    return found


def _level(
    before: Sequence[LayerFacts], after: Sequence[LayerFacts]
) -> tuple[dict[str, str], dict[str, str], tuple[dict[str, str], dict[str, str]]]:
    """Return the pairs among the layers of two paired parents, those of another size, and the layers without
    a pair with the reason."""
    given = [{_own(layer): layer for layer in side if not is_auto_named(layer)} for side in (before, after)]
    pairs = {given[0][name].name: given[1][name].name for name in given[0] if name in given[1]}
    auto = [[layer for layer in side if is_auto_named(layer)] for side in (before, after)]
    rows = _aligned(auto[0], auto[1])
    pairs |= {auto[0][one].name: auto[1][other].name for one, other in rows}
    kinds, paired = [_kinds(side) for side in auto], set(pairs.values())
    alone = (
        {one.name: _why(one, kinds[1]) for one in before if one.name not in pairs},
        {one.name: _why(one, kinds[0]) for one in after if one.name not in paired},
    )
    return pairs, _of_another_size(auto[0], auto[1], rows), alone


def _of_another_size(
    before: Sequence[LayerFacts], after: Sequence[LayerFacts], rows: Sequence[tuple[int, int]]
) -> dict[str, str]:
    """Return the pairs between two rows that are paired, where both runs have the same classes in the same
    order, and each layer about as many parameters in both. Layers that only changed places do not count."""
    found: dict[str, str] = {}
    for (one, other), (next_one, next_other) in pairwise([(-1, -1), *rows, (len(before), len(after))]):
        here, there = before[one + 1 : next_one], after[other + 1 : next_other]
        sizes = [{(layer.class_name, layer.parameters) for layer in side} for side in (here, there)]
        if len(here) == len(there) and not sizes[0] & sizes[1] and all(map(_about_alike, here, there)):
            found |= {mine.name: theirs.name for mine, theirs in zip(here, there, strict=True)}
    return found


def _about_alike(one: LayerFacts, other: LayerFacts) -> bool:
    few, many = sorted((one.parameters or 0, other.parameters or 0))
    return one.class_name == other.class_name and few > 0 and many <= MOST_RESIZED * few


def _kinds(layers: Sequence[LayerFacts]) -> dict[str, Counter[int | None]]:
    """Return how many layers there are of each class and parameter count."""
    found: dict[str, Counter[int | None]] = defaultdict(Counter)
    for layer in layers:
        found[layer.class_name][layer.parameters] += 1
    return found


def _own(layer: LayerFacts) -> str:
    return layer.name.rpartition("/")[2]


def _alike(one: LayerFacts, other: LayerFacts) -> bool:
    counts = one.parameters, other.parameters
    return one.class_name == other.class_name and (None in counts or counts[0] == counts[1])


def _why(layer: LayerFacts, others: Mapping[str, Counter[int | None]]) -> str:
    if not is_auto_named(layer):
        return f"the other run has no layer {_own(layer)!r} there"
    count = "" if layer.parameters is None else f" with {layer.parameters:,} parameters"
    counts = others.get(layer.class_name, Counter())
    alike = counts.total() if layer.parameters is None else counts[layer.parameters] + counts[None]
    if not alike:
        return f"the other run has no {layer.class_name}{count} there"
    of = "its place among the other layers differs" if alike == 1 else f"any of {alike} could be it"
    return f"the other run has {layer.class_name}{count} there, but {of}"


def _aligned(before: Sequence[LayerFacts], after: Sequence[LayerFacts]) -> list[tuple[int, int]]:
    """Return the rows that belong together in every longest alignment that keeps the order.

    A pair may be the r-th of a longest common subsequence where the longest ones before and after it fill it
    up; where it is the only r-th, it is certain."""
    n, m = len(before), len(after)
    if n == m and all(map(_alike, before, after)):
        return [(row, row) for row in range(n)]
    if not n or not m or n * m > MOST_PAIRS:
        return []
    same = _all_alike(before, after)
    head, tail = _longest(same), _longest(same[::-1, ::-1])[::-1, ::-1]
    row, column = np.nonzero(same & (head[:-1, :-1] + 1 + tail[1:, 1:] == head[n, m]))
    rank = head[row, column]
    certain = np.bincount(rank, minlength=1)[rank] == 1
    return list(zip(row[certain].tolist(), column[certain].tolist(), strict=True))


def _all_alike(before: Sequence[LayerFacts], after: Sequence[LayerFacts]) -> Bool:
    """Return `_alike` of each layer with each."""
    codes: dict[str | int | None, int] = {None: 0}
    kinds, sizes = (
        [
            np.array([codes.setdefault(getattr(layer, name), len(codes)) for layer in side])
            for side in (before, after)
        ]
        for name in ("class_name", "parameters")
    )
    unknown = (sizes[0] == 0)[:, None] | (sizes[1] == 0)
    same = (kinds[0][:, None] == kinds[1]) & ((sizes[0][:, None] == sizes[1]) | unknown)
    return np.asarray(same, np.bool_)


def _longest(same: Bool) -> Int32:
    """Return the length of a longest common subsequence of the first i rows and the first j columns."""
    found = np.zeros((same.shape[0] + 1, same.shape[1] + 1), np.int32)
    for row, alike in enumerate(same):
        longer = np.maximum(found[row, 1:], found[row, :-1] + alike)
        found[row + 1, 1:] = np.maximum.accumulate(longer)
    return found
