"""Damage to tables of comma-separated values."""

from __future__ import annotations

import random

from tests.fuzz import mutate_bytes

CELLS = (
    "", "n/a", "nan", "inf", "-1", "1,234,567.5", "1e999", "9" * 400, "1_000", "\u0663", '"', '""', "\x00", "\r", "a" * 3000, "0",
    "Kernel Name", "Metric Name", "sm__inst_executed_pipe_tensor.sum", "8.0", "99999999999999999999.1", "\ud800", "x\ny",
    "sm__inst_executed_pipe_tensor_op_hmma.sum", "b" * 140_000, "==PROF==",
)  # fmt: skip


def changed(dice: random.Random, data: bytes) -> bytes:
    """Lines left out, repeated or exchanged, and cells replaced."""
    rows = [line.split(",") for line in data.decode("utf-8", "replace").split("\n")]
    for _ in range(dice.choice((1, 1, 2, 5))):
        at, other = dice.randrange(len(rows)), dice.randrange(len(rows))
        row = rows[at] or [""]
        match dice.randrange(7):
            case 0 if len(rows) > 2:
                del rows[at]
            case 1:
                rows[at:at] = [row] * dice.choice((1, 3, 60))
            case 2:
                rows[at], rows[other] = rows[other], rows[at]
            case 3:
                rows[at] = row * dice.choice((2, 50))
            case 4:
                rows[at] = row[: dice.randrange(len(row))]
            case _:
                rows[at] = [*row]
                rows[at][dice.randrange(len(row))] = dice.choice((*CELLS, f'"{dice.choice(CELLS)}"'))
    made = "\n".join(",".join(row) for row in rows).encode("utf-8", "surrogatepass")
    return mutate_bytes.changed(dice, made, 2) if dice.random() < 0.3 else made
