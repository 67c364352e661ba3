"""The sample runs, each diagnosed once in a process, whoever asks."""

from functools import cache

from mpprof.api import workflows
from mpprof.api.source import LogDirectory
from mpprof.model.finding import Diagnosis
from tests.paths import SAMPLES

NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/origin.json"))


@cache
def diagnosed(name: str, baseline: str | None = None) -> Diagnosis:
    run = workflows.load(SAMPLES / name)
    return workflows.diagnose(run, workflows.load(SAMPLES / baseline) if baseline else None)


@cache
def source() -> LogDirectory:
    """All of them, as the page reads them."""
    return LogDirectory(SAMPLES)
