"""What the commands print of damaged files: a whole document that keeps its schema, or one clear error."""

from __future__ import annotations

import pytest

from tests.fuzz.harness import fuzz

COUNT = 30
TARGETS = (
    "command-xspace",
    "command-chrome",
    "command-nsys",
    "command-run",
    "command-steps",
    "command-hardware",
)


@pytest.mark.parametrize("target", TARGETS)
def test_commands_print_a_document_or_one_clear_error(target: str) -> None:
    figures = fuzz(target, COUNT)
    # Damage to run.json leaves no JSON more often than not, which is refused; of the others most can be read.
    assert figures["whole"] + figures["warned"] > COUNT / (6 if target == "command-run" else 3)
