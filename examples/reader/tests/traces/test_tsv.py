from pathlib import Path

import pytest

from mpprof import traces
from mpprof.errors import UnreadableError

COLUMNS = "name\tstart_ns\tduration_ns\n"


def _list(folder: Path, *lines: str) -> Path:
    path = folder / "host.kernels.tsv"
    path.write_text(COLUMNS + "".join(lines))
    return path


def test_a_kernel_list_is_recognised_and_read_in_the_order_of_time(tmp_path: Path) -> None:
    path = _list(tmp_path, "sgemm\t100\t50\n", "relu\t20\t5\n")
    assert traces.find_traces(tmp_path) == (path,)
    trace = traces.read(path)
    assert [trace.strings[row] for row in trace.kernels.name] == ["relu", "sgemm"]
    assert trace.kernels.duration_ns.tolist() == [5, 50]
    assert trace.warnings == ()


@pytest.mark.parametrize("line", ["sgemm\t100\n", "sgemm\t0\t-5\n", f"sgemm\t{1 << 70}\t5\n", "sgemm\t\t\n"])
def test_a_line_that_is_no_kernel_is_left_out_and_said_and_an_error_if_strict(
    tmp_path: Path, line: str
) -> None:
    path = _list(tmp_path, "relu\t20\t5\n", line)
    trace = traces.read(path)
    assert (len(trace.kernels), trace.warnings) == (1, ("line 3 is not a kernel",))
    with pytest.raises(UnreadableError, match="line 3 is not a kernel"):
        traces.read(path, strict=True)


def test_a_list_that_is_cut_off_is_read_up_to_there(tmp_path: Path) -> None:
    trace = traces.read(_list(tmp_path, "relu\t20\t5\n", "relu\t90\t5"))
    assert (len(trace.kernels), trace.warnings) == (1, ("the last line is cut off",))


def test_a_damaged_list_of_this_name_without_a_kernel_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "host.kernels.tsv"
    path.write_text("\0\0\0\nvolta_sgemm_64x64_nt\t100\n")
    with pytest.raises(UnreadableError, match="the first line does not name the columns"):
        traces.read(path)
