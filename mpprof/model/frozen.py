"""`frozen`: what `@dataclass(frozen=True, slots=True)` gives, made in a tenth of the time.

A report of one trace makes some 240 such classes when it starts. The standard decorator writes and compiles
six methods for each, half a millisecond (Python 3.11): 90 ms, more than all other imports of ours together.
Here `__init__` alone is compiled, and that of a class without objects never; the others are a few lines over
the fields, the same for each class.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, MISSING, Field, FrozenInstanceError, dataclass, field, fields
from functools import partial
from operator import attrgetter
from typing import Any, NoReturn, TypeVar, dataclass_transform, overload

C = TypeVar("C")


@overload
def frozen(cls: type[C], /) -> type[C]: ...
@overload
def frozen(*, slots: bool) -> Callable[[type[C]], type[C]]: ...
@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(cls: type[C] | None = None, /, *, slots: bool = True) -> type[C] | Callable[[type[C]], type[C]]:
    """Return the class as an immutable dataclass with slots: compared, hashed, shown, copied and pickled by
    fields. `slots=False` allows cached properties.

    `dataclasses.fields`, `replace` and `asdict` work on it; its signature can be inspected from its first
    object on. A field may have a default or a default factory and be `kw_only`; what else `field` takes, and
    `__post_init__`, raise `TypeError`. A class that derives from it is `frozen`, too.
    """
    if cls is None:
        return partial(_frozen, slots=slots)
    return _frozen(cls, slots)


@dataclass(frozen=True, slots=True)
class _Standard:
    """What the standard decorator leaves at a class and its fields for `dataclasses` to know them by."""

    only: int


_PLAIN: Any = fields(_Standard)[0]._field_type  # type: ignore[attr-defined]
_PARAMETERS = _Standard.__dataclass_params__  # type: ignore[attr-defined]


def _frozen(cls: type[C], slots: bool) -> type[C]:
    given = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    own = _own_fields(cls, given)
    every: dict[str, Field[Any]] = {}
    for base in cls.__mro__[:0:-1]:
        every |= vars(base).get("__dataclass_fields__", {})
    every |= own
    if hasattr(cls, "__post_init__") or not all(f.init and f.repr and f.compare for f in own.values()):
        raise TypeError(f"{cls.__qualname__} asks for more than @frozen gives: use dataclass(frozen=True)")
    given["__dataclass_fields__"], given["__dataclass_params__"] = every, _PARAMETERS
    given["__match_args__"] = tuple(name for name, each in every.items() if not each.kw_only)
    given["__doc__"] = cls.__doc__ or cls.__name__
    given["__eq__"], given["__hash__"] = _comparison(tuple(every))
    given["__setattr__"], given["__delattr__"] = _no_assignment, _no_deletion
    given["__getstate__"], given["__setstate__"] = _state, _restore
    if cls.__repr__ is object.__repr__:
        given["__repr__"] = _shown
    if slots:
        given["__slots__"] = tuple(name for name in own if not hasattr(cls, name) or name in vars(cls))
    else:
        given |= {name: each.default for name, each in own.items() if each.default is not MISSING}
    again: Any = type(cls)
    made = again(cls.__name__, cls.__bases__, given)
    made.__qualname__, made.__init__ = cls.__qualname__, _init(made)
    return made  # type: ignore[no-any-return]


def _own_fields(cls: type[Any], given: dict[str, Any]) -> dict[str, Field[Any]]:
    """Return the fields that a class adds, and take their defaults out of what it is made of."""
    found, by_name = dict[str, Field[Any]](), False
    for name, hint in cls.__annotations__.items():
        if hint in (KW_ONLY, "KW_ONLY"):
            by_name = True
            continue
        default = given.pop(name, MISSING)
        each: Any = default if isinstance(default, Field) else field(default=default)
        if each.default.__class__.__hash__ is None:
            raise ValueError(f"{cls.__qualname__}.{name}: use a default_factory, or all objects share it")
        each.name, each.type, each._field_type = name, hint, _PLAIN
        each.kw_only = by_name if each.kw_only is MISSING else each.kw_only
        found[name] = each
    return found


def changed(one: C, **values: Any) -> C:
    """Return a changed copy of a `frozen` object, as `dataclasses.replace` does, in a third of the time: for
    thousands of them."""
    made = object.__new__(type(one))
    for name in type(one).__dataclass_fields__:  # type: ignore[attr-defined]
        object.__setattr__(made, name, getattr(one, name))
    for name, value in values.items():
        object.__setattr__(made, name, value)
    return made


def mapped(value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return a value with each part as `change` gives it for its name and value: a `frozen` object by field,
    a dict by key, a list or tuple by item, whose name is "". What holds no parts, and what would not differ,
    is returned itself."""
    if isinstance(value, dict):
        return {key: change(key, each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        made = [change("", each) for each in value]
        if all(one is other for one, other in zip(made, value, strict=True)):
            return value
        return (
            made
            if isinstance(value, list)
            else type(value)(*made)
            if hasattr(value, "_fields")
            else tuple(made)
        )
    if not hasattr(value, "__dataclass_fields__"):
        return value
    before = {each.name: getattr(value, each.name) for each in fields(value)}
    after = {name: change(name, each) for name, each in before.items()}
    differ = {name: each for name, each in after.items() if each is not before[name]}
    return changed(value, **differ) if differ else value


def _init(cls: Any) -> Callable[..., None]:
    """Return an `__init__` that is written, as it would be by hand, when the first object is made: many
    classes of a program that runs one command never have any."""

    def first(self: Any, *args: Any, **named: Any) -> None:
        cls.__init__ = _written(cls)
        cls.__init__(self, *args, **named)

    return first


def _written(cls: Any) -> Callable[..., None]:
    names: dict[str, Any] = {"_set": object.__setattr__, "_ABSENT": MISSING}
    positional, by_name, lines = ["self"], ["*"], []
    types: dict[str, Any] = {}
    for each in fields(cls):
        name = value = each.name
        types[name] = each.type
        arguments = by_name if each.kw_only else positional
        if each.default is not MISSING:
            names[f"_default_{name}"] = each.default
            arguments.append(f"{name}=_default_{name}")
        elif each.default_factory is not MISSING:
            names[f"_default_{name}"] = each.default_factory
            arguments.append(f"{name}=_ABSENT")
            value = f"_default_{name}() if {name} is _ABSENT else {name}"
        else:
            arguments.append(name)
        lines.append(f" _set(self, {name!r}, {value})")
    arguments = [*positional, *by_name] if len(by_name) > 1 else positional
    exec("\n".join([f"def __init__({', '.join(arguments)}):", *lines]), names)
    init = names["__init__"]
    init.__qualname__, init.__module__ = f"{cls.__qualname__}.__init__", cls.__module__
    init.__annotations__ = types | {"return": None}
    return init  # type: ignore[no-any-return]


def _comparison(names: tuple[str, ...]) -> tuple[Callable[[Any, object], bool], Callable[[Any], int]]:
    values: Callable[[Any], tuple[Any, ...]]
    values = attrgetter(*names) if len(names) > 1 else lambda self: (getattr(self, names[0]),)

    def equal(self: Any, other: object) -> bool:
        return values(self) == values(other) if other.__class__ is self.__class__ else NotImplemented

    def hashed(self: Any) -> int:
        return hash(values(self))

    return equal, hashed


def _no_assignment(self: Any, name: str, value: object) -> NoReturn:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _no_deletion(self: Any, name: str) -> NoReturn:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, each.name) for each in fields(self)]


def _restore(self: Any, state: list[Any]) -> None:
    for each, value in zip(fields(self), state, strict=True):
        object.__setattr__(self, each.name, value)


def _shown(self: Any) -> str:
    values = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
    return f"{type(self).__qualname__}({', '.join(values)})"
