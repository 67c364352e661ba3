"""The page Numbers: the exponents of each tensor over the range of its type, and what the look says."""

from __future__ import annotations

import re

from mpprof_dashboards.drawings import exponents

from tests.dashboards.fake_source import HOSTILE, LOOK


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
    assert subnormal[1] == normal[0]  # float16: from 2^-24, from 2^-14, to 2^16
    assert cells[1][1] == normal[1]
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
