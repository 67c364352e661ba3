"""A ladder of `mpprof try` on the page of runs, while it grows."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from mpprof.store import ladder
from tests.browser.visiting import serving, visit
from tests.paths import SAMPLES

pytestmark = pytest.mark.browser


def test_a_ladder_is_shown_and_followed(chromium: Any, tmp_path: Path) -> None:
    shutil.copytree(SAMPLES / "recorded-cpu-float32", tmp_path / "float32" / "1")
    rows = [["float32", "10.9 ms"]]
    ladder.write(tmp_path, "train.py", "float32 alone was measured.", ["setting", "step"], rows)
    with serving(tmp_path) as base:
        page = visit(chromium, base, hurries=True).page
        page.goto(f"{base}/runs")
        page.wait_for_selector("#ladders td")
        assert page.inner_text("#ladders h2") == "train.py under several settings"
        rows.append(["<b>mixed_bfloat16</b>", "6.38 ms"])
        ladder.write(tmp_path, "train.py", "mixed_bfloat16: 1.71x.", ["setting", "step"], rows)
        page.wait_for_function("() => document.querySelectorAll('#ladders tbody tr').length === 2")
        assert page.inner_text("#ladders tbody tr:nth-child(2) td") == "<b>mixed_bfloat16</b>"
        assert page.inner_text("#ladders p") == "mixed_bfloat16: 1.71x."
