"""The account of real traces closes, and what is known of them comes out."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from mpprof import MPProfilerCallback, store, traces
from mpprof.analysis.breakdown.accounting import account
from mpprof.analysis.breakdown.compute_precision import tensor_core_share
from mpprof.analysis.kernels import placement
from mpprof.analysis.layers import attribution
from mpprof.errors import UnableError
from mpprof.model.account import Account
from mpprof.model.run import Run
from tests import samples
from tests.paths import NO_TRACES, SHARED
from tests.record.processes import done, done_on_jax

RECORDED = sorted(SHARED.glob("*/*.xplane.pb"))
NO_STEPS = {"jax08_gemm", "cyclops", "host"}
"""Neither markers nor a sequence of kernels that repeats; of `host` the one marked step is none."""

needs_shared = pytest.mark.skipif(not RECORDED, reason=NO_TRACES)


def account_of(path: Path, run: Run | None = None) -> Account:
    trace = traces.read(path)
    model = run.facts.model if run is not None and run.facts is not None else None
    found = account(trace, placement.place(trace), attribution.attribute(trace, model), run)
    for device in found.devices:
        assert math.fsum(s.ns_per_step for s in device.slices) == pytest.approx(device.step_ns, abs=1e-3)
        assert math.fsum(c.ns_per_step for c in device.cells) == pytest.approx(device.step_ns, abs=1e-3)
        assert all(s.ns_per_step >= 0 for s in device.slices if s.category not in ("profiling", "idle_stall"))
        assert 0 < device.busy_ns <= device.step_ns + 1e-6 or run is not None
    return found


@needs_shared
@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.name.partition(".")[0])
def test_every_recorded_trace_closes_or_says_why_not(path: Path) -> None:
    if path.name.partition(".")[0] in NO_STEPS:
        with pytest.raises(
            UnableError, match=r"no step can be told apart|it holds only the work that needs no input"
        ):
            account_of(path)
        return
    found = account_of(path)
    assert found.basis == "window"
    assert found.trace_basis == "device"


@needs_shared
def test_the_bert_window_casts_for_products_that_never_ran_and_is_no_step() -> None:
    with pytest.raises(UnableError, match="runs no product"):
        account_of(SHARED / "v100-8gpu-bert-fp16" / "host.xplane.pb")


@needs_shared
def test_matrix_cores_of_another_vendor_are_counted_by_their_name() -> None:
    found = account_of(SHARED / "mi300-jax" / "jax08_attention.xplane.pb")
    assert found.step_source == "period"
    share = tensor_core_share(found.main.cells)
    assert share.ratio == 1
    assert {s.placement for s in found.main.slices[0].by} == {"matrix_core"}


def _train(logdir: Path) -> None:
    import keras

    layers = [keras.Input((64,)), keras.layers.Dense(64, activation="relu"), keras.layers.Dense(4)]
    model = keras.Sequential(layers)
    model.compile(loss="mse", optimizer="adam")
    x, y = np.ones((960, 64), "float32"), np.ones((960, 4), "float32")
    callback = MPProfilerCallback(logdir, profile_steps=(40, 47))
    model.fit(x, y, batch_size=16, epochs=1, verbose=0, callbacks=[callback])


@pytest.mark.framework
@pytest.mark.parametrize("backend", ["tensorflow", "jax"])
def test_a_fresh_recording_of_keras_closes(backend: str, tmp_path: Path) -> None:
    if backend == "jax":
        done_on_jax(_train, tmp_path)
    else:
        done(tmp_path / "said", _train, tmp_path)
    records = store.read_records(tmp_path)
    run = Run(
        "fresh", tmp_path, records.facts, records.steps, records.validations, records.hardware,
        traces.find_traces(tmp_path), records.finished,
    )  # fmt: skip
    found = account_of(run.traces[-1], run)
    assert (found.basis, found.trace_basis, found.step_source) == ("wall", "host", "function")
    if found.function_ns is None:  # on a busy machine the profiled steps may lie far apart
        assert found.absent["function_ns"]
        return
    assert found.between_ns is not None
    stalled = sum(part.ns_per_step for part in found.main.slices if part.category == "idle_stall")
    assert found.function_ns + found.between_ns + stalled == pytest.approx(found.step_ns, abs=1e-3)
    assert set(found.steps) <= set(range(40, 48))
    assert any(cell.category == "matmul" and cell.ns_per_step > 0 for cell in found.main.cells)


@pytest.mark.parametrize("name", samples.NAMES)
def test_every_sample_closes_on_its_wall_time(name: str) -> None:
    found = samples.diagnosed(name).account
    assert found.basis == "wall"
    # Cut off before the host's plane, steps are still told apart by what the kernels repeat.
    assert found.step_source == ("period" if "truncated" in name else "function")
    assert found.step_ns == found.wall_ns
    if name.startswith("recorded-cpu"):
        assert found.trace_basis == "host"
        assert tensor_core_share(found.main.cells).ratio is None
    if "input-bound" in name and "mixed" in name:
        waits = next(s for s in found.main.slices if s.category == "idle_input")
        assert waits.ratio > 0.3
    if "launch-bound" in name and "mixed" in name:
        assert next(s for s in found.main.slices if s.category == "idle_launch").ratio > 0.5
