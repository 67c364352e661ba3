"""`mpprof demo`: real trainings on the CPU. A script run and tried, then a slow input found and mended."""

from __future__ import annotations

import importlib.util
import inspect
import shutil
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpprof import child
from mpprof.errors import MpprofError
from mpprof.model.shell import program, quoted

POLICIES = ("float32", "mixed_float16")
TRIED = ("float32", "mixed_bfloat16")
SLOW, MENDED = "slow-input", "mended-input"
STEPS, EPOCHS = 120, 5
STEPS_OF_IMAGES = 60
BATCH = 16
IMAGES = 64
A_SAMPLE = "v100-odd-vocabulary"
ENVIRONMENT = {
    "KERAS_BACKEND": "tensorflow",
    "CUDA_VISIBLE_DEVICES": "-1",
    "TF_CPP_MIN_LOG_LEVEL": "2",
    "TF_ENABLE_ONEDNN_OPTS": "0",
}
Command = Callable[[list[str]], int]


def samples() -> Path | None:
    """Return the sample runs of a source checkout; None in an installation without them."""
    folder = Path(__file__).resolve().parents[1] / "sample_traces"
    return folder if (folder / "make.py").is_file() else None


def run(directory: Path, command: Command, *, serve: bool, port: int) -> None:
    """Train, print the reports and comparisons, then serve it all.

    `command` runs one command line and returns its exit code. Everything goes into a new folder of
    `directory`, named after the time; nothing there is overwritten. Raises MpprofError where TensorFlow is
    missing, or a training or a command fails.
    """
    if importlib.util.find_spec("tensorflow") is None:
        raise MpprofError(
            "the demo trains with Keras on TensorFlow, which is not installed",
            next="pip install 'mpprof[demo]'",
        )
    folder = directory / time.strftime("%Y%m%d-%H%M%S")
    folder.mkdir(parents=True)
    _show_script(folder)
    _show_sample(command, folder / "samples")
    _show_mended(command, folder)
    if serve:
        _show(command, "serve", str(folder), "--port", str(port))
    else:
        _say(f"All of it as a page:\n\n$ {program()} serve {quoted(folder)}")


def _show_script(folder: Path) -> None:
    """Show what an unchanged script is told, and what its settings bring."""
    path = folder / "train.py"
    path.write_text(script(), encoding="utf-8")
    _say(f"1. A script that trains a small convolutional network: {quoted(path)}. It stays as it is.")
    for name, *options in (("run",), ("try", "--policies", ",".join(TRIED), "--minutes", "1")):
        words = [name, "--logdir", str(folder / f"{name}-train"), *options, str(path)]
        _say(f"$ {program()} {' '.join(map(quoted, words))}\n")
        launch(words)


def launch(words: list[str]) -> None:
    """Run a command of ours that trains: in a process of its own, whose place it may take."""
    command = child.command("-c", "from mpprof.__main__ import run; run()", *words)
    done = subprocess.run(command, env=child.environment(**ENVIRONMENT), check=False)
    if done.returncode != 0:
        raise MpprofError(f"mpprof {words[0]} failed", next="See the message above")


def script() -> str:
    """Return a training as people write one."""
    parts = [inspect.getsource(each).rstrip() for each in (in_memory, network)]
    parts.append(f"x, y = in_memory()\nnetwork().fit(x, y, batch_size=BATCH, epochs={EPOCHS}, verbose=0)")
    head = f"from typing import Any\n\nBATCH, STEPS = {BATCH}, {STEPS}"
    return "\n\n\n".join([head, *parts]) + "\n"


def _show_sample(command: Command, folder: Path) -> None:
    """Show what a report of a GPU says, by a sample; all of the samples are copied so that the page shows
    them, too."""
    found = samples()
    if found is None:
        return
    shutil.copytree(found, folder, ignore=shutil.ignore_patterns("*.py", "*.md", "__pycache__"))
    _say("2. A GPU, from a synthetic sample (sample_traces/README.md lists them all).")
    mixed, baseline = (str(folder / f"{A_SAMPLE}-{policy}") for policy in ("mixed-float16", "float32"))
    _show(command, "report", mixed, "--baseline", baseline)


