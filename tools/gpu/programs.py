"""Trains the models of the forecast's suite on the card that is here, to hold `mpprof forecast` against it.

    python -m tools.gpu.programs OUT [--steps 40] [--seconds N]      needs a GPU

Leaves one log directory a program under OUT.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.gpu.models import hold


@dataclass(frozen=True)
class Program:
    """A model of `tests.forecasts.models`, with its policy and batch size."""

    model: str
    policy: str
    batch: int

    @property
    def name(self) -> str:
        return f"{self.model}-{self.policy}-{self.batch}"


PROGRAMS = (
    *(Program("transformer", policy, 8) for policy in ("mixed_bfloat16", "mixed_float16")),
    *(Program("convnet", policy, 32) for policy in ("float32", "mixed_float16")),
    *(Program("published_convnet", policy, 128) for policy in ("float32", "mixed_float16", "mixed_bfloat16")),
    *(Program("resnet", policy, 128) for policy in ("float32", "mixed_float16")),
    Program("convolutions", "mixed_float16", 16),
    Program("depthwise", "mixed_float16", 16),
    Program("recurrent", "mixed_float16", 16),
    *(Program("dense", policy, 64) for policy in ("float32", "mixed_float16")),
    Program("transfer", "mixed_float16", 64),
)


def train(program: Program, logdir: Path, steps: int, lock: str) -> None:
    """Trains one program in this process."""
    import keras

    from mpprof import MPProfilerCallback
    from tests.forecasts import models

    hold(lock)
    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(program.policy)
    model = getattr(models, program.model)()
    batch = given(model, program.batch)
    model.fit(
        (batch for _ in range(steps)),
        steps_per_epoch=steps,
        verbose=0,
        callbacks=[MPProfilerCallback(str(logdir), announce=None)],
    )


def given(model: Any, batch: int) -> tuple[Any, Any]:
    """One batch of random inputs and labels."""
    import numpy as np

    random = np.random.default_rng(1)
    shape = (batch, *model.input_shape[1:])
    whole = "int" in str(model.inputs[0].dtype)
    x = random.integers(0, 100, shape).astype("int32") if whole else random.random(shape, dtype=np.float32)
    outputs = (batch, *model.output_shape[1:])
    loss = model.loss if isinstance(model.loss, str) else type(model.loss).__name__
    if "sparse" in loss.lower():
        return x, random.integers(0, outputs[-1], outputs[:-1]).astype("int32")
    return x, random.random(outputs, dtype=np.float32)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--seconds", type=float, default=1e9)
    parser.add_argument("--one", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one is not None:
        program = PROGRAMS[args.one]
        train(program, args.out / program.name, args.steps, str(args.out / "lock"))
        return
    began = time.monotonic()
    environment = {**os.environ, "KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    args.out.mkdir(parents=True, exist_ok=True)
    for index, program in enumerate(PROGRAMS):
        if time.monotonic() - began > args.seconds:
            return
        command = [sys.executable, "-m", "tools.gpu.programs", str(args.out), "--steps", str(args.steps)]
        with (args.out / f"{program.name}.txt").open("wb") as said:
            done = subprocess.run(
                [*command, "--one", str(index)],
                env=environment,
                stdout=said,
                stderr=subprocess.STDOUT,
                check=False,
            )
        print(f"{time.monotonic() - began:6.1f} s  {program.name}: exit code {done.returncode}", flush=True)


if __name__ == "__main__":
    main()
