"""`mpprof audit`."""

from __future__ import annotations

import argparse
from dataclasses import asdict
from pathlib import Path

from mpprof.cli import output, paths, values

FORMATS = ("text", "json")


class Audit:
    """List what in a saved model will miss the Tensor Cores, and why.

    MODEL is a file that model.save() wrote, of Keras 3 or tf_keras. Its weights are
    not read, and code in it is not run without --trust. In a script,
    mpprof.audit(model) does the same for a model that was just built."""

    name = "audit"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL.keras", type=Path, help="a saved Keras model")
        parser.add_argument(
            "--batch-size", metavar="N", type=values.batch, help="the global batch size it will have"
        )
        parser.add_argument("--gpu", metavar="NAME|CC", help='the one card it will train on: "A100" or "8.0"')
        paths.add_imports(parser)
        parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.api import auditing
        from mpprof.report import json as documents

        output.check_output(args.output, force=args.force)
        paths.refuse_address(args.model, "Keras loads models from files")
        report = auditing.audit(
            args.model, batch_size=args.batch_size, gpu=args.gpu, imports=args.imports, trust=args.trust
        )
        if args.format == "json":
            text = documents.dumps({"schema": "mpprof.audit/1", **asdict(report)})
        else:
            from mpprof.report import words

            text = "\n".join(words.plain(line) for line in str(report).split("\n"))
        output.write(text, args.output, force=args.force)
        return 0
