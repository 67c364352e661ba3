"""Which layer a scope path means: with the model's own layers where they were recorded, else by its look.

One trap decides how: TensorFlow makes scopes unique by numbering them, and Keras 3 enters the scope of a
layer twice (first without an op), so that the layer `dense` works under `dense_1` while the layer `dense_1`
works under `dense_1_2`. JAX numbers nothing. Which way a trace was written in is found by replaying the
numbering over the layers of the model and seeing which replay explains more of the scopes that are there.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence

from mpprof.analysis.layers import modules as layer_modules
from mpprof.analysis.layers.modules import Path, Sizes
from mpprof.analysis.layers.scopes import LOSS_SCOPES, Scope
from mpprof.model.frozen import frozen
from mpprof.model.run import ModelFacts

_NUMBERED = re.compile(r"(.+?)_\d+")
_MOST_ENTRIES = 3  # how often the scope of one layer may have been entered per call

# Default scope names of Keras' layers; they tell a nested layer from a part of a layer ("moments"). Names
# that ops have too ("add") are left out.
_LAYER_NAMES = """
    dense einsum_dense embedding conv1d conv2d conv3d conv1d_transpose conv2d_transpose conv3d_transpose
    depthwise_conv1d depthwise_conv2d separable_conv1d separable_conv2d max_pooling1d max_pooling2d
    max_pooling3d average_pooling1d average_pooling2d average_pooling3d global_average_pooling1d
    global_average_pooling2d global_average_pooling3d global_max_pooling1d global_max_pooling2d
    global_max_pooling3d batch_normalization layer_normalization group_normalization rms_normalization
    unit_normalization spectral_normalization lstm gru simple_rnn lstm_cell gru_cell simple_rnn_cell rnn
    bidirectional time_distributed conv_lstm1d conv_lstm2d multi_head_attention group_query_attention
    attention additive_attention activation re_lu leaky_re_lu p_re_lu dropout spatial_dropout1d
    spatial_dropout2d gaussian_dropout gaussian_noise alpha_dropout flatten permute repeat_vector
    zero_padding1d zero_padding2d zero_padding3d cropping1d cropping2d up_sampling1d up_sampling2d
    up_sampling3d rescaling resizing normalization masking sequential functional
"""
_KERAS_LAYERS = frozenset(_LAYER_NAMES.split())

Match = tuple[str, bool]
"""The layer's name ("" for none), and whether the scope lies in the model at all."""
Matcher = Callable[[Scope], Match]
Names = dict[str, None]
"""Names in an order, of which a model has thousands: whether one is among them is asked for each scope."""


def matcher(
    scopes: Iterable[Scope], model: ModelFacts | None, sizes: Mapping[Path, Sequence[Sizes]] | None = None
) -> Matcher:
    """Return a function that gives the layer of each of `scopes`: all the scopes that the trace holds, as
    they decide together.

    `sizes`: per module of PyTorch's, the axes of its operands (`layer_modules`)."""
    seen = frozenset(scopes)
    # A model that was recorded without its layers tells no more of scopes than none.
    matches = _with_model(seen, model, sizes or {}) if model and model.layers else _by_look(seen)
    return lambda scope: matches.get(scope, ("", False))


# --- with the recorded layers ------------------------------------------------------------------------------


@frozen
class _Attempt:
    explained: int
    matches: dict[Scope, Match]


def _with_model(
    scopes: frozenset[Scope], model: ModelFacts, sizes: Mapping[Path, Sequence[Sizes]]
) -> dict[Scope, Match]:
    tree = _tree(model)
    most = 1 if any(scope.wrapped for scope in scopes) else _MOST_ENTRIES
    rows = list(scopes)
    bases = {part: _base(part) for part in {part for scope in rows for part in scope.path}}
    attempts = [_attempt(rows, bases, tree, model.name, entries) for entries in range(1, most + 1)]
    attempts.append(_modules_attempt(scopes, model, sizes))
    return max(attempts, key=lambda attempt: attempt.explained).matches  # the first of equals: fewest entries


def _tree(model: ModelFacts) -> dict[str, Names]:
    """Return the names of the children of each layer by its path, in the model's order; "" is the model
    itself."""
    children: dict[str, Names] = defaultdict(dict)
    for layer in model.layers:
        parts = layer.name.split("/")
        for depth, part in enumerate(parts):
            children["/".join(parts[:depth])][part] = None
    return children


