"""Layers in float32 whose kernels share XLA's command buffers with those of others (a *synthetic* twin of a run on
an H100, tests/builders/command_buffer_island)."""

from __future__ import annotations

import gzip
from pathlib import Path

from mpprof import traces
from mpprof.api import workflows
from mpprof.model.finding import Diagnosis, Finding
from tests.builders import command_buffer_island as island

STEPS = 5


def diagnosed(run: Path) -> Diagnosis:
    return workflows.diagnose(workflows.load(run))


def found(diagnosis: Diagnosis, code: str) -> Finding | None:
    return next((each for each in diagnosis.findings if each.code == code), None)


def added_ns() -> float:
    """What the twin's products take longer than in the recorded run, per step."""
    (path,) = island.SAMPLE.rglob("*.xplane.pb.gz")
    kernels, strings = (trace := traces.read(path)).kernels, trace.strings
    names = {name.decode() for name in (*island.RENAMED, *island.LONGER)}
    rows = [row for row, name in enumerate(kernels.name.tolist()) if strings[name] in names]
    return float(kernels.duration_ns[rows].sum()) / STEPS


def test_the_layers_in_float32_have_the_cost_of_the_kernels_that_can_only_be_theirs(tmp_path: Path) -> None:
    """The time in 16 bits is that of products of the same size in the same trace; the casts of the weights, which
    come in their place, are taken off."""
    diagnosis = diagnosed(island.make(tmp_path))
    cause = found(diagnosis, "MP104")
    assert cause.cost_ns_per_step is not None
    assert 0.8 * added_ns() < cause.cost_ns_per_step < added_ns()
    assert found(diagnosis, "MP412") is None


def test_kernels_that_may_be_other_layers_are_not_counted_for_them(tmp_path: Path) -> None:
    """Attention's products have float32 operands as well: cuBLAS' kernels may be theirs, equal fusions are not."""
    diagnosis = diagnosed(island.make(tmp_path, also=b"multi_head_attention"))
    cause, rest = found(diagnosis, "MP104"), found(diagnosis, "MP412")
    assert cause.cost_ns_per_step is not None
    assert 0.4 * added_ns() < cause.cost_ns_per_step < 0.6 * added_ns()
    assert (
        "a TF32 kernel ran, which belongs to one of these layers: multi_head_attention/query" in rest.summary
    )


def test_without_the_program_the_cost_is_not_known_and_the_reason_is_said(tmp_path: Path) -> None:
    run = island.make(tmp_path)
    (path,) = run.rglob("*.xplane.pb.gz")
    path.write_bytes(gzip.compress(gzip.decompress(path.read_bytes()).replace(b"Hlo Proto", b"Hlo Other")))
    diagnosis = diagnosed(run)
    cause = found(diagnosis, "MP104")
    assert cause.cost_ns_per_step is None
    assert "cost not known: no kernel in the trace names its layer" in cause.summary
