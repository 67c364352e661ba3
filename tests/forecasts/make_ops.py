"""Single operations compiled for every compute capability: `python -m tests.forecasts.make_ops [CAPABILITY...]`.

Needs the extra mpprof[forecast]; no GPU. One zip for each compute capability: for each group of operations
the program with XLA's own products and the one with the libraries', and the matrix instructions in the PTX of
each kernel that XLA makes. What XLA refuses for a card is kept with its reason.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from mpprof.forecasts import child, targets

FOLDER = Path(__file__).with_name("ops")
CARDS = {
    "7.0": "v100", "7.5": "t4", "8.0": "a100", "8.6": "a40", "8.9": "l4", "9.0": "h100", "10.0": "b200",
    "12.0": "rtx pro 6000",
}  # fmt: skip
GROUPS = ("float16", "bfloat16", "float32", "highest", "fp8", "int8", "convolutions", "attention", "others",
          "float16-tiled", "bfloat16-tiled", "fp8-tiled")  # fmt: skip

TILED = ("float16-tiled", "bfloat16-tiled", "fp8-tiled")
_TILES = "--xla_gpu_experimental_cost_model_gemm_tiling_options=top_k=1"
"""XLA's default tiles are small. With the cost model's, Hopper's kernels use its instructions for warp groups."""

Operation = tuple[Callable[..., Any], tuple[tuple[tuple[int, ...], str], ...]]


