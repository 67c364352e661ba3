"""The app: one page frame, one callback that draws the page that the URL names."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import dash
import dash_mantine_components as dmc
import flask
import plotly.io
from dash import ClientsideFunction, Input, Output, State, dcc, html
from dash.exceptions import DependencyException, PreventUpdate

from mpprof._version import __version__
from mpprof.errors import MpprofError
from mpprof.model.source import RunEntry, RunSource
from mpprof.report import markdown, words
from mpprof_dashboards import call_bodies, routes, security, theme
from mpprof_dashboards import choice as choices
from mpprof_dashboards.choice import Choice
from mpprof_dashboards.components import cards, hosts
from mpprof_dashboards.components.context import Context, Page, listed
from mpprof_dashboards.components.markup import prefixed, render, settled
from mpprof_dashboards.compress import Packer
from mpprof_dashboards.disk import WithoutDisk
from mpprof_dashboards.export import run_html
from mpprof_dashboards.pages import PAGES, runs
from mpprof_dashboards.rendered import Rendered
from mpprof_dashboards.security import Reach

_LOG = logging.getLogger("mpprof")
_REFRESH_MS = 5000
_SPARE_BYTES = 16 << 20
"""Of a run's files: its pages are drawn in spare time; those of a larger one take too long."""
_ASSETS = Path(__file__).parent / "assets"
# scheme.js comes before everything else, so that a dark page never flashes white. The icon is part of the
# page: chromium asks for an icon's file again at each change of the address, and a remedy's switch is one.
_ICON = "data:image/svg+xml," + quote((_ASSETS / "icon.svg").read_text(encoding="utf-8").strip())
_INDEX = """<!DOCTYPE html>
<html lang="en" data-base="BASE" data-version="VERSION">
<head>
{%metas%}
<title>{%title%}</title>
<link rel="icon" href="ICON" type="image/svg+xml">
<script src="BASE/assets/scheme.js"></script>
{%css%}
</head>
<body>
{%app_entry%}
{%config%}{%scripts%}{%renderer%}
</body>
</html>""".replace("ICON", _ICON)


class _App(dash.Dash):  # type: ignore[misc]
    """The app, whose index holds what `first` says, below what the scripts draw."""

    first: Callable[[], str]

    def interpolate_index(self, **parts: str) -> str:
        parts["app_entry"] = f'<div id="react-entry-point"></div>{self.first()}'
        return str(super().interpolate_index(**parts))


def create_app(source: RunSource, reach: Reach | None = None, *, spare: bool = False) -> dash.Dash:
    """Return the dashboard over `source`. It answers only to loopback names and to what `reach` allows (None:
    nothing else), and with 403 to other names. `spare`: while a page is read, the others of its run are
    drawn."""
    reach = reach or Reach()
    # Dash writes with orjson where that is installed, which refuses names that are not whole characters.
    plotly.io.json.config.default_engine = "json"
    app = _App(
        "mpprof_dashboards",
        title=f"mpprof · {source.title}",
        update_title=None,
        assets_folder=str(_ASSETS),
        assets_ignore=r"scheme\.js",
        suppress_callback_exceptions=True,
        serve_locally=True,
        index_string=_INDEX.replace("BASE", reach.prefix).replace("VERSION", __version__),
        requests_pathname_prefix=reach.base_path,
        routes_pathname_prefix="/",
        meta_tags=[{"name": "viewport", "content": "width=device-width, initial-scale=1"}],
    )
    app.layout = lambda: prefixed(_frame(source), reach.prefix)
    app.first = partial(_first, source, reach)
    rendered = Rendered()
    _register(app, source, rendered, reach, spare)
    for page in PAGES:
        if page.register is not None:
            page.register(app, source)
    routes.register(app, source)
    _guard(app, source, rendered, reach)
    _downloads(app, source)
    return app


