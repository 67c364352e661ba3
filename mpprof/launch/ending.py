"""What is said when a launched script has ended: the report of its run, or why there is none."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from mpprof import child
from mpprof.launch import loops
from mpprof.launch.options import Options
from mpprof.model.shell import quoted

_WORKED_S = 2.0
"""Processor time of processes that may have trained: importing Keras alone takes about as long."""


def say(text: str) -> None:
    """Print to stderr, which may be closed by now."""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        print(text, file=sys.stderr, flush=True)


def report(roots: Sequence[Path], options: Options) -> None:
    """Print the first screen of the run with the most steps to stderr. A separate process does this, so
    nothing that a report imports enters the script's process."""
    from mpprof.record.end_of_fit import place
    from mpprof.store import formats

    def size(root: Path) -> int:
        steps = formats.folder_of(root) / formats.STEPS_FILE
        return steps.stat().st_size if steps.is_file() else 0

    root = max(roots, key=size)
    if len(roots) > 1 and not options.quiet:
        ours = [each for each in roots if each.is_relative_to(options.logdir)]
        elsewhere = [f"mpprof report {quoted(str(each))}" for each in roots if each not in ours]
        where = [*([f"mpprof ls {quoted(options.logdir)}"] if ours else []), *elsewhere]
        say(
            f"mpprof: {len(roots)} runs were recorded (a model of its own is a run of its own). This is the "
            f"longest; all of them: {', '.join(where)}"
        )
    quiet = ["--quiet"] if options.quiet else []
    command = child.command("-c", "from mpprof.__main__ import run; run()", "report", place(root), *quiet)
    subprocess.run(
        command,
        env=child.environment(),
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=_stderr(),
    )


def unrecorded(
    options: Options, backend: str | None, machine: loops.Machine, *, predicted: bool = False
) -> None:
    """Say why this process has recorded nothing, and which lines record a loop. `predicted`: it has called
    `predict` or `evaluate`."""
    if others := _written_since(options.logdir, machine.made_s):
        say(
            f"mpprof: processes that {options.script} has started recorded {others} "
            f"{'run' if others == 1 else 'runs'}: mpprof ls {quoted(options.logdir)}"
        )
        return
    if backend is None:
        if not options.quiet:
            say(
                f"mpprof: {options.script} imported no framework in its own process, so there is nothing to "
                f"report.{_of_children()}"
            )
        return
    error = getattr(sys, "last_value", None)
    if error is not None and not isinstance(error, KeyboardInterrupt):
        say(f"mpprof: {options.script} ended by {type(error).__name__} before it trained with Keras.")
        return
    if predicted:
        say(f"mpprof: {options.script} called predict or evaluate, and trained nothing: there are no steps.")
        return
    root = machine.write(options.logdir)
    logdir = f"logs/{Path(options.logdir).name}"
    lines = loops.lines_to_add(backend, logdir).replace("\n", "\n    ")
    said = [
        f"mpprof: {options.script} called neither fit nor train_on_batch of Keras in this process: "
        "its steps are not known. No profile was made either: a process has one profiler, which may be the "
        f"script's.{_of_children()}",
        *(f"mpprof: {line}" for line in loops.used(machine.samples)),
        *([] if root is None else [f"mpprof: samples of the hardware lie in {quoted(root)}"]),
        "mpprof: to record a loop of your own, put these lines around it:",
        "",
        f"    {lines}",
        "",
        f"mpprof: then run it as ever, and mpprof report {quoted(logdir)}",
    ]
    say("\n".join(said))


def _of_children() -> str:
    """Return what to say of processes that the script has started: Python starts them anew, without us."""
    times = os.times()
    if (seconds := times.children_user + times.children_system) < _WORKED_S:
        return ""
    return (
        f" Processes that it started took {seconds:.0f} s of processor time and are not recorded: a training "
        "in one is recorded where MPProfilerCallback is in its fit."
    )


def _written_since(logdir: str, unix_s: float) -> int:
    """Return how many runs below the log directory are newer than this time."""
    from mpprof.store import find_runs, formats

    roots = find_runs(Path(logdir)) if os.path.isdir(logdir) else ()
    files = [formats.folder_of(root) / formats.RUN_FILE for root in roots]
    return sum(file.is_file() and file.stat().st_mtime >= unix_s for file in files)


def end_children() -> None:
    """End the processes that this one has started, such as workers that make batches."""
    import psutil  # type: ignore[import-untyped]

    children = psutil.Process().children(recursive=True)
    for each in children:
        each.terminate()
    for each in psutil.wait_procs(children, timeout=3)[1]:
        each.kill()


def _stderr() -> int:
    """Return the descriptor of stderr, also where the script has replaced `sys.stderr`."""
    try:
        os.fstat(2)
    except OSError:
        return subprocess.DEVNULL
    return 2
