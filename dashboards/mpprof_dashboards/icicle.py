"""The model as a tree of scopes with the time of each: what the icicle of the Layers page draws."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from mpprof_dashboards import theme

if TYPE_CHECKING:
    from mpprof.model.rows import KernelRow, OpRow

KINDS = ("unit", "off", "cast", "other", "unknown")
"""What a node's time is spent on, in the order in which it is drawn."""
_NUMBER = re.compile(r"\d+")
_LEAST_FOLDED = 3
_ALIKE_RATIO = 0.25
"""Siblings are folded where no one's time differs from their mean by more."""


@dataclass(slots=True)
class Node:
    """A scope. `ns` holds its own and its children's time by kind; `count` equal siblings were folded, and
    stand in `path` as one, with `*` for their numbers."""

    name: str
    path: str
    ns: dict[str, float] = field(default_factory=dict)
    children: list[Node] = field(default_factory=list)
    count: int = 1

    @property
    def total(self) -> float:
        return sum(self.ns.values())


def tree(
    ops: Sequence[OpRow],
    kernels: Sequence[KernelRow],
    *,
    device: str | None,
    phases: Sequence[str] = ("forward", "backward", "other"),
    steps: int | None,
) -> Node:
    """Return the ops of `device` in `phases` as a tree of their layers' paths, times per step.

    Ops of no layer stand in one node of their own, which is part of the whole."""
    casts: dict[str | None, float] = defaultdict(float)
    for kernel in kernels:
        if kernel["device"] == device and kernel["family"] == "cast":
            casts[kernel["op"]] += kernel["total_ns"]
    sums: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for op in ops:
        if (device is not None and op["device"] != device) or op["phase"] not in phases:
            continue
        parts = sums[op["layer"] or ""]
        split: dict[str, float] = defaultdict(float)
        for placement, ns in op["placement_ns"].items():
            split[theme.PLACEMENT_KINDS.get(placement, "unknown")] += ns
        cast = min(casts.get(op["op"], 0.0), split["other"])
        split["other"] -= cast
        split["cast"] += cast
        for kind, spent in split.items():
            if spent:
                parts[kind] += spent / (steps or 1)
    root = Node("model", "")
    for layer, parts in sums.items():
        _add(root, layer, parts)
    _order(root)
    _fold(root)
    return root


def _add(root: Node, layer: str, parts: dict[str, float]) -> None:
    scopes = layer.split("/") if layer and "," not in layer else [layer or "no layer"]
    node, path = root, ""
    _grow(root, parts)
    for scope in scopes:
        path = f"{path}/{scope}" if path else scope
        found = next((child for child in node.children if child.name == scope), None)
        if found is None:
            found = Node(scope, path if layer else "")
            node.children.append(found)
        node = found
        _grow(node, parts)


def _grow(node: Node, parts: dict[str, float]) -> None:
    for kind, ns in parts.items():
        node.ns[kind] = node.ns.get(kind, 0.0) + ns


def _order(node: Node) -> None:
    node.children.sort(key=lambda child: (child.path == "", -child.total))
    for child in node.children:
        _order(child)


def _fold(node: Node) -> None:
    """Join siblings that differ in a number alone, are built alike and take about as long."""
    groups: dict[tuple[str, str], list[Node]] = {}
    for child in node.children:
        groups.setdefault((_stem(child.name), _shape(child)), []).append(child)
    node.children = []
    for (stem, _), same in groups.items():
        if len(same) < _LEAST_FOLDED or not _alike(same):
            for child in same:
                _fold(child)
            node.children += same
            continue
        joined = _joined(same, stem)
        _fold(joined)
        node.children.append(joined)
    node.children.sort(key=lambda child: (child.path == "", -child.total))


def _stem(name: str) -> str:
    return _NUMBER.sub("#", name)


def _shape(node: Node) -> str:
    inside = sorted(_shape(child) for child in node.children)
    return f"{_stem(node.name)}({','.join(inside)})"


def _alike(same: list[Node]) -> bool:
    mean = sum(node.total for node in same) / len(same)
    return all(abs(node.total - mean) <= _ALIKE_RATIO * mean for node in same)


def _joined(same: list[Node], stem: str) -> Node:
    """Return one node for several, with their children joined by name in turn."""
    made = Node(stem.replace("#", "*"), _pattern([node.path for node in same]), count=len(same))
    inner: dict[str, list[Node]] = {}
    for node in same:
        _grow(made, node.ns)
        for child in node.children:
            inner.setdefault(_stem(child.name), []).append(child)
    for name, nodes in inner.items():
        if len({node.name for node in nodes}) == 1:
            joined = _joined(nodes, name)
            joined.name, joined.count = nodes[0].name, len(nodes)
            made.children.append(joined)
        else:
            made.children.append(_joined(nodes, name))
    made.children.sort(key=lambda child: -child.total)
    return made


def _pattern(paths: list[str]) -> str:
    """Return what paths of one shape have in common, with `*` for the numbers in which they differ."""
    parts = zip(*(path.split("/") for path in paths), strict=False)
    return "/".join(same[0] if len(set(same)) == 1 else _stem(same[0]).replace("#", "*") for same in parts)