def _attempt(
    scopes: Sequence[Scope],
    bases: Mapping[str, str],
    tree: Mapping[str, Names],
    name: str | None,
    entries: int,
) -> _Attempt:
    """Return the matches of the scopes if the model's scope has this `name` and is entered `entries`
    times, and how much that explains. `bases`: each part of a scope's path without the number that
    TensorFlow added."""
    matches: list[Match] = []
    members: list[tuple[int, int]] = []  # row in `scopes`, and where in its path the part below starts
    for row, scope in enumerate(scopes):
        below = _below_model(scope, name, tree.get("", {}))
        matches.append(("", below is not None))
        members.append((row, below or 0))
    explained = sum(scope.path[0] == f"{name}_{entries - 1}" for scope in scopes if scope.path)
    pending = [("", members)]
    while pending:
        path, members = pending.pop()
        if not (names := tree.get(path, {})):
            continue
        replayed = _replay(names, entries)
        groups: dict[str, list[tuple[int, int]]] = defaultdict(list)
        seen: set[str] = set()
        for row, start in members:
            parts = scopes[row].path
            for at in range(start, len(parts)):
                part = parts[at]
                if part in names or bases[part] in names:
                    break
            else:
                continue
            child = replayed.get(part) or (part if part in names else bases[part])
            matches[row] = (f"{path}/{child}".lstrip("/"), True)
            groups[child].append((row, at + 1))
            seen.add(part)
        explained += sum(part in replayed for part in seen)
        pending += [(f"{path}/{child}".lstrip("/"), group) for child, group in groups.items()]
    return _Attempt(explained, dict(zip(scopes, matches, strict=True)))


def _modules_attempt(
    scopes: frozenset[Scope], model: ModelFacts, sizes: Mapping[Path, Sequence[Sizes]]
) -> _Attempt:
    found = layer_modules.match_modules(scopes, model, sizes)
    paths = {scope: layer_modules.module_path(scope) for scope in scopes}
    matches = {scope: (found.layers[path], True) for scope, path in paths.items() if path}
    return _Attempt(found.count, matches)


def _below_model(scope: Scope, name: str | None, layers: Names) -> int | None:
    """Return where the path below the model's own scope starts; None where it is not below it (JAX has
    none)."""
    if not name or not scope.path or scope.phase in ("optimizer", "loss_scale"):
        return None
    head = scope.path[0]
    if head == name or (_base(head) == name and not scope.wrapped):
        return 1 if head not in layers or len(scope.path) > 1 else None
    return None


def _base(scope: str) -> str:
    match = _NUMBERED.fullmatch(scope)
    return match[1] if match else scope


def _replay(names: Names, entries: int) -> dict[str, str]:
    """Return scope name -> layer, if each layer's scope is entered `entries` times, in order, and numbered as
    `tf.Graph.unique_name` does."""
    uses: dict[str, int] = {}
    owner: dict[str, str] = {}
    for name in names:
        for _ in range(entries):
            number = uses.get(name, 0)
            uses[name] = number + 1
            unique = name
            while number and unique in uses:
                unique = f"{name}_{number}"
                number += 1
            uses.setdefault(unique, 1)
            owner[unique] = name
    return owner


# --- without them ------------------------------------------------------------------------------------------


def _by_look(scopes: frozenset[Scope]) -> dict[Scope, Match]:
    """Return the layers by the look of the path: below the model's scope, as deep as the scopes have names
    that Keras gives to layers. The numbers that TensorFlow added stay: without the model they cannot be told
    apart."""
    models = {s.path[0] for s in scopes if s.phase == "backward" and len(s.path) > 1 and not s.wrapped}
    models -= LOSS_SCOPES
    if not models:
        models = {s.path[0] for s in scopes if s.phase == "other" and any(map(_is_layer, s.path[1:]))}
    modules = layer_modules.by_look(scopes)
    matches: dict[Scope, Match] = {}
    for scope in scopes:
        if scope.phase in ("optimizer", "loss_scale", "input"):
            continue
        if scope in modules:
            matches[scope] = (modules[scope], True)
        elif scope.wrapped and scope.phase in ("forward", "backward"):
            matches[scope] = (_looks(scope.path), True)
        elif scope.path and scope.path[0] in models:
            matches[scope] = (_looks(scope.path[1:]), True)
    return matches


def _looks(path: tuple[str, ...]) -> str:
    if not path or path[0] in LOSS_SCOPES or _base(path[0]) == "Cast":
        return ""
    deep = 1
    while deep < len(path) and _is_layer(path[deep]):
        deep += 1
    return "/".join(path[:deep])


def _is_layer(scope: str) -> bool:
    while scope not in _KERAS_LAYERS and _NUMBERED.fullmatch(scope):
        scope = _base(scope)
    return scope in _KERAS_LAYERS
