"""Files made to ask for memory get no more than the stated multiple of their size, each in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.heavy import CASES
from tests.fuzz.worker import MEMORY_MULTIPLE
from tests.paths import ROOT

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the peak is read from Linux' /proc"
)

SLACK_BYTES = 16 << 20
"""The stated 100 MB are for what reading imports; here that is there already."""


def read(mib: float, folder: Path, *cases: str) -> dict[str, dict[str, Any]]:
    command = [sys.executable, "-m", "tests.fuzz.heavy", str(mib), str(folder), *cases]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return {figures["case"]: figures for figures in map(json.loads, done.stdout.splitlines())}


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """What each case took that is a MiB large."""
    return read(1, tmp_path_factory.mktemp("heavy"), *(case.name for case in CASES))


@pytest.mark.parametrize("case", [case.name for case in CASES])
def test_memory_stays_below_its_stated_multiple(case: str, small: dict[str, dict[str, Any]]) -> None:
    assert small[case]["peak_bytes"] < MEMORY_MULTIPLE * small[case]["bytes"] + SLACK_BYTES


@pytest.mark.soak
@pytest.mark.parametrize("case", [case.name for case in CASES])
def test_so_it_does_for_large_files(case: str, tmp_path: Path) -> None:
    figures = read(32, tmp_path, case)[case]
    print(
        f"\n{case}: {figures['bytes'] >> 20} MiB, peak {figures['peak_bytes'] >> 20} MiB, {figures['seconds']:.1f} s"
    )
    assert figures["peak_bytes"] < MEMORY_MULTIPLE * figures["bytes"] + SLACK_BYTES
