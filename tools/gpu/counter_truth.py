"""Counter truth: which kernels use Tensor Cores by the GPU's own counters, and how often `classify` is right.

    python -m tools.gpu.counter_truth collect OUT.csv [--framework torch] [--only SUBSTRING] [--seconds N]    runs ncu
    python -m tools.gpu.counter_truth agree OUT.csv                                            needs no GPU

`collect` runs the cases of each framework under Nsight Compute (in one process per framework and TF32 mode; with
`--seconds`, each of them as many cases in a fixed, mixed order as that allows) and writes one row per kernel name: its
counters, its time, the verdict that follows from the counters. `agree`
compares `mpprof classify` with such a table, by name and by time.

`counter_truth_h100.csv` is such a table. It was counted before half operands were asked for as Hopper names them
(`sm__ops_path_tensor_src_fp16`), so where no counter of operations is above zero and the whole pipe was busy, half
products are not excluded: the placement is unknown. Its column `zero` has the types of which none was multiplied. That
follows from `op_hmma` being the largest counter: a single matrix instruction is a thousand operations and more.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import ctypes
import math
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from mpprof.analysis.kernels import counters
from mpprof.analysis.kernels.names import classify, is_generic
from mpprof.cli.verify import arguments, available, complain, found
from mpprof.errors import MpprofError
from tools.gpu.counter_truth_cases import FRAMEWORKS, Case, cases, work

TIME = "gpu__time_duration"
MOST_LAUNCHES = 100_000
COLUMNS = ("kernel_name", "gpu", "compute_capability", "placement", "precision", "launches", "time_ns", "counters", "frameworks")  # fmt: skip


@dataclass(slots=True)
class Row:
    """One kernel name on one card."""

    name: str
    capability: str = ""
    launches: int = 0
    time_ns: float = 0.0
    frameworks: str = ""


# Collecting ------------------------------------------------------------------------------------------------


def run(framework: str, only: str, mode: str, seconds: float) -> int:
    """Computes the cases of a framework, each twice, of which the second time is counted. Returns how many could be
    computed; what a framework lacks is said on stderr and left out."""
    done, began = 0, time.monotonic()
    for case in mixed():
        if time.monotonic() - began > seconds:
            print(f"{seconds:g} s are over: the rest is left out", file=sys.stderr)
            break
        if case.framework != framework or only not in case.name or (case.dtype == "tf32") != (mode == "tf32"):
            continue
        try:
            compute = work(case)
            compute()  # what a library or a compiler tries first is not counted
            with counting():
                compute()
            done += 1
        except Exception as error:  # noqa: BLE001 - each framework raises its own for what it lacks
            print(f"left out: {case.name}: {str(error).splitlines()[0][:160]}", file=sys.stderr)
    return done


@contextlib.contextmanager
def counting() -> Iterator[None]:
    """Have ncu count what is launched within."""
    driver = ctypes.CDLL("libcuda.so.1")
    driver.cuCtxSynchronize()
    driver.cuProfilerStart()
    try:
        yield
        driver.cuCtxSynchronize()
    finally:
        driver.cuProfilerStop()


def mixed() -> list[Case]:
    """Every case once, kinds and types spread evenly, the same in each process."""
    found = list(cases())
    random.Random(0).shuffle(found)
    return found


def command(framework: str, only: str, mode: str, seconds: float) -> list[str]:
    """The process that computes the cases of one framework in one TF32 mode."""
    given = ["--only", only, "--mode", mode, *(["--seconds", f"{seconds:g}"] if seconds < math.inf else [])]
    return [sys.executable, "-m", "tools.gpu.counter_truth", "run", framework, *given]


def collect(out: Path, frameworks: Sequence[str], only: str, gpu: str, seconds: float = math.inf) -> int:
    """Counts all cases and writes the table; returns its number of rows."""
    ncu = found(None)
    metrics = (TIME, *available(ncu))
    rows: dict[str, Row] = {}
    lines: list[str] = []
    for framework in frameworks:
        for mode in ("plain", "tf32"):
            counted = count(ncu, metrics, command(framework, only, mode, seconds), mode)
            for name, row in timed(counted).items():
                into = rows.setdefault(name, Row(name, row.capability))
                into.launches += row.launches
                into.time_ns += row.time_ns
                into.frameworks = " ".join(dict.fromkeys([*into.frameworks.split(), framework]))
            lines += counted if not lines else body(counted)
    verdicts = counters.verdicts(lines, card=gpu, where="ncu")
    generic = {key for key in verdicts if is_generic(key[0])}
    print(f"{len(generic)} names left out, which a compiler made", file=sys.stderr)
    verdicts = {key: verdict for key, verdict in verdicts.items() if key not in generic}
    write(out, rows.values(), verdicts, gpu)
    return len(verdicts)


def count(ncu: str, metrics: Sequence[str], counted: Sequence[str], mode: str) -> list[str]:
    """The CSV of one process."""
    environment = {
        **os.environ,
        "CUPY_TF32": str(int(mode == "tf32")),
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
    }
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "ncu.csv"
        options = ["--profile-from-start", "off", "--cache-control", "none"]
        full = [*arguments(ncu, metrics, log, MOST_LAUNCHES), *options, *counted]
        done = subprocess.run(full, env=environment, check=False)
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    complain(lines, done.returncode, full)
    return lines


def body(lines: Iterable[str]) -> list[str]:
    """The launches of a raw page, without its header and its units."""
    table = [line for line in lines if line.startswith('"')]
    return [line for line in table if not line.startswith(('"ID"', '"",'))]


def timed(lines: Iterable[str]) -> dict[str, Row]:
    """Launches and time of each kernel name of a raw page."""
    reader = csv.DictReader(line for line in lines if line.startswith('"'))
    rows: dict[str, Row] = {}
    for launch in reader:
        name = launch["Kernel Name"]
        if not name:
            continue
        row = rows.setdefault(name, Row(name, launch.get("CC", "")))
        row.launches += 1
        row.time_ns += float((launch.get(f"{TIME}.sum") or "0").replace(",", ""))
    return rows


def write(out: Path, rows: Iterable[Row], verdicts: dict, gpu: str) -> None:  # type: ignore[type-arg]
    with out.open("w", newline="", encoding="utf-8") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(COLUMNS)
        for row in sorted(rows, key=lambda row: -row.time_ns):
            verdict = verdicts.get((row.name, gpu))
            if verdict is not None:
                said = (verdict.placement, verdict.precision, row.launches, round(row.time_ns))
                writer.writerow([row.name, gpu, row.capability, *said, verdict.reason.text, row.frameworks])


# Comparing -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Agreement:
    """Of `classify` with counters: whether Tensor Cores were used. Ratios are of what was decided."""

    names: int
    unknown: int
    open: int  # which counters leave open
    wrong: tuple[str, ...]
    by_name: float | None
    by_time: float | None
    unknown_time: float
    open_time: float


def agree(table: Path) -> Agreement:
    """Raises MpprofError for a table without rows."""
    with table.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    if not rows:
        raise MpprofError("holds no kernels", where=str(table), next="Write it with `collect`")
    wrong: list[str] = []
    time = {"right": 0.0, "wrong": 0.0, "unknown": 0.0, "open": 0.0}
    unknown = open_ = 0
    for row in rows:
        major, _, minor = row["compute_capability"].partition(".")
        verdict = classify(row["kernel_name"], (int(major), int(minor or 0)) if major else None, "nvidia")
        if verdict.placement == "unknown":
            outcome, unknown = "unknown", unknown + 1
        elif row["placement"] == "unknown":
            outcome, open_ = "open", open_ + 1
            if verdict.placement == "tensor_core" and verdict.precision in row["zero"].split():
                outcome, open_ = "wrong", open_ - 1
                wrong.append(row["kernel_name"])
        elif (verdict.placement == "tensor_core") == (row["placement"] == "tensor_core"):
            outcome = "right"
        else:
            outcome = "wrong"
            wrong.append(row["kernel_name"])
        time[outcome] += float(row["time_ns"])
    decided, decided_time = len(rows) - unknown - open_, time["right"] + time["wrong"]
    return Agreement(
        names=len(rows),
        unknown=unknown,
        open=open_,
        wrong=tuple(wrong),
        by_name=(decided - len(wrong)) / decided if decided else None,
        by_time=time["right"] / decided_time if decided_time else None,
        unknown_time=time["unknown"] / (sum(time.values()) or 1.0),
        open_time=time["open"] / (sum(time.values()) or 1.0),
    )


def report(found: Agreement) -> str:
    def percent(value: float | None) -> str:
        return "-" if value is None else f"{value:.1%}"

    return "\n".join(
        [
            f"{found.names} kernel names; unknown {found.unknown} ({percent(found.unknown_time)} of the time)",
            f"left open by the counters {found.open} ({percent(found.open_time)} of the time)",
            f"of those decided right: {percent(found.by_name)} of the names, {percent(found.by_time)} of the time",
            *(f"wrong: {name[:160]}" for name in found.wrong),
        ]
    )


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    actions = parser.add_subparsers(dest="action", required=True)
    one = actions.add_parser("run")
    one.add_argument("framework", choices=FRAMEWORKS)
    one.add_argument("--mode", choices=("plain", "tf32"), default="plain")
    many = actions.add_parser("collect")
    many.add_argument("out", type=Path)
    many.add_argument("--framework", action="append", choices=FRAMEWORKS)
    many.add_argument("--gpu", default="", help="the card's name, for the table")
    for action in (one, many):
        action.add_argument("--only", default="", help="cases whose name holds this")
        action.add_argument("--seconds", type=float, default=math.inf, help="of each process")
    actions.add_parser("agree").add_argument("table", type=Path)
    args = parser.parse_args(argv)
    if args.action == "run":
        print(f"{run(args.framework, args.only, args.mode, args.seconds)} cases", file=sys.stderr)
    elif args.action == "collect":
        count_ = collect(args.out, args.framework or FRAMEWORKS, args.only, args.gpu, args.seconds)
        print(f"{count_} kernel names in {args.out}")
    else:
        print(report(agree(args.table)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
