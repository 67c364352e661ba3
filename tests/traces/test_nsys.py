"""Nsight Systems exports: what the tables hold is what is read, whole, damaged or hostile."""

from __future__ import annotations

import gzip
import json
import os
import sqlite3
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.analysis.kernels import placement
from mpprof.analysis.steps import boundaries
from mpprof.api import workflows
from mpprof.cli import main
from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model.trace import CopyKind, Trace, WorkKind
from tests.paths import NO_TRACES, SHARED

H100 = SHARED / "h100-nsys" / "h100_2gpu_1s.sqlite"
needs_h100 = pytest.mark.skipif(not H100.exists(), reason=NO_TRACES)

FIRST, SECOND = 5 << 24, 6 << 24
"""Global ids of two processes; a thread's is its process' plus its own number."""

SCHEMA = """
create table StringIds (id integer primary key, value text not null);
create table TARGET_INFO_GPU (id integer, name text, computeMajor integer, computeMinor integer,
    totalMemory integer, smCount integer, clockRate integer, memoryBandwidth integer);
create table TARGET_INFO_SESSION_START_TIME (utcEpochNs integer, systemClockNs integer);
create table CUPTI_ACTIVITY_KIND_KERNEL (start integer, end integer, deviceId integer, contextId integer,
    streamId integer, correlationId integer, globalPid integer, demangledName integer, shortName integer,
    graphId integer, registersPerThread integer, staticSharedMemory integer, dynamicSharedMemory integer,
    gridX integer, gridY integer, gridZ integer, blockX integer, blockY integer, blockZ integer);
create table CUPTI_ACTIVITY_KIND_MEMCPY (start integer, end integer, deviceId integer, contextId integer,
    streamId integer, correlationId integer, globalPid integer, bytes integer, copyKind integer,
    srcKind integer, dstKind integer);
create table CUPTI_ACTIVITY_KIND_RUNTIME (start integer, end integer, globalTid integer,
    correlationId integer, nameId integer);
create table NVTX_EVENTS (start integer, end integer, eventType integer, text text, textId integer,
    globalTid integer);
"""
NAMES = {1: "void gemm<float>()", 2: "gemm", 3: "cudaLaunchKernel_v7000", 4: "forward", 5: "relu"}


def export(path: Path, *, extra: str = "") -> Path:
    """*Synthetic*, by NVIDIA's schema reference: two processes whose correlation ids are the same."""
    with sqlite3.connect(path) as db:
        db.executescript(SCHEMA)
        db.executemany("insert into StringIds values (?, ?)", NAMES.items())
        db.execute(
            "insert into TARGET_INFO_GPU values (0, 'NVIDIA H100', 9, 0, 85000000000, 132, 1980000000, 3352000000000)"
        )
        db.execute("insert into TARGET_INFO_SESSION_START_TIME values (1700000000000000000, 500)")
        for process, device in ((FIRST, 0), (SECOND, 1)):
            for step in range(3):
                at, number = 1000 + 1000 * step, 10 + step
                db.execute(
                    "insert into CUPTI_ACTIVITY_KIND_RUNTIME values (?, ?, ?, ?, 3)",
                    (at + 10, at + 20, process + 1 + device, number),
                )
                db.execute(
                    "insert into CUPTI_ACTIVITY_KIND_KERNEL values (?, ?, ?, 1, 7, ?, ?, 1, 2, null, 32, 0, 1024, 4, 1, 1, 128, 1, 1)",
                    (at + 100 + device, at + 150, device, number, process),
                )
                tid = process + 1 + device
                db.execute(
                    "insert into NVTX_EVENTS values (?, ?, 59, ?, null, ?)",
                    (at, at + 900, f"step {step}", tid),
                )
                db.execute("insert into NVTX_EVENTS values (?, ?, 59, null, 4, ?)", (at + 2, at + 500, tid))
                db.execute(
                    "insert into NVTX_EVENTS values (?, ?, 59, ?, null, ?)",
                    (at + 5, at + 50, f"aten::mm, op_id = {step}", tid),
                )
        db.execute(
            f"insert into CUPTI_ACTIVITY_KIND_MEMCPY values (1300, 1320, 0, 1, 8, 99, {FIRST}, 4096, 1, 1, 2)"
        )
        db.executescript(extra)
    db.close()
    return path


