"""`mpprof memory`."""

from __future__ import annotations

import argparse
import codecs
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import output, paths, values
from mpprof.cli.tables import Table
from mpprof.errors import UsageError

if TYPE_CHECKING:
    from mpprof.api.workflows import Analysis
    from mpprof.model.rows import Row
    from mpprof.model.run import Run


ERROR_TEXTS = (".txt", ".log", ".out", ".err")
MODELS = (".keras", ".h5", ".hdf5")
_POLICIES = "float32,mixed_float16,mixed_bfloat16"


class Memory(Table):
    """Show what held memory at its peak, or what training will take.

    For a run it shows the peak by kind, type, layer and tensor, and what outlives
    its step. Sizes are the allocator's own. With --baseline, a run of the same
    model in float32, it also says what mixed precision saved, what it could have
    saved, and what is in the way. With --by it shows one of these divisions as a
    table; csv and json hold all of them. For a text with an out-of-memory error of
    TensorFlow, XLA or PyTorch (.txt, .log, .out, .err) it says what filled the
    memory and what to try.

    For a model that has not been trained (a .keras file, or module:function that
    returns one), or for a log directory's model with --card or --batch-size, it
    says what parameters, gradients, optimizer slots and activations will take in
    float32, mixed_float16 and mixed_bfloat16, and the largest batch that fits."""

    name = "memory"
    by_help = "only the table by dtype, op, layer or kind"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        super().prepare(parser)
        paths.add_baseline(parser)
        parser.add_argument(
            "--programs",
            action="store_true",
            help="XLA's buffer assignment of the compiled programs in the trace: what is live at the peak",
        )
        before = parser.add_argument_group("of a model, before it trains")
        before.add_argument("--card", metavar="NAME[,NAME]", help='the cards: "a100,v100 32GB"')
        before.add_argument(
            "--batch-size", "--batch", dest="batch_size", metavar="N", type=values.batch,
            help="examples a step (default: as recorded, or 32)",
        )  # fmt: skip
        before.add_argument(
            "--dtype-policy", metavar="POLICY[,POLICY]", help=f"Keras policies (default: {_POLICIES})"
        )  # fmt: skip
        paths.add_imports(before)
        before.add_argument(
            "--compile", action="store_true",
            help="use XLA's own buffer assignment, compiled for --card (needs mpprof[forecast])",
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
        from mpprof.api import workflows
        from mpprof.diagnosis.out_of_memory.failure import failure
        from mpprof.report import json as documents
        from mpprof.report.memory import account

        if args.programs:
            _refuse(args, "XLA's programs", "baseline", "by", "sort", csv=True)
            return _programs(mine, args)
        base = None
        if args.baseline is not None:
            _refuse(args, "a comparison", "by", "sort", csv=True)
            with paths.opened(args, args.baseline) as path:
                base = workflows.analyse(paths.load(args, path, args.baseline_run), strict=args.strict)
        failed = failure(mine.run)
        if base is not None and args.format == "json":
            return documents.dumps(
                account.comparison(documents.report(workflows.judge(mine, base)), base.run.name)
            )
        if failed is not None and args.format == "json" and mine.memory is None:
            return documents.dumps(failed)
        if args.format != "table" or args.by or args.sort:
            return super()._text(mine, args)
        recorded = mine.steps is not None and mine.steps.memory is not None
        if mine.memory is None and not recorded and failed is None:
            return super()._text(mine, args)  # raises, with the reason
        ascii_only = output.ascii_only(args)
        said = []
        if failed is not None:
            said.append(account.render_error(failed, width=output.width(), ascii_only=ascii_only))
        if mine.memory is not None or recorded:
            document = documents.report(workflows.judge(mine, base))
            said.append(account.render(document, **_most(args), width=output.width(), ascii_only=ascii_only))
        return "\n".join(said)

    def _by(self, rows: Sequence[Row], by: str) -> Sequence[Row]:
        held = list(dict.fromkeys(row["by"] for row in rows))
        if by not in held:
            raise UsageError(
                f"--by {by}: memory is not divided by that", next=f"Choose one of {', '.join(held)}"
            )
        return [row for row in rows if row["by"] == by]


def _is_model(args: argparse.Namespace) -> bool:
    asked = (args.card, args.batch_size, args.dtype_policy, args.imports or None)
    return args.compile or any(each is not None for each in asked) or _is_model_itself(args.path)


def _is_model_itself(path: Path) -> bool:
    """Return whether the path is a model's file or function, and no log directory that holds a recorded
    one."""
    if path.suffix in MODELS:
        return True
    if ":" not in str(path):  # not a function: a trace's page of text need not import the forecast
        return False
    from mpprof.forecasts.compiling import is_function

    return is_function(str(path))


@contextmanager
def _model(args: argparse.Namespace) -> Iterator[str | Run]:
    """Give the model, by its path or name, or the run that recorded it; a bundle may hold the records of that
    run."""
    path = args.path
    recorded = path.is_dir() and not (path / "saved_model.pb").is_file()
    if not _is_model_itself(path) and (recorded or paths.is_elsewhere(path)):
        with paths.opened(args, path) as local:
            yield paths.load(args, local, args.run_id, args.host)
        return
    _refuse(args, "a model", "run_id", "host")
    if path.suffix not in MODELS and not path.exists():
        _refuse(args, "module:function, which imports what it needs itself", "imports")
    yield str(path)


def _most(args: argparse.Namespace) -> dict[str, int]:
    """Return --limit as the argument `most` of a text, which has a default of its own; 0: all."""
    return {} if args.limit is None else {"most": args.limit or 10_000}


def _refuse(args: argparse.Namespace, what: str, *options: str, csv: bool = False) -> None:
    """Raise UsageError for the first of the options that was given: it says nothing of `what`."""
    flags = {"run_id": "run", "imports": "import"}
    given = [f"--{flags.get(one, one).replace('_', '-')}" for one in options if getattr(args, one)]
    given += ["--format csv"] if csv and args.format == "csv" else []
    if given:
        rows = given[0] in ("--by", "--sort", "--format csv")
        next_ = "Leave it out; --format json holds all" if rows else "Leave it out"
        raise UsageError(f"{given[0]} does not go with {what}", where=paths.shown(args.path), next=next_)


def _before_training(args: argparse.Namespace) -> str:
    """Return what a training of a model will take."""
    from mpprof.forecasts.memory import rendering
    from mpprof.forecasts.memory.forecasting import forecast_memory
    from mpprof.report import json as documents

    _refuse(args, "a model", "by", "sort", "baseline", "baseline_run", "programs", csv=True)
    policies = values.names(
        "--dtype-policy", _POLICIES if args.dtype_policy is None else args.dtype_policy, "mixed_float16"
    )
    cards = values.names("--card", args.card, "a100") if args.card is not None else None
    with _model(args) as model:
        found = forecast_memory(
            model,
            batch_size=args.batch_size,
            card=cards,
            policies=policies,
            imports=args.imports,
            compile=args.compile,
            trust=args.trust,
        )
    if args.format == "json":
        return documents.dumps(rendering.document(found))
    ascii_only = output.ascii_only(args)
    return rendering.text(found, **_most(args), width=output.width(), ascii_only=ascii_only)


def _programs(mine: Analysis, args: argparse.Namespace) -> str:
    """Return what XLA assigned to the programs of the run's last trace."""
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
    model = mine.run.model
    owned = [(program, alive(program, model)) for program in found]
    if args.format == "json":
        return documents.dumps(rendering.document(owned))
    ascii_only = output.ascii_only(args)
    return rendering.text(owned, **_most(args), ascii_only=ascii_only)


def _of_error(args: argparse.Namespace) -> str:
    """Return what the last out-of-memory error in a text says."""
    from mpprof.analysis.memory import out_of_memory
    from mpprof.diagnosis.out_of_memory.advice import advise
    from mpprof.errors import UnreadableError
    from mpprof.forecasts.memory.forecasting import card_facts
    from mpprof.report import json as documents
    from mpprof.report.memory import account

    _refuse(args, "an error's text", "by", "sort", "baseline", "baseline_run", "programs", "compile",
            "run_id", "host", "dtype_policy", csv=True)  # fmt: skip
    with args.path.open("rb") as file:
        encoding = _WIDE_TEXTS.get(file.read(2), "utf-8")
        size = file.seek(0, 2)
        file.seek(max(0, size - out_of_memory.LONGEST) // 2 * 2)
        text = file.read().decode(encoding, "replace")
    found = out_of_memory.read(text)
    if found is None:
        raise UnreadableError(
            "no out-of-memory error of TensorFlow, XLA or PyTorch in this text",
            where=str(args.path),
            next="Give the whole of what the training printed, or a log directory",
        )
    card = card_facts(args.card) if args.card is not None else None
    memory_bytes = card.memory_bytes if card else None
    found = replace(found, advice=advise(found, args.batch_size, memory_bytes=memory_bytes))
    if args.format == "json":
        return documents.dumps(found)
    ascii_only = output.ascii_only(args)
    shown = account.render_error(found, width=output.width(), ascii_only=ascii_only)
    if found.asked_bytes is None or found.refused_bytes is not None:
        return f"{shown}\n{_NO_TENSOR}\n"
    if found.advice or found.limit_bytes or found.used_bytes:
        return shown
    return f"{shown}\n{_BARE if card is None else _BARE_OF_CARD}\n"


_WIDE_TEXTS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
"""By the first two bytes: the encoding in which PowerShell writes a program's output."""
_BARE = """The message states neither a limit nor what was in use. --card NAME gives the limit; the
log directory of a run that mpprof's callback recorded shows what filled the memory."""
_BARE_OF_CARD = """The message does not state what was in use. The log directory of a run that mpprof's
callback recorded shows what filled the memory."""
_NO_TENSOR = """What filled the memory is not stated. The log directory of a run that mpprof's callback
recorded shows it."""
