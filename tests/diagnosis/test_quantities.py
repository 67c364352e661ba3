"""Numbers in the words of verdicts and findings: unit, three digits, and no zero for what is not known."""

from __future__ import annotations

import pytest

from mpprof.model import quantities as q


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 ns"), (5, "5.00 ns"), (999.4, "999 ns"), (999.6, "1.00 µs"), (1234, "1.23 µs"), (12_345_678, "12.3 ms"),
        (2.5e9, "2.50 s"), (-3e6, "-3.00 ms"), (None, "not known"), (float("nan"), "not a number"),
    ],
)  # fmt: skip
def test_times(value, words) -> None:
    assert q.format_ns(value) == words


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "0 %"), (0.00001, "<0.01 %"), (0.005, "0.50 %"), (0.153, "15.3 %"), (0.99999, ">99.9 %"), (1, "100 %"),
        (12.3, "1,230 %"), (None, "not known"),
    ],
)  # fmt: skip
def test_a_share_is_nothing_or_all_only_where_it_is(value, words) -> None:
    assert q.format_ratio(value) == words


def test_sizes_speedups_and_counts() -> None:
    assert [q.format_bytes(v) for v in (1, 512, 1 << 20, 1.5 * (1 << 30))] == [
        "1 byte",
        "512 bytes",
        "1.00 MiB",
        "1.50 GiB",
    ]
    assert [q.format_speedup(v) for v in (1.068, 12.34, None)] == ["1.07x", "12.3x", "not known"]
    assert [q.format_count(v) for v in (2_100_000, 3.14159, float("inf"))] == [
        "2,100,000",
        "3.14",
        "infinite",
    ]


def test_a_quantity_by_its_unit() -> None:
    assert q.format_quantity(1e6, "ns") == "1.00 ms"
    assert q.format_quantity(True, "text") == "yes"
    assert q.format_quantity("a", "ns") == "a"
    assert q.format_quantity(2.5, "TFLOP/s") == "2.50 TFLOP/s"
    assert q.format_quantity(None, "ratio") == "not known"
