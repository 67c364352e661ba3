"""Diagnoses made by hand, with every field filled or none, to render."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from mpprof.model.account import (
    Account,
    Between,
    Bound,
    Cell,
    Class,
    DeviceAccount,
    EstimatedSpeedup,
    GapSlice,
    MatmulShare,
    Slice,
    Speedup,
    TensorCoreShare,
)
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import (
    Comparison,
    Diagnosis,
    Evidence,
    Finding,
    KernelChange,
    NotApplicable,
    Rung,
    Unable,
)
from mpprof.model.memory import MemoryAccount, MemoryItem
from mpprof.model.outcome import (
    Applied,
    Learning,
    LearningCurves,
    LossPoint,
    Promises,
    RemediesTotal,
    RemedyOutcome,
)
from mpprof.model.run import OptimizerFacts, PolicyFacts, Run, RunFacts
from mpprof.model.steps import LossScaleSummary, StepSummary
from tests.builders import cases

STEP_NS = 41_234_567.891
HOSTILE = '<a href="x">x</a>|`|@you #1 \x1b[31mred'


def facts(policy: str = "mixed_float16") -> RunFacts:
    scaled = OptimizerFacts("LossScaleOptimizer", "Adam", True)
    fit = cases.fit("mixed_float16", scaled, batch_size=1024)
    return cases.facts(
        policy,
        fits=(replace(fit, policy=PolicyFacts(policy, "float16", "float32")),),
        run_id="0af3", host="trainer", tf32_enabled=None, deterministic_ops=None, model=None, profile_windows=(), timing=None,
        devices=(DeviceFacts("cpu", name="a CPU"), DeviceFacts("gpu", name="Tesla V100-SXM2-16GB")),
        absent={"tf32_enabled": "cc 7.0 has no TF32"},
    )  # fmt: skip


def run(name: str = "bert-fp16", *, with_facts: bool = True) -> Run:
    return cases.run(
        facts() if with_facts else None,
        name=name,
        path=Path("logs") / name,
        traces=(Path("logs") / name / "host.xplane.pb",),
        warnings=("the last line of steps.jsonl is torn (byte 48213): it was left out",),
    )


def slices() -> tuple[Slice, ...]:
    """Slices that sum to the step, small ones and a negative `profiling` among them."""
    shares = (
        MatmulShare("tensor_core", "fp16", 12_000_000.1234),
        MatmulShare("cuda_core", "fp32", 6_100_000.5),
    )
    times: dict[Class, float] = {
        "matmul": sum(share.ns_per_step for share in shares),
        "norm": 2_000_000.3333,
        "elementwise": 3_111_111.1111,
        "reduce": 90_000.0,
        "cast": 150_000.0,
        "layout": 20_000.0,
        "unknown": 41_000.0,
        "comm": 800_000.0,
        "idle_input": 16_950_000.0,
        "idle_between_steps": 250_000.0,
    }
    times["profiling"] = STEP_NS - sum(times.values())
    takes = sum(max(0.0, ns) for ns in times.values())
    return tuple(
        Slice(
            category,
            ns,
            ns / takes,
            700_000.0 if category == "comm" else 0.0,
            shares if category == "matmul" else (),
        )
        for category, ns in times.items()
    )


def account() -> Account:
    parts = slices()
    main = DeviceAccount(
        device="/device:GPU:0",
        step_ns=STEP_NS,
        busy_ns=24_300_000.0,
        steps=5,
        slices=parts,
        cells=(Cell("matmul", 1.0),),
    )
    return Account(
        basis="wall",
        trace_basis="device",
        step_ns=STEP_NS,
        wall_ns=STEP_NS,
        window_ns=STEP_NS + 2_000_000,
        device_ns=24_300_000.0,
        main=main,
        devices=(main,),
        steps=(11, 12, 13, 14, 15),
        step_source="keras",
        notes=("launches were shifted by 1.20 µs: two clocks",),
        function_ns=STEP_NS - 250_000,
        between_ns=250_000.0,
        between=(
            Between("TensorBoard's summary writer (WriteSummary, LogicalAnd)", 180_000.0, 2_900.0),
            Between("other work of the host (Python)", 70_000.0, 0.0),
        ),
        numbered="keras",
    )


def speedup() -> Speedup:
    gap = (
        GapSlice("idle_input", None, 16_950_000.0, 1_000_000.0, 17_000_000.0, 1.0, "idle does not shrink"),
        GapSlice(
            "matmul", f"encoder/{HOSTILE}", 6_000_000.0, 12_000_000.0, 8_000_000.0, 5.8, "in this trace"
        ),
        GapSlice("norm", None, -50_000.0, 4_100_000.0, 2_000_000.0, 2.0, "16-bit tensors"),
    )
    total = sum(part.ns_per_step for part in gap)
    return Speedup(
        baseline="measured",
        baseline_id="bert-fp32",
        baseline_step_ns=44_120_000.0,
        observed=1.07,
        interval=(1.06, 1.08),
        expected=2.4,
        expected_with_host=1.3,
        ceiling=4.1,
        attainable_ns=STEP_NS - total,
        gap_ns=total,
        slices=gap,
        unexplained_ns=120_000.0,
        above_attainable_ns=7_290_000.0,
        absent={},
    )


def findings() -> tuple[Finding, ...]:
    return (
        Finding(
            code="MP301",
            slug="input-bound",
            title="The device waits for input",
            severity="error",
            confidence="high",
            evidence=(
                Evidence("idle_input share", 0.411, "ratio", 0.15),
                Evidence("pipeline", "tf.data without prefetch", "text"),
                Evidence("batches", 1204, "count"),
            ),
            remedy="Add .prefetch(tf.data.AUTOTUNE) as the last step of the input pipeline.",
            summary="The GPU waits 17.0 ms of every step for the next batch.",
            cost_ns_per_step=16_950_000.0,
            gap_ratio=0.74,
            whatif_step_ns=STEP_NS - 16_950_000.0,
            gain_ns_per_step=16_950_000.0,
            recovers_ns_per_step=7_170_000.0,
        ),
        Finding(
            code="MP104",
            slug="float32-island",
            title="A layer stays in float32",
            severity="warning",
            confidence="medium",
            evidence=(Evidence(f"layer {HOSTILE}", "float32", "text", "float16"),),
            remedy="Remove dtype='float32' from the layer.",
            cost_ns_per_step=5_000_000.0,
            layers=tuple(f"encoder/block_{k}/attention" for k in range(9)),
        ),
    )


def diagnosis(name: str = "bert-fp16") -> Diagnosis:
    """A run of which everything is known."""
    return Diagnosis(
        run=run(name),
        steps=StepSummary(
            count=400,
            steady=371,
            first_steady=12,
            mean_ns=STEP_NS,
            median_ns=STEP_NS,
            p95_ns=48_000_000.0,
            interval_ns=(41_000_000.0, 41_400_000.0),
            skipped=2,
            skipped_ratio=0.005,
            loss_scale=LossScaleSummary(32768.0, math.inf, 8192.0, math.inf),
            peak_memory_bytes=11 << 30,
        ),
        account=account(),
        tensor_core=TensorCoreShare(18_100_000.6, 0.663, None, {"fp16": 12_000_000.1}, 6_100_000.5, 0.0017),
        speedup=speedup(),
        bounds=(Bound("matrix rate at most", 18.1e12, "flops_per_s", ("direct convolutions",)),),
        memory=MemoryAccount(
            peak_bytes=11 << 30,
            at_peak=(MemoryItem("dtype", "float16", 5 << 30), MemoryItem("dtype", "float32", 6 << 30)),
        ),
        findings=findings(),
        unable=(
            Unable("MP302", "host events were not recorded"),
            Unable("MP912", "host events were not recorded"),
            Unable("MP203", "the loss scale was not read"),
        ),
        clear=("MP101", "MP102"),
        not_applicable=(NotApplicable("MP804", "the run does not compute in bfloat16"),),
        warnings=("the profiled steps are 4.9 % slower than the others",),
        absent={"run.deterministic_ops": "not stated"},
        device=DeviceFacts("gpu", name="Tesla V100-SXM2-16GB", vendor="nvidia", compute_capability=(7, 0)),
    )


def bare() -> Diagnosis:
    """A run of which nothing is known but that it is there."""
    return Diagnosis(
        run=replace(run("nothing", with_facts=False), traces=(), warnings=()),
        steps=None,
        account=None,
        tensor_core=None,
        speedup=None,
        bounds=(),
        memory=None,
        findings=(),
        unable=(Unable("MP301", "there is no trace"),),
        clear=(),
        warnings=(),
    )


def cpu() -> Diagnosis:
    """A run on a CPU, without a baseline: the speedup is an estimate and there are no Tensor Cores."""
    known = diagnosis("cpu")
    held = account()
    estimated = Speedup(
        baseline="estimated",
        baseline_id=None,
        baseline_step_ns=None,
        observed=None,
        interval=None,
        expected=None,
        expected_with_host=None,
        ceiling=None,
        attainable_ns=None,
        gap_ns=None,
        slices=(),
        unexplained_ns=None,
        estimated=EstimatedSpeedup(0.9, 1.2, ("the CPU has no 16-bit matrix units",)),
        absent={"observed": "no baseline was given"},
    )
    return replace(
        known,
        account=replace(held, trace_basis="host", basis="window", wall_ns=None),
        tensor_core=None,
        speedup=estimated,
        absent={"tensor_core": "no accelerator in the trace"},
    )


def comparison() -> Comparison:
    first = replace(diagnosis("bert-fp32"), findings=(), speedup=None)
    second = diagnosis()
    rung = Rung(
        start=0,
        end=1,
        speedup=second.speedup,
        slices=speedup().slices,
        kernels=(
            KernelChange("volta_sgemm_128x64_nn", "name", 12_000_000.0, None),
            KernelChange(f"volta_h884gemm_{HOSTILE}", "name", None, 4_000_000.0),
            KernelChange("model/dense/MatMul", "op", 900.0, 1200.0),
        ),
        findings=second.findings[:1],
        labels=("batch size: 512 and 1024",),
        learning=Learning(
            verdict="worse",
            text="loss at equal applied updates (500 to 1,000): 0.41 → 0.47 (+14.6 %, 95 %: +11.0 % to +18.3 %); "
            "the runs diverge. Other seeds or another order of the data may do that, too",
            severity="info",
            window=(500.0, 1000.0),
            stretches=20,
            loss=(0.41, 0.47),
            difference_ratio=0.146,
            interval=(0.11, 0.183),
            applied=(Applied(1000, 0, 1000.0), Applied(1100, 100, 1000.0)),
            per_update=1.51,
            per_update_interval=(1.48, 1.54),
            curves=LearningCurves(
                (LossPoint(500.0, 0.5), LossPoint(1000.0, 0.41)),
                (LossPoint(500.0, 0.52), LossPoint(1000.0, 0.47)),
            ),
        ),
        promises=Promises(
            outcomes=(
                RemedyOutcome(
                    "MP301",
                    "input-bound",
                    "applied",
                    "gone",
                    (f".cache() {HOSTILE}",),
                    (9.1e6, 9.4e6),
                    9.2e6,
                    (8.8e6, 9.6e6),
                    counted=True,
                ),
                RemedyOutcome(
                    "MP302",
                    "launch-bound",
                    "gone",
                    "not judged",
                    (),
                    (2e6, 2e6),
                    None,
                    None,
                    "head has no counterpart",
                    counted=True,
                ),
                RemedyOutcome("MP503", "casts", "not seen", "remains", (), (1e6, 1e6), -2e4, (-9e4, 5e4)),
            ),
            total=RemediesTotal((11.1e6, 11.4e6), 10.9e6, (10.5e6, 11.3e6)),
            promised=True,
            same_precision=True,
        ),
    )
    return Comparison((first, second), (rung,))
