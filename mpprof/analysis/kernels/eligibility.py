"""Could this op have run on Tensor Cores, and if it did not, why not? Per op, from its types and shapes.

The multiples are those of NVIDIA's deep learning performance guide ("Matrix Multiplication Background",
"Convolutional Layers", Tensor Core requirements): operands of 16 bytes up to Volta and Turing (8 fp16 values,
16 int8), of 128 bytes for full efficiency on A100 (64 fp16, 32 TF32, 128 int8). Since cuBLAS 11 and
cuDNN 7.6.3 they are needed for efficiency only, not for use.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Literal

from mpprof.analysis.kernels.op_types import family_of
from mpprof.model.frozen import frozen
from mpprof.model.kernels import MATMUL_FAMILIES, Family, Precision
from mpprof.model.trace import HloInstruction

Answer = Literal["did", "could", "could_never", "unknown"]

_DTYPES: dict[str, Precision] = {
    "half": "fp16", "float16": "fp16", "f16": "fp16", "c10::half": "fp16", "fp16": "fp16",
    "bfloat16": "bf16", "bf16": "bf16", "c10::bfloat16": "bf16",
    "float": "fp32", "float32": "fp32", "f32": "fp32", "fp32": "fp32",
    "double": "fp64", "float64": "fp64", "f64": "fp64",
    "tf32": "tf32",
    "int8": "int8", "s8": "int8", "u8": "int8", "uint8": "int8", "qint8": "int8", "signed char": "int8",
    "f8e4m3fn": "fp8", "f8e5m2": "fp8", "f8e4m3": "fp8", "f8e4m3fnuz": "fp8", "f8e5m2fnuz": "fp8",
    "float8_e4m3fn": "fp8", "float8_e5m2": "fp8", "c10::float8_e4m3fn": "fp8", "c10::float8_e5m2": "fp8",
    "f4e2m1fn": "fp4",
}  # fmt: skip


@lru_cache
def precision_of(dtype: str) -> Precision:
    """Return the precision that a dtype name stands for ("half", "f16", "DT_HALF"); "unknown": none of
    them."""
    return _DTYPES.get(dtype.lower().removeprefix("dt_"), "unknown")


@frozen
class Tensor:
    """A tensor as a trace states it: dtype in the file's spelling, dimensions (-1: not stated)."""

    dtype: str
    dims: tuple[int, ...]


_TENSOR = re.compile(r"([A-Za-z_][\w:]*)\[([0-9,? \-]*)\]")
_MOST = 64
_ADDING = ("aten::addmm", "aten::baddbmm", "aten::addbmm", "aten::_addmm_activation")
_BY_EQUATION = ("Einsum", "XlaEinsum", "aten::einsum")
"""Their equation says which axes are summed over, and no event states it."""


@lru_cache(maxsize=65536)
def parse_shapes(text: str) -> tuple[Tensor, ...]:
    """Return the tensors of a `tensor_shapes` stat ("(half[32,128];half[128,64])", "(f32[2]{0}, s32[])").

    Unknown notations give no tensors; at most 64 are read. A dimension that is no number is -1.
    """
    found = []
    for match in _TENSOR.finditer(text[:65536]):
        dims = tuple(_dimension(part) for part in match.group(2).split(",") if part.strip())
        found.append(Tensor(match.group(1), dims))
        if len(found) == _MOST:
            break
    return tuple(found)


def _dimension(text: str) -> int:
    text = text.strip()
    return int(text) if text.isdigit() and len(text) <= 15 else -1


@frozen
class Product:
    """A matrix product in the terms of Tensor Cores. M, N, K per group and batch; -1: not known.

    For a convolution K is the input channels times the filter's area, N the output channels, M the rest;
    `channels` are (input, output) channels per group, which the alignment is about.
    """

    family: Family
    precision: Precision
    m: int = -1
    n: int = -1
    k: int = -1
    channels: tuple[int, int] | None = None
    groups: int = 1
    spatial_dims: int = 0  # 3 for a 3-D convolution, 0 for a matrix product
    layout: str = ""  # "NHWC", "NCHW", "" not known
    compute_dtype: str = ""  # of the layer's policy, where known


