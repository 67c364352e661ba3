"""One run on several hosts: what the trace of each shows of a step, and which of them are missing."""

from __future__ import annotations

from typing import Annotated, Literal

from mpprof.model.account import Class, DeviceAccount
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Precision
from mpprof.model.written import HIDDEN, LEFT_OUT, Count, Ns

CollectiveKind = Literal["reduce", "gather", "other"]


@frozen
class ClockSkew:
    """How far a host's clock is ahead of the first host's: an estimate; no time is shifted by it.

    The median difference between the ends, on both hosts' clocks, of the same collectives ("collectives"), or
    of the same steps ("steps"), and of how many; `within_ns`: half of the differences lie this close to it.
    """

    skew_ns: Annotated[float, "The median of the differences."]
    within_ns: Annotated[float, "Half of the differences lie this close to the median."]
    by: Annotated[
        Literal["collectives", "steps"],
        "What was compared: the ends of the same collectives, or of the same steps, on both clocks.",
    ]
    count: Count


@frozen
class Host:
    """The profiled step of one host, in the window's own time. `absent` is the reason where `clock_skew` is
    None; the first host has neither."""

    host: str
    worker: Annotated[int | None, "The number of its records; null: it has none."]
    trace: Annotated[str, "The name of its file."]
    step_ns: Annotated[Ns, "The mean profiled step."]
    wall_ns: Annotated[Ns | None, "The recorded step: the mean of the steady ones."]
    devices: Annotated[tuple[DeviceAccount, ...], HIDDEN]  # without cells
    window_steps: Annotated[tuple[int, ...], "As in `time`."]
    clock_skew: Annotated[
        ClockSkew | None,
        "How far its clock is ahead of the first host's, as estimated; no time is shifted by it. Null: "
        "not known, see `absent`, and for the first host.",
    ] = None
    absent: Annotated[str, HIDDEN] = ""
    warnings: Annotated[tuple[str, ...], HIDDEN] = ()  # of its trace


@frozen
class MissingHost:
    """A host that trained, and of which no trace could be read."""

    host: str
    worker: int | None
    reason: str


@frozen
class Hosts:
    """Every host of a run: that of the account first."""

    read: Annotated[tuple[Host, ...], "Hosts whose trace was read; `time` is of the first."]
    missing: Annotated[
        tuple[MissingHost, ...],
        "Hosts whose trace could not be read: no time in this document includes them.",
    ]


@frozen
class DeviceName:
    host: Annotated[str | None, "Null: the run is on one host."]
    device: str

    @property
    def name(self) -> str:
        """The device with its host, for people."""
        return f"{self.device} of {self.host}" if self.host is not None else self.device


@frozen
class DeviceLoad(DeviceName):
    """What one device of several does in a profiled step. Of devices that exchange gradients in each step,
    the one with most `own_ns` is the one that the others wait for."""

    step_ns: Ns
    own_ns: Annotated[
        Ns, "The step less exposed communication: longest on a device that the others wait for."
    ]
    busy_ns: Annotated[Ns, "Without communication."]
    exposed_ns: Annotated[Ns, "Communication while nothing else runs: transfers, and waiting."]
    hidden_ns: Annotated[Ns, "Communication behind other work."]
    classes: Annotated[dict[Class, float], HIDDEN]  # ns per step


@frozen
class Collective:
    """Communication of one kind and precision on the main device, per step."""

    kind: Annotated[CollectiveKind, "reduce: sums, as of gradients."]
    precision: Annotated[Precision, "Of what is sent; unknown: neither name nor op states it."]
    exposed_ns: Ns
    busy_ns: Annotated[Ns, "With what is hidden."]
    calls: Annotated[float, "Per step."]
    integers: Annotated[str, LEFT_OUT, "The type, where integers are sent: int64."] = ""


@frozen
class Communication:
    devices: Annotated[
        tuple[DeviceLoad, ...], "Every device of all hosts, in profiled steps; the main one first."
    ]
    by: Annotated[tuple[Collective, ...], "Of the main device, the longest first."]
    stragglers: Annotated[tuple[DeviceName, ...], "Devices that the others wait for, the slowest first."]
