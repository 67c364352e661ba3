"""Valid but unusual files, and hostile but well-formed ones: a report or one clear error, and one that does not
change where the file means the same."""

from __future__ import annotations

import contextlib
import gzip
import json
import random
from pathlib import Path
from typing import Any

import pytest

from mpprof.errors import MpprofError
from tests.fuzz.grammar import kineto, records, same_xplane, saying, worker, xplane_tree
from tests.fuzz.grammar.grammars import BY_NAME, GRAMMARS, pair, single
from tests.fuzz.harness import SOAK, fuzz, fuzz_in_parts
from tests.paths import NO_TRACES, SHARED

COUNT, EVERY = 400, 30
"""Of each grammar, always the same ones; `make full` has thousands of others."""
SOAK_EVERY = 10
CORPUS = Path(__file__).parent / "corpus"


@pytest.mark.parametrize("name", BY_NAME)
def test_hundreds_of_files_and_their_twins(name: str) -> None:
    figures = fuzz(name, COUNT, every=EVERY, hang_s=5.0)  # raises Fault
    assert figures["executions"] == COUNT
    assert figures["pairs"] > COUNT / EVERY / 3
    assert figures["refused"] < COUNT * 0.6


def _reports(numbers: range, folder: Path) -> int:
    """How many of these variants of run.json give a report; the others are refused with one error."""
    told = 0
    for number in numbers:
        worker.put(folder, pair(BY_NAME["run"], number)[0])
        with contextlib.suppress(MpprofError):
            told += bool(saying.said(folder / "run"))
    return told


def test_a_wrong_value_of_each_key_of_run_json_gives_a_report(tmp_path: Path) -> None:
    keys = records.key_paths()
    assert (
        _reports(range(keys), tmp_path) == keys - 1
    )  # but for the schema, without which it is no file of ours


@pytest.mark.full
def test_so_does_each_wrong_value_of_each_key(tmp_path: Path) -> None:
    numbers = range(records.variants())
    assert _reports(numbers, tmp_path) == len(numbers) - len(records.WRONG)


@pytest.mark.soak
@pytest.mark.parametrize("name", BY_NAME)
def test_many_more_files_and_their_twins(name: str) -> None:
    figures = fuzz_in_parts(name, SOAK, every=SOAK_EVERY, hang_s=5.0)  # raises Fault
    assert figures["executions"] == SOAK
    assert figures["pairs"] > SOAK / SOAK_EVERY / 3
    print(f"\n{name}: {figures}")


@pytest.mark.parametrize("grammar", GRAMMARS, ids=lambda grammar: grammar.name)
def test_an_input_and_its_twin_are_the_same_whenever_they_are_made(grammar: object) -> None:
    made = [pair(grammar, number) for number in range(30)]  # type: ignore[arg-type]
    assert made == [pair(grammar, number) for number in range(30)]  # type: ignore[arg-type]
    assert [files for files, _, _ in made] == [single(grammar, number) for number in range(30)]  # type: ignore[arg-type]
    assert len({json.dumps(sorted(map(hash, files.values()))) for files, _, _ in made}) > 15
    assert sum(files != twins for files, _, twins in made) > 15


@pytest.mark.parametrize(
    "path", sorted(path for path in CORPUS.iterdir() if path.is_file()), ids=lambda path: path.name
)
def test_what_was_found_before_gives_a_report(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file is a trace, or by its name one of the records of a run; the others are small ones."""
    monkeypatch.setenv("MPPROF_CACHE", "off")
    if not path.name.startswith("run-"):
        assert saying.said(path, whole=True)["schema"].startswith("mpprof.report/")
        return
    files = pair(BY_NAME["steps"], 0)[0]
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(content)
    kind = path.name.split("-")[1]
    (tmp_path / "run" / "mpprof" / kind).with_suffix(path.suffix).write_bytes(path.read_bytes())
    assert saying.said(tmp_path / "run", whole=True)["schema"].startswith("mpprof.report/")


@pytest.mark.parametrize("path", sorted((CORPUS / "pairs").glob("*.one.*")), ids=lambda path: path.name)
def test_what_differed_before_is_said_the_same(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPPROF_CACHE", "off")
    documents = []
    for kind in ("one", "twin"):
        read = tmp_path / f"host.{path.name.partition('.one.')[2]}"
        read.write_bytes(path.with_name(path.name.replace(".one.", f".{kind}.")).read_bytes())
        documents.append(saying.said(read))
    assert not list(saying.differences(*documents))


@pytest.mark.parametrize("change", same_xplane.CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", ["gtx1080ti-xla/cyclops.xplane.pb", "mi300-jax/jax08_gemm.xplane.pb"])
def test_a_recorded_xplane_and_its_twin_are_said_the_same(name: str, change: Any, tmp_path: Path) -> None:
    def written(space: xplane_tree.Space) -> Path:
        (tmp_path / "host.xplane.pb").write_bytes(space.to_bytes())
        return tmp_path / "host.xplane.pb"

    content = _real(name).read_bytes()
    before = saying.said(written(xplane_tree.parse(content)))
    space = xplane_tree.parse(content)
    change(random.Random(1), space)
    assert not list(saying.differences(before, saying.said(written(space))))


@pytest.mark.parametrize("change", kineto.CHANGES, ids=lambda change: change.__name__)
@pytest.mark.parametrize("name", ["a100-v100-torch/alexnet_a100.json.gz"])
def test_so_are_recorded_traces_of_pytorch(name: str, change: Any, tmp_path: Path) -> None:
    def said(document: Any) -> saying.Document:
        worker.put(tmp_path, kineto.written(document))
        return saying.said(tmp_path / BY_NAME["kineto"].at)

    content = gzip.decompress(_real(name).read_bytes())
    before, document = said(json.loads(content)), json.loads(content)
    change(random.Random(1), document)
    assert not list(saying.differences(before, said(document)))


def _real(name: str) -> Path:
    if not (SHARED / name).exists():
        pytest.skip(NO_TRACES)
    return SHARED / name
