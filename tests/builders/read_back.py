"""Reports and comparisons of JSON documents, so that a test can change a document and show it."""

from __future__ import annotations

import math
from dataclasses import MISSING, fields
from types import FunctionType, ModuleType, NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from mpprof.model.account import GapSlice, Slice, Speedup
from mpprof.model.finding import Finding, KernelChange, Rung
from mpprof.model.memory import MemoryAccount
from mpprof.model.outcome import Learning
from mpprof.model.report import ComparedRuns, Report, Time, Window
from mpprof.model.steps import StepSummary
from mpprof.model.written import Written, is_written, keys
from mpprof.report import brief as _brief
from mpprof.report import brief_comparison as _brief_comparison
from mpprof.report import checks as _checks
from mpprof.report import comparing as _comparing
from mpprof.report import content as _content
from mpprof.report import markdown as _markdown
from mpprof.report import text as _text
from mpprof.report import without_finding as _without_finding

_DOCUMENTS: dict[str, Any] = {"mpprof.report/1": Report, "mpprof.compare/1": ComparedRuns}

_PARTS: tuple[tuple[tuple[str, ...], Any], ...] = (
    (("at_peak",), MemoryAccount),
    (("steady", "median_ns"), StepSummary),
    (("window_steps", "slices"), Time),
    (("unit", "unit_name"), Time),
    (("span_ns", "slices"), Window),
    (("labels", "slices"), Rung),
    (("baseline_id",), Speedup),
    (("severity", "evidence"), Finding),
    (("class", "layer", "ns_per_step"), GapSlice),
    (("curves",), Learning),
    (("hidden_ns_per_step",), Slice),
    (("from_ns", "to_ns", "by"), KernelChange),
)
"""By keys that no other part has."""


def typed(value: Any, kind: Any = None) -> Any:
    """Return a JSON value as this type of the model; a document, and a part that tests hand on, as its own; and what
    is neither as it is."""
    if kind is None:
        if isinstance(value, list):
            return [typed(each) for each in value]
        kind = _kind_of(value) if isinstance(value, dict) else None
        return value if kind is None else typed(value, kind)
    origin, args = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return typed(value, args[0])
    if value is None or origin is Literal:
        return value
    if origin in (Union, UnionType):
        members = [each for each in args if each is not NoneType]
        fitting = [
            each for each in members if len(members) == 1 or isinstance(value, get_origin(each) or each)
        ]
        return typed(value, fitting[0]) if fitting else value
    if is_written(kind):
        return _object(value, kind)
    if origin is tuple:
        return tuple(typed(each, args[0]) for each in value)
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
    """Return an object with these keys; what a document does not hold is the default, or None. A key of a property
    is that of a class of its own, since the object would compute it from what is not written."""
    if is_written(value):
        return value
    given = {each.name: _of_key(value[each.key], each) for each in keys(kind) if each.key in value}
    own = {each.name: each for each in fields(kind)}
    stated = {name: each for name, each in given.items() if name not in own}
    made = object.__new__(type(kind.__name__, (kind,), {"__slots__": (), **stated}) if stated else kind)
    for name, field in own.items():
        default = field.default if field.default_factory is MISSING else field.default_factory()
        object.__setattr__(
            made, name, given.get(name, _unstated(kind, name) if default is MISSING else default)
        )
    return made


def _unstated(kind: Any, name: str) -> Any:
    hint = next((each.hint for each in keys(kind) if each.name == name), None)
    return () if get_origin(hint) is tuple else {} if get_origin(hint) is dict else None


def _of_key(value: Any, written: Written) -> Any:
    if (ends := written.ends) is not None:
        return (None, None) if value is None else (value[ends.first], value[ends.second])
    return typed(value, written.hint)


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
brief_comparison, markdown, text = map(reading, (_brief_comparison, _markdown, _text))
without_finding = reading(_without_finding)
