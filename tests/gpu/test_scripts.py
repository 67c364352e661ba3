"""The scripts that record on a GPU, as far as they run without one."""

from mpprof.api import workflows
from tests.paths import SAMPLES
from tools.gpu.forecasts import remedies, row
from tools.gpu.record_cases import BATCHES, POLICIES, cases


def test_every_model_policy_batch_and_graph_setting_is_recorded_once() -> None:
    found = cases(tiny=False)
    assert len(found) == sum(len(batches) for batches in BATCHES.values()) * len(POLICIES) * 2 + len(BATCHES)
    assert len({(case.name, graphs) for case, graphs in found}) == len(found)
    assert {case.name for case, _ in cases(tiny=True)}.isdisjoint({case.name for case, _ in found})


def test_six_remedies_each_change_something_and_name_their_findings() -> None:
    found = remedies(tiny=False)
    assert len(found) >= 6
    for remedy in found:
        assert remedy.before != remedy.after or remedy.delay_before_s > 0
        assert all(code.startswith("MP") for code in remedy.codes)


def test_a_row_holds_the_prediction_against_the_measurement() -> None:
    before = workflows.load(SAMPLES / "v100-float32-island")
    baseline = workflows.load(SAMPLES / "v100-convnet-float32")
    after = workflows.diagnose(workflows.load(SAMPLES / "v100-convnet-mixed-float16"))
    island = next(remedy for remedy in remedies(tiny=False) if "MP104" in remedy.codes)
    cells = row(island, workflows.diagnose(before, baseline), after).strip("| ").split(" | ")
    assert cells[1] == "MP104"
    assert float(cells[5].rstrip(" %")) < 10  # the island's twin is the healthy sample


def test_a_remedy_that_no_finding_asks_for_is_said_so() -> None:
    healthy = workflows.diagnose(workflows.load(SAMPLES / "h100-mixed-bfloat16"))
    island = next(remedy for remedy in remedies(tiny=False) if "MP104" in remedy.codes)
    assert "not found" in row(island, healthy, healthy)
