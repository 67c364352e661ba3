"""Every grammar: how an input is drawn and written, and the changes after which it says the same."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.fuzz.grammar import hlo, kineto, nsight, records, same_xplane, xplane

Files = dict[str, bytes]


@dataclass(frozen=True)
class Grammar:
    """`draw` gets the number of the input and dice of its own. `at` is what is read of the files written."""

    name: str
    at: str
    draw: Callable[[int, random.Random], Any]
    write: Callable[[Any], Files]
    changes: tuple[Callable[[random.Random, Any], None], ...]


GRAMMARS = (
    Grammar("xplane", "host.xplane.pb", lambda _, dice: xplane.made(dice), hlo.written, same_xplane.CHANGES),
    Grammar("hlo", "host.xplane.pb", lambda _, dice: hlo.made(dice), hlo.written, hlo.CHANGES),
    Grammar(
        "kineto", "host.pt.trace.json", lambda _, dice: kineto.made(dice), kineto.written, kineto.CHANGES
    ),
    Grammar("nsight", "w.sqlite", lambda _, dice: nsight.made(dice), nsight.written, nsight.CHANGES),
    Grammar("run", "run", records.with_wrong_facts, records.written, records.CHANGES),
    Grammar(
        "steps",
        "run",
        lambda _, dice: records.with_wrong_lines(dice, hardware=False),
        records.written,
        records.CHANGES,
    ),
    Grammar(
        "hardware",
        "run",
        lambda _, dice: records.with_wrong_lines(dice, hardware=True),
        records.written,
        records.CHANGES,
    ),
)
BY_NAME = {grammar.name: grammar for grammar in GRAMMARS}


def single(grammar: Grammar, number: int) -> Files:
    """Input `number` of a grammar without its twin, which takes as long to make."""
    return grammar.write(grammar.draw(number, _dice(grammar, number)))


def pair(grammar: Grammar, number: int) -> tuple[Files, str, Files]:
    """Input `number` of a grammar, the name of a change, and the files after it: the same on every machine."""
    dice = _dice(grammar, number)
    tree = grammar.draw(number, dice)
    files = grammar.write(tree)
    change = dice.choice(grammar.changes)
    change(dice, tree)
    return files, change.__name__, grammar.write(tree)


def _dice(grammar: Grammar, number: int) -> random.Random:
    return random.Random(f"{grammar.name} {number}")
