"""The page Numbers: the exponents of each tensor over the range of its type, and what the look says."""

from __future__ import annotations

import re
from typing import Any

import pytest
from mpprof_dashboards import export
from mpprof_dashboards.components import proof
from mpprof_dashboards.drawings import exponents

from mpprof.model.frozen import changed
from mpprof.model.run import ShownLook
from tests.dashboards.fake_source import HOSTILE, LOOK
from tests.samples import source


def places(svg: str, name: str) -> list[tuple[float, float]]:
    """Begin and end of each rectangle of a class, in percent of the width."""
    found = []
    for given in re.findall(rf"<rect[^>]*class=\"{name}\"[^>]*>", svg):
        begin, width = (float(re.search(rf'{key}="([\d.]+)%"', given)[1]) for key in (" x", "width"))
        found.append((begin, begin + width))
    return found


def test_elements_within_the_type_lie_over_its_range_and_the_rest_beside_it() -> None:
    svg = exponents.draw(LOOK.rows[:1])
    cells, ranges = places(svg, "mp-ruler-got"), places(svg, "mp-ruler-line")
    assert len(cells) == 2
    (normal, subnormal) = ranges
    assert subnormal[1] == pytest.approx(normal[0], abs=0.01)  # float16: from 2^-24, from 2^-14, to 2^16
    assert cells[1][1] == pytest.approx(normal[1], abs=0.01)
    outside = exponents.draw(
        [{"layer": "a", "tensor": "output", "dtype": "float16", "exponents": {"-30": 1}}]
    )
    assert places(outside, "mp-ruler-got")[0][1] < places(outside, "mp-ruler-line")[1][0]


def test_shares_that_are_lost_are_marked_and_names_are_text() -> None:
    svg = exponents.draw(LOOK.rows)
    assert "overflow 25%" in svg
    assert "flushed &lt;1%" in svg
    assert HOSTILE not in svg


def test_without_exponents_there_is_no_drawing() -> None:
    damaged = {"layer": 3, "tensor": None, "dtype": "float16", "exponents": {"x": 1, "3": "y", "9": -1}}
    assert exponents.draw([damaged]) == ""
    assert exponents.draw([]) == ""


def _broken(*shares: float) -> list[dict[str, Any]]:
    return [
        {
            "layer": f"dense_{at}",
            "tensor": "output",
            "dtype": "float16",
            "exponents": {"3": 9},
            "nonfinite_ratio": share,
        }
        for at, share in enumerate(shares)
    ]


def test_what_broke_first_is_shown_with_what_lies_before_and_behind_it() -> None:
    rows = _broken(*[0.0] * 5, 0.25, *[1.0] * 20)
    shown = exponents.telling(rows)
    assert [row["layer"] for row in shown] == [f"dense_{at}" for at in range(3, 11)]
    (bold,) = re.findall(r'mp-strong"><span>(\w+) output', exponents.draw(shown))
    assert bold == "dense_5"
    lost = [
        row | {"flushed_ratio": 0.5 if row["layer"] == "dense_4" else 0.001} for row in _broken(*[0.0] * 6)
    ]
    assert [row["layer"] for row in exponents.telling(lost)] == ["dense_4"]
    assert exponents.telling(_broken(0.0, 0.0)) == []


def test_numbers_out_of_range_are_proved_by_exponents_and_below_them_by_the_loss_scale() -> None:
    name = "v100-loss-scale-thrash"
    document = source().report(name, None)
    given = proof.material(source(), name, document)
    assert given.look is None  # this sample was not looked at
    looked = changed(
        given,
        look=ShownLook(
            "Look 1 of 1.", ("The output of dense_1 is the first to break.",), tuple(_broken(0.0, 0.25)), ()
        ),
    )
    text = export.render(proof.sections(document, looked, "?run=x"))
    places = [
        text.index(part)
        for part in (
            'id="proof"',
            "dense_1 is the first to break",
            "mp-exponent",
            'id="proof-scale"',
            'id="strip"',
        )
    ]
    assert places == sorted(places)
    without = export.render(proof.sections(document, given, "?run=x"))
    assert "mp-exponent" not in without
    assert "proof-scale" not in without
