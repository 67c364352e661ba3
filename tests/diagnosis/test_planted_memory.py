"""Memory that was saved and is not seen, or not used: trainings played on a card of 16 GiB.

The float32 run needs 9 GiB at its peak, the mixed one 4; what the driver shows of them is planted."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis, Finding
from mpprof.report import json as documents
from mpprof.report.memory import account
from tests.builders.gpus import V100
from tests.builders.numerics import FLOAT32, MIXED_FLOAT16
from tests.builders.read_back import reading, text
from tests.builders.simulate import Training, write
from tests.builders.workloads import convnet

account = reading(account)

GIB = 1 << 30
CARD = replace(V100, memory_bytes=16 * GIB)


def written(folder: Path, name: str, numerics: Any, peak: float, driver: float | None) -> Path:
    """A training with these GiB at the allocator's peak and in use by the driver's figure."""
    used = None if driver is None else int(driver * GIB)
    training = Training(
        name=name, gpu=CARD, numerics=numerics, model=convnet(CARD, numerics), steps=60, profile=None,
        peak_bytes=int(peak * GIB), hardware={"memory_used_bytes": used},
    )  # fmt: skip
    write(training, folder / name)
    return folder / name


def pair(
    folder: Path, driver: float | None, before: float | None, peak: float = 4.0, before_peak: float = 9.0
) -> Diagnosis:
    mixed = written(folder, "mixed", MIXED_FLOAT16, peak, driver)
    single = written(folder, "float32", FLOAT32, before_peak, before)
    return workflows.diagnose(workflows.load(mixed), workflows.load(single))


def found(diagnosis: Diagnosis, code: str) -> Finding | None:
    return next((finding for finding in diagnosis.findings if finding.code == code), None)


def stated(finding: Finding | None, name: str) -> float:
    return next(float(item.value) for item in finding.evidence if item.name == name)  # type: ignore[arg-type]


def test_memory_taken_in_advance_hides_what_was_saved(tmp_path: Path) -> None:
    diagnosis = pair(tmp_path, 15.0, 15.0)
    unused = stated(found(diagnosis, "MP602"), "taken in advance and not needed")
    assert unused == pytest.approx(11 * GIB, rel=0.1)
    document = documents.document(diagnosis)
    assert document["memory"] is not None
    assert document["memory"]["saved_bytes"] == 5 * GIB
    assert document["memory"].get("driver") == {
        "bytes": 15 * GIB, "baseline_bytes": 15 * GIB, "saved_bytes": 0, "peak_saved_bytes": 5 * GIB,
        "hidden_bytes": 5 * GIB, "unused_bytes": 11 * GIB, "code": "MP602",
    }  # fmt: skip
    said = (
        "he driver's number did not fall (15.0 GiB in use, 15.0 GiB in the baseline), though the allocator's "
        "peak did by 5.00 GiB: the framework reserves 11.0 GiB ahead (MP602)"
    )
    assert document["memory"].get("beside_gap") == [
        {"code": "MP303", "bytes": 12 * GIB},
        {"code": "MP602", "bytes": 11 * GIB},
    ]
    assert f"T{said}" in account.saving(document)
    assert f"t{said}" in " ".join(text.render(document).split())


def test_a_driver_that_shows_a_little_of_it(tmp_path: Path) -> None:
    lines = account.saving(documents.document(pair(tmp_path, 14.6, 15.0)))
    assert lines[-1].startswith("The driver's number fell by only 410 MiB (14.6 GiB in use")


@pytest.mark.parametrize(
    ("driver", "before", "peak", "hidden"),
    [
        (4.8, 9.8, 4.0, 0.0),  # both fall alike
        (14.0, 15.0, 4.0, 4.0),  # a fifth of it is seen
        (15.0, 15.0, 8.7, 0.3),  # next to nothing was saved
    ],
)
def test_near_misses_of_a_hidden_saving(
    tmp_path: Path, driver: float, before: float, peak: float, hidden: float
) -> None:
    document = documents.document(pair(tmp_path, driver, before, peak))
    memory = document["memory"]
    told = memory.get("driver")
    assert "code" not in told
    assert told["hidden_bytes"] == pytest.approx(hidden * GIB, abs=GIB / 1000)
    assert not any("driver's number" in line for line in account.saving(document))


@pytest.mark.parametrize(("driver", "before"), [(None, 15.0), (15.0, None)])
def test_without_both_of_the_drivers_figures_nothing_is_said(
    tmp_path: Path, driver: float | None, before: float | None
) -> None:
    document = documents.document(pair(tmp_path, driver, before))
    assert document["memory"] is not None
    assert document["memory"].get("driver", 0) is None
    assert "not on record" in document["absent"]["memory.driver"]


@pytest.mark.parametrize(("driver", "peak"), [(4.8, 4.0), (15.0, 9.1), (13.5, 4.0)])
def test_near_misses_of_mp602(tmp_path: Path, driver: float, peak: float) -> None:
    """A driver that follows the peak, a peak that needs most of what is taken, a card that is not filled."""
    alone = workflows.diagnose(workflows.load(written(tmp_path, "mixed", MIXED_FLOAT16, peak, driver)))
    assert found(alone, "MP602") is None


def test_a_batch_that_was_not_raised_leaves_memory_free(tmp_path: Path) -> None:
    diagnosis = pair(tmp_path, 4.8, 9.8)
    assert stated(found(diagnosis, "MP303"), "free at the peak") == pytest.approx(12 * GIB, rel=0.1)
    document = documents.document(diagnosis)
    assert document["memory"] is not None
    assert document["memory"].get("beside_gap") == [{"code": "MP303", "bytes": 12 * GIB}]
    lines = account.saving(document)
    place = lines.index("Beside that, memory that the run does not use")
    assert lines[place + 1].startswith("    12.0 GiB  MP303  The batch could be larger: ")


def test_without_a_baseline_there_is_no_gap_to_stand_beside(tmp_path: Path) -> None:
    alone = workflows.diagnose(workflows.load(written(tmp_path, "mixed", MIXED_FLOAT16, 4.0, 15.0)))
    document = documents.document(alone)
    assert document["memory"] is None
    assert account.saving(document) == []
    assert found(alone, "MP602") is not None


def test_near_miss_of_mp303(tmp_path: Path) -> None:
    assert found(pair(tmp_path, 9.0, 15.0, peak=8.1, before_peak=14.0), "MP303") is None


def test_an_unlike_baseline_tells_nothing_of_what_was_saved(tmp_path: Path) -> None:
    mixed = written(tmp_path, "mixed", MIXED_FLOAT16, 4.0, 15.0)
    model = convnet(CARD, FLOAT32)
    training = Training(
        name="float32", gpu=CARD, numerics=FLOAT32, model=replace(model, batch=2 * model.batch), steps=60,
        profile=None, peak_bytes=9 * GIB, hardware={"memory_used_bytes": 15 * GIB},
    )  # fmt: skip
    write(training, tmp_path / "float32")
    diagnosis = workflows.diagnose(workflows.load(mixed), workflows.load(tmp_path / "float32"))
    document = documents.document(diagnosis)
    memory = document["memory"]
    assert memory["peak_bytes"] == 4 * GIB
    rests_on_it = ("saved_bytes", "reachable_bytes", "expected_saving_bytes", "unexplained_bytes", "driver")
    assert [memory.get(name, "left out") for name in rests_on_it] == [None] * 5
    assert (memory.get("gap"), memory.get("beside_gap")) == ([], [])
    for name in rests_on_it:
        assert document["absent"][f"memory.{name}"].startswith(
            "the baseline differs in more than its precision: batch size"
        )
    assert "saved against" not in text.render(document)
    assert "is down" not in document["verdict"]
    assert account.saving(document)[0].startswith("What was saved is not known")
