"""Judges random planted cases: `python -m tests.planted.sweep [first [count]]`.

One line for each case that went wrong, then the confusion matrix and the rate of misses.
"""

from __future__ import annotations

import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.planted import held_out
from tests.planted.generator import Planted
from tests.planted.matrix import CLOSE, blamed, comes_first, diagnosed


@dataclass(frozen=True)
class Verdict:
    """What was wrong with the diagnosis of one case; nothing: it was right. `found`: the codes that it blames."""

    name: str
    wrong: tuple[str, ...]
    planted: tuple[str, ...]
    found: tuple[str, ...]


def judge(case: Planted, folder: Path) -> Verdict:
    """The planted causes must be found at their cost, one of them first, and nothing else blamed."""
    found = diagnosed(case.training, case.baseline, folder)
    costs = {finding.code: finding.cost_ns_per_step for finding in found.findings}
    wrong = []
    for code in case.twins:
        truth, cost = case.cost_ns(code), costs.get(code)
        if code not in costs:
            wrong.append(f"{code} missed ({(truth or 0.0) / 1e6:.3g} ms)")
        elif truth is not None and (cost is None or abs(cost - truth) > CLOSE * truth):
            wrong.append(f"{code} {(cost or 0.0) / truth - 1:+.1%} of {truth / 1e6:.3g} ms")
    codes = blamed(found)
    wrong += [f"{code} blamed" for code in codes if code not in case.twins and code not in case.also]
    if not comes_first(found, case.twins):
        wrong.append(f"{found.findings[0].code if found.findings else 'nothing'} comes first")
    return Verdict(
        case.name,
        tuple(wrong),
        tuple(case.twins),
        tuple(dict.fromkeys([*codes, *(code for code in case.twins if code in costs)])),
    )


def verdicts(seeds: Iterable[int]) -> Iterator[Verdict]:
    """The random case of each seed, judged, and its healthy twin."""
    with tempfile.TemporaryDirectory() as scratch:
        for seed in seeds:
            yield judge(held_out.case(seed), Path(scratch) / f"{seed}")
            training, baseline = held_out.clean(seed)
            found = diagnosed(training, baseline, Path(scratch) / f"clean{seed}")
            codes = blamed(found)
            yield Verdict(f"clean-{seed}", tuple(f"{code} blamed" for code in codes), (), tuple(codes))


def main(first: int = 0, count: int = 200) -> int:
    confusion: Counter[tuple[str, str]] = Counter()
    wrong, total = Counter[str](), Counter[str]()
    for verdict in verdicts(range(first, first + count)):
        kind = "planted" if verdict.planted else "clean"
        total[kind] += 1
        wrong[kind] += bool(verdict.wrong)
        if verdict.wrong:
            print(f"{verdict.name:40} {'; '.join(verdict.wrong)}", flush=True)
        for code in verdict.planted:
            confusion[code, code if code in verdict.found else "-"] += 1
        for code in verdict.found:
            if code not in verdict.planted:
                confusion["+".join(verdict.planted) or "clean", code] += 1
        if not verdict.planted and not verdict.found:
            confusion["clean", "-"] += 1
    print("\nplanted    found      cases")
    for (truth, code), cases in sorted(confusion.items()):
        print(f"{truth:10} {code:10} {cases}")
    for kind in total:
        print(f"{kind}: {wrong[kind]} of {total[kind]} wrong ({wrong[kind] / total[kind]:.1%})")
    return sum(wrong.values())


if __name__ == "__main__":
    sys.exit(bool(main(*map(int, sys.argv[1:3]))))
