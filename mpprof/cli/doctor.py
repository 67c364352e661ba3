"""`mpprof doctor`."""

from __future__ import annotations

import argparse

from mpprof.cli import output

SCHEMA = "mpprof.doctor/1"
_MARKS = {"ok": "ok", "info": "--", "missing": "!!"}


class Doctor:
    """Show what this machine can record, and what will be missing.

    It looks at the GPU, its driver, the permission to profile, the frameworks and
    Keras' policy. No framework is imported and nothing is changed. The exit code is
    always 0, whatever is missing."""

    name = "doctor"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--format", choices=("text", "json"), default="text", help="default: text")

    def run(self, args: argparse.Namespace) -> int:
        import textwrap
        from dataclasses import asdict

        from mpprof._version import __version__
        from mpprof.cli import doctor_checks
        from mpprof.report import json as documents

        checks = doctor_checks.checks()
        if args.format == "json":
            rows = [asdict(check) for check in checks]
            output.write(documents.dumps({"schema": SCHEMA, "mpprof": __version__, "checks": rows}), None)
            return 0
        width = max(len(check.name) for check in checks)
        lines = []
        for check in checks:
            lines.append(f"{_MARKS[check.status]}  {check.name:<{width}}  {check.value}")
            for text in (check.effect, check.next):
                wrapped = textwrap.wrap(text, output.width() - width - 8, break_on_hyphens=False)
                lines += [f"{'':<{width + 8}}{line}" for line in wrapped]
        missing = sum(check.status == "missing" for check in checks)
        lines += ["", f"{missing} of {len(checks)} will be missing" if missing else "nothing will be missing"]
        output.write("\n".join(lines), None)
        return 0
