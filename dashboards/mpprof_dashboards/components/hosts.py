"""Which host of a run the page is of: one control, only where there are several."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dash import html

from mpprof.model.run import HostTrace
from mpprof.report import words
from mpprof_dashboards.components import segments
from mpprof_dashboards.components.context import Context, Page
from mpprof_dashboards.components.text import sentence


def switch(page: Page, context: Context) -> html.Div | None:
    """Return a link for each host of the run, with the shown one marked; None where the page shows no single
    host, or the run has only one."""
    entry = context.entry
    if not page.by_host or entry is None or not entry.hosts:
        return None
    shown = context.choice.host or entry.hosts[0].host
    links = [_host(page, context, each, on=each.host == shown) for each in entry.hosts]
    head = [html.Span("Host", className="mp-tool"), segments.group(links, "Host")]
    return html.Div(head, id="hosts", className="mp-section-head")


def _host(page: Page, context: Context, host: HostTrace, *, on: bool) -> Any:
    name = words.plain(host.host)
    if host.trace is None:
        why = sentence(f"no trace: {host.reason}")
        return html.Span(name, className="mp-segment mp-segment-missing", title=words.plain(why))
    chosen = replace(context.choice, host=host.host)
    return segments.link(name, f"{page.path}{chosen.query()}", on=on)
