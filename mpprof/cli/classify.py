"""`mpprof classify`."""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING

from mpprof.cli import output
from mpprof.errors import NotFoundError

if TYPE_CHECKING:
    from mpprof.model.device import DeviceFacts


class Classify:
    """Say where a kernel runs, by its name: one JSON line each.

    Each line has placement, precision, family, and what decided it. Names are
    arguments, or lines on stdin, answered as they come. The GPU matters: the same
    name can mean other arithmetic on another generation."""

    name = "classify"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        card = parser.add_mutually_exclusive_group()
        card.add_argument("--gpu", metavar="NAME", help='the card, such as "Tesla V100-SXM2-16GB" or "A100"')
        card.add_argument("--cc", metavar="X.Y", type=_capability, help="its compute capability, such as 8.0")
        parser.add_argument(
            "names", metavar="NAME", nargs="*", help="kernel names; none: read them from stdin"
        )

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.analysis.kernels import device_peaks, names

        facts = _facts(args)
        bare = facts is not None and device_peaks.has_tensor_cores(facts) is False  # GTX 16xx: cc 7.5 without
        capability = facts.compute_capability if facts else args.cc
        vendor = facts.vendor if facts else "nvidia" if args.cc else "unknown"
        for name in _names(args.names):
            verdict = names.classify(name, capability, vendor)
            if bare and verdict.placement == "tensor_core":
                verdict = names.without_tensor_cores(verdict, args.gpu)
            row = {
                "name": name,
                "placement": verdict.placement,
                "precision": verdict.precision,
                "family": verdict.family,
                "reason": {"code": verdict.reason.code, "text": verdict.reason.text},
            }
            # Each line leaves at once: whoever feeds names through a pipe may wait for each answer.
            output.write(json.dumps(row), None)
        return 0


def _names(arguments: list[str]) -> Iterable[str]:
    """Return the names, one a line; blank lines are no names. A line that is not text is read as far as it is
    text."""
    if arguments:
        return arguments
    if hasattr(sys.stdin, "reconfigure"):
        sys.stdin.reconfigure(errors="backslashreplace")
    lines = (line.rstrip("\r\n") for line in sys.stdin)
    return (line for line in lines if line.strip())


def _facts(args: argparse.Namespace) -> DeviceFacts | None:
    if args.gpu is None:
        return None
    from mpprof.analysis.kernels import device_peaks

    facts = device_peaks.find(args.gpu)
    if facts is None:
        raise NotFoundError(
            f"no card is known as {args.gpu!r}", next="Give one card, or its compute capability: --cc 8.0"
        )
    return facts


def _capability(text: str) -> tuple[int, int]:
    """Return the compute capability in "8.0" or "80", for argparse."""
    parts = re.fullmatch(r"(\d{1,2})\.(\d)|(\d{1,2})(\d)", text.strip())
    if not parts:
        raise argparse.ArgumentTypeError(f"{text!r} is not a compute capability: give one such as 8.0")
    major, minor = (int(part) for part in parts.groups() if part is not None)
    return major, minor
