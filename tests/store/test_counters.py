"""Counter verdicts in a run's directory: what is written is read back, and damage is one clear error."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mpprof import store
from mpprof.errors import TooNewError, UnreadableError
from mpprof.model.kernels import Reason, Verdict


def verdict(text: str = "verified") -> Verdict:
    return Verdict("tensor_core", "fp16", "gemm", Reason("counter-tensor", text), "counter", "fp32")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "mpprof").mkdir()
    return tmp_path


def put(root: Path, content: str) -> None:
    (root / "mpprof" / "counters.json").write_text(content, encoding="utf-8")


def test_verdicts_come_back_as_they_were(root: Path) -> None:
    given_ = {("void k<(int)4>(T1)", "Tesla T4"): verdict(), ("other", ""): verdict()}
    path = store.write_counters(root, given_)
    assert store.read_counters(root) == given_
    assert "card" not in json.loads(path.read_text())["kernels"][0]
    assert [file.name for file in path.parent.iterdir()] == ["counters.json"]


def test_newer_verdicts_replace_older_ones_of_the_same_kernel_and_card(root: Path) -> None:
    store.write_counters(root, {("a", ""): verdict("old"), ("b", ""): verdict("old")})
    store.write_counters(root, {("a", ""): verdict("new")})
    texts = {name: found.reason.text for (name, _), found in store.read_counters(root).items()}
    assert texts == {"a": "new", "b": "old"}


def test_a_run_without_counters_has_none(root: Path) -> None:
    assert store.read_counters(root) == {}


@pytest.mark.parametrize("content", ["", "{", "[]", '{"schema": "mpprof.run/1"}', "[" * 100_000])
def test_what_is_no_counters_file_is_refused_with_advice(root: Path, content: str) -> None:
    put(root, content)
    with pytest.raises(UnreadableError, match="counters"):
        store.read_counters(root)


def test_a_newer_schema_is_not_guessed_at(root: Path) -> None:
    put(root, '{"schema": "mpprof.counters/2", "kernels": []}')
    with pytest.raises(TooNewError):
        store.read_counters(root)


def test_rows_that_say_nothing_known_are_left_out(root: Path) -> None:
    good = {
        "name": "k",
        "placement": "cuda_core",
        "precision": "fp32",
        "family": "gemm",
        "reason": {"code": "c"},
    }
    rows = [good, {**good, "placement": "moon"}, {**good, "name": 3}, {**good, "reason": None}, 7, None]
    put(root, json.dumps({"schema": "mpprof.counters/1", "kernels": rows}))
    assert list(store.read_counters(root)) == [("k", "")]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=100)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=8),
                    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
                        st.sampled_from(["name", "card", "placement", "precision", "family", "reason", "code"]), inner)))  # fmt: skip
def test_any_json_is_read_or_refused(root: Path, value: object) -> None:
    put(root, json.dumps({"schema": "mpprof.counters/1", "kernels": value}))
    store.read_counters(root)
