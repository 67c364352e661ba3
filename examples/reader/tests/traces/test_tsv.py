from pathlib import Path

import pytest

from mpprof import traces
from mpprof.errors import UnreadableError


def test_a_kernel_list_is_recognised_and_read(tmp_path: Path) -> None:
    path = tmp_path / "host.kernels.tsv"
    path.write_text("name\tstart_ns\tduration_ns\nvolta_sgemm_64x64_nt\t100\t50\n")
    assert traces.find_traces(tmp_path) == (path,)
    trace = traces.read(path)
    assert [trace.strings[row] for row in trace.kernels.name] == ["volta_sgemm_64x64_nt"]
    assert trace.kernels.duration_ns.tolist() == [50]


def test_a_damaged_list_is_one_by_its_name_and_says_which_line_is_not_a_kernel(tmp_path: Path) -> None:
    path = tmp_path / "host.kernels.tsv"
    path.write_text("\0\0\0\nvolta_sgemm_64x64_nt\t100\n")
    with pytest.raises(UnreadableError, match="a line is not a kernel"):
        traces.read(path)
