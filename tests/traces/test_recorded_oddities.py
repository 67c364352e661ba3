"""Synthetic twins of what only recorded files held: what their bytes say is what is read.

A branch coverage of the readers over 57 recorded files, and over these tests apart, showed where no test had
been; each place has its twin here, named after the oddity.
"""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from mpprof import traces
from mpprof.model.trace import HostKind
from tests.builders.hlo import PROGRAM, Instruction, metadata_plane
from tests.builders.xspace import Space
from tests.traces.kineto import HOST, Kineto, small


def read(tmp_path: Path, kineto: Kineto) -> traces.Trace:
    return traces.read(kineto.write(tmp_path / "w.pt.trace.json"))


# --- Kineto ------------------------------------------------------------------------------------------------


def test_metadata_events_name_processes_threads_and_sort_them(tmp_path: Path) -> None:
    """As Kineto ends its file: names and labels of processes, a sort index of each; only `thread_name` names a
    thread, with a space behind it."""
    kineto = small()
    for name, args in (
        ("process_name", {"name": "python3.8"}), ("process_labels", {"labels": "CPU"}),
        ("process_sort_index", {"sort_index": HOST}), ("thread_sort_index", {"sort_index": 100}),
        ("thread_name", {"name": "thread 100 (python) "}),
    ):  # fmt: skip
        kineto.events.append({"name": name, "ph": "M", "ts": 1, "pid": HOST, "tid": 100, "args": args})
    trace = read(tmp_path, kineto)
    assert trace.threads == ("thread 100 (python)", "thread 101")
    assert not trace.warnings


def test_flows_window_marks_and_synchronisations_on_a_stream_are_no_work(tmp_path: Path) -> None:
    """`ac2g` flows (ph s, f), the marks "Iteration Start" and "Record Window End" (ph i), Kineto's own interval
    of the category Trace, and `cuda_sync` intervals, which lie on the device's streams and hold no work."""
    kineto = small()
    whole = read(tmp_path, kineto)
    for phase in ("s", "f"):
        kineto.events.append(
            {"ph": phase, "id": 5, "pid": 0, "tid": 7, "ts": 40.5, "cat": "ac2g", "name": "ac2g", "bp": "e"}
        )
    for name in ("Iteration Start: PyTorch Profiler", "Record Window End"):
        kineto.events.append({"ph": "i", "s": "g", "name": name, "pid": "Traces", "tid": "Trace", "ts": 0})
    kineto.events.append({"ph": "X", "cat": "Trace", "ts": 0, "dur": 9000, "pid": "Spans", "tid": "PyTorch Profiler",
                          "name": "PyTorch Profiler (0)", "args": {"Op count": 0}})  # fmt: skip
    kineto.work("Stream Synchronize", 500, 80, cat="cuda_sync")
    trace = read(tmp_path, kineto)
    assert len(trace.kernels) == len(whole.kernels) == 12
    assert len(trace.host) == len(whole.host)
    assert len(trace.allocations) == len(whole.allocations) == 3
    assert not trace.warnings


def test_a_projected_annotation_that_is_no_profiler_step_marks_no_step(tmp_path: Path) -> None:
    kineto = small()
    for name in ("nccl:_all_gather_base", "## Call CompiledFxGraph fud6 ##", "ProfilerStep#5"):
        kineto.work(name, 1000, 700, cat="gpu_user_annotation")
    markers = read(tmp_path, kineto).markers
    assert markers.number[markers.device >= 0].tolist() == [5]


