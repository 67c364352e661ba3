"""The tab "Mixed precision" in a real TensorBoard, beside the profile plugin, in a real chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpprof.api.source import LogDirectory
from tests.browser.visiting import visit
from tests.paths import ROOT, SAMPLES

pytestmark = [pytest.mark.browser, pytest.mark.full]
NAMES = ("v100-odd-vocabulary-float32", "v100-odd-vocabulary-mixed-float16", "v100-loss-scale-thrash")


@pytest.fixture
def tensorboard(tmp_path: Path) -> Iterator[str]:
    """TensorBoard on some samples. It finds the tab by the entry point of `pyproject.toml`, which a package that
    was installed before it was there does not have."""
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    logs, package = tmp_path / "logs", tmp_path / "site" / "mpprof_tab-0.dist-info"
    for name in NAMES:
        shutil.copytree(SAMPLES / name, logs / name)
    package.mkdir(parents=True)
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mpprof-tab\nVersion: 0\n")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    points = project["entry-points"]["tensorboard_plugins"]
    lines = [f"{name} = {where}" for name, where in points.items()]
    (package / "entry_points.txt").write_text("\n".join(["[tensorboard_plugins]", *lines]))
    paths = os.pathsep.join(map(str, (ROOT, ROOT / "dashboards", package.parent)))
    command = [sys.executable, "-m", "tensorboard.main", "--logdir", str(logs), "--host", "127.0.0.1"]
    with subprocess.Popen(
        [*command, "--port=0", "--load_fast=false"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
        text=True, env=os.environ | {"PYTHONPATH": paths},
    ) as process:  # fmt: skip
        assert process.stderr
        try:
            found = (re.search(r"http://\S+:\d+/", line) for line in process.stderr)
            address = next(filter(None, found), None)
            assert address, "TensorBoard does not start"
            threading.Thread(target=process.stderr.read, daemon=True).start()  # a full pipe would stop it
            yield address[0]
        finally:
            process.terminate()
            process.wait(20)


def test_the_tab_shows_each_run_and_breaks_no_rule_of_tensorboard(chromium: Any, tensorboard: str) -> None:
    seen = visit(chromium, tensorboard)
    seen.page.set_default_timeout(60_000)
    seen.page.goto(f"{tensorboard}#mpprof")
    frame = seen.page.frame_locator("iframe")
    frame.locator("#mpprof-run").select_option(NAMES[1])
    known = LogDirectory(SAMPLES)
    said = known.report(NAMES[1], NAMES[0]).answer.sentence
    frame.locator(f"#headline:text-is('{said}')").wait_for()
    assert frame.locator("#flow .mp-flow").count() == 1
    assert sorted(frame.locator("#mpprof-run option").all_inner_texts()) == sorted(NAMES)
    total = frame.locator("#whatif-total").inner_text()
    frame.locator(".mp-switch").first.click()
    frame.locator(f"#whatif-total:not(:text-is('{total}'))").wait_for()
    frame.locator("#mpprof-run").select_option(NAMES[2])
    said = known.report(NAMES[2], None).answer.sentence
    frame.locator(f"#headline:text-is('{said}')").wait_for()
    tabs = " ".join(seen.page.locator("[role=tab]").all_inner_texts()).upper()
    assert "MIXED PRECISION" in tabs
    refused = [said for said in seen.problems if "Content Security Policy" in said or "mpprof" in said]
    assert refused == []
