"""How a `fit` ended that raised: which exception left it, and the text of an out-of-memory error.

Keras calls no hook of a callback when `fit` raises, and takes its own frames out of the traceback. So where
`fit` was called is noted as it begins, the instruction of the caller's code. An exception seen later (handled
at that moment, or the one that ended the script: `sys.last_value`) is this fit's if it passed there.
Python keeps neither a `SystemExit` nor an exception that ended a thread: of those that nobody handles,
nothing is known.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from types import CodeType, FrameType
from typing import Any

Call = tuple[CodeType, int]
"""A place in a caller's code: the instruction, in bytes from its beginning."""

OUT_OF_MEMORY = re.compile(r"RESOURCE_EXHAUSTED|\bOOM\b|out of memory|_STATUS_ALLOC_FAILED", re.IGNORECASE)
"""As TensorFlow, XLA, PyTorch and NVIDIA's libraries say it."""
MOST_CHARACTERS = 60_000
"""Of an error's text that is kept: XLA lists the largest buffers first."""
MOST_OF_A_LINE = 300
_MOST_CAUSES = 20
_REASONS = ((KeyboardInterrupt, "interrupted"), (SystemExit, "exit"))


def call_of_running_fit() -> Call | None:
    """Return the place from which the `fit` that is calling us was called; None where there is none."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (frame.f_code.co_name == "fit" and _is_keras(frame)):
        frame = frame.f_back
    while frame is not None and _is_keras(frame):
        frame = frame.f_back
    return None if frame is None else (frame.f_code, frame.f_lasti)


def exception_of(call: Call | None) -> BaseException | None:
    """Return the exception that left this call, if it can be seen: it is being handled, or it ended the
    script."""
    if call is None:
        return None
    seen = (sys.exc_info()[1], getattr(sys, "last_exc", None), getattr(sys, "last_value", None))
    found = (one for error in seen if error is not None for one in _causes(error))
    return next((error for error in found if call in _places(error)), None)


def ended(error: BaseException | None) -> dict[str, Any]:
    """Return run.json's `ended`. `reason`: "out_of_memory", "interrupted" (by the keyboard), "exit" (by
    `sys.exit`, where it can be seen), "error", or "unknown" where nobody told. `error`: the text of an
    out-of-memory error, of any other its type's name; `text`: the first line of what another error says."""
    if error is None:
        return {"reason": "unknown"}
    for one in _causes(error):
        name, text = type(one).__name__, str(one)
        if isinstance(one, MemoryError) or OUT_OF_MEMORY.search(name + " " + text):
            return {"reason": "out_of_memory", "error": f"{name}: {text}"[:MOST_CHARACTERS]}
    reason = next((told for kind, told in _REASONS if isinstance(error, kind)), "error")
    words = str(error).strip().partition("\n")[0][:MOST_OF_A_LINE] if reason == "error" else ""
    return {"reason": reason, "error": type(error).__name__, **({"text": words} if words else {})}


def _is_keras(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in ("keras", "tf_keras")


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the exception, and those that it was raised from or while handling."""
    one: BaseException | None = error
    for _ in range(_MOST_CAUSES):
        if one is None:
            return
        yield one
        one = one.__cause__ or one.__context__


def _places(error: BaseException) -> Iterator[Call]:
    trace = error.__traceback__
    while trace is not None:
        yield trace.tb_frame.f_code, trace.tb_lasti
        trace = trace.tb_next
