"""Where the tests find files that are not theirs."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SAMPLES = ROOT / "sample_traces"
SHARED_DATA = ROOT.parent / "shared" / "data"
"""Beside the checkout, where it is there at all: traces and figures that others recorded."""
SHARED = SHARED_DATA / "traces"
