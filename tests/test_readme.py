"""The README is true: the report that it shows is the report, and every page that it links to exists."""

from __future__ import annotations

import re

import pytest

from mpprof.cli import main
from tests.paths import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
MIXED, FLOAT = (
    f"sample_traces/recorded-h200-transformer-{policy}" for policy in ("mixed-float16", "float32")
)


def shown() -> str:
    """The report as the README shows it, without its fence."""
    return README.partition("<!-- report -->\n```\n")[2].partition("```\n<!-- /report -->")[0]


def uncounted(report: str) -> str:
    """The report without how many causes are clear or not judged, which each new rule changes."""
    return re.sub(r"\d+ (?=not judged|not applicable|clear)", "", report)


def test_the_report_in_the_readme_is_the_report(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.delenv("COLUMNS", raising=False)
    assert main(["report", MIXED, "--baseline", FLOAT]) == 0
    assert len(shown().splitlines()) > 5
    assert uncounted(capsys.readouterr().out) == uncounted(shown())


def test_it_is_short_and_what_was_run_on_a_gpu_stands_before_what_is_said_of_gpus() -> None:
    assert 500 <= len(README.replace(shown(), "").split()) <= 750
    install, honest, report = map(
        README.index, ("pip install", "Its authors have run it on two GPUs", "<!-- report -->")
    )
    assert install < honest < report


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))])
def test_every_linked_file_exists(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (folder / link).exists()] == []
