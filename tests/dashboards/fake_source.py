"""Hand-made documents of the report contract behind a RunSource: what the pages are tested on.

Five runs: a float32 baseline, a disappointing mixed run with hostile names, one on a CPU, one still
training without a trace, and one that cannot be read. All numbers are invented.
"""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Union, get_args, get_origin, get_type_hints

import numpy as np

from mpprof.errors import NotFoundError, UnreadableError
from mpprof.model import rows
from mpprof.model.run import ShownLook
from mpprof.model.source import RunEntry
from mpprof.model.steps import HardwareTable, StepTable
from mpprof.report.redact import Redactor
from tests.builders.read_back import typed

Document = dict[str, Any]

HOSTILE = '<a href="x">x</a>'
HOSTILE_KERNEL = "<b onmouseover=alert(1)>k</b>%{x}$&amp;</script><script>document.title='owned'</script>"

LOOK = ShownLook(
    "Look 2 of 3 at step 18, an update was skipped.",
    (f"The output of {HOSTILE} is the first to break: a sum of values up to 99.9 overflows.",),
    (
        {"layer": HOSTILE, "tensor": "output", "dtype": "float16", "exponents": {"14": 3, "15": 1},
         "nonfinite_ratio": 0.25, "flushed_ratio": None},
        {"layer": "head", "tensor": "weight_gradient", "weight": "kernel", "dtype": "float32",
         "exponents": {"-30": 8, "-24": 2}, "nonfinite_ratio": 0, "flushed_ratio": 0.004},
    ),
    ((f"{HOSTILE} needs float32.", 'keras.layers.Dense(..., dtype="float32")'),),
)  # fmt: skip

ENTRIES = (
    RunEntry("fp32", "resnet-fp32", "float32", "tensorflow", 1_790_000_000_000_000_000, False),
    RunEntry("mixed", "resnet-mixed", "mixed_float16", "tensorflow", 1_790_000_600_000_000_000, False),
    RunEntry("cpu", "laptop-cpu", "mixed_float16", "jax", 1_790_001_200_000_000_000, False),
    RunEntry("live", "tonight-live", "mixed_float16", "tensorflow", 1_790_001_800_000_000_000, True),
    RunEntry("broken", "broken", None, None, None, False, problem="run.json is not JSON (byte 12)"),
)


def _slice(
    role: str, ns: float, step: float, hidden: float = 0.0, by: list[Document] | None = None
) -> Document:
    return {
        "class": role, "ns_per_step": ns, "ratio": ns / step, "hidden_ns_per_step": hidden, "by": by or [],
    }  # fmt: skip


def _part(placement: str, precision: str, ns: float) -> Document:
    return {"placement": placement, "precision": precision, "ns_per_step": ns}


def _filled(document: Document) -> Document:
    """The document with the keys of the contract that no page shows."""
    document["run"] = {"id": document["run"]["name"], "compute_dtype": None} | document["run"]
    if steps := document["steps"]:
        document["steps"] = {"interval_ns": None, "first_steady": None} | steps
    if time := document["time"]:
        document["time"] = {
            "device": "/device:GPU:0",
            "window_steps": 8,
            "step_source": "mpprof",
            "notes": [],
        } | time
    if speedup := document["speedup"]:
        document["speedup"] = {"baseline_step_ns": None, "reach_ns": None, "gap_ns": None} | speedup
        sides = {"baseline_ns": 0.0, "mixed_ns": 0.0, "ratio": 1.0, "ratio_source": "peak"}
        document["speedup"]["slices"] = [sides | part for part in speedup["slices"]]
    document["findings"] = [{"layers": []} | found for found in document["findings"]]
    document["facts"] = _facts(document)
    document["answer"] = _answer(document)
    return document


def _answer(document: Document) -> Document:
    """As the engine composes it, in few words."""
    facts, causes = document["facts"], document["facts"]["causes"]
    compared = facts["observed"] is not None
    figure = f"{facts['observed']:.2f}x" if compared else ""
    float32 = document["run"]["policy"] == "float32"
    kind = (
        "measured"
        if compared
        else "records"
        if document["time"] is None
        else "float32"
        if float32
        else "estimated"
    )
    return {
        "kind": kind, "leads": "time" if causes else "nothing", "figure": figure, "label": "of a run made up",
        "sentence": document["verdict"], "because": ["Its numbers are those of a test."], "do": "mpprof report",
        "code": causes[0]["code"] if causes else None,
    }  # fmt: skip


