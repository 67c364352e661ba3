"""What is known of every block of memory: its kind, type, layer and op."""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import replace

import numpy as np

from mpprof.analysis.memory.blocks import Blocks
from mpprof.model.arrays import Bool, Int64
from mpprof.model.frozen import frozen

Part = tuple[dict[str, str], int]
"""Part of a block: its labels, and its bytes."""
ROUNDING = "rounding"
"""In every division, what the allocator gave beyond what was asked for."""


@frozen
class Labels:
    """The name of every block's kind, type, op and layer, as codes into lists of names. `assigned`: which
    follow from XLA's buffer assignment, not from an event."""

    codes: dict[str, Int64]
    texts: dict[str, list[str]]
    assigned: Bool

    def of(self, by: str, rows: Int64) -> list[str]:
        return [self.texts[by][code] for code in self.codes[by][rows].tolist()]

    def coded(self, by: str, names: Set[str]) -> Bool:
        """Return which blocks have one of these names."""
        return np.isin(self.codes[by], [code for code, name in enumerate(self.texts[by]) if name in names])

    def words(self, row: int) -> tuple[str, ...]:
        """Return all four words of one block."""
        return tuple(texts[int(self.codes[by][row])] for by, texts in sorted(self.texts.items()))

    def marked(self, by: str) -> tuple[Int64, list[str]]:
        """Return the codes and names of one division in which what is assigned has names of its own."""
        texts = self.texts[by]
        return self.codes[by] + len(texts) * self.assigned, [
            *texts,
            *(f"{text} (assigned)" for text in texts),
        ]


def split(blocks: Blocks, labels: Labels, parts: dict[int, Sequence[Part]]) -> tuple[Blocks, Labels]:
    """Return the blocks with those in `parts` as several that live as long; what their parts leave keeps the
    block's own labels. What the allocator gave such a block beyond what was asked for is its rounding."""
    if not parts:
        return blocks, labels
    size, asked = blocks.bytes.copy(), blocks.asked.copy()
    texts = {by: list(names) for by, names in labels.texts.items()}
    added: dict[str, list[int]] = {by: [] for by in texts}
    of: list[int] = []
    taken: list[int] = []
    for block, found in parts.items():
        rounding = int(size[block] - asked[block]) if asked[block] >= 0 else 0
        for names, part in [*found, *([(dict.fromkeys(texts, ROUNDING), rounding)] if rounding else [])]:
            for by, name in names.items():
                if name not in texts[by]:
                    texts[by].append(name)
                added[by].append(texts[by].index(name))
            of.append(block)
            taken.append(part)
            size[block] -= part
        asked[block] = size[block] if asked[block] >= 0 else -1
    more = np.array(taken, np.int64)
    by_xla = np.array([texts["kind"][code] != ROUNDING for code in added["kind"]], np.bool_)
    left = np.ones(len(blocks), np.bool_)
    left[list(parts)] = size[list(parts)] > 0
    keep = np.flatnonzero(np.append(left, np.ones(len(more), np.bool_)))
    owner = np.append(np.arange(len(blocks)), np.array(of, np.int64))[keep]
    codes = {by: np.append(labels.codes[by], np.array(added[by], np.int64))[keep] for by in texts}
    return replace(
        blocks,
        row=blocks.row[owner],
        born=blocks.born[owner],
        died=blocks.died[owner],
        bytes=np.append(size, more)[keep],
        asked=np.append(asked, np.where(by_xla, more, 0))[keep],
    ), Labels(codes, texts, np.append(labels.assigned, by_xla)[keep])
