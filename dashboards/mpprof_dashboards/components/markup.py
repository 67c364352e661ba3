"""Trees of `dash.html` elements as HTML text, every string in them escaped."""

from __future__ import annotations

import html as markup
from collections.abc import Callable
from copy import copy
from typing import Any, ClassVar

from dash import dcc
from dash.development.base_component import Component

from mpprof.report import words

_NAMES = {"className": "class", "htmlFor": "for"}
"""Attributes that HTML calls otherwise than React; all others differ in their case alone."""
VOID = frozenset(("br", "hr", "img", "input"))
_CODE = "code"
"""The element whose line breaks are kept, as are those of the button that copies it."""


class Html(Component):  # type: ignore[misc]
    """One element whose inside is HTML text: one component for Dash, however much is in it.

    Dash's renderer takes about a millisecond for each component: a page of a thousand elements took seconds.
    `assets/html.js` draws it."""

    _children_props: ClassVar[list[str]] = []
    _base_nodes: ClassVar[list[str]] = []
    _namespace = "mpprof_dashboards"
    _type = "Html"

    def __init__(self, tag: str, attributes: dict[str, Any], markup: str) -> None:
        self._prop_names = ["tag", "attributes", "markup"]
        self._valid_wildcard_attributes: list[str] = []
        self.available_properties = self._prop_names
        self.available_wildcard_properties: list[str] = []
        super().__init__(tag=tag, attributes=attributes, markup=markup)


def settled(part: Any) -> Any:
    """Return `part` with every element that needs nothing of Dash made one `Html` with all that is in it.

    What needs Dash are its other components, which draw or call back, and an empty element with an id, which
    a script fills: it stays the same element when the page is drawn again."""
    if isinstance(part, list | tuple):
        return [settled(each) for each in part]
    if not _is_element(part):
        return part
    tag = part._type.lower()
    if tag not in VOID and _is_plain(part):
        attributes = {name: value for name, value in _attributes(part).items() if value is not None}
        return Html(tag, attributes, render(getattr(part, "children", None), _link, code=tag == _CODE))
    part.children = settled(part.children)
    return part


def prefixed(part: Any, prefix: str) -> Any:
    """Return a tree whose links within the page begin with the path that a proxy puts before it."""
    if not prefix:
        return part
    if isinstance(part, list | tuple):
        return [prefixed(each, prefix) for each in part]
    if not isinstance(part, Component):
        return part
    part = copy(part)
    if isinstance(part, Html):
        # Quotes in a text are written as &quot;: this can only be an attribute.
        part.markup = part.markup.replace(' href="/', f' href="{prefix}/')
        part.attributes = {
            name: f"{prefix}{value}" if name == "href" and str(value).startswith("/") else value
            for name, value in part.attributes.items()
        }
    elif str(getattr(part, "href", None) or "").startswith("/"):
        part.href = f"{prefix}{part.href}"
    if getattr(part, "children", None) is not None:
        part.children = prefixed(part.children, prefix)
    return part


def _is_element(part: Any) -> bool:
    return isinstance(part, Component) and part._namespace == "dash_html_components"


def _is_plain(part: Any) -> bool:
    if isinstance(part, list | tuple):
        return all(map(_is_plain, part))
    if not isinstance(part, Component):
        return True
    if not _is_element(part):
        return isinstance(part, dcc.Link | Html)
    children = getattr(part, "children", None)
    return not (children is None and getattr(part, "id", None)) and _is_plain(children)


def _link(part: Any) -> str:
    """Return a link within the page, which `assets/html.js` follows without reloading the page."""
    attributes = {name: value for name, value in _attributes(part).items() if name != "refresh"}
    return _element("a", attributes | {"data-link": ""}, render(getattr(part, "children", None), _link))


def _attributes(part: Component) -> dict[str, Any]:
    given: dict[str, Any] = part.to_plotly_json()["props"]
    return {name: value for name, value in given.items() if name != "children"}


def render(part: Any, other: Callable[[Any], str], *, code: bool = False) -> str:
    """Return `part` as HTML text; `other` gives that of components that are not plain elements. Control
    characters, which only names from other files hold, are written out; in `code`, line breaks stay."""
    if part is None:
        return ""
    if isinstance(part, list | tuple):
        return "".join([render(each, other, code=code) for each in part])
    if not isinstance(part, Component):
        return _text(part, code=code)
    if isinstance(part, Html):
        return _element(part.tag, part.attributes, part.markup)
    if not _is_element(part):
        return other(part)
    tag = part._type.lower()
    inside = render(getattr(part, "children", None), other, code=tag == _CODE)
    return _element(tag, _attributes(part), inside)


def _element(tag: str, attributes: dict[str, Any], inside: str) -> str:
    code = "data-copy" in attributes
    written = "".join([_attribute(name, value, code=code) for name, value in attributes.items()])
    return f"<{tag}{written}>" if tag in VOID else f"<{tag}{written}>{inside}</{tag}>"


def _attribute(name: str, value: Any, *, code: bool) -> str:
    if value is None or value is False:
        return ""
    name = _NAMES.get(name, name.lower())
    if value is True:
        return f" {name}"
    if isinstance(value, dict):  # style
        value = "; ".join([f"{key}: {each}" for key, each in value.items()])
    return f' {name}="{_text(value, code=code)}"'


def _text(part: Any, *, code: bool) -> str:
    text = str(part)
    return markup.escape("\n".join(map(words.plain, text.split("\n"))) if code else words.plain(text))
