"""`mpprof forecast`."""

from __future__ import annotations

import argparse
from pathlib import Path

from mpprof.cli import output, paths, progress, values
from mpprof.errors import UsageError

FORMATS = ("text", "json")


class Forecast:
    """Estimate what mixed precision brings on cards not at hand.

    XLA compiles the train step for each card. MODEL is a .keras file, or
    module:function, importable from here, that returns a compiled Keras model. It
    is built with Keras on JAX, so it must not need TensorFlow's own ops. Weights of
    a file are not read, and code in it is not run without --trust. It needs the
    extra mpprof[forecast], XLA's compiler for NVIDIA GPUs, but no GPU and no
    driver."""

    name = "forecast"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("model", metavar="MODEL", help="a .keras file, or module:function")
        parser.add_argument(
            "--card", metavar="NAME[,NAME]", required=True, help='the cards: "h100,a100,v100 32GB"'
        )
        parser.add_argument(
            "--dtype-policy", metavar="POLICY[,POLICY]", default="mixed_float16",
            help="Keras policies, compared with float32 (default: mixed_float16)",
        )  # fmt: skip
        parser.add_argument(
            "--batch-size", "--batch", dest="batch_size", metavar="N", type=values.batch, default=32,
            help="examples a step (default: 32)",
        )  # fmt: skip
        parser.add_argument(
            "--largest-batch", action="store_true",
            help="search the largest batch that each card holds: up to 7 more compilations for each policy",
        )  # fmt: skip
        parser.add_argument(
            "--input-shape", metavar="N,N,...", action="append", default=[],
            help="shape of an input without the batch, if the model states none (repeat for more inputs)",
        )  # fmt: skip
        parser.add_argument(
            "--time-limit", metavar="SECONDS", type=float, default=900.0,
            help="for each card and policy (default: 900)",
        )  # fmt: skip
        paths.add_imports(parser)
        parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.forecasts import forecasting, rendering
        from mpprof.report import json as documents

        output.check_output(args.output, force=args.force)
        paths.refuse_address(Path(args.model), "Keras loads models from files")
        found = forecasting.forecast(
            args.model,
            values.names("--card", args.card, "h100,a100"),
            policies=values.names("--dtype-policy", args.dtype_policy, "mixed_float16"),
            batch_size=args.batch_size,
            largest_batch=args.largest_batch,
            input_shapes=[_shape(text) for text in args.input_shape] or None,
            imports=args.imports,
            time_limit_s=args.time_limit,
            progress=progress.say,
            trust=args.trust,
        )
        if args.format == "json":
            text = documents.dumps(found)
        else:
            text = rendering.text(found)
        output.write(text, args.output, force=args.force)
        return 0


def _shape(text: str) -> tuple[int, ...]:
    try:
        sizes = tuple(int(part) for part in text.split(","))
    except ValueError as error:
        raise UsageError(
            f"--input-shape {text!r} is not a list of whole numbers", next="Example: 224,224,3"
        ) from error
    if any(size < 1 for size in sizes):
        raise UsageError(f"--input-shape {text!r}: sizes must be at least 1", next="Leave the batch out")
    return sizes
