"""The confusion matrix of the planted cases: `python -m tests.planted.matrix`.

One line a case: what was planted, what was found, with its cost against the truth, and whatever else was found
that takes more than a twentieth of the gap.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from tests.builders.simulate import Training
from tests.planted.generator import written
from tests.planted.suite import clean, planted

NOTABLE = 0.05
CLOSE = 0.10


@dataclass(frozen=True)
class Analysed:
    """A run and its baseline, read and computed: what the rules are asked about."""

    mine: workflows.Analysis
    baseline: workflows.Analysis | None

    def judged(self) -> Diagnosis:
        return workflows.judge(self.mine, self.baseline)


def analysed(training: Training, baseline: Training | None, folder: Path) -> Analysed:
    mine = workflows.analyse(workflows.load(written(training, folder / "run")))
    theirs = workflows.load(written(baseline, folder / "baseline")) if baseline else None
    return Analysed(mine, workflows.analyse(theirs) if theirs else None)


def diagnosed(training: Training, baseline: Training | None, folder: Path) -> Diagnosis:
    return analysed(training, baseline, folder).judged()


def blamed(found: Diagnosis) -> list[str]:
    """Codes that accuse: above info, or with a cost above a twentieth of the gap."""
    gap = found.speedup.gap_ns if found.speedup and found.speedup.gap_ns else None
    return [
        f.code
        for f in found.findings
        if f.severity != "info" or (gap and gap > 0 and (f.cost_ns_per_step or 0.0) > NOTABLE * gap)
    ]


def comes_first(found: Diagnosis, planted: Container[str]) -> bool:
    """A planted cause is the first to be named; where all that is planted is normal or a ceiling, nothing accuses
    before it."""
    return bool(found.findings) and (
        found.findings[0].code in planted or all(f.severity == "info" for f in found.findings)
    )


def main() -> int:
    confusion: Counter[tuple[str, str]] = Counter()
    wrong = 0
    with tempfile.TemporaryDirectory() as scratch:
        for at, case in enumerate(planted()):
            found = diagnosed(case.training, case.baseline, Path(scratch) / str(at))
            codes = blamed(found)
            costs = {f.code: f.cost_ns_per_step for f in found.findings}
            said = []
            for code in case.twins:
                truth, cost = case.cost_ns(code), costs.get(code)
                ok = code in costs and (
                    truth is None or (cost is not None and abs(cost - truth) <= CLOSE * truth)
                )
                wrong += not ok
                share = f"{(cost or 0) / truth - 1:+.1%} of {truth / 1e6:.2f} ms" if truth else ""
                said.append(
                    f"{code} {share}{'' if ok else '  <-- WRONG' if code in costs else '  <-- MISSED'}"
                )
            extra = [code for code in codes if code not in case.twins and code not in case.also]
            first = next((f.code for f in found.findings), "-")
            for code in case.twins:
                confusion[code, code if code in costs else "-"] += 1
            for code in extra:
                confusion["+".join(case.twins), code] += 1
            wrong += len(extra) + (not comes_first(found, case.twins))
            gap = found.speedup.gap_ns / 1e6 if found.speedup and found.speedup.gap_ns is not None else None
            left = (
                found.speedup.unexplained_ns / 1e6
                if found.speedup and found.speedup.unexplained_ns is not None
                else None
            )
            print(
                f"{case.name:38} {'; '.join(said)}  first {first}{f'  ALSO {extra}' if extra else ''}  gap {gap and round(gap, 2)} left {left and round(left, 2)}"
            )
        for at, (training, baseline) in enumerate(clean()):
            found = diagnosed(training, baseline, Path(scratch) / f"clean{at}")
            extra = blamed(found)
            wrong += len(extra)
            speed = found.speedup
            gap = speed.gap_ns / (speed.baseline_step_ns or 1) if speed and speed.gap_ns is not None else 0
            for code in extra or ["-"]:
                confusion["clean", code] += 1
            print(
                f"{training.name:38} clean: {extra or 'nothing'}; observed {speed and speed.observed and round(speed.observed, 2)} expected {speed and speed.expected and round(speed.expected, 2)} gap {gap:.1%}"
            )
    print()
    print("planted    found      cases")
    for (truth, code), count in sorted(confusion.items()):
        print(f"{truth:10} {code:10} {count}")
    return wrong


if __name__ == "__main__":
    found_wrong = main()
    print(f"{found_wrong} wrong")
    sys.exit(bool(found_wrong))
