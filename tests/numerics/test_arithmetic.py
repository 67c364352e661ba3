"""The arithmetic of loss scales and of causes, and looks that are read back, without a framework."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof.cli import main
from mpprof.numbers import band, text
from mpprof.numbers.causes import Op, Summary, cause, summary


@pytest.mark.parametrize("last", [-24, -3, 0, 15, 77, 126])
def test_the_highest_scale_is_the_last_power_of_two_without_an_overflow(last: int) -> None:
    asked: list[int] = []

    def is_finite(exponent: int) -> bool:
        asked.append(exponent)
        return exponent <= last

    assert band.highest(is_finite) == last
    assert len(asked) <= 10
    assert set(asked) <= set(range(band.LOWEST, band.HIGHEST + 1))


def test_where_every_scale_overflows_there_is_no_highest() -> None:
    assert band.highest(lambda exponent: False) is None


@pytest.mark.parametrize("first", [-24, -5, 3, 11])
def test_the_lowest_scale_is_the_first_that_loses_at_most_one_percent(first: int) -> None:
    assert band.lowest(lambda exponent: 0.01 if exponent >= first else 0.011, 11) == first


def test_where_the_highest_scale_loses_more_there_is_no_lowest() -> None:
    assert band.lowest(lambda exponent: 0.5, 11) is None


def test_what_is_0_in_float32_too_is_not_lost() -> None:
    assert band.lost_ratio(50, 50, 100) == 0
    assert band.lost_ratio(75, 50, 100) == 0.5
    assert band.lost_ratio(100, 100, 100) == 0


def of(value: float, dtype: str = "float16", shape: tuple[int, ...] = (2,)) -> Summary:
    return summary(np.full(shape, value), dtype)


def test_the_first_operation_of_finite_values_is_the_cause() -> None:
    late = Op("Exp", (of(np.inf),), (of(np.inf),))
    assert cause([Op("Mul", (of(300),), (of(1000),)), Op("MatMul", (of(1000),), (of(np.inf),)), late]) == (
        "sum",
        "a sum of values up to 1,000 overflows",
    )
    assert cause([late]) == ("constant", "a constant is infinite in float16, which ends at 65,504")
    assert cause([late], of_one=False) == cause([late])
    made = [Op("MatMul", (of(1000),), (of(70_000),)), Op("Cast", (of(70_000),), (of(np.inf),))]
    assert cause(made) == ("sum", "a sum is 70,000, beyond float16's 65,504")
    assert cause(made, of_one=False) == ("cast", "70,000 was made float16, which ends at 65,504")
    assert cause([Op("Mul", (of(300),), (of(1000),))]) is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [("Square", "variance"), ("integer_pow", "variance"), ("exp", "exp"), ("mul", "product"), ("dot_general", "sum"),
     ("conv_general_dilated", "sum"), ("AddV2", "sum"), ("convert_element_type", "cast"), ("_to_copy", "cast")],
)  # fmt: skip
def test_an_operation_is_known_by_the_frameworks_names(name: str, kind: str) -> None:
    found = cause([Op(name, (of(70_000, "float32"),), (of(np.inf),))])
    assert found[0] == kind


@pytest.mark.parametrize("name", ["dot_general", "BatchMatMulV2", "bmm", "Einsum", "addmm", "convolution"])
def test_of_a_sum_of_products_both_factors_are_named(name: str) -> None:
    """64 values of 208 make no sum beyond float16, and 64 products do."""
    assert 64 * 208 < float(np.finfo(np.float16).max) < 64 * 195 * 208
    factors = (of(195), of(208))
    given = (of(3), *factors) if name == "addmm" else (*factors, of(3)) if name == "convolution" else factors
    assert cause([Op(name, given, (of(np.inf),))]) == ("sum", "a sum of values up to 195 x 208 overflows")
    assert cause([Op("AddV2", factors, (of(np.inf),))]) == ("sum", "a sum of values up to 208 overflows")


def test_what_float16_holds_of_an_exp_is_a_clause_of_its_own() -> None:
    assert np.exp(11.08) < float(np.finfo(np.float16).max) < np.exp(11.1)
    found = cause([Op("exp", (of(40.5),), (of(np.inf),))])
    assert found == ("exp", "exp of 40.5 overflows; float16 holds up to exp of 11.09")


@pytest.mark.parametrize(
    ("low", "said"), [(2.0**-24, "good up to 2^9."), (2.0**-23, "good from 2^-23 to 2^9.")]
)
def test_the_lowest_scale_that_was_tried_is_no_lower_end(low: float, said: str) -> None:
    scale = {"now": 2.0**15, "low": low, "high": 2.0**9}
    assert f"Loss scale 2^15; {said}" in text.table({**WHOLE, "loss_scale": scale})


def test_a_cast_of_what_was_summed_up_in_float32_is_a_sum() -> None:
    summed = Op("reduce_sum", (of(300, "float32"),), (of(90_000, "float32"),))
    cast = Op("convert_element_type", (of(90_000, "float32"),), (of(np.inf),))
    assert cause([summed, cast]) == ("sum", "a sum is 90,000, beyond float16's 65,504")


def test_an_epsilon_that_rounds_to_0_is_told_from_none() -> None:
    divided = Op("rsqrt", (of(0),), (of(np.inf),))
    rounded = Op("AddV2", (of(0), of(1e-8, "scalar", ())), (of(0),))
    bias = Op("AddV2", (of(0), of(0)), (of(0),))
    assert (cause([rounded, divided]) or "")[0] == "epsilon"
    assert (cause([bias, divided]) or "")[0] == "division"


WHOLE: dict[str, Any] = {
    "trigger": "asked", "basis": "eager", "note": None, "loss_scale": {"now": 4.0, "low": None, "high": 1.0},
    "first_forward": None, "first_backward": {"layer": "a\x1b[2J", "tensor": "gradient", "reason": "it overflows"},
    "layers": [], "advice": [], "unable": [], "absent": {},
}  # fmt: skip


@pytest.mark.parametrize("without", ["basis", "layers", "advice", "unable", "layer", "now", "rows"])
def test_a_look_that_lacks_a_key_is_passed_over(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], without: str
) -> None:
    (tmp_path / "mpprof").mkdir()
    (tmp_path / "mpprof" / "run.json").write_text('{"schema":"mpprof.run/1","run_id":"r"}')
    damaged = {key: value for key, value in WHOLE.items() if key != without}
    if without in ("layer", "now"):
        name = {"layer": "first_backward", "now": "loss_scale"}[without]
        damaged[name] = {key: value for key, value in WHOLE[name].items() if key != without}
    if without == "rows":
        damaged["layers"] = [{"layer": "a"}]
    path = tmp_path / "mpprof" / "numerics.jsonl"
    path.write_text("\n".join(map(json.dumps, [{"schema": "mpprof.numerics/1"}, damaged])) + "\n")
    assert main(["numerics", str(tmp_path)]) == 2
    with path.open("a") as file:
        file.write(json.dumps(WHOLE) + "\n")
    capsys.readouterr()
    assert main(["numerics", str(tmp_path)]) == 0
    said = capsys.readouterr().out.splitlines()
    assert said[:2] == [
        "Look 1 of 1, asked for.",
        r"The gradient of a\x1b[2J is the first to break: it overflows.",
    ]
    none = "Loss scale 2^2; none is good: up to 1 gradients are finite, and more than 1 % of their elements are 0 at each."
    assert none in said
