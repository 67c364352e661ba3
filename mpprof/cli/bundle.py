"""`mpprof bundle`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from mpprof.cli import output, paths
from mpprof.model.quantities import format_bytes

if TYPE_CHECKING:
    from mpprof.model.run import Run

DEFAULT_MAX_MIB = 512


class Bundle:
    """Pack a run into one file for a colleague, names redacted.

    The file holds the run's records and its trace; `mpprof report FILE.zip` reads
    it back. In the records every host name and absolute path is redacted, and in
    the trace host names, home directories and the folders of source files; in both
    keys to services, by their form or by the name of their variable. Names
    of ops, layers, kernels and the model stay, because a diagnosis rests on them.
    Links that lead out of the run are not followed.
    MANIFEST.json in the bundle lists what was done, what was left out, and what
    cannot be redacted."""

    name = "bundle"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument("path", metavar="RUN", type=Path, help=paths.PATH_HELP)
        paths.add_run(parser)
        parser.add_argument("--all-traces", action="store_true", help="every trace, not only the latest")
        parser.add_argument(
            "--max-size",
            metavar="MIB",
            type=_mebibytes,
            default=DEFAULT_MAX_MIB << 20,
            help=f"leave out traces that are larger, unpacked (default: {DEFAULT_MAX_MIB})",
        )
        output.add_output(parser)

    def run(self, args: argparse.Namespace) -> int:
        output.check_output(args.output, force=args.force)
        with paths.opened(args, args.path) as path:
            self._bundle(paths.load(args, path, args.run_id), args)
        return 0

    def _bundle(self, run: Run, args: argparse.Namespace) -> None:
        from mpprof.cli import bundle_writing

        target = args.output or Path(f"{bundle_writing.folder_of(run)}.mpprof.zip")
        output.check_output(target, force=args.force)
        content, manifest = bundle_writing.bundle(
            run, all_traces=args.all_traces, max_trace_bytes=args.max_size
        )
        output.write_bytes(content, target, force=args.force)
        done = f"{target}: {len(manifest['files'])} files, {format_bytes(len(content))}"
        if output.is_stdout(target):  # no text behind the zip
            output.note(args, done)
        else:
            output.write(done, None)
        for left in manifest["left_out"]:
            output.note(args, f"left out {left['name']}: {left['reason']}")
        for line in manifest["not_redacted"]:
            output.note(args, f"not redacted: {line}")


def _mebibytes(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"{text!r} is not a size: give whole MiB")
    return int(text) << 20
