"""Plays one training on several hosts that sum their gradients in every step, and writes what each would leave.

The exchange ends at the same instant on all of them, when the slowest has come and the transfer is done: what
the others wait follows from that, it is not put in. Each host has a clock of its own.
Nothing here imports mpprof.
"""

from __future__ import annotations

import copy
import itertools
import json
import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from tests.builders.gpus import Gpu
from tests.builders.numerics import Numerics
from tests.builders.simulate import UNIX_NS, Host, Play, Training, run_json, to_space
from tests.builders.workloads import Model, Work
from tests.builders.xspace import Space

SESSION = "plugins/profile/2026_01_01_00_00_00"
KERNEL = "ncclDevKernel_{collective}_{type}_RING_LL(ncclDevKernelArgsStorage<4096ul>)"
STEPS, FIRST, LAST = 16, 10, 13


@dataclass(frozen=True)
class Member:
    """One host: what it needs, how many times as long its kernels take, and how far its clock is ahead."""

    name: str
    host: Host = field(default_factory=Host)
    slower: float = 1.0
    clock_ns: int = 0


@dataclass(frozen=True)
class Cluster:
    """A training on several hosts with one GPU each. `transfer_us`: of the exchange of all gradients."""

    gpu: Gpu
    numerics: Numerics
    model: Model
    members: tuple[Member, ...]
    transfer_us: float = 2_000.0
    type: str = "f32"
    collective: str = "AllReduce_Sum"
    facts: dict[str, Any] = field(default_factory=dict)  # laid over run.json
    seed: int = 3

    @property
    def kernel(self) -> str:
        return KERNEL.format(collective=self.collective, type=self.type)


@dataclass
class Played:
    """What one host left: the lines of its step log, and its trace."""

    member: Member
    lines: list[dict[str, Any]]
    space: Space
    origin_us: float

    @property
    def trace(self) -> bytes:
        return self.space.to_bytes()


def play(cluster: Cluster) -> list[Played]:
    """Play all hosts in lockstep: first each alone up to the exchange, then to the end, when all have come."""
    plays = [
        Play(cluster.gpu, cluster.model, each.host, random.Random(cluster.seed + at), slower=each.slower)
        for at, each in enumerate(cluster.members)
    ]
    lines: list[list[dict[str, Any]]] = [
        [{"schema": "mpprof.steps/1"}, {"kind": "fit", "fit": 1, "t_ns": 0}] for _ in plays
    ]
    origins = [0.0] * len(plays)
    for number in range(1, STEPS + 1):
        profiled = FIRST <= number <= LAST
        if number == FIRST:
            origins = [play.now_us - 40.0 for play in plays]
        came = [_arrival(cluster, play, number) for play in plays]
        done = max(came) + cluster.transfer_us
        for at, playing in enumerate(plays):
            works = _with_exchange(cluster, (done - came[at]) / playing.slower)
            begin, end = _exactly(playing, number, works, profiled)
            lines[at].append(_line(number, begin, end, profiled))
    made = []
    for at, member in enumerate(cluster.members):
        for row, following in itertools.pairwise(lines[at][2:]):
            row["interval_ns"] = following["began_ns"] - row["began_ns"]
        for row in lines[at][2:]:
            del row["began_ns"]
        lines[at].append({"kind": "fit_end", "reason": "finished"})
        space = to_space(plays[at], origins[at])
        space.hostnames[:] = [member.name]
        for plane in space.planes:
            for key in ("profile_start_time", "profile_stop_time"):
                if key in plane.stats:
                    plane.stats[key] += member.clock_ns
        made.append(Played(member, lines[at], space, origins[at]))
    return made


def _exactly(playing: Play, number: int, works: tuple[Work, ...], profiled: bool) -> tuple[float, float]:
    """The exchange takes what it takes: noise is in the work before it."""
    jitter = playing.jitter
    lengths = {work.us for work in works if work.type == "CollectiveReduceV2"}
    playing.jitter = lambda us: us if us in lengths else jitter(us)  # type: ignore[method-assign]
    try:
        return playing.step(number, record=profiled, works=works)
    finally:
        playing.jitter = jitter  # type: ignore[method-assign]


def _arrival(cluster: Cluster, playing: Play, number: int) -> float:
    """When this host comes to the exchange, found by playing the step on the side."""
    events, playing.events = playing.events, []
    aside = copy.deepcopy(playing)
    playing.events = events
    aside.host = replace(aside.host, profiled=aside.host.profiled if FIRST <= number <= LAST else 1.0)
    _exactly(aside, number, _with_exchange(cluster, 1.0), True)
    return next(event.start_us for event in aside.events if event.name == cluster.kernel)


def _with_exchange(cluster: Cluster, us: float) -> tuple[Work, ...]:
    """The step's work with the exchange before the optimizer's update."""
    works = cluster.model.works
    at = next((i for i, w in enumerate(works) if "/IsFinite" in w.op or "/adam/" in w.op), len(works))
    exchange = Work(cluster.kernel, "StatefulPartitionedCall/CollectiveReduceV2", "CollectiveReduceV2", us)
    return (*works[:at], exchange, *works[at:])


def _line(number: int, begin: float, end: float, profiled: bool) -> dict[str, Any]:
    return {
        "kind": "step", "step": number, "fit": 1, "epoch": 0, "batch": number - 1, "covers": 1,
        "t_ns": round(end * 1e3), "began_ns": round(begin * 1e3), "duration_ns": round((end - begin) * 1e3),
        "profiled": profiled, "synced": number in (FIRST, LAST + 1),
    }  # fmt: skip


def write_session(played: Sequence[Played], directory: Path) -> Path:
    """The traces alone, in one session directory, as a profiler of a cluster leaves them; returns `directory`."""
    session = directory / SESSION
    session.mkdir(parents=True, exist_ok=True)
    for each in played:
        (session / f"{each.member.name}.xplane.pb").write_bytes(each.trace)
    return directory


def write_workers(cluster: Cluster, played: Sequence[Played], directory: Path) -> Path:
    """The records of every worker, each with its trace in a session of its own; returns `directory`."""
    for worker, each in enumerate(played):
        trace = f"{SESSION}{f'_{worker + 1}' if worker else ''}"
        training = Training(
            "cluster", cluster.gpu, cluster.numerics, cluster.model, profile=(FIRST, LAST), steps=STEPS
        )
        facts = run_json(training, each.origin_us)
        facts["host"] = each.member.name
        facts["clock"]["unix_ns"] = UNIX_NS + each.member.clock_ns
        facts["profile_windows"][0] |= {"trace": trace, "host": each.member.name}
        facts |= {"replicas": len(played), "distribution": "MultiWorkerMirroredStrategy"} | cluster.facts
        facts["absent"].pop("distribution", None)
        folder = directory / "mpprof" / (f"worker-{worker}" if worker else "")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_text(json.dumps(facts))
        (folder / "steps.jsonl").write_text("".join(json.dumps(line) + "\n" for line in each.lines))
        (directory / trace).mkdir(parents=True, exist_ok=True)
        (directory / trace / f"{each.member.name}.xplane.pb").write_bytes(each.trace)
    return directory
