"""Memory snapshots as PyTorch writes them: an allocator that keeps book of its blocks, and the stacks of a step."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

MIB = 1 << 20
_TORCH = "/opt/venv/lib/python3.12/site-packages/torch"
Frames = list[dict[str, Any]]


def frames(*places: str) -> Frames:
    """Frames from "file:line name", innermost first."""
    return [
        {"filename": file, "line": int(line), "name": name}
        for file, line, name in (
            (*place.partition(" ")[0].rsplit(":", 1), place.partition(" ")[2]) for place in places
        )
    ]


STEP = "/home/me/train.py:40 train_step"
TO_DEVICE = frames(
    f"{_TORCH}/nn/modules/module.py:1360 convert",
    f"{_TORCH}/nn/modules/module.py:957 _apply",
    "/home/me/train.py:12 main",
)
BATCH = frames("/home/me/train.py:38 train_step", "/home/me/train.py:60 main")
FORWARD = frames(
    "??:0 at::_ops::addmm::call(at::Tensor const&)", "/opt/venv/lib/python3.12/site-packages/einops/_backends.py:288 einsum",
    f"{_TORCH}/nn/modules/linear.py:134 forward", f"{_TORCH}/nn/modules/module.py:1784 _call_impl", "/home/me/model.py:37 forward",
    f"{_TORCH}/nn/modules/module.py:1784 _call_impl", STEP,
)  # fmt: skip
BACKWARD = frames(
    "??:0 torch::autograd::generated::AddmmBackward0::apply(std::vector<at::Tensor>&&)",
    "??:0 torch::autograd::Engine::evaluate_function(std::shared_ptr<torch::autograd::GraphTask>&)",
)
SLOTS = frames(f"{_TORCH}/optim/adam.py:195 _init_group", f"{_TORCH}/optim/optimizer.py:517 wrapper", STEP)
UPDATE = frames(
    f"{_TORCH}/optim/adam.py:547 _multi_tensor_adam", f"{_TORCH}/optim/optimizer.py:517 wrapper", STEP
)


class Snapshot:
    """One card's allocator. `granted`: sizes are rounded up to 512 bytes."""

    def __init__(self, *, history: bool = True, stacks: bool = True) -> None:
        self.history, self.stacks = history, stacks
        self.events: list[dict[str, Any]] = []
        self.blocks: dict[int, dict[str, Any]] = {}
        self.settings: dict[str, Any] = {"PYTORCH_CUDA_ALLOC_CONF": "", "max_split_size": -1}
        self._at, self._time_us = 0x7F00_0000_0000, 1_750_000_000_000_000

    def _event(self, action: str, address: int, size: int, stack: Frames, **more: Any) -> None:
        self._time_us += 10
        kept = {"frames": stack} if self.stacks else {"frames": []}
        if self.history:
            self.events.append({"action": action, "addr": address, "size": size, "stream": 0, "time_us": self._time_us,
                                "compile_context": "N/A", "user_metadata": "", **kept, **more})  # fmt: skip

    def alloc(self, size: int, stack: Frames) -> int:
        """A block of so many bytes; its address."""
        address, granted = self._at, -(-size // 512) * 512
        self._at += granted
        self._event("segment_alloc", address, granted, stack)
        self._event("alloc", address, size, stack)
        self.blocks[address] = {
            "address": address, "size": granted, "requested_size": size, "state": "active_allocated",
            "frames": stack if self.stacks else [],
        }  # fmt: skip
        return address

    def free(self, address: int) -> None:
        size = self.blocks[address]["requested_size"]
        self.blocks[address] = {**self.blocks[address], "state": "inactive", "frames": []}
        self._event("free_requested", address, size, [])
        self._event("free_completed", address, size, [])

    def out_of_memory(self, size: int, free: int) -> None:
        self._event("oom", 0, size, [])
        self.events[-1]["device_free"] = free

    def found(self) -> dict[str, Any]:
        """What `torch.cuda.memory._snapshot()` returns: here each block has a segment of its own."""
        segments = [
            {"device": 0, "address": block["address"], "total_size": block["size"], "stream": 0, "segment_type": "large",
             "segment_pool_id": (0, 0), "allocated_size": block["size"], "active_size": block["size"], "blocks": [block]}
            for block in self.blocks.values()
        ]  # fmt: skip
        return {"segments": segments, "device_traces": [self.events], "allocator_settings": self.settings,
                "external_annotations": []}  # fmt: skip

    def write(self, path: Path, *, protocol: int = 4) -> Path:
        path.write_bytes(pickle.dumps(self.found(), protocol=protocol))
        return path


def training(steps: int = 2, **options: bool) -> Snapshot:
    """Steps of a model of 8 MiB under Adam: 4 MiB of batch, twice 6 MiB of activations, of which one is kept for
    backward, and 8 MiB of gradients that are set to None after the update; 2 MiB for each update."""
    made = Snapshot(**options)
    made.alloc(8 * MIB, TO_DEVICE)
    for step in range(steps):
        batch = made.alloc(4 * MIB, BATCH)
        kept, passing = made.alloc(6 * MIB, FORWARD), made.alloc(6 * MIB, FORWARD)
        made.free(passing)
        gradients = made.alloc(8 * MIB, BACKWARD)
        made.free(kept)
        if step == 0:
            made.alloc(16 * MIB, SLOTS)
        made.free(made.alloc(2 * MIB, UPDATE))
        made.free(gradients)
        made.free(batch)
    return made
