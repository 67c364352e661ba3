"""Memory before training, held to what trainings on an H100 and an H200 took: the recorded sample runs.

What XLA assigned to a recorded train step is in its trace. The peak is the allocator's: JAX cannot reset it,
so that it holds what XLA took as it compiled, too.
"""

from __future__ import annotations

from functools import cache

import pytest

from mpprof.api import workflows
from mpprof.forecasts.memory import training
from mpprof.model.frozen import frozen
from mpprof.traces.xspace.programs import programs
from tests.paths import ROOT, SAMPLES

STEP_WITHIN = 0.73, 1.15
"""The estimate over what XLA assigned to the step: `docs/memory.md` states it."""
MIB = 1 << 20
OF_JAX = [
    "h100-convnet-float32",
    "h100-convnet-mixed-float16",
    "h100-convnet-mixed-bfloat16",
    "h100-transformer-float32",
    "h100-transformer-mixed-float16",
    "h100-transformer-padded-mixed-float16",
]
OF_TENSORFLOW = ["h200-transformer-float32", "h200-transformer-mixed-float16"]


@frozen
class Recorded:
    name: str
    estimate: int
    step: int | None  # arguments and temporaries of the compiled train step; None: XLA compiled none
    temporaries: int
    first_peak: int  # after the first step
    peak: int
    live: int  # the most between two steps

    @property
    def line(self) -> str:
        """Its row of the table in the docs."""
        step = f"{self.step / MIB:,.0f} MiB, {self.estimate / self.step:.2f}" if self.step else "-"
        peak = f"{self.peak / MIB:,.0f} MiB, {self.estimate / self.peak:.2f}"
        return f"| {self.name} | {self.estimate / MIB:,.0f} MiB | {step} | {peak} |"


@cache
def recorded(name: str) -> Recorded:
    run = workflows.load(SAMPLES / f"recorded-{name}")
    fit, steps = run.last_fit, run.steps
    assert fit is not None
    assert fit.batch_size is not None
    assert steps is not None
    (card,) = (each for each in run.facts.devices if each.kind == "gpu") if run.facts else ()
    policy = str(fit.policy.own or fit.policy.global_name)
    (found,) = training.forecast(
        run, fit.batch_size, policies=(policy,), capability=card.compute_capability
    ).runs
    compiled = [each.assigned for each in programs(run.traces[-1]) if "train_step" in each.name]
    read = steps.peak_bytes >= 0
    return Recorded(
        name,
        found.peak_bytes,
        compiled[0].arguments_bytes + compiled[0].temporaries_bytes if compiled else None,
        compiled[0].temporaries_bytes if compiled else 0,
        int(steps.peak_bytes[read][0]),
        int(steps.peak_bytes.max()),
        int(steps.live_bytes.max()),
    )


@pytest.mark.parametrize("name", OF_JAX)
def test_the_estimate_is_within_its_stated_error_of_what_xla_assigned(name: str) -> None:
    one = recorded(name)
    assert one.step is not None
    assert STEP_WITHIN[0] <= one.estimate / one.step <= STEP_WITHIN[1]


@pytest.mark.parametrize("name", OF_TENSORFLOW)
def test_op_by_op_it_is_within_a_tenth_of_the_allocators_peak(name: str) -> None:
    """Keras gives TensorFlow's cross-entropy the logits, whose gradient takes their place: without that it is 1.7
    times the peak."""
    one = recorded(name)
    assert 0.9 <= one.estimate / one.peak <= 1.1


@pytest.mark.parametrize("name", OF_JAX)
def test_jaxs_peak_is_that_of_the_step_or_was_reached_before_the_first_had_ended(name: str) -> None:
    one = recorded(name)
    if "transformer" in name:
        assert one.live + one.temporaries == pytest.approx(one.peak, rel=0.01)
    else:
        assert one.first_peak == one.peak > 1.2 * (one.live + one.temporaries)


def test_the_docs_have_each_recording() -> None:
    page = (ROOT / "docs" / "memory.md").read_text(encoding="utf-8")
    lines = [recorded(name).line for name in (*OF_JAX, *OF_TENSORFLOW)]
    assert [line for line in page.splitlines() if line.startswith(("| h100-", "| h200-"))] == lines