def _frame(source: RunSource) -> dmc.MantineProvider:
    """Return the frame that stays while pages change."""
    bar = [
        _brand(source),
        _choosers(),
        html.Nav(id="nav", className="mp-nav", **{"aria-label": "Pages"}),
        _share(),
        html.Button(
            "?", id="keys-open", className="mp-button", title="Keys", **{"aria-label": "Show the keys"}
        ),
        dmc.ColorSchemeToggle(
            id="scheme",
            lightIcon=html.Span(className="mp-icon mp-sun"),
            darkIcon=html.Span(className="mp-icon mp-moon"),
            size="md",
            color="gray",
            className="mp-scheme",
            **{"aria-label": "Dark or light"},
        ),
    ]
    header = html.Header(html.Div(bar, className="mp-bar"), className="mp-header")
    return dmc.MantineProvider(
        [
            dcc.Location(id="url", refresh="callback-nav"),
            dcc.Store(id="seen"),
            dcc.Store(id="shown"),
            dcc.Interval(id="live", interval=_REFRESH_MS, disabled=True),
            html.A("Skip to the page", href="#page", id="skip", className="mp-skip mp-button"),
            header,
            html.Main(id="page", className="mp-page", tabIndex=-1),
            html.Div(id="reading", className="mp-reading", role="status"),
            html.Footer(f"mpprof · {source.title}", className="mp-footer"),
            _keys(),
        ],
        theme=theme.MANTINE,
        defaultColorScheme="auto",
    )


def _brand(source: RunSource) -> html.A:
    return html.A([html.Span("mp"), "prof"], href="/", className="mp-brand", title=source.title)


def _first(source: RunSource, reach: Reach) -> str:
    """Return what the address of this request shows before its scripts have come: the navigation, and what is
    being read. ahead.js takes it away once the frame shows both."""
    entries, _ = listed(source)
    now = choices.read(flask.request.query_string.decode("utf-8", "replace"), entries)
    page = next((page for page in PAGES if page.path == flask.request.path), None)
    entry = next((entry for entry in entries if entry.id == now.run), None)
    tabs = html.Nav(_navigation(page, now), className="mp-nav")
    bar = html.Div([_brand(source), html.Div(className="mp-choosers"), tabs], className="mp-bar")
    reading = html.Div(_reading(entry), className="mp-reading", role="status")
    shown = html.Div([html.Header(bar, className="mp-header"), reading], id="first", className="mp-first")
    return render(prefixed(settled(shown), reach.prefix), str)


def _choosers() -> html.Div:
    look = {"data": [], "searchable": True, "size": "xs", "className": "mp-select"}
    look |= {"nothingFoundMessage": "nothing matches", "selectFirstOptionOnChange": True}
    run = dmc.Select(id="run", allowDeselect=False, **look, **{"aria-label": "Run"})
    baseline = dmc.Select(
        id="baseline", clearable=True, placeholder="no baseline", **look, **{"aria-label": "Baseline"}
    )
    return html.Div([run, html.Span("vs", className="mp-versus"), baseline], className="mp-choosers")


_SHARES = (
    ("link", "Copy the link"), ("markdown", "Copy as Markdown"), ("png", "This page as PNG"),
    ("html", "One HTML file"), ("redacted", "One HTML file, redacted"),
)  # fmt: skip


def _share() -> html.Details:
    buttons = [html.Button(text, className="mp-menu-item", **{"data-share": key}) for key, text in _SHARES]
    said = html.Span(id="share-said", className="mp-note", role="status")
    menu = html.Div([*buttons, said], className="mp-menu")
    return html.Details(
        [html.Summary("Share", className="mp-button"), menu], id="share", className="mp-share"
    )


_KEYS = (
    ("?", "these keys"), ("j k", "next cause, previous cause"), ("[ ]", "previous run, next run"),
    ("/", "search, or the first filter"), ("w s + -", "zoom the timeline"), ("a d ← →", "move the timeline"),
    ("n p", "next kernel, previous kernel"), ("m", "set a mark; a second measures between"),
    ("Home 0", "the whole step"), ("Esc", "close, or clear the selection"),
)  # fmt: skip


def _keys() -> Any:
    """Return a dialog of the browser's own, which keeps the focus inside and restores it afterwards."""
    rows = [html.Div([html.Dt(keys), html.Dd(does)], className="mp-panel-row") for keys, does in _KEYS]
    return html.Dialog(
        [html.H2("Keys", className="mp-section-title"), html.Dl(rows),
         html.Button("close", id="keys-close", className="mp-button")],
        id="keys", className="mp-card mp-panel mp-keys", **{"aria-label": "Keys"},
    )  # fmt: skip


