"""Hours of damage in minutes: `make soak`. The figures are printed."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.fuzz import harness, sanitized
from tests.fuzz.targets import TARGETS

pytestmark = pytest.mark.soak

READERS = [target.name for target in TARGETS if not target.name.startswith("command-")]
COMMANDS = [target.name for target in TARGETS if target.name.startswith("command-")]
COUNT, COMMAND_COUNT, GUIDED_COUNT = harness.SOAK, 3_000, harness.SOAK


@pytest.mark.parametrize("target", READERS)
def test_many_damaged_files(target: str) -> None:
    figures = harness.fuzz_in_parts(target, COUNT)  # raises Fault
    assert figures["executions"] == COUNT
    print(f"\n{target}: {figures}")


@pytest.mark.parametrize("target", COMMANDS)
def test_commands_on_thousands_of_damaged_files(target: str) -> None:
    figures = harness.fuzz_in_parts(target, COMMAND_COUNT)  # raises Fault
    assert figures["executions"] == COMMAND_COUNT
    print(f"\n{target}: {figures}")


@pytest.mark.skipif(sanitized.compiler() is None, reason="no gcc with AddressSanitizer")
@pytest.mark.parametrize(("target", "count"), [("walk", COUNT), ("xspace", COUNT // 5), ("hlo", COUNT // 5)])
def test_the_walk_with_every_check_on(target: str, count: int, tmp_path: Path) -> None:
    walk = sanitized.build(tmp_path)
    figures = harness.fuzz_in_parts(target, count, hang_s=20, walk=walk, environment=sanitized.environment())
    assert figures["walk"] == str(walk)
    print(f"\n{target}, every check on: {figures}")


@pytest.mark.skipif(
    find_spec("atheris") is None, reason="atheris is not installed (pip install 'mpprof[fuzz]')"
)
def test_coverage_guided_fuzzing_of_the_pure_parts(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.fuzz.guided", f"-runs={GUIDED_COUNT}", "-seed=1", "-timeout=10",
               "-rss_limit_mb=2048", f"-artifact_prefix={tmp_path}/", str(tmp_path / "corpus")]  # fmt: skip
    (tmp_path / "corpus").mkdir()
    done = subprocess.run(
        command, cwd=harness.ROOT, capture_output=True, text=True, errors="replace", check=False
    )
    assert done.returncode == 0, done.stderr[-6000:]
    last = re.search(r"#(\d+)\s+DONE\s+cov: (\d+) ft: (\d+) corp: (\S+).*", done.stderr)
    assert last is not None, done.stderr[-2000:]
    assert int(last[1]) >= GUIDED_COUNT
    print(f"\nguided: {last[0]}")