def _facts(document: Document) -> Document:
    """As the report states them: what costs time, one after the other."""
    time, steps, speedup = document["time"], document["steps"] or {}, document["speedup"] or {}
    step = time["step_ns"] if time else steps.get("median_ns")
    causes, now = [], step
    for found in document["findings"]:
        if (gain := found["cost_ns_per_step"]) is not None:
            now -= gain
            causes.append(
                {
                    "code": found["code"],
                    "slug": found["slug"],
                    "gain_ns_per_step": gain,
                    "recovers_ns_per_step": None,
                    "step_ns": now,
                }
            )
    base = speedup.get("baseline_step_ns")
    attainable = speedup.get("expected_with_host") or speedup.get("expected")
    return {
        "step_ns": step, "baseline_step_ns": base, "observed": speedup.get("observed"), "attainable": attainable,
        "attainable_step_ns": base / attainable if base and attainable else None, "unexplained_ns": None,
        "after_remedies_ns": now if time else None, "limited_by": "device" if time else None, "causes": causes,
    }  # fmt: skip


def empty_document(name: str = "empty") -> Document:
    """A report in which nothing at all is known."""
    return {
        "schema": "mpprof.report/1",
        "run": {
            "name": name, "policy": None, "backend": None, "device": None, "jit_compile": None,
            "batch_size": None, "id": name, "compute_dtype": None,
        },
        "steps": None, "time": None, "tensor_core": None, "speedup": None, "bounds": [], "memory": None,
        "findings": [], "unable": [], "clear": [], "warnings": [], "absent": {},
        "verdict": "Nothing can be said of this run.",
        "answer": {
            "kind": "records", "leads": "nothing", "figure": "", "label": "", "because": [], "do": "", "code": None,
            "sentence": "Nothing can be said of this run.",
        },
        "explanation": [], "not_applicable": [], "account": {"basis": None},
        "facts": {
            "step_ns": None, "baseline_step_ns": None, "observed": None, "attainable": None,
            "attainable_step_ns": None, "unexplained_ns": None, "after_remedies_ns": None, "limited_by": None,
            "causes": [],
        },
    }  # fmt: skip


def fp32_document() -> Document:
    step = 18_400_000.0
    document = empty_document("resnet-fp32")
    document |= {
        "run": {
            "name": "resnet-fp32", "policy": "float32", "backend": "tensorflow",
            "device": "NVIDIA A100-SXM4-40GB", "jit_compile": False, "batch_size": 64,
        },
        "steps": {
            "count": 400, "steady": 368, "median_ns": 18_400_000, "p95_ns": 19_300_000, "skipped": None,
            "skipped_ratio": None, "loss_scale": None, "peak_memory_bytes": 9_400_000_000,
        },
        "time": {
            "basis": "wall", "step_ns": step, "wall_ns": step, "window_ns": 18_700_000, "device_ns": 17_600_000,
            "slices": [
                _slice("matmul", 12_000_000, step, by=[_part("tensor_core", "tf32", 12_000_000)]),
                _slice("norm", 2_300_000, step),
                _slice("elementwise", 2_200_000, step),
                _slice("optimizer", 900_000, step),
                _slice("unknown", 200_000, step),
                _slice("idle_input", 500_000, step),
                _slice("idle_other", 600_000, step),
                _slice("profiling", -300_000, step),
            ],
            "devices": [],
        },
        "tensor_core": {
            "matmul_ns_per_step": 12_000_000, "ratio": 1.0, "reason": None, "by_precision": {"tf32": 12_000_000},
            "fallback_ns_per_step": 0.0, "unknown_ratio": 0.0114,
        },
        "speedup": {
            "baseline": "estimated", "baseline_id": None, "observed": None, "interval": None, "expected": None,
            "expected_with_host": None, "ceiling": 2.3, "estimated": {
                "low": 0.98, "high": 1.02, "assumptions": ["float32 with TF32 on, as this run states"],
            }, "slices": [], "unexplained_ns": None,
        },
        "clear": ["MP101", "MP301", "MP503"],
        "absent": {"steps.skipped": "a float32 run has no loss scale"},
        "verdict": "This float32 run already uses the Tensor Cores through TF32: 100 % of its matrix time.",
    }  # fmt: skip
    return _filled(document)


