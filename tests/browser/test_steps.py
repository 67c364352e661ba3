"""The Steps page in a real chromium: a long run, drawn by its slowest steps and fetched as it is zoomed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from mpprof.report import words
from tests.browser.visiting import Visit, serving, visit
from tests.paths import SAMPLES

pytestmark = pytest.mark.browser


def long_run(folder: Path, steps: int) -> int:
    """A sample with as many steps, one of them slow; gives its number."""
    shutil.copytree(SAMPLES / "v100-convnet-mixed-float16", folder / "long")
    file = folder / "long" / "mpprof" / "steps.jsonl"
    lines = file.read_text().splitlines()
    one = json.loads(next(line for line in lines if '"step": 40,' in line))
    kept = json.dumps(
        {key: value for key, value in one.items() if key not in ("step", "t_ns", "interval_ns")}
    )
    slow = steps * 3 // 5 + 7
    with file.open("w") as out:
        out.write("\n".join(lines[:2]) + "\n")
        for n in range(1, steps + 1):
            ns = 13_000_000 if n == slow else 10_000_000 + 1000 * (n % 7)
            out.write(f'{kept[:-1]}, "step": {n}, "t_ns": {n * 10_000_000}, "interval_ns": {ns}}}\n')
        out.write(lines[-1] + "\n")  # its end, without which the page is drawn anew when it counts as stopped
    return slow


@pytest.mark.parametrize("count", [20_000, pytest.param(1_000_000, marks=pytest.mark.full)])
def test_zooming_into_the_steps_fetches_them_and_keeps_the_slowest(
    chromium: Any, tmp_path: Path, count: int
) -> None:
    slow = long_run(tmp_path, count)
    with serving(tmp_path) as address:
        seen = visit(chromium, address)
        seen.page.set_default_timeout(60_000)
        seen.open_well("/steps?run=long&baseline=none")
        assert seen.text("step-count") == words.count(count)
        coarse = seen.page.evaluate(_DRAWN)
        assert slow in coarse
        assert len(coarse) < 10_000
        assert len([n for n in coarse if slow - 50 <= n <= slow + 50]) < 40
        while not set(seen.page.evaluate(_DRAWN)).issuperset(range(slow - 10, slow + 11)):
            at, top = _zoom_around(seen, slow)
            assert slow in seen.page.evaluate(_DRAWN)
        # Apart from the drag by more than the time within which plotly takes two clicks for one double click.
        seen.page.wait_for_function(
            "from => performance.now() > from + 400", arg=seen.page.evaluate("performance.now()")
        )
        seen.page.mouse.dblclick(at, top)
        seen.page.wait_for_function(f"n => ({_DRAWN})().length === n", arg=len(coarse))
        seen.assert_quiet()


_DRAWN = """() => { const plot = document.querySelector('#step-times .js-plotly-plot');
    return plot._fullData.filter(each => each.mode === "markers").flatMap(each => [...each.x]); }"""


def _zoom_around(seen: Visit, step: int) -> tuple[float, float]:
    """Drags over what lies around a step, and waits for the finer charts; returns where the step was."""
    at, top = seen.page.evaluate(
        """step => { const plot = document.querySelector('#step-times .js-plotly-plot');
            const box = plot.getBoundingClientRect(), { xaxis, yaxis } = plot._fullLayout;
            return [box.left + xaxis._offset + xaxis.d2p(step), box.top + yaxis._offset + 40]; }""",
        step,
    )
    seen.drag((at - 8, top), (at + 8, top))
    fetched = f"""step => {{ const x = ({_DRAWN})();
        const [from, to] = document.querySelector('#step-times .js-plotly-plot')._fullLayout.xaxis.range;
        return x.includes(step) && x.every(each => each >= from - 1 && each <= to + 1); }}"""
    seen.page.wait_for_function(fetched, arg=step)
    return at, top
