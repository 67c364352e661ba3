"""What holds for every test."""

import contextlib
import gc
from collections.abc import Iterator
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


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Iterator[None]:
    """After each file, keep it off what a worker then holds (frameworks, every sample's diagnosis): a walk over that
    took up to a minute."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
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