def _register(app: dash.Dash, source: RunSource, rendered: Rendered, reach: Reach, spare: bool) -> None:
    def choose(search: str | None, _: int | None, path: str | None) -> tuple[Any, ...]:
        """Return what the choosers offer and show, the navigation, and what is being read: no trace is read
        for it, so that it is there while the page waits for one. choosers.js writes what is chosen there into
        the URL: as an output of this callback it would keep the page waiting."""
        entries, _problem = listed(source)
        now = choices.read(search, entries)
        # A chooser clears a value that it does not list, which would be taken for a choice.
        known = {entry.id for entry in entries}
        run, baseline = (value if value in known else None for value in (now.run, now.baseline))
        options = _options(entries)
        page = next((page for page in PAGES if page.path == reach.within(path or "/")), None)
        entry = next((entry for entry in entries if entry.id == run), None)
        tabs = prefixed(_navigation(page, now), reach.prefix)
        return run, options, baseline, options, [run, baseline], tabs, _reading(entry)

    def draw(path: str | None, search: str | None, _: int | None, seen: str | None) -> tuple[Any, ...]:
        """Return the page that the URL names; a refresh that changes nothing leaves the page as it is."""
        page, context, problem, version = _asked(source, reach.within(path or "/"), search)
        live = not context.entries or (context.entry is not None and context.entry.live)
        if dash.ctx.triggered_id == "live" and version == seen:
            raise PreventUpdate  # answered with 204: nothing is read, computed or sent
        prefix = reach.prefix
        content = cards.failure(problem) if problem else _content(page, context, rendered, version, prefix)
        small = context.entry is not None and (context.entry.size_bytes or 0) < _SPARE_BYTES
        if spare and not problem and small and not live and page is not runs.PAGE:
            rendered.in_spare_time(partial(_draw_others, source, rendered, context.choice.query(), prefix))
        return content, not live, version

    url, live = Input("url", "search"), Input("live", "n_intervals")
    app.callback(
        Output("run", "value"), Output("run", "data"), Output("baseline", "value"),
        Output("baseline", "data"), Output("shown", "data"), Output("nav", "children"),
        Output("reading", "children"), url, live, Input("url", "pathname"),
    )(choose)  # fmt: skip
    app.clientside_callback(
        ClientsideFunction("mpprof", "choose"), Input("run", "value"), Input("baseline", "value"),
        State("run", "data"), State("shown", "data"),
    )  # fmt: skip
    app.clientside_callback(
        ClientsideFunction("mpprof", "named"), Input("nav", "children"), Input("shown", "data")
    )
    app.clientside_callback(
        ClientsideFunction("mpprof", "follow"), Output("run", "value", allow_duplicate=True),
        Output("baseline", "value", allow_duplicate=True), Output("shown", "data", allow_duplicate=True),
        url, State("run", "data"), prevent_initial_call=True,
    )  # fmt: skip
    app.callback(
        Output("page", "children"), Output("live", "disabled"),
        Output("seen", "data"), Input("url", "pathname"), url, live, State("seen", "data"),
    )(draw)  # fmt: skip


def _asked(
    source: RunSource, path: str | None, search: str | None
) -> tuple[Page | None, Context, MpprofError | None, str]:
    """Return what an address names: the page, the run, why there is none, and a version that changes with
    what is shown."""
    entries, problem = listed(source)
    page = next((page for page in PAGES if page.path == path), None)
    by_host = page is not None and page.by_host
    context = Context(source, entries, choices.read(search, entries), search or "", by_host)
    return page, context, problem, _version(context, problem)


def _reading(entry: RunEntry | None) -> list[Any]:
    """Return what is shown of a run while it is being read."""
    if entry is None:
        return []
    said = words.joined((entry.name, words.size(entry.size_bytes) if entry.size_bytes else None))
    return [
        html.P(["Reading ", html.Strong(said)]),
        html.Progress(className="mp-reading-bar", **{"aria-label": "Reading"}),
    ]


