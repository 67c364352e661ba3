"""The page for those who hear it or use keys alone: axe-core without a violation, every control by keyboard.

axe-core is not part of the project: `npm install axe-core`, or name its file in MPPROF_AXE.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from mpprof_dashboards.pages import PAGES

from tests.browser.visiting import MEASURED, visit
from tests.paths import ROOT

pytestmark = pytest.mark.browser
AXE = Path(os.environ.get("MPPROF_AXE", ROOT / "node_modules" / "axe-core" / "axe.min.js"))
_RUN = """async () => (await axe.run()).violations.map(
    each => each.id + ': ' + each.nodes.map(node => node.target.join(' ')).join(', '))"""


@pytest.mark.skipif(not AXE.exists(), reason="axe-core is not here: npm install axe-core")
@pytest.mark.parametrize("width", [1440, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_page_has_a_violation(chromium: Any, sample_server: str, scheme: str, width: int) -> None:
    """As it is opened, and with a side panel open."""
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, bypass_csp=True
    )
    page, found = context.new_page(), {}
    for path in (*(each.path for each in PAGES), "/kernels?by=product"):
        place, _, more = path.partition("?")
        page.goto(f"{sample_server}{place}{MEASURED}&{more}")
        page.wait_for_selector("#page .mp-card")
        page.wait_for_load_state("networkidle")
        page.wait_for_function(_SCROLLABLE_REACHED)
        page.evaluate(AXE.read_text(encoding="utf-8"))
        if violations := page.evaluate(_RUN):
            found[path] = violations
        if opener := _OPENERS.get(path):
            page.wait_for_selector(opener[0])
            page.focus(opener[0])
            page.keyboard.press("Enter")
            page.wait_for_selector(opener[1])
            page.wait_for_function(_SCROLLABLE_REACHED)
            if violations := page.evaluate(_RUN):
                found[f"{path} with its panel"] = violations
    assert found == {}
    context.close()


_SCROLLABLE_REACHED = """() => [...document.querySelectorAll('.mp-scroll, .mp-panel')].every(box =>
    box.tabIndex === 0 || (box.scrollWidth <= box.clientWidth && box.scrollHeight <= box.clientHeight))"""
_OPENERS = {
    "/kernels": ("#kernels .mp-row-name", "#kernels .mp-rows-panel .mp-panel-row"),
    "/layers": ("#layers .mp-row-name", "#layers .mp-rows-panel .mp-panel-row"),
    "/timeline": ("#timeline[data-drawn]", "#tl-panel .mp-panel-row"),
}
"""What opens a side panel by the keyboard, and what is in the panel then."""


def test_a_skip_link_comes_first_and_leads_into_the_page(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/kernels{MEASURED}")
    address = seen.page.url
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("() => document.activeElement.getBoundingClientRect().top") >= 0
    seen.page.keyboard.press("Enter")
    seen.page.keyboard.press("Tab")
    assert seen.page.evaluate("() => document.getElementById('page').contains(document.activeElement)")
    assert seen.page.url == address
    seen.assert_quiet()


def test_escape_closes_what_is_open(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/kernels{MEASURED}")
    seen.page.click("#kernels .mp-row-name >> nth=0")
    seen.page.click("#share summary")
    seen.page.keyboard.press("Escape")
    assert not seen.page.is_visible("#share .mp-menu")
    assert seen.page.is_visible("#kernels .mp-rows-panel")  # one at a time
    seen.page.keyboard.press("?")
    seen.page.keyboard.press("Escape")
    seen.page.wait_for_selector("#keys", state="hidden")
    assert seen.page.is_visible("#kernels .mp-rows-panel")
    seen.page.keyboard.press("Escape")
    assert not seen.page.is_visible("#kernels .mp-rows-panel")
    assert seen.page.evaluate("() => document.activeElement.className") == "mp-row-name"
    seen.assert_quiet()


def test_every_control_of_every_page_is_reached_and_seen_by_tab(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    for page in PAGES:
        seen.turn(f"{page.path}{MEASURED}")
        seen.page.wait_for_load_state("networkidle")
        seen.page.wait_for_function(_FILLED, timeout=120_000)
        for _ in range(3):
            seen.page.evaluate(_TO_REACH)
            for _ in range(25):
                for _ in range(20):
                    seen.page.keyboard.press("Tab")
                if not seen.page.evaluate(_REACHED):
                    break
            if not seen.page.evaluate(_REPLACED):
                break
        left = seen.page.evaluate("() => [...window.toReach].map(e => e.outerHTML.slice(0, 120))")
        assert left == [], page.path
        assert seen.page.evaluate("() => window.unseen") == [], page.path
    seen.assert_quiet()


_FILLED = "() => !document.querySelector('[aria-busy]')"
"""A row that is filled later takes the place of the one that was to be reached."""
_REPLACED = "() => [...window.toReach].some(e => !e.isConnected)"
"""On a slow machine a page may be drawn anew on the way: what took the place of the rest is then looked for."""
_TO_REACH = """() => {
    const shown = e => e.checkVisibility() && !e.disabled && e.tabIndex >= 0 && !e.closest('dialog:not([open])');
    const all = [...document.querySelectorAll('a[href], button, input, select, summary, [tabindex="0"]')];
    window.toReach = new Set(all.filter(shown).filter(e => !e.closest('.modebar')));
    window.unseen ??= [];
    window.heard ??= (() => {
        const look = e => { const s = getComputedStyle(e); return [s.outlineStyle, s.outlineWidth, s.boxShadow, s.borderColor].join(); };
        const near = on => [on, on.parentElement, on.closest('label, .mantine-MultiSelect-input')].filter(Boolean).map(look).join();
        let on, focused;
        document.addEventListener('focusin', ({ target }) => {
            if (window.toReach.delete(target)) [on, focused] = [target, near(target)];
        });
        document.addEventListener('focusout', ({ target }) => {
            if (on === target && target.isConnected && near(target) === focused) window.unseen.push(target.outerHTML.slice(0, 120));
        });
        return true;
    })();
    document.activeElement?.blur();
}"""
"""Focus is seen by an outline, a border or a shadow that the element does not have without it. Each element is looked
at as it takes the focus and as it leaves it, in the page: a look after each key would take longer than the key."""
_REACHED = "() => window.toReach.size"


def test_the_keys_are_shown_walk_the_causes_and_change_the_run(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/{MEASURED}")
    seen.page.keyboard.press("?")
    assert seen.page.locator("dialog#keys").is_visible()
    seen.page.keyboard.press("Escape")
    assert not seen.page.locator("dialog#keys").is_visible()
    focused = "() => document.activeElement.closest('[data-code]')?.dataset.code"
    seen.page.keyboard.press("j")
    first = seen.page.evaluate(focused)
    seen.page.keyboard.press("j")
    second = seen.page.evaluate(focused)
    seen.page.keyboard.press("k")
    assert first == seen.page.evaluate(focused) != second
    was = seen.page.url
    seen.page.keyboard.press("]")
    seen.page.wait_for_function("was => location.href !== was", arg=was)
    seen.page.keyboard.press("[")
    seen.page.wait_for_function("() => location.search.includes('run=v100-input-bound-mixed-float16')")
    seen.assert_quiet()


def test_every_control_of_the_tables_is_reached_by_keys(chromium: Any, sample_server: str) -> None:
    seen = visit(chromium, sample_server)
    seen.open_well(f"/kernels{MEASURED}")
    seen.page.keyboard.press("/")
    field = "() => document.activeElement.dataset.field"
    assert seen.page.evaluate(field) == "short"
    was = seen.page.get_attribute("#kernels", "data-loaded")
    seen.page.keyboard.type("gemm")
    seen.page.wait_for_function("was => document.querySelector('#kernels').dataset.loaded !== was", arg=was)
    for _ in range(40):  # the rest of the filters, then the rows
        seen.page.keyboard.press("Tab")
        if seen.page.evaluate("() => document.activeElement.classList.contains('mp-row-name')"):
            break
    seen.page.keyboard.press("Enter")
    assert seen.page.locator("#kernels .mp-rows-panel").is_visible()
    seen.assert_quiet()
