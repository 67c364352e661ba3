"""PyTorch's memory snapshots (`torch.cuda.memory._dump_snapshot`)."""

from __future__ import annotations

import re
from pathlib import Path

from mpprof.errors import UnreadableError
from mpprof.model.trace import Trace
from mpprof.traces.common.file_head import Kind, Reader

PICKLE = re.compile(rb"\x80[\x02-\x05]")
"""How a pickle begins: with the number of its protocol. Every Python 3 writes one of these."""
_WORDS = re.compile(rb"segments|device_traces|total_size")
"""A key of the snapshot, or of the segments whose list PyTorch 1.12 and 1.13 wrote; within so many bytes."""
_WITHIN = 4096


class TorchMemoryReader(Reader):
    """Reads `*.pickle` that PyTorch wrote of its allocator. The name alone claims nothing."""

    kinds: tuple[Kind, ...] = (Kind("torch memory", may_end=(".pickle", ".pkl")),)
    files = "memory snapshots of PyTorch (*.pickle)"

    def recognises(self, head: bytes) -> bool:
        return bool(PICKLE.match(head) and _WORDS.search(head, 0, _WITHIN))

    def slow_from_bytes(self, *, packed: bool) -> int | None:
        """Return the size from which on reading is slow: about 10 MB are read a second."""
        return 2 << 20

    def read(self, path: Path, *, strict: bool) -> Trace:
        """Read a snapshot. Raises UnreadableError where nothing usable is left, and with `strict` for any
        damage."""
        with path.open("rb") as file:
            if not PICKLE.match(file.read(2)):
                raise UnreadableError(
                    "is a memory snapshot packed with gzip, which is not read", where=str(path),
                    next="Unpack it with gunzip and read the result",
                )  # fmt: skip
        from mpprof.traces.torch_memory import snapshot  # what another format does not need is not imported

        return snapshot.read(path, strict=strict)
