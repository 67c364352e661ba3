"""The page over made-up runs."""

from __future__ import annotations

from typing import Any

import pytest
from mpprof_dashboards import create_app

from tests.dashboards.fake_source import FakeSource


@pytest.fixture(scope="module")
def client() -> Any:
    return create_app(FakeSource()).server.test_client()