@pytest.fixture
def trace(tmp_path: Path) -> Trace:
    return traces.read(export(tmp_path / "w.sqlite"))


def test_correlation_ids_are_joined_within_their_process(trace: Trace) -> None:
    kernels = trace.kernels
    rows = np.flatnonzero(kernels.kind == WorkKind.KERNEL)
    assert len(rows) == 6
    assert (trace.host.start_ns[kernels.launch[rows]] < kernels.start_ns[rows]).all()
    threads = [trace.threads[trace.host.thread[row]] for row in kernels.launch[rows].tolist()]
    assert threads == ["thread 1"] * 3 + ["thread 2"] * 3


def test_a_copy_states_between_which_kinds_of_memory_it_goes(trace: Trace) -> None:
    row = int(np.flatnonzero(trace.kernels.kind == WorkKind.MEMCPY)[0])
    assert trace.strings[trace.kernels.details[row]] == "kind_src:pinned kind_dst:device"


@needs_h100
def test_the_largest_copy_of_a_recorded_window() -> None:
    """4,200,595,456 bytes in 151.7 ms from pinned memory; 40 of the 492 rows of the class are fills."""
    found = workflows.diagnose(workflows.load(H100))
    (copies,) = (each for each in found.findings if each.code == "MP310")
    assert copies.summary.endswith("the largest copy moves 3.91 GiB at 27.7 GB/s, from pinned memory")
    counted = {each.name: each.value for each in copies.evidence if each.unit == "count"}
    assert counted == {
        "copies from the host in the window": 225,
        "copies to the host in the window": 2,
        "copies within the device in the window": 225,
    }
    assert "pin_memory" not in copies.remedy


def test_an_op_lies_in_the_ranges_around_its_launch(trace: Trace) -> None:
    row = int(np.flatnonzero(trace.kernels.kind == WorkKind.KERNEL)[0])
    op = trace.ops[trace.kernels.op[row]]
    assert (op.name, op.type) == ("forward/aten::mm", "aten::mm")


def test_ranges_that_name_steps_are_markers(trace: Trace) -> None:
    found = boundaries.periods(trace, 0)
    assert (found.source, found.number.tolist()) == ("nvtx", [0, 1, 2])
    assert (found.end_ns - found.start_ns).tolist() == [900, 900, 900]


def test_a_range_that_names_a_step_without_a_number_is_one_too(tmp_path: Path) -> None:
    path = export(
        tmp_path / "one.sqlite", extra="update NVTX_EVENTS set text = 'train_step' where text like 'step %'"
    )
    found = boundaries.periods(traces.read(path), 0)
    assert (found.source, found.number.tolist()) == ("nvtx", [-1, -1, -1])


@pytest.mark.parametrize("order", ["rowid", "rowid desc", "globalTid desc, start", "start desc"])
def test_steps_of_a_device_are_those_that_its_own_process_marked(order: str, tmp_path: Path) -> None:
    later = f"update NVTX_EVENTS set start = start + 5, end = end + 5 where globalTid = {SECOND + 2};"
    again = f"""
        create table sorted as select * from NVTX_EVENTS order by {order};
        delete from NVTX_EVENTS; insert into NVTX_EVENTS select * from sorted;"""
    trace = traces.read(export(tmp_path / "two.sqlite", extra=later + again))
    starts = [boundaries.periods(trace, device).start_ns.tolist() for device in (0, 1)]
    assert starts == [[0, 1000, 2000], [5, 1005, 2005]]


def test_where_no_process_is_named_every_mark_counts(tmp_path: Path) -> None:
    """As older versions export: kernels without the process that launched them."""
    path = export(tmp_path / "old.sqlite", extra="update CUPTI_ACTIVITY_KIND_KERNEL set globalPid = null")
    trace = traces.read(path)
    assert trace.thread_hosts == ()
    assert boundaries.periods(trace, 1).source == "nvtx"


