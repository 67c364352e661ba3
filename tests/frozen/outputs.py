"""The outputs that are frozen, made anew: by group, a name and what the command of that name prints."""

from __future__ import annotations

import contextlib
import inspect
import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import mpprof
from mpprof.api import workflows
from mpprof.cli import NAMES, main
from mpprof.model.finding import Diagnosis
from mpprof.model.run import Run
from tests.frozen.fits import recorded, recorded_on_jax
from tests.paths import ROOT, SHARED, SHARED_DATA

SAMPLES = "sample_traces"
TABLES = ("kernels", "products", "ops", "layers", "memory")
CARDS = (None, (7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0))
"""Compute capabilities for which kernel names are judged; None: not known."""
AGES = re.compile(r'("last_written_unix_ns": )[^,}\]]+')
"""What a list of runs says of the moment at which the files were written to this disk."""

_analyses: dict[Any, workflows.Analysis] = {}
_analyse = workflows.analyse


def _analysed_once(run: Run, *, strict: bool = False) -> workflows.Analysis:
    """Analyse a sample for all commands that show it: of the same files it is the same each time."""
    key = run.path, run.traces, run.step_range, bool(run.hosts), strict
    if key not in _analyses:
        _analyses[key] = _analyse(run, strict=strict)
    return _analyses[key]


Output = dict[str, Any]
"""`exit`, and what was printed: `document` where that is JSON, `rows` where each line is, else `text`."""


def of(*arguments: str, stdin: str = "") -> Output:
    """Return what `mpprof` does with these arguments, in the root of the project, on a terminal of 100 columns."""
    out, err = io.StringIO(), io.StringIO()
    before, sys.stdin = sys.stdin, io.StringIO(stdin)
    width, os.environ["COLUMNS"] = os.environ.get("COLUMNS"), "100"
    try:
        with (
            contextlib.chdir(ROOT),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
            mock.patch.object(workflows, "analyse", _analysed_once),
        ):
            try:
                code = main([*arguments, "--no-cache", "--no-color", "--quiet"])
            except SystemExit as left:
                code = int(left.code or 0)
    finally:
        sys.stdin = before
        del os.environ["COLUMNS"]
        os.environ |= {} if width is None else {"COLUMNS": width}
    printed = AGES.sub(r"\1null", out.getvalue())
    try:
        return (
            {"exit": code, "document": json.loads(printed)}
            if printed
            else {"exit": code, "text": err.getvalue()}
        )
    except ValueError:
        return {"exit": code, "text": printed + err.getvalue()}


def samples() -> list[str]:
    """Return the names of the sample runs."""
    return sorted(path.parent.name for path in (ROOT / SAMPLES).glob("*/origin.json"))


def pairs() -> Iterator[tuple[str, str]]:
    """Yield each sample that computes in 16 bits with its float32 twin, where it has one."""
    there = samples()
    for name in there:
        base = re.sub(r"(-padded)?-mixed-b?float16$", "-float32", name)
        if base != name and base in there:
            yield name, base
    yield "v100-float32-island", "v100-convnet-float32"
    yield "v100-loss-scale-thrash", "v100-convnet-float32"


def reports() -> Iterator[tuple[str, Output]]:
    """Yield the documents of all samples and pairs."""
    for name in samples():
        yield f"report {name}", of("report", f"{SAMPLES}/{name}", "--format", "json")
    for name, base in pairs():
        paths = (f"{SAMPLES}/{base}", f"{SAMPLES}/{name}")
        yield f"report {name} --baseline", of("report", paths[1], "--baseline", paths[0], "--format", "json")
        yield f"compare {base} {name}", of("compare", *paths, "--format", "json")
    yield "ls", of("ls", SAMPLES, "--format", "json")
    yield "survey", of("survey", SAMPLES, "--workers", "1", "--format", "json")


def tables() -> Iterator[tuple[str, Output]]:
    """Yield the tables of all samples, whole."""
    for name in samples():
        for command in TABLES:
            yield f"{command} {name}", of(command, f"{SAMPLES}/{name}", "--format", "json", "--limit", "0")


def texts() -> Iterator[tuple[str, Output]]:
    """Yield what a person reads: each sample and pair on the terminal, long and short, and in Markdown."""
    for name in samples():
        for options in ((), ("-v",), ("--format", "markdown")):
            yield " ".join(("report", name, *options)), of("report", f"{SAMPLES}/{name}", *options)
    for name, base in pairs():
        paths = (f"{SAMPLES}/{base}", f"{SAMPLES}/{name}")
        for options in ((), ("-v",)):
            shown = of("report", paths[1], "--baseline", paths[0], *options)
            yield " ".join(("report", name, "--baseline", *options)), shown
        yield f"compare {base} {name}", of("compare", *paths)
    for rule in sorted(_codes()):
        yield f"explain {rule}", of("explain", rule)


