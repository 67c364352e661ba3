"""The README is true: the report that it shows is the report, and every page that it links to exists."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text(encoding="utf-8")
MIXED, FLOAT = (f"sample_traces/v100-odd-vocabulary-{policy}" for policy in ("mixed-float16", "float32"))


def shown() -> str:
    """The report as the README shows it, without its fence."""
    return README.partition("<!-- report -->\n```\n")[2].partition("```\n<!-- /report -->")[0]


def uncounted(report: str) -> str:
    """The report without how many causes are clear or not judged, which each new rule changes."""
    return re.sub(r"\d+ (?=not judged|not applicable|clear)", "", report)


def test_the_report_in_the_readme_is_the_report() -> None:
    environment = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "FORCE_COLOR")}
    done = subprocess.run(
        [sys.executable, "-m", "mpprof", "report", MIXED, "--baseline", FLOAT], cwd=ROOT, check=True,
        env=environment | {"PYTHONIOENCODING": "utf-8"}, capture_output=True, encoding="utf-8",
    )  # fmt: skip
    assert len(shown().splitlines()) > 5
    assert uncounted(done.stdout) == uncounted(shown())


@pytest.mark.parametrize("page", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))])
def test_every_linked_file_exists(page: str) -> None:
    folder = (ROOT / page).parent
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)", (ROOT / page).read_text(encoding="utf-8"))
    assert [link for link in links if not (folder / link).exists()] == []
