"""`mpprof memory`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpprof.cli import output, paths
from mpprof.cli.tables import Table
from mpprof.errors import UsageError

if TYPE_CHECKING:
    from mpprof.api.workflows import Analysis
    from mpprof.model.document import Row


ERROR_TEXTS = (".txt", ".log", ".out", ".err")
MODELS = (".keras", ".h5", ".hdf5")


class Memory(Table):
    """Show what held memory at its peak, or what training will take.

    Of a run: the peak by kind, type, layer and tensor, and what outlives its step.
    Sizes are the allocator's own. With --baseline, a run of the same model in
    float32, it also says what mixed precision saved, what it could have saved, and
    what is in the way. With --by it is a table of one division; csv and json hold
    all of them. PATH may also be a text with an out-of-memory error of TensorFlow,
    XLA or PyTorch (.txt, .log, .out, .err): it says what filled the memory and what
    to try.

    Of a model that has not been trained (a .keras file, or module:function that
    returns one), or of a log directory's model with --card or --batch, it says what
    parameters, gradients, optimizer slots and activations will take in float32,
    mixed_float16 and mixed_bfloat16, and the largest batch that fits."""

    name = "memory"
    by_help = "a table of one of: dtype, op, layer, kind"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        super().prepare(parser)
        paths.add_baseline(parser)
        parser.add_argument(
            "--programs",
            action="store_true",
            help="XLA's buffer assignment of the compiled programs in the trace: what is alive at the peak",
        )
        before = parser.add_argument_group("of a model, before it trains")
        before.add_argument("--card", metavar="NAME", help='the card: "a100", "v100 32GB"')
        before.add_argument(
            "--batch", metavar="N", type=int, help="examples a step (default: as recorded, or 32)"
        )
        before.add_argument(
            "--dtype-policy", metavar="POLICY[,POLICY]", default="float32,mixed_float16,mixed_bfloat16",
            help="Keras policies (default: float32,mixed_float16,mixed_bfloat16)",
        )  # fmt: skip
        paths.add_imports(before)
        before.add_argument(
            "--compile", action="store_true",
            help="take XLA's own buffer assignment, compiled for --card (needs mpprof[forecast])",
        )  # fmt: skip

    def run(self, args: argparse.Namespace) -> int:
        if args.path.suffix in ERROR_TEXTS and args.path.is_file():
            output.check_output(args.output, force=args.force)
            output.write(_of_error(args), args.output, force=args.force)
            return 0
        if _is_model(args):
            output.check_output(args.output, force=args.force)
            output.write(_before_training(args), args.output, force=args.force)
            return 0
        return super().run(args)

    def _text(self, mine: Analysis, args: argparse.Namespace) -> str:
        from mpprof.analysis.memory.failure import failure
        from mpprof.api import workflows
        from mpprof.report import json as documents
        from mpprof.report.memory import account

        if args.programs:
            return _programs(mine, args)
        if args.format != "table" or args.by or args.sort:
            return super()._text(mine, args)
        base = None
        if args.baseline is not None:
            with paths.opened(args, args.baseline) as path:
                base = workflows.analyse(paths.load(args, path, args.baseline_run), strict=args.strict)
        recorded = mine.steps is not None and mine.steps.peak_memory_bytes is not None
        failed = failure(mine.run)
        if mine.memory is None and not recorded and failed is None:
            return super()._text(mine, args)  # raises, with the reason
        ascii_only = args.output is None and output.ascii_only()
        said = []
        if failed is not None:
            said.append(account.render_error(*failed, width=output.width(), ascii_only=ascii_only))
        if mine.memory is not None or recorded:
            document = documents.document(workflows.judge(mine, base))
            most = account.MOST if args.limit is None else args.limit or 10_000
            said.append(account.render(document, width=output.width(), most=most, ascii_only=ascii_only))
        return "\n".join(said)

    def _by(self, rows: Sequence[Row], by: str) -> Sequence[Row]:
        held = list(dict.fromkeys(row["by"] for row in rows))
        if by not in held:
            raise UsageError(f"--by {by}: memory is not divided by that", next=f"It is by: {', '.join(held)}")
        return [row for row in rows if row["by"] == by]


def _is_model(args: argparse.Namespace) -> bool:
    asked = args.card is not None or args.batch is not None or args.compile
    if asked or args.path.suffix in MODELS:
        return True
    if ":" not in str(args.path):  # no function, and a trace's page of text need not import the forecast
        return False
    from mpprof.forecasts.compiling import is_function

    return is_function(str(args.path))


def _before_training(args: argparse.Namespace) -> str:
    """What a training of a model will take."""
    from mpprof.api.memory_forecasting import forecast_memory
    from mpprof.report import json as documents
    from mpprof.report.memory import before_training

    if args.format == "csv" or args.by or args.sort:
        raise UsageError(
            "of a model there is text and JSON", next="Leave --by and --sort out, or --format json"
        )
    found = forecast_memory(
        str(args.path),
        batch_size=args.batch,
        card=args.card,
        policies=[part.strip() for part in args.dtype_policy.split(",") if part.strip()],
        imports=args.imports,
        compile=args.compile,
    )
    if args.format == "json":
        return documents.dumps(before_training.document(found))
    ascii_only = args.output is None and output.ascii_only()
    most = {} if args.limit is None else {"most": args.limit or 10_000}
    return before_training.text(found, **most, ascii_only=ascii_only)


def _programs(mine: Analysis, args: argparse.Namespace) -> str:
    """What XLA assigned to the programs of the run's last trace."""
    from mpprof.analysis.memory.assigned import alive
    from mpprof.errors import UnableError
    from mpprof.report import json as documents
    from mpprof.report.memory import programs as rendering
    from mpprof.traces.xspace.programs import programs

    found = programs(mine.run.traces[-1]) if mine.run.traces else ()
    if not found:
        raise UnableError(
            "no compiled program with a buffer assignment", where=str(args.path),
            next="XLA writes them into the xplane files of JAX, and of TensorFlow with jit_compile",
        )  # fmt: skip
    model = mine.run.facts.model if mine.run.facts else None
    owned = [(program, alive(program, model)) for program in found]
    if args.format == "json":
        return documents.dumps(rendering.document(owned))
    ascii_only = args.output is None and output.ascii_only()
    most = {} if args.limit is None else {"most": args.limit or 10_000}
    return rendering.text(owned, **most, ascii_only=ascii_only)


def _of_error(args: argparse.Namespace) -> str:
    """What the last out-of-memory error in a text says."""
    from mpprof.analysis.memory import out_of_memory
    from mpprof.analysis.memory.advice import advise
    from mpprof.errors import UnreadableError
    from mpprof.report import json as documents
    from mpprof.report.memory import account

    with args.path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - out_of_memory.LONGEST))
        text = file.read().decode("utf-8", "replace")
    found = out_of_memory.read(text)
    if found is None:
        raise UnreadableError(
            "no out-of-memory error of TensorFlow, XLA or PyTorch in this text",
            where=str(args.path),
            next="Give the whole of what the training printed, or a log directory",
        )
    advice = advise(found)
    if args.format == "json":
        return documents.dumps(documents.out_of_memory(found, advice))
    ascii_only = args.output is None and output.ascii_only()
    return account.render_error(found, advice, width=output.width(), ascii_only=ascii_only)
