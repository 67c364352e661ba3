"""The products whose kernels `counter_truth` counts, and how each framework computes them.

Types, sizes on and off the multiples that Tensor Cores like, depthwise, grouped and 3-D convolutions, attention
and recurrent layers; and work without products, which must not be called Tensor Core work.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

FRAMEWORKS = ("torch", "jax", "cupy")
SIZES = (*range(1, 17), 63, 64, 100, 1000, 4096)
"""Of K and of N, on both sides of every multiple that matters."""
WIDE = ("float32", "tf32", "float16", "bfloat16", "float64")
SHAPES = ((1, 4096, 4096), (16, 1024, 1024), (512, 512, 512), (4096, 4096, 4096), (8192, 1000, 2048))
TASKS = (
    "layer_norm",
    "softmax",
    "gelu",
    "cast",
    "transpose",
    "sum",
    "dropout",
    "embedding",
    "adam",
    "max_pool",
)


@dataclass(frozen=True, slots=True)
class Case:
    """One piece of work. `dims`: M, N, K; or batch, channels in, channels out, filter, spatial size; or batch,
    heads, length, width; or rows, columns. "tf32" is float32 with TF32 allowed, "float32" without."""

    framework: str
    kind: str
    dtype: str
    dims: tuple[int, ...]
    batch: int = 0  # of a batched product
    spatial: int = 2
    groups: int = 1  # 0: as many as channels (depthwise)
    channels_last: bool = True

    @property
    def name(self) -> str:
        extra = {"b": self.batch, "d": self.spatial if self.spatial != 2 else 0}
        extra |= {"g": self.groups if self.groups > 1 else 0, "nchw": 0 if self.channels_last else 1}
        parts = [self.framework, self.kind + ("-depthwise" if self.groups == 0 else ""), self.dtype]
        parts += ["x".join(map(str, self.dims)), *(f"{key}{value}" for key, value in extra.items() if value)]
        return "-".join(parts)


def cases() -> tuple[Case, ...]:
    """Every case once, by framework."""
    return tuple(case for framework in FRAMEWORKS for case in _of(framework))


def _of(framework: str) -> list[Case]:
    made = partial(Case, framework)
    narrow = {"torch": ("float8_e4m3fn", "int8"), "jax": ("float8_e4m3fn", "int8"), "cupy": ()}[framework]
    types = [kind for kind in WIDE if not (framework == "cupy" and kind == "bfloat16")]
    found = [made("matmul", dtype, shape) for dtype in (*types, *narrow) for shape in SHAPES]
    found += [made("matmul", dtype, (256, size, 256)) for dtype in types[:4] for size in SIZES]
    found += [made("matmul", dtype, (256, 256, size)) for dtype in types[:4] for size in SIZES]
    found += [made("matmul", dtype, (128, 64, 128), batch=32) for dtype in types]
    if framework == "cupy":
        return found
    for dtype in ("float32", "tf32", "float16", "bfloat16"):
        found += _convolutions(made, dtype)
        found += [made("attention", dtype, dims) for dims in ((4, 8, 128, 64), (2, 16, 1024, 128))]
        found += [made(task, dtype, (4096, 1024)) for task in TASKS]
        if framework == "torch":
            found += [made(kind, dtype, (64, 32, 256)) for kind in ("lstm", "gru")]
    return found


def _convolutions(made: Callable[..., Case], dtype: str) -> list[Case]:
    plain = [
        (32, a, b, size, 56) for a, b in ((3, 64), (64, 64), (63, 65), (256, 128)) for size in (1, 3, 5, 7)
    ]
    found = [made("conv", dtype, dims, channels_last=last) for dims in plain for last in (True, False)]
    found += [made("conv", dtype, (32, 64, 64, 3, 56), groups=groups) for groups in (0, 8)]
    found += [
        made("conv", dtype, (4, 32, 32, 3, 16), spatial=3, channels_last=last) for last in (True, False)
    ]
    return found


# How a case is computed ------------------------------------------------------------------------------------


def work(case: Case) -> Callable[[], Any]:
    """What computes a case, ready to be called; a convolution with both its gradients.

    Imports the framework. Raises whatever the framework does where it lacks the type or the op.
    """
    return {"torch": _torch, "jax": _jax, "cupy": _cupy}[case.framework](case)


def _torch(case: Case) -> Callable[[], Any]:
    import torch
    from torch.nn import functional

    tf32 = case.dtype == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    dtype = torch.float32 if tf32 else getattr(torch, case.dtype)

    def tensor(*dims: int, grad: bool = False) -> Any:
        made = torch.randn(*dims, device="cuda")
        return (made * 10 if dtype == torch.int8 else made).to(dtype).requires_grad_(grad)

    if case.kind == "matmul":
        m, n, k = case.dims
        batch = (case.batch,) if case.batch else ()
        a, b = tensor(*batch, m, k), tensor(*batch, k, n)
        if case.dtype.startswith("float8"):
            one = torch.ones((), device="cuda")
            return lambda: torch._scaled_mm(a, b.t().contiguous().t(), one, one, out_dtype=torch.bfloat16)
        return (lambda: torch._int_mm(a, b)) if dtype == torch.int8 else (lambda: a @ b)
    if case.kind == "conv":
        images, channels, filters, size, side = case.dims
        groups = case.groups or channels
        space = (side,) * case.spatial
        form = {2: torch.channels_last, 3: torch.channels_last_3d}[case.spatial]
        last = {"memory_format": form} if case.channels_last else {"memory_format": torch.contiguous_format}
        x = tensor(images, channels, *space).contiguous(**last).requires_grad_()
        w = tensor(filters, channels // groups, *(size,) * case.spatial).contiguous(**last).requires_grad_()
        convolve = {2: functional.conv2d, 3: functional.conv3d}[case.spatial]
        return lambda: convolve(x, w, padding=size // 2, groups=groups).sum().backward()
    if case.kind == "attention":
        q, k, v = (tensor(*case.dims, grad=True) for _ in range(3))
        return lambda: functional.scaled_dot_product_attention(q, k, v, is_causal=True).sum().backward()
    if case.kind in ("lstm", "gru"):
        length, batch, width = case.dims
        layer = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[case.kind](width, width).to("cuda", dtype)
        x = tensor(length, batch, width)
        return lambda: layer(x)[0].sum().backward()
    return _torch_task(case, tensor, torch, functional)


def _torch_task(case: Case, tensor: Callable[..., Any], torch: Any, functional: Any) -> Callable[[], Any]:
    rows, columns = case.dims
    x = tensor(rows, columns, grad=case.kind not in ("cast", "adam"))
    simple = {
        "layer_norm": lambda: functional.layer_norm(x, (columns,)).sum().backward(),
        "softmax": lambda: x.softmax(-1).sum().backward(),
        "gelu": lambda: functional.gelu(x).sum().backward(),
        "cast": lambda: x.to(torch.float16 if x.dtype == torch.float32 else torch.float32),
        "transpose": lambda: x.t().contiguous(),
        "sum": lambda: x.sum(0),
        "dropout": lambda: functional.dropout(x, 0.5),
        "max_pool": lambda: functional.max_pool2d(x[None, None], 2),
    }
    if case.kind in simple:
        return simple[case.kind]
    if case.kind == "embedding":
        index = torch.randint(0, rows, (8192,), device="cuda")
        return lambda: functional.embedding(index, x).sum().backward()
    x.requires_grad_()
    x.grad = torch.ones_like(x)
    return torch.optim.Adam([x], fused=True).step


def _jax(case: Case) -> Callable[[], Any]:
    import jax
    import jax.numpy as jnp
    import numpy as np

    tf32 = case.dtype == "tf32"
    jax.config.update("jax_default_matmul_precision", "tensorfloat32" if tf32 else "highest")
    jax.config.update("jax_enable_x64", case.dtype == "float64")
    dtype = jnp.float32 if tf32 else jnp.dtype(case.dtype)
    random = np.random.default_rng(0)

    def tensor(*dims: int) -> Any:
        values = random.standard_normal(dims, np.float32)
        return jnp.asarray(values * 10 if dtype == jnp.int8 else values).astype(dtype)

    if case.kind == "matmul":
        m, n, k = case.dims
        batch = (case.batch,) if case.batch else ()
        wide = jnp.int32 if dtype == jnp.int8 else (jnp.float32 if case.dtype.startswith("float8") else None)
        multiply = jax.jit(partial(jnp.matmul, preferred_element_type=wide))
        return partial(_waited, multiply, tensor(*batch, m, k), tensor(*batch, k, n))
    if case.kind == "conv":
        images, channels, filters, size, side = case.dims
        groups = case.groups or channels
        space, axes = (side,) * case.spatial, "HWD"[: case.spatial]
        data = f"N{axes}C" if case.channels_last else f"NC{axes}"
        x = tensor(images, *space, channels) if case.channels_last else tensor(images, channels, *space)
        w = tensor(*(size,) * case.spatial, channels // groups, filters)
        layout = jax.lax.conv_dimension_numbers(x.shape, w.shape, (data, f"{axes}IO", data))

        def loss(x: Any, w: Any) -> Any:
            out = jax.lax.conv_general_dilated(
                x, w, (1,) * case.spatial, "SAME", dimension_numbers=layout, feature_group_count=groups
            )
            return out.astype(jnp.float32).sum()

        return partial(_waited, jax.jit(jax.grad(loss, (0, 1))), x, w)
    if case.kind == "attention":
        batch, heads, length, width = case.dims

        def attend(q: Any, k: Any, v: Any) -> Any:
            return jax.nn.dot_product_attention(q, k, v, is_causal=True).astype(jnp.float32).sum()

        sides = [tensor(batch, length, heads, width) for _ in range(3)]
        return partial(_waited, jax.jit(jax.grad(attend, (0, 1, 2))), *sides)
    return _jax_task(case, tensor, jax, jnp)


def _jax_task(case: Case, tensor: Callable[..., Any], jax: Any, jnp: Any) -> Callable[[], Any]:
    x, key = tensor(*case.dims), jax.random.key(0)
    other = jnp.float16 if x.dtype == jnp.float32 else jnp.float32
    index = jnp.arange(8192) % case.dims[0]
    tasks: dict[str, Callable[[Any], Any]] = {
        "layer_norm": lambda x: (x - x.mean(-1, keepdims=True)) / (x.std(-1, keepdims=True) + 1e-3),
        "softmax": lambda x: jax.nn.softmax(x, -1),
        "gelu": jax.nn.gelu,
        "cast": lambda x: x.astype(other),
        "transpose": lambda x: x.T + 0,
        "sum": lambda x: x.sum(0),
        "dropout": lambda x: jnp.where(jax.random.bernoulli(key, 0.5, x.shape), x, 0),
        "embedding": lambda x: x[index],
        "adam": lambda x: x - 0.1 * x / (jnp.sqrt(x * x) + 1e-7),
        "max_pool": lambda x: jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (2, 2), (2, 2), "VALID"),
    }
    return partial(_waited, jax.jit(tasks[case.kind]), x)


def _waited(function: Callable[..., Any], *arguments: Any) -> Any:
    import jax

    return jax.block_until_ready(function(*arguments))


def _cupy(case: Case) -> Callable[[], Any]:
    import cupy

    # CuPy takes the mode from the environment (CUPY_TF32), which the script sets per process.
    dtype = cupy.float32 if case.dtype == "tf32" else cupy.dtype(case.dtype)
    m, n, k = case.dims
    batch = (case.batch,) if case.batch else ()
    a = cupy.random.rand(*batch, m, k).astype(dtype)
    b = cupy.random.rand(*batch, k, n).astype(dtype)
    return lambda: cupy.matmul(a, b)
