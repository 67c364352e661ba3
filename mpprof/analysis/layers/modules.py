"""Which layer a module frame of PyTorch's profiler means.

Its tracer of Python frames names a module by class and a number, `Dense_1`, which counts the modules of that
class in the order in which the trace first saw them called. A layer is found by class, place and order: among
the modules called within the same outer module, those of one class are the layers of that class, in order.
Where the numbers do not agree, or the sizes of the matrix products deny it, the module keeps its own name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import permutations

from mpprof.analysis.layers.scopes import Scope
from mpprof.model import limits
from mpprof.model.frozen import frozen
from mpprof.model.run import LayerFacts, ModelFacts

Path = tuple[str, ...]
Sizes = tuple[int, ...]

_MODULE = re.compile(r"([A-Z]\w*)_(\d{1,9})")
_OPERAND = r"\w+\[([\d,]*)\]"
_PLAIN_KERNELS = frozenset(("Dense", "Conv1D", "Conv2D", "Conv3D"))
_MOST_AXES = 5
"""Axes of such a kernel: Conv3D's."""


@frozen
class Modules:
    """Layer by module path, `(Functional_0, Dense_1)` -> `dense`; a module that is no recorded layer, by its
    own path. `count`: how many modules there are."""

    layers: dict[Path, str]
    count: int


def is_module(scope: str) -> bool:
    return _MODULE.fullmatch(scope) is not None


def module_path(scope: Scope) -> Path:
    """Return the modules around an op, outermost first, as many as lie in one another in any model; empty
    where it lies in none.

    No module lies within itself: one that comes again was called again by the backward pass of what stands
    between, which is how `torch.utils.checkpoint` makes activations anew.
    """
    path = scope.path
    found: list[str] = []
    for name in path[: limits.DEEPEST_LAYER]:
        if not is_module(name):
            break
        if name in found:
            del found[found.index(name) :]
        found.append(name)
    return tuple(found)


def by_look(scopes: Iterable[Scope]) -> dict[Scope, str]:
    """Return the path of modules of each scope without a recorded model, the model's own module left out. A
    scope in no module is not in the result."""
    paths = {scope: module_path(scope) for scope in scopes}
    return {scope: "/".join(path[1:] or path) for scope, path in paths.items() if path}


def match_modules(
    scopes: Iterable[Scope], model: ModelFacts, sizes: Mapping[Path, Sequence[Sizes]]
) -> Modules:
    """Return the layer of each module that `scopes` lie in. `sizes`: per module path, for each operand of the
    ops directly in it, the sizes of its axes."""
    below: dict[Path, set[Path]] = defaultdict(set)
    for scope in scopes:
        path = module_path(scope)
        for depth in range(len(path)):
            below[path[:depth]].add(path[: depth + 1])
    children = _children(model.layers)
    roots = _roots(below[()], model)
    found: dict[Path, str] = dict.fromkeys(roots, "")
    of_module: dict[str, str] = {}  # a shared layer is one module wherever it is called
    pending = [(root, "") for root in roots] or [((), "")]
    while pending:
        outer, layer = pending.pop()
        own = children.get(layer, ())
        fresh = [path for path in below[outer] if path[-1] not in of_module]
        of_module |= _in_order(fresh, own, sizes)
        for path in below[outer]:
            # If a layer has no recorded parts, everything called within it belongs to it.
            unknown = layer if layer and not own else "/".join((layer, path[-1])).lstrip("/")
            found[path] = of_module.get(path[-1], unknown)
            pending.append((path, found[path]))
    return Modules(found, len({path[-1] for path in found}))


def _roots(outermost: Iterable[Path], model: ModelFacts) -> list[Path]:
    """Return those of the outermost modules that are the model itself: by its class, or as the only one,
    where its class is no layer's."""
    found = [path for path in outermost if _class(path) == model.class_name]
    alone = list(outermost)
    if not found and len(alone) == 1:
        classes = {fact.class_name for fact in model.layers if "/" not in fact.name}
        found = [path for path in alone if _class(path) not in classes]
    return found


def _children(layers: Sequence[LayerFacts]) -> dict[str, list[LayerFacts]]:
    found: dict[str, list[LayerFacts]] = defaultdict(list)
    for fact in layers:
        found[fact.name.rpartition("/")[0]].append(fact)
    return found


def _class(path: Path) -> str:
    match = _MODULE.fullmatch(path[-1])
    return match[1] if match else ""


def _number(path: Path) -> int:
    match = _MODULE.fullmatch(path[-1])
    return int(match[2]) if match else -1


def _in_order(
    modules: Sequence[Path], layers: Sequence[LayerFacts], sizes: Mapping[Path, Sequence[Sizes]]
) -> dict[str, str]:
    """Return the layers of the modules within one module, by class and order; where the order is
    contradicted, by the sizes of their kernels."""
    of_class: dict[str, list[Path]] = defaultdict(list)
    for path in modules:
        of_class[_class(path)].append(path)
    layers_of: dict[str, list[LayerFacts]] = defaultdict(list)
    for fact in layers:
        layers_of[fact.class_name].append(fact)
    found: dict[str, str] = {}
    for name, paths in of_class.items():
        called, stated = sorted(paths, key=_number), layers_of[name]
        pairs = list(zip(called, stated, strict=False))
        if len(called) == len(stated) and all(_fits(fact, sizes.get(path, ())) for path, fact in pairs):
            found |= {path[-1]: fact.name for path, fact in pairs}
        else:  # a layer was not called, or branches are called in another order than they are listed in
            found |= _by_sizes(called, stated, sizes)
    uses = Counter(found.values())
    return {module: layer for module, layer in found.items() if uses[layer] == 1}


def _by_sizes(
    modules: Iterable[Path], layers: Iterable[LayerFacts], sizes: Mapping[Path, Sequence[Sizes]]
) -> dict[str, str]:
    """Return the layer of each module whose operands may hold the kernel of that one alone."""
    names: dict[Sizes | None, list[str]] = defaultdict(list)
    for fact in layers:
        names[_widths(fact)].append(fact.name)
    found: dict[str, str] = {}
    for path in modules:
        fitting = names.keys() & _kernels(sizes.get(path, ()))
        if len(fitting) == 1 and len(named := names[fitting.pop()]) == 1:
            found[path[-1]] = named[0]
    return found


def _fits(fact: LayerFacts, operands: Sequence[Sizes]) -> bool:
    """Return whether nothing speaks against these operands being the layer's."""
    widths = _widths(fact)
    return not operands or widths is None or widths in _kernels(operands)


def _kernels(operands: Sequence[Sizes]) -> set[Sizes]:
    """Return the widths, of the input and of the output, that a kernel among these operands may have."""
    return {pair for axes in operands if len(axes) <= _MOST_AXES for pair in permutations(axes, 2)}


def _widths(fact: LayerFacts) -> Sizes | None:
    """Return the two widths of a layer whose kernel has them as axes; None for other layers."""
    if fact.class_name not in _PLAIN_KERNELS or fact.config.get("groups", 1) != 1:
        return None
    axis = 1 if fact.config.get("data_format") == "channels_first" else -1
    shapes = [shape for shape in (fact.input_shape, fact.output_shape) if isinstance(shape, list | tuple)]
    found = tuple(shape[axis] for shape in shapes if len(shape) > 1 and isinstance(shape[axis], int))
    return found if len(found) == 2 else None


def sizes_of(shapes: str) -> list[Sizes]:
    """Return the axes of each operand in `(float[32,64];float[64,72])`."""
    return [tuple(int(size) for size in dims.split(",") if size) for dims in re.findall(_OPERAND, shapes)]
