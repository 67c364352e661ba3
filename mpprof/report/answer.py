"""The answer alone as JSON, schema `mpprof.answer/1`: for scripts and agents, which read on by its commands.

Below 2 kB for a path of up to 150 characters: what is long, as code to copy, is a command away.
"""

from __future__ import annotations

from mpprof.model.report import Report
from mpprof.report import content
from mpprof.report.to_json import dumps, to_json

SCHEMA = "mpprof.answer/1"
MOST_CAUSES = 4
LONGEST_REASON = 120
FIGURES = ("step_ns", "baseline_step_ns", "after_remedies_ns")
GAIN = "gain_ns_per_step"
OF_CAUSE = ("code", "slug", GAIN)
NO_GAIN = "no gain in step time was estimated for its remedy"
_REASON_OF = {
    "answer.code": ("answer.code",),
    **{key: (f"facts.{key}",) for key in FIGURES},
    "speedup": ("facts.observed",),
    "tensor_core_ratio": ("tensor_core.ratio", "tensor_core"),
}
"""By key, where among the report's reasons its own stands."""


def render(document: Report, *, path: str | None, again: str) -> str:
    """Return the answer, the figures that it rests on, the first causes, and the commands for more.

    `path` is the run's in these commands, `again` the command that gave this answer, without its format. A
    figure that is not known is null, with its reason under `absent`; what could not be judged and what is
    warned of is counted."""
    facts, share = to_json(document.facts), document.tensor_core
    more = [*content.next_steps(document, path), (f"{again} --format json", "all of it")]
    figures = {
        **{key: facts[key] for key in FIGURES},
        "speedup": facts["observed"],
        "tensor_core_ratio": share.ratio if share else None,
    }
    causes = [{key: cause[key] for key in OF_CAUSE} for cause in facts["causes"][:MOST_CAUSES]]
    nulls = {"answer.code": document.answer.code, **figures}
    said = {
        "schema": SCHEMA,
        "run": document.run.name,
        "answer": document.answer,
        **figures,
        "absent": {
            **{key: _reason(document, key) for key, value in nulls.items() if value is None},
            **({f"causes.{GAIN}": NO_GAIN} if any(each[GAIN] is None for each in causes) else {}),
        },
        "causes": causes,
        "not_judged": len(document.unable),
        "warnings": len(content.warnings(document)),
        "more": [{"command": command, "shows": shows} for command, shows in more],
    }
    return f"{dumps(said, indent=1)}\n"


def _reason(document: Report, key: str) -> str:
    """Return why a figure is not known, cut where it is long."""
    found = next((document.absent[path] for path in _REASON_OF[key] if path in document.absent), "not known")
    return found if len(found) <= LONGEST_REASON else f"{found[: LONGEST_REASON - 1]}…"
