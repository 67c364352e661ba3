"""What a document once had it keeps: the frozen key paths of every sample's JSON, and the frozen schemas.

`tests/golden/keys.json` holds, for each sample and command, the paths of the keys that version 0.1.0 of the
2026-11-22 wrote ("findings[].code"); the schemas beside it are of that day. Keys only grow: never shorten them.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mpprof.api import workflows
from mpprof.api.ladder import compare
from mpprof.errors import MpprofError
from mpprof.report import json as documents
from tests.paths import SAMPLES

GOLDEN = Path(__file__).parent / "golden"
FROZEN: dict[str, list[str]] = json.loads((GOLDEN / "keys.json").read_text())
FREE = {"absent", "lacks", "missing", "placement_ns", "precision_ns"}
"""Maps whose keys are data (fields, placements, precisions), not names of the schema."""


def paths(value: Any, at: str = "") -> Iterator[str]:
    """Every key of a document with the way to it; the entries of a list share theirs."""
    if isinstance(value, dict):
        for key, inner in value.items():
            here = f"{at}.{key}" if at else key
            yield here
            if key not in FREE:
                yield from paths(inner, here)
    elif isinstance(value, list):
        for inner in value:
            yield from paths(inner, f"{at}[]")


def written(sample: str, command: str) -> Any:
    if command == "report":
        return documents.document(workflows.diagnose(workflows.load(SAMPLES / sample)))
    if command == "compare":
        pair = [workflows.load(SAMPLES / f"{sample}-{policy}") for policy in ("float32", "mixed-float16")]
        return documents.compare_document(compare(pair))
    return workflows.table_rows(workflows.load(SAMPLES / sample), command)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", FROZEN)
def test_no_key_of_a_sample_is_lost(name: str) -> None:
    sample, _, command = name.rpartition(" ")
    missing = set(FROZEN[name]) - set(paths(written(sample, command)))
    filled = {path for path in missing if not _below_null(path, written(sample, command))}
    assert not filled


def _below_null(path: str, document: Any) -> bool:
    """Whether a part of the document above this key is now null or empty: another meaning, no lost key."""
    kept = set(paths(document))
    parent, _, _ = path.rpartition(".")
    while parent:
        if parent.removesuffix("[]") in kept and not any(each.startswith(f"{parent}.") for each in kept):
            return True
        parent, _, _ = parent.rpartition(".")
    return False


@pytest.mark.parametrize("schema", ["report", "compare"])
def test_a_schema_only_grows(schema: str) -> None:
    frozen = json.loads((GOLDEN / f"{schema}.schema.frozen.json").read_text())
    grown = documents.schema(schema)
    lost = set(_properties(frozen)) - set(_properties(grown))
    assert not lost


def _properties(schema: Any) -> Iterator[str]:
    """Names of properties that a schema describes anywhere."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for inner in schema.values():
            yield from _properties(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from _properties(inner)


def _freeze() -> None:
    """Write keys.json anew; for a new sample or command only."""
    found = {}
    for folder in sorted(p for p in SAMPLES.iterdir() if p.is_dir()):
        for command in ("report", "kernels", "ops", "layers"):
            try:
                found[f"{folder.name} {command}"] = sorted(set(paths(written(folder.name, command))))
            except MpprofError as error:
                print(folder.name, command, error, file=sys.stderr)
    for pair in ("v100-convnet", "a100-tf32-baseline", "recorded-cpu"):
        found[f"{pair} compare"] = sorted(set(paths(written(pair, "compare"))))
    (GOLDEN / "keys.json").write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    _freeze()
