"""`mpprof demo`: a tiny real training in two policies on the CPU, its reports, the comparison, the page."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from mpprof.errors import MpprofError
from mpprof.model.shell import quoted

POLICIES = ("float32", "mixed_float16")
STEPS = 120
Command = Callable[[list[str]], int]


def samples() -> Path | None:
    """The sample runs of a source checkout; None in an installation without them."""
    folder = Path(__file__).resolve().parents[1] / "sample_traces"
    return folder if (folder / "make.py").is_file() else None


def run(directory: Path, command: Command, *, serve: bool, port: int) -> None:
    """Trains, prints the reports, the comparison and what the samples say, then serves it all.

    `command` runs one command line and returns its exit code. Everything goes into a new folder of
    `directory`, named after the time; nothing there is overwritten.
    """
    folder = directory / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    print(f"Training a small convolutional network on the CPU, {STEPS} steps in each policy.", flush=True)
    for policy in POLICIES:
        train(policy, folder / policy)
    baseline, mixed = (str(folder / policy) for policy in POLICIES)
    _show(command, "report", baseline)
    _show(command, "report", mixed, "--baseline", baseline)
    _show(command, "compare", baseline, mixed)
    _show_samples(folder / "samples")
    if serve:
        _show(command, "serve", str(folder), "--port", str(port))
    else:
        print(f"\nThe same as a page: mpprof serve {quoted(folder)}")


def _show(command: Command, *arguments: str) -> None:
    """Runs a command as a reader could, and prints it first. Raises MpprofError where it fails."""
    print(f"\n$ mpprof {' '.join(map(quoted, arguments))}\n", flush=True)
    if command(list(arguments)) != 0:
        raise MpprofError(f"mpprof {arguments[0]} failed", next="see the message above")


def _show_samples(folder: Path) -> None:
    """One sentence on each sample run; they are copied so that the page shows them beside the training."""
    found = samples()
    if found is None:
        print("\nThe sample runs are not part of an installation; a clone of the project has them.")
        return
    from mpprof.api import workflows

    print("\nThe sample runs, one sentence each (made up or recorded: see sample_traces/README.md)\n")
    for case in sorted(found.glob("*/origin.json")):
        copy = Path(shutil.copytree(case.parent, folder / case.parent.name))
        twin = case.parent.with_name(f"{case.parent.name.partition('-mixed')[0]}-float32")
        baseline = workflows.load(twin) if twin.is_dir() and twin != case.parent else None
        print(f"{copy.name}\n    {workflows.diagnose(workflows.load(copy), baseline).verdict}")


def train(policy: str, directory: Path) -> None:
    """Trains a small convolutional network in a process of its own, with the callback writing to `directory`.

    A process each, because Keras keeps its policy and TensorFlow its settings for as long as it lives.
    Raises MpprofError where TensorFlow is missing or the training fails.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise MpprofError(
            "the demo trains with Keras on TensorFlow, which is not installed",
            next="pip install 'mpprof[tensorflow]'",
        )
    environment = {
        **os.environ,
        "KERAS_BACKEND": "tensorflow",
        "CUDA_VISIBLE_DEVICES": "-1",
        "TF_CPP_MIN_LOG_LEVEL": "2",
        "TF_ENABLE_ONEDNN_OPTS": "0",
    }
    command = [sys.executable, "-m", "mpprof.demo", policy, str(directory)]
    # TensorFlow prints to stderr even when all is well: shown only when it is not.
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise MpprofError(
            f"the training in {policy} failed: {done.stderr.strip().splitlines()[-1:] or 'no message'}",
            where=str(directory),
        )


def train_here(policy: str, directory: Path) -> None:
    """The training itself: the seed experiment's convnet in small, on random images."""
    import keras
    import numpy as np

    from mpprof import MPProfilerCallback

    keras.utils.set_random_seed(1)
    keras.config.set_dtype_policy(policy)
    layers = keras.layers
    model = keras.Sequential(
        [
            keras.Input((48, 48, 3)),
            layers.Conv2D(16, 5, strides=2, activation="relu"),
            layers.BatchNormalization(),
            layers.Conv2D(32, 5, strides=2, activation="relu"),
            layers.BatchNormalization(),
            layers.GlobalAveragePooling2D(),
            layers.Dense(10),
            layers.Activation("softmax", dtype="float32"),
        ]
    )
    model.compile("adam", "sparse_categorical_crossentropy")
    random = np.random.default_rng(1)
    images = random.random((16 * STEPS, 48, 48, 3), dtype=np.float32)
    labels = random.integers(0, 10, 16 * STEPS)
    model.fit(images, labels, batch_size=16, verbose=0, callbacks=[MPProfilerCallback(directory)])


if __name__ == "__main__":
    train_here(sys.argv[1], Path(sys.argv[2]))
