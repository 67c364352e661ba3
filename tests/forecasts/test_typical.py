"""Typical ranges, held to steps that were measured: the cases of `measured.csv`, listed before any calibration."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from math import exp

import pytest

from mpprof.forecasts import least_time, targets, typical
from mpprof.forecasts.typical import Measured
from mpprof.model.forecast import Band
from mpprof.model.frozen import frozen
from tests.forecasts import make_calibration
from tests.forecasts.make_calibration import Step, Told, compiled_steps, measured, told
from tests.forecasts.make_programs import CASES, stored
from tests.paths import ROOT

KNOWN = compiled_steps()


def cases() -> dict[str, list[Step]]:
    found: dict[str, list[Step]] = defaultdict(list)
    for step in measured():
        if step.case:
            found[step.case].append(step)
    return found


@frozen
class Figure:
    """What was measured of a case, and the range that is shown for it by the rows of other models."""

    case: str
    policy: str
    batch_size: int
    what: str
    truth: float
    shown: Band | None

    @property
    def held(self) -> bool:
        return self.shown is not None and self.shown.low <= self.truth <= self.shown.high

    @property
    def line(self) -> str:
        """Its row of the table in the docs."""
        unit = " ms" if self.what == "step" else "x"
        told = "not known"
        if self.shown is not None:
            told = f"{self.shown.low:.3g} to {self.shown.high:.3g}{unit}{'' if self.held else ': missed'}"
        return f"| {self.case} | {self.what}, {self.policy}, {self.batch_size} | {self.truth:.3g}{unit} | {told} |"


def figures(case: str, steps: list[Step]) -> Iterator[Figure]:
    others = typical.without(steps[0].network)
    plain = next((one for one in steps if one.policy == "float32"), None)
    for one in steps:
        what, wide = KNOWN[one.key], one.policy == "float32"
        capability = targets.card(one.card).compute_capability
        found = typical.step(what.family, capability, what.roofline_ns, what.kernels, wide=wide, table=others)
        band = found and Band(found.low / 1e6, found.high / 1e6)
        yield Figure(case, one.policy, one.batch_size, "step", one.step_ns / 1e6, band)
        if plain is not None and not wide:
            before = KNOWN[plain.key]
            ratio = launched(before) / plain.batch_size / (launched(what) / one.batch_size)
            gained = plain.step_ns / plain.batch_size / (one.step_ns / one.batch_size)
            found = typical.speedup(what.family, capability, what.roofline_ns, ratio, table=others)
            yield Figure(case, one.policy, one.batch_size, "speedup", gained, found)


def launched(step: Told) -> float:
    return least_time.with_launches_ns(step.roofline_ns, step.kernels)


@cache
def all_figures() -> tuple[Figure, ...]:
    known = {case: [one for one in steps if one.key in KNOWN] for case, steps in cases().items()}
    return tuple(each for case, steps in known.items() if steps for each in figures(case, steps))


def test_what_is_shown_of_the_cases_holds_the_truth() -> None:
    """By rows of other models alone; at least four cases are shown, and of what is shown 8 of 10 hold."""
    shown = [each for each in all_figures() if each.shown is not None]
    assert len({each.case for each in shown}) >= 4
    assert sum(each.held for each in shown) >= 0.8 * len(shown), [
        each.line for each in shown if not each.held
    ]


def test_the_docs_have_every_figure_that_is_shown_and_count_the_others() -> None:
    page = (ROOT / "docs" / "forecast.md").read_text(encoding="utf-8")
    shown = [each for each in all_figures() if each.shown is not None]
    case = tuple(f"| {name} |" for name in cases())
    assert [line for line in page.splitlines() if line.startswith(case)] == [each.line for each in shown]
    cases_shown = len({each.case for each in shown})
    assert (
        f"These {len(shown)} of {len(all_figures())} figures, of {cases_shown} of {len(cases())} cases,"
        in page
    )
    assert f"and {sum(each.held for each in shown)} of the {len(shown)} hold the truth" in page


def test_no_range_is_wider_than_three_to_one() -> None:
    shown = [each.shown for each in all_figures() if each.shown is not None]
    assert all(band.high <= typical.WIDEST * band.low * 1.0001 for band in shown)


def test_the_table_is_what_was_measured_beside_what_was_compiled() -> None:
    wanted = [typical._row({key: str(value) for key, value in row.items()})
              for row in make_calibration.table(measured(), KNOWN)]  # fmt: skip
    assert list(typical.rows()) == wanted
    assert all(one.source for one in typical.rows())


@pytest.mark.parametrize("case", [c for c in CASES if c.model in ("resnet", "published_convnet", "transfer")],
                         ids=lambda c: c.name)  # fmt: skip
def test_what_was_compiled_is_what_a_forecast_says(case: object) -> None:
    key = case.model, case.card, case.policy, case.batch_size  # type: ignore[attr-defined]
    now = told(stored(case), case.card)  # type: ignore[arg-type, attr-defined]
    assert (now.family, now.kernels) == (KNOWN[key].family, KNOWN[key].kernels)
    assert now.roofline_ns == pytest.approx(KNOWN[key].roofline_ns, rel=1e-3)


def test_the_error_that_is_stated_is_the_tables() -> None:
    page = (ROOT / "docs" / "forecast.md").read_text(encoding="utf-8")
    for family in ("convolutional", "transformer"):
        for name, error in (("step", typical.step_error(family)), ("speedup", typical.speedup_error(family))):
            assert f"| {family} | {name} | {exp(error):.2f}x |" in page, (family, name, exp(error))


ONE = Measured("transformer", "a", (7, 0), False, 1, 2e6, 1e6, 0, "made up")


def rows(*factors: tuple[str, float]) -> list[Measured]:
    return [replace(ONE, model=model, measured_ns=factor * 1e6) for model, factor in factors]


@pytest.mark.parametrize(
    ("table", "roofline_ns", "known"),
    [
        (rows(("a", 2.0)), 1e6, False),  # one model
        (rows(("a", 2.0), ("a", 2.2)), 1e6, False),  # twice the same
        (rows(("a", 2.0), ("b", 2.5)), 1e6, True),
        (rows(("a", 1.0), ("b", 2.0)), 1e6, False),  # a range of 4 to 1
        (rows(("a", 2.0), ("b", 2.5)), 1e5, False),  # so small a step is bound by launches
        (rows(("a", 2.0), ("b", 2.5)), 1e7, False),
    ],
)  # fmt: skip
def test_a_range_needs_two_models_that_agree_and_are_of_its_size(
    table: list[Measured], roofline_ns: float, known: bool
) -> None:
    found = typical.step("transformer", (7, 0), roofline_ns, 0, wide=False, table=table)
    assert (found is not None) is known
    assert typical.step("transformer", (7, 5), roofline_ns, 0, wide=False, table=table) is None
    assert typical.step("transformer", (7, 0), roofline_ns, 0, wide=True, table=table) is None


def test_a_range_is_as_wide_as_the_error_of_leaving_a_model_out() -> None:
    found = typical.step("transformer", (7, 0), 1e6, 0, wide=False, table=rows(("a", 2.0), ("b", 2.5)))
    assert found is not None
    assert found.high / found.low == pytest.approx((2.5 / 2.0) ** 2)
    assert (found.low * found.high) ** 0.5 == pytest.approx((2.0 * 2.5) ** 0.5 * 1e6)


def test_models_that_agree_on_one_card_are_as_uncertain_as_their_family() -> None:
    elsewhere = [replace(one, compute_capability=(8, 0)) for one in rows(("a", 2.0), ("b", 3.0))]
    found = typical.step(
        "transformer", (7, 0), 1e6, 0, wide=False, table=[*rows(("a", 2.0), ("b", 2.0)), *elsewhere]
    )
    assert found is not None
    assert found.high / found.low == pytest.approx((3.0 / 2.0) ** 2)


def test_launches_count_in_what_calibrates_as_in_what_is_told() -> None:
    """As many steps with as many launches: half of each measured step is launches."""
    launched = [replace(one, kernels=1000) for one in rows(("a", 4.0), ("b", 4.0))]
    found = typical.step("transformer", (7, 0), 3.8e6, 1000, wide=False, table=launched)
    assert found is None  # far larger than what was measured
    found = typical.step("transformer", (7, 0), 1e6, 1000, wide=False, table=launched)
    assert found == Band(pytest.approx(4e6), pytest.approx(4e6))
    alone = typical.step("transformer", (7, 0), 1e6, 0, wide=False, table=launched)
    assert alone == Band(pytest.approx(4e6 / 3.8), pytest.approx(4e6 / 3.8))
