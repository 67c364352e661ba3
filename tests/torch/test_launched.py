"""`mpprof run` on scripts that train with torch, with Keras and without."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.launch.running import SCRIPTS, launched, python
from tests.torch import training  # noqa: F401  which skips these tests where torch is not installed

pytestmark = pytest.mark.framework


@pytest.mark.parametrize("name", ["on_torch.py", "torch_loop.py"])
def test_a_script_prints_what_it_prints_without_us(name: str, tmp_path: Path) -> None:
    plain = python(str(SCRIPTS / name), cwd=tmp_path)
    ran = launched("--logdir", "logs", str(SCRIPTS / name), cwd=tmp_path)
    assert (ran.code, ran.out) == (plain.code, plain.out) == (0, plain.out), ran.err
    if name == "on_torch.py":
        assert "mpprof report logs -v" in ran.err
    else:
        assert 'with StepRecorder("logs/logs") as recorder:' in ran.err
