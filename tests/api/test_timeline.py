"""The timeline's document names the events of the host and puts each below the one that it lies in."""

from __future__ import annotations

import mpprof
from mpprof.api import timeline, workflows
from tests.paths import SAMPLES

RUN = SAMPLES / "recorded-h200-transformer-mixed-float16"
WIDTH = 1200


def test_events_of_a_thread_are_named_and_lie_in_one_another() -> None:
    known = timeline.timeline_of(workflows.analyse(mpprof.load(RUN)))
    assert known is not None
    shown = timeline.window(known, width=WIDTH)
    least = timeline.NAMED_PIXELS * (shown["to_ns"] - shown["from_ns"]) / WIDTH
    told = [lane for lane in shown["lanes"] if "calls" in lane]
    assert {lane["kind"] for lane in told} == {"thread"}
    python = next(lane for lane in told if lane["name"] == "python3")["calls"]
    names = [shown["names"][row] for row in python["label"]]
    assert names[0] == "multi_step_on_iterator"
    assert any(name.startswith("EagerLocalExecute: __inference_multi_step_on_iterator") for name in names)
    for lane in told:
        calls, over = lane["calls"], []
        for begin, length, depth in zip(calls["start_ns"], calls["length_ns"], calls["depth"], strict=True):
            assert length >= least
            del over[depth:]
            assert len(over) == depth  # a parent stands before its children
            assert all(begin < end for end in over)
            over.append(begin + length)
    near = timeline.window(known, from_ns=shown["from_ns"], to_ns=shown["from_ns"] + 2_000_000, width=WIDTH)
    count = {lane["name"]: len(lane["calls"]["label"]) for lane in near["lanes"] if "calls" in lane}
    assert count["python3"] > 1


def test_a_pixel_has_the_shares_of_all_that_is_merged_into_it() -> None:
    known = timeline.timeline_of(workflows.analyse(mpprof.load(RUN)))
    assert known is not None
    fine, coarse = (timeline.window(known, width=width) for width in (timeline.MOST_WIDE, 40))
    spent = [0.0] * len(fine["keys"])
    for shown in (fine, coarse):
        lane, total = shown["lanes"][0], [0.0] * len(fine["keys"])
        mixed = lane.get("mixed", {})
        assert all(abs(sum(share for _, share in shares) - 1) < 0.01 for shares in mixed.values())
        assert all(lane["count"][int(at)] > 1 and len(shares) > 1 for at, shares in mixed.items())
        for at, length in enumerate(lane["length_ns"]):
            for key, share in mixed.get(str(at), [(lane["key"][at], 1.0)]):
                total[key] += length * share
        if shown is fine:
            spent = total
    assert len(coarse["lanes"][0]["mixed"]) > 10
    for key, ns in zip(fine["keys"], spent, strict=True):  # of each kind as much as from nearby
        there = total[fine["keys"].index(key)]
        assert abs(there - ns) <= 0.06 * sum(spent), key


def test_the_device_alone_is_the_first_of_all_lanes() -> None:
    known = timeline.timeline_of(workflows.analyse(mpprof.load(RUN)))
    assert known is not None
    whole, device = (timeline.window(known, width=WIDTH, device_only=only) for only in (False, True))
    (lane,) = device["lanes"]
    names = [
        [shown["names"][row] for row in shown["lanes"][0]["label"] if row >= 0] for shown in (whole, device)
    ]
    assert names[0] == names[1]
    assert lane | {"label": []} == whole["lanes"][0] | {"label": []}
