"""`python -m tests.real DIR`: every command over every trace under DIR, held to the raw events.

Prints one line per file (its number and the start of its sha256), the faults under it, and a summary; exits
with 1 where there are faults. Traces are read, never copied; no name of a file or a run is printed.
"""

import argparse
import hashlib
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.real import commands, expected, invariants
from tests.real.truth import Truth, read


@dataclass(frozen=True)
class Verdict:
    """The faults of one trace file, each (what was checked, what is wrong)."""

    number: int
    sha256: str
    faults: tuple[tuple[str, str], ...]


def traces(folder: Path) -> list[Path]:
    """Return the trace files under `folder`, in the order of their paths."""
    return sorted(folder.rglob("*.xplane.pb"))


def neighbours(folder: Path, paths: Sequence[Path]) -> dict[Path, Path]:
    """Return for each trace the one before it in the same directory of `folder`."""
    return {
        path: before
        for before, path in pairwise(paths)
        if before.relative_to(folder).parts[0] == path.relative_to(folder).parts[0]
    }


def judge(number: int, path: Path, baseline: Path | None) -> Verdict:
    """Run every command over one trace and collect its faults."""
    truth = _truth(path)
    names = [kernel.name for kernel in truth.kernels] if truth else []
    outcomes = commands.of_trace(path, names)
    if baseline is not None:
        outcomes["compare"] = commands.of_pair(baseline, path)
    faults = [
        (name, fault)
        for name, done in outcomes.items()
        for fault in invariants.outcome(done, healthy=bool(truth and truth.steps))
    ]
    report, rows = outcomes["report json"].document(), outcomes["kernels"].document() or []
    if report is not None:
        faults += [("report", fault) for fault in (*invariants.keys(report), *invariants.slices(report))]
        faults += [("report", f) for f in (*invariants.findings(report), *invariants.window(report))]
    if truth is not None:
        faults += _held_to(truth, outcomes, report, rows)
        if baseline is not None and (document := outcomes["compare"].document()) is not None:
            both = [truth, before] if (before := _truth(baseline)) else [truth]
            faults += [("compare", fault) for fault in invariants.compared(document, both)]
    return Verdict(number, hashlib.sha256(path.read_bytes()).hexdigest(), tuple(faults))


def _held_to(
    truth: Truth, outcomes: Mapping[str, commands.Outcome], report: Any, rows: list[Any]
) -> Iterator[tuple[str, str]]:
    if report is not None:
        for check in (invariants.steps, invariants.between, invariants.waits, invariants.memory):
            yield from (("report", fault) for fault in check(report, truth))
        text = outcomes["report text"].out
        yield from (("words", fault) for fault in invariants.words(report, truth, text))
        yield from (("expectation", fault) for fault in expected.check(truth.sha256, report, rows))
    yield from (("kernels", fault) for fault in invariants.kernels(rows, truth))
    if "classify" in outcomes and outcomes["classify"].exit_code == 0:
        names = [kernel.name for kernel in truth.kernels]
        yield from (
            ("classify", fault) for fault in invariants.classified(outcomes["classify"].lines(), names, truth)
        )


def _truth(path: Path) -> Truth | None:
    """Derive what the raw events say; None of a file that protobuf cannot read."""
    from google.protobuf.message import DecodeError

    try:
        return read(path)
    except DecodeError:
        return None


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.real", description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, metavar="DIR")
    parser.add_argument("--jobs", type=int, default=1, help="traces judged at a time (default: 1)")
    parser.add_argument("--match", default="", metavar="TEXT", help="only traces whose path holds TEXT")
    given = parser.parse_args(arguments)
    every = traces(given.folder)
    before = neighbours(given.folder, every)
    wanted = [(number, path) for number, path in enumerate(every) if given.match in str(path)]
    with ThreadPoolExecutor(given.jobs) as pool:
        verdicts = list(pool.map(lambda one: judge(one[0], one[1], before.get(one[1])), wanted))
    show(verdicts)
    return 1 if not verdicts or any(verdict.faults for verdict in verdicts) else 0


def show(verdicts: Sequence[Verdict]) -> None:
    """Print the table, its faults by kind, and the summary."""
    for verdict in verdicts:
        said = f"{len(verdict.faults)} faults" if verdict.faults else "ok"
        print(f"{verdict.number:4d}  {verdict.sha256[:12]}  {said}")
        for where, fault in verdict.faults:
            print(f"        {where}: {fault}")
    kinds = Counter(where for verdict in verdicts for where in {where for where, _ in verdict.faults})
    for where, count in kinds.most_common():
        print(f"{where}: {count} files")
    print(f"{len(verdicts)} files, {sum(bool(verdict.faults) for verdict in verdicts)} with faults")


if __name__ == "__main__":
    sys.exit(main())