def test_times_names_and_launches_are_the_tables(trace: Trace) -> None:
    kernels = trace.kernels
    assert trace.origin_unix_ns == 1_700_000_000_000_000_500
    assert kernels.start_ns.tolist() == [100, 300, 1100, 2100, 101, 1101, 2101]
    assert kernels.duration_ns.tolist() == [50, 20, 50, 50, 49, 49, 49]
    assert trace.strings[kernels.name[0]] == "void gemm<float>()"
    assert (
        trace.strings[kernels.details[0]]
        == "regs:32 static_shared:0 dynamic_shared:1024 grid:4,1,1 block:128,1,1"
    )
    assert (kernels.copy[1], kernels.bytes[1]) == (CopyKind.HOST_TO_DEVICE, 4096)


def test_the_card_is_known_where_the_export_states_it(trace: Trace) -> None:
    first, second = (device.facts for device in trace.devices)
    assert (first.name, first.compute_capability, first.sm_clock_khz) == ("NVIDIA H100", (9, 0), 1_980_000)
    assert first.memory_bandwidth_bytes_per_s == 3.352e12
    assert (second.name, second.vendor) == (None, "nvidia")


def test_processes_that_number_their_cards_themselves(tmp_path: Path) -> None:
    extra = """create table TARGET_INFO_CUDA_DEVICE (gpuId integer, cudaId integer, pid integer);
        insert into TARGET_INFO_CUDA_DEVICE values (3, 0, 5), (2, 1, 6);"""
    trace = traces.read(export(tmp_path / "w.sqlite", extra=extra))
    assert [device.ordinal for device in trace.devices] == [2, 3]
    assert np.bincount(trace.kernels.device).tolist() == [3, 4]


def test_a_graph_recorded_as_a_whole_is_work_that_nobody_knows(tmp_path: Path) -> None:
    extra = f"""create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start integer, end integer, deviceId integer,
        contextId integer, streamId integer, correlationId integer, globalPid integer, graphId integer);
        insert into CUPTI_ACTIVITY_KIND_GRAPH_TRACE values (5000, 6000, 0, 1, 7, 50, {FIRST}, 4);"""
    trace = traces.read(export(tmp_path / "w.sqlite", extra=extra))
    row = int(np.flatnonzero(trace.kernels.graph == 4)[0])
    assert trace.kernels.duration_ns[row] == 1000
    found = placement.place(trace)
    assert found.verdicts[found.index[row]].placement == "unknown"
    assert any("--cuda-graph-trace=node" in warning for warning in trace.warnings)


