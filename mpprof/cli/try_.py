"""`mpprof try`. The file's name is not a word of Python's."""

from __future__ import annotations

import argparse
import math
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import output
from mpprof.cli.script import LOGS, add_script, at_least_one, script_of
from mpprof.errors import UnableError, UsageError
from mpprof.model.shell import program, quoted

if TYPE_CHECKING:
    from mpprof.trial.settings import Choices
    from mpprof.trial.trying import Asked, Interrupted

FORMATS = ("text", "json")
INTERRUPTED = 130
_BATCH = re.compile(r"x(\d+(?:\.\d+)?)")
STEPS = 60


class Try:
    """Train a script under several settings; say which one pays.

    Write SCRIPT and its arguments as after `python`, or `-m MODULE`; options of
    mpprof come before them. The unchanged script is trained in float32, in 16 bits,
    then with XLA, then with twice the batch: one change at a time, and what pays is
    kept. Each training is a process of its own that ends in `fit` after 60 steady
    steps. The settings take turns (A B C, C B A), at least four times each, until
    the speedups are known to 5 %.

    What the script does before `fit` happens in each training. What it does after
    `fit` (saving, evaluating, uploading) does not happen. MPPROF_TRY=1 is set, and
    standard input is closed."""

    name = "try"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        default = f"{LOGS}/NAME-try, of NAME.py; if that is there, NAME-try-2"
        add_script(parser, self.name, "where the runs go, DIR/<setting>/<round>", default)
        choice = parser.add_argument_group("what to try (without these: the usual ladder)")
        choice.add_argument(
            "--policies",
            metavar="NAME,NAME",
            help="dtype policies; the others are compared with the first",
        )
        choice.add_argument("--jit", metavar="on,off", help="XLA on, off, or both in this order")
        choice.add_argument("--batch", metavar="x2,x4", help="multiples of the script's own batch")
        choice.add_argument(
            "--set", metavar="NAME=VALUE", action="append", default=[],
            help="steps_per_execution=N, prefetch=auto, workers=N, loss_scale=N, loss_scale_growth=N, "
            "tf32=on or off, command_buffers=off, determinism=on, or a variable of the environment; may be "
            "given several times",
        )  # fmt: skip
        choice.add_argument(
            "--all", action="store_true", help="try all combinations, instead of one change after the other"
        )
        choice.add_argument(
            "--remedies", action="store_true",
            help="try each remedy for the first training that needs no edit of the script",
        )  # fmt: skip
        parser.add_argument(
            "--steps", metavar="N", type=at_least_one, default=STEPS,
            help=f"steady steps of each training, at least; they take 5 s, at least (default: {STEPS})",
        )  # fmt: skip
        parser.add_argument(
            "--minutes", metavar="N", type=_minutes,
            help="minutes for all trainings together (default: 20; on a CPU 2)",
        )  # fmt: skip
        parser.add_argument(
            "--fit", metavar="N", type=at_least_one,
            help="measure the Nth `fit` of the script (default: the first with enough steps)",
        )  # fmt: skip
        parser.add_argument(
            "--keep-callbacks", action="store_true",
            help="keep callbacks that write: checkpoints, backups, TensorBoard, CSV",
        )  # fmt: skip
        parser.add_argument("--resume", action="store_true", help="continue an interrupted run")
        parser.add_argument("--format", choices=FORMATS, default="text", help="default: text")
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        from mpprof.trial import text, training, trying

        output.check_output(args.output, force=args.force)
        asked = _asked(args)
        journal = asked.journal()
        done = journal.begin(resume=asked.resume)
        output.note(args, f"{asked.name} is trained several times: what it does before fit happens each time "
                          "and what it does after fit does not happen")  # fmt: skip
        code, again = 0, _again(args, asked)
        try:
            with training.interrupted_by_signals():
                tried = trying.climb(
                    asked,
                    trying.in_processes(asked),
                    lambda text: output.note(args, text),
                    done,
                    journal.add,
                    grown=lambda tried: text.write(tried, asked.logdir),
                )
        except UnableError:
            journal.give_up()
            raise
        except trying.Interrupted as stopped:
            tried, code = stopped.tried, _code_of(stopped)
            output.note(args, f"interrupted: this was measured until then. To go on: {again}")
        if tried.unfinished:
            output.note(args, f"the time is over. To go on, for as long as --minutes says: {again}")
        elif args.remedies and code == 0 and not (tried.outcomes or tried.by_hand):
            output.note(args, "the diagnosis of the first training has no remedy to try")
        output.write(_written(tried, args), args.output, force=args.force)
        measured = any(row.step_ns is not None for row in tried.rows)
        return code if code or measured else UnableError.exit_code


