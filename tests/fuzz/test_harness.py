"""The harness finds what it is there to find, and says how to see it again."""

from __future__ import annotations

import re

import pytest

from tests.fuzz import harness, worker
from tests.fuzz.targets import PLANTED, TARGETS


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("planted-crash", r"a crash \(SIGSEGV\)"),
        ("planted-hang", "a hang"),
        ("planted-fail", "KeyError: 'planted'"),
        ("planted-grow", r"1 bytes took \d+ MiB beyond"),
        ("planted-write", "a reader did open"),
    ],
)
def test_every_kind_of_fault_is_found_with_the_number_of_its_input(target: str, said: str) -> None:
    with pytest.raises(harness.Fault, match=said) as caught:
        harness.fuzz(target, 200, hang_s=1)
    first = re.search(rf"again: python -m tests.fuzz {target} --first (\d+) --count 1", str(caught.value))
    planted = next(each for each in PLANTED if each.name == target)
    assert worker.made(planted, int(first[1])) == b"!"


def test_a_sound_reader_has_no_fault() -> None:
    figures = harness.fuzz("planted-fail", 1)
    assert (figures["executions"], figures["whole"]) == (1, 1)


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name)
def test_an_input_is_the_same_whenever_it_is_made(target: object) -> None:
    inputs = [worker.made(target, number) for number in range(12)]
    assert inputs == [worker.made(target, number) for number in range(12)]
    assert len(set(inputs)) > 6
