"""`frozen` gives what the standard decorator gives."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, asdict, dataclass, field, fields, is_dataclass, replace
from functools import cached_property
from typing import Any

import pytest

from mpprof.model.frozen import changed, frozen


@frozen
class Ours:
    name: str
    number: int = 7
    parts: list[int] = field(default_factory=list)
    note: str = field(default="", kw_only=True)


@dataclass(frozen=True, slots=True)
class Theirs:
    name: str
    number: int = 7
    parts: list[int] = field(default_factory=list)
    note: str = field(default="", kw_only=True)


@frozen
class Key:
    """One field of each kind that a key has."""

    name: str
    number: int = 7


@frozen
class Lone:
    only: Any


def test_fields_defaults_and_what_they_hold_are_those_of_the_standard_decorator() -> None:
    for arguments in (("a",), ("a", 2), ("a", 2, [3])):
        ours, theirs = Ours(*arguments), Theirs(*arguments)
        assert asdict(ours) == asdict(theirs)
        assert repr(ours).partition("(")[2] == repr(theirs).partition("(")[2]
    assert [f.name for f in fields(Ours)] == [f.name for f in fields(Theirs)]
    ours_takes, theirs_takes = (inspect.signature(each).parameters.values() for each in (Ours, Theirs))
    assert [(p.name, p.kind) for p in ours_takes] == [(p.name, p.kind) for p in theirs_takes]
    assert Ours("a", note="b").note == "b"
    assert Ours.__slots__ == Theirs.__slots__
    assert Ours.__match_args__ == Theirs.__match_args__
    assert is_dataclass(Ours)
    assert Ours("a").parts is not Ours("a").parts


@pytest.mark.parametrize("arguments", [(), ("a", 1, [], 2)])
def test_too_few_and_too_many_arguments_are_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(TypeError):
        Ours(*arguments)


def test_equal_fields_make_equal_keys() -> None:
    assert Key("a") == Key("a", 7)
    assert Key("a") != Key("a", 8)
    assert Key("a") != ("a", 7)
    assert {Key("a"): 1}[Key("a", 7)] == 1
    assert hash(Lone("x")) == hash(Lone("x"))
    assert Lone("x") != Lone("y")
    with pytest.raises(TypeError, match="unhashable"):
        hash(Ours("a"))


def test_nothing_can_be_changed() -> None:
    key = Key("a")
    with pytest.raises(FrozenInstanceError, match="name"):
        key.name = "b"  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        key.other = 1  # type: ignore[attr-defined]
    with pytest.raises(FrozenInstanceError):
        del key.name
    assert replace(key, name="b") == Key("b")
    assert key == Key("a")


def test_copies_and_pickles_are_equal() -> None:
    key = Key("a", 3)
    assert copy.copy(key) == key
    assert copy.deepcopy(Lone([1])) == Lone([1])
    assert pickle.loads(pickle.dumps(key)) == key


def test_a_derived_class_has_the_fields_of_both() -> None:
    @frozen
    class Wider(Key):
        width: int = 0

    wide = Wider("a", width=2)
    assert (wide.name, wide.number, wide.width) == ("a", 7, 2)
    assert wide != Wider("a", width=3)
    assert wide != Key("a")
    assert hash(wide) == hash(Wider("a", 7, 2))
    assert copy.copy(wide) == wide
    assert repr(wide).endswith("Wider(name='a', number=7, width=2)")


def test_without_slots_it_keeps_cached_properties_and_nothing_else() -> None:
    @frozen(slots=False)
    class Counted:
        parts: tuple[int, ...]

        @cached_property
        def total(self) -> int:
            return sum(self.parts)

    one = Counted((1, 2))
    assert one.total == 3
    assert one.__dict__ == {"parts": (1, 2), "total": 3}
    assert one == Counted((1, 2))
    assert replace(one, parts=(4,)).total == 4
    with pytest.raises(FrozenInstanceError, match="parts"):
        one.parts = ()  # type: ignore[misc]


def test_what_it_does_not_give_is_refused_where_the_class_is_made() -> None:
    with pytest.raises(TypeError, match="Checked"):

        @frozen
        class Checked:
            number: int

            def __post_init__(self) -> None: ...

    with pytest.raises(TypeError, match="Hidden"):

        @frozen
        class Hidden:
            number: int = field(default=1, repr=False)


def test_changed_is_replace() -> None:
    one = Ours("a", 3, [1], note="b")
    assert changed(one, number=4, note="c") == replace(one, number=4, note="c")
    assert one == Ours("a", 3, [1], note="b")
    with pytest.raises(AttributeError):
        changed(one, numbre=4)