def _codes() -> set[str]:
    from mpprof.diagnosis.rules import ALL

    return {rule.CODE for rule in ALL}


def verdicts() -> Iterator[tuple[str, Output]]:
    """Yield where each kernel of the sample runs is placed by its name alone, for each generation of cards."""
    names = sorted(set(_kernel_names()))
    for card in CARDS:
        yield f"classify {card}", _classified(names, card)


def _kernel_names() -> Iterator[str]:
    for name in samples():
        shown = of("kernels", f"{SAMPLES}/{name}", "--format", "json", "--limit", "0")
        yield from (row["name"] for row in shown.get("document") or ())


def _classified(names: list[str], card: tuple[int, int] | None) -> Output:
    from mpprof.analysis.kernels.names import classify

    found = [(name, classify(name, card, "nvidia" if card else "unknown")) for name in names]
    return {
        "exit": 0,
        "document": {name: [v.placement, v.precision, v.family, v.reason.code] for name, v in found},
    }


def surface() -> Iterator[tuple[str, Output]]:
    """Yield the public names with their signatures, and every command's help."""
    shown: dict[str, str | None] = {}
    for name in mpprof.__all__:
        thing = getattr(mpprof, name)
        made_late = inspect.isclass(thing) and thing.__module__.startswith(
            ("mpprof.model", "mpprof.api.results")
        )
        # A frozen class has its signature once one of its kind was made.
        stated = str(inspect.signature(thing)) if callable(thing) and not made_late else None
        shown[name] = None if stated is None else re.sub(r" at 0x\w+", "", stated)
    yield "names", {"exit": 0, "document": shown}
    for name in NAMES:
        yield f"{name} --help", of(name, "--help")


def planted() -> Iterator[tuple[str, Output]]:
    """Yield the causes of each planted case in their order, with what each costs and gains."""
    import tempfile

    from tests.planted.matrix import analysed
    from tests.planted.suite import planted as cases

    for case in cases():
        with tempfile.TemporaryDirectory() as folder:
            yield case.name, causes(analysed(case.training, case.baseline, Path(folder)).judged())


def causes(judged: Diagnosis) -> Output:
    """Return what is kept of a planted case."""
    rows = [
        {"code": f.code, "cost_ns": f.cost_ns_per_step, "gain_ns": f.gain_ns_per_step}
        for f in judged.findings
    ]
    return {"exit": 0, "document": rows}


def real() -> Iterator[tuple[str, Output]]:
    """Yield, of each trace that others recorded, the figures and codes of its report and no text of it; nothing where
    the traces are not there."""
    for path in sorted(path for path in SHARED.rglob("*") if path.is_file()):
        shown = of("report", str(path), "--format", "json")
        yield (
            str(path.relative_to(SHARED)),
            {"exit": shown["exit"], "document": _figures(shown.get("document"))},
        )


def _figures(value: Any) -> Any:
    """Return a document without its texts, but for codes and classes."""
    if isinstance(value, dict):
        return {key: _figures(each) if key not in _SAID else each for key, each in value.items()}
    if isinstance(value, list):
        return [_figures(each) for each in value]
    return len(value) > 0 if isinstance(value, str) else value


_SAID = {
    "code",
    "class",
    "basis",
    "kind",
    "leads",
    "severity",
    "confidence",
    "placement",
    "precision",
    "family",
    "unit",
}


def truth() -> Iterator[tuple[str, Output]]:
    """Yield how the names of the truth sets are placed, in their order; nothing where they are not there."""
    import csv
    import gzip

    for name in ("kernel_truth.csv", "kernel_names.csv"):
        if not (path := SHARED_DATA / name).exists():
            continue
        with path.open(newline="") as file:
            names = [row["kernel_name"] for row in csv.DictReader(file)]
        for card in CARDS:
            yield f"{name} {card}", _unnamed(_classified(names, card))
    if (path := SHARED_DATA / "static_tensorflow_2.20_sm80.json.gz").exists():
        names = [name for name, _ in json.loads(gzip.decompress(path.read_bytes()))]
        yield path.name, _unnamed(_classified(names, (8, 0)))


def _unnamed(shown: Output) -> Output:
    return {"exit": 0, "document": [" ".join(each) for each in shown["document"].values()]}


GROUPS: dict[str, Callable[[], Iterator[tuple[str, Output]]]] = {
    "reports": reports,
    "tables": tables,
    "texts": texts,
    "verdicts": verdicts,
    "surface": surface,
    "planted": planted,
    "records": recorded,
    "records-jax": recorded_on_jax,
    "real": real,
    "truth": truth,
}
