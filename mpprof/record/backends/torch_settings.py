"""What torch says of itself: versions, the switches that decide how it computes, and its GPUs."""

from __future__ import annotations

import os
from typing import Any

import torch

from mpprof.record.backends.base import Absent, Facts


def framework() -> Facts:
    """Return run.json's `framework`. The switches of TF32 stand here one by one: torch has two."""
    return {
        "backend_version": torch.__version__,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": _cudnn(),
        "matmul_precision": _ask(torch.get_float32_matmul_precision),
        "tf32_matmul": _tf32_in_products(),
        "tf32_cudnn": _tf32_in_cudnn(),
        "cudnn_benchmark": bool(torch.backends.cudnn.benchmark),
        "cudnn_deterministic": bool(torch.backends.cudnn.deterministic),
        "autocast": _autocast(),
    }


def settings() -> Facts:
    """Return `tf32_enabled`, `deterministic_ops`, `graph_rewrite`."""
    return {
        "tf32_enabled": _tf32(),
        "deterministic_ops": bool(torch.are_deterministic_algorithms_enabled()),
        "graph_rewrite": False,
    }


def gpu(properties: Any) -> Facts:
    """Return an entry of run.json's `devices`."""
    facts: Facts = {
        "kind": "gpu",
        "name": properties.name,
        "memory_bytes": properties.total_memory,
        "sm_count": properties.multi_processor_count,
    }
    if torch.version.hip:  # `major` and `minor` are of a gfx number there, no compute capability
        return {**facts, "vendor": "amd"}
    return {**facts, "compute_capability": [properties.major, properties.minor]}


def _tf32() -> bool | Absent:
    products, cudnn = _tf32_in_products(), _tf32_in_cudnn()
    if products is None or cudnn is None:
        return Absent("this version of torch does not state it")
    if products == cudnn:
        return products
    allowed, other = ("matrix products", "cuDNN") if products else ("cuDNN's convolutions", "matrix products")
    return Absent(f"torch has two switches: TF32 is allowed for {allowed}, not for {other}")


def _tf32_in_products() -> bool | None:
    if _forbidden():
        return False
    backend = torch.backends.cuda.matmul
    if hasattr(backend, "fp32_precision"):  # since torch 2.9; the older switch raises where this one was used
        return bool(backend.fp32_precision == "tf32")
    allowed: bool | None = _ask(lambda: bool(backend.allow_tf32))
    return allowed


def _tf32_in_cudnn() -> bool | None:
    if _forbidden():
        return False
    convolutions: Any = getattr(torch.backends.cudnn, "conv", None)
    if hasattr(convolutions, "fp32_precision"):
        return bool(convolutions.fp32_precision == "tf32")
    allowed: bool | None = _ask(lambda: bool(torch.backends.cudnn.allow_tf32))
    return allowed


def _forbidden() -> bool:
    """Return whether NVIDIA's variable forbids TF32: NVIDIA's libraries obey it above all that a framework
    asks for."""
    return os.environ.get("NVIDIA_TF32_OVERRIDE") == "0"


def _cudnn() -> str | None:
    version = torch.backends.cudnn.version() if torch.cuda.is_available() else None
    return None if version is None else str(version)


def _autocast() -> str | None:
    """Return which types `torch.autocast` casts to on which device, where the training runs within it."""
    devices = ("cuda", "cpu")
    on = [device for device in devices if _ask(lambda device=device: torch.is_autocast_enabled(device))]
    types = [f"{device} {str(torch.get_autocast_dtype(device)).removeprefix('torch.')}" for device in on]
    return ", ".join(types) or None


def _ask(question: Any) -> Any:
    """Return the answer; None where this torch has none, or refuses it because two generations of its
    switches were used side by side."""
    try:
        return question()
    except (AttributeError, RuntimeError, TypeError):
        return None
