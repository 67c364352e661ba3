"""Starts the worker, and says of its end what it was: a fault's input can be made again from its number."""

from __future__ import annotations

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.paths import ROOT

HANG_S = 2.0
"""Of processor time, for one input."""

FEW = 500
"""Damaged files of each reader in every test run."""
SOAK = int(os.environ.get("MPPROF_FUZZ_INPUTS", "100000"))
"""Files of each reader and grammar in a long run: `make soak` takes 100,000, `make full` 5,000."""


class Fault(AssertionError):
    """A crash, a hang, an exception that is none of ours, too much memory, or a write."""


def fuzz(
    target: str, count: int, *, first: int = 0, hang_s: float = HANG_S, walk: Path | None = None,
    environment: dict[str, str] | None = None, every: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """Reads inputs `first` to `first + count` of a target in a process of its own; raises Fault. `every`: the
    target is a grammar, and of one input in so many the report is held beside that of its twin."""
    folder = Path(tempfile.mkdtemp(prefix="mpprof-fuzz-"))
    command = [
        sys.executable,
        "-W",
        "error",
        "-m",
        "tests.fuzz.worker" if every is None else "tests.fuzz.grammar.worker",
        target,
        str(first),
        str(count),
        str(hang_s),
        str(folder),
    ]
    variables = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "MPPROF_CACHE": "off", **(environment or {})}
    try:
        done = subprocess.run(
            [*command, *([str(walk)] if walk else []), *([str(every)] if every else [])], cwd=ROOT, env=variables, capture_output=True, text=True,
            errors="replace", check=False,
        )  # fmt: skip
        if done.returncode == 0:
            figures: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
            return figures
        number = (
            struct.unpack("<q", (folder / "number").read_bytes())[0]
            if (folder / "number").exists()
            else first
        )
        raise Fault(
            f"{target}: {_how(done.returncode)} on input {number}\n"
            f"again: python -m tests.fuzz {'grammar-' if every else ''}{target} --first {number} --count 1 [--keep FILE]\n{done.stderr[-6000:]}"
        )
    finally:
        shutil.rmtree(folder, ignore_errors=True)


_PART = 5_000
_SUMMED = {"executions", "pairs", "whole", "warned", "refused", "seconds"}
_LARGEST = {"largest_bytes", "peak_mib", "base_mib"}


def fuzz_in_parts(
    target: str, count: int, *, hang_s: float = HANG_S, walk: Path | None = None,
    environment: dict[str, str] | None = None, every: int | None = None,
) -> dict[str, Any]:  # fmt: skip
    """The same in parts of some thousand inputs, as many at once as the machine has processors. Counts and
    seconds are summed over the parts."""

    processors = os.cpu_count() or 1
    size = min(_PART, -(-count // processors))

    def part(first: int) -> dict[str, Any]:
        return fuzz(
            target, min(size, count - first), first=first, hang_s=hang_s, walk=walk, environment=environment,
            every=every,
        )  # fmt: skip

    with ThreadPoolExecutor(processors) as pool:
        found = list(pool.map(part, range(0, count, size)))
    merged = dict(max(found, key=lambda figures: figures["slowest_s"]))
    for key in _SUMMED & merged.keys():
        merged[key] = sum(figures[key] for figures in found)
    for key in _LARGEST & merged.keys():
        merged[key] = max(figures[key] for figures in found)
    return merged


def _how(code: int) -> str:
    if code == -signal.SIGPROF:
        return "a hang"
    return f"a crash ({signal.Signals(-code).name})" if code < 0 else "a fault"
