"""What grappler's auto_mixed_precision made of the training's graphs, from the files that it writes itself.

With TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LOG_PATH set, TensorFlow 2.21 saves each graph before the rewrite
(`graphdef_preop_<function>_<ms>.pb`) and, where it converted anything, after it
(`graphdef_AutoMixedPrecision_<function>_<ms>.pb`). The process' stderr is never captured for this."""

from __future__ import annotations

import mmap
import os
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Facts = dict[str, Any]

LOG_PATH = "TF_AUTO_MIXED_PRECISION_GRAPH_REWRITE_LOG_PATH"
MATRIX_OPS = re.compile(
    r"(?:.*MatMul.*|(?:Depthwise)?Conv\dD.*|Depthwise.*|Einsum|CudnnRNN.*|.*Conv2DBias.*)$"
)
"""The ops that the rewrite's allow list is about (read in TensorFlow 2.21's paintbuckets file)."""
MOST_BYTES = 256 << 20
MOST_GRAPHS = 200
MOST_KINDS = 20

_NAME = re.compile(r"graphdef_(preop|AutoMixedPrecision)_(.+)_(\d+)\.pb$")
_HALF = {19: "float16", 14: "bfloat16"}  # DT_HALF and DT_BFLOAT16 of TensorFlow's types.proto


def rewrite_facts(asked: Any, since_unix_s: float) -> Facts:
    """Return run.json's `graph_rewrite_result`; empty where nothing is known. `asked` is `graph_rewrite`;
    files from before `since_unix_s` are another training's.

    Of all graphs together, each function once: `graphs` that were looked at, `converted_graphs`, their
    `nodes`, `matrix_nodes` (what Tensor Cores could do), and how many of them were converted, to `dtype`,
    with how many `casts` put in; `converted` and `kept` name the kinds of matrix nodes, most frequent first.
    TensorFlow's own line in the log ("Converted A/B nodes") gives `converted_types`: a node with four types
    counts four times there.
    """
    if not asked:
        return {}
    facts: Facts = {}
    if isinstance(asked, str) and asked.isupper():
        facts["variable_known"] = _library_knows(asked)
    folder = os.environ.get(LOG_PATH)
    if folder and (graphs := _graphs(Path(folder), since_unix_s)):
        facts |= {"source": "graphs", "path": folder, **_summed(graphs)}
    return {key: value for key, value in facts.items() if value is not None}


def _library_knows(variable: str) -> bool | None:
    """Return whether this TensorFlow reads the environment variable: only NVIDIA's builds do, stock ones know
    the option alone. None: the library that holds the rewrite was not found."""
    import tensorflow as tf

    library = Path(tf.sysconfig.get_lib()) / "libtensorflow_framework.so.2"
    try:
        with library.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as held:
            if held.find(LOG_PATH.encode()) < 0:
                return None  # the rewrite is elsewhere in this build
            return held.find(variable.encode() + b"\0") >= 0
    except (OSError, ValueError):
        return None


def _graphs(folder: Path, since_unix_s: float) -> dict[str, dict[str, Path]]:
    """Return function -> {"preop": file, "AutoMixedPrecision": file}, the latest of each."""
    found: dict[str, dict[str, tuple[int, Path]]] = {}
    try:
        names = sorted(os.listdir(folder))
    except OSError:
        return {}
    for name in names:
        match = _NAME.match(name)
        if match is None or int(match[3]) < since_unix_s * 1000:
            continue
        kind, function, at_ms = match[1], match[2], int(match[3])
        mine = found.setdefault(function, {})
        if kind not in mine or at_ms > mine[kind][0]:
            mine[kind] = (at_ms, folder / name)
    chosen = list(found.items())[-MOST_GRAPHS:]
    return {function: {kind: path for kind, (_, path) in files.items()} for function, files in chosen}


def _summed(graphs: dict[str, dict[str, Path]]) -> Facts:
    total: Counter[str] = Counter()
    converted: Counter[str] = Counter()
    kept: Counter[str] = Counter()
    dtype = None
    for files in graphs.values():
        before = {node.name: node for node in _nodes(files.get("preop"))}
        matrix = {name for name, node in before.items() if MATRIX_OPS.match(node.op)}
        changed = set()
        for node in _nodes(files.get("AutoMixedPrecision")):
            if node.name not in before:
                total["casts"] += node.op == "Cast"
            elif half := _converted(before[node.name], node):
                changed.add(node.name)
                total["converted_types"] += len(half)
                dtype = half[0]
        total.update(graphs=1, converted_graphs=bool(changed), nodes=len(before), matrix_nodes=len(matrix))
        total.update(converted_nodes=len(changed), converted_matrix_nodes=len(matrix & changed))
        converted.update(before[name].op for name in matrix & changed)
        kept.update(before[name].op for name in matrix - changed)
    return {
        **total,
        "dtype": dtype,
        "converted": dict(converted.most_common(MOST_KINDS)),
        "kept": dict(kept.most_common(MOST_KINDS)),
    }


def _nodes(file: Path | None) -> Iterator[Any]:
    """Yield the nodes of a saved graph; none where there is no file, or it is no graph."""
    from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
    from tensorflow.core.framework import graph_pb2

    try:
        if file is None or file.stat().st_size > MOST_BYTES:
            return
        yield from graph_pb2.GraphDef.FromString(file.read_bytes()).node
    except (OSError, DecodeError):
        return


def _converted(before: Any, after: Any) -> list[str]:
    """Return the 16-bit types that the rewrite gave to a node, one for each of its types that was changed."""
    old, new = _types(before), _types(after)
    return [_HALF[new[key]] for key in new if new[key] in _HALF and old.get(key) not in _HALF]


def _types(node: Any) -> dict[tuple[str, int], int]:
    """Return every type in a node's attributes: (attribute, place in its list) -> TensorFlow's number of
    it."""
    return {
        (name, place): number
        for name, value in node.attr.items()
        for place, number in enumerate(value.list.type or [value.type])
        if number
    }
