"""The sentences after the verdict, and the finding that the verdict names."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mpprof.api import workflows
from mpprof.diagnosis import Case
from mpprof.diagnosis.engine import explanation
from mpprof.report import json as documents
from tests.builders import cases as c
from tests.builders.read_back import content
from tests.diagnosis.saying import diagnosed
from tests.paths import SAMPLES

NAMES = sorted(folder.name for folder in SAMPLES.iterdir() if folder.is_dir())


def sentences(case: Case) -> tuple[str, ...]:
    return explanation(diagnosed(case))


def test_where_the_step_goes_why_and_what_to_do() -> None:
    account = c.account(c.cell("idle_input", 30), c.cell("cast", 10))
    where, do = sentences(c.case(account=account))
    assert where.startswith("A step of 100 ms is 60.0 % matrix work (100 % of it on Tensor Cores in fp16)")
    assert "30.0 % waiting for input and 10.0 % casts; the device idles 30.0 %." in where
    assert "prefetch" in do
    assert "(MP301), which gives 70.0 ms a step at best; with MP503 as well 60.0 ms a step at best." in do


def test_beside_a_larger_batch_stands_whether_one_fits() -> None:
    account = c.account(c.cell("idle_launch", 40), c.healthy(60, calls_per_step=6_000.0))
    room = c.summary(peak_memory_bytes=1 << 30)
    launching = c.case(records=c.facts("float32"), account=account)
    assert sentences(launching)[-1].endswith("; a larger batch raises examples per second.")
    assert "twice the batch fits" in sentences(replace(launching, steps=room))[-1]
    full = c.summary(peak_memory_bytes=15 << 30)
    assert "fits" not in sentences(replace(launching, steps=full))[-1]
    copying = c.case(account=c.account(c.cell("copy", 40)), steps=room)
    assert "prefetch batches" in sentences(copying)[-1]  # names batches, and raises none
    assert "fits" not in sentences(copying)[-1]


def test_what_profiling_added_to_the_step_is_left_out_of_the_shares_and_said() -> None:
    cells = (c.cell("idle_launch", 50), c.cell("idle_input", 10), c.healthy(60), c.cell("profiling", -20))
    account = replace(c.account(*cells, wall_ms=100), window_ns=120 * c.MS)
    where, _ = sentences(c.case(account=account))
    assert "60.0 % matrix work" in where
    assert "30.0 % waiting for launches" in where
    assert where.endswith("idles 40.0 %, without the 20.0 % that profiling added.")
    on_cpu = replace(account, trace_basis="host")
    where = sentences(c.case(account=on_cpu))[0]
    assert where.endswith("idles 50.0 %; these shares include the 16.7 % that profiling added.")


def test_against_a_baseline_what_lies_above_the_reach() -> None:
    account = c.account(c.cell("idle_input", 30))
    speedup = c.speedup(
        c.gap_slice("idle_input", 0, 30), c.gap_slice("norm", 10, 4, 2.0), interval=(1.9, 2.1)
    )
    _, why, _ = sentences(
        c.case(account=account, speedup=speedup, baseline=c.case(records=c.facts("float32")))
    )
    assert why == "Longer than this device allows: waiting for input 30.0 ms a step."
    plain = c.speedup(
        c.gap_slice("idle_input", 0, 30), c.gap_slice("norm", 10, 4), interval=(1.9, 2.1), expected=None
    )
    _, why, _ = sentences(c.case(account=account, speedup=plain, baseline=c.case(records=c.facts("float32"))))
    assert (
        why
        == "Longer than in the baseline: waiting for input 30.0 ms a step; shorter: normalisation 6.00 ms."
    )


def test_what_the_verdict_names_is_done_first_even_where_it_frees_no_time() -> None:
    skipping = c.steps(skipped=dict.fromkeys(range(40, 200, 3), 1))
    _, do = sentences(c.case(account=c.account(c.cell("cast", 20)), table=skipping, records=c.facts()))
    assert do.startswith("First: ")
    assert "(MP201); with MP503 as well 80.0 ms a step at best." in do


def test_a_healthy_run_gets_no_advice() -> None:
    found = sentences(c.case(account=c.account()))
    assert len(found) == 1
    assert "100 % matrix work" in found[0]


def test_without_an_account_there_is_nothing_to_explain() -> None:
    assert sentences(c.case(table=c.steps())) == ()


@pytest.mark.parametrize("name", NAMES)
def test_the_next_step_explains_what_the_verdict_names(name: str) -> None:
    document = documents.document(workflows.diagnose(workflows.load(SAMPLES / name)))
    cause, commands = document["cause"], [command for command, _ in content.next_steps(document, None)]
    if cause is None:
        assert "cause" in document["absent"]
    else:
        assert cause in document["verdict"]
        assert commands[0] == f"mpprof explain {cause}"
    assert len(document["explanation"]) <= 3
    assert all(said.endswith(".") and said[0].isupper() for said in document["explanation"])