def mixed_document(baseline: bool = True) -> Document:
    """The mixed run. Its slices sum to the step, those of the speedup to the gap."""
    step = 17_200_000.0
    document = empty_document("resnet-mixed")
    document |= {
        "run": {
            "name": "resnet-mixed", "policy": "mixed_float16", "backend": "tensorflow",
            "device": "NVIDIA A100-SXM4-40GB", "jit_compile": False, "batch_size": 64,
        },
        "steps": {
            "count": 400, "steady": 361, "median_ns": 17_200_000, "p95_ns": 21_900_000, "skipped": 12,
            "skipped_ratio": 0.03,
            "loss_scale": {"first": 32768.0, "last": 16.0, "min": 16.0, "max": 32768.0},
            "peak_memory_bytes": 7_800_000_000,
        },
        "time": _mixed_time(step),
        "tensor_core": {
            "matmul_ns_per_step": 6_100_000, "ratio": 3_700_000 / 6_100_000, "reason": None,
            "by_precision": {"fp16": 3_300_000, "tf32": 400_000}, "fallback_ns_per_step": 2_000_000,
            "unknown_ratio": 0.062,
        },
        "bounds": [
            {"statement": "matrix rate is at most", "value": 1.8e13, "unit": "flops_per_s",
             "assumptions": ["both runs are bound by the GPU", "direct convolution algorithms"]},
        ],
        "memory": _mixed_memory(),
        "findings": _mixed_findings(),
        "unable": [
            {"code": "MP302", "reason": "the trace holds no launch calls for 3 of the 8 steps"},
            {"code": "MP903", "reason": "one device only"},
        ],
        "clear": ["MP101", "MP102", "MP106", "MP203", "MP901", "MP905"],
        "warnings": ["The trace ends early: the file is cut off at byte 1,204,221; 8 whole steps were read."],
        "verdict": (
            "Mixed precision made this run 1.07x faster where 1.80x was within reach: most of the gap is "
            "waiting for input and convolutions that stayed in float32."
        ),
    }  # fmt: skip
    document["speedup"] = _measured(step) if baseline else _estimated()
    return _filled(document)


def _mixed_time(step: float) -> Document:
    return {
        "basis": "wall", "step_ns": step, "wall_ns": step, "window_ns": 17_900_000, "device_ns": 12_900_000,
        "slices": [
            _slice("matmul", 6_100_000, step, by=[
                _part("tensor_core", "fp16", 3_300_000), _part("tensor_core", "tf32", 400_000),
                _part("cuda_core", "fp32", 2_000_000), _part("unknown", "unknown", 400_000),
            ]),
            _slice("norm", 2_600_000, step),
            _slice("elementwise", 1_900_000, step),
            _slice("cast", 1_200_000, step),
            _slice("layout", 500_000, step),
            _slice("optimizer", 900_000, step),
            _slice("loss_scale", 300_000, step),
            _slice("unknown", 800_000, step),
            _slice("comm", 100_000, step, hidden=700_000),
            _slice("idle_input", 2_500_000, step),
            _slice("idle_launch", 700_000, step),
            _slice("idle_other", 300_000, step),
            _slice("profiling", -700_000, step),
        ],
        "devices": [],
    }  # fmt: skip


def _mixed_memory() -> Document:
    return {
        "peak_bytes": 7_800_000_000,
        "at_peak": [
            {"by": "kind", "name": "activations", "bytes": 5_100_000_000},
            {"by": "kind", "name": "weights and optimizer", "bytes": 2_400_000_000},
            {"by": "kind", "name": "unknown", "bytes": 300_000_000},
            {"by": "dtype", "name": "float32", "bytes": 5_600_000_000},
            {"by": "dtype", "name": "float16", "bytes": 1_900_000_000},
            {"by": "dtype", "name": "unknown", "bytes": 300_000_000},
            {"by": "op", "name": HOSTILE, "bytes": 3_000_000_000},
            {"by": "op", "name": "res2a/BatchNorm/Mean", "bytes": 2_100_000_000},
            {"by": "layer", "name": "res2a", "bytes": 2_900_000_000},
        ],
        "saved_bytes": 1_600_000_000,
        "reachable_bytes": 3_100_000_000,
    }


