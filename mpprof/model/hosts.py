"""One run on several hosts: what the trace of each shows of a step, and which of them are missing."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from mpprof.model.account import Class, DeviceAccount
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Precision

CollectiveKind = Literal["reduce", "gather", "other"]


@frozen
class ClockSkew:
    """How far a host's clock is ahead of the first host's: an estimate; no time is shifted by it.

    The median difference between the ends, on both hosts' clocks, of the same collectives ("collectives"), or
    of the same steps ("steps"), and of how many; `within_ns`: half of the differences lie this close to it.
    """

    skew_ns: float
    within_ns: float
    by: Literal["collectives", "steps"]
    count: int


@frozen
class HostAccount:
    """The profiled step of one host, in the window's own time. `wall_ns`: the recorded step of its worker;
    None: not recorded. `absent` is the reason where `skew` is None; the first host has neither."""

    host: str
    worker: int | None
    trace: Path
    step_ns: float
    wall_ns: float | None
    devices: tuple[DeviceAccount, ...]  # without cells
    steps: tuple[int, ...]  # as in `Account`
    skew: ClockSkew | None = None
    absent: str = ""
    warnings: tuple[str, ...] = ()  # of its trace


@frozen
class MissingHost:
    """A host that trained, and of which no trace could be read."""

    host: str
    worker: int | None
    reason: str


@frozen
class Hosts:
    """Every host of a run: that of the account first."""

    read: tuple[HostAccount, ...]
    missing: tuple[MissingHost, ...]


@frozen
class DeviceLoad:
    """What one device of several does in a profiled step. `own_ns`: all but exposed communication, in which a
    device waits for the slowest; of devices that exchange gradients in each step, the one with most of it is
    the one that the others wait for."""

    host: str | None  # None: of a run on one host
    device: str
    step_ns: float
    own_ns: float
    busy_ns: float  # communication left out
    exposed_ns: float
    hidden_ns: float
    classes: dict[Class, float]  # ns per step

    @property
    def name(self) -> str:
        """The device with its host, for people."""
        return f"{self.device} of {self.host}" if self.host is not None else self.device


@frozen
class Collective:
    """Communication of one kind and precision on the main device, per step. `busy_ns` with what is hidden."""

    kind: CollectiveKind
    precision: Precision
    exposed_ns: float
    busy_ns: float
    calls: float
