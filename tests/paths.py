"""Where the tests find files that are not theirs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
SHARED_DATA = ROOT.parent / "shared" / "data"
"""Beside the checkout, where it is there at all: traces and figures that others recorded."""
NO_DATA = "names and published figures that are kept beside the project (../shared/data) are not here"
SHARED = SHARED_DATA / "traces" if SHARED_DATA.is_dir() else ROOT / "build" / "traces"
"""Public traces, by the names of CONTRIBUTING.md's table."""
NO_TRACES = "public traces are not here: `make traces` fetches them"
