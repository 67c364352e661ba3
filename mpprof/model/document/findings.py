"""Findings with their evidence and remedies, and causes that were not found."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from mpprof.model.document.values import Classed, Code, Number, Reading
from mpprof.model.finding import Confidence, Severity


class Finding(TypedDict):
    code: Annotated[Code, "Stable: `mpprof explain CODE`."]
    slug: str
    title: str
    severity: Severity
    confidence: Confidence
    cost_ns_per_step: Number | None
    cost_bytes: int | None
    parts: NotRequired[
        Annotated[
            list[FindingPart],
            "The work that its cost is taken from, the most costly first. Left out where it is of no work.",
        ]
    ]
    spare_bytes: NotRequired[
        Annotated[int, "Memory that is free, or taken in advance and not used. Left out where it is neither."]
    ]
    gap_ratio: Annotated[
        Number | None, "What it explains, as a share of gap_ns; above 1 where other parts gained time."
    ]
    evidence: list[Evidence]
    remedy: str
    remedies: NotRequired[Annotated[list[Remedy], "What `remedy` says, one by one."]]
    dismissed: NotRequired[
        Annotated[str, "Why the project dismisses it, by its bounds file; left out of any other finding."]
    ]
    whatif_step_ns: Annotated[Number | None, "The step once it is remedied."]
    summary: Annotated[str, "One sentence with the numbers in it; may be empty."]
    layers: list[str]
    lost_ratio: NotRequired[Annotated[Number | None, "What it explains, as a share of lost_ns: 0 to 1."]]
    gain_ns_per_step: NotRequired[
        Annotated[
            Number | None,
            "What its remedy gains of a step after those before it in whatif.order, by which findings are "
            "ordered; null: no part of that plan.",
        ]
    ]
    recovers_ns_per_step: NotRequired[
        Annotated[
            Number | None,
            "Of the gain, what this run lost against the attainable step: the sum over all findings and "
            "speedup.unexplained_ns are the step less the attainable one.",
        ]
    ]

    cost_ns_in_window: NotRequired[
        Annotated[
            Number,
            "What it costs of the whole window, where no step can be told apart (cost_ns_per_step null). "
            "Left out elsewhere.",
        ]
    ]


class FindingPart(Classed):
    """A class of the account, in one layer."""

    layer: str | None


class Evidence(TypedDict):
    name: str
    value: Annotated[Reading | str | bool | None, "Measured."]
    unit: Annotated[str, "ns, bytes, ratio, count, speedup, text, ..."]
    limit: Annotated[Reading | str | None, "What the value was compared with."]


class Remedy(TypedDict):
    text: str
    snippet: Annotated[str | None, "Code to copy, Python or shell."]
    larger_batch: NotRequired[
        Annotated[bool, "It raises the batch: more examples a second, no shorter step. Left out where not."]
    ]
    other_type: NotRequired[
        Annotated[
            bool,
            "It changes the type to compute in. What other remedies gain is known for this run's type only.",
        ]
    ]


class Unable(TypedDict):
    code: Code
    reason: str


class NotApplicable(TypedDict):
    code: Code
    reason: str
