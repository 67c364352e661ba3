"""Options that make a command fail: `--fail-on`, `--min-speedup`, `--allow-unable`; exit code 1."""

from __future__ import annotations

import argparse
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import output
from mpprof.report import words

if TYPE_CHECKING:
    from mpprof.model.report import ComparedRuns, Report
    from mpprof.report.checks import Forbidden, Outcome

FAILED = 1
GITHUB = "github"


def add_fail_on(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add `--fail-on` and `--allow-unable`."""
    group = parser.add_argument_group(
        "checks",
        "exit code 1 and a line on stderr for each check that failed; the\nreport is still written",
    )
    group.add_argument(
        "--fail-on",
        metavar="CAUSE,…",
        help="fail on these findings: codes (MP104), names (float32-island), or severities, each of which "
        "stands for the worse ones too (error, warning, info); for two runs also diverged-loss",
    )
    add_allow_unable(group)
    add_ignore(group)
    return group


def add_allow_unable(parser: argparse._ActionsContainer) -> None:
    """Add `--allow-unable`."""
    parser.add_argument(
        "--allow-unable",
        action="store_true",
        help="let a check pass that cannot be judged; without this option it fails and is named",
    )


def add_ignore(parser: argparse._ActionsContainer) -> None:
    """Add `--bounds`, of whose file [ignore] is read."""
    parser.add_argument(
        "--bounds",
        metavar="FILE",
        type=Path,
        help="show the findings under [ignore] in this file (see docs/checks.md) as dismissed",
    )


def ignored(args: argparse.Namespace) -> Mapping[str, str]:
    """Return the findings that are dismissed: reason by code; none without --bounds. Raises UsageError for a
    file that is no file of bounds."""
    if args.bounds is None:
        return {}
    from mpprof.report import bounds_file

    return bounds_file.ignored(args.bounds)


def add_min_speedup(group: argparse._ArgumentGroup) -> None:
    """Add `--min-speedup`."""
    group.add_argument(
        "--min-speedup",
        metavar="X",
        type=_speedup,
        help="fail unless the whole 95 %% interval of a RUN's speedup over BASELINE is X or more",
    )


def _speedup(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r} is not a speedup: give a number above 0, such as 1.5")
    return value


def forbidden(args: argparse.Namespace, *, compared: bool = False) -> Forbidden | None:
    """Return what --fail-on names; None without it. Raises UsageError for a name that does not exist."""
    if args.fail_on is None:
        return None
    from mpprof.report import checks

    wanted = checks.forbidden(args.fail_on.split(","), compared=compared, option="--fail-on")
    return checks.without(wanted, ignored(args))


def of_report(args: argparse.Namespace, document: Report, wanted: Forbidden | None) -> int:
    """Judge --fail-on; returns the exit code."""
    if wanted is None:
        return 0
    from mpprof.report import checks

    _note_unable(args, [document], wanted)
    return conclude(args, checks.of_findings(document, wanted))


def of_comparison(args: argparse.Namespace, document: ComparedRuns, wanted: Forbidden | None) -> int:
    """Judge --fail-on and --min-speedup for every run against the first; returns the exit code."""
    if wanted is None and args.min_speedup is None:
        return 0
    from mpprof.report import checks

    first, *later = document.runs
    outcomes: list[Outcome] = []
    if args.min_speedup is not None:
        outcomes += [checks.of_speedup(run, args.min_speedup, first) for run in later]
    if wanted is not None:
        _note_unable(args, later, wanted)
        outcomes += [outcome for run in later for outcome in checks.of_findings(run, wanted)]
        outcomes += checks.of_losses(document, wanted)
    return conclude(args, outcomes)


def _note_unable(args: argparse.Namespace, reports: Iterable[Report], wanted: Forbidden) -> None:
    """Note how many causes had no finding because they could not be judged: a severity is judged by the
    findings."""
    for report in reports if wanted.severity is not None else ():
        if count := sum(each.code not in wanted.codes for each in report.unable):
            output.note(
                args,
                f"note: --fail-on {wanted.severity} is judged without {count} causes of "
                f"{report.run.name} that could not be judged; name a cause to require it",
            )


def conclude(args: argparse.Namespace, outcomes: Iterable[Outcome]) -> int:
    """Write a line on stderr for each check that failed; returns the exit code."""
    found = [each for each in outcomes if each.verdict != "passed"]
    failed = [each for each in found if each.verdict == "failed" or not args.allow_unable]
    for each in failed:
        hint = " (--allow-unable lets it pass)" if each.verdict == "unable" else ""
        text = f"{' '.join(each.text.split())}{hint}"
        output.complain(f"failed: {each.check}: {text}")
        if annotates(args):
            output.say(annotation(f"mpprof: {each.check}", text))
    return FAILED if failed else 0


def annotates(args: argparse.Namespace) -> bool:
    """Return whether failed checks become annotations of GitHub Actions: they do there, and with `--format
    github`."""
    return os.environ.get("GITHUB_ACTIONS") == "true" or getattr(args, "format", None) == GITHUB


def annotation(title: str, text: str) -> str:
    """Return an error as GitHub Actions takes it from a step's output. Names from foreign files cannot begin
    another command: line breaks are written out."""
    return f"::error title={_escaped(title, property=True)}::{_escaped(words.plain(text))}"


def _escaped(text: str, *, property: bool = False) -> str:
    pairs = [("%", "%25"), ("\r", "%0D"), ("\n", "%0A"), *([(":", "%3A"), (",", "%2C")] if property else [])]
    for sign, code in pairs:
        text = text.replace(sign, code)
    return text
