"""Each defect that unusual input once showed has a mend, and tests that fail when it is taken out."""

from __future__ import annotations

import re

import pytest

from tests.fuzz.defects import DEFECTS, Defect, run
from tests.paths import ROOT

TESTS = tuple(dict.fromkeys(test for defect in DEFECTS for test in defect.tests))


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_a_mend_stands_in_its_file_and_its_tests_in_theirs(defect: Defect) -> None:
    assert (ROOT / defect.file).read_text().count(defect.mend) == 1
    for test in defect.tests:
        file, _, name = test.partition("::")
        assert f"\ndef {name}(" in (ROOT / file).read_text()


@pytest.mark.full
def test_the_tests_pass_in_a_copy_of_the_project() -> None:
    done = run(TESTS)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


@pytest.mark.full
@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.name)
def test_without_its_mend_each_test_of_a_defect_fails(defect: Defect) -> None:
    for test in defect.tests:
        done = run((test,), defect)
        assert done.returncode == pytest.ExitCode.TESTS_FAILED, done.stdout[-3000:] + done.stderr[-3000:]
        assert re.search(r"\d+ failed", done.stdout)
