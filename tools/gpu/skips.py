"""Loss scale and skipped updates on a GPU, as the callback records them, beside what the optimizer says after every step.

    KERAS_BACKEND=tensorflow python -m tools.gpu.skips OUT [--jit]

A small model in mixed_float16 whose gradients overflow at the first scales, and again each time the scale has grown: the
growth interval is 20 steps. The last line printed holds both counts; `agree`: whether they are the same.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

STEPS, BATCH, FEATURES = 200, 64, 32


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("--jit", action="store_true")
    args = parser.parse_args()
    import keras
    import numpy as np

    from mpprof import MPProfilerCallback

    class Truth(keras.callbacks.Callback):  # type: ignore[misc]
        """What the optimizer holds after each step: the scale, and how many updates it applied."""

        def __init__(self) -> None:
            super().__init__()
            self.seen: list[tuple[float, int]] = []

        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            optimizer = self.model.optimizer
            self.seen.append((float(optimizer.dynamic_scale), int(optimizer.inner_optimizer.iterations)))

    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy("mixed_float16")
    model = keras.Sequential(
        [
            keras.Input((FEATURES,)),
            keras.layers.Dense(256, activation="relu"),
            keras.layers.Dense(1, dtype="float32"),
        ]
    )
    optimizer = keras.optimizers.LossScaleOptimizer(keras.optimizers.SGD(1e-6), dynamic_growth_steps=20)
    model.compile(optimizer, "mse", jit_compile=args.jit)
    random = np.random.default_rng(1)
    x = random.standard_normal((STEPS * BATCH, FEATURES), np.float32)
    y = 100 * random.standard_normal((STEPS * BATCH, 1), np.float32)
    truth = Truth()
    model.fit(x, y, batch_size=BATCH, epochs=1, verbose=0, shuffle=False,
              callbacks=[truth, MPProfilerCallback(str(args.out), announce=None)])  # fmt: skip
    lines = [json.loads(line) for line in (args.out / "mpprof" / "steps.jsonl").read_text().splitlines()]
    steps = [line for line in lines if line.get("kind") == "step"]
    told = [line["skipped"] for line in steps if line.get("skipped") is not None]
    scales = [(line["step"], line["loss_scale"]) for line in steps if line.get("loss_scale") is not None]
    skipped = STEPS - truth.seen[-1][1]
    print(json.dumps({
        "device": [str(d) for d in keras.distribution.list_devices()], "jit": args.jit,
        "skipped_by_optimizer": skipped, "skipped_recorded": sum(told) if told else None, "scales_read": len(scales),
        "scales_wrong": [pair for pair in scales if truth.seen[pair[0] - 1][0] != pair[1]],
        "agree": bool(told) and sum(told) == skipped,
    }))  # fmt: skip


if __name__ == "__main__":
    main()
