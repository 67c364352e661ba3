"""What holds for every test."""

import contextlib
import gc
from pathlib import Path

import pytest

with contextlib.suppress(ImportError):  # the environments of other frameworks have no Hypothesis
    from hypothesis import settings

    # How long an example takes says how busy the machine is, and nothing of the code.
    settings.register_profile("mpprof", deadline=None)
    settings.load_profile("mpprof")

# A fifth of the processor time of a worker that has loaded the frameworks goes into walks over their objects.
gc.set_threshold(100_000, 20, 100)


def pytest_collection_finish() -> None:
    """Keep the collector off the objects of the tests' imports: they stay until the end."""
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    """Keep it off what a worker holds (every sample's diagnosis): pytest's last collections took minutes."""
    gc.freeze()


HERE = Path(__file__).parent
LONG = ("browser", "numerics", "launch", "record", "frozen", "fuzz", "forecasts", "cli", "traces", "")
"""The folders whose files take longest for the few tests that they hold: a browser, trainings, processes, thousands of
inputs; "" are the files beside the folders. The rest is many short tests."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that the workers of `make unit` end together, and each folder in one stretch, so that what
    its tests share (a browser, its servers) is started once by each worker."""

    def rank(item: pytest.Item) -> int:
        inside = item.path.relative_to(HERE).parent.parts if item.path.is_relative_to(HERE) else ("outside",)
        folder = inside[0] if inside else ""
        return LONG.index(folder) if folder in LONG else len(LONG)

    items.sort(key=rank)
