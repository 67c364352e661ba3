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
    assert not found, "python -m tests.frozen lists all that differs; a wanted change is kept by --write"


def test_a_difference_is_named_by_its_key() -> None:
    before = {"a": [{"ns": 100.0, "code": "MP101"}], "gone": 1, "text": "one\ntwo"}
    now = {"a": [{"ns": 100.00001, "code": "MP102"}], "text": "one\nthree", "new": None}
    assert list(differences(before, now)) == [
        "a[0].ns: 100.0 -> 100.00001",
        'a[0].code: "MP101" -> "MP102"',
        "gone: gone (was 1)",
        "text: - two",
        "text: + three",
        "new: new (null)",
    ]
    assert list(differences({"ns": 100.0}, {"ns": 100.00000001})) == []
