"""`mpprof audit`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from mpprof.cli import gate, output, paths, values
from mpprof.errors import UsageError

FORMATS = ("text", "json")


class Audit:
    """List what in a model will miss the Tensor Cores, and why.

    MODEL is a file that model.save() wrote, of Keras 3 or tf_keras: its weights
    are read only for --batch, and code in it is run only with --trust. Or it is
    module:function, importable from here, that returns a model, or the log
    directory of a run that recorded one. In a script, mpprof.audit(model) does
    the same. With --bounds or --against it is a gate that needs no GPU: exit
    code 1 where a bound is broken or a layer left the matrix units
    (docs/checks.md)."""

    name = "audit"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "model", metavar="MODEL", help="a saved Keras model, module:function, or a log directory"
        )
        parser.add_argument(
            "--batch-size", metavar="N", type=values.batch, help="the global batch size it will have"
        )
        parser.add_argument(
            "--batch", metavar="FILE.npz", type=Path,
            help="a sample batch, numpy.savez(FILE, x=..., y=...): what overflows or rounds to 0 in 16 bits "
                "at it; of a saved model the weights are read then (with --trust)",
        )  # fmt: skip
        parser.add_argument("--gpu", metavar="NAME|CC", help='the one card it will train on: "A100" or "8.0"')
        paths.add_imports(parser)
        parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
        group = parser.add_argument_group(
            "checks",
            "exit code 1 and a line on stderr for each check that failed; the\naudit is still written",
        )
        group.add_argument(
            "--bounds", metavar="FILE", type=Path, help="check against the table [audit] of this TOML file"
        )
        group.add_argument(
            "--against", metavar="KEPT.json", type=Path,
            help="check against an audit that --format json wrote: no layer may have left the matrix "
                "units or 16 bits, and memory and least time may not have grown",
        )  # fmt: skip
        gate.add_allow_unable(group)
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import auditing
        from mpprof.numbers import batch_file
        from mpprof.report import audit_checks
        from mpprof.report import json as documents

        output.check_output(args.output, force=args.force)
        bounds = audit_checks.read(args.bounds) if args.bounds else None
        kept = audit_checks.read_kept(args.against) if args.against else None
        paths.refuse_address(Path(args.model), "Keras loads models from files")
        if args.batch and args.batch.name.isdecimal() and not args.batch.exists():
            raise UsageError(
                f"--batch {args.batch}: takes a file with a sample batch",
                next=f"For the batch's size: --batch-size {args.batch}",
            )
        batch = batch_file.read(args.batch) if args.batch else None
        report = auditing.audit(
            args.model,
            batch_size=args.batch_size,
            gpu=args.gpu,
            imports=args.imports,
            trust=args.trust,
            batch=batch,
        )
        if args.format == "json":
            text = documents.dumps({"schema": audit_checks.SCHEMA, **asdict(report)})
        else:
            from mpprof.report import words

            text = "\n".join(words.plain(line) for line in str(report).split("\n"))
        output.write(text, args.output, force=args.force)
        outcomes = [*(audit_checks.judge(report, bounds) if bounds else ())]
        outcomes += audit_checks.compare(report, kept) if kept else ()
        return gate.conclude(args, outcomes)
