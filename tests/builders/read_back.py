"""Reports and comparisons of JSON documents, so that a test can change a document and show it."""

from __future__ import annotations

import math
from types import FunctionType, ModuleType, NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    NotRequired,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from mpprof.model.document import Comparison, Report
from mpprof.model.memory import MemoryAccount
from mpprof.model.steps import StepSummary
from mpprof.model.written import is_written, keys
from mpprof.report import brief as _brief
from mpprof.report import checks as _checks
from mpprof.report import comparing as _comparing
from mpprof.report import content as _content
from mpprof.report import headline as _headline
from mpprof.report import markdown as _markdown
from mpprof.report import text as _text
from mpprof.report import without_finding as _without_finding

_DOCUMENTS: dict[str, Any] = {"mpprof.report/1": Report, "mpprof.compare/1": Comparison}

_PARTS: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("at_peak",), MemoryAccount),
    (("steady", "median_ns"), StepSummary),
)
"""By keys that no other part has."""


def typed(value: Any, kind: Any = None) -> Any:
    """Return a JSON value as this type of the model; a whole document as its own, and what is none as it is."""
    if kind is None:
        if isinstance(value, list):
            return [typed(each) for each in value]
        kind = _kind_of(value) if isinstance(value, dict) else None
        return value if kind is None else typed(value, kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin in (Annotated, NotRequired):
        return typed(value, args[0])
    if value is None or origin is Literal:
        return value
    if origin in (Union, UnionType):
        members = [each for each in args if each is not NoneType and get_origin(each) is not Literal]
        fitting = (
            [each for each in members if isinstance(value, get_origin(each) or each)]
            if len(members) > 1
            else members
        )
        return typed(value, fitting[0]) if fitting else value
    if is_typeddict(kind):
        hints = get_type_hints(kind, include_extras=True)
        return {key: typed(each, hints[key]) for key, each in value.items()}
    if is_written(kind):
        return _object(value, kind)
    if origin in (list, tuple):
        given = [typed(each, args[0]) for each in value]
        return given if origin is list else tuple(given)
    if origin is dict:
        return {key: typed(each, args[1]) for key, each in value.items()}
    if kind is float and isinstance(value, str):
        return {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}[value]
    return value


def _kind_of(value: dict[str, Any]) -> Any:
    """Return the type of a document, or of a part of one that tests hand to a function; None for any other."""
    if "schema" in value:
        return _DOCUMENTS.get(value["schema"])
    return next((kind for signs, kind in _PARTS if all(sign in value for sign in signs)), None)


def _object(value: Any, kind: Any) -> Any:
    """Return an object with these keys; what a document does not hold is the default, or None."""
    if is_written(value):
        return value
    made = object.__new__(kind)
    fields = kind.__dataclass_fields__
    for name, field in fields.items():
        default = (
            field.default
            if field.default_factory.__class__.__name__ == "_MISSING_TYPE"
            else field.default_factory()
        )
        object.__setattr__(made, name, None if default.__class__.__name__ == "_MISSING_TYPE" else default)
    written = {each.key: each for each in keys(kind)}
    for key, each in value.items():
        name = written[key].name
        if name in fields:
            object.__setattr__(made, name, typed(each, written[key].hint))
    return made


class _Reading:
    """A module whose functions also take documents."""

    def __init__(self, module: ModuleType) -> None:
        self._module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._module, name)
        return reading(found) if isinstance(found, FunctionType | ModuleType) else found


def reading(what: Any) -> Any:
    """Return a function, or a module of functions, that also takes documents and parts of them."""
    if isinstance(what, ModuleType):
        return _Reading(what)
    return lambda *args, **more: what(*map(typed, args), **{key: typed(each) for key, each in more.items()})


brief, checks, comparing, content = map(reading, (_brief, _checks, _comparing, _content))
headline, markdown, text = map(reading, (_headline, _markdown, _text))
without_finding = reading(_without_finding)
