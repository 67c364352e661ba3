"""How a `fit` ended that raised: what is kept of the exception that left it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

OUT_OF_MEMORY = re.compile(r"RESOURCE_?EXHAUSTED|\bOOM\b|out of memory|_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""As TensorFlow, XLA, PyTorch and NVIDIA's libraries say it."""
MOST_CHARACTERS = 60_000
"""How much of an error's text is kept: XLA lists the largest buffers first."""
MOST_OF_A_LINE = 300
_GRAPH_ERROR = "Graph execution error:"
_OF_THE_GRAPH = re.compile(
    r'Detected at node .*|<stack traces unavailable>|File ".*|\d+ root error\(s\) found\.|'
)
"""What TensorFlow writes above an error's own words: the op, and where in the program it was made."""
_OF_A_CALL = re.compile(
    r"Exception encountered when calling (.*?)\.?|Could not automatically infer .*Error encountered:|"
)
"""What Keras 3 writes above the words of an error that a layer's `call` has raised, which it sets in bold."""
_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_MOST_CAUSES = 20
_REASONS = ((KeyboardInterrupt, "interrupted"), (SystemExit, "exit"))


def ended(error: BaseException | None) -> dict[str, Any]:
    """Return run.json's `ended`. `reason`: "out_of_memory", "interrupted" (by the keyboard), "exit" (by
    `sys.exit`, where it can be seen), "error", or "unknown". `error`: the text of an out-of-memory error, of
    any other its type's name; `text`: the first line of what another error says (below the heads that
    TensorFlow puts above it)."""
    if error is None:
        return {"reason": "unknown"}
    for one in _causes(error):
        name, text = type(one).__name__, str(one)
        if isinstance(one, MemoryError) or OUT_OF_MEMORY.search(name + " " + text):
            return {"reason": "out_of_memory", "error": f"{name}: {text}"[:MOST_CHARACTERS]}
    reason = next((told for kind, told in _REASONS if isinstance(error, kind)), "error")
    words = _own_words(str(error))[:MOST_OF_A_LINE] if reason == "error" else ""
    return {"reason": reason, "error": type(error).__name__, **({"text": words} if words else {})}


def in_a_line(error: BaseException) -> str:
    """Return an error's type, and the first line of what it says."""
    return f"{type(error).__name__}: {_own_words(str(error))}"[:MOST_OF_A_LINE]


def _own_words(text: str) -> str:
    """Return the first line of an error's text that says what went wrong."""
    first, *rest = map(str.strip, _COLOURS.sub("", text).strip().split("\n"))
    if first == _GRAPH_ERROR:
        return next((line for line in rest if not _OF_THE_GRAPH.fullmatch(line)), first)
    if _OF_A_CALL.fullmatch(first) is None:
        return first
    heads = [found for found in map(_OF_A_CALL.fullmatch, (first, *rest)) if found is not None]
    inner = next((line for line in rest if not _OF_A_CALL.fullmatch(line)), first)
    called = next((found[1] for found in reversed(heads) if found[1]), None)
    return inner if called is None else f"{inner} (in {called})"


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, and those that it was raised from or while handling."""
    one: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__
