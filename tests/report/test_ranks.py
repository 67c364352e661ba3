"""Of every sample, alone and against its float32 twin, each rendering names the same first cause and target."""

from __future__ import annotations

import re

import pytest
from mpprof_dashboards import report_html

from mpprof.report import json as documents
from tests import samples
from tests.builders.read_back import typed
from tests.report import hand_made, ranks
from tests.samples import NAMES

TWINS = {
    name: twin
    for name in NAMES
    if (twin := re.sub("mixed-b?float16", "float32", name)) != name and twin in NAMES
}


@pytest.mark.parametrize("name", NAMES)
def test_a_sample_alone(name: str) -> None:
    ranks.check(documents.document(samples.diagnosed(name)))


@pytest.mark.parametrize("name", TWINS)
def test_a_sample_against_its_twin(name: str) -> None:
    ranks.check(documents.document(samples.diagnosed(name, TWINS[name])))


def test_the_saved_page_holds_the_findings_in_their_order() -> None:
    document = documents.document(hand_made.diagnosis())
    codes = re.findall(r'<article[^>]* data-code="(MP\d{3})"', report_html(typed(document)))
    assert codes == [found["code"] for found in document["findings"]]
