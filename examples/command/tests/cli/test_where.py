import pytest

from mpprof.cli import main


def test_it_prints_a_directory(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["where"]) == 0
    assert capsys.readouterr().out.strip().endswith("mpprof")
