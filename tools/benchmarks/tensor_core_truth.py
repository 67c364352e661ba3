"""Where kernels ran, by mpprof and by XProf's list of name fragments, on the same names and traces.

    python -m tools.benchmarks.tensor_core_truth        prints three tables in Markdown; needs no GPU

First against hardware counters (`kernel_truth.csv` of the shared data), then against the machine code of an
open-source library's wheel (`static_*.json.gz`), then the share of kernel time on Tensor Cores that each sees in
every shared trace. XProf's list: tensorflow/profiler, kernel_stats_utils.cc.
"""

from __future__ import annotations

import csv
import functools
import gzip
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mpprof import traces
from mpprof.analysis.kernels import placement
from mpprof.analysis.kernels.device_peaks import find
from mpprof.analysis.kernels.names import classify
from mpprof.model.kernels import ACCELERATED
from mpprof.model.trace import WorkKind
from tests.paths import SHARED_DATA

FRAGMENTS = (
    "16816", "c1688", "conv1x1", "conv2d_c1_k1", "dgrad_1x1_stride_2x2", "direct_group",
    "first_layer_wgrad_kernel", "h1688", "h884", "hmma", "i16832", "i8816", "s884", "s1688", "xmma_gemm",
    "xmma_implicit_gemm", "xmma_sparse_conv", "xmma_sparse_gemm", "xmma_warp_specialized_implicit_gemm",
)  # fmt: skip
OUTSIDE = {"Blackwell (CC 12.0)": (12, 0)}


def by_fragments(name: str) -> bool:
    return any(fragment in name for fragment in FRAGMENTS)


# Against hardware counters ---------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Score:
    """Of yes-or-no answers against counters; None: undecided. An undecided row counts as a miss in recalls."""

    rows: int
    undecided: int
    wrong: int
    recall_yes: float
    recall_no: float

    @property
    def balanced(self) -> float:
        return (self.recall_yes + self.recall_no) / 2


def truth(path: Path = SHARED_DATA / "kernel_truth.csv") -> list[tuple[str, tuple[int, int] | None, bool]]:
    """Kernel name, compute capability and whether its counters say Tensor Cores."""
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    return [(row["kernel_name"], _capability(row["gpu"]), row["uses_tensor_core"] == "yes") for row in rows]


def _capability(gpu: str) -> tuple[int, int] | None:
    facts = find(gpu)
    return OUTSIDE.get(gpu) or (facts.compute_capability if facts else None)


def score(answers: Sequence[bool | None], expected: Sequence[bool]) -> Score:
    pairs = list(zip(answers, expected, strict=True))

    def recall(of: bool) -> float:
        found = [answer for answer, wanted in pairs if wanted is of]
        return sum(answer is of for answer in found) / (len(found) or 1)

    wrong = sum(answer is not None and answer is not wanted for answer, wanted in pairs)
    undecided = sum(answer is None for answer, _ in pairs)
    return Score(len(pairs), undecided, wrong, recall(True), recall(False))


def ours(name: str, capability: tuple[int, int] | None) -> bool | None:
    said = classify(name, capability, "nvidia").placement
    return None if said == "unknown" else said == "tensor_core"


# Against machine code --------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StaticScore:
    """Of yes-or-no answers for kernels whose machine code was read; None: undecided."""

    kernels: int
    with_instructions: int
    recognised: int
    false: int
    undecided: int


def static_names(path: Path) -> list[tuple[str, bool]]:
    """Kernel name and whether its machine code holds a matrix instruction: without one it cannot use the cores."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [(name, bool(instruction)) for name, instruction in json.load(file)]


def static_files(folder: Path = SHARED_DATA) -> list[tuple[Path, tuple[int, int]]]:
    """The shared lists of kernels read from machine code, with the capability in their names (`…_sm80…`)."""
    found = []
    for path in sorted(folder.glob("static_*_sm*.json.gz")):
        digits = path.name.partition("_sm")[2].partition(".")[0]
        found.append((path, (int(digits[:-1]), int(digits[-1]))))
    return found


def static_score(answers: Sequence[bool | None], holds: Sequence[bool]) -> StaticScore:
    pairs = list(zip(answers, holds, strict=True))
    return StaticScore(
        len(pairs),
        sum(holds),
        sum(answer is True and held for answer, held in pairs),
        sum(answer is True and not held for answer, held in pairs),
        sum(answer is None for answer, _ in pairs),
    )


# On traces -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Share:
    """Shares of a trace's kernel time."""

    trace: str
    card: str
    accelerated: float
    fallback: float
    unknown: float
    fragments: float


def share(path: Path) -> Share | None:
    """None for a trace without kernels."""
    trace = traces.read(path)
    placements = placement.place(trace)
    table = trace.kernels
    kernels = np.flatnonzero(table.kind == WorkKind.KERNEL)
    time = table.duration_ns[kernels]
    if trace.basis != "device" or not time.sum():
        return None
    whole = float(time.sum())

    def of(choose: Callable[[str], bool]) -> float:
        chosen = np.array([choose(verdict.placement) for verdict in placements.verdicts])
        return float(time[chosen[placements.index[kernels]]].sum()) / whole

    named = np.array([by_fragments(name) for name in trace.strings])
    names = sorted({device.facts.name or "?" for device in trace.devices})
    return Share(
        path.name,
        ", ".join(names),
        of(lambda placement: placement in ACCELERATED),
        of(lambda placement: placement == "cuda_core"),
        of(lambda placement: placement == "unknown"),
        float(time[named[table.name[kernels]]].sum()) / whole,
    )


@functools.cache
def shares(folder: Path = SHARED_DATA / "traces") -> tuple[Share, ...]:
    return tuple(found for path in traces.find_traces(folder) if (found := share(path)) is not None)


def main() -> None:
    rows = truth()
    expected = [wanted for _, _, wanted in rows]
    print("| | rows | undecided | wrong | recall of Tensor Core | recall of the rest | balanced accuracy |")
    print("|---|---|---|---|---|---|---|")
    answers = {
        "mpprof": [ours(name, capability) for name, capability, _ in rows],
        "XProf's 19 fragments": [by_fragments(name) for name, _, _ in rows],
    }
    for label, given in answers.items():
        found = score(given, expected)
        cells = (found.rows, found.undecided, found.wrong)
        print(f"| {label} | {' | '.join(map(str, cells))} ", end="")
        print(f"| {found.recall_yes:.1%} | {found.recall_no:.1%} | {found.balanced:.1%} |")
    print("\n| | kernels | with matrix instructions | of them recognised | falsely Tensor Core | unknown |")
    print("|---|---|---|---|---|---|")
    for path, capability in static_files():
        names = static_names(path)
        by = {
            "mpprof": [ours(name, capability) for name, _ in names],
            "XProf's 19 fragments": [by_fragments(name) for name, _ in names],
        }
        library = path.name.removeprefix("static_").partition("_sm")[0].replace("_", " ")
        for label, given in by.items():
            of = static_score(given, [holds for _, holds in names])
            print(
                f"| {label} on {library} | {of.kernels} | {of.with_instructions} | {of.recognised} ", end=""
            )
            print(f"| {of.false} | {of.undecided} ({of.undecided / (of.kernels or 1):.2%}) |")
    print("\n| trace | card | Tensor or matrix cores | fallback | unknown | XProf's fragments |")
    print("|---|---|---|---|---|---|")
    for one in shares():
        columns = (one.accelerated, one.fallback, one.unknown, one.fragments)
        print(f"| {one.trace} | {one.card} | {' | '.join(f'{value:.1%}' for value in columns)} |")


if __name__ == "__main__":
    main()
