"""The tab "Mixed precision" in TensorBoard, found by its entry point.

It shows the first screen of each run that lies in TensorBoard's own log directory. TensorBoard's process
answers; nothing else is started."""

from __future__ import annotations

from functools import cached_property, partial
from importlib import resources
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tensorboard.backend import http_util
from tensorboard.plugins import base_plugin
from werkzeug import wrappers

from mpprof.errors import MpprofError

if TYPE_CHECKING:
    from mpprof.api.source import LogDirectory
    from mpprof.model.source import RunEntry


class MixedPrecision(base_plugin.TBPlugin):  # type: ignore[misc]  # TensorBoard has no types
    """Answers with what `tab.js` shows. A log directory that is no folder of this machine has no runs."""

    plugin_name = "mpprof"

    def __init__(self, context: Any) -> None:
        self._logdir = Path(context.logdir).expanduser() if context.logdir else None

    def get_plugin_apps(self) -> dict[str, Any]:
        answers = {
            "/tab.js": partial(_script, "tensorboard/tab.js"),
            "/why.js": partial(_script, "assets/why.js"),
            "/runs.json": self.runs,
            "/card.json": self.card,
        }
        return {path: wrappers.Request.application(answer) for path, answer in answers.items()}

    def is_active(self) -> bool:
        return bool(self._entries())

    def frontend_metadata(self) -> Any:
        return base_plugin.FrontendMetadata(es_module_path="/tab.js", tab_name="Mixed precision")

    @cached_property
    def _source(self) -> LogDirectory | None:
        from mpprof.api.source import LogDirectory

        return LogDirectory(self._logdir) if self._logdir is not None and self._logdir.is_dir() else None

    def _entries(self) -> tuple[RunEntry, ...]:
        """Return the runs that can be read and whose files, links followed, lie in the log directory."""
        if self._source is None:
            return ()
        try:
            found = self._source.entries()
        except MpprofError:  # the directory is gone
            return ()
        return tuple(entry for entry in found if not entry.problem and self._source.holds(entry.id))

    def runs(self, request: Any) -> Any:
        from mpprof_dashboards import choice

        from mpprof.report import words

        entries = self._entries()
        named = [{"id": entry.id, "name": words.plain(entry.name)} for entry in entries]
        return _json(request, {"runs": named, "chosen": choice.default_run(entries)})

    def card(self, request: Any) -> Any:
        from mpprof_dashboards import choice, export

        entries, run = self._entries(), request.args.get("run", "")
        if self._source is None or all(entry.id != run for entry in entries):
            return _json(request, {"problem": "There is no such run."}, 404)
        try:
            document = self._source.report(run, choice.default_baseline(run, entries))
        except MpprofError as error:  # its text names a path of this machine
            return _json(request, {"problem": error.what})
        style, body = export.card_parts(document)
        return _json(request, {"style": style, "body": body})


def _script(name: str, request: Any) -> Any:
    text = resources.files("mpprof_dashboards").joinpath(name).read_text("utf-8")
    return http_util.Respond(request, text, "text/javascript")


def _json(request: Any, value: dict[str, Any], code: int = 200) -> Any:
    return http_util.Respond(request, value, "application/json", code=code)