def _again(args: argparse.Namespace, asked: Asked) -> str:
    """Return the command that goes on with this ladder."""
    words: Sequence[str] = args.words
    options = words[: len(words) - len(asked.words)]
    options = options[: -1 if options[-1:] == ("--",) else None]
    more = [
        *([] if asked.resume else ["--resume"]),
        *(["--logdir", str(asked.logdir)] if args.logdir is None else []),
    ]
    return f"{program()} {' '.join(map(quoted, (*options, *more, *asked.words)))}"


def _written(tried: object, args: argparse.Namespace) -> str:
    from mpprof.trial import text
    from mpprof.trial.result import Tried

    assert isinstance(tried, Tried)
    if args.format == "json":
        from mpprof.report import json as documents

        return documents.dumps(tried.to_dict())
    return text.render(tried, ascii_only=output.ascii_only(args))


def _code_of(stopped: Interrupted) -> int:
    """Return the exit code of a process that a signal has ended."""
    return 128 + getattr(stopped.by, "number", signal.SIGINT)


def _asked(args: argparse.Namespace) -> Asked:
    from mpprof.trial.trying import Asked

    words, name, stem = script_of(args, "try")
    choices = _choices(args)
    if args.remedies and (choices is not None or args.all):
        raise UsageError(
            "--remedies chooses what is tried", next="Leave out --policies, --jit, --batch, --set and --all"
        )
    if args.all and choices is None:
        raise UsageError("--all of nothing", next="Choose with --policies, --jit, --batch, --set")
    return Asked(
        words=words,
        name=name,
        logdir=_logdir(args, stem),
        choices=choices,
        together=args.all,
        steps=args.steps,
        minutes=args.minutes,
        fit=args.fit,
        keep_callbacks=args.keep_callbacks,
        resume=args.resume,
        remedies=args.remedies,
    )


def _logdir(args: argparse.Namespace, stem: str) -> Path:
    """Return the absolute directory: the one that is named; the newest of this script's own where it is to go
    on; else a new one."""
    from mpprof.trial.journal import given_up

    if args.logdir is not None:
        return Path(os.path.abspath(args.logdir))
    own, number = Path(os.path.abspath(LOGS)) / f"{stem}-try", 1
    places = [own]
    while places[-1].exists() and not given_up(places[-1]):
        number += 1
        places.append(own.with_name(f"{own.name}-{number}"))
    return places[-2] if args.resume and len(places) > 1 else places[-1]


def _choices(args: argparse.Namespace) -> Choices | None:
    """Return what the options choose; None: nothing. What differs from the first setting is a rung."""
    from mpprof.cli.values import names
    from mpprof.trial import switches
    from mpprof.trial.settings import FLOAT32, Choices

    if args.policies is None and args.jit is None and args.batch is None and not args.set:
        return None
    sets = tuple(dict.fromkeys(map(switches.checked, args.set)))
    policies: tuple[str, ...] = ()
    if args.policies is not None:
        policies = tuple(names("--policies", args.policies, "float32,mixed_bfloat16"))
        policies = policies if len(policies) > 1 or policies == (FLOAT32,) else (FLOAT32, *policies)
    jit: tuple[bool | None, ...] = ()
    if args.jit is not None:
        words = names("--jit", args.jit, "off,on")
        if not set(words) <= {"on", "off"}:
            raise UsageError(f"--jit {args.jit!r} is not on, off or both", next="Example: --jit off,on")
        jit = tuple(word == "on" for word in words)
        jit = jit if len(jit) > 1 else (None, *jit)
    batches: tuple[float, ...] = ()
    if args.batch is not None:
        found = [_BATCH.fullmatch(word) for word in names("--batch", args.batch, "x2,x4")]
        if not all(each is not None and float(each[1]) > 0 for each in found):
            raise UsageError(f"--batch {args.batch!r} has no factors", next="Example: --batch x2,x4")
        batches = (1.0, *(float(each[1]) for each in found if each is not None and float(each[1]) != 1))
    choices = Choices(policies, jit, batches, sets)
    if max(map(len, (policies, jit, batches))) < 2 and not sets:
        raise UsageError("that is one setting alone", next="Name another: --policies float32,mixed_bfloat16")
    return choices


def _minutes(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of minutes")
    return value