def test_fetching_a_batch_is_an_annotation_of_pytorchs_own_and_waits_for_input(tmp_path: Path) -> None:
    kineto = small()
    kineto.host("user_annotation", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", 1.5, 3)
    trace = read(tmp_path, kineto)
    kinds = [
        k
        for k, row in zip(trace.host.kind, trace.host.name, strict=True)
        if "DataLoader" in trace.strings[row]
    ]
    assert kinds == [HostKind.INPUT]


def test_an_op_with_dozens_of_inputs_states_the_first_of_them(tmp_path: Path) -> None:
    """`aten::cat` and `_foreach` ops list every tensor: 200 in a recorded file."""
    kineto = Kineto()
    kineto.op(
        "aten::cat", 0, 10, **{"Input Dims": [[n, 8] for n in range(200)], "Input type": ["float"] * 200}
    )
    kineto.launch("k", 2, 4, 3)
    trace = read(tmp_path, kineto)
    stated = trace.strings[trace.kernels.shapes[0]].strip("()").split(";")
    assert stated == [f"float[{n},8]" for n in range(16)]


def test_the_estimated_occupancy_is_kept_with_the_launch_also_where_it_is_zero(tmp_path: Path) -> None:
    kineto = Kineto()
    for at, percent in enumerate((63, 0)):
        kineto.launch(
            f"k{at}", 10 * at, 10 * at + 2, 3, grid=[4, 1, 1], **{"est. achieved occupancy %": percent}
        )
    trace = read(tmp_path, kineto)
    assert [trace.strings[row] for row in trace.kernels.details] == [
        "grid:4,1,1 occ_pct:63",
        "grid:4,1,1 occ_pct:0",
    ]


@pytest.mark.parametrize(
    ("name", "vendor", "capability"),
    [("Tesla V100-SXM2-16GB", "nvidia", (7, 0)), ("A card without a maker's name", "nvidia", (7, 0)),
     ("AMD Instinct MI300X", "amd", None)],
)  # fmt: skip
def test_a_card_is_told_by_its_name_or_by_having_a_compute_capability(
    name: str, vendor: str, capability: tuple[int, int] | None, tmp_path: Path
) -> None:
    kineto = small()
    kineto.header = {"deviceProperties": [{"id": 0, "name": name, "computeMajor": 7, "computeMinor": 0}]}
    facts = read(tmp_path, kineto).devices[0].facts
    assert (facts.name, facts.vendor, facts.compute_capability) == (name, vendor, capability)


def test_a_file_of_several_windows_loses_no_event_where_one_window_ends(tmp_path: Path) -> None:
    """The text is looked at a megabyte at a time: an event, a name and a number lie across each edge."""
    kineto = Kineto(base_ns=None)
    for n in range(20_000):
        kineto.op(f"aten::op_{n}_" + "x" * (n % 97), n * 1000 + n % 1000 / 1000, 0.5)
    path = kineto.write(tmp_path / "w.pt.trace.json")
    assert path.stat().st_size > 3 << 20
    trace = traces.read(path)
    assert [trace.strings[row] for row in trace.host.name] == [event["name"] for event in kineto.events]
    assert trace.host.start_ns.tolist() == [n * 1_000_000 + n % 1000 for n in range(20_000)]
    assert not trace.warnings


def test_a_number_that_the_end_of_a_window_cuts_is_read_whole(tmp_path: Path) -> None:
    """Of each length of text before it: among them one whose window ends within the event's last number."""
    event = {
        "ph": "X",
        "cat": "cpu_op",
        "name": "aten::mm",
        "pid": 1,
        "tid": 1,
        "ts": 5,
        "args": {},
        "dur": 123456,
    }
    for before in range(1 << 20, (1 << 20) - 24, -1):
        head = '{"traceName":"' + "x" * (
            before - len('{"traceName":"","traceEvents":[') - len(json.dumps(event))
        )
        path = tmp_path / "w.pt.trace.json"
        path.write_text(head + '","traceEvents":[' + json.dumps(event) + "]}")
        assert traces.read(path).host.duration_ns.tolist() == [123_456_000]


# --- HLO ---------------------------------------------------------------------------------------------------

IMAGE, FILTER, RESULT = ("f16", (4, 8, 8, 16)), ("f16", (3, 3, 16, 32)), ("f16", (4, 6, 6, 32))
OUTPUTS_TIMES_TAPS_TIMES_FEATURES = 4 * 6 * 6 * 32 * 3 * 3 * 16


@pytest.mark.parametrize(
    ("target", "result", "operands"),
    [("__cudnn$convForward", RESULT, (IMAGE, FILTER)),
     ("__cudnn$convBiasActivationForward", RESULT, (IMAGE, FILTER)),
     ("__cudnn$convBackwardInput", IMAGE, (RESULT, FILTER)),
     ("__cudnn$convBackwardFilter", FILTER, (IMAGE, RESULT))],
)  # fmt: skip
def test_a_convolution_of_cudnn_and_its_two_gradients_do_the_same_work(
    target: str,
    result: tuple[str, tuple[int, ...]],
    operands: tuple[tuple[str, tuple[int, ...]], ...],
    tmp_path: Path,
) -> None:
    """2 x outputs x taps x input features, by the definition; the roles of the tensors change places."""
    space = Space()
    call = Instruction("custom-call.1", "custom-call", result, operands, "jit(step)/conv", target)
    stats = {"hlo_op": call.name, "hlo_module": "jit_step", "program_id": PROGRAM}
    for ordinal in range(2):  # of two cards that run one program
        space.plane(f"/device:GPU:{ordinal}").line(7, "Stream #7(Compute)").event(
            "cudnn_kernel", 10, 5, stats
        )
    space.raw.append(metadata_plane("jit_step", (call,)))
    path = tmp_path / "h.xplane.pb"
    path.write_bytes(space.to_bytes())
    trace = traces.read(path)
    (op,) = trace.ops
    assert np.array_equal(trace.kernels.op, [0, 0])
    assert op.hlo.flops == 2.0 * OUTPUTS_TIMES_TAPS_TIMES_FEATURES
