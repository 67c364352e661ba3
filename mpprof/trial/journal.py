"""What was measured, on disk: a line for each training, so that nothing is lost and `--resume` goes on."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

from mpprof.errors import UnreadableError, UsageError
from mpprof.store import find_runs
from mpprof.store.writing import replace_text
from mpprof.trial.remedies import Advice, ByHand, Promise
from mpprof.trial.rounds import Trained
from mpprof.trial.settings import Setting

NAME, GIVEN_UP = "trainings.jsonl", "given-up.jsonl"
SCHEMA = "mpprof.trainings/1"


class Journal:
    """The file of one ladder. `asked`: what is tried, which must be the same where a ladder goes on."""

    def __init__(self, folder: Path, asked: dict[str, Any]) -> None:
        self.path, self._asked = folder / NAME, {"schema": SCHEMA, **asked}

    def begin(self, *, resume: bool) -> list[Trained]:
        """Begin the file, or go on with it. Returns the trainings that it holds. Raises UsageError where
        there is one and it is not to go on, or it is of something else; UnreadableError."""
        if not self.path.exists():
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._write([])
            return []
        if not resume:
            raise UsageError(
                "trainings were measured here before", where=str(self.path.parent),
                next="--resume goes on with them, --logdir begins elsewhere",
            )  # fmt: skip
        asked, done = _read(self.path)
        differs = [key for key, value in self._asked.items() if asked.get(key) != value]
        if differs:
            raise UsageError(
                f"what was measured here was asked with another {', '.join(differs)}",
                where=str(self.path.parent), next="Give the same options, or another --logdir",
            )  # fmt: skip
        self._write(done)  # without a line that was cut off
        return done

    def give_up(self) -> None:
        """Free the folder for another ladder where this one cannot go on and has left no run."""
        if not find_runs(self.path.parent):
            self.path.replace(self.path.with_name(GIVEN_UP))

    def _write(self, done: Sequence[Trained]) -> None:
        lines = [json.dumps(self._asked), *(json.dumps(asdict(each)) for each in done)]
        replace_text(self.path, "".join(f"{line}\n" for line in lines))

    def add(self, one: Trained) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(asdict(one)) + "\n")
            file.flush()
            os.fsync(file.fileno())


def given_up(folder: Path) -> bool:
    """Return whether a folder is left of a ladder without a run: another may begin there."""
    return (folder / GIVEN_UP).is_file() and not (folder / NAME).exists()


def _read(path: Path) -> tuple[dict[str, Any], list[Trained]]:
    try:
        head, *lines = path.read_text(encoding="utf-8").splitlines() or [""]
        return dict(json.loads(head)), [_trained(json.loads(line)) for line in _whole(lines)]
    except (ValueError, TypeError, KeyError, OSError) as error:
        raise UnreadableError(f"not a journal of trainings: {error}", where=str(path)) from error


def _whole(lines: Sequence[str]) -> Sequence[str]:
    """Return the lines without a last one that was cut off as it was written."""
    return lines if not lines or lines[-1].endswith("}") else lines[:-1]


def _trained(record: dict[str, Any]) -> Trained:
    setting = record.pop("setting")
    sets = tuple((name, value) for name, value in setting.pop("sets"))
    kept = {each.name: record[each.name] for each in fields(Trained) if each.name in record}
    lists = {key: _frozen(value) for key, value in kept.items() if isinstance(value, list)}
    advice = _advice(kept["advice"]) if kept.get("advice") else None
    return Trained(**{**kept, **lists, "advice": advice, "setting": Setting(**setting, sets=sets)})


def _advice(record: dict[str, Any]) -> Advice:
    promises = tuple(Promise(*_frozen(each)) for each in record["promises"])
    return Advice(record["step_ns"], promises, tuple(ByHand(*each) for each in record["by_hand"]))


def _frozen(value: Any) -> Any:
    return tuple(_frozen(each) for each in value) if isinstance(value, list) else value
