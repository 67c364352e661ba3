"""What of a page is sent as HTML text, and that names in it stay text."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

import pytest
from dash import dcc, html
from mpprof_dashboards.components import cards
from mpprof_dashboards.components.graph import Graph
from mpprof_dashboards.components.markup import Html, render, settled
from mpprof_dashboards.figures.plain import blank

from tests.dashboards.fake_source import HOSTILE

_LINK = dcc.Link("steps", href="/steps?run=a&baseline=b", className="mp-more", target="_self")


class Read(HTMLParser):
    """The elements and the text of HTML as a browser reads them."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data


def test_an_element_with_all_that_is_in_it_is_one_component() -> None:
    rows = html.Tbody([html.Tr([html.Td(str(n), title=None), html.Td([n, " ", None])]) for n in range(99)])
    drawn = settled(html.Table(rows, className="mp-table", id="long", **{"data-of": "x"}))
    assert isinstance(drawn, Html)
    sent = drawn.to_plotly_json()["props"]
    assert (sent["tag"], sent["attributes"]) == (
        "table",
        {"id": "long", "className": "mp-table", "data-of": "x"},
    )
    assert sent["markup"].startswith("<tbody><tr><td>0</td><td>0 </td></tr>")


@pytest.mark.parametrize("other", [Graph("drawn", blank(99)), html.Div(id="filled-by-a-script")])
def test_what_needs_dash_stays_a_component_and_so_does_what_it_is_in(other: Any) -> None:
    first, second = settled(html.Section([html.P("before"), html.Div([other])])).children
    assert isinstance(first, Html)
    assert second.children == [other]


def test_a_name_is_text_in_elements_and_attributes_of_what_is_sent() -> None:
    element = html.P([HOSTILE, html.Span("a", title=f"\"{HOSTILE}'", **{"aria-label": HOSTILE})])
    read = Read(settled(element).markup)
    assert read.elements == [("span", {"title": f"\"{HOSTILE}'", "aria-label": HOSTILE})]
    assert read.text == f"{HOSTILE}a"


def test_code_of_two_lines_is_shown_and_copied_as_two_lines() -> None:
    text = 'set_policy("mixed_float16")\nmodel = build()'
    read = Read(render(cards.code(text), str))
    assert read.text.startswith(text)
    assert next(given for tag, given in read.elements if tag == "button")["data-copy"] == text
    assert Read(render(html.P("a\x07\nb"), str)).text == r"a\x07\nb"


def test_attributes_are_those_that_react_would_set() -> None:
    element = html.Label(
        [
            html.Img(src="x.png", alt=""),
            html.Td(colSpan=2, tabIndex="0", style={"left": "1%", "width": "2%"}),
        ],
        htmlFor="x",
        hidden=True,
    )
    (label, of_label), (image, of_image), (_, cell) = Read(render(element, str)).elements
    assert (label, of_label) == ("label", {"for": "x", "hidden": None})
    assert (image, of_image) == ("img", {"src": "x.png", "alt": ""})
    assert cell == {"colspan": "2", "tabindex": "0", "style": "left: 1%; width: 2%"}


def test_a_link_within_the_page_is_one_that_the_pages_script_follows() -> None:
    ((tag, attributes),) = Read(settled(html.P(_LINK)).markup).elements
    assert tag == "a"
    assert attributes == {
        "href": "/steps?run=a&baseline=b",
        "class": "mp-more",
        "target": "_self",
        "data-link": "",
    }