def _options(entries: tuple[RunEntry, ...]) -> list[dict[str, Any]]:
    baselines = choices.default_baselines(entries)
    return [
        {
            "value": entry.id,
            "label": _label(entry),
            "disabled": entry.problem is not None,
            "query": Choice(entry.id, baselines[entry.id]).query(),
        }
        for entry in entries
    ]


def _label(entry: RunEntry) -> str:
    said = entry.policy is None or entry.policy in entry.name.replace("-", "_")
    notes = [None if said else entry.policy]
    told = None if entry.state == "ended" else entry.state
    notes += [told or ("live" if entry.live else None), "unreadable" if entry.problem else None]
    return " · ".join([entry.name, *(note for note in notes if note)])


def _navigation(current: Page | None, choice: Choice) -> list[Any]:
    return [
        dcc.Link(
            page.title,
            href=f"{page.path}{choice.query()}",
            className="mp-tab" + (" mp-tab-current" if page is current else ""),
        )
        for page in PAGES
    ]


def _content(page: Page | None, context: Context, rendered: Rendered, version: str, prefix: str) -> Any:
    if page is None:
        return cards.empty("There is no such page", "Choose one of the pages above.")
    if not context.entries:
        return cards.empty(
            "No runs yet",
            f"Nothing under {context.source.title} contains a trace or records by mpprof.",
            "Train with MPProfilerCallback(LOGDIR): this page shows runs as they appear.",
        )

    def make() -> list[Any]:
        shown = [*_heading(page, context), hosts.switch(page, context), *page.layout(context)]
        return list(prefixed(settled(shown), prefix))

    try:
        return rendered.get((page.path, context.search), (version, context.entries), make)
    except MpprofError as error:
        return cards.failure(error)
    except Exception:  # noqa: BLE001  a bug of ours: the traceback goes to the log, the reader gets one card
        _LOG.exception("the page %s of run %s failed", page.path, context.choice.run)
        return cards.failure(
            MpprofError(
                "this page failed: a bug in mpprof",
                next="The traceback is in the server's log; please report it. The other pages still work.",
            )
        )


def _draw_ahead(source: RunSource, rendered: Rendered, path: str, search: str, prefix: str) -> None:
    """Draw and keep what the browser is going to ask for once it has loaded its scripts."""
    with source.one_answer():
        page, context, problem, version = _asked(source, path, search)
        if problem is None:
            _content(page, context, rendered, version, prefix)


def _draw_others(source: RunSource, rendered: Rendered, search: str, prefix: str) -> None:
    """Draw and keep the pages of a run, as the navigation names them."""
    for page in PAGES:
        _draw_ahead(source, rendered, page.path, search, prefix)


def _heading(page: Page, context: Context) -> list[Any]:
    """Return the page's first heading, for screen readers; empty for a page that shows a heading of its
    own."""
    if page.heading:
        return []
    return [html.H1(f"{page.title}: {context.name_of(context.choice.run)}", className="mp-unseen")]


def _version(context: Context, problem: MpprofError | None) -> str:
    """Return a text that changes with anything that a page shows: the files of the run and its baseline, and
    its state."""
    entry = context.entry
    if problem is not None or entry is None:
        return f"{problem} {len(context.entries)}"
    try:
        files = context.source.version(entry.id, context.choice.baseline)
    except MpprofError as error:
        files = str(error)
    return f"{files} {entry.state} {entry.live} {entry.problem}"


def _guard(app: dash.Dash, source: RunSource, rendered: Rendered, reach: Reach) -> None:
    """Add the checks and headers of every request: the Host, the run in the address, the content policy."""
    app.server.wsgi_app = partial(_one_answer, source, partial(_own_path, reach, app.server.wsgi_app))
    app.server.config["MAX_CONTENT_LENGTH"] = call_bodies.MOST_BYTES
    app.server.register_error_handler(DependencyException, _no_such_file)
    app.server.before_request(partial(_check, app, source, rendered, reach))
    app.server.after_request(
        partial(_with_headers, security.content_policy(app.csp_hashes(), reach.allow_frames))
    )
    app.server.after_request(Packer())
    app.server.after_request(
        WithoutDisk(source.path, reach.prefix)
    )  # the last one added is the first to be called


