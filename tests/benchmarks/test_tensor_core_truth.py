"""The table of mpprof beside XProf's list: its arithmetic, and that it is made of every shared trace."""

from __future__ import annotations

import pytest

from tests.paths import NO_DATA, SHARED_DATA
from tools.benchmarks import tensor_core_truth as table


def test_an_undecided_row_is_a_miss_and_no_error() -> None:
    found = table.score([True, None, False, True], [True, True, False, False])
    assert (found.rows, found.undecided, found.wrong) == (4, 1, 1)
    assert (found.recall_yes, found.recall_no, found.balanced) == (0.5, 0.5, 0.5)


def test_the_list_is_the_one_of_nineteen_fragments() -> None:
    assert len(set(table.FRAGMENTS)) == 19
    assert table.by_fragments("volta_h884gemm_64x64_nn")
    assert not table.by_fragments("nvjet_hsh_256x128_64x4_1x2_h_bz_coopA_NNT")


def test_an_undecided_kernel_is_neither_false_nor_recognised() -> None:
    found = table.static_score([True, None, False, True, None], [True, True, False, False, False])
    assert found == table.StaticScore(5, with_instructions=2, recognised=1, false=1, undecided=2)


@pytest.mark.parametrize("name", ["static_tensorflow_2.20_sm80.json.gz"])
def test_no_kernel_without_matrix_instructions_is_called_tensor_core(name: str) -> None:
    path = SHARED_DATA / name
    if not path.is_file():
        pytest.skip(NO_DATA)
    (capability,) = [capability for found, capability in table.static_files() if found == path]
    rows = table.static_names(path)
    found = table.static_score(
        [table.ours(name, capability) for name, _ in rows], [holds for _, holds in rows]
    )
    assert found.kernels == 10_672
    assert found.false == 0
    assert found.recognised == found.with_instructions
    assert found.undecided / found.kernels < 0.01


@pytest.mark.skipif(not SHARED_DATA.is_dir(), reason=NO_DATA)
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
