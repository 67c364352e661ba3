"""Of every sample, alone and against its float32 twin, each rendering names the same first cause and target."""

from __future__ import annotations

import re

import pytest
from mpprof_dashboards import report_html

from mpprof.api import workflows
from mpprof.report import json as documents
from tests.builders.read_back import typed
from tests.paths import SAMPLES
from tests.report import hand_made, ranks

NAMES = sorted(path.name for path in SAMPLES.iterdir() if path.is_dir())
TWINS = {
    name: twin
    for name in NAMES
    if (twin := re.sub("mixed-b?float16", "float32", name)) != name and twin in NAMES
}


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_alone(name: str) -> None:
    ranks.check(documents.document(workflows.diagnose(workflows.load(SAMPLES / name))))


@pytest.mark.parametrize("name", TWINS)
def test_a_sample_against_its_twin(name: str) -> None:
    pair = [workflows.load(SAMPLES / each) for each in (name, TWINS[name])]
    ranks.check(documents.document(workflows.diagnose(*pair)))


def test_the_saved_page_holds_the_findings_in_their_order() -> None:
    document = documents.document(hand_made.diagnosis())
    codes = re.findall(r'<article[^>]* data-code="(MP\d{3})"', report_html(typed(document)))
    assert codes == [found["code"] for found in document["findings"]]