def operations(group: str) -> Iterator[tuple[str, Operation]]:
    """Name, function, and shape and type of each argument."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    def dot(a: Any, b: Any) -> Any:
        return jnp.tanh(jnp.dot(a, b))  # in XLA's program a product with its epilogue

    def wide(out: str) -> Callable[..., Any]:
        return lambda a, b: lax.dot(a, b, preferred_element_type=out)

    products = {
        "square": (256, 256, 256), "tall": (2048, 64, 32), "odd": (129, 257, 65), "batch_1": (1, 1024, 512),
        "one_column": (512, 1024, 1), "small": (8, 16, 8), "batch_1_large": (1, 4096, 4096),
    }  # fmt: skip
    if group in TILED:
        dtype = group.removesuffix("-tiled")
        dtype = "float8_e4m3fn" if dtype == "fp8" else dtype
        for size in (256, 1024, 4096):
            a, b = ((size, size), dtype), ((size, size), dtype)
            yield f"square_{size}", (wide("float32") if "fp8" in group else dot, (a, b))
    if group in ("float16", "bfloat16", "float32"):
        for name, (m, k, n) in products.items():
            yield f"{name}", (dot, (((m, k), group), ((k, n), group)))
        yield "batched", (lambda a, b: jnp.einsum("bik,bkj->bij", a, b), (((8, 64, 96), group),) * 1
                          + (((8, 96, 32), group),))  # fmt: skip
        yield "einsum", (lambda a, b: jnp.einsum("abc,cde->abde", a, b), (((4, 32, 64), group),
                         ((64, 8, 16), group)))  # fmt: skip
    if group == "highest":
        yield "highest", (
            lambda a, b: jnp.dot(a, b, precision="highest"), (((256, 128), "float32"), ((128, 64), "float32"))
        )  # fmt: skip
    if group == "fp8":
        for left in ("float8_e4m3fn", "float8_e5m2"):
            yield left, (wide("float32"), (((256, 128), left), ((128, 64), "float8_e4m3fn")))
    if group == "int8":
        yield "int8", (wide("int32"), (((256, 128), "int8"), ((128, 64), "int8")))
    if group == "convolutions":
        for dtype in ("float16", "float32"):
            for rank, letters in ((1, "W"), (2, "HW"), (3, "DHW")):
                sizes, spec = (16,) * rank, (f"N{letters}C", f"{letters}IO", f"N{letters}C")
                for name, filters, groups in (
                    ("plain", (32, 64), 1), ("depthwise", (1, 32), 32), ("grouped", (8, 64), 4),
                ):  # fmt: skip

                    def conv(x: Any, w: Any, spec: Any = spec, groups: int = groups, rank: int = rank) -> Any:
                        return lax.conv_general_dilated(
                            x, w, (1,) * rank, "SAME", dimension_numbers=spec, feature_group_count=groups
                        )

                    yield f"{name}_{rank}d_{dtype}", (
                        conv, (((2, *sizes, 32), dtype), ((*(3,) * rank, *filters), dtype))
                    )  # fmt: skip
    if group == "attention":
        for dtype in ("float16", "float32"):
            one = ((2, 128, 4, 64), dtype)
            yield f"attention_{dtype}", (jax.nn.dot_product_attention, (one, one, one))
    if group == "others":
        yield "embedding", (lambda t, i: t[i], (((1000, 64), "float16"), ((32, 16), "int32")))
        yield (
            "embedding_gradient",
            (
                lambda t, i, g: t.at[i].add(g),
                (((1000, 64), "float16"), ((64,), "int32"), ((64, 64), "float16")),
            ),
        )

        def recurrent(x: Any, h: Any, w: Any) -> Any:
            return lax.scan(lambda c, one: (jnp.tanh(one + c @ w), None), h, x)[0]

        yield "recurrent", (
            recurrent, (((10, 16, 64), "float16"), ((16, 64), "float16"), ((64, 64), "float16"))
        )  # fmt: skip
        yield "norm", (lambda x: x / jnp.sqrt(jnp.mean(x * x, -1, keepdims=True)), (((64, 256), "float16"),))


def compile_group(group: str, capability: str, folder: Path) -> None:
    """In a process of its own: XLA may end it."""
    flags = _TILES if group in TILED else ""
    dump = folder / "dump"
    os.environ.update(
        JAX_PLATFORMS="cpu", TF_CPP_MIN_LOG_LEVEL="3",
        XLA_FLAGS=f"--xla_gpu_autotune_level=0 --xla_dump_to={dump} --xla_dump_hlo_as_text "
        f"--xla_dump_hlo_module_re=jit_train_step {flags}",
    )  # fmt: skip
    import jax
    from jax.sharding import SingleDeviceSharding

    device = child._device(jax, targets.description(targets.card(CARDS[capability])))
    there = SingleDeviceSharding(device)
    named = dict(operations(group))

    def train_step(given: Any) -> Any:  # named as the forecast's: the dump is filtered by it
        made = {}
        for name, (function, _) in named.items():
            with jax.named_scope(name):
                made[name] = function(*given[name])
        return made

    given = {
        name: [jax.ShapeDtypeStruct(shape, dtype, sharding=there) for shape, dtype in arguments]
        for name, (_, arguments) in named.items()
    }
    lowered = jax.jit(train_step).trace(given).lower(lowering_platforms=("cuda",))
    told: dict[str, Any] = {"xla": child._plugin()[1], "kernels": {}}
    for name, options in {"own": {}}.items() if group in TILED else child.PROGRAMS.items():
        try:
            told["kernels"][name] = child._compiled(lowered, options, folder / f"{name}.hlo", dump)["kernels"]
        except child.Mendable as error:
            told["refused"] = str(error)
            break
    (folder / "result.json").write_text(json.dumps(told))


def main(capabilities: list[str]) -> None:
    FOLDER.mkdir(exist_ok=True)
    for capability in capabilities or CARDS:
        with zipfile.ZipFile(FOLDER / f"{capability}.zip", "w", zipfile.ZIP_LZMA) as archive:
            for group in GROUPS:
                with tempfile.TemporaryDirectory() as scratch:
                    folder = Path(scratch)
                    command = [sys.executable, "-m", __spec__.name, "--group", group, capability, scratch]
                    done = subprocess.run(command, capture_output=True, text=True, check=False)
                    result = folder / "result.json"
                    if not result.is_file():
                        last = (done.stderr.strip().splitlines() or [""])[-1][:200].replace(scratch, "")
                        result.write_text(
                            json.dumps({"refused": f"exit code {done.returncode}: {last}", "kernels": {}})
                        )
                    for path in (result, *folder.glob("*.hlo")):
                        archive.write(path, f"{group}/{path.name}")
                    print(capability, group, json.loads(result.read_text()).get("refused", ""), flush=True)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--group"]:
        compile_group(sys.argv[2], sys.argv[3], Path(sys.argv[4]))
    else:
        main(sys.argv[1:])
