"""`mpprof verify`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from mpprof.cli import counters, output
from mpprof.cli.values import whole
from mpprof.errors import NotFoundError, UnableError, UsageError

LAUNCHES = 2000
_positive = whole("a number of launches")
QUERY_SECONDS = 120
PERMISSION = "https://developer.nvidia.com/ERR_NVGPUCTRPERM"


class Verify:
    """Run a command under Nsight Compute to count Tensor Core use.

    Write the command after two dashes: mpprof verify --run LOGDIR -- python
    train.py --steps 20. Each kernel is replayed for the counters it needs, so the
    command runs many times slower: let it train a few steps. The times that it
    takes under ncu are not used; only where the kernels ran is kept."""

    name = "verify"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        counters.add_target(parser)
        parser.add_argument(
            "--launch-count", metavar="N", type=_at_least_one, default=LAUNCHES,
            help=f"count at most N launches (default: {LAUNCHES})",
        )  # fmt: skip
        parser.add_argument(
            "--launch-skip", metavar="N", type=_positive, default=0, help="leave out the first N launches"
        )
        parser.add_argument("--keep", metavar="FILE.csv", type=Path, help="keep what ncu wrote")
        parser.add_argument("--force", action="store_true", help="replace FILE.csv if it exists")
        parser.add_argument("--ncu", metavar="PATH", help="the ncu to run; default: the first on the PATH")
        parser.add_argument("--format", choices=("table", "json"), default="table", help="default: table")
        parser.add_argument("command", metavar="-- COMMAND", nargs=argparse.REMAINDER, help="what to run")

    def run(self, args: argparse.Namespace) -> int:
        import subprocess  # other commands start nothing
        import tempfile

        command = args.command[1:] if args.command[:1] == ["--"] else args.command
        if not command:
            raise UsageError(
                "no command to run", next="Write it after two dashes: mpprof verify -- python train.py"
            )
        output.check_output(args.keep, force=args.force)
        counters.target(args)  # fail now rather than after the command has run
        ncu = found(args.ncu)
        with tempfile.TemporaryDirectory(prefix="mpprof-verify-") as folder:
            log = Path(folder) / "ncu.csv"
            done = subprocess.run(
                [*arguments(ncu, available(ncu), log, args.launch_count, args.launch_skip), *command],
                check=False,
            )
            lines = counters.read_lines(log) if log.exists() else []
        if args.keep is not None and lines:
            output.write("\n".join(lines), args.keep, force=args.force)
        complain(lines, done.returncode, command)
        if done.returncode != 0:
            output.note(
                args, f"{command[0]} ended with exit code {done.returncode}: only what ran before is counted"
            )
        counters.show(counters.take(lines, args, where="ncu"), args.format)
        return 0


def found(given: str | None) -> str:
    """Return the `ncu` to run. Raises NotFoundError."""
    from shutil import which

    path = which(given or "ncu")
    if path is None:
        raise NotFoundError(
            f"there is no {given or 'ncu on the PATH'}",
            next="Install Nsight Compute (it comes with the CUDA toolkit) or give its path with --ncu",
        )
    return path


def available(ncu: str) -> tuple[str, ...]:
    """Return the metrics to ask for: those that this machine's card has, or all that are known where `ncu`
    cannot say (it then leaves out the others itself)."""
    import subprocess

    from mpprof.analysis.kernels.counters import METRICS

    try:
        said = subprocess.run(
            [ncu, "--query-metrics"], capture_output=True, text=True, errors="replace", check=False,
            timeout=QUERY_SECONDS,
        )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired):
        return METRICS
    words = set(said.stdout.split())
    return tuple(metric for metric in METRICS if metric in words) or METRICS


def arguments(
    ncu: str, metrics: Sequence[str], log: Path, launch_count: int, launch_skip: int = 0
) -> list[str]:
    """Return the part of the command line before the user's own. The clocks are left as they are, children
    are counted too."""
    return [
        ncu, "--csv", "--page", "raw", "--metrics", ",".join(f"{metric}.sum" for metric in metrics),
        "--print-units", "base", "--clock-control", "none", "--target-processes", "all",
        "--launch-count", str(launch_count),
        *(["--launch-skip", str(launch_skip)] if launch_skip else []), "--log-file", str(log),
    ]  # fmt: skip


def complain(lines: Sequence[str], code: int, command: Sequence[str]) -> None:
    """Raise UnableError where `ncu` counted nothing, with the reason that it gave."""
    errors = [line.removeprefix("==ERROR==").strip() for line in lines if line.startswith("==ERROR==")]
    if any("ERR_NVGPUCTRPERM" in line for line in lines):
        raise UnableError(
            "reading the GPU's counters is not permitted (ERR_NVGPUCTRPERM)",
            next="Run as root or with CAP_SYS_ADMIN, in a container with --cap-add=SYS_ADMIN, or have the "
            f"driver loaded with NVreg_RestrictProfilingToAdminUsers=0: {PERMISSION}",
        )
    if any("Kernel Name" in line for line in lines):
        return
    if errors:
        raise UnableError(f"ncu counted nothing: {errors[0]}", next="Run ncu by hand to see more")
    if code != 0:
        raise UnableError(f"{command[0]} ended with exit code {code} before ncu counted anything")
    raise UnableError(
        "ncu saw no kernel", next="Does the command use the GPU? Lower --launch-skip, or let it run longer"
    )


def _at_least_one(text: str) -> int:
    if (count := _positive(text)) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} counts nothing: give 1 or more")
    return count
