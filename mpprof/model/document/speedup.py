"""Observed and attainable speedup, and what each remedy would gain."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mpprof.model.account import Difference, LimitKind
from mpprof.model.document.findings import Remedy
from mpprof.model.document.values import Classed, Code, Interval, Number


class ProfiledSpeedup(TypedDict):
    """The median profiled step of the baseline over this run's: a second measurement, made under the
    profiler, and without an interval. Only where three steps a side or more agree, on cards that are not
    known to differ, and are as long as the unprofiled ones."""

    ratio: Number
    baseline_ns: Number
    mixed_ns: Number
    baseline_steps: int
    mixed_steps: int


class Compared(TypedDict):
    """What a run reached against another: in a report's `speedup`, and in each step of a comparison."""

    observed: Number | None
    interval: Annotated[
        Interval | None,
        "95 % confidence, within this pair of runs: how much another run of the same script would differ is "
        "not in it, and known from repeats alone (`mpprof check --repeat`).",
    ]
    interval_wide: NotRequired[
        Annotated[bool, "The interval rests on fewer than ten blocks of steps, or timed groups, of a run."]
    ]
    expected: Annotated[Number | None, "The attainable speedup on this device."]
    expected_with_host: Annotated[Number | None, "The same, with the host's need per step as the floor."]
    ceiling: Annotated[Number | None, "By peak rates."]
    slices: list[GapSlice]
    unexplained_ns: Annotated[
        Number | None,
        "What no remedy recovers of above_attainable_ns; without an expectation, of gap_ns.",
    ]
    gap_ns: Annotated[Number | None, "This run's step less the attainable one by the device alone."]
    per_example: NotRequired[
        Annotated[bool, "The batches differ: the baseline's times are scaled to this run's batch."]
    ]
    lost_ns: NotRequired[
        Annotated[
            Number | None,
            "What parts of the step take above their attainable time: gap_ns = lost_ns - gained_ns.",
        ]
    ]
    gained_ns: NotRequired[Annotated[Number | None, "What other parts take below their attainable time."]]
    above_attainable_ns: NotRequired[
        Annotated[Number | None, "This run's step less that at expected_with_host, else at expected."]
    ]
    difference: NotRequired[
        Annotated[
            Difference,
            "What the interval tells of the two steps: `none` where it lies within 5 % of 1, `not known` "
            "where it is wider and holds 1, and without one. Left out where no speedup was observed.",
        ]
    ]
    profiled: NotRequired[Annotated[ProfiledSpeedup | None, "Of a measured pair."]]


class Speedup(Compared):
    baseline: Literal["measured", "estimated"]
    baseline_id: str | None
    estimated: Annotated[
        EstimatedSpeedup | None, "Estimated, not measured: a range of the speedup over float32."
    ]
    baseline_step_ns: Number | None
    reach_ns: Annotated[Number | None, "The attainable step by the device alone."]
    baseline_dtype: NotRequired[Annotated[str | None, "What the baseline's records say it computes in."]]
    attainable: NotRequired[
        Annotated[
            AttainableRange | None,
            "What this card allows. For a measured pair both ends are equal, unless it rests on a single "
            "step; for a float32 run in 16 bits it is a range.",
        ]
    ]
    limits: NotRequired[
        Annotated[list[Limit], "What the attainable step consists of, and why it becomes no shorter."]
    ]
    launches: NotRequired[
        Annotated[
            Launches,
            "Of a pair whose steps are both as long as the host needs to launch them: what it launches in "
            "each. Left out of others.",
        ]
    ]
    how_to_switch: NotRequired[
        Annotated[list[Remedy], "Mixed precision on: of a float32 run that 16 bits may make faster."]
    ]


class AttainableRange(TypedDict):
    low: Number
    high: Number
    eligible_ratio: Annotated[
        Number | None,
        "Share of the float32 run's device time that could use matrix units in 16 bits; null where the trace "
        "shows no work of the device, and for a measured pair.",
    ]
    tf32_ratio: NotRequired[Annotated[Number, "Of it, what matrix units do in TF32 already."]]
    assumptions: list[str]


class Launches(TypedDict):
    baseline: Annotated[Number, "Kernels and copies per step of the baseline."]
    mixed: Annotated[Number, "Kernels and copies per step of this run."]
    baseline_host_ns: Annotated[Number, "What the host needs for a step of the baseline."]
    mixed_host_ns: Annotated[Number, "What the host needs for a step of this run."]
    by_class: Annotated[list[ClassLaunches], "Where the two differ, the largest difference first."]


class ClassLaunches(Classed):
    baseline: Annotated[Number, "Kernels and copies per step."]
    mixed: Number


class Limit(Classed):
    kind: Annotated[
        LimitKind,
        "Stays in float32; bound by memory; in TF32 already; matrix work at its best; bound by launching; a "
        "wait; stays the same; the host needs as long.",
    ]
    ns_per_step: Annotated[Number, "In the float32 step."]
    best_ns: Annotated[Number, "In the attainable one."]
    ratio: Annotated[Number, "Of the float32 step."]


class EstimatedSpeedup(TypedDict):
    low: Number
    high: Number
    assumptions: list[str]


class GapSlice(Classed):
    layer: Annotated[
        str | None,
        "Of a kernel for several layers the one of its matrix work, else of most of its work.",
    ]
    ns_per_step: Annotated[Number, "now - baseline / ratio; the slices sum to the gap."]
    baseline_ns: Number
    mixed_ns: Number
    ratio: Annotated[Number, "The attainable ratio for this class on this device."]
    ratio_source: str
    added_ns: NotRequired[
        Annotated[Number, "Work that 16 bits add to every healthy run; not part of the gap."]
    ]


class Bound(TypedDict):
    statement: str
    value: Number
    unit: str
    assumptions: list[str]


class WhatIf(TypedDict):
    order: list[WhatIfStep]
    best_step_ns: Number
    floor: Floor
    subsets_ns: NotRequired[
        Annotated[
            list[Number],
            "The step with each subset of the first six remedies of `order`, at the index whose bit k says "
            "that remedy k is in it.",
        ]
    ]
    surfacing: NotRequired[
        Annotated[
            list[Surfacing],
            "Causes that are too small a part of this step to be found, and notable in the best one, the "
            "largest first. Left out where there are none.",
        ]
    ]


class Surfacing(TypedDict):
    code: Code
    gain_ns: Annotated[Number, "What its remedy gains of a step, beyond `best_step_ns`."]


class WhatIfStep(TypedDict):
    code: Code
    step_ns: Annotated[Number, "The step with this remedy and all before it."]
    gain_ns: Number
    hidden_ns: Annotated[Number, "What of its gain stays hidden behind the host."]


class Floor(TypedDict):
    by: Literal["host", "device"]
    host_ns: Number | None
