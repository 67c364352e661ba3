"""Compile the steps of `measured.csv`, and write what forecasts are calibrated by:
`python -m tests.forecasts.make_calibration [MODEL...]`.

Needs the extra mpprof[forecast-cuda12]; no GPU. A row of `measured.csv` is a step that somebody measured, with its
source; those with a name are the cases that forecasts are held to, which were listed first. `compiled_steps.csv` gets
what the compiled programs say of each step; `mpprof/forecasts/measured_steps.csv` both, for families that are told
apart. Models that stand for one another (`SAME`) count as one.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from mpprof.forecasts import compiling, judging, targets
from mpprof.forecasts.judging import Compiled
from mpprof.model.frozen import frozen
from mpprof.store.facts import facts_of

HERE = Path(__file__).parent
COMPILED = HERE / "compiled_steps.csv"
TABLE = Path(judging.__file__).with_name("measured_steps.csv")
SAME = {
    "resnet50_bytes": "resnet",
    "transfer": "resnet",
    "convnet_bytes": "published_convnet",
    "bert_base": "electra_base",
}
"""The same network, with another first or last layer."""


@frozen
class Step:
    """A measured step. `case` "": it only calibrates."""

    case: str
    model: str
    card: str
    policy: str
    batch_size: int
    step_ns: float
    source: str

    @property
    def key(self) -> tuple[str, str, str, int]:
        return self.model, self.card, self.policy, self.batch_size

    @property
    def network(self) -> str:
        return SAME.get(self.model, self.model)


@frozen
class Told:
    """What its compiled program says of a step. `kernels`: how many run in it."""

    family: str
    roofline_ns: float
    at_least_ns: float
    kernels: int


def measured() -> list[Step]:
    """Every measured step, in the order of the file."""
    with (HERE / "measured.csv").open(encoding="utf-8", newline="") as lines:
        return [
            Step(row["case"], row["model"], row["card"], row["policy"], int(row["batch"]),
                 float(row["step_ms"]) * 1e6, row["source"])
            for row in csv.DictReader(lines)
        ]  # fmt: skip


def compiled_steps() -> dict[tuple[str, str, str, int], Told]:
    """What was compiled, by model, card, policy and batch."""
    if not COMPILED.exists():
        return {}
    with COMPILED.open(encoding="utf-8", newline="") as lines:
        return {
            (row["model"], row["card"], row["policy"], int(row["batch"])): Told(
                row["family"],
                float(row["roofline_ms"]) * 1e6,
                float(row["least_ms"]) * 1e6,
                int(row["kernels"]),
            )
            for row in csv.DictReader(lines)
        }


def told(compiled: Compiled, card: str) -> Told:
    model = facts_of({"run_id": "forecast", "model": compiled.result["model"]}).model
    run = judging.card_forecast(compiled, targets.card(card), model, None)
    assert run.roofline_ns is not None
    kernels = sum(1 if one.count is None else one.count for one in run.kernels)
    return Told(run.family, run.roofline_ns, run.at_least_ns, kernels)


def table(steps: Iterable[Step], known: dict[tuple[str, str, str, int], Told]) -> list[dict[str, Any]]:
    """The rows of the product's table: of every step whose family is told."""
    return [
        {
            "family": known[step.key].family,
            "model": step.network,
            "compute_capability": ".".join(map(str, targets.card(step.card).compute_capability)),
            "policy": step.policy,
            "batch": step.batch_size,
            "measured_ms": f"{step.step_ns / 1e6:.4g}",
            "roofline_ms": f"{known[step.key].roofline_ns / 1e6:.4g}",
            "kernels": known[step.key].kernels,
            "source": step.source,
        }
        for step in steps
        if step.key in known and known[step.key].family
    ]


def write(path: Path, rows: list[dict[str, Any]]) -> None:
    with path.open("w", encoding="utf-8", newline="") as lines:
        made = csv.DictWriter(lines, list(rows[0]), lineterminator="\n")
        made.writeheader()
        made.writerows(rows)


def store(known: dict[tuple[str, str, str, int], Told]) -> None:
    names = ("model", "card", "policy", "batch")
    rows = [
        {**dict(zip(names, key, strict=True)), "family": one.family, "roofline_ms": f"{one.roofline_ns / 1e6:.4g}",
         "least_ms": f"{one.at_least_ns / 1e6:.4g}", "kernels": one.kernels}
        for key, one in known.items()
    ]  # fmt: skip
    write(COMPILED, rows)
    write(TABLE, table(measured(), compiled_steps()))


def main(models: list[str]) -> None:
    known = compiled_steps()
    for step in measured():
        if not models or step.model in models:
            source = f"tests.forecasts.published_models:{step.model}"
            made = compiling.compiled(source, targets.card(step.card), step.policy, step.batch_size)
            known[step.key] = told(made, step.card)
            print(*step.key, known[step.key])
    store(known)


if __name__ == "__main__":
    main(sys.argv[1:])
