"""What holds of the trainings of `trainings.py` on every backend."""

from __future__ import annotations

from typing import Any

from tests.record.wall_time.trainings import AT_ONCE, EPOCHS, STEPS

NEARLY = 5_000_000
"""What the looks at the clock make together, in ns: there are a few thousand."""

CALLS = {
    "on_train_batch_begin": ("batch", STEPS * EPOCHS),
    "on_train_batch_end": ("batch", STEPS * EPOCHS // 5),
    "on_epoch_begin": ("epoch begin", EPOCHS),
    "on_epoch_end": ("epoch", EPOCHS),
    "on_train_begin": ("train", 1),
    "on_test_begin": ("validation", EPOCHS),
    "on_test_batch_end": ("validation", EPOCHS * 2),
}
"""By the slow hook where its time is noted, and how often it is slow."""


PEEKED = {"PyDataset": 0, "generator": 2}


def timed(answer: dict[str, Any]) -> dict[str, int]:
    """The sums without compiling, which takes its own time by its own clock."""
    return {name: ns for name, ns in answer["spent"].items() if not name.startswith("compile/")}


def near(ns: int, expected: int) -> bool:
    return abs(ns - expected) <= NEARLY


def assert_hooks_are_timed(answers: dict[str, Any]) -> None:
    plain = answers["nothing1"]
    assert max(timed(plain).values()) <= NEARLY
    for hook, (at, calls) in CALLS.items():
        for order in ("1", "-1"):
            slow, expected = answers[hook + order], calls * AT_ONCE
            spent = {name: ns for name, ns in timed(slow).items() if ns > NEARLY}
            assert list(spent) == [f"callbacks/Slow/{at}"], (hook, order)
            assert near(spent[f"callbacks/Slow/{at}"], expected)
            assert near(slow["wall"] - plain["wall"], expected)
            within = {"validation": "validation"}.get(at)
            assert near(slow["validation"] - plain["validation"], expected if within else 0)
            # An epoch begins behind the hooks of its begin: what follows up to its first call is Keras' work.
            epochs = 0 if hook in ("on_train_begin", "on_epoch_begin") else expected
            assert near(sum(slow["epochs"]) - sum(plain["epochs"]), epochs)
            assert len(slow["epochs"]) == EPOCHS
            assert "run_time.callbacks" not in slow["absent"]
            assert "run_time.setup" in slow["absent"]
    for order in ("1", "-1"):
        stalls = [tuple(stall) for stall in answers["on_train_batch_end" + order]["stalls"]]
        assert ("Slow", 5, 5) in stalls


def assert_input_is_timed(answers: dict[str, Any]) -> None:
    for kind in ("arrays", "PyDataset", "generator"):
        plain = answers[f"{kind}0"]
        assert {f"input/{kind}/first", f"input/{kind}/batch"} <= set(plain["spent"])
        assert max(timed(plain).values()) <= NEARLY
        assert "run_time.input" not in plain["absent"]
        if kind == "arrays":
            continue
        for every in (1, 5):
            slow = answers[f"{kind}{every}"]
            waits = {name: ns for name, ns in timed(slow).items() if ns > NEARLY}
            assert set(waits) <= {f"input/{kind}/first", f"input/{kind}/batch"}
            seen = sum(waits.values())
            assert near(seen, slow["wall"] - plain["wall"])
            before = PEEKED[kind]  # the fit, when Keras looks at the first batches of a generator
            calls = STEPS * EPOCHS - before if every == 1 else STEPS * EPOCHS // every
            assert near(seen, calls * AT_ONCE)
            if every == 1:
                others = (STEPS - 1) * EPOCHS - max(0, before - 1)
                assert near(waits[f"input/{kind}/batch"], others * AT_ONCE)


def assert_ends_of_data_are_between_epochs(answers: dict[str, Any]) -> None:
    plain = answers["plain"]["parts"]
    for name, times in (("PyDataset", EPOCHS), ("generator", 1)):  # the generator ends in the first epoch
        slow = answers[name]
        assert slow["longest"] <= NEARLY
        assert slow["batches"] <= NEARLY
        for part, ns in slow["parts"].items():
            if part != "compile":  # by its own clock
                expected = times * AT_ONCE if part == "between_epochs" else 0
                assert near(ns - plain.get(part, 0), expected), (name, part)
