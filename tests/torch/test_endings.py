"""How fits end on torch that do not end by themselves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.record import test_ended as ended
from tests.record import test_endings as endings
from tests.torch.training import callback, counter, records, total_skipped

pytestmark = pytest.mark.framework

CASES = [case for case in endings.LAST if not case[-1]]  # one step a call is all that torch takes


@pytest.mark.parametrize("case", CASES, ids=lambda case: case[0])
def test_the_last_step_before_somebody_elses_failure_is_recorded(tmp_path: Path, case: Any) -> None:
    _, steps, bad, failing_step, _ = case
    made, recorded = endings.small(), callback(tmp_path)
    with pytest.raises(ZeroDivisionError):
        endings.fit(made, steps, endings.at(failing_step, endings.failing), recorded, bad=bad)
    recorded.close()
    ran = failing_step - 1
    assert endings.steps_and_ends(tmp_path) == (list(range(1, ran + 1)), ["error"])
    assert total_skipped(records(tmp_path)) == ran - counter(made) == sum(step <= ran for step in bad)


def test_a_step_that_itself_failed_is_not_counted(tmp_path: Path) -> None:
    made, recorded = endings.small(), callback(tmp_path)
    step = made.train_step

    def train_step(*arguments: Any) -> Any:
        if counter(made) == 7:
            raise MemoryError
        return step(*arguments)

    made.train_step = train_step
    with pytest.raises(MemoryError):
        endings.fit(made, 20, recorded)
    recorded.close()
    assert endings.steps_and_ends(tmp_path) == (list(range(1, 8)), ["out_of_memory"])


def test_fits_that_failed_keep_no_model_and_are_closed(tmp_path: Path) -> None:
    endings.check_cells(endings.cells(tmp_path), tmp_path)


def test_an_error_that_the_script_catches_is_recorded_as_it_leaves_fit(tmp_path: Path) -> None:
    made = endings.small()
    with pytest.raises(KeyboardInterrupt):
        endings.fit(made, 20, callback(tmp_path), endings.at(7, ended.interrupting))
    assert ended.run_json(tmp_path)["ended"]["reason"] == "interrupted"
    assert ended.ends(tmp_path) == ["interrupted"]
