"""What the callback adds to a step on a GPU, for steps of about 2, 20 and 200 ms, by taking it in and out of one fit.

    KERAS_BACKEND=jax python -m tools.gpu.disturbance OUT.json [--step-ms 2 20 200]

The way of `tools/benchmarks/callback_overhead.py`: blocks of steps with and without the callback in turns, each held
against the bare one beside it. The profiler window is switched off; what it takes is in the records of any run.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path
from typing import Any

BLOCKS = {2: (50, 60), 20: (20, 40), 200: (6, 20)}
"""Steps of a block, and blocks, by the length of the step in ms."""
FEATURES, WIDTH, LAYERS = 64, 4096, 4


def model(policy: str) -> Any:
    import keras

    keras.utils.set_random_seed(3)
    keras.config.set_dtype_policy(policy)
    layers = keras.layers
    hidden = [layers.Dense(WIDTH, activation="relu") for _ in range(LAYERS)]
    made = keras.Sequential(
        [keras.Input((FEATURES,)), *hidden, layers.Dense(10, activation="softmax", dtype="float32")]
    )
    made.compile("sgd", "sparse_categorical_crossentropy")
    return made


def batches(rows: int, steps: int) -> Any:
    import numpy as np

    random = np.random.default_rng(1)
    x, y = random.standard_normal((rows, FEATURES), dtype=np.float32), random.integers(0, 10, rows)
    return ((x, y) for _ in range(steps))


def step_ns(policy: str, rows: int) -> float:
    """The time of a bare step, of 30 after the first epoch."""
    made, steps = model(policy), 30
    made.fit(batches(rows, 5), steps_per_epoch=5, verbose=0)
    begin = time.perf_counter_ns()
    made.fit(batches(rows, steps), steps_per_epoch=steps, verbose=0)
    return (time.perf_counter_ns() - begin) / steps


def measure(policy: str, step_ms: int) -> dict[str, Any]:
    """What the callback adds, with its 95 % bounds, in us a step."""
    import keras

    from mpprof import MPProfilerCallback
    from tools.benchmarks import callback_overhead as way

    rows = 256
    while (found := step_ns(policy, rows)) < step_ms * 0.7e6 and rows < 1 << 18:
        rows = min(2 * rows if found > step_ms * 0.2e6 else 4 * rows, 1 << 18)
    steps, blocks = BLOCKS[step_ms]
    way.BLOCK = steps
    with tempfile.TemporaryDirectory() as folder:
        switch = way.Switch()
        run = Path(folder) / "run"
        ours = MPProfilerCallback(str(run), verbose=0, announce=None, profile_steps=None, clock=switch.clock)
        made, count = model(policy), steps * (way.WARM_BLOCKS + blocks)
        way.EPOCH_BLOCKS, way.LIST = (
            way.WARM_BLOCKS + blocks,
            {"add_history": True, "epochs": 1, "steps": count},
        )
        callbacks = switch.list = way.fit([switch, ours], made)
        switch.switch_between({"mpprof": ours})
        made.fit(batches(rows, count), steps_per_epoch=count, verbose=0, callbacks=callbacks)
        lines = [json.loads(line) for line in (run / "mpprof" / "steps.jsonl").read_text().splitlines()]
    recorded = [line for line in lines if line.get("kind") == "step"]
    return {
        "backend": keras.backend.backend(), "policy": policy, "rows": rows, "steps": len(recorded),
        "synced": sum(bool(line.get("synced")) for line in recorded),
        "read": sum("loss_scale" in line or "memory" in line for line in recorded),
        **way.summary(switch.blocks, ["mpprof"]),
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--step-ms", type=int, nargs="+", default=[2, 20, 200], choices=(2, 20, 200))
    parser.add_argument("--policy", nargs="+", default=["mixed_float16", "mixed_bfloat16"])
    args = parser.parse_args()
    rows = []
    for step_ms in args.step_ms:
        for policy in args.policy:
            rows.append(measure(policy, step_ms))
            print(json.dumps(rows[-1]), flush=True)
            args.out.write_text(json.dumps(rows))


if __name__ == "__main__":
    main()
