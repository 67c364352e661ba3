"""Generates the two JSON Schemas from the types of the model: `python -m mpprof.report.schema`."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Literal,
    Union,
    get_args,
    get_origin,
)

from mpprof.model.account import (
    Between,
    Class,
    ComputePrecision,
    DeviceAccount,
    ProfiledSpeedup,
    TensorCoreShare,
)
from mpprof.model.finding import FindingPart, WindowsOfTwo
from mpprof.model.kernels import Placement, Precision
from mpprof.model.memory import MemoryAccount
from mpprof.model.outcome import Applied, LearningCurves, LearningSides
from mpprof.model.report import ComparedRuns, Report, ReportedEnd, ReportedRun, Window
from mpprof.model.run_time import RunTime
from mpprof.model.steps import LossScaleSummary, StepSummary, WorkerSummary
from mpprof.model.trace import NamedRanges
from mpprof.model.written import is_written, keys, keywords

Schema = dict[str, Any]
DOCUMENTS: dict[str, Any] = {"report": Report, "compare": ComparedRuns}
NON_FINITE = ("NaN", "Infinity", "-Infinity")

_PLAIN = {str: "string", int: "integer", bool: "boolean", NoneType: "null"}
_SHARED: dict[Any, tuple[str, Schema]] = {
    float: (
        "number",
        {
            "description": "A number. One that is not finite is a string, because JSON cannot hold it.",
            "anyOf": [{"type": "number"}, {"enum": list(NON_FINITE)}],
        },
    ),
    Class: (
        "class",
        {"description": "What the work is, or the kind of idle time.", "enum": list(get_args(Class))},
    ),
    Precision: ("precision", {"enum": list(get_args(Precision))}),
    Placement: ("placement", {"enum": list(get_args(Placement))}),
}
"""Types that go by a name of their own in `$defs`; every type but the document itself does, too."""

NAMES: dict[Any, str] = {
    Applied: "updates",
    Between: "between_steps",
    ComputePrecision: "computes_in",
    DeviceAccount: "device",
    LearningCurves: "__learning_curves",
    LearningSides: "__learning_sides",
    LossScaleSummary: "loss_scale",
    MemoryAccount: "memory",
    NamedRanges: "range_of_trace",
    ReportedEnd: "ended",
    ReportedRun: "run",
    StepSummary: "steps",
    TensorCoreShare: "tensor_core",
    WorkerSummary: "worker",
}
"""Names in `$defs` that are not the type's own."""
DESCRIBED: tuple[Any, ...] = (
    ComparedRuns,
    FindingPart,
    ProfiledSpeedup,
    Report,
    RunTime,
    Window,
    WindowsOfTwo,
)
"""Types whose docstring is a description for whoever reads documents."""


def generated(name: str) -> Schema:
    """Return the JSON Schema of "report" or "compare"."""
    defs: dict[str, Schema] = {}
    body = _object(DOCUMENTS[name], defs)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"mpprof.{name}/1",
        "title": f"mpprof {name}, version 1",
        **body,
        "$defs": dict(sorted(defs.items())),
    }


def text(name: str) -> str:
    """Return the JSON Schema as its file holds it."""
    return json.dumps(generated(name), indent=1, ensure_ascii=False) + "\n"


def path(name: str) -> Path:
    """Return where the schema lies, beside this file."""
    return Path(__file__).with_name(f"{name}.schema.json")


def _object(kind: Any, defs: dict[str, Schema]) -> Schema:
    written = keys(kind)
    described = {"description": " ".join(kind.__doc__.split())} if kind in DESCRIBED else {}
    return described | {
        "type": "object",
        "required": [each.key for each in written if each.required],
        "properties": {
            each.key: (_pair(defs) if each.ends else _schema(each.hint, defs)) | keywords(each.notes)
            for each in written
        },
    }


def _pair(defs: dict[str, Schema]) -> Schema:
    """Return the schema of what two runs have of one value."""
    side = _schema(float | None, defs)
    defs["from_to"] = {
        "type": "object", "required": ["from", "to"], "properties": {"from": side, "to": side},
    }  # fmt: skip
    return {"$ref": "#/$defs/from_to"}


def _schema(hint: Any, defs: dict[str, Schema]) -> Schema:
    origin, args = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _schema(args[0], defs) | keywords(args[1:])
    if hint in _SHARED:
        name, shared = _SHARED[hint]
        defs[name] = shared
        return {"$ref": f"#/$defs/{name}"}
    if is_written(hint):
        return _named(hint, defs)
    if origin is Literal:
        return {"const": args[0]} if len(args) == 1 else {"enum": list(args)}
    if origin in (Union, UnionType):
        return _any_of(args, defs)
    if origin is tuple and args[-1] is not ...:
        items = _schema(args[0], defs)
        return {"type": "array", "items": items, "minItems": len(args), "maxItems": len(args)}
    if origin is tuple:
        return {"type": "array", "items": _schema(args[0], defs)}
    if origin is dict:
        keys = {} if args[0] is str else {"propertyNames": _schema(args[0], defs)}
        return {"type": "object", **keys, "additionalProperties": _schema(args[1], defs)}
    return {"type": _PLAIN[hint]}


def _named(kind: Any, defs: dict[str, Schema]) -> Schema:
    name = NAMES.get(kind) or re.sub(r"(?<!^)(?=[A-Z])", "_", kind.__name__).lower()
    if name not in defs:
        defs[name] = {}  # holds the place, should the type hold itself
        defs[name] = _object(kind, defs)
    return {"$ref": f"#/$defs/{name}"}


def _any_of(members: tuple[Any, ...], defs: dict[str, Schema]) -> Schema:
    """Return the schema of a union; a number may always be one that is not finite, and the plain types share
    one `type`."""
    members = tuple(each for each in members if get_args(each) != NON_FINITE)
    plain = [_PLAIN[each] for each in members if each in _PLAIN]
    found = [_schema(each, defs) for each in members if each not in _PLAIN]
    if plain:
        found.append({"type": plain if len(plain) > 1 else plain[0]})
    return found[0] if len(found) == 1 else {"anyOf": found}


if __name__ == "__main__":
    for each in DOCUMENTS:
        path(each).write_text(text(each), encoding="utf-8")
