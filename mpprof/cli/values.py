"""Values of options that several commands take."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from mpprof.errors import UsageError


def batch(text: str) -> int:
    """Return a number of examples from the text of an option; the function is the option's `type`."""
    from mpprof.model.limits import LARGEST_BATCH  # needs NumPy, and most commands take no batch

    if not (text.isdecimal() and len(text) <= 20 and 1 <= int(text) <= LARGEST_BATCH):
        shown = text if len(text) <= 30 else f"{text[:30]}..."
        raise argparse.ArgumentTypeError(
            f"{shown!r} is not a batch: give a whole number of examples from 1 to {LARGEST_BATCH:,}"
        )
    return int(text)


def whole(what: str, least: int = 0) -> Callable[[str], int]:
    """Return the `type` of an option that is a whole number of at least `least`; `what` it has to be."""

    def read(text: str) -> int:
        if not text.isdecimal() or int(text) < least:
            raise argparse.ArgumentTypeError(f"{text!r} is not {what}")
        return int(text)

    return read


def names(option: str, text: str, example: str) -> Sequence[str]:
    """Return the names in a list with commas, each once. Raises UsageError where there is not one."""
    found = dict.fromkeys(part.strip() for part in text.split(",") if part.strip())
    if not found:
        raise UsageError(f"{option} {text!r} has no name in it", next=f"Example: {option} {example}")
    return list(found)
