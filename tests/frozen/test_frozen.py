"""Nothing of what is frozen has changed."""

from __future__ import annotations

import pytest

from tests.frozen.keeping import differences, kept
from tests.frozen.outputs import GROUPS
from tests.paths import NO_DATA, SHARED_DATA

LONG = ("records-jax",)
"""Trainings whose records differ from those of TensorFlow, which are compared at each change, in few lines."""
OF_OTHERS = ("real", "truth")
ELSEWHERE = ("planted",)
"""What tests/planted compares, whose cases it has judged anyway."""


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(group, marks=pytest.mark.full if group in LONG else ())
        for group in GROUPS
        if group not in ELSEWHERE
    ],
)
def test_what_is_frozen_is_as_it_was(group: str) -> None:
    if group in OF_OTHERS and not SHARED_DATA.exists():
        pytest.skip(NO_DATA)
    now = dict(GROUPS[group]())
    found = [line for _, line in zip(range(40), differences(kept(group), now), strict=False)]
    assert not found, f"python -m tests.frozen {group} lists all; if that is wanted, --write {group} keeps it"


def test_a_difference_is_named_by_its_key() -> None:
    before = {"a": [{"ns": 100.0}, {"ns": 2}], "gone": 1, "text": "one\ntwo"}
    now = {"a": [{"ns": 100.00001}, {"ns": 2}], "text": "one\nthree", "new": None}
    assert list(differences(before, now)) == [
        "a[0].ns: 100.0 -> 100.00001",
        "gone: gone (was 1)",
        "text: - two",
        "text: + three",
        "new: new (null)",
    ]
    assert list(differences({"ns": 100.0}, {"ns": 100.00000001})) == []


def test_entries_with_a_code_are_compared_by_it_and_not_by_their_place() -> None:
    before = {"found": [{"code": "MP101", "ns": 1}, {"code": "MP103", "ns": 3}], "clear": ["MP104", "MP106"]}
    now = {
        "found": [{"code": "MP102"}, {"code": "MP101", "ns": 2}, {"code": "MP103", "ns": 3}],
        "clear": ["MP105", "MP106"],
    }
    assert list(differences(before, now)) == [
        "found[MP101].ns: 1 -> 2",
        'found[MP102]: new ({"code": "MP102"})',
        'clear[MP104]: gone (was "MP104")',
        'clear[MP105]: new ("MP105")',
    ]
    assert list(differences(before["clear"], before["clear"][::-1])) == ["its entries are in another order"]
    twice = [{"code": "MP101", "ns": 1}, {"code": "MP101", "ns": 2}]
    assert list(differences(twice, [twice[0], twice[0]])) == ["[1].ns: 2 -> 1"]
