"""A run whose trace and records are heavy together, and two such runs compared: within the stated memory, and the work
grows as the files do."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import bounds
from tests.fuzz.heavy_runs import CASES, Heavy
from tests.fuzz.worker import MEMORY_BASE, MEMORY_MULTIPLE

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="the peak is read from Linux' /proc"
)

SIZE_BYTES = 1 << 17
MOST_GROWTH = 2.2
"""Times the calls of files half as large: what is done in proportion is twice as much, what is done for each pair of
a trace's and the records' parts four times."""
ALONE = [case for case in CASES if case.runs == 1]
COMPARED = [case for case in CASES if case.runs > 1]


def _took(case: Heavy, size: int, folder: Path, *, counted: bool = False) -> tuple[int, bounds.Took]:
    roots = case.make(folder, size)
    bytes_made = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    took = bounds.command(*bounds.on(roots), counted=counted)
    assert took.code == 0
    return bytes_made, took


def _in_proportion(case: Heavy, folder: Path) -> None:
    half, whole = (
        _took(case, size, folder / str(size), counted=True) for size in (SIZE_BYTES, 2 * SIZE_BYTES)
    )
    assert whole[1].calls < MOST_GROWTH * half[1].calls
    for bytes_made, took in (half, whole):
        assert took.peak_bytes < MEMORY_MULTIPLE * bytes_made + MEMORY_BASE


@pytest.mark.parametrize("case", ALONE, ids=lambda case: case.name)
def test_a_report_on_heavy_trace_and_records_does_work_in_proportion(case: Heavy, tmp_path: Path) -> None:
    _in_proportion(case, tmp_path)


@pytest.mark.full
@pytest.mark.parametrize("case", COMPARED, ids=lambda case: case.name)
def test_so_does_a_comparison_of_two(case: Heavy, tmp_path: Path) -> None:
    _in_proportion(case, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_large_ones_stay_within_the_memory_that_is_stated(case: Heavy, tmp_path: Path) -> None:
    """1 GB for each 10 MB; the processor time is printed."""
    bytes_made, took = _took(case, 10 << 20, tmp_path)
    print(f"\n{case.name}: {bytes_made >> 20} MiB, {took}")
    assert took.peak_bytes < bytes_made * 100
