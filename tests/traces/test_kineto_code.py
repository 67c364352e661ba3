"""Long functions of the Python tracer in which nothing was launched: *synthetic*, and the recorded trace they follow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mpprof import traces
from mpprof.api import workflows
from mpprof.model.trace import HostKind, Trace
from mpprof.report import json as documents
from mpprof.traces.chrome.kineto import function_name
from tests.paths import SHARED
from tests.traces.conftest import needs_shared
from tests.traces.kineto import BACKWARD, Kineto

RECORDED = "h100-torch/facebook_timesformer-base-finetuned-k400__1016002.json.gz"
PREPROCESS = "preprocess (video.py)"
GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"
)


def preprocessed(*, frames: bool = True) -> Kineto:
    """A step of 20 ms: 12 ms of Python before the first copy, then 6 ms of kernels."""
    k = Kineto()
    k.host("user_annotation", "ProfilerStep#6", 1_000, 20_000)
    if frames:
        frame = "python_function"
        k.host(frame, "main.py(1): <module>", 0, 40_000)
        k.host(frame, "lib/pipeline.py(9): run", 1_010, 19_900)
        k.host(frame, "lib/generic.py(8): wrapper", 1_015, 12_010)
        k.host(frame, "lib/video.py(129): preprocess", 1_020, 12_000)
        k.host(frame, "lib/video.py(174): read", 1_030, 5_000)
        k.host(frame, "lib/image.py(40): resize", 6_100, 900)
        k.host(frame, "lib/video.py(150): forward", 13_030, 7_000)
        k.host(frame, "lib/watch.py(60): wait", 1_030, 19_000, tid=BACKWARD)
    k.launch("Memcpy HtoD (Pageable -> Device)", 13_050, 13_060, 100, cat="gpu_memcpy")
    for n in range(6):
        k.op("aten::mm", 13_200 + 10 * n, 8)
        k.launch(GEMM, 13_202 + 10 * n, 13_300 + 1_000 * n, 1_000)
    k.host("cuda_runtime", "cudaDeviceSynchronize", 13_300, 6_100)
    return k


def code(trace: Trace) -> list[tuple[str, int]]:
    host = trace.host
    rows = np.flatnonzero(host.kind == HostKind.CODE)
    return [(trace.strings[host.name[row]], int(host.duration_ns[row])) for row in rows.tolist()]


def report(path: Path) -> Any:
    return documents.document(workflows.diagnose(workflows.load(path)))


def test_the_outermost_function_that_launched_nothing_is_kept(tmp_path: Path) -> None:
    trace = traces.read(preprocessed().write(tmp_path / "a.pt.trace.json"))
    assert code(trace) == [(PREPROCESS, 12_000_000)]
    assert not any("resize" in text or "watch" in text or "run" in text for text in trace.strings)


def test_frames_that_are_left_out_change_nothing_else(tmp_path: Path) -> None:
    with_frames, without = (
        traces.read(preprocessed(frames=on).write(tmp_path / f"{on}.pt.trace.json")) for on in (True, False)
    )
    assert code(without) == []
    assert with_frames.threads == without.threads
    assert with_frames.kernels.start_ns.tolist() == without.kernels.start_ns.tolist()


def test_idle_time_names_the_function_that_the_host_ran(tmp_path: Path) -> None:
    found = report(preprocessed().write(tmp_path / "a.pt.trace.json"))
    assert found["time"] is not None
    (idle,) = (part for part in found["time"]["slices"] if part["class"] == "idle_other")
    (cause,) = idle["causes"]
    assert cause["cause"] == f"the host runs {PREPROCESS}"
    assert cause["ns_per_step"] == pytest.approx(12e6, rel=0.01)
    assert f"while the host runs {PREPROCESS}" in found["verdict"]
    (unable,) = (each["reason"] for each in found["unable"] if each["code"] == "MP301")
    assert PREPROCESS in unable
    assert "does not show whether that code makes the input" in unable


def test_without_frames_the_trace_does_not_show_it(tmp_path: Path) -> None:
    found = report(preprocessed(frames=False).write(tmp_path / "a.pt.trace.json"))
    assert "the trace does not show what for" in found["verdict"]


def test_frames_move_no_time_between_classes(tmp_path: Path) -> None:
    both = [
        report(preprocessed(frames=on).write(tmp_path / f"{on}.pt.trace.json"))["time"]
        for on in (True, False)
    ]
    with_frames, without = (
        {part["class"]: part["ns_per_step"] for part in time["slices"]} for time in both if time is not None
    )
    assert with_frames == without


@pytest.mark.parametrize(
    ("frame", "name"),
    [
        ("transformers/pipelines/video_classification.py(129): preprocess", "preprocess (video_classification.py)"),
        (r"C:\lib\data.py(7): load", "load (data.py)"),
        ("<built-in function sleep>", "sleep"),
        ("<built-in method to of Tensor object at 0x7cc1559c5310>", "Tensor.to"),
        ("torch/nn/modules/module.py(1743): _call_impl", ""),
        ("<string>(1): <module>", ""),
        ("model.py(3): <lambda>", ""),
    ],
)  # fmt: skip
def test_names_of_functions(frame: str, name: str) -> None:
    assert function_name(frame) == name


@needs_shared()
def test_of_a_recorded_inference_the_preprocessing_is_named(tmp_path: Path) -> None:
    """Its frame lasts 217.474 ms, and ends as the first copy begins."""
    trace = traces.read(SHARED / RECORDED)
    assert ("preprocess (video_classification.py)", 217_474_222) in code(trace)
    found = report(SHARED / RECORDED)
    assert "while the host runs preprocess (video_classification.py)" in " ".join(found["explanation"])
