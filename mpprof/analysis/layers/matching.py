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
    """A function that gives the layer of each of `scopes`: all that the trace holds, they decide together.

    `sizes`: per module of PyTorch's, the axes of its operands (`layer_modules`)."""
    seen = frozenset(scopes)
    matches = _with_model(seen, model, sizes or {}) if model is not None else _by_look(seen)
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
    attempts = [_attempt(scopes, tree, model.name, entries) for entries in range(1, most + 1)]
    attempts.append(_modules_attempt(scopes, model, sizes))
    return max(attempts, key=lambda attempt: attempt.explained).matches  # the first of equals: fewest entries


def _tree(model: ModelFacts) -> dict[str, Names]:
    """Names of the children of each layer by its path, in the model's order; "" is the model itself."""
    children: dict[str, Names] = defaultdict(dict)
    for layer in model.layers:
        parts = layer.name.split("/")
        for depth, part in enumerate(parts):
            children["/".join(parts[:depth])][part] = None
    return children


def _attempt(
    scopes: frozenset[Scope], tree: Mapping[str, Names], model_name: str | None, entries: int
) -> _Attempt:
    matches: dict[Scope, Match] = {}
    explained = 0
    inside: list[tuple[Scope, tuple[str, ...]]] = []
    for scope in scopes:
        rest = _within_model(scope, model_name, tree.get("", {}))
        matches[scope] = ("", rest is not None)
        inside.append((scope, scope.path if rest is None else rest))
    explained += sum(scope.path[0] == f"{model_name}_{entries - 1}" for scope, _ in inside if scope.path)
    pending = [("", inside)]
    while pending:
        path, members = pending.pop()
        names = tree.get(path, {})
        if not names:
            continue
        found = [(scope, rest, _first(rest, names)) for scope, rest in members]
        replayed = _replay(names, entries)
        groups: dict[str, list[tuple[Scope, tuple[str, ...]]]] = defaultdict(list)
        for scope, rest, at in found:
            if at is None:
                continue
            child = replayed.get(rest[at]) or _nearest(rest[at], names)
            matches[scope] = (f"{path}/{child}".lstrip("/"), True)
            groups[child].append((scope, rest[at + 1 :]))
        explained += len({rest[at] for _, rest, at in found if at is not None and rest[at] in replayed})
        pending += [(f"{path}/{child}".lstrip("/"), group) for child, group in groups.items()]
    return _Attempt(explained, matches)


def _modules_attempt(
    scopes: frozenset[Scope], model: ModelFacts, sizes: Mapping[Path, Sequence[Sizes]]
) -> _Attempt:
    found = layer_modules.match_modules(scopes, model, sizes)
    paths = {scope: layer_modules.module_path(scope) for scope in scopes}
    matches = {scope: (found.layers[path], True) for scope, path in paths.items() if path}
    return _Attempt(found.count, matches)


def _within_model(scope: Scope, name: str | None, layers: Names) -> tuple[str, ...] | None:
    """The path below the model's own scope; None where it is not under it (JAX leaves it out)."""
    if not name or not scope.path or scope.phase in ("optimizer", "loss_scale"):
        return None
    head = scope.path[0]
    if head == name or (_base(head) == name and not scope.wrapped):
        return scope.path[1:] if head not in layers or len(scope.path) > 1 else None
    return None


def _first(path: tuple[str, ...], names: Names) -> int | None:
    """Where in `path` the first scope stands that may belong to one of the layers `names`."""
    return next((at for at, part in enumerate(path) if part in names or _base(part) in names), None)


def _nearest(scope: str, names: Names) -> str:
    return scope if scope in names else _base(scope)


def _base(scope: str) -> str:
    match = _NUMBERED.fullmatch(scope)
    return match[1] if match else scope


def _replay(names: Names, entries: int) -> dict[str, str]:
    """Scope name -> layer, if each layer's scope is entered `entries` times, in order, and numbered as
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
    """Layers by the look of the path: below the model's scope, as deep as the scopes have names that Keras
    gives to layers. The numbers that TensorFlow added stay: without the model they cannot be told apart."""
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
