"""Do the forecasts hold? Predicted step times of remedies against reruns with the remedy applied.

    python -m tools.gpu.forecasts record OUT [--tiny] [--steps 60] [--seconds N]     needs a GPU
    python -m tools.gpu.forecasts judge OUT [--tiny]                                 needs none

For each remedy: train before and after, ask mpprof about *before* (with the float32 run as its baseline), and hold the
what-if of the finding that names the remedy against the measured step of *after*. `judge` prints a markdown table.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from mpprof.api import workflows
from mpprof.model.finding import Diagnosis
from mpprof.model.quantities import format_ns, format_ratio, format_speedup
from tools.gpu.models import VOCABULARY, Case
from tools.gpu.record_cases import TINY, Job, record

JAX = {"KERAS_BACKEND": "jax"}


@dataclass(frozen=True)
class Remedy:
    """One change and the codes of the findings that would ask for it."""

    name: str
    codes: tuple[str, ...]
    before: Case
    after: Case
    delay_before_s: float = 0.0
    images_per_step_grow: bool = False  # compare per sample, not per step


def remedies(tiny: bool) -> tuple[Remedy, ...]:
    """The six of the plan: vocabulary, batch, float32 island, XLA, input pipeline, loss scale."""

    def case(model: str, batch: int, policy: str = "mixed_float16", **knobs: object) -> Case:
        return Case(model, 4 if tiny else batch, policy, {**(TINY[model] if tiny else {}), **knobs})

    text, image = case("transformer", 32), case("convnet", 128)
    padded = -(-(TINY["transformer"]["vocabulary"] if tiny else VOCABULARY) // 64) * 64
    return (
        Remedy("pad the vocabulary", ("MP402", "MP401"), text, case("transformer", 32, vocabulary=padded)),
        Remedy("raise the batch", ("MP302", "MP303"), case("convnet", 8), case("convnet", 64), images_per_step_grow=True),
        Remedy("drop the float32 island", ("MP104",), case("transformer", 32, island=True), text),
        Remedy("switch XLA on", ("MP309", "MP501", "MP302"), replace(image, jit_compile=False), image),
        Remedy("a faster input pipeline", ("MP301",), image, image, delay_before_s=0.05),
        Remedy("no loss scaling (bfloat16)", ("MP304",), text, case("transformer", 32, "mixed_bfloat16")),
    )  # fmt: skip


def parts(remedy: Remedy) -> tuple[tuple[Case, float], ...]:
    """The trainings of a remedy, with the delay of their batches: the baseline, before, after."""
    late = remedy.delay_before_s
    return (replace(remedy.before, policy="float32"), late), (remedy.before, late), (remedy.after, 0.0)


def place(out: Path, case: Case, delay_s: float) -> Path:
    return out / (f"{case.name}-late" if delay_s else case.name)


def jobs(out: Path, steps: int, *, tiny: bool) -> Iterator[Job]:
    """Each training once, whichever remedies need it."""
    every = {place(out, *part): part for remedy in remedies(tiny) for part in parts(remedy)}
    for logdir, (case, delay_s) in every.items():
        yield Job(case, logdir, steps, delay_s=delay_s, environment=JAX)


def rows(out: Path, *, tiny: bool) -> Iterator[str]:
    """One line of the table per remedy that was recorded."""
    for remedy in remedies(tiny):
        base, before, after = (place(out, *part) for part in parts(remedy))
        if all((folder / "mpprof").is_dir() for folder in (base, before, after)):
            yield row(remedy, judged(before, base), judged(after, None))


def judged(logdir: Path, baseline: Path | None) -> Diagnosis:
    return workflows.diagnose(workflows.load(logdir), workflows.load(baseline) if baseline else None)


def row(remedy: Remedy, before: Diagnosis, after: Diagnosis) -> str:
    """Prediction, measurement, error; "not found" where no finding asked for the remedy."""
    measured = after.steps.median_ns if after.steps else None
    finding = next((f for f in before.findings if f.code in remedy.codes), None)
    predicted = finding.whatif_step_ns if finding else None
    expected = before.speedup.expected if before.speedup else None
    cells = [
        remedy.name,
        finding.code if finding else "not found",
        format_ns(before.steps.median_ns if before.steps else None),
        format_ns(predicted),
        format_ns(measured),
        format_ratio(predicted / measured - 1)
        if predicted and measured and not remedy.images_per_step_grow
        else "-",
        format_speedup(expected),
        format_speedup(before.speedup.observed if before.speedup else None),
    ]
    return "| " + " | ".join(cells) + " |"


HEAD = """| remedy | finding | step before | predicted | measured | error | expected speedup | observed |
| --- | --- | --- | --- | --- | --- | --- | --- |"""


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("record", "judge"))
    parser.add_argument("out", type=Path)
    parser.add_argument("--tiny", action="store_true")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--seconds", type=float, default=1e9)
    args = parser.parse_args()
    if args.action == "record":
        for job, code in record(jobs(args.out, args.steps, tiny=args.tiny), args.out, args.seconds):
            print(f"{job.logdir}: {'done' if code == 0 else f'exit code {code}'}", flush=True)
        return
    print(HEAD)
    for line in rows(args.out, tiny=args.tiny):
        print(line, flush=True)


if __name__ == "__main__":
    main()
