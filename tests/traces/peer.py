"""XProf as the peer: its tables of a trace, and what must agree with ours."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.model.trace import Trace

_XPROF = """
import json, sys
from xprof.convert import raw_to_tool_data
text = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], sys.argv[2], {})[0]
sys.stdout.write(json.dumps(json.loads(text)))
"""


def answer(path: Path, tool: str, scratch: Path) -> Any:
    """What a tool of XProf says. In a process of its own: it keeps state, and writes beside its input."""
    pytest.importorskip("xprof", reason="XProf, the peer to compare with, is not installed")
    copy = scratch / path.name
    shutil.copy(path, copy)
    done = subprocess.run(
        [sys.executable, "-c", _XPROF, str(copy), tool], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)


def xprof(path: Path, tool: str, scratch: Path) -> list[dict[str, object]]:
    """The rows of one of XProf's tables."""
    tables = answer(path, tool, scratch)
    rows = []
    for table in tables if isinstance(tables, list) else [tables]:
        ids = [column["id"] for column in table["cols"]]
        rows += [
            dict(zip(ids, [cell["v"] if cell else None for cell in row["c"]], strict=True))
            for row in table["rows"]
        ]
    return rows


def ops_agree(trace: Trace, path: Path, scratch: Path) -> int:
    """Count and self time of every op of the host that both know; how many were compared."""
    theirs = {
        (str(row["operation"]), str(row["type"])): (float(row["occurrences"]), float(row["total_self_time"]))  # type: ignore[arg-type]
        for row in xprof(path, "framework_op_stats", scratch)
        if row["host_or_device"] == "Host"
    }
    compared = 0
    for op in set(trace.kernels.op.tolist()):
        rows = trace.kernels.op == op
        key = (trace.ops[op].name, trace.ops[op].type)
        if key in theirs:
            count, total_us = theirs[key]
            # In some traces XProf counts an op once more after events inside it (`ParallelFor`, and on one core an
            # allocation, which lasts no time). The total time is the same.
            assert count >= rows.sum(), key
            assert trace.kernels.duration_ns[rows].sum() / 1e3 == pytest.approx(total_us, abs=0.01 * count), (
                key
            )
            compared += 1
    return compared


def steps_agree(trace: Trace, path: Path, scratch: Path) -> int:
    """Number and duration of every step that XProf tells, against our markers; how many were compared.

    XProf's step lasts as long as its marker; of a `Steps` line per device it shows the longest."""
    tables = answer(path, "input_pipeline_analyzer", scratch)
    rows = next(table["rows"] for table in tables if "stepnum" in {c["id"] for c in table.get("cols", ())})
    theirs = {
        int(str(row["c"][0]["v"]).rpartition(" ")[2]): float(row["c"][-1]["v"]) * 1e6  # stepTimeMs
        for row in rows
    }
    ours: dict[int, int] = {}
    for number, start, end in zip(
        trace.markers.number.tolist(), trace.markers.start_ns.tolist(), trace.markers.end_ns.tolist(), strict=True
    ):  # fmt: skip
        if number >= 0:  # a call of the training function has no number
            ours[number] = max(end - start, ours.get(number, 0))
    assert ours == pytest.approx(theirs, abs=1_000)  # they print microseconds
    return len(ours)


def events_agree(trace: Trace, path: Path, scratch: Path) -> int:
    """Count and total time, by name, of the events that stand for kernels in a trace of the host, in XProf's
    timeline; how many names were compared."""
    theirs: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for event in answer(path, "trace_viewer", scratch)["traceEvents"]:
        if event.get("ph") == "X":
            theirs[event["name"]] += 1
            total[event["name"]] += event["dur"] * 1e3
    names = np.unique(trace.kernels.name).tolist()
    for row in names:
        name, mine = trace.strings[row], trace.kernels.name == row
        host = trace.host.name == row
        assert theirs[name] == host.sum() >= mine.sum() > 0, name
        assert total[name] == pytest.approx(
            int(trace.host.duration_ns[host].sum()), abs=2 * int(host.sum())
        ), name
    return len(names)