def _one_answer(source: RunSource, answer: Any, environ: Any, start_response: Any) -> Any:
    with source.one_answer():
        return answer(environ, start_response)


_ASKED = "mpprof.asked"


def _sent_to(prefix: str, to: str) -> Any:
    """Return a redirect to one of the page's own addresses. Below a prefix it is relative to the path asked
    for: some proxies put the prefix that they took away before a path, and others do not."""
    bare = prefix and flask.request.environ[_ASKED] == prefix  # without the slash at its end
    return flask.redirect(prefix.rpartition("/")[2] + to if bare else f".{to}" if prefix else to)


def _own_path(reach: Reach, answer: Any, environ: Any, start_response: Any) -> Any:
    """Answer a path that a proxy hands on whole as one from which it took the prefix away."""
    environ[_ASKED] = environ.get("PATH_INFO") or "/"
    environ["PATH_INFO"] = reach.within(environ[_ASKED])
    return answer(environ, start_response)


def _check(app: dash.Dash, source: RunSource, rendered: Rendered, reach: Reach) -> Any:
    """Return what is answered in place of what the request asks for; None lets it through. A page that is let
    through is drawn ahead."""
    if not reach.answers(flask.request.headers.get("Host", "")):
        return flask.Response(
            "mpprof answers only to this machine's own names.\n", 403, mimetype="text/plain"
        )
    if flask.request.method == "GET" and any(page.path == flask.request.path for page in PAGES):
        search = f"?{flask.request.query_string.decode('utf-8', 'replace')}"
        if "run" not in flask.request.args:
            return _to_choice(source, search, reach.prefix)
        rendered.ahead(partial(_draw_ahead, source, rendered, flask.request.path, search, reach.prefix))
    if flask.request.path.endswith("/_dash-update-component") and not call_bodies.is_call(app):
        text = "This request does not come from a page of mpprof.\n"
        return flask.Response(text, 400, mimetype="text/plain")
    return None


def _to_choice(source: RunSource, search: str, prefix: str) -> Any:
    """Return a redirect to the address that names a run, so that the address bar always holds a link worth
    sharing."""
    path, entries = flask.request.path, listed(source)[0]
    if path == "/" and len(entries) > runs.LANDS_ABOVE and "with" not in flask.request.args:
        return _sent_to(prefix, runs.PAGE.path)
    chosen = choices.read(search, entries)
    if chosen.run is None or path == runs.PAGE.path:
        return None
    return _sent_to(prefix, path + choices.stated(chosen, search))


def _with_headers(policy: str, response: flask.Response) -> flask.Response:
    response.headers["Content-Security-Policy"] = policy
    response.headers["X-Content-Type-Options"] = "nosniff"
    response.headers["Referrer-Policy"] = "no-referrer"
    response.headers["Cross-Origin-Resource-Policy"] = "same-origin"
    return response


def _no_such_file(_: DependencyException) -> flask.Response:
    return flask.Response("There is no such file.\n", 404, mimetype="text/plain")


def _downloads(app: dash.Dash, source: RunSource) -> None:
    """Add the routes of the report that the address names: one HTML file, and Markdown."""
    app.server.add_url_rule("/report.html", "/report.html", partial(_html_file, source))
    app.server.add_url_rule("/report.md", "/report.md", partial(_markdown, source))


def _addressed(source: RunSource) -> Context:
    """Return what the address of this request chooses."""
    entries, _ = listed(source)
    query = flask.request.query_string.decode("utf-8", "replace")
    return Context(source, entries, choices.read(query, entries))


def _html_file(source: RunSource) -> flask.Response:
    context = _addressed(source)
    redact = flask.request.args.get("redacted") == "1"
    step = routes.whole(flask.request.args.get("step"))
    try:
        text = run_html(source, context.run, context.choice.baseline, step=step, redact=redact)
    except MpprofError as error:
        return routes.refusal(error)
    return routes.saved_as("html", context.run, flask.Response(text, mimetype="text/html"))


def _markdown(source: RunSource) -> flask.Response:
    try:
        document = _addressed(source).report()
    except MpprofError as error:
        return routes.refusal(error)
    return flask.Response(markdown.render(document), mimetype="text/markdown")