@pytest.mark.parametrize(
    ("extra", "says"),
    [
        ("drop table CUPTI_ACTIVITY_KIND_KERNEL;", "has no table of kernels"),
        (
            "drop table CUPTI_ACTIVITY_KIND_KERNEL; drop table CUPTI_ACTIVITY_KIND_MEMCPY;"
            "drop table CUPTI_ACTIVITY_KIND_RUNTIME;",
            "has no table of kernels",
        ),
        ("delete from CUPTI_ACTIVITY_KIND_KERNEL;", "holds none"),
    ],
    ids=["copies only", "ranges only", "an empty table"],
)
def test_an_export_without_kernels_says_what_it_lacks_and_not_that_none_ran(
    tmp_path: Path, extra: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = export(tmp_path / "w.sqlite", extra=extra)
    missing = traces.read(path).missing["kernels"]
    assert says in missing
    assert main(["report", str(path), "--format", "json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["absent"]["time"] == missing
    (finding,) = report["findings"]
    assert (finding["code"], finding["summary"]) == ("MP908", missing)
    assert "nsys profile --trace=cuda" in finding["remedy"]
    assert main(["kernels", str(path)]) == 0
    assert f"warning: {missing}" in capsys.readouterr().err


def test_the_report_says_what_the_format_lacks(tmp_path: Path) -> None:
    trace = traces.read(export(tmp_path / "w.sqlite"))
    absent = workflows.diagnose(workflows.load(tmp_path / "w.sqlite")).absent
    assert set(trace.missing) == {"allocations", "hlo", "shapes"}
    assert absent["memory"] == trace.missing["allocations"]
    assert {what: why for what, why in absent.items() if what.startswith("trace.")} == {
        "trace.hlo": trace.missing["hlo"], "trace.shapes": trace.missing["shapes"],
    }  # fmt: skip


def _install(path: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program called nsys where it is looked for."""
    (path / "bin").mkdir()
    nsys = path / "bin" / "nsys"
    nsys.write_text(f"#!/bin/sh\n{script}\n")
    nsys.chmod(0o755)
    monkeypatch.setenv("PATH", f"{path / 'bin'}{os.pathsep}{os.environ['PATH']}")


def test_a_report_is_exported_where_nsys_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = export(tmp_path / "made")
    said = tmp_path / "said"
    _install(tmp_path, f'printf "%s\\n" "$@" > "{said}"; cp "{made}" "$5"', monkeypatch)
    (tmp_path / "of mine").mkdir()
    path = tmp_path / "of mine" / "-run.nsys-rep"
    path.write_bytes(b"whatever")
    read, expected = traces.read(path), traces.read(made)
    assert len(read.kernels) == len(expected.kernels) > 0
    assert (read.source.path, read.source.size_bytes) == (path, 8)
    arguments = said.read_text().splitlines()
    assert arguments[:4] == ["export", "--type", "sqlite", "--output"]
    assert arguments[5:] == [str(path)]
    assert not Path(arguments[4]).exists()
    assert [each.name for each in path.parent.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("echo 'Unsupported report version' >&2; exit 3", "Unsupported report version"),
        ("exit 0", "ended with 0"),
    ],
)
def test_a_report_that_nsys_cannot_export_says_why(
    script: str, why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _install(tmp_path, script, monkeypatch)
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"whatever")
    with pytest.raises(UnreadableError, match=why) as raised:
        traces.read(path)
    assert "nsys export --type sqlite run.nsys-rep" in str(raised.value)


def test_a_report_says_how_to_export_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))  # no nsys is installed there
    path = tmp_path / "run.nsys-rep"
    path.write_bytes(b"whatever")
    with pytest.raises(UnreadableError, match=r"nsys export --type sqlite run\.nsys-rep"):
        traces.read(path)


def test_an_export_that_is_named_like_a_report_is_read(tmp_path: Path) -> None:
    path = export(tmp_path / "run.nsys-rep")
    assert len(traces.read(path).kernels) > 0
    assert traces.find_traces(tmp_path) == (path,)
    assert workflows.load(tmp_path).warnings == ()


@pytest.mark.parametrize("name", ["run.sqlite.gz", "run.sqlite", "run"])
def test_of_a_packed_export_it_is_said_that_it_is_packed(tmp_path: Path, name: str) -> None:
    content = export(tmp_path / "export").read_bytes()
    (tmp_path / "export").unlink()
    (tmp_path / name).write_bytes(gzip.compress(content))
    with pytest.raises(UnreadableError, match=r"packed with gzip, which is not read. Unpack it with gunzip"):
        traces.read(tmp_path / name)
    with pytest.raises(NotFoundError, match=f"Give it itself: {name}$"):
        workflows.load(tmp_path)


# --- damage ------------------------------------------------------------------------------------------------


def test_a_cut_off_file_names_the_byte(tmp_path: Path) -> None:
    path = export(tmp_path / "w.sqlite")
    whole = path.stat().st_size
    path.write_bytes(path.read_bytes()[: whole - 4096])
    try:
        warnings = traces.read(path).warnings
    except UnreadableError as error:
        warnings = (str(error),)
    assert any(f"byte {whole - 4096} of {whole}" in warning for warning in warnings)
    with pytest.raises(UnreadableError):
        traces.read(path, strict=True)


@pytest.mark.parametrize(
    "content", [b"", b"SQLite format 3\x00", b"SQLite format 3\x00" + b"\xff" * 5000, b"text"]
)
def test_what_is_no_database_is_one_clear_error(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "w.sqlite"
    path.write_bytes(content)
    with pytest.raises(UnreadableError) as caught:
        traces.read(path)
    assert str(path) in str(caught.value)


def test_another_applications_database_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mlflow.sqlite"
    with sqlite3.connect(path) as db:
        db.execute("create table runs (id integer)")
    db.close()
    with pytest.raises(UnreadableError, match="no table StringIds"):
        traces.read(path)
    assert traces.find_traces(tmp_path) == ()


def test_a_view_that_never_ends_is_not_read(tmp_path: Path) -> None:
    path = tmp_path / "w.sqlite"
    with sqlite3.connect(path) as db:
        db.executescript(
            """create table StringIds (id integer primary key, value text);
            create view CUPTI_ACTIVITY_KIND_KERNEL as with recursive r(n) as
                (select 1 union all select n + 1 from r) select n as start, n as end, 0 as deviceId from r;"""
        )
    db.close()
    with pytest.raises(UnreadableError, match="no CUDA activity"):
        traces.read(path)


def test_texts_in_columns_of_numbers_are_no_times(tmp_path: Path) -> None:
    extra = f"""insert into CUPTI_ACTIVITY_KIND_KERNEL (start, end, deviceId, globalPid, demangledName)
        values ('soon', x'ff', 0, {FIRST}, 1), (9e300, 5, 0, 0, 1), (7000, 6000, 0, 0, 77), (8000, 8001, null, 0, 1);"""
    trace = traces.read(export(tmp_path / "w.sqlite", extra=extra))
    assert (
        len(trace.kernels) == 9
    )  # 'soon' is 0 for SQLite, and the one that ends before it starts has no length
    assert any("2 events have no usable time or device" in warning for warning in trace.warnings)
    assert "(name lost)" in trace.strings


def test_a_name_is_no_sql(tmp_path: Path) -> None:
    extra = """create table "a"" b; drop table StringIds; --" ("x"" y" integer);"""
    assert len(traces.read(export(tmp_path / "w.sqlite", extra=extra)).kernels) == 7


def test_what_sqlite_says_of_a_damaged_schema_is_one_line(tmp_path: Path) -> None:
    path = export(tmp_path / "w.sqlite")
    path.write_bytes(
        path.read_bytes().replace(b"CUPTI_ACTIVITY_KIND_KERNEL (", b"[UPTI_ACTIVITY_KIND_KERNEL (", 1)
    )
    with pytest.raises(UnreadableError, match="unrecognized token") as caught:
        traces.read(path)
    assert "\n" not in str(caught.value)


# --- recorded ----------------------------------------------------------------------------------------------


@needs_h100
def test_every_kernel_of_a_recorded_export_is_counted_once() -> None:
    with sqlite3.connect(f"file:{H100}?immutable=1", uri=True) as db:
        rows = db.execute(
            "select s.value, k.deviceId, count(*), sum(k.end - k.start) from CUPTI_ACTIVITY_KIND_KERNEL k "
            "join StringIds s on s.id = k.demangledName group by 1, 2"
        ).fetchall()
        launched = db.execute(  # the file is one second cut out of a run: others were launched before it
            "select count(*) from CUPTI_ACTIVITY_KIND_KERNEL k join CUPTI_ACTIVITY_KIND_RUNTIME r on "
            "r.correlationId = k.correlationId and (r.globalTid & ~16777215) = k.globalPid"
        ).fetchone()[0]
    db.close()
    expected = {(name, device): (calls, total) for name, device, calls, total in rows}
    trace = traces.read(H100)
    kernels = trace.kernels
    calls: Counter[tuple[str, int]] = Counter()
    total: Counter[tuple[str, int]] = Counter()
    for row in np.flatnonzero(kernels.kind == WorkKind.KERNEL).tolist():
        key = (trace.strings[kernels.name[row]], trace.devices[kernels.device[row]].ordinal)
        calls[key] += 1
        total[key] += int(kernels.duration_ns[row])
    assert len(expected) > 80
    assert {key: (calls[key], total[key]) for key in calls} == expected
    assert launched > 1000
    assert np.count_nonzero(kernels.launch[kernels.kind == WorkKind.KERNEL] >= 0) == launched


@needs_h100
def test_recorded_xmma_kernels_that_say_ffma_are_no_tensor_core_work() -> None:
    trace = traces.read(H100)
    found = placement.place(trace)
    verdicts = {
        (found.verdicts[found.index[row]].placement, "_split_k_kernel" in trace.strings[name])
        for row, name in enumerate(trace.kernels.name.tolist())
        if "ffma" in trace.strings[name]
    }
    assert verdicts == {("cuda_core", False), ("not_matmul", True)}  # the latter adds up what the former made