@frozen
class Eligibility:
    """Whether an op's product did, could or could never run on matrix units.

    `conditions` say what would have to change, for "could"; `reasons` why not (or why not fully). Each is
    (code, sentence); codes: dtype, card, shape, layout, algorithm, depthwise, grouped, conv3d, policy.
    """

    answer: Answer
    reasons: tuple[tuple[str, str], ...] = ()
    conditions: tuple[tuple[str, str], ...] = ()


_SINCE: dict[Precision, tuple[int, int]] = {
    "fp16": (7, 0), "int8": (7, 2), "bf16": (8, 0), "tf32": (8, 0), "fp64": (8, 0), "fp8": (8, 9),
    "fp4": (10, 0),
}  # fmt: skip
"""Compute capability since which Tensor Cores multiply a type (PTX ISA, mma, wgmma, tcgen05; 8.6 and 8.9 have
fp64 units for compatibility only)."""


def multiplies(precision: Precision, capability: tuple[int, int] | None) -> bool:
    """Return whether Tensor Cores of this capability (None: of any) multiply operands of this precision."""
    since = _SINCE.get(precision)
    return since is not None and (capability is None or capability >= since)


_ROWS: dict[Precision, tuple[int, int]] = {
    "fp16": (8, 64), "bf16": (8, 64), "tf32": (4, 32), "int8": (16, 128), "fp8": (16, 128), "fp64": (2, 16),
    "fp4": (32, 256),
}  # fmt: skip
"""Multiples of M, N, K by operand type: for 16-byte rows, and for full efficiency on A100 and later."""


def multiple(precision: Precision, capability: tuple[int, int] | None, *, full: bool = False) -> int:
    """Return the multiple that M, N, K (or channels) should have; with `full`, for full efficiency from A100
    on.

    1 for types that Tensor Cores do not multiply.
    """
    least, best = _ROWS.get(precision, (1, 1))
    return best if full and capability is not None and capability >= (8, 0) else least


def judge(
    product: Product,
    *,
    capability: tuple[int, int] | None,
    tensor_cores: bool | None,
    ran_on_matrix_units: bool | None = None,
    tf32_enabled: bool | None = None,
) -> Eligibility:
    """Return whether the product did, could or could never use Tensor Cores of this card, and what it depends
    on.

    `ran_on_matrix_units` is what the kernels say (None: not known). For "did", `reasons` still name what
    costs efficiency. Pure; `answer` is "unknown" only where neither the card nor the type is known.
    """
    shape = _shape_reasons(product, capability)
    if ran_on_matrix_units:
        return Eligibility("did", shape)
    never = _never(product, capability, tensor_cores)
    if never:
        return Eligibility("could_never", never)
    conditions = [*_type_conditions(product, capability, tf32_enabled), *shape, *_kind_conditions(product)]
    if product.precision == "unknown" or tensor_cores is None:
        return Eligibility(
            "unknown", (("dtype", "the operands' type or the card is not known"),), tuple(conditions)
        )
    if not conditions:
        conditions.append(("algorithm", "the library chose another algorithm: type and shape are eligible"))
    return Eligibility("could", tuple(conditions), tuple(conditions))


def _never(
    product: Product, capability: tuple[int, int] | None, tensor_cores: bool | None
) -> tuple[tuple[str, str], ...]:
    if tensor_cores is False:
        return (("card", "this card has no Tensor Cores"),)
    if product.family == "depthwise":
        return (
            (
                "depthwise",
                "a depthwise convolution has one channel per group: no product to put on Tensor Cores",
            ),
        )
    if product.channels is None and 1 in (product.m, product.n):  # of a convolution n is its channels
        return (("shape", "a matrix-vector product: libraries compute it with ordinary arithmetic"),)
    if product.precision == "fp64" and capability is not None and capability not in ((8, 0), (9, 0), (10, 0)):
        return (("dtype", "float64: this card's Tensor Cores do not multiply it"),)
    return ()


