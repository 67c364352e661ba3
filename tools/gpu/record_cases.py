"""Records the sample runs that need a GPU: three models, three policies, two batch sizes, command buffers on and off.

    python -m tools.gpu.record_cases OUT [--backend jax|tensorflow|torch] [--only SUBSTRING] [--steps 60] [--tiny]

Each case trains in a process of its own (the policy and XLA's flags are the process') and leaves a log directory under
OUT; a case that fails leaves what it printed, and the rest goes on. While one case trains, the next one imports.
`--seconds` starts no case after that many. `--tiny` shrinks everything so that the script itself can be tried on a CPU
(not the transformer in float16: JAX on the CPU has no such product).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field, replace
from itertools import product
from pathlib import Path

from tools.gpu.models import Case, train

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
BATCHES = {"convnet": (64, 256), "resnet50": (32, 128), "transformer": (16, 64)}
TINY = {
    "convnet": {"size": 96, "widths": (4, 4, 4)},
    "resnet50": {"size": 32, "classes": 10},
    "transformer": {"vocabulary": 1009, "length": 16, "width": 32, "blocks": 1},
}
SEED = (32, 64, 128, 512)
"""Batches of the seed's experiment beside the 256 of `BATCHES`."""
NO_GRAPHS = "--xla_gpu_enable_command_buffer="
AHEAD = 2
"""Processes at a time: one trains, the other one imports and waits."""


@dataclass(frozen=True)
class Job:
    """One training, and where its log directory goes."""

    case: Case
    logdir: Path
    steps: int
    graphs: bool = True  # XLA's command buffers stay on
    delay_s: float = 0.0
    environment: dict[str, str] = field(default_factory=dict)


def cases(tiny: bool) -> list[tuple[Case, bool]]:
    """Every case of JAX, with whether XLA's command buffers stay on; the most telling ones first."""
    found = []
    for graphs, large in ((True, True), (False, True), (True, False), (False, False)):
        for policy, (model, batches) in product(POLICIES, BATCHES.items()):
            found.append((Case(model, batches[large], policy), graphs))
        if large and graphs:
            found += [
                (Case(model, BATCHES[model][1], "float32", precision="highest"), True) for model in BATCHES
            ]
    return [(shrunk(case) if tiny else case, graphs) for case, graphs in found]


def others(backend: str, tiny: bool) -> list[tuple[Case, bool]]:
    """The cases of another backend: with and without XLA on TensorFlow, its rewrite of the graph, the seed's batches."""
    large = {model: batches[1] for model, batches in BATCHES.items()}
    compiled: tuple[bool | str, ...] = (False, "auto") if backend == "tensorflow" else (False,)
    found = [
        Case(model, batch, policy, jit_compile=jit)
        for policies in (POLICIES[:2], POLICIES[2:])
        for jit, policy, (model, batch) in product(compiled, policies, large.items())
    ]
    if backend == "tensorflow":
        found += [
            Case("convnet", batch, policy, jit_compile=False) for batch, policy in product(SEED, POLICIES[:2])
        ]
        found += [
            Case(model, batch, "float32", jit_compile=False, rewrite=True) for model, batch in large.items()
        ]
    return [(shrunk(case) if tiny else case, True) for case in found]


def shrunk(case: Case) -> Case:
    return replace(case, batch=case.batch // 8, knobs=TINY[case.model])


def start(job: Job, lock: Path) -> subprocess.Popen[bytes]:
    """Start a training in a process of its own, whose output goes beside its log directory."""
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {
        **os.environ, "XLA_FLAGS": flags if job.graphs else f"{flags} {NO_GRAPHS}".strip(),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false", "TF_FORCE_GPU_ALLOW_GROWTH": "true", **job.environment,
    }  # fmt: skip
    given = {"case": asdict(job.case), "logdir": str(job.logdir), "steps": job.steps, "delay_s": job.delay_s}
    job.logdir.parent.mkdir(parents=True, exist_ok=True)
    with said(job).open("wb") as file:
        return subprocess.Popen(
            [sys.executable, "-m", "tools.gpu.record_cases", "--job", json.dumps({**given, "lock": str(lock)})],
            env=environment, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip


def said(job: Job) -> Path:
    return job.logdir.with_name(f"{job.logdir.name}.txt")


def record(jobs: Iterable[Job], out: Path, seconds: float = 1e9) -> Iterator[tuple[Job, int]]:
    """Train each job; yield it with its exit code when it has ended. None is started after `seconds`."""
    began, running = time.monotonic(), deque[tuple[Job, subprocess.Popen[bytes]]]()
    waiting = deque(jobs)
    out.mkdir(parents=True, exist_ok=True)
    while waiting or running:
        while waiting and len(running) < AHEAD and time.monotonic() - began < seconds:
            job = waiting.popleft()
            running.append((job, start(job, out / "lock")))
        if not running:
            return
        job, process = running.popleft()
        yield job, process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--backend", choices=("jax", "tensorflow", "torch"), default="jax")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job = json.loads(args.job)
        train(Case(**job.pop("case")), **job)
        return
    found = cases(args.tiny) if args.backend == "jax" else others(args.backend, args.tiny)
    environment = {"KERAS_BACKEND": args.backend}
    jobs = [
        Job(case, args.out / (case.name if graphs else f"{case.name}-no-graphs"), args.steps, graphs,
            environment=environment)
        for case, graphs in found
        if args.only in case.name
    ]  # fmt: skip
    began = time.monotonic()
    for job, code in record(jobs, args.out, args.seconds):
        print(
            f"{time.monotonic() - began:6.1f} s  {job.logdir}: {'done' if code == 0 else f'exit code {code}'}",
            flush=True,
        )


if __name__ == "__main__":
    main()