def _mixed_findings() -> list[Document]:
    return [
        {
            "code": "MP301", "slug": "input-bound", "title": "The GPU waits for data", "severity": "error",
            "confidence": "high", "cost_ns_per_step": 2_000_000.0, "cost_bytes": None,
            "gap_ratio": 2 / 7,
            "summary": "2.50 ms of every step passes while the training thread waits for the next batch.",
            "evidence": [
                {"name": "idle time waiting for input", "value": 2_500_000.0, "unit": "ns", "limit": 860_000.0},
                {"name": "share of the step", "value": 0.145, "unit": "ratio", "limit": 0.05},
            ],
            "remedy": "Add .prefetch(tf.data.AUTOTUNE) and num_parallel_calls to the input pipeline.",
            "whatif_step_ns": 15_200_000.0,
        },
        {
            "code": "MP104", "slug": "float32-island", "title": f"A float32 island in layer {HOSTILE}",
            "severity": "warning", "confidence": "medium", "cost_ns_per_step": 1_600_000.0,
            "cost_bytes": 300_000_000, "gap_ratio": 1.6 / 7, "summary": "",
            "evidence": [
                {"name": "layer", "value": HOSTILE, "unit": "text", "limit": None},
                {"name": "matrix time on CUDA cores", "value": 2_000_000.0, "unit": "ns", "limit": 0},
                {"name": "first non-finite loss", "value": "NaN", "unit": "count", "limit": None},
            ],
            "remedy": "Give the layer the policy mixed_float16, or keep only its reduction in float32.",
            "whatif_step_ns": 15_600_000.0, "layers": [HOSTILE],
        },
        {
            "code": "MP801", "slug": "memory-bound-model", "title": "A third of the step is bound by memory",
            "severity": "info", "confidence": "low", "cost_ns_per_step": None, "cost_bytes": None,
            "gap_ratio": None, "summary": "Normalisation and activations gain at most 2x.",
            "evidence": [{"name": "share", "value": 0.33, "unit": "ratio", "limit": 0.3}],
            "remedy": "Nothing to repair; jit_compile=True fuses some of it.", "whatif_step_ns": None,
        },
    ]  # fmt: skip


def _measured(step: float) -> Document:
    base, reach = 18_400_000.0, 10_200_000.0
    return {
        "baseline": "measured", "baseline_id": "fp32", "observed": base / step, "interval": [1.05, 1.09],
        "baseline_step_ns": base, "reach_ns": reach, "gap_ns": step - reach,
        "expected": base / reach, "expected_with_host": 1.71, "ceiling": 2.61, "estimated": None,
        "slices": [
            {"class": "matmul", "layer": "res2a", "ns_per_step": 900_000.0},
            {"class": "matmul", "layer": HOSTILE, "ns_per_step": 1_200_000.0},
            {"class": "norm", "layer": None, "ns_per_step": 1_450_000.0},
            {"class": "elementwise", "layer": None, "ns_per_step": -200_000.0},
            {"class": "cast", "layer": None, "ns_per_step": 1_200_000.0},
            {"class": "layout", "layer": None, "ns_per_step": 500_000.0},
            {"class": "loss_scale", "layer": None, "ns_per_step": 300_000.0},
            {"class": "idle_input", "layer": None, "ns_per_step": 2_000_000.0},
            {"class": "idle_launch", "layer": None, "ns_per_step": 700_000.0},
            {"class": "profiling", "layer": None, "ns_per_step": -1_050_000.0},
        ],
        "unexplained_ns": 3_400_000.0,
    }  # fmt: skip


def _estimated() -> Document:
    return {
        "baseline": "estimated", "baseline_id": None, "observed": None, "interval": None, "expected": None,
        "expected_with_host": None, "ceiling": 2.61,
        "estimated": {
            "low": 1.02, "high": 1.9,
            "assumptions": ["TF32 on: 1.02x", "TF32 off: 1.90x",
                            "record the baseline with: MPPROF_POLICY=float32 python train.py"],
        },
        "slices": [], "unexplained_ns": None,
    }  # fmt: skip