def _type_conditions(
    product: Product, capability: tuple[int, int] | None, tf32_enabled: bool | None
) -> list[tuple[str, str]]:
    precision = product.precision
    found: list[tuple[str, str]] = []
    if precision == "fp32":
        if product.compute_dtype in ("float16", "bfloat16"):
            found.append(
                (
                    "policy",
                    f"the layer's policy computes in {product.compute_dtype}, but its operands are float32",
                )
            )
        else:
            found.append(("policy", "the operands are float32: give the layer a mixed policy"))
        if capability is None or capability >= (8, 0):
            off = "is off" if tf32_enabled is False else "may be off"
            found.append(("dtype", f"float32 runs on Tensor Cores as TF32 only, which {off}"))
    since = _SINCE.get(precision)
    if since is not None and capability is not None and capability < since:
        wanted = "float16" if capability >= (7, 0) else "no 16-bit type"
        found.append(
            (
                "dtype",
                f"{precision} needs compute capability {since[0]}.{since[1]}; this card multiplies {wanted}",
            )
        )
    return found


def _shape_reasons(product: Product, capability: tuple[int, int] | None) -> tuple[tuple[str, str], ...]:
    """Return the dimensions that are not multiples of what the operand type wants, as reasons."""
    precision = product.precision
    if precision == "fp32":  # as what it could be multiplied: TF32, or fp16 where there is none
        precision = "tf32" if capability is None or multiplies("tf32", capability) else "fp16"
    least = multiple(precision, capability)
    if least == 1:
        return ()
    if product.channels is not None:
        named = (("input channels", product.channels[0]), ("output channels", product.channels[1]))
    else:
        named = (("M", product.m), ("N", product.n), ("K", product.k))  # type: ignore[assignment]
    return tuple(
        ("shape", f"{name} = {size} is not a multiple of {least} ({precision})")
        for name, size in named
        if size > 0 and size % least
    )


def _kind_conditions(product: Product) -> list[tuple[str, str]]:
    found: list[tuple[str, str]] = []
    if product.groups > 1 and product.family != "depthwise":
        found.append(
            (
                "grouped",
                f"{product.groups} groups: only some algorithms for grouped convolutions use Tensor Cores",
            )
        )
    if product.spatial_dims == 3:
        found.append(
            ("conv3d", "a 3-D convolution: Tensor Core algorithms need cuDNN 7.6.2 or later and NDHWC layout")
        )
    if product.layout in ("NCHW", "NCDHW"):
        found.append(
            ("layout", "channels first: Tensor Core kernels want channels last, else layouts are converted")
        )
    return found


# Products from what traces state ---------------------------------------------------------------------------


def product_of_shapes(op_type: str, tensors: Sequence[Tensor], family: Family) -> Product | None:
    """Return the product of an op from its inputs' shapes; None: not a matrix op, or shapes are missing.

    Transposition is not recorded: K is the size that both operands share (for square operands M, N and K are
    equal anyway). Convolutions are read as NHWC inputs with HWIO filters, Keras' default.
    """
    operands = operands_of(op_type, tensors)
    if len(operands) < 2:
        return None
    first, second = operands
    precision = _operand_precision(first.dtype, second.dtype)
    if family == "gemm" and len(first.dims) >= 2 and len(second.dims) >= 2:
        by_equation = op_type in _BY_EQUATION
        m, n, k = (-1, -1, -1) if by_equation else _contraction(first.dims[-2:], second.dims[-2:])
        return Product(family, precision, m, n, k)
    if family in ("conv_fprop", "conv_dgrad", "conv_wgrad", "depthwise"):
        if "backward" in op_type:  # PyTorch: one op for both gradients, its operands in another order
            return None
        matrices = [tensor for tensor in tensors if len(tensor.dims) >= 2]
        return _convolution(family, precision, matrices, channels_first=op_type.startswith("aten::"))
    return None


def operands_of(op_type: str, tensors: Sequence[Tensor]) -> tuple[Tensor, ...]:
    """Return the two operands of a product among an op's inputs; fewer where they are not stated. Vectors and
    scalars are not operands. PyTorch's addmm and baddbmm state the tensor that they add first; it is not an
    operand either. An op of a type that is no product may launch products of anything: a compiled function
    (`CompiledFunction`) or a mixture of experts (`vllm::moe_forward`) states its own inputs."""
    if op_type and family_of(op_type) not in MATMUL_FAMILIES:
        return ()
    matrices = [tensor for tensor in tensors if len(tensor.dims) >= 2]
    return tuple(matrices[-2:] if op_type in _ADDING else matrices[:2])


