"""`mpprof serve`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from mpprof.cli import gate, paths
from mpprof.errors import MpprofError, UsageError


class Serve:
    """Serve the page: every run of a directory, in the browser.

    Runs that are added while it serves appear by themselves. Ctrl+C ends it, with
    exit code 0. The page can be reached from this machine only, unless --host says
    otherwise. It loads nothing from the network. Links in LOGDIR are followed."""

    name = "serve"

    def prepare(self, parser: argparse.ArgumentParser) -> None:
        parser.add_argument(
            "logdir",
            metavar="LOGDIR",
            type=Path,
            help="a directory of runs, here or at https://, s3:// or gs://",
        )
        paths.add_step_range(parser)
        parser.add_argument(
            "--survey", metavar="FILE", type=Path,
            help="the file that `mpprof survey --resume FILE` wrote: the list of runs uses its rows",
        )  # fmt: skip
        gate.add_ignore(parser)
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
        parser.add_argument("--port", type=port_number, default=8050, help="default: 8050; 0: any free one")
        parser.add_argument("--open", action="store_true", help="open a browser")
        parser.add_argument(
            "--base-path", metavar="/P/", default=None,
            help="the path that a proxy puts before the page's own, such as /proxy/8050/ "
            "(default: that of DASH_URL_BASE_PATHNAME or DASH_REQUESTS_PATHNAME_PREFIX, else /)",
        )  # fmt: skip
        parser.add_argument(
            "--allow-host", metavar="NAME", action="append", default=[],
            help="a name under which a proxy asks for the page; may be repeated "
            "(default: this machine's own names)",
        )  # fmt: skip
        parser.add_argument(
            "--allow-frame", metavar="ORIGIN", action="append", default=[],
            help="a site that may show the page in a frame, such as https://notebooks.lab; may be repeated "
            "(default: none)",
        )  # fmt: skip

    def run(self, args: argparse.Namespace) -> int:
        with paths.opened(args, args.logdir) as folder:
            if folder.is_file():
                raise UsageError(
                    "is a file; the page needs a directory",
                    where=paths.shown(args.logdir),
                    next="Give its log directory",
                )
            self._serve(folder, args)
        return 0

    def _serve(self, folder: Path, args: argparse.Namespace) -> None:
        from mpprof.api.source import LogDirectory

        source = LogDirectory(
            folder,
            refresh=paths.refresher(args, args.logdir, folder),
            step_range=args.step_range,
            ignore=gate.ignored(args),
            survey=args.survey,
        )
        import mpprof_dashboards

        try:
            mpprof_dashboards.serve(
                source,
                host=args.host,
                port=args.port,
                open_browser=args.open,
                base_path=args.base_path or _base_path(),
                allow_hosts=args.allow_host,
                allow_frames=args.allow_frame,
            )
        except OSError as error:
            raise MpprofError(
                f"cannot listen there ({error.strerror or error})",
                where=f"{args.host}:{args.port}",
                next="Choose another with --port",
            ) from error


def _base_path() -> str:
    """Return the path that Dash's own variables ask for, taken out of the environment: Dash refuses to be
    told twice."""
    names = "DASH_URL_BASE_PATHNAME", "DASH_REQUESTS_PATHNAME_PREFIX"
    return next(filter(None, [os.environ.pop(name, "") for name in names]), "/")


def port_number(text: str) -> int:
    """Return a TCP port, for argparse."""
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: give a number from 0 to 65535")
    return int(text)
