"""The site builds without a warning, loads nothing from elsewhere, and says what the code says."""

from __future__ import annotations

import html
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mpprof
from mpprof.diagnosis import manual
from mpprof.traces import READERS
from tests.paths import ROOT

DOCS = ROOT / "docs"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The site, built as `make docs` does: any warning, also of a link or an anchor, is an error."""
    for package in ("material", "mkdocstrings_handlers.python"):
        pytest.importorskip(package, reason="the extra `docs` is not installed")
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(out)],
        cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return out


def words(text: str) -> list[str]:
    return re.findall(r"\w+", text)


def shown(page: Path) -> list[str]:
    """The words of a page's article, without its markup."""
    article = re.search(r"<article[^>]*>(.*?)</article>", page.read_text(encoding="utf-8"), re.DOTALL)
    assert article
    return words(html.unescape(re.sub(r"<[^>]*>", "", article[1])))


def test_every_page_loads_its_parts_from_the_site_alone(site: Path) -> None:
    pages = list(site.rglob("*.html"))
    assert len(pages) > len(manual.codes())
    loads = (
        r"<(?:script|img|iframe|link)\b[^>]*(?:src|href)=\"?(?:https?:)?//[^>]*>|@import|url\(['\"]?https?:"
    )
    assert {str(page): found for page in pages if (found := re.findall(loads, page.read_text()))} == {}


def test_every_cause_has_the_words_of_its_manual_page(site: Path) -> None:
    for code, slug, _ in manual.codes():
        assert shown(site / "causes" / f"{slug}.html") == words(manual.explain(code)), code


def test_every_cause_and_public_name_has_its_place(site: Path) -> None:
    causes = (site / "causes" / "index.html").read_text()
    assert [slug for _, slug, _ in manual.codes() if f'href="{slug}.html"' not in causes] == []
    reference = (site / "reference.html").read_text()
    assert [
        name for name in mpprof.__all__ if name != "__version__" and f'id="mpprof.{name}"' not in reference
    ] == []


def test_the_table_of_formats_in_the_docs_has_each_reader() -> None:
    table = (DOCS / "reading.md").read_text().partition("## Formats\n")[2].partition("\n#")[0]
    for reader in READERS:
        names = re.findall(r"\*[\w.]+\w", reader.files)
        assert names, f"`files` of {type(reader).__name__} names no files"
        for name in names:
            assert f"`{name}`" in table, f"docs/reading.md, Formats, has no row for {name}"


def test_the_keys_of_the_files_are_those_that_are_read() -> None:
    """Every key that the readers of run.json and steps.jsonl ask for is in docs/files.md."""
    documented = set(re.findall(r"[`\"]([a-z_0-9]+)[`\"]", (DOCS / "files.md").read_text()))
    store = ROOT / "mpprof" / "store"
    asked = set(re.findall(r"[(]\w+, \"([a-z_0-9]+)\"", (store / "facts.py").read_text()))
    asked |= set(re.findall(r"\.get\(\"([a-z_0-9]+)\"", (store / "facts.py").read_text()))
    columns = (store / "step_columns.py").read_text()
    asked |= set(re.findall(r"\"([a-z_]+)\"", columns.partition("INTEGERS = (")[2].partition(")")[0]))
    assert len(asked) > 60
    assert asked - documented == set()
