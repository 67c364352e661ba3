"""The energy of a training, by the counter of a card that is not here."""

from __future__ import annotations

from typing import Any

import pytest

from mpprof.launch.energy import Energy


class Nvml:
    def __init__(self, cards: int = 1, fails: bool = False) -> None:
        self.cards, self.fails, self.mj = cards, fails, 5_000_000

    def nvmlInit(self) -> None: ...

    def nvmlDeviceGetCount(self) -> int:
        return self.cards

    def nvmlDeviceGetHandleByIndex(self, index: int) -> Any:
        return index

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> Any:
        return uuid

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: Any) -> int:
        if self.fails:
            raise RuntimeError("Not Supported")
        return self.mj


def test_the_joules_between_two_steps_are_known() -> None:
    nvml, energy = Nvml(), Energy()
    energy.open(nvml, {})
    energy.begin(1)
    nvml.mj += 7_500
    energy.end(61)
    assert energy.told == {"joules": 7.5, "steps": 60}


@pytest.mark.parametrize(
    ("nvml", "environment", "why"),
    [
        (Nvml(0), {}, "NVML sees no GPU"),
        (Nvml(2), {}, "it is not known which GPU of several the training runs on"),
        (Nvml(2), {"CUDA_VISIBLE_DEVICES": "1"}, "it is not known which GPU of several the training runs on"),
        (Nvml(fails=True), {}, "Not Supported"),
    ],
)
def test_why_it_is_not_known_is_said(nvml: Nvml, environment: dict[str, str], why: str) -> None:
    energy = Energy()
    energy.open(nvml, environment)
    energy.begin(1)
    energy.end(61)
    assert energy.told == {"absent": why}


def test_one_card_of_several_is_known_by_its_uuid() -> None:
    energy, nvml = Energy(), Nvml(4)
    energy.open(nvml, {"CUDA_VISIBLE_DEVICES": "GPU-12ab"})
    energy.begin(2)
    nvml.mj += 1000
    energy.end(4)
    assert energy.told == {"joules": 1.0, "steps": 2}


def test_a_counter_that_fails_later_takes_nothing_with_it() -> None:
    nvml, energy = Nvml(), Energy()
    energy.open(nvml, {})
    energy.begin(1)
    nvml.fails = True
    energy.end(61)
    assert energy.told == {"absent": "NVML: Not Supported"}
