"""What `--set NAME=VALUE` switches: variables of the environment, and arguments of `compile`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping

from mpprof.errors import UsageError, did_you_mean

IN_THE_SCRIPT = {
    "steps_per_execution": "model.compile(..., steps_per_execution={value})",
    "prefetch": "data = data.prefetch({value})  # last, of the tf.data set",
    "workers": "super().__init__(workers={value})  # of the PyDataset",
    "loss_scale": "keras.optimizers.LossScaleOptimizer(optimizer, initial_scale={value})",
    "loss_scale_growth": "keras.optimizers.LossScaleOptimizer(optimizer, dynamic_growth_steps={value})",
}
"""Switches of what the script compiles and fits, with the line that sets them; all others are set by the
environment."""
_AUTO = {("prefetch", "auto"): "tf.data.AUTOTUNE"}
_FLAGS = "XLA_FLAGS"
_ENVIRONMENT: dict[tuple[str, str], dict[str, str]] = {
    ("tf32", "off"): {"NVIDIA_TF32_OVERRIDE": "0"},
    # TensorFlow uses TF32 where nothing forbids it.
    ("tf32", "on"): {
        "TORCH_ALLOW_TF32_CUBLAS_OVERRIDE": "1", "JAX_DEFAULT_MATMUL_PRECISION": "tensorfloat32",
    },
    ("command_buffers", "off"): {_FLAGS: "--xla_gpu_enable_command_buffer="},
    ("determinism", "on"): {"TF_DETERMINISTIC_OPS": "1", _FLAGS: "--xla_gpu_deterministic_ops=true"},
}  # fmt: skip


def checked(text: str) -> tuple[str, str]:
    """Return the name and the value of an option's text. Raises UsageError for a switch that there is not."""
    name, given, value = text.partition("=")
    if not (name and given):
        raise UsageError(f"--set {text!r} is not NAME=VALUE", next="Example: --set steps_per_execution=8")
    if name.isupper():
        return name, value
    if name in IN_THE_SCRIPT:
        if (name, value) not in _AUTO and (not value.isdecimal() or int(value) < 1):
            raise UsageError(f"--set {text}: not a number of at least 1", next=f"Example: --set {name}=8")
        return name, value
    values = [known for switch, known in _ENVIRONMENT if switch == name]
    if not values:
        names = sorted({*IN_THE_SCRIPT, *(switch for switch, _ in _ENVIRONMENT)})
        meant = did_you_mean(name, names)
        raise UsageError(
            f"there is no switch {name!r}",
            next=f"{meant} Known: {', '.join(names)}; NAMES of the environment".lstrip(),
        )
    if value not in values:
        raise UsageError(
            f"--set {text}: it takes {' or '.join(values)}", next=f"Example: --set {name}={values[0]}"
        )
    return name, value


def environment(sets: Iterable[tuple[str, str]], given: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return the variables that these switches set. Flags of XLA are added to those that are `given`."""
    found: dict[str, str] = {}
    for name, value in sets:
        added = {name: value} if name.isupper() else _ENVIRONMENT.get((name, value), {})
        for key, text in added.items():
            before = found.get(key, given.get(key)) if key == _FLAGS and not name.isupper() else None
            found[key] = f"{before} {text}" if before else text
    return found


def loss_scale(sets: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return those switches that are of the loss scale: what they bring shows in skipped updates."""
    return [(name, value) for name, value in sets if name.startswith("loss_scale")]


def code(name: str, value: str) -> list[str]:
    """Return the lines of a script for a switch."""
    if name in IN_THE_SCRIPT:
        return [IN_THE_SCRIPT[name].format(value=_AUTO.get((name, value), value))]
    set_by = environment([(name, value)], {})
    return [
        f'os.environ["{key}"] = "{text}"  # before the framework is imported' for key, text in set_by.items()
    ]
