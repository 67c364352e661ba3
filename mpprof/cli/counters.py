"""`mpprof counters`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mpprof.cli import output, paths
from mpprof.errors import MpprofError, NotFoundError, UnreadableError

if TYPE_CHECKING:
    from mpprof.model.kernels import Verdict
    from mpprof.model.run import Run

    Verdicts = dict[tuple[str, str], Verdict]

MOST_BYTES = 1 << 30
"""A CSV is read whole; one that is larger was recorded without a launch limit."""


class Counters:
    """Read Nsight Compute's counters: verified Tensor Core use.

    FILE is the CSV of Nsight Compute, of the raw page (ncu --csv --page raw) or the
    details page. With --run the verdicts are kept with that run, and its reports
    and tables use them before anything else. Without --run they are only shown, and
    kernels that XLA or Inductor named are left out, because the same name is
    another kernel in another program. `mpprof verify` records such a file."""

    name = "counters"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("file", metavar="FILE.csv", type=Path, help="the CSV that ncu wrote")
        add_target(parser)
        parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")

    def run(self, args: argparse.Namespace) -> int:
        verdicts = take(read_lines(args.file), args, where=str(args.file))
        show(verdicts, args.format)
        return 0


def add_target(parser: argparse.ArgumentParser) -> None:
    """Add `--run` and `--gpu`: whose kernels were counted."""
    parser.add_argument(
        "--run",
        dest="run_path",
        metavar="RUN",
        type=Path,
        help="the run (its log directory) to keep the verdicts with",
    )
    parser.add_argument("--gpu", metavar="NAME", help="the card that the kernels ran on; default: the run's")


def take(lines: list[str], args: argparse.Namespace, *, where: str) -> Verdicts:
    """Keep the verdicts of a CSV with the run that is named, and return them; raises MpprofError."""
    from mpprof import store
    from mpprof.analysis.kernels import counters
    from mpprof.analysis.kernels.names import is_generic
    from mpprof.report import words

    run = target(args)
    verdicts = counters.verdicts(lines, card=args.gpu or (_card(run) if run else ""), where=where)
    if not verdicts:
        output.note(args, "no verdict: these counters do not show what the tensor pipe was busy with")
    if run is None and (generic := [key for key in verdicts if is_generic(key[0])]):
        left = f"{words.plural(len(generic), 'kernel')} left out: a compiler made the names"
        kept = "which stand for other work in other programs; --run keeps them with the run that was counted"
        output.note(args, f"{left}, {kept}")
        verdicts = {key: verdict for key, verdict in verdicts.items() if key not in generic}
    if run is not None and verdicts:
        devices = run.devices
        try:
            old = counters.as_proven(store.read_counters(run.path), devices)
            unproven = [key for key, verdict in old.items() if verdict.reason.code == counters.NOT_PROVEN]
            path = store.write_counters(run.path, verdicts, without=unproven)
        except OSError as error:
            raise MpprofError(
                f"cannot be written ({error.strerror})", where=str(run.path), next="Check its permissions"
            ) from error
        output.note(args, f"{words.plural(len(verdicts), 'kernel')} verified; kept in {path}")
    return verdicts


def target(args: argparse.Namespace) -> Run | None:
    """Return the run that `--run` names; None without it. Raises NotFoundError for a run that has no
    records."""
    from mpprof.api import workflows

    if args.run_path is None:
        return None
    paths.refuse_address(args.run_path, "counters are kept beside the run")
    run: Run = workflows.load(args.run_path)
    if run.facts is None and run.steps is None:
        raise NotFoundError(
            "holds no records of a run to keep counters with",
            where=str(args.run_path),
            next="Give the log directory of MPProfilerCallback, or leave out --run to print them only",
        )
    return run


def _card(run: Run) -> str:
    """Return the name of the run's card, where all of its cards are of one kind; "" for any."""
    names = {device.name for device in run.devices if device.kind == "gpu"}
    return (names.pop() or "") if len(names) == 1 else ""


def read_lines(path: Path) -> list[str]:
    """Return the lines of a CSV. Raises UnreadableError."""
    try:
        if path.stat().st_size > MOST_BYTES:
            raise UnreadableError(
                "is larger than 1 GiB", where=str(path), next="Record fewer launches: ncu --launch-count 2000"
            )
        return path.read_text(encoding="utf-8-sig", errors="backslashreplace").splitlines()
    except OSError as error:
        raise UnreadableError(
            f"cannot be read ({error.strerror})", where=str(path), next="Check the path and its permissions"
        ) from error


def show(verdicts: Verdicts, form: str) -> None:
    """Show one row per kernel: what it is, and which counter says so."""
    from mpprof.report import json as documents
    from mpprof.report import words

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "card": card or None,
            "placement": verdict.placement,
            "precision": verdict.precision,
            "family": verdict.family,
            "reason": {"code": verdict.reason.code, "text": verdict.reason.text},
        }
        for (name, card), verdict in sorted(verdicts.items())
    ]
    if form == "json":
        output.write(documents.dumps(rows), None)
        return
    lines = []
    for row in rows:
        said = f"{row['placement']:<12} {row['precision']:<8} {row['family']:<12}"
        lines += [f"{said} {words.plain(row['name'])}", f"{'':<13}{words.plain(row['reason']['text'])}"]
    output.write("\n".join(lines), None)
