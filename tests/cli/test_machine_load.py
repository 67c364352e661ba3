"""The machine's load while the steps were timed, against that of the training itself."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.cli.conftest import MIXED, Mpprof


@pytest.mark.parametrize(
    ("machine", "process", "said"),
    [(0.9, 0.45, "45.0 %"), (0.9, 0.85, None), (0.9, None, None)],
    ids=["shared", "alone", "older records"],
)
def test_other_work_is_said_where_the_process_own_share_is_known(
    machine: float, process: float | None, said: str | None, mpprof: Mpprof, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(MIXED, run)
    steps = [json.loads(line) for line in (run / "mpprof/steps.jsonl").read_text().splitlines()]
    times = [line["t_ns"] for line in steps if line.get("kind") == "step"]
    before = {"t_ns": times[0] // 2, "cpu_ratio": 1.0, "process_cpu_ratio": 0.0}  # compiling: not timed
    sample = {"cpu_ratio": machine} | ({} if process is None else {"process_cpu_ratio": process})
    lines = [{"schema": "mpprof.hardware/1"}, before, *({"t_ns": t_ns, **sample} for t_ns in times[-40:])]
    (run / "mpprof/hardware.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    warnings = json.loads(mpprof("report", run, "--format", "json").out)["warnings"]
    found = [text for text in warnings if "other work" in text]
    assert len(found) == (said is not None)
    assert all(f"other work kept {said} of the machine busy" in text for text in found)