def _show_mended(command: Command, folder: Path) -> None:
    """Show a training that waits for its input: what the report says, the change, and what it brought."""
    _say(f"3. The same network on JPEG files, {STEPS_OF_IMAGES} steps. Its input:\n\n{_code(slow_input)}")
    train(SLOW, folder / SLOW)
    _show(command, "report", str(folder / SLOW))
    _say(f"Decoded once, as the first remedy says:\n\n{_code(mended_input)}")
    train(MENDED, folder / MENDED)
    _show(command, "compare", str(folder / SLOW), str(folder / MENDED))


def _say(text: str) -> None:
    print(f"\n{text}", flush=True)


def _show(command: Command, *arguments: str) -> None:
    """Run a command as a reader could, and print it first. Raises MpprofError where it fails."""
    _say(f"$ {program()} {' '.join(map(quoted, arguments))}\n")
    if command(list(arguments)) != 0:
        raise MpprofError(f"mpprof {arguments[0]} failed", next="See the message above")


def _code(function: Callable[..., Any]) -> str:
    """Return the body of a function, indented, as its file has it."""
    body = inspect.getsource(function).partition(":\n")[2]
    return textwrap.indent(textwrap.dedent(body).rstrip(), "    ")


def train(name: str, directory: Path) -> None:
    """Train in a process of its own, with the callback writing to `directory`.

    A process each, because Keras keeps its policy and TensorFlow its settings for as long as it lives.
    Raises MpprofError where the training fails.
    """
    command = child.command("-m", "mpprof.demo", name, str(directory))
    # TensorFlow prints to stderr even when all is well: shown only when it is not.
    done = subprocess.run(
        command, env=child.environment(**ENVIRONMENT), stderr=subprocess.PIPE, text=True, check=False
    )
    if done.returncode != 0:
        raise MpprofError(
            f"the training {name} failed: {done.stderr.strip().splitlines()[-1:] or 'no message'}",
            where=str(directory),
        )


def train_here(name: str, directory: Path) -> None:
    """Train a small convnet, on random images in memory or on JPEG files of random images."""
    import keras

    from mpprof import MPProfilerCallback

    keras.config.set_dtype_policy(name if name in POLICIES else "float32")
    model, callbacks = network(), [MPProfilerCallback(directory, verbose=0)]
    if name in POLICIES:
        model.fit(*in_memory(), batch_size=BATCH, verbose=0, callbacks=callbacks)
        return
    data = {SLOW: slow_input, MENDED: mended_input}[name](files(), decoded)
    model.fit(data, steps_per_epoch=STEPS_OF_IMAGES, verbose=0, callbacks=callbacks)


def network() -> Any:
    """Return a small convolutional network, compiled."""
    import keras

    keras.utils.set_random_seed(1)
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
    return model


def in_memory() -> tuple[Any, Any]:
    """Return random images and labels, as arrays."""
    import numpy as np

    random = np.random.default_rng(1)
    images = random.random((BATCH * STEPS, 48, 48, 3), dtype=np.float32)
    return images, random.integers(0, 10, BATCH * STEPS)


def files() -> Any:
    """Return random images as JPEG files of 768 x 768 pixels, with labels, as a dataset."""
    import numpy as np
    import tensorflow as tf

    random = np.random.default_rng(1)
    made = [
        tf.io.encode_jpeg(random.integers(0, 256, (768, 768, 3), dtype=np.uint8)).numpy()
        for _ in range(IMAGES)
    ]
    return tf.data.Dataset.from_tensor_slices((made, random.integers(0, 10, IMAGES)))


def decoded(file: Any, label: Any) -> tuple[Any, Any]:
    """Return one image, as small as the network takes it."""
    import tensorflow as tf

    image = tf.io.decode_jpeg(file, channels=3)
    return tf.image.resize(image, (48, 48)) / 255.0, label


def slow_input(data: Any, decode: Any) -> Any:
    return data.map(decode).repeat().batch(BATCH)


def mended_input(data: Any, decode: Any) -> Any:
    return data.map(decode).cache().repeat().batch(BATCH)


if __name__ == "__main__":
    train_here(sys.argv[1], Path(sys.argv[2]))
