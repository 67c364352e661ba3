"""Small whole files of every format, from which the damaged ones are made. All are *synthetic*."""

from __future__ import annotations

import json
import pickle
import sqlite3
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from tests.builders import torch_memory
from tests.builders.hlo import PROGRAM, Instruction, metadata_plane
from tests.builders.xspace import Ref, Space
from tests.paths import SAMPLES
from tests.traces import kineto
from tests.traces.test_chrome import tensorflow
from tests.traces.test_nsys import FIRST, export


def _gpu() -> Space:
    """A GPU with derived lines beside its streams, a host that launches, allocator events, steps."""
    space = Space(hostnames=["here"])
    device = space.plane("/device:GPU:0")
    device.stats = {"compute_cap_major": 7, "compute_cap_minor": 0, "memory_size": 16 << 30, "clock_rate": 1_530_000,
                    "core_count": 80, "device_vendor": "Nvidia"}  # fmt: skip
    streams = [device.line(7, "Stream #7(Compute)", 1_000), device.line(8, "Stream #8(MemcpyH2D)", 1_000)]
    steps = device.line(0x7FFFFFFF, "Steps", 1_000)
    host = space.plane("/host:CPU")
    thread = host.line(11, "python", 1_000)
    task = space.plane("Task Environment")
    task.stats = {"profile_start_time": 1_700_000_000_000_000_000}
    for i in range(6):
        at = 1_000 + 100 * i
        if i % 3 == 0:
            thread.event("TraceContext", at, 290, {"graph_type": "train", "step_num": i // 3, "_r": 1})
            steps.event(str(i // 3), at, 290, {"group_id": i // 3})
        thread.event(f"m/op{i % 3}:MatMul", at, 60, {"group_id": i // 3}, display="MatMul")
        thread.event("cuLaunchKernel", at + 10, 40, {"correlation_id": i + 1})
        thread.event("MemoryAllocation", at + 20, 0, {
            "allocator_name": Ref("GPU_0_bfc"), "addr": 64 * i, "bytes_allocated": 4096, "allocation_bytes": 256,
            "peak_bytes_in_use": 8192, "tensor_shapes": "f32[4,4]", "tf_op": "m/dense/MatMul",
        })  # fmt: skip
        streams[0].event(f"volta_sgemm_{i % 4}", at + 1_000, 50, {
            "correlation_id": i + 1, "tf_op": Ref(f"m/op{i % 3}:MatMul"), "group_id": i // 3, "_a": 1, "cuda_graph_id": 0,
            "kernel_details": Ref("regs:32 static_shared:0 dynamic_shared:0 grid:1,1,1 block:128,1,1 occ_pct:50"),
        })  # fmt: skip
        streams[1].event(
            "MemcpyH2D", at + 1_020, 5, {"memcpy_details": "kind:pinned size:4096 dest:0 async:1"}
        )
    return space


def _cpu() -> Space:
    """No accelerator, two hosts, line times that count from 1970, a TPU beside them without work."""
    space = Space(hostnames=["there"])
    now = 1_700_000_000_000_000_000
    for n in range(2):
        host = space.plane(f"/host:CPU{n or ''}")
        for id, name in ((1, "tf_XLAEigen/1"), (2, "main")):
            line = host.line(id, name, now + 50)
            for i in range(4):
                line.event(
                    "dot.3",
                    now + 100 * i,
                    80,
                    {"hlo_op": "dot.3", "hlo_module": "jit_step", "program_id": 17},
                )
                line.event(
                    "PjitFunction(step)", now + 100 * i - 10, 95, {"_pt": 14, "_p": i, "_ct": 14, "_c": i}
                )
                line.event("$train.py:3 f", now + 100 * i, 90)
    tpu = space.plane("/device:TPU:0").line(3, "XLA Ops", now)
    for i in range(3):
        tpu.event(
            "fusion.1", now + 100 * i, 90, {"flops": 100, "bytes_accessed": 400, "hlo_category": "fusion"}
        )
    return space


@cache
def xspaces() -> Sequence[bytes]:
    return (_gpu().to_bytes(), _cpu().to_bytes())


@cache
def hlos() -> Sequence[bytes]:
    """Traces whose kernels name instructions of a compiled module."""
    half = ("f16", (64, 64))
    inside = (Instruction("dot.1", "dot", half, (half, half), "jit(step)/dense/dot_general"),
              Instruction("add.1", "add", half, (half, half), "jit(step)/dense/add"))  # fmt: skip
    image = ("f16", (4, 8, 8, 16))
    instructions = (
        Instruction("fusion.1", "fusion", half, (half, half), "jit(step)/dense/dot_general", inside=inside),
        Instruction(
            "cublas.2", "custom-call", half, (half, half), "jit(step)/out/dot", "__cublas$gemm", contracting=1
        ),
        Instruction(
            "cudnn.3",
            "custom-call",
            image,
            (image, ("f16", (3, 3, 16, 16))),
            "jit(step)/conv",
            "__cudnn$convForward",
        ),
        Instruction("convert.4", "convert", ("f32", (64,)), (("f16", (64,)),), "jit(step)/cast"),
    )
    space = Space()
    line = space.plane("/device:GPU:0").line(7, "Stream #7(Compute)", 0)
    for i in range(8):
        name = instructions[i % 4].name
        line.event(
            f"{name}_kernel", 100 * i, 90, {"hlo_op": name, "hlo_module": "jit_step", "program_id": PROGRAM}
        )
    space.raw.append(metadata_plane("jit_step", instructions))
    return (space.to_bytes(),)


@cache
def kinetos() -> Sequence[bytes]:
    document = kineto.small().document()
    first = [event for event in document["traceEvents"] if event["ts"] < 1000]
    bare = [event for event in first if event["pid"] != kineto.DEVICE]
    return (json.dumps({**document, "traceEvents": first}).encode(), json.dumps(bare).encode())


@cache
def tensorflows() -> Sequence[bytes]:
    return (json.dumps(tensorflow()).encode(), json.dumps(tensorflow("/device:GPU:0/stream:all")).encode())


_MORE_TABLES = f"""
create table TARGET_INFO_CUDA_DEVICE (gpuId integer, cudaId integer, pid integer);
insert into TARGET_INFO_CUDA_DEVICE values (3, 0, 5), (2, 1, 6);
create table CUPTI_ACTIVITY_KIND_MEMSET (start integer, end integer, deviceId integer, contextId integer, streamId integer,
    correlationId integer, globalPid integer, bytes integer);
insert into CUPTI_ACTIVITY_KIND_MEMSET values (1400, 1402, 0, 1, 7, 70, {FIRST}, 64);
create table CUPTI_ACTIVITY_KIND_GRAPH_TRACE (start integer, end integer, deviceId integer, contextId integer,
    streamId integer, correlationId integer, globalPid integer, graphId integer);
insert into CUPTI_ACTIVITY_KIND_GRAPH_TRACE values (5000, 6000, 0, 1, 7, 50, {FIRST}, 4);
create table ThreadNames (nameId integer, priority integer, globalTid integer);
insert into ThreadNames values (4, 0, {FIRST} + 1);
create table TARGET_INFO_SYSTEM_ENV (name text, value text);
insert into TARGET_INFO_SYSTEM_ENV values ('NvDriverVersion', '535.1');
"""


@cache
def exports() -> Sequence[bytes]:
    """With small pages, so that a change of a byte hits something."""
    with tempfile.TemporaryDirectory() as folder:
        path = export(Path(folder, "w.sqlite"), extra=_MORE_TABLES)
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("pragma page_size=512")
        db.execute("vacuum")
        db.close()
        whole = path.read_bytes()
        db = sqlite3.connect(path, isolation_level=None)
        db.execute("drop table CUPTI_ACTIVITY_KIND_GRAPH_TRACE")
        db.execute("vacuum")
        db.close()
        return (whole, path.read_bytes())


@cache
def counters() -> Sequence[bytes]:
    """Nsight Compute's raw page and its details page."""
    metrics = ("sm__inst_executed_pipe_tensor_op_hmma.sum", "sm__inst_executed_pipe_tensor.sum",
               "sm__ops_path_tensor_src_bf16_dst_fp32.sum")  # fmt: skip
    names = (
        "ampere_fp16_s16816gemm_fp16_64x64_nn",
        "void cutlass::Kernel<float>(T1, T2)",
        "elementwise_kernel",
        "sgemm_32x32",
    )
    raw = [
        "==PROF== Connected to process 7",
        ",".join(f'"{c}"' for c in ("ID", "Kernel Name", "CC", *metrics)),
        '"","","","inst","inst","inst"',
    ]
    details = ['"ID","Kernel Name","CC","Section Name","Metric Name","Metric Unit","Metric Value"']
    for i, name in enumerate(names):
        raw.append(f'"{i}","{name}","8.0","{i * 1000:,}","{i}","{i * 7}"')
        details += [
            f'"{i}","{name}","9.0","Command line","{metric}","inst","{i * 1000:,}"' for metric in metrics
        ]
    return ("\n".join(raw).encode(), "\n".join(details).encode())


SAMPLE = SAMPLES / "v100-loss-scale-thrash" / "mpprof"


def _sample(name: str, lines: int) -> bytes:
    return b"".join((SAMPLE / name).read_bytes().splitlines(keepends=True)[:lines])


@cache
def runs() -> Sequence[bytes]:
    return ((SAMPLE / "run.json").read_bytes(),)


@cache
def steps() -> Sequence[bytes]:
    validation = (
        b'{"kind":"validation","t_ns":9000000000,"duration_ns":5000000}\n{"kind":"fit_end","reason":"done"}\n'
    )
    return (_sample("steps.jsonl", 24) + validation,)


@cache
def samples() -> Sequence[bytes]:
    more = b'{"t_ns":1,"gpu":0,"utilization_ratio":0.5,"throttle":["sw_power_cap"],"rss_bytes":1,"power_w":"NaN"}\n'
    return (_sample("hardware.jsonl", 8) + more,)


@cache
def verdicts() -> Sequence[bytes]:
    """counters.json, as `mpprof counters --run` keeps it."""
    reason = {"code": "counter-tensor", "text": "verified by hardware counters"}
    rows = [
        {"name": f"kernel_{i}", "card": "Tesla V100", "placement": "tensor_core", "precision": "fp16", "accumulate": "fp32",
         "family": "gemm", "reason": reason}
        for i in range(4)
    ]  # fmt: skip
    return (json.dumps({"schema": "mpprof.counters/1", "kernels": rows}).encode(),)


@cache
def snapshots() -> tuple[bytes, ...]:
    """Memory snapshots of PyTorch: with history and stacks, without either, the list of segments of old versions."""
    made = [torch_memory.training(**options) for options in ({}, {"history": False}, {"stacks": False})]
    made[0].out_of_memory(1 << 30, 1 << 20)
    old = [{**one, "blocks": [{"size": 512, "state": "active_allocated", "history": [
        {"addr": one["address"], "real_size": 500, "frames": torch_memory.FORWARD}]}]} for one in made[1].found()["segments"]]  # fmt: skip
    return *(pickle.dumps(one.found(), protocol=4) for one in made), pickle.dumps(old, protocol=2)
