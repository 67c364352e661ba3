"""Traces of several devices."""

from __future__ import annotations

from tests.builders.trace import TraceBuilder


def two() -> TraceBuilder:
    """Nothing in it is a step: the window alone can be accounted for. The second device is the busier one."""
    b = TraceBuilder(planes=("/device:GPU:0", "/device:GPU:1"))
    b.kernel("other", 0, 10, launch=None)
    b.kernel(
        "fast",
        20,
        50,
        device=1,
        stream=1,
        family="gemm",
        placement="tensor_core",
        precision="fp16",
        launch=None,
    )
    b.kernel("slow", 60, 70, device=1, stream=1, family="gemm", placement="cuda_core", launch=None)
    b.kernel("what", 90, 100, device=1, stream=1, placement="unknown", launch=None)
    return b
