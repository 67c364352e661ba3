"""Pictures of every page, for the docs and for eyes: `python -m tests.browser.screenshots [OUT] [RUN ...]`.

Each page of each run at 1440 and at 390 pixels, light and dark, of the samples. Without OUT the pictures of the
docs are made anew: `docs/images`, at 1440 pixels and light, of a recorded sample. Each says on its face which it is
of, and has 256 colours at most, which makes it small.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mpprof_dashboards.pages import PAGES

from tests.browser.visiting import CHROMIUM, FLAGS, serving
from tests.paths import ROOT, SAMPLES

DOCS = ROOT / "docs" / "images"
RUN = "recorded-h200-transformer-mixed-float16"
WIDTHS, SCHEMES = (1440, 390), ("light", "dark")
_DRAWN = """() => document.querySelector('#page .mp-card')
    && [...document.querySelectorAll('.mp-graph')].every(
        each => !each.checkVisibility() || each.querySelector('.main-svg'))
    && [...document.querySelectorAll('.mp-rows')].every(each => each.dataset.loaded)
    && [...document.querySelectorAll('#timeline')].every(
        each => each.dataset.drawn && (!each.dataset.baseline || each.dataset.base))
    && [...document.querySelectorAll('#runs')].every(each => each.dataset.drawn && !each.querySelector('[aria-busy]'))
"""
_SAID = """text => { const note = document.body.appendChild(document.createElement('div'));
    note.textContent = text; note.className = 'mp-chip';
    note.style.cssText = 'position:fixed;right:24px;bottom:14px;z-index:99;background:var(--mp-surface)'; }"""
LABEL = "Recorded on an H200 on 2026-11-28: Keras on TensorFlow, without XLA."
LABELS = {
    "Runs": "The samples of the repository: recorded runs, and synthetic ones, whose times were made up."
}
"""Of pages that show more than the one run."""


def name(title: str, width: int, scheme: str) -> str:
    return f"{title.lower()}-{width}-{scheme}.png"


def shoot(page: Any, base: str, path: str, run: str, file: Path, *, label: str = "") -> None:
    """Save one page once everything on it is drawn; with a `label`: what lies above the fold, small and labelled."""
    page.goto(f"{base}{path}?run={run}")
    page.wait_for_function(_DRAWN)
    page.wait_for_load_state("networkidle")
    file.parent.mkdir(parents=True, exist_ok=True)
    if label:
        page.evaluate(_SAID, label)
    page.screenshot(path=str(file), full_page=not label, animations="disabled")
    if label:
        from PIL import Image

        with Image.open(file) as picture:
            small = picture.convert("RGB").quantize(256, dither=Image.Dither.NONE)
        small.save(file, optimize=True)


def main(arguments: list[str]) -> int:
    from playwright.sync_api import sync_playwright

    out, runs = (Path(arguments[0]), arguments[1:] or [RUN]) if arguments else (DOCS, [RUN])
    docs = not arguments
    with sync_playwright() as playwright, serving(SAMPLES) as base:
        browser = playwright.chromium.launch(executable_path=str(CHROMIUM), args=FLAGS)
        for width in WIDTHS[:1] if docs else WIDTHS:
            for scheme in SCHEMES[:1] if docs else SCHEMES:
                size = {"width": width, "height": 900}
                page = browser.new_context(viewport=size, color_scheme=scheme).new_page()
                for run in runs:
                    for each in PAGES:
                        if docs and each.title == "Numbers":  # no sample holds a look at its numbers
                            continue
                        file = name(each.title, width, scheme) if not docs else f"{each.title.lower()}.png"
                        folder = out if len(runs) == 1 else out / run
                        label = LABELS.get(each.title, LABEL) if docs else ""
                        shoot(page, base, each.path, run, folder / file, label=label)
                        print(folder / file)
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
