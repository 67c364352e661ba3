"""What the reports of the samples promise, over all that is kept of them: one target, none below 1, and no larger batch
where input or copies bind."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from mpprof.diagnosis.rules.mp303_batch_not_raised import BINDING_RATIO
from tests.frozen.keeping import kept

TEXTS = {
    name: each["text"] for name, each in kept("texts").items() if name.startswith(("report ", "compare "))
}
SCREENS = [name for name in TEXTS if name.startswith("report ") and name.split()[2:] in ([], ["--baseline"])]
ATTAINABLE = re.compile(
    r"(\d+\.\d+)x(?: to (\d+\.\d+)x)? (?:is )?attainable|no more than (\d+\.\d+)x|at most (\d+\.\d+)x"
)
GOAL = re.compile(r"about (\d+\.\d+)x")
ALL_REMEDIED = re.compile(r"(\d+\.\d+)x over ")


def flat(text: str) -> str:
    return " ".join(text.split())


def documents() -> Iterator[tuple[str, dict[str, Any]]]:
    for group in ("reports", "real"):
        for name, each in kept(group).items():
            document = each.get("document") if isinstance(each, dict) else None
            if isinstance(document, dict) and document.get("time") and document.get("findings"):
                yield f"{group} {name}", document


def test_there_is_much_to_scan() -> None:
    assert len(SCREENS) > 30
    assert len(dict(documents())) > 20


@pytest.mark.parametrize("name", SCREENS)
def test_a_screen_has_one_target(name: str) -> None:
    """The first figure is of now, the second of the first remedy; what all remedies give is no less, in the bars and
    in why there is no more (which may be less than float32)."""
    text = TEXTS[name]
    floor = "".join(re.findall(r"\nWhy no more: (.*(?:\n  .*)*)", text))
    figure = flat(text.partition("\n\n")[0]).partition(". ")[0]
    goals = [float(goal) for goal in GOAL.findall(figure)]
    after_all = [float(times) for times in ALL_REMEDIED.findall(text.replace(floor, ""))]
    floors = [float(times) for times in ALL_REMEDIED.findall(flat(floor))]
    assert len(goals) <= 1
    assert min([*goals, *after_all], default=1.0) >= 1
    for goal, times in [*zip(goals, after_all, strict=False), *zip(goals, floors, strict=False)]:
        assert times >= 0.99 * goal


@pytest.mark.parametrize("name", TEXTS)
def test_nothing_below_one_is_attainable(name: str) -> None:
    said = [float(value) for found in ATTAINABLE.findall(flat(TEXTS[name])) for value in found if value]
    assert min(said, default=1.0) >= 1
    assert "longer than this device allows" not in flat(TEXTS[name])


def test_twice_the_batch_is_for_runs_that_neither_input_nor_copies_bind() -> None:
    advised = 0
    for name, document in documents():
        time = document["time"]
        feeding = sum(
            part["ns_per_step"] for part in time["slices"] if part["class"] in ("idle_input", "copy")
        )
        if "MP303" in {found["code"] for found in document["findings"]}:
            assert feeding < BINDING_RATIO * time["step_ns"], name
            advised += 1
    assert advised


def test_an_estimate_that_is_too_wide_says_what_measures_it() -> None:
    wide = {name: flat(text) for name, text in TEXTS.items() if "wider than 2 to 1" in flat(text)}
    assert wide
    for name, text in wide.items():
        after = text.split("wider than 2 to 1", 1)[1]
        assert after.startswith(": the same run in the other precision measures it (--baseline)"), name
