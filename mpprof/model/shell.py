"""Paths in commands that are printed to be copied into a shell."""

from __future__ import annotations

import os
import shlex


def quoted(path: str | os.PathLike[str]) -> str:
    """Return a path or another word as a shell reads it, in one line: what cannot be printed by its bytes, as
    bash, zsh and ksh take it."""
    text = os.fspath(path)
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_escaped, text)) + "'"


def _escaped(sign: str) -> str:
    if sign in "\\'":
        return f"\\{sign}"
    return sign if sign.isprintable() else "".join(f"\\{byte:03o}" for byte in os.fsencode(sign))
