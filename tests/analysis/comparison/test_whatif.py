"""Remedies together: gains add up, the host is the floor, and the order pays first."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mpprof.analysis.comparison.whatif import Remedy, plan, step_after

CAST, INPUT, LAUNCH = (
    Remedy("MP503", 30.0),
    Remedy("MP301", 40.0, host=True),
    Remedy("MP302", 10.0, host=True),
)


def test_gains_add_up() -> None:
    assert step_after(100.0, None, [CAST, INPUT]) == 30.0
    assert step_after(100.0, None, []) == 100.0


def test_nothing_shows_below_what_the_host_needs() -> None:
    assert step_after(100.0, 90.0, [CAST]) == 90.0
    assert step_after(100.0, 90.0, [CAST, INPUT]) == 50.0  # the wait for input is the host's own


def test_what_hides_behind_the_host_comes_after_what_relieves_it() -> None:
    found = plan(100.0, 100.0, [CAST, INPUT])
    assert [(s.code, s.step_ns, s.gain_ns, s.hidden_ns) for s in found.order] == [
        ("MP301", 60.0, 40.0, 0.0),
        ("MP503", 60.0, 0.0, 30.0),
    ]
    assert (found.best_step_ns, found.floor.by) == (60.0, "host")


def test_the_device_limits_where_the_host_needs_less() -> None:
    found = plan(100.0, 20.0, [CAST, LAUNCH])
    assert [s.code for s in found.order] == ["MP503", "MP302"]
    assert (found.best_step_ns, found.floor.by, found.floor.host_ns) == (60.0, "device", 20.0)


def test_without_remedies_the_step_stays() -> None:
    assert plan(100.0, None, []).best_step_ns == 100.0


remedies = st.lists(
    st.builds(Remedy, st.sampled_from(["MP1", "MP2", "MP3", "MP4"]), st.floats(0.1, 30.0), st.booleans()),
    max_size=5, unique_by=lambda remedy: remedy.code,
)  # fmt: skip


@given(remedies, st.one_of(st.none(), st.floats(1.0, 200.0)))
def test_each_step_is_no_longer_than_the_last_and_the_order_of_the_list_does_not_matter(found, host) -> None:
    made = plan(200.0, host, found)
    steps = [200.0, *(step.step_ns for step in made.order)]
    assert all(later <= earlier + 1e-9 for earlier, later in pairwise(steps))
    assert made.best_step_ns == pytest.approx(min(200.0, step_after(200.0, host, found)))
    assert plan(200.0, host, list(reversed(found))) == made
    assert all(
        s.gain_ns + s.hidden_ns >= r.gain_ns - 1e-9 for s in made.order for r in found if r.code == s.code
    )


def test_the_devices_own_work_stays_where_profiled_steps_waited_longer_than_others() -> None:
    """Work of 30 in a step of 100, whose profiled twin waited 90: a step of 10 could not hold the work."""
    waits, norm = Remedy("MP301", 90.0), Remedy("MP501", 8.0, work_ns=8.0)
    assert step_after(100.0, None, [waits], work_ns=30.0) == 30.0
    assert step_after(100.0, None, [waits, norm], work_ns=30.0) == 22.0
    found = plan(100.0, None, [waits, norm], work_ns=30.0)
    assert [(each.code, each.gain_ns) for each in found.order] == [("MP301", 70.0), ("MP501", 8.0)]
    assert found.best_step_ns == 22.0
    assert list(found.subsets_ns) == [100.0, 30.0, 92.0, 22.0]
    assert step_after(100.0, None, [norm], work_ns=250.0) == 92.0  # a window's own work is longer than a step


def test_what_is_dismissed_comes_last_so_that_the_other_gains_are_those_without_it() -> None:
    wait = Remedy("MP301", 40.0, host=True, dismissed=True)
    found = plan(100.0, 80.0, [wait, CAST, Remedy("MP801", 5.0)])
    assert [(s.code, s.gain_ns) for s in found.order] == [("MP503", 20.0), ("MP801", 0.0), ("MP301", 40.0)]
