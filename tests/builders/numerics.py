"""How a made-up model computes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Numerics:
    """How the model computes: `storage` of activations (float32, half, bfloat16), `matrix` the precision that
    matrix kernels really run in (fp32, tf32, fp16, bf16, fp8, fp16_cuda)."""

    storage: str
    matrix: str
    loss_scaling: bool

    @property
    def size(self) -> int:
        return 4 if self.storage == "float" else 2

    @property
    def mixed(self) -> bool:
        return self.storage != "float"


FLOAT32 = Numerics("float", "fp32", False)
TF32 = Numerics("float", "tf32", False)
MIXED_FLOAT16 = Numerics("half", "fp16", True)
MIXED_BFLOAT16 = Numerics("bfloat16", "bf16", False)
FLOAT8 = Numerics("bfloat16", "fp8", False)

KERAS_DTYPE = {"float": "float32", "half": "float16", "bfloat16": "bfloat16"}