def cpu_document() -> Document:
    step = 4_100_000.0
    document = empty_document("laptop-cpu")
    document |= {
        "run": {
            "name": "laptop-cpu", "policy": "mixed_float16", "backend": "jax", "device": "CPU",
            "jit_compile": True, "batch_size": 32,
        },
        "steps": {
            "count": 64, "steady": 40, "median_ns": 4_100_000, "p95_ns": 4_900_000, "skipped": 0,
            "skipped_ratio": 0.0, "loss_scale": {"first": 32768.0, "last": 32768.0, "min": 32768.0, "max": 32768.0},
            "peak_memory_bytes": None,
        },
        "time": {
            "basis": "window", "step_ns": step, "wall_ns": None, "window_ns": step, "device_ns": 3_100_000,
            "slices": [
                _slice("matmul", 2_100_000, step, by=[_part("cuda_core", "fp32", 2_100_000)]),
                _slice("elementwise", 400_000, step),
                _slice("unknown", 600_000, step),
                _slice("idle_other", 1_000_000, step),
            ],
            "devices": [],
        },
        "tensor_core": None,
        "unable": [{"code": "MP801", "reason": "the run has no accelerator"}],
        "absent": {
            "tensor_core": "the run used a CPU, which has no Tensor Cores",
            "memory": "no GPU allocator to ask",
            "peak_memory_bytes": "no GPU allocator to ask",
        },
        "verdict": "This run used a CPU: mixed precision cannot make it faster, and Tensor Cores play no part.",
    }  # fmt: skip
    return _filled(document)


def live_document() -> Document:
    document = empty_document("tonight-live")
    document |= {
        "run": {
            "name": "tonight-live", "policy": "mixed_float16", "backend": "tensorflow", "device": "Tesla V100",
            "jit_compile": None, "batch_size": 32,
        },
        "steps": {
            "count": 12, "steady": 0, "median_ns": None, "p95_ns": None, "skipped": None, "skipped_ratio": None,
            "loss_scale": None, "peak_memory_bytes": None,
        },
        "unable": [{"code": "MP301", "reason": "no trace: a host bound is not excluded"}],
        "absent": {
            "time": "no trace was recorded yet: the profile window opens at step 10 or later",
            "tensor_core": "no trace was recorded yet",
            "memory": "no trace was recorded yet",
            "steps.loss_scale": "not read yet",
        },
        "verdict": "The run has just begun: nothing can be judged before its steps have settled.",
    }  # fmt: skip
    return _filled(document)


