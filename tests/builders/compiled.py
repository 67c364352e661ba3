"""What one training step asks of the GPU, as XLA compiled it for that card: `tests/forecasts/programs`.

The instructions, their order, names, metadata and op names are the compiled program's, and the trace carries its
HLO proto as it stands. Made up are the names of the libraries' kernels, which the card chooses, and all
durations: from bytes, operations and the rates in `gpus`.
"""

from __future__ import annotations

from mpprof.traces.common.hlo_program import Launch, launches
from tests.builders.gpus import Gpu, matrix_us, memory_us
from tests.builders.hlo import Instruction
from tests.builders.workloads import Model, Work
from tests.forecasts.make_programs import Case, stored

_MATRIX = {"f16": "fp16", "bf16": "bf16", "f32": "fp32"}
_CONV = {"BackwardInput": "conv_dgrad", "BackwardFilter": "conv_wgrad", "Forward": "conv_fprop"}


def step(case: Case, gpu: Gpu) -> Model:
    """The step of a stored case, with the libraries' matrix products where both were compiled."""
    compiled = stored(case)
    which = "library" if "library" in compiled.programs else "own"
    proto = compiled.programs[which]
    facts = compiled.result["model"]
    (shape, dtype), *_ = compiled.result["inputs"]
    size = {"float32": 4, "int32": 4, "float16": 2}[dtype]
    for extent in shape:
        size *= extent
    works = tuple(_work(one, gpu) for one in launches(proto))
    return Model(
        works, tuple(facts["layers"]), facts["parameters"], case.batch_size, size,
        module="jit_train_step", proto=proto,
    )  # fmt: skip


def _work(one: Launch, gpu: Gpu) -> Work:
    hlo, moved = one.hlo, one.read_bytes + one.written_bytes
    made = Instruction(hlo.name, hlo.opcode, (hlo.dtype, hlo.shape), op_name=hlo.op_name)
    family = next((kind for word, kind in _CONV.items() if f"$conv{word}" in hlo.custom_call), "")
    if "$convBiasActivation" in hlo.custom_call:
        family = "conv_fprop"
    elif "cublas" in hlo.custom_call:
        family = "gemm"
    if not family:
        kernel = hlo.name.replace(".", "_") if hlo.opcode == "fusion" else hlo.name
        return Work(kernel, hlo.op_name, "", memory_us(gpu, moved), hlo=made)
    precision = _MATRIX[hlo.operand_dtypes[0]]
    us = matrix_us(gpu, precision, one.flops or 0.0, moved)
    return Work(gpu.names[family, precision], hlo.op_name, "", us, hlo=made)
