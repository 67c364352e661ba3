"""The table of mpprof beside XProf's list: its arithmetic, and that it is made of every shared trace."""

from __future__ import annotations

import pytest

from tests.benchmarks import tensor_core_truth as table


def test_an_undecided_row_is_a_miss_and_no_error() -> None:
    found = table.score([True, None, False, True], [True, True, False, False])
    assert (found.rows, found.undecided, found.wrong) == (4, 1, 1)
    assert (found.recall_yes, found.recall_no, found.balanced) == (0.5, 0.5, 0.5)


def test_the_list_is_the_one_of_nineteen_fragments() -> None:
    assert len(set(table.FRAGMENTS)) == 19
    assert table.by_fragments("volta_h884gemm_64x64_nn")
    assert not table.by_fragments("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT")


@pytest.mark.skipif(not table.DATA.is_dir(), reason="shared/data is not beside the checkout")
def test_on_the_shared_data_mpprof_is_never_wrong_and_little_is_unknown(
    capsys: pytest.CaptureFixture[str],
) -> None:
    rows = table.truth()
    found = table.score([table.ours(name, cc) for name, cc, _ in rows], [wanted for _, _, wanted in rows])
    assert found.wrong == 0
    assert found.balanced > 0.95
    table.main()
    lines = capsys.readouterr().out.splitlines()
    assert sum(".pb |" in line or ".gz |" in line or ".sqlite |" in line for line in lines) >= 10
    assert all(one.unknown < 0.02 for one in table.shares())
