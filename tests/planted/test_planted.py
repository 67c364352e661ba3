"""Every planted cause is named, at its cost, and nothing else is accused; healthy runs are left in peace."""

from __future__ import annotations

import random
from functools import cache
from pathlib import Path

import pytest

from mpprof import workflows
from mpprof.diagnosis import core, rules
from mpprof.model.finding import Diagnosis
from tests.builders.simulate import Training
from tests.planted.cases import clean, planted, quiet
from tests.planted.generator import Planted
from tests.planted.matrix import CLOSE, blamed, diagnosed

PLANTED = {case.name: case for case in planted()}
CLEAN = {training.name: (training, baseline) for training, baseline in clean()}
QUIET = {case.name: case for case in quiet()}


@pytest.fixture(scope="module")
def judged(tmp_path_factory: pytest.TempPathFactory):  # type: ignore[no-untyped-def]
    """The diagnosis of a planted case, made once."""

    @cache
    def judge(name: str) -> Diagnosis:
        case = PLANTED[name]
        return diagnosed(case.training, case.baseline, tmp_path_factory.mktemp("planted"))

    return judge


@pytest.mark.parametrize("name", PLANTED)
def test_the_planted_cause_comes_first(judged, name: str) -> None:
    found, case = judged(name), PLANTED[name]
    assert found.findings[0].code in case.twins
    assert set(case.twins) <= {finding.code for finding in found.findings}


@pytest.mark.parametrize(
    ("name", "code"),
    [(case.name, code) for case in PLANTED.values() for code in case.twins if case.cost_ns(code) is not None],
)
def test_its_cost_is_what_the_twin_without_it_does_not_take(judged, name: str, code: str) -> None:
    truth = PLANTED[name].cost_ns(code)
    cost = next(f.cost_ns_per_step for f in judged(name).findings if f.code == code)
    assert cost == pytest.approx(truth, rel=CLOSE)


@pytest.mark.parametrize("name", PLANTED)
def test_nothing_else_is_accused(judged, name: str) -> None:
    case = PLANTED[name]
    assert [code for code in blamed(judged(name)) if code not in {*case.twins, *case.also}] == []


@pytest.mark.parametrize("name", PLANTED)
def test_account_and_comparison_close(judged, name: str) -> None:
    found = judged(name)
    if found.account is not None:
        assert sum(s.ns_per_step for s in found.account.main.slices) == pytest.approx(
            found.account.step_ns, abs=1.0
        )
    if found.speedup is not None and found.speedup.gap_ns is not None:
        assert sum(s.ns_per_step for s in found.speedup.slices) == pytest.approx(
            found.speedup.gap_ns, abs=1.0
        )
        explained = sum((f.gap_ratio or 0.0) * found.speedup.gap_ns for f in found.findings)
        assert found.speedup.unexplained_ns == pytest.approx(found.speedup.gap_ns - explained, abs=1.0)


@pytest.mark.parametrize("name", CLEAN)
def test_healthy_runs_have_nothing_above_info(tmp_path: Path, name: str) -> None:
    training, baseline = CLEAN[name]
    for base in (baseline, None):
        found = diagnosed(training, base, tmp_path / ("alone" if base is None else "pair"))
        assert [f.code for f in found.findings if f.severity != "info"] == []
        assert blamed(found) == []


@pytest.mark.parametrize("name", CLEAN)
def test_what_healthy_runs_reach_is_what_was_expected(tmp_path: Path, name: str) -> None:
    training, baseline = CLEAN[name]
    speedup = diagnosed(training, baseline, tmp_path).speedup
    assert speedup is not None
    assert speedup.expected == pytest.approx(speedup.observed, rel=0.08)


@pytest.mark.parametrize("name", QUIET)
def test_the_quiet_side_of_a_limit_stays_quiet(tmp_path: Path, name: str) -> None:
    case = QUIET[name]
    found = diagnosed(case.training, case.baseline, tmp_path)
    assert not {*case.twins} & {f.code for f in found.findings if f.severity != "info"}


@pytest.mark.parametrize("name", ["tf-v100-algorithm-layout-callbacks", "tf-v100-clean"])
def test_the_order_of_the_rules_changes_nothing(tmp_path: Path, name: str) -> None:
    training, baseline = (
        (PLANTED[name].training, PLANTED[name].baseline) if name in PLANTED else next(iter(CLEAN.values()))
    )
    mine, base = (
        workflows.analyse(workflows.load(_written(t, tmp_path / str(i))))
        for i, t in enumerate((training, baseline))
    )
    case = workflows._case(mine, workflows._speedup(mine, base), workflows._case(base, None, None))
    first = core.judge(case)
    for seed in range(5):
        shuffled = list(rules.ALL)
        random.Random(seed).shuffle(shuffled)
        assert core.judge(case, shuffled) == first


def _written(training: Training | None, folder: Path) -> Path:
    from tests.planted.generator import written

    assert training is not None
    return written(training, folder)


def test_a_third_of_the_cases_was_not_seen_by_the_rules_own_tests() -> None:
    timed = [case for case in PLANTED.values() if any(case.cost_ns(code) is not None for code in case.twins)]
    assert sum(case.unseen for case in timed) * 3 >= len(timed)


def test_the_generator_knows_nothing_of_the_analysis() -> None:
    folder = Path(__file__).parent
    sources = [
        folder / "generator.py",
        folder / "cases.py",
        *(folder.parent / "builders").glob("[gswxh]*.py"),
    ]
    for source in sources:
        assert "import mpprof" not in source.read_text()
        assert "from mpprof" not in source.read_text()
    _ = Planted
