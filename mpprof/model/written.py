"""How a type of the model is written as JSON: the marks at its fields, and what is read from them.

A field's key, description and bounds stand in its annotation, and nowhere else: `report.to_json` writes the
documents from them, `report.schema` the JSON Schemas. A string in `Annotated` describes the key there, a pair
is a keyword of the schema. A property is written where its result is `Annotated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, dataclass, fields
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints


class Mark(Enum):
    HIDDEN = "no key: what analysis and diagnosis alone need"
    LATER = "added after version 0.1: older documents lack it, so the schema does not require it"
    LEFT_OUT = "left out where it is None or its default"
    NULL = "an empty text is written as null"
    FROM_TO = "a pair of two runs, the earlier first, is written as `from` and `to`"
    THOUSANDTH = "written to a thousandth"


HIDDEN, LATER, LEFT_OUT, NULL = Mark.HIDDEN, Mark.LATER, Mark.LEFT_OUT, Mark.NULL
FROM_TO = Mark.FROM_TO


@dataclass(frozen=True, slots=True)
class Key:
    """The key of a field that cannot or should not bear its name."""

    name: str


@dataclass(frozen=True, slots=True)
class After:
    """Written after the key of that name; "": before all others. Without it: in the order of the class."""

    key: str


@dataclass(frozen=True, slots=True)
class If:
    """Written where this attribute of the object is true."""

    name: str


Ns = Annotated[float, Mark.THOUSANDTH]
"""A time in ns: a thousandth is far inside the one ns within which the slices sum to the step."""
Code = Annotated[str, ("pattern", "^MP[0-9]{3}$")]
Count = Annotated[int, ("minimum", 0)]
Sentences = Annotated[tuple[str, ...], ("maxItems", 3)]
Interval = tuple[float, float]
IntervalNs = tuple[Ns, Ns]
Pair = Annotated[tuple[float | None, float | None], FROM_TO]
PairNs = Annotated[tuple[Ns, Ns], FROM_TO]
Number = float | Literal["NaN", "Infinity", "-Infinity"]
"""A number in a document that was read back: one that is not finite is a string there."""


class Written(NamedTuple):
    """A key of a type: the attribute whose value it has, and what its annotation says."""

    key: str
    name: str
    hint: Any  # without the marks
    keywords: dict[str, Any]  # of the schema, its description first
    required: bool
    left_out: Any  # the value that is not written; MISSING: there is none
    rounded: bool
    empty_is_null: bool
    from_to: bool
    condition: str  # the attribute that has to be true; "": none


@cache
def keys(kind: Any) -> tuple[Written, ...]:
    """Return what is written of a frozen class, in the order of its document."""
    hints = get_type_hints(kind, include_extras=True)
    found: list[Written] = []
    places: list[tuple[str, Written]] = []
    for name, hint, default in [
        *((each.name, hints[each.name], _default(each)) for each in fields(kind)),
        *((name, hint, ()) for name, hint in _properties(kind)),
    ]:
        plain, notes = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
        if HIDDEN in notes:
            continue
        key = next((note.name for note in notes if isinstance(note, Key)), name)
        omits = LEFT_OUT in notes
        condition = next((note.name for note in notes if isinstance(note, If)), "")
        written = Written(
            key,
            name,
            _without_none(plain) if omits else plain | None if NULL in notes else plain,
            dict(
                ("description", n) if isinstance(n, str) else n for n in notes if isinstance(n, (str, tuple))
            ),
            not omits and not condition and LATER not in notes,
            (None if default is MISSING else default) if omits else MISSING,
            _is_rounded(hint),
            NULL in notes,
            FROM_TO in notes,
            condition,
        )
        after = next((note.key for note in notes if isinstance(note, After)), None)
        if after is None:
            found.append(written)
        else:
            places.append((after, written))
    while places:
        there = {each.key: at for at, each in enumerate(found, 1)} | {"": 0}
        at = next(at for at, (after, _) in enumerate(places) if after in there)
        after, written = places.pop(at)
        found.insert(there[after], written)
    return tuple(found)


def keywords(notes: Iterable[Any]) -> dict[str, Any]:
    """Return the schema's keywords among the notes of an annotation."""
    found = [note for note in notes if isinstance(note, (str, tuple))]
    return dict(("description", note) if isinstance(note, str) else note for note in found)


def items(value: Any) -> Iterator[tuple[Written, Any]]:
    """Yield the keys that are written of an object, and their values."""
    kind: Any = type(value)
    for each in keys(kind):
        if each.condition and not getattr(value, each.condition):
            continue
        given = getattr(value, each.name)
        if each.left_out is MISSING or not (given is None or given == each.left_out):
            yield each, (given or None) if each.empty_is_null else given


def is_written(kind: Any) -> bool:
    """Return whether values of this type are written by their keys."""
    return hasattr(kind, "__dataclass_fields__")


def _properties(kind: Any) -> list[tuple[str, Any]]:
    found = {}
    for each in reversed(kind.__mro__):
        for name, value in vars(each).items():
            if isinstance(value, property) and str(value.fget.__annotations__.get("return", "")).startswith(
                "Annotated["
            ):
                found[name] = get_type_hints(value.fget, include_extras=True)["return"]
    return list(found.items())


def _default(field: Any) -> Any:
    return field.default if field.default_factory is MISSING else field.default_factory()


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return Union[tuple(each for each in get_args(hint) if each is not NoneType)]  # noqa: UP007


def _is_rounded(hint: Any) -> bool:
    if get_origin(hint) is Annotated and Mark.THOUSANDTH in hint.__metadata__:
        return True
    return any(_is_rounded(each) for each in get_args(hint))
