"""The first screen of Why: answer, causes and remedies of every kind of run lie above the fold."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mpprof.api.source import LogDirectory
from mpprof.report.to_json import to_json
from tests.browser.visiting import Visit, serving, visit
from tests.builders.gpus import V100
from tests.builders.records import Recorded, imagenette_convnet, write
from tests.paths import SAMPLES

pytestmark = pytest.mark.browser
WIDE, NARROW = (1440, 900), (390, 844)
PAIRS = ("a100-launch-bound", "a100-tf32-baseline", "gtx1080ti", "v100-convnet", "v100-input-bound",
         "v100-odd-vocabulary", "v100-xla-convnet")  # fmt: skip
ALONE = ("h100-mixed-bfloat16", "v100-float32-island", "v100-loss-scale-thrash", "v100-truncated")
RUNS = {
    **{f"{pair}-mixed-float16": (f"{pair}-float32", "measured") for pair in PAIRS},
    **dict.fromkeys(ALONE, ("none", "estimated")),
    "recorded-cpu-mixed-float16": ("recorded-cpu-float32", "cpu"),
    "recorded-cpu-float32": ("none", "cpu"),
    "v100-convnet-float32": ("none", "float32"),
}
_LONE_BARS = """() => [...document.querySelectorAll('.mp-bar-chart')]
    .filter(each => each.querySelectorAll('.mp-bar-row').length < 2).map(each => each.id)"""
_HEADINGS = """() => [...document.querySelectorAll('.mp-remedies td.mp-number')].map(
    each => getComputedStyle(each, '::before').content)"""
_EMPTY_BOXES = """() => [...document.querySelectorAll('#page .mp-card')]
    .filter(each => !each.textContent.trim() && !each.querySelector('img, canvas, svg')).length"""


def bottom(seen: Visit, selector: str) -> float:
    box = seen.page.locator(selector).first.bounding_box()
    return float(box["y"]) + float(box["height"])


def assert_first_screen(seen: Visit, run: str, baseline: str, kind: str) -> None:
    """Opens Why of a run, and holds its first screen to what a reader must find there without scrolling."""
    seen.page.set_viewport_size(dict(zip(("width", "height"), WIDE, strict=True)))
    seen.turn(f"/?run={run}&baseline={baseline}")
    assert len(seen.text("headline")) <= 150
    assert seen.page.evaluate(_LONE_BARS) == [], run
    assert seen.page.evaluate(_EMPTY_BOXES) == 0, run
    flow = seen.page.locator("#flow .mp-flow-bar").count()
    remedies = "#whatif .mp-remedies" if seen.page.locator("#whatif").count() else "#notes"
    hero = "#hero" if seen.page.locator("#hero").count() else "#headline"  # what leads may have no figure
    shown = [hero, "#headline", remedies]
    shown += ["#flow"] if flow else []
    for selector in shown:
        assert bottom(seen, selector) <= WIDE[1], (run, selector)
    assert seen.overflow() <= 0, run
    seen.page.set_viewport_size(dict(zip(("width", "height"), NARROW, strict=True)))
    first = "#flow .mp-flow-bar" if flow else "#headline"
    assert bottom(seen, hero) <= bottom(seen, first) <= NARROW[1], run
    assert set(seen.page.evaluate(_HEADINGS)) <= {'"Gains "', '"Step after "'}, run
    assert seen.overflow() <= 0, run


def test_answer_causes_and_remedies_of_every_sample_are_above_the_fold(
    chromium: Any, sample_server: str
) -> None:
    source, seen = LogDirectory(SAMPLES), visit(chromium, sample_server)
    for run, (baseline, kind) in RUNS.items():
        known = to_json(source.report(run, None if baseline == "none" else baseline))["answer"]
        assert known["kind"] == kind
        assert_first_screen(seen, run, baseline, kind)
        assert seen.text("headline") == known["sentence"]
        assert (seen.text("hero") if known["figure"] else "") == known["figure"]
    seen.assert_quiet()


def test_an_unlike_baseline_takes_the_place_of_the_speedup_on_the_first_screen(
    chromium: Any, sample_server: str
) -> None:
    seen = visit(chromium, sample_server)
    assert_first_screen(seen, "v100-convnet-mixed-float16", "a100-tf32-baseline-float32", "incomparable")
    assert seen.page.locator("#hero").count() == 0
    assert not {"baseline", "attainable"} & set(seen.flow())
    seen.assert_quiet()


def test_a_run_without_a_trace_says_what_to_record(chromium: Any, tmp_path: Path) -> None:
    model = imagenette_convnet("float16")
    write(Recorded("untraced", V100, "float16", model, 64, 22.0), tmp_path)
    with serving(tmp_path) as address:
        seen = visit(chromium, address)
        assert_first_screen(seen, "untraced", "none", "records")
        assert "profile_steps" in seen.text("do")
        seen.assert_quiet()