def batches_of(operands: Sequence[Tensor]) -> int:
    """Return how many products of two matrices these are: an operand without batch axes is used for all of
    the other's."""
    return max(math.prod(tensor.dims[:-2]) for tensor in operands)


def inner_sizes(op_type: str, operands: Sequence[Tensor]) -> tuple[int, ...]:
    """Return the sizes that two operands may have been multiplied over; several where an event does not say
    which of them are transposed. PyTorch states operands as it multiplies them. Empty: none fits, or not two
    matrices."""
    if len(operands) < 2 or op_type in _BY_EQUATION:
        return ()
    (a, b), (c, d) = operands[0].dims[-2:], operands[1].dims[-2:]
    fits = dict.fromkeys(k for k, other in ((b, c), (b, d), (a, c), (a, d)) if k == other and k > 0)
    return tuple(fits)[: 1 if op_type.startswith("aten::") else None]


def _operand_precision(first: str, second: str) -> Precision:
    a, b = precision_of(first), precision_of(second)
    return a if a == b or b == "unknown" else ("mixed" if a != "unknown" else b)


def _contraction(a: Sequence[int], b: Sequence[int]) -> tuple[int, int, int]:
    """Return (M, N, K) of two matrices of unknown transposition; -1s where no size is shared."""
    for (m, k), (k2, n) in (
        ((a[0], a[1]), (b[0], b[1])),
        ((a[0], a[1]), (b[1], b[0])),
        ((a[1], a[0]), (b[0], b[1])),
        ((a[1], a[0]), (b[1], b[0])),
    ):
        if k == k2:
            return m, n, k
    return -1, -1, -1


def _convolution(
    family: Family, precision: Precision, tensors: Sequence[Tensor], *, channels_first: bool = False
) -> Product | None:
    filters = [tensor for tensor in tensors if len(tensor.dims) in (4, 5)]
    if len(filters) < 2:
        return None
    spatial = len(filters[0].dims) - 2
    data, other = filters[0].dims, filters[1].dims
    if channels_first:  # PyTorch: images N, C, H, W whatever their memory format, filters O, I, H, W
        return Product(
            family, precision, n=other[0], channels=(other[1], other[0]), spatial_dims=spatial,
            groups=data[1] // other[1] if other[1] > 0 and data[1] > other[1] else 1,
        )  # fmt: skip
    if family == "conv_wgrad":  # input and gradient of the output
        channels = (data[-1], other[-1])
        return Product(family, precision, channels=channels, n=channels[1], spatial_dims=spatial)
    kernel, image = (data, other) if family == "conv_dgrad" else (other, data)
    channels = (kernel[-2], kernel[-1])
    area = 1
    for size in kernel[:spatial]:
        area *= size
    groups = (
        image[-1] // kernel[-2] if family == "conv_fprop" and kernel[-2] > 0 and image[-1] > kernel[-2] else 1
    )
    k = area * channels[0] if area > 0 and channels[0] > 0 else -1
    return Product(
        family, precision, n=channels[1], k=k, channels=channels, groups=groups, spatial_dims=spatial
    )


def product_of_hlo(hlo: HloInstruction) -> Product | None:
    """Return the product of an HLO dot or of a call of a library, from its operands' shapes; None: neither,
    or shapes are missing.

    M, N, K are per batch: for a plain dot M·K, K·N and M·N are the operands' and the result's sizes.
    """
    product = hlo.opcode == "dot" or "gemm" in hlo.custom_call or "matmul" in hlo.custom_call
    if not product or len(hlo.operand_shapes) < 2 or len(hlo.operand_dtypes) < 2:
        return None
    precision = _operand_precision(*hlo.operand_dtypes[:2])
    a, b = hlo.operand_shapes[0], hlo.operand_shapes[1]
    if len(a) < 2 or len(b) < 2:
        return Product("gemm", precision, m=1)
    m, n, k = _contraction(a[-2:], b[-2:])
    return Product("gemm", precision, m, n, k)
