"""How many live ladders hold the true ratio of their script: `python -m tools.benchmarks.ladder_truth`.

Two scripts (tests/trial/scripts/paced.py): steps in float32 take 1.6 times as long as in 16 bits, or as long. Each
process is off by 3 %, by chance. An interval of 95 % holds in 17 of 20 repeats or more.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from pathlib import Path

from mpprof.trial import trying
from mpprof.trial.settings import Choices

SCRIPT = Path(__file__).parents[2] / "tests" / "trial" / "scripts" / "paced.py"
RATIOS = (1.6, 1.0)


def one(ratio: float, folder: Path, minutes: float, rounds: int) -> tuple[bool, str]:
    """Whether a ladder holds the ratio, and what it shows."""
    choices = Choices(("float32", "mixed_bfloat16"))
    words = (str(SCRIPT), str(ratio))
    asked = trying.Asked(words, SCRIPT.name, folder, choices, minutes=minutes, most_rounds=rounds)
    found = trying.climb(asked, trying.in_processes(asked), lambda said: None).rows[1].speedup
    if found is None or found.interval is None:
        return False, "nothing was measured"
    low, high = found.interval
    said = f"{found.value:.3f} ({low:.3f} to {high:.3f}), {found.rounds} rounds"
    return low <= ratio <= high, said


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=60.0, help="begin no ladder after so many")
    parser.add_argument("--rounds", type=int, default=8, help="of a ladder, at most")
    parser.add_argument("--seconds", type=float, default=trying.LEAST_S, help="of steady steps in a training")
    options = parser.parse_args()
    trying.LEAST_S, end_s = options.seconds, time.monotonic() + options.minutes * 60
    held: dict[float, list[bool]] = {ratio: [] for ratio in RATIOS}
    for _ in range(options.repeats):
        for ratio in RATIOS:
            if time.monotonic() > end_s:
                break
            folder = Path(tempfile.mkdtemp(prefix="ladder-truth-"))
            holds, said = one(ratio, folder, minutes=4.0, rounds=options.rounds)
            shutil.rmtree(folder, ignore_errors=True)
            held[ratio].append(holds)
            print(f"{ratio}: {said}: {'holds' if holds else 'DOES NOT HOLD'}", flush=True)
    for ratio, all_of in held.items():
        print(f"{ratio}: {sum(all_of)} of {len(all_of)} hold")


if __name__ == "__main__":
    main()
