"""One run on several hosts: whom the others wait for, what they exchange, whose clock is off, who is missing."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.cli import main
from mpprof.errors import UsageError
from mpprof.runs import hosts
from tests.builders.cluster import SESSION, Cluster, Member, Played, play, write_session, write_workers
from tests.builders.gpus import V100
from tests.builders.read_back import text as rendering
from tests.builders.simulate import Host
from tests.planted.cases import F16, convnet

A, B, C = Member("node-a"), Member("node-b"), Member("node-c")
SLOW_C = replace(C, slower=1.2)
MS = 1e6


def cluster(*members: Member, **facts: Any) -> Cluster:
    return Cluster(V100, F16, convnet(V100, F16), members, **facts)


@cache
def played(made: Cluster) -> tuple[Played, ...]:
    return tuple(play(made))


Cluster.__hash__ = object.__hash__  # type: ignore[method-assign]  # a model holds lists
EVEN, SLOW = cluster(A, B, C), cluster(A, B, SLOW_C)


def step_ms(made: Cluster) -> float:
    """The step of the first host's log, the first half left out."""
    rows = [line for line in played(made)[0].lines if line.get("kind") == "step" and "interval_ns" in line]
    times = sorted(row["interval_ns"] for row in rows if row["step"] > 4 and not row["profiled"])
    return float(times[len(times) // 2]) / MS


def finding(found: mpprof.Diagnosis, code: str) -> Any:
    return next((each for each in found.findings if each.code == code), None)


def test_the_host_that_the_others_wait_for_is_named_at_what_it_costs(tmp_path: Path) -> None:
    truth = step_ms(SLOW) - step_ms(EVEN)
    for directory in (
        write_session(played(SLOW), tmp_path / "session"),
        write_workers(SLOW, played(SLOW), tmp_path / "workers"),
    ):
        found = mpprof.diagnose(directory)
        straggler = finding(found, "MP704")
        assert found.cause == "MP704"
        assert "/device:GPU:0 of node-c" in straggler.summary
        assert "1.20x as long" in straggler.summary
        assert straggler.cost_ns_per_step / MS == pytest.approx(truth, rel=0.1)
        assert "node-c" in found.verdict
        document = found.document()
        assert [each["host"] for each in document["hosts"]["read"]] == ["node-a", "node-b", "node-c"]
        assert document["hosts"]["missing"] == []
        assert document["communication"]["stragglers"] == [{"host": "node-c", "device": "/device:GPU:0"}]
        assert [each["host"] for each in document["time"]["devices"]] == ["node-a", "node-b", "node-c"]
        assert not [warning for warning in found.warnings if "host" in warning or "device" in warning]


def test_a_host_that_waits_for_its_input_holds_up_the_others(tmp_path: Path) -> None:
    made = cluster(A, replace(B, host=Host(input_us=9_000.0)), C)
    found = mpprof.diagnose(write_session(played(made), tmp_path))
    straggler = finding(found, "MP704")
    assert "/device:GPU:0 of node-b" in straggler.summary
    assert "longer in waiting for input" in straggler.summary
    assert "what holds up its process" in straggler.remedy
    assert straggler.cost_ns_per_step / MS == pytest.approx(step_ms(made) - step_ms(EVEN), rel=0.1)


def test_the_first_host_itself_may_be_the_slow_one(tmp_path: Path) -> None:
    made = cluster(replace(A, slower=1.2), B, C)
    straggler = finding(mpprof.diagnose(write_session(played(made), tmp_path)), "MP704")
    assert "/device:GPU:0 of node-a" in straggler.summary
    assert straggler.cost_ns_per_step / MS == pytest.approx(step_ms(made) - step_ms(EVEN), rel=0.1)


@pytest.mark.parametrize("slower", [1.0, 1.02])
def test_hosts_that_keep_pace_are_left_in_peace(tmp_path: Path, slower: float) -> None:
    made = EVEN if slower == 1.0 else cluster(A, B, replace(C, slower=slower))
    found = mpprof.diagnose(write_workers(made, played(made), tmp_path))
    assert {"MP702", "MP703", "MP704"} <= set(found.clear)
    assert found.document()["communication"]["stragglers"] == []


def test_float32_sums_cost_half_of_their_transfer_and_16_bit_sums_nothing(tmp_path: Path) -> None:
    long, half = cluster(A, B, transfer_us=12_000.0), cluster(A, B, transfer_us=6_000.0, type="f16")
    found = mpprof.diagnose(write_workers(long, played(long), tmp_path / "long"))
    exchange = finding(found, "MP701")
    assert exchange.severity == "warning"
    assert exchange.cost_ns_per_step / MS == pytest.approx(step_ms(long) - step_ms(half), rel=0.1)
    (sums,) = found.document()["communication"]["by"]
    assert (sums["kind"], sums["precision"]) == ("reduce", "fp32")
    assert sums["exposed_ns"] / MS == pytest.approx(12.0, rel=0.05)
    assert "MP701" in mpprof.diagnose(write_workers(half, played(half), tmp_path / "half")).clear
    waiting = finding(mpprof.diagnose(write_workers(SLOW, played(SLOW), tmp_path / "slow")), "MP701")
    assert waiting is None  # a slow host's exchange is long, and its transfer is not


def test_sparse_gradients_are_collected_and_not_summed(tmp_path: Path) -> None:
    made = cluster(A, B, transfer_us=6_000.0, collective="AllGather", type="i8")
    found = mpprof.diagnose(write_workers(made, played(made), tmp_path))
    gathers = finding(found, "MP703")
    assert gathers.cost_ns_per_step / MS == pytest.approx(6.0, rel=0.1)
    assert "MP701" in found.clear


def test_clocks_that_differ_are_estimated_and_applied_to_nothing(tmp_path: Path) -> None:
    made = cluster(A, replace(B, clock_ns=3_200_000), replace(SLOW_C, clock_ns=-700_000))
    document = mpprof.diagnose(write_session(played(made), tmp_path / "off")).document()
    skews = [each["clock_skew"] for each in document["hosts"]["read"]]
    assert skews[0] is None
    assert [skew["skew_ns"] for skew in skews[1:]] == pytest.approx([3_200_000, -700_000], abs=20_000)
    assert {skew["by"] for skew in skews[1:]} == {"collectives"}
    same = mpprof.diagnose(write_session(played(SLOW), tmp_path / "same")).document()
    assert document["time"] == same["time"]
    assert document["communication"] == same["communication"]
    assert "nothing is shifted by it" in " ".join(rendering.render(document).split())


def test_a_host_without_a_trace_is_missing_and_the_rest_is_judged(tmp_path: Path) -> None:
    made = cluster(A, B, SLOW_C, replace(A, name="node-d"))
    directory = write_workers(made, played(made), tmp_path)
    (directory / f"{SESSION}_2" / "node-b.xplane.pb").unlink()
    (directory / f"{SESSION}_4" / "node-d.xplane.pb").write_bytes(b"\x0a\x02")
    found = mpprof.diagnose(directory)
    assert "/device:GPU:0 of node-c" in finding(found, "MP704").summary
    missing = found.document()["hosts"]["missing"]
    assert [(each["host"], each["worker"]) for each in missing] == [("node-b", 1), ("node-d", 3)]
    assert missing[0]["reason"].startswith("no trace was found in ")
    assert "not a profile" in missing[1]["reason"]
    warnings = [warning for warning in found.warnings if "hosts of this run" in warning]
    assert [warning.partition(",")[0] for warning in warnings] == ["node-b", "node-d"]
    assert "4 devices train together, and the traces show the steps of 2" in " ".join(found.warnings)


def test_a_host_whose_trace_is_cut_off_says_so_by_its_name(tmp_path: Path) -> None:
    directory = write_session(played(SLOW), tmp_path)
    trace = directory / SESSION / "node-b.xplane.pb"
    trace.write_bytes(trace.read_bytes()[: trace.stat().st_size * 3 // 4])
    (directory / SESSION / "node-z.xplane.pb").write_bytes(b"")
    found = mpprof.diagnose(directory)
    assert any(warning.startswith("node-b") and "cut off" in warning for warning in found.warnings)
    assert any(
        warning.startswith("node-z, one of 4 hosts") and "empty" in warning for warning in found.warnings
    )
    assert "/device:GPU:0 of node-c" in finding(found, "MP704").summary


def test_a_session_of_several_hosts_is_one_run_of_which_tables_show_one_host(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    directory = write_session(played(SLOW), tmp_path / "logs")
    assert [run.name for run in mpprof.load([directory])] == [SESSION]
    (row,) = mpprof.survey(directory, workers=1)
    assert (row["run"], row["cause"], row["gpus"]) == (SESSION, "MP704", 3)
    shown = {}
    for host in ("node-a", "node-c"):
        assert main(["kernels", str(directory), "--host", host, "--format", "json"]) == 0
        rows = json.loads(capsys.readouterr().out)
        shown[host] = sum(each["total_ns"] for each in rows if "nccl" not in each["name"])
    assert shown["node-c"] == pytest.approx(1.2 * shown["node-a"], rel=0.03)
    assert main(["kernels", str(directory)]) == 0
    assert "this is node-a; --host shows another one: node-b, node-c" in capsys.readouterr().err
    assert main(["report", str(directory), "--host", "node-c", "--format", "json"]) == 0
    assert "hosts" not in json.loads(capsys.readouterr().out)
    assert main(["report", str(directory), "--host", "node-x"]) == 2
    assert "Its hosts: node-a, node-b, node-c" in capsys.readouterr().err


def test_one_file_that_is_named_is_read_alone(tmp_path: Path) -> None:
    directory = write_session(played(SLOW), tmp_path)
    run = mpprof.load(directory / SESSION / "node-c.xplane.pb")
    assert run.hosts == ()
    assert (
        "one device's trace does not show"
        in {each.code: each.reason for each in mpprof.diagnose(run).unable}["MP704"]
    )


def test_two_workers_of_one_machine_are_told_apart(tmp_path: Path) -> None:
    made = cluster(A, replace(A, slower=1.2))
    directory = write_workers(made, played(made), tmp_path)
    found = mpprof.diagnose(directory)
    assert "/device:GPU:0 of node-a worker 1" in finding(found, "MP704").summary
    with pytest.raises(UsageError, match="no host 'node-b'"):
        hosts.alone(found.run, "node-b")
