"""The hosts and devices of a run on several, and their communication."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from mpprof.model.document.values import Count, Number
from mpprof.model.kernels import Precision


class Hosts(TypedDict):
    read: Annotated[list[Host], "Hosts whose trace was read; `time` is of the first."]
    missing: Annotated[
        list[MissingHost], "Hosts whose trace could not be read: no time in this document includes them."
    ]


class Host(TypedDict):
    host: str
    worker: Annotated[int | None, "The number of its records; null: it has none."]
    trace: Annotated[str, "The name of its file."]
    step_ns: Annotated[Number, "The mean profiled step."]
    wall_ns: Annotated[Number | None, "The recorded step: the median of the steady ones."]
    window_steps: Annotated[list[int], "As in `time`."]
    clock_skew: Annotated[
        ClockSkew | None,
        "How far its clock is ahead of the first host's, as estimated; no time is shifted by it. Null: "
        "not known, see `absent`, and for the first host.",
    ]


class ClockSkew(TypedDict):
    skew_ns: Annotated[Number, "The median of the differences."]
    within_ns: Annotated[Number, "Half of the differences lie this close to the median."]
    by: Annotated[
        Literal["collectives", "steps"],
        "What was compared: the ends of the same collectives, or of the same steps, on both clocks.",
    ]
    count: Count


class MissingHost(TypedDict):
    host: str
    worker: int | None
    reason: str


class Communication(TypedDict):
    devices: Annotated[list[DeviceLoad], "Every device of all hosts, in profiled steps; the main one first."]
    by: Annotated[list[Collective], "Of the main device, the longest first."]
    stragglers: Annotated[list[DeviceName], "Devices that the others wait for, the slowest first."]


class DeviceName(TypedDict):
    host: Annotated[str | None, "Null: the run is on one host."]
    device: str


class DeviceLoad(DeviceName):
    step_ns: Number
    own_ns: Annotated[
        Number, "The step less exposed communication: longest on a device that the others wait for."
    ]
    busy_ns: Annotated[Number, "Without communication."]
    exposed_ns: Annotated[Number, "Communication while nothing else runs: transfers, and waiting."]
    hidden_ns: Annotated[Number, "Communication behind other work."]


class Collective(TypedDict):
    kind: Annotated[Literal["reduce", "gather", "other"], "reduce: sums, as of gradients."]
    precision: Annotated[Precision, "Of what is sent; unknown: neither name nor op states it."]
    exposed_ns: Number
    busy_ns: Annotated[Number, "With what is hidden."]
    calls: Annotated[Number, "Per step."]
