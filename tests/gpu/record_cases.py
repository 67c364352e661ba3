"""Records the sample runs that need a GPU: three models, three policies, two batch sizes, command buffers on and off.

    KERAS_BACKEND=jax python -m tests.gpu.record_cases OUT [--tiny] [--only SUBSTRING] [--steps 60]

Each case trains in a process of its own (the policy and XLA's flags are the process') and leaves a log directory under
OUT. `--tiny` shrinks everything so that the script itself can be tried on a CPU (not the transformer in float16: JAX on the CPU
has no such product).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from dataclasses import asdict, replace
from itertools import product
from pathlib import Path

from tests.gpu.models import Case, train

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
BATCHES = {"convnet": (64, 256), "resnet50": (32, 128), "transformer": (16, 64)}
TINY = {
    "convnet": {"size": 96, "widths": (4, 4, 4)},
    "resnet50": {"size": 32, "classes": 10},
    "transformer": {"vocabulary": 1009, "length": 16, "width": 32, "blocks": 1},
}
NO_GRAPHS = "--xla_gpu_enable_command_buffer="


def cases(tiny: bool) -> list[tuple[Case, bool]]:
    """Every case, with whether XLA's command buffers stay on."""
    found = []
    for model, batches in BATCHES.items():
        for batch, policy, graphs in product(batches, POLICIES, (True, False)):
            case = Case(model, batch, policy)
            shrunk = replace(case, batch=batch // 8, knobs=TINY[model])
            found.append((shrunk if tiny else case, graphs))
    return found


def record(case: Case, out: Path, steps: int, *, graphs: bool = True, delay_s: float = 0.0) -> Path:
    """Trains a case in a process of its own; returns its log directory. Raises CalledProcessError."""
    logdir = out / (case.name if graphs else f"{case.name}-no-graphs")
    flags = os.environ.get("XLA_FLAGS", "")
    environment = {**os.environ, "XLA_FLAGS": flags if graphs else f"{flags} {NO_GRAPHS}".strip()}
    job = json.dumps({"case": asdict(case), "logdir": str(logdir), "steps": steps, "delay_s": delay_s})
    subprocess.run(
        [sys.executable, "-m", "tests.gpu.record_cases", "--job", job], env=environment, check=True
    )
    return logdir


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?")
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--job", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.job:
        job = json.loads(args.job)
        train(Case(**job.pop("case")), **job)
        return
    for case, graphs in cases(args.tiny):
        if args.only in case.name:
            print(record(case, args.out, args.steps, graphs=graphs), flush=True)


if __name__ == "__main__":
    main()
