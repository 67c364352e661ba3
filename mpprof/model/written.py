"""How a type of the model is written as JSON: the marks at its fields, and what is read from them.

A field's key, description and bounds stand in its annotation, and nowhere else: `report.to_json` writes the
documents from them, `report.schema` the JSON Schemas. A string in `Annotated` describes the key there, a pair
is a keyword of the schema. A property is written where its result is `Annotated`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import MISSING, fields
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, Union, get_args, get_origin, get_type_hints

from mpprof.model.frozen import frozen


class Mark(Enum):
    HIDDEN = "no key: what analysis and diagnosis alone need"
    LATER = "added after version 0.1: older documents lack it, so the schema does not require it"
    LEFT_OUT = "left out where it is its default, or None"
    NULL = "an empty text is written as null"
    THOUSANDTH = "written to a thousandth"


HIDDEN, LATER, LEFT_OUT, NULL = Mark.HIDDEN, Mark.LATER, Mark.LEFT_OUT, Mark.NULL


@frozen
class Key:
    """The key of a field that cannot or should not bear its name."""

    name: str


@frozen
class After:
    """Written after the key of that name; "": before all others. Without it: in the order of the class."""

    key: str


@frozen
class If:
    """Written where this attribute of the object is true."""

    name: str


@frozen
class Ends:
    """A pair is written as an object with these keys."""

    first: str
    second: str


FROM_TO, LOW_HIGH = Ends("from", "to"), Ends("low", "high")
"""Of two runs, the earlier first; of a range."""
Ns = Annotated[float, Mark.THOUSANDTH]
"""A time in ns: a thousandth is far inside the one ns within which the slices sum to the step."""
Code = Annotated[str, ("pattern", "^MP[0-9]{3}$")]
Count = Annotated[int, ("minimum", 0)]
Sentences = Annotated[tuple[str, ...], ("maxItems", 3)]
Interval = tuple[float, float]
IntervalNs = tuple[Ns, Ns]
Pair = Annotated[tuple[float | None, float | None], FROM_TO]
PairNs = Annotated[tuple[Ns, Ns], FROM_TO]


class Written(NamedTuple):
    """A key of a type: the attribute that it holds, and its annotation."""

    key: str
    name: str
    plain: Any  # the type, without its notes
    notes: tuple[Any, ...]
    left_out: Any  # the value that is not written; MISSING: there is none
    rounded: bool
    empty_is_null: bool
    ends: Ends | None
    condition: str  # the attribute that has to be true; "": none

    @property
    def hint(self) -> Any:
        """The type of what is written."""
        if self.empty_is_null:
            return self.plain | None
        return self.plain if self.left_out is MISSING else _without_none(self.plain)

    @property
    def required(self) -> bool:
        """Whether every document has it."""
        return self.left_out is MISSING and not self.condition and LATER not in self.notes


@cache
def keys(kind: Any) -> tuple[Written, ...]:
    """Return what is written of a frozen class, in the order of its document."""
    found: list[Written] = []
    places: list[tuple[str, Written]] = []
    for name, hint, default in _annotated(kind):
        plain, notes = (hint.__origin__, hint.__metadata__) if get_origin(hint) is Annotated else (hint, ())
        if HIDDEN in notes:
            continue
        said = {type(note): note for note in notes}
        written = Written(
            said[Key].name if Key in said else name,
            name,
            plain,
            notes,
            default if LEFT_OUT in notes else MISSING,
            _is_rounded(hint),
            NULL in notes,
            said.get(Ends),
            said[If].name if If in said else "",
        )
        if After in said:
            places.append((said[After].key, written))
        else:
            found.append(written)
    while places:
        there = {each.key: at for at, each in enumerate(found, 1)} | {"": 0}
        at = next(at for at, (after, _) in enumerate(places) if after in there)
        after, written = places.pop(at)
        found.insert(there[after], written)
    return tuple(found)


def _annotated(kind: Any) -> Iterator[tuple[str, Any, Any]]:
    """Yield the name of each field and of each property that is written, its annotation, and its default."""
    hints = get_type_hints(kind, include_extras=True)
    for each in fields(kind):
        default = each.default if each.default_factory is MISSING else each.default_factory()
        yield each.name, hints[each.name], None if default is MISSING else default
    for each in reversed(kind.__mro__):
        for name, value in vars(each).items():
            if isinstance(value, property) and _says(value.fget):
                yield name, get_type_hints(value.fget, include_extras=True)["return"], ()


def _says(getter: Any) -> bool:
    return str(getter.__annotations__.get("return", "")).startswith("Annotated[")


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


def _without_none(hint: Any) -> Any:
    if get_origin(hint) not in (Union, UnionType):
        return hint
    return Union[tuple(each for each in get_args(hint) if each is not NoneType)]  # noqa: UP007


def _is_rounded(hint: Any) -> bool:
    parts = [hint]
    for each in parts:  # grows while it is read
        if get_origin(each) is Annotated and Mark.THOUSANDTH in each.__metadata__:
            return True
        parts += get_args(each)
    return False
