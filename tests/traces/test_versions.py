"""Traces of older frameworks, recorded in environments of their own and compared with XProf.

`make versions` makes the environments in `.versions` (or in MPPROF_VERSIONS); without them everything here skips.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mpprof import traces
from tests.analysis.layers.layer_cases import CASES as LAYERS
from tests.analysis.layers.layer_cases import record, shares
from tests.paths import ROOT
from tests.traces.conftest import record_with
from tests.traces.peer import events_agree, ops_agree, steps_agree
from tests.traces.test_damage import check

ENVIRONMENTS = Path(os.environ.get("MPPROF_VERSIONS", ROOT / ".versions"))
BACKENDS = {"tf": "tensorflow", "jax": "jax", "torch": "torch"}
"""Environments are named after what is in them: tf218, jax06, torch213. Others, as that of the sinks, are not ours."""
PYTHONS = sorted(p for name in BACKENDS for p in ENVIRONMENTS.glob(f"{name}[0-9]*/bin/python"))


def backend_of(python: Path) -> str:
    return BACKENDS[python.parents[1].name.rstrip("0123456789")]


CASES = [
    (python, backend_of(python), policy, jit)
    for python in PYTHONS
    for policy in ("float32", "mixed_float16")
    for jit in (False, True)
    if backend_of(python) != "torch" and (jit or backend_of(python) != "jax")
]
LAYER_CASES = [
    (python, case)
    for python in PYTHONS
    for case, (backend, *flags) in LAYERS.items()
    if backend == backend_of(python) and "loop" not in flags  # StepRecorder needs mpprof's own packages
]

pytestmark = [
    pytest.mark.full,
    pytest.mark.framework,
    pytest.mark.skipif(not PYTHONS, reason=f"no environments in {ENVIRONMENTS}: `make versions` makes them"),
]


@pytest.mark.parametrize(
    ("python", "backend", "policy", "jit"),
    CASES,
    ids=[f"{p.parents[1].name}-{policy}-{'xla' if jit else 'ops'}" for p, _, policy, jit in CASES],
)
def test_older_versions_are_read_and_agree_with_xprof(
    python: Path, backend: str, policy: str, jit: bool, tmp_path: Path
) -> None:
    path = record_with(python, backend, policy, jit, tmp_path / "host.xplane.pb")
    trace = traces.read(path, strict=True)
    check(trace)
    assert trace.basis == "host"
    assert [n for n in trace.markers.number.tolist() if n >= 0] == [6, 7, 8]
    (scratch := tmp_path / "peer").mkdir()
    assert steps_agree(trace, path, scratch) == 3
    if not jit:
        assert ops_agree(trace, path, scratch) > 150
    elif not len(trace.kernels):  # compiled as one program, of whose parts nothing is recorded
        assert "kernels" in trace.missing
        assert "tf216" in str(python)
    else:
        assert events_agree(trace, path, scratch) > 20
        assert all(trace.ops[row].hlo is not None for row in set(trace.kernels.op.tolist()))


@pytest.mark.parametrize(
    ("python", "case"), LAYER_CASES, ids=[f"{p.parents[1].name}-{case}" for p, case in LAYER_CASES]
)
def test_layers_are_found_in_older_versions(python: Path, case: str, tmp_path: Path) -> None:
    trace, model = record(case, tmp_path / "log", python)
    found = shares(trace, model)
    if not found.layers:  # compiled as one program, of whose parts nothing is recorded
        assert (python.parents[1].name, case) == ("tf216", "tensorflow-xla")
        return
    assert found.layers >= 10
    assert found.owned >= 0.95
    assert found.right >= 0.95
