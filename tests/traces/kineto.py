"""Writes a small Kineto trace by hand, laid out as torch 2.x does: *synthetic*, never compared with a real run."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HOST, DEVICE = 100, 0
MAIN, BACKWARD = 100, 101


@dataclass
class Kineto:
    """Times in microseconds; `launch` puts a call and its kernel down, joined by correlation."""

    base_ns: int | None = 1_700_000_000_000_000_000
    events: list[dict[str, Any]] = field(default_factory=list)
    header: dict[str, Any] = field(default_factory=dict)
    _correlation: int = 0

    def host(self, cat: str, name: str, ts: float, dur: float, tid: int = MAIN, **args: Any) -> None:
        self.events.append(
            {"ph": "X", "cat": cat, "name": name, "pid": HOST, "tid": tid, "ts": ts, "dur": dur, "args": args}
        )

    def op(self, name: str, ts: float, dur: float, tid: int = MAIN, **args: Any) -> None:
        self.host("cpu_op", name, ts, dur, tid, **args)

    def module(self, name: str, ts: float, dur: float) -> None:
        self.host("python_function", f"nn.Module: {name}", ts, dur)

    def launch(self, name: str, ts: float, start: float, dur: float, tid: int = MAIN, **args: Any) -> None:
        self._correlation += 1
        kind = args.pop("cat", "kernel")
        call = {"kernel": "cudaLaunchKernel", "gpu_memcpy": "cudaMemcpyAsync"}.get(kind, "cudaMemsetAsync")
        self.host("cuda_runtime", call, ts, 1, tid, correlation=self._correlation)
        self.work(name, start, dur, cat=kind, correlation=self._correlation, **args)

    def work(self, name: str, start: float, dur: float, cat: str = "kernel", **args: Any) -> None:
        stream = args.pop("stream", 7)
        self.events.append(
            {
                "ph": "X", "cat": cat, "name": name, "pid": DEVICE, "tid": stream, "ts": start, "dur": dur,
                "args": {"device": DEVICE, "stream": stream, **args},
            }
        )  # fmt: skip

    def memory(self, ts: float, address: int, size: int, total: int, *, device: int = 0) -> None:
        args = {
            "Addr": address, "Bytes": size, "Total Allocated": total, "Total Reserved": 1 << 20,
            "Device Id": device, "Device Type": 1 if device >= 0 else 0,
        }  # fmt: skip
        self.events.append(
            {
                "ph": "i",
                "cat": "cpu_instant_event",
                "name": "[memory]",
                "pid": HOST,
                "tid": MAIN,
                "ts": ts,
                "args": args,
            }
        )

    def document(self) -> dict[str, Any]:
        card = {
            "id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85018279936, "computeMajor": 9,
            "computeMinor": 0, "numSms": 132,
        }  # fmt: skip
        found = {"schemaVersion": 1, "deviceProperties": [card], **self.header, "traceEvents": self.events}
        return found if self.base_ns is None else {**found, "baseTimeNanoseconds": self.base_ns}

    def text(self) -> bytes:
        return json.dumps(self.document(), indent=1).encode()

    def write(self, path: Path) -> Path:
        path.write_bytes(gzip.compress(self.text()) if path.suffix == ".gz" else self.text())
        return path


def small() -> Kineto:
    """Two steps: a linear layer forward, its gradient on the autograd thread, the optimizer, a copy."""
    k = Kineto()
    for step in range(3):
        at = 1000.0 * step
        k.host("user_annotation", f"ProfilerStep#{step + 4}", at, 990)
        k.module("Net_0", at + 5, 300)
        k.module("Linear_0", at + 10, 100)
        shapes = {"Input Dims": [[32, 64], [64, 16], []], "Input type": ["c10::Half", "c10::Half", "Scalar"]}
        k.op("aten::linear", at + 12, 90)
        k.op("aten::addmm", at + 14, 60, **shapes, **{"Sequence number": 7 + step, "Fwd thread id": 0})
        k.launch("ampere_fp16_s16816gemm_fp16_128x64_ldg8_f2f_stages_64x3_nn", at + 20, at + 40.5, 10.125,
                 grid=[4, 1, 1], block=[128, 1, 1], **{"registers per thread": 90, "shared memory": 49152})  # fmt: skip
        k.memory(at + 50, 4096 + step, 2048, 10_000 + 2048)
        sequence = {"Sequence number": 7 + step, "Fwd thread id": 1}
        k.op("autograd::engine::evaluate_function: AddmmBackward0", at + 400, 90, BACKWARD, **sequence)
        k.op("AddmmBackward0", at + 405, 80, BACKWARD, **sequence)
        k.op("aten::mm", at + 410, 60, BACKWARD)
        k.launch("ampere_fp16_s16816gemm_fp16_64x64_nt", at + 420, at + 440, 12, BACKWARD)
        k.host("user_annotation", "Optimizer.step#Adam.step", at + 600, 100)
        k.op("aten::_foreach_add_", at + 610, 50)
        k.launch("multi_tensor_apply_kernel", at + 620, at + 640, 5)
        k.launch("Memcpy HtoD (Pinned -> Device)", at + 700, at + 710, 2, cat="gpu_memcpy", bytes=4096)
    return k
