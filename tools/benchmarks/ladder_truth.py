"""How many live ladders hold the true ratio of their script: `python -m tools.benchmarks.ladder_truth`.

Two scripts (trials/paced.py), whose steps sleep: in float32 1.6 times as long as in 16 bits, or as long.
Each process is off by 3 %, by chance. For each, 20 ladders are climbed as `mpprof try` does, and a table shows how many
intervals hold the ratio (17 of 20 at least), how wide they are (10 % at most), and what is said of equal settings.

`--remedies` instead tries the remedies of three scripts whose cause is planted, and prints what each was promised, has
brought, and truly brings; that takes ten minutes.

The ladders take an hour on a core of their own. Each ladder is a line of the file that `--into` names; begun again, it goes on.
The exit code is 1 where a bound is broken.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from mpprof.trial import trying
from mpprof.trial.rounds import interval
from mpprof.trial.settings import Choices

SCRIPT = Path(__file__).parent / "trials" / "paced.py"
RATIOS = (1.6, 1.0)
REMEDIES = {
    "prefetches.py": "prefetch=auto: a batch in 20 ms while the step takes 20 ms: up to 2x",
    "workers.py": "workers=8: eight batches in the 40 ms of one: up to 8x",
    "loss_scale.py": "loss_scale=1024: no updates skipped; of 2^100 it takes some 90",
}
"""Scripts with a planted cause, and what its switch truly brings."""
LEAST_HELD, MOST_WIDE = 17 / 20, 0.10


def one(ratio: float, minutes: float) -> dict[str, Any]:
    """Climb a ladder; return what it shows of the ratio."""
    folder, begun = Path(tempfile.mkdtemp(prefix="ladder-truth-")), time.monotonic()
    choices = Choices(("float32", "mixed_bfloat16"))
    words = (str(SCRIPT), str(ratio))
    asked = trying.Asked(words, SCRIPT.name, folder, choices, minutes=minutes)
    try:
        found = trying.climb(asked, trying.in_processes(asked), lambda said: None).rows[1].speedup
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    shown = {"true": ratio, "said": interval(found), "seconds": time.monotonic() - begun}
    if found is None or found.interval is None:
        return {**shown, "holds": False}
    low, high = found.interval
    holds, width = low <= ratio <= high, (high - low) / found.value
    return {**shown, "holds": holds, "width": width, "rounds": found.rounds}


def remedied(script: str, minutes: float) -> list[str]:
    """Try the remedies of a script; return a line on each that was tried."""
    folder = Path(tempfile.mkdtemp(prefix="remedies-truth-"))
    path = SCRIPT.with_name(script)
    asked = trying.Asked((str(path),), script, folder, remedies=True, minutes=minutes, most_rounds=4)
    try:
        found = trying.climb(asked, trying.in_processes(asked), lambda said: None).outcomes
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return [f"{each.promise.code} {each.change}: {each.said}" for each in found] or ["no remedy was tried"]


def table(ladders: Sequence[dict[str, Any]]) -> tuple[list[str], bool]:
    """Return the table of these ladders, and whether they keep to the bounds."""
    lines = [f"{'true':>5} {'ladders':>8} {'hold':>5} {'width, median':>14} {'most':>7} {'within 10 %':>12} "
             f"{'rounds':>7} {'no difference':>14}"]  # fmt: skip
    kept = True
    for ratio in RATIOS:
        mine = [each for each in ladders if each["true"] == ratio]
        widths = sorted(each["width"] for each in mine if "width" in each)
        if not widths:
            lines.append(f"{ratio:5} {len(mine):8} nothing was measured")
            kept = False
            continue
        held, narrow = (sum(each["holds"] for each in mine), sum(width <= MOST_WIDE for width in widths))
        none = sum("no difference" in each["said"] for each in mine)
        rounds = sum(each.get("rounds", 0) for each in mine) / len(mine)
        lines.append(f"{ratio:5} {len(mine):8} {held:5} {widths[len(widths) // 2]:14.1%} {widths[-1]:7.1%} "
                     f"{narrow:12} {rounds:7.1f} {none:14}")  # fmt: skip
        kept &= held >= LEAST_HELD * len(mine) and narrow == len(mine)
    return lines, kept


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--minutes", type=float, default=20.0, help="of a ladder, at most")
    parser.add_argument(
        "--seconds", type=float, default=1.5, help="of steady steps in a training, 60 steps at least"
    )
    parser.add_argument("--into", type=Path, default=Path("build/ladder_truth.jsonl"))
    parser.add_argument("--remedies", action="store_true", help="try the remedies of planted causes instead")
    options = parser.parse_args()
    trying.LEAST_S = options.seconds
    if options.remedies:
        for script, truth in REMEDIES.items():
            print("\n    ".join([f"{script}, truly {truth}", *remedied(script, options.minutes)]), flush=True)
        return 0
    options.into.parent.mkdir(parents=True, exist_ok=True)
    ladders = (
        [json.loads(line) for line in options.into.read_text().splitlines()] if options.into.exists() else []
    )
    for _ in range(options.repeats):
        for ratio in RATIOS:
            if sum(each["true"] == ratio for each in ladders) >= options.repeats:
                continue
            found = one(ratio, options.minutes)
            ladders.append(found)
            with options.into.open("a") as file:
                file.write(json.dumps(found) + "\n")
            holds = "holds" if found["holds"] else "DOES NOT HOLD"
            print(f"{ratio}: {found['said']}, {found['seconds']:.0f} s: {holds}", flush=True)
    lines, kept = table(ladders)
    print("\n".join(lines))
    return 0 if kept else 1


if __name__ == "__main__":
    sys.exit(main())