def steps_table(
    n: int = 120, median_ns: float = 17_200_000, seed: int = 1, mixed: bool = True, recorded: bool = True
) -> StepTable:
    """A step log: 10 slow warm-up steps, a window at 20 to 24, two epochs, one non-finite loss.

    Without `recorded`, lines that hold nothing but their number."""
    random = np.random.default_rng(seed)
    step = np.arange(1, n + 1)
    interval = (median_ns * (1 + 0.03 * random.standard_normal(n))).astype(np.int64)
    interval[:10] = (median_ns * np.linspace(4.0, 1.1, 10)[: min(10, n)]).astype(np.int64)[:n]
    profiled = (step >= 20) & (step <= 24)
    interval[profiled] = (interval[profiled] * 1.2).astype(np.int64)
    interval[[n // 2 - 1, n - 1]] = -1
    if not recorded:
        interval[:] = -1
    read = (step % 4 == 0) & recorded
    loss = 2.3 * np.exp(-step / 60)
    loss[n // 3] = np.nan
    skipped = np.where(read, 0, -1)
    skipped[read & (step < 40)] = 1
    scale = np.where(step < 40, 32768.0 / 2.0 ** (step // 4), 64.0)
    nothing = np.full(n, -1, np.int64)
    return StepTable(
        step=step, fit=np.ones(n, np.int64), epoch=(step > n // 2).astype(np.int64), batch=(step - 1) % (n // 2),
        covers=np.ones(n, np.int64), t_ns=np.cumsum(np.abs(interval)), interval_ns=interval,
        duration_ns=np.where(interval > 0, interval - 200_000, int(median_ns)), gap_ns=nothing + 200_001,
        input_wait_ns=nothing, dispatch_ns=nothing, synced=read, profiled=profiled, loss=loss,
        loss_known=np.full(n, recorded), loss_scale=scale, loss_scale_known=read & mixed,
        skipped=skipped if mixed else nothing,
        peak_bytes=np.where(read, 7_800_000_000, -1), live_bytes=np.where(read, 6_000_000_000 + step * 10**6, -1),
    )  # fmt: skip


def hardware_table(n: int = 30) -> HardwareTable:
    t = np.arange(n) * 200_000_000
    nan = np.full(n, np.nan)
    return HardwareTable(
        t_ns=t, gpu=np.zeros(n, np.int64), utilization_ratio=0.7 + 0.1 * np.sin(t / 1e9),
        memory_used_bytes=nan, power_w=250 + 40 * np.sin(t / 1e9), sm_clock_hz=np.full(n, 1.41e9),
        temperature_c=np.linspace(45, 66, n), cpu_ratio=np.full(n, 0.9), process_cpu_ratio=nan,
        rss_bytes=np.full(n, 3.1e9),
        throttle=tuple(("sw_power_cap",) if i > 20 else () for i in range(n)),
    )  # fmt: skip


def _whole(kind: str, given: Document) -> Document:
    """The row with an invented value in each column of its table that it does not name, so that a new column needs
    no change here."""
    hints = get_type_hints(rows.TABLES[kind].row, include_extras=True)
    keys = [key for key in rows.keys(kind) if key not in given and "." not in key]
    return given | {key: _invented(hints[key], key) for key in keys}


def _invented(hint: Any, name: str) -> Any:
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Annotated, NotRequired):
        return _invented(args[0], name)
    if origin in (Union, UnionType):
        return _invented(next(each for each in args if each is not NoneType), name)
    if origin is Literal:
        return args[0]
    return {"str": name, "int": 1, "float": 1.0}.get(getattr(hint, "__name__", ""), {})


def kernel_rows() -> list[Document]:
    def row(name: str, op: str | None, layer: str | None, place: str, precision: str, family: str,
            reason: tuple[str, str], calls: int, ns: int) -> Document:  # fmt: skip
        return _whole("kernels", {
            "device": "/device:GPU:0", "name": name, "op": op, "layer": layer, "placement": place,
            "precision": precision, "family": family, "reason": {"code": reason[0], "text": reason[1]},
            "calls": calls, "total_ns": ns, "ratio": ns / 12_900_000,
        })  # fmt: skip

    by_name = ("name-instruction", "the name states the instruction and the types: s16816, fp16")
    no_tc = ("name-sgemm", "sgemm: single precision on ordinary arithmetic")
    return [
        row("ampere_fp16_s16816gemm_fp16_128x128_ldg8_f2f_stages_32x5_nn", "res2a/Conv2D", "res2a",
            "tensor_core", "fp16", "gemm", by_name, 24, 3_300_000),
        row("ampere_sgemm_128x64_nn", HOSTILE, HOSTILE, "cuda_core", "fp32", "gemm", no_tc, 8, 2_000_000),
        row(HOSTILE_KERNEL, None, None, "unknown", "unknown", "other",
            ("no-evidence", "nothing in the name or the op says what it does"), 3, 800_000),
        row("void tensorflow::BatchNorm_kernel<float>", "res2a/BatchNorm", "res2a", "not_matmul", "fp32", "norm",
            ("family", "a normalisation kernel"), 32, 2_600_000),
        row("void cast_kernel<float, Eigen::half>", "res2a/Cast", None, "not_matmul", "mixed", "cast",
            ("family", "changes the number format"), 48, 1_200_000),
    ]  # fmt: skip


def op_rows() -> list[Document]:
    given: list[Document] = [
        {"device": "/device:GPU:0", "op": "res2a/Conv2D", "type": "Conv2D", "layer": "res2a", "phase": "forward",
         "placement_ns": {"tensor_core": 3_300_000}, "tensor_core_ratio": 1.0, "eligible": "did",
         "matmul_ns": 3_300_000,
         "placement": "tensor_core", "precision": "fp16", "family": "conv_fprop",
         "reason": {"code": "name-instruction", "text": "its kernels state fp16"}, "calls": 8, "kernels": 3,
         "total_ns": 3_300_000, "ratio": 0.256},
        {"device": "/device:GPU:0", "op": HOSTILE, "type": "MatMul", "layer": HOSTILE, "phase": "backward",
         "placement_ns": {"cuda_core": 2_000_000}, "matmul_ns": 2_000_000, "eligible": "could",
         "eligible_reason": {"code": "dtype", "text": "its operands are float32"},
         "placement": "cuda_core", "precision": "fp32", "family": "gemm",
         "reason": {"code": "name-sgemm", "text": "sgemm: single precision"}, "calls": 8, "kernels": 1,
         "total_ns": 2_000_000, "ratio": 0.155},
        {"device": "/device:GPU:0", "op": None, "type": None, "layer": None, "phase": "other",
         "placement_ns": {"unknown": 800_000}, "matmul_ns": 0, "eligible": None,
         "placement": "unknown", "precision": "unknown", "family": "other",
         "reason": {"code": "no-evidence", "text": "no op claims these kernels"}, "calls": 3, "kernels": 1,
         "total_ns": 800_000, "ratio": 0.062},
    ]  # fmt: skip
    return [_whole("ops", row) for row in given]


PRODUCT_ROW: Document = _whole("products", {
    "device": "/device:GPU:0", "shape": "256 x 512 x 1024", "batch": 1, "m": 256, "n": 512, "k": 1024,
    "operands": f"half[256,1024]; {HOSTILE}", "family": "gemm", "layer": HOSTILE, "placement": "tensor_core",
    "precision": "fp16", "calls": 8, "calls_per_step": 1.0, "total_ns": 2_000_000, "ratio": 0.155,
    "flops_per_call": 268_435_456.0, "flops_per_s": 1.07e12, "peak_ratio": 0.0034, "roofline_ratio": 0.02,
    "bound": "memory",
})  # fmt: skip


def layer_rows() -> list[Document]:
    given: list[Document] = [
        {"device": "/device:GPU:0", "layer": "res2a", "class": "Conv2D", "compute_dtype": "float16",
         "calls": 104, "total_ns": 7_100_000, "ratio": 0.55, "forward_ns": 3_000_000, "backward_ns": 4_100_000, "other_ns": 0,
         "matmul_ns": 3_300_000},
        {"device": "/device:GPU:0", "layer": HOSTILE, "class": "Lambda", "compute_dtype": "float32",
         "calls": 8, "total_ns": 2_000_000, "ratio": 0.155, "forward_ns": 2_000_000, "backward_ns": 0, "other_ns": 0,
         "matmul_ns": 2_000_000},
        {"device": "/device:GPU:0", "layer": None, "class": None, "compute_dtype": None, "calls": 51,
         "total_ns": 3_800_000, "ratio": 0.295, "forward_ns": 0, "backward_ns": 0, "other_ns": 3_800_000,
         "matmul_ns": 0},
    ]  # fmt: skip
    return [_whole("layers", row) for row in given]


def timeline_document() -> Document:
    """One step: a wait for input, an sgemm with a hostile name, a Tensor Core kernel."""
    keys = ["matrix_unit", "off_matrix_unit", "idle_input", "input", "launch"]
    lane = {"count": [1, 1, 1], "row": [-1, 7, 8]}
    return {
        "steps": [{"number": 5, "start_ns": 0, "end_ns": 17_200_000}], "step": 0, "median": 0, "slowest": 0,
        "from_ns": 0, "to_ns": 17_200_000, "keys": keys, "names": [HOSTILE_KERNEL, "volta_h884gemm"],
        "lanes": [
            lane | {"name": "Device", "kind": "device", "start_ns": [0, 3_000_000, 5_000_000],
                    "length_ns": [3_000_000, 2_000_000, 12_000_000], "key": [2, 1, 0], "label": [-1, 0, 1]},
            {"name": "Host", "kind": "host", "start_ns": [0, 3_000_000], "length_ns": [3_000_000, 100_000],
             "key": [3, 4], "label": [-1, -1], "row": [-1, -1], "count": [1, 1]},
        ],
    }  # fmt: skip


class FakeSource:
    """A RunSource without a directory."""

    path = Path("no directory")
    title = "a <b>hand-made</b> directory"

    def __init__(self, entries: tuple[RunEntry, ...] = ENTRIES) -> None:
        self._entries = entries

    def entries(self) -> tuple[RunEntry, ...]:
        return self._entries

    def ladders(self) -> list[dict[str, Any]]:
        return []

    def surveyed(self, run: str, baseline: str | None = None) -> None:
        return None

    def _check(self, run: str) -> None:
        if run not in {entry.id for entry in self._entries}:
            raise NotFoundError(f"no run {run!r}", where="runs", next="Choose one of the list.")
        if run == "broken":
            raise UnreadableError(
                "run.json is not JSON (byte 12)",
                where="/logs/broken/mpprof/run.json",
                next="Restore the file.",
            )

    def report(self, run: str, baseline: str | None = None) -> Document:
        self._check(run)
        if baseline is not None:
            self._check(baseline)
        documents: dict[str, Any] = {
            "fp32": fp32_document, "mixed": lambda: mixed_document(baseline == "fp32"), "cpu": cpu_document,
            "live": live_document,
        }  # fmt: skip
        return typed(documents[run]())

    def steps(self, run: str) -> StepTable | None:
        self._check(run)
        return {
            "fp32": steps_table(median_ns=18_400_000, seed=2, mixed=False), "mixed": steps_table(),
            "live": steps_table(12), "cpu": steps_table(64, 4_100_000, 3),
        }[run]  # fmt: skip

    def hardware(self, run: str) -> HardwareTable | None:
        self._check(run)
        return hardware_table() if run in ("mixed", "fp32") else None

    def one_answer(self) -> Any:
        return nullcontext()

    def version(self, run: str, baseline: str | None = None) -> str:
        return f"{run} {baseline}"

    def numbers(self, run: str) -> ShownLook | None:
        self._check(run)
        return None if run != "mixed" else LOOK

    def roofs(self, run: str) -> Document | None:
        self._check(run)
        if run != "mixed":
            return None
        rates = {"fp16": 312e12, "tf32": 156e12, "fp32_cuda": 19.5e12}
        return {"card": "A100", "flops_per_s": rates, "bandwidth_bytes_per_s": 1.555e12, "source": "made up"}

    def kernels(self, run: str, *, in_steps: bool = False) -> list[Document]:
        self._check(run)
        return kernel_rows() if run == "mixed" else kernel_rows()[3:] if run == "fp32" else []

    def products(self, run: str, *, in_steps: bool = False) -> list[Document]:
        self._check(run)
        return [PRODUCT_ROW] if run == "mixed" else []

    def ops(self, run: str, *, in_steps: bool = False) -> list[Document]:
        self._check(run)
        return op_rows() if run == "mixed" else op_rows()[:1] if run == "fp32" else []

    def layers(self, run: str, *, in_steps: bool = False) -> list[Document]:
        self._check(run)
        return layer_rows() if run == "mixed" else []

    def timeline(
        self,
        run: str,
        *,
        step: int | None = None,
        from_ns: int | None = None,
        to_ns: int | None = None,
        width: int = 1400,
        colour: str = "placement",
        search: str = "",
        device_only: bool = False,
    ) -> Document | None:
        self._check(run)
        found = timeline_document() if run == "mixed" else None
        if found is not None and device_only:
            found["lanes"] = found["lanes"][:1]
        return found

    def next_kernel(
        self, run: str, *, row: int | None = None, from_ns: int = 0, search: str = "", back: bool = False
    ) -> Document | None:
        return self.kernel(run, 7)

    def chrome_trace(self, run: str, from_ns: int, to_ns: int) -> Document | None:
        self._check(run)
        return {"traceEvents": []} if run == "mixed" else None

    def kernel(self, run: str, row: int) -> Document | None:
        self._check(run)
        if run != "mixed" or row != 7:
            return None
        return {
            "row": 7, "name": HOSTILE_KERNEL, "start_ns": 3_000_000, "duration_ns": 2_000_000, "stream": "Stream #13",
            "op": HOSTILE, "layer": "res2a", "phase": "forward", "shapes": None, "details": None,
            "placement": "cuda_core", "precision": "fp32", "reason": {"code": "name", "text": "an sgemm"},
            "launched_by": "cuLaunchKernel", "launch_to_start_ns": 12_000, "matrix": True,
        }  # fmt: skip

    def redactor(self, run: str) -> Any:
        return Redactor({"gpu7.lab"}).record

    def compare(self, runs: tuple[str, ...]) -> Document:
        reports = [self.report(run) for run in runs]
        mixed = mixed_document()
        speedup = mixed["speedup"]
        steps = [
            {
                "from": start, "to": start + 1, "observed": speedup["observed"], "expected": speedup["expected"],
                "interval": speedup["interval"], "slices": speedup["slices"], "findings": mixed["findings"][:1],
                "expected_with_host": None, "ceiling": None, "gap_ns": speedup["gap_ns"], "unexplained_ns": None,
                "labels": [], "refused": None, "absent": {},
            }
            for start in range(len(runs) - 1)
        ]  # fmt: skip
        kernels = [
            {"key": "ampere_sgemm_128x64_nn", "by": "name", "step": 0, "from_ns": None, "to_ns": 2_000_000.0},
            {"key": HOSTILE, "by": "op", "step": 0, "from_ns": 2_900_000.0, "to_ns": 2_000_000.0},
            {"key": "ampere_scudnn_tf32", "by": "name", "step": 0, "from_ns": 12_000_000.0, "to_ns": None},
        ]
        return typed({"schema": "mpprof.compare/1", "runs": reports, "steps": steps, "kernels": kernels})
