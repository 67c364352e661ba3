"""`--set NAME=VALUE`."""

from __future__ import annotations

import pytest

from mpprof.errors import UsageError
from mpprof.trial import switches


def test_a_switch_is_a_variable_or_an_argument_of_compile() -> None:
    sets = [
        switches.checked(text)
        for text in ("tf32=off", "command_buffers=off", "steps_per_execution=8", "A_B=c=d")
    ]
    assert switches.environment(sets, {"XLA_FLAGS": "--own"}) == {
        "NVIDIA_TF32_OVERRIDE": "0", "XLA_FLAGS": "--own --xla_gpu_enable_command_buffer=", "A_B": "c=d",
    }  # fmt: skip
    both = switches.environment([("command_buffers", "off"), ("determinism", "on")], {})
    assert both["XLA_FLAGS"] == "--xla_gpu_enable_command_buffer= --xla_gpu_deterministic_ops=true"
    assert switches.code("steps_per_execution", "8") == ["model.compile(..., steps_per_execution=8)"]
    assert switches.code("tf32", "off") == [
        'os.environ["NVIDIA_TF32_OVERRIDE"] = "0"  # before the framework is imported'
    ]


@pytest.mark.parametrize("text", ["tf32", "=on", "tf32=maybe", "tf33=on", "steps_per_execution=many"])
def test_a_switch_that_there_is_not_is_wrong_usage(text: str) -> None:
    with pytest.raises(UsageError):
        switches.checked(text)
