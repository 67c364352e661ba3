"""Pictures of every page, for the docs and for eyes: `python -m tests.browser.screenshots [OUT] [RUN ...]`.

Each page of each run at 1440 and at 390 pixels, light and dark, of the samples. Without OUT the pictures of the
docs are made anew: `docs/images`, of one sample, at 1440 pixels and light.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from mpprof_dashboards.pages import PAGES

from tests.browser.visiting import CHROMIUM, FLAGS, ROOT, SAMPLES, serving

DOCS = ROOT / "docs" / "images"
RUN = "v100-odd-vocabulary-mixed-float16"
WIDTHS, SCHEMES = (1440, 390), ("light", "dark")
_DRAWN = """() => document.querySelector('#page .mp-card')
    && [...document.querySelectorAll('.mp-graph')].every(each => each.querySelector('.main-svg'))
    && [...document.querySelectorAll('.mp-rows')].every(each => each.dataset.loaded)
    && [...document.querySelectorAll('#timeline')].every(each => each.dataset.drawn)
    && [...document.querySelectorAll('#runs')].every(each => each.dataset.drawn && !each.querySelector('[aria-busy]'))
"""


def name(title: str, width: int, scheme: str) -> str:
    return f"{title.lower()}-{width}-{scheme}.png"


def shoot(page: Any, base: str, path: str, run: str, file: Path, *, whole: bool = True) -> None:
    """One page once everything on it is drawn; `whole`: also what lies below the fold."""
    page.goto(f"{base}{path}?run={run}")
    page.wait_for_function(_DRAWN)
    page.wait_for_load_state("networkidle")
    file.parent.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=str(file), full_page=whole, animations="disabled")


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
                        file = name(each.title, width, scheme) if not docs else f"{each.title.lower()}.png"
                        folder = out if len(runs) == 1 else out / run
                        shoot(page, base, each.path, run, folder / file, whole=not docs)
                        print(folder / file)
        browser.close()
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
