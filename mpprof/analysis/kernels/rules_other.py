"""Rules for Google's matrix units, for communication and for copies."""

from __future__ import annotations

import re

from mpprof.analysis.kernels.name_parts import Card, Name, operands
from mpprof.analysis.kernels.rule import Rule, Said, always


def _mxu(name: Name, match: re.Match[str], card: Card) -> Said | None:
    if card.vendor != "google":
        return None
    return Said("matrix_core", operands(name.types()), "gemm" if "dot" in match.group() else "conv_fprop")


_COPY = always("not_matmul", "unknown", "copy")
_MEMSET = always("not_matmul", "unknown", "memset")

MATRIX_RULES: tuple[Rule, ...] = (
    Rule(
        "mxu", r"^%?(?:convolution|dot)(?:[._][\w.]*)?$", _mxu, "on a TPU convolutions and dots run on the matrix unit (MXU)",
        "openxla/xla, Google Cloud TPU system architecture", "TPU v2 and later", "", whole=False,
    ),
)  # fmt: skip

_HLO = r"^%?(?:[\w.-]+ = .*? )?"
"""XLA on a TPU writes the whole instruction: `%copy-done.2 = f32[8]{0} copy-done((f32[8]{0}, u32[]) %copy-start.2)`."""
_ENDS = r"(?:\.\d+)*(?:\(|$)"

MOVE_RULES: tuple[Rule, ...] = (
    Rule(
        "hlo-collective",
        r"^(?!.*is_host_transfer=true)%?(?:[\w.-]+ = .*? )?(?:(?:ragged-)?all-(?:reduce|gather|to-all)|reduce-scatter|collective-(?:permute|broadcast)|send|recv)(?:-start|-done)?" + _ENDS
        + r"|^%?[\w.-]*(?:all-(?:reduce|gather|to-all)|reduce-scatter|collective-)[\w.-]* = .*? async-(?:start|update|done)\(",
        always("not_matmul", "unknown", "comm"), "communication between devices, or (-done) the wait for its start half", "openxla/xla HLO opcodes", "all",
        "%all-reduce-done.1 = f32[1024]{0} all-reduce-done(f32[1024]{0} %all-reduce-start.1)",
    ),
    Rule(
        "hlo-copy", _HLO + r"(?:copy|(?:dynamic-)?(?:update-)?slice|async|send|recv)-(?:start|update|done)" + _ENDS,
        _COPY, "a copy beside other work, or (-done) the wait for its start half", "openxla/xla HLO opcodes", "all",
        "%copy-done.2 = f32[1024]{0:T(8,128)} copy-done((f32[1024]{0:T(8,128)}, f32[1024]{0:T(8,128)S(5)}, u32[]) %copy-start.2)",
    ),
    Rule(
        "nccl", r"\b[nr]ccl(?:dev)?kernel\w*|\b[nr]ccl\w*(?:allreduce|allgather|reducescatter|broadcast|sendrecv|alltoall|reduce)\w*|\bmscclkernel\w*|oneccl\w*",
        always("not_matmul", "unknown", "comm"), "a collective of NCCL or RCCL", "NVIDIA/nccl src/device", "all",
        "ncclDevKernel_AllReduce_Sum_f16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
        whole=False,
    ),
    Rule(
        "collective", r"multimem_\w*|\b(?:one|two)_?shot_all_?reduce\w*|cross_device_reduce\w*|\bnvshmem(?!\w*gemm)\w*|\buserbuffers_\w*|\bsymmetric_memory::(?:\w+::)*(?:barrier|put_signal|wait_signal)_kernel|(?:lamport|trtllm)_?\w*all_?reduce\w*|\ball_?reduce_\w*|all_?gather\w*kernel|reduce_?scatter\w*kernel|all_?to_?all\w*$|allreduce\w*kernel\w*",
        always("not_matmul", "unknown", "comm"), "communication between devices", "pytorch/pytorch symm_mem; deepseek-ai/DeepEP; vllm-project/vllm",
        "all", "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*)",
        whole=False,
    ),
    Rule(
        "expert-parallel", r"\b(?:cached_)?notify_(?:dispatch|combine)\b|\b(?:intranode|internode(?:_ll)?|low_latency|\w*_ep|ep|pplx)::(?:\w+::)*(?:hybrid_)?(?:cached_notify|dispatch|combine)\w*|\bdeep_ep::(?:\w+::)*(?:barrier|clean_\w+|pp_(?:send|recv)_impl|engram_fetch\w*)|(?<![a-z])ep(?:dispatch|combine)(?!quantize)\w*|\bmoea2a(?:prepare)?(?:dispatch|combine)kernel",
        always("not_matmul", "unknown", "comm"), "sends tokens to the devices of their experts, or their results back", "deepseek-ai/DeepEP csrc/kernels; ROCm/mori src/ops/dispatch_combine; flashinfer-ai/flashinfer moeAlltoAllKernels.cu",
        "Hopper and later; gfx942 and later", "void deep_ep::intranode::dispatch<8, 768, 8192>(int4*, float*, int*)", whole=False,
    ),
    Rule(
        "memcpy", r"^\[?(?:cuda |hip )?memcpy|^memcpy\w*|^copy(?:devicetodevice|hosttodevice|devicetohost)|__amd_rocclr_copy\w*|^memcpy32_post|^hipmemcpy\w*|^infeed|^outfeed|^d2d|^h2d|^d2h",
        _COPY, "a copy", "CUPTI and ROCm activity names", "all", "Memcpy HtoD (Pinned -> Device)", whole=False,
    ),
    Rule(
        "memset", r"^\[?(?:cuda |hip )?memset|__amd_rocclr_fill\w*|^memset\w*|^fillbuffer\w*", _MEMSET, "a memset",
        "CUPTI and ROCm activity names", "all", "Memset (Device)", whole=False,
    ),
)  # fmt: skip
