"""What a reader says of the files that it reads, so that they are recognised without being read."""

from __future__ import annotations

from mpprof.model.frozen import frozen


@frozen
class Kind:
    """One kind of trace file.

    `ends`: a name that ends so is of this kind unless its bytes say otherwise. `may_end`: other files have
    such names, too; only the bytes decide. `unreadable`: why only the tool that wrote it reads it, or "".
    """

    name: str
    ends: tuple[str, ...] = ()
    may_end: tuple[str, ...] = ()
    unreadable: str = ""
