"""The page shows a ladder as it grows: its table is written with each training, and read back from any directory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from mpprof.api.source import LogDirectory
from mpprof.store import ladder
from mpprof.trial import text, trying
from mpprof.trial.result import Tried
from tests.trial.known import TWO, Known


def test_the_table_grows_with_each_training_and_the_page_finds_it(tmp_path: Path) -> None:
    folder = tmp_path / "train-try"
    folder.mkdir()
    seen: list[int] = []

    def grown(tried: Tried) -> None:
        text.write(tried, folder)
        (shown,) = LogDirectory(tmp_path).ladders()
        rounds = shown["titles"].index("rounds")
        seen.append(sum(int(row[rounds]) for row in shown["rows"]))

    train = Known(lambda setting, at: 20.0 if setting.policy == "float32" else 10.0 + at % 3 / 100)
    asked = trying.Asked(("train.py",), "train.py", folder, TWO)
    tried = trying.climb(asked, train, lambda said: None, clock=lambda: train.now_s, grown=grown)
    assert seen == list(range(1, len(train.turns) + 1))
    (last,) = LogDirectory(folder).ladders()
    assert (last["place"], last["script"], last["sentence"]) == ("train-try", "train.py", tried.sentence)
    assert [row[0] for row in last["rows"]] == ["float32", "mixed_bfloat16"]


@pytest.mark.parametrize(
    "content",
    ["", "[]", "{}", '{"schema": "mpprof.ladder/1"}', "[" * 100_000,
     json.dumps({"schema": ladder.SCHEMA, "script": "a", "sentence": 3, "titles": [], "rows": []})],
    ids=range(6),
)  # fmt: skip
def test_a_file_that_is_not_one_is_left_out(content: str, tmp_path: Path) -> None:
    (tmp_path / ladder.NAME).write_text(content)
    assert LogDirectory(tmp_path).ladders() == []


def test_what_leads_out_of_the_directory_is_not_read_and_names_are_safe(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    inside = tmp_path / "logs"
    (inside / "link").mkdir(parents=True)
    ladder.write(tmp_path / "elsewhere", "train.py", "", [], [])
    (inside / "link" / ladder.NAME).symlink_to(tmp_path / "elsewhere" / ladder.NAME)
    assert LogDirectory(inside).ladders() == []
    ladder.write(inside, "\x1b[2J\ud800", "s", ["t"], [["\x00"]])
    (shown,) = LogDirectory(inside).ladders()
    assert (shown["script"], shown["rows"]) == ("\\x1b[2J\\ud800", [["\\x00"]])
