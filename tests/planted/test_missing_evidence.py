"""Planted causes with part of their evidence taken away: found all the same, or *unable* with what is missing.

Never clear, and nothing is accused in their place. A run without its trace, a trace without its records, a trace
cut off in the middle, and a training of a dozen steps.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from tests.planted.generator import Planted, written
from tests.planted.matrix import CLOSE, blamed
from tests.planted.suite import planted

BY_NAME = {case.name: case for case in planted()}
CASES = [
    "tf-v100-island", "jax-a100-island", "tf-v100-vocabulary-33709", "tf-v100-algorithm", "tf-v100-unaligned",
    "tf-v100-input", "jax-a100-launches", "tf-v100-callbacks", "tf-a100-cpu-op", "tf-v100-layout", "tf-v100-casts",
    "tf-v100-depthwise", "tf-v100-loss-scale", "tf-v100-embedding", "jax-a100-norms", "jax-v100-optimizer",
]  # fmt: skip
MISSING = (
    "trace", "profiler window", "not recorded", "was not measured", "not known", "host tracer", "no steps", "train ",
)  # fmt: skip
SAID_OF_THE_MEASUREMENT = {"MP909", "MP911"}
"""A trace that was cut, and a training that was too short, are findings of their own."""
GENERAL = {"MP402": {"MP401"}, "MP104": {"MP412"}, "MP306": {"MP310"}}
"""Without the layers an odd vocabulary is an odd size, and a float32 island a fallback without a known cause;
without the host's events an op on the CPU shows by its copies there and back, which MP310 names."""


def without_trace(folder: Path) -> None:
    shutil.rmtree(folder / "plugins")


def without_records(folder: Path) -> None:
    shutil.rmtree(folder / "mpprof")


def cut_in_two(folder: Path) -> None:
    [trace] = folder.rglob("*.xplane.pb")
    trace.write_bytes(trace.read_bytes()[: trace.stat().st_size * 3 // 5])


LESS: dict[str, Callable[[Path], None]] = {
    "records alone": without_trace, "trace alone": without_records, "cut trace": cut_in_two,
}  # fmt: skip


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The log directory of a planted case, written once."""

    @cache
    def write(name: str) -> Path:
        return written(BY_NAME[name].training, tmp_path_factory.mktemp("whole"))

    return write


DAMAGED = 0.15
"""Of a cut trace: the names of some kernels' ops may lie in the part that is gone, and their cost with them."""


def assert_fair(
    case: Planted, found: Diagnosis, truth: Callable[[str], float | None], close: float = CLOSE
) -> None:
    """Each planted cause is found (at its cost where one is stated), or unable with what it lacks; never clear.
    `truth`: the cost by its code; of profiled steps where nothing tells how long the others take."""
    costs = {finding.code: finding.cost_ns_per_step for finding in found.findings}
    reasons = {each.code: each.reason for each in found.unable}
    for code in case.twins:
        assert code not in found.clear
        if code in costs:
            stated = costs[code]
            assert stated is None or stated == pytest.approx(truth(code), rel=close)
        else:
            assert any(word in reasons[code] for word in MISSING), reasons[code]
    allowed = {
        *case.twins,
        *case.also,
        *SAID_OF_THE_MEASUREMENT,
        *(a for c in case.twins for a in GENERAL.get(c, ())),
    }
    assert [code for code in blamed(found) if code not in allowed] == []


@pytest.mark.parametrize(("name", "less"), [(name, less) for name in CASES for less in LESS])
def test_less_evidence_is_said_and_never_clear(recorded, tmp_path: Path, name: str, less: str) -> None:
    folder = tmp_path / "run"
    shutil.copytree(recorded(name), folder)
    LESS[less](folder)
    close = DAMAGED if less == "cut trace" else CLOSE
    case = BY_NAME[name]
    truth = case.profiled_cost_ns if less == "trace alone" else case.cost_ns
    assert_fair(case, workflows.diagnose(workflows.load(folder)), truth, close)


@pytest.mark.parametrize("name", CASES)
def test_a_dozen_steps_are_too_few_and_said_so(tmp_path: Path, name: str) -> None:
    case = BY_NAME[name]
    short = replace(case.training, steps=14, profile=(8, 11))
    found = workflows.diagnose(workflows.load(written(short, tmp_path)))
    assert "MP911" in {finding.code for finding in found.findings}
    for code in ("MP201", "MP205", "MP807", "MP901"):
        assert code not in found.clear or not case.training.numerics.loss_scaling
    assert_fair(case, found, case.cost_ns)
