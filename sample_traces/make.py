"""Makes the sample runs of this folder again.

    python sample_traces/make.py synthetic     the GPU cases, played by tests/builders/simulate.py (seconds)
    python sample_traces/make.py recorded      real Keras trainings on this machine's CPU (a minute)

Every case is a log directory, laid out as the callback and the profiler write it, with an `origin.json` that
says whether it was recorded or made up, by what, and what it has never been compared with. `synthetic` writes
the same bytes every time.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tests.builders import step_memory  # noqa: E402
from tests.builders.compiled import step  # noqa: E402
from tests.builders.gpus import A100, GTX1080TI, H100, V100  # noqa: E402
from tests.builders.numerics import FLOAT32, MIXED_BFLOAT16, MIXED_FLOAT16, TF32, Numerics  # noqa: E402
from tests.builders.simulate import Host, Training, write  # noqa: E402
from tests.builders.workloads import convnet, transformer  # noqa: E402
from tests.forecasts.make_programs import Case as program  # noqa: E402

JAX = {
    "framework": {
        "keras": "3.15.1", "backend": "jax", "backend_version": "0.10.2", "python": "3.12.3",
        "xla_flags": "--xla_gpu_enable_command_buffer=",  # so that each kernel names its instruction
    }
}  # fmt: skip
JAX_HOST = Host(
    executor="PjRtStreamExecutorLoadedExecutable::Execute", dispatch_us=0.5, launch_us=3.0, begin_us=120.0
)
WINDOW = (60, 64)
COMPILED = "sample_traces/make.py synthetic; instructions, names and op names from tests/forecasts/programs, as XLA compiled them"
NEVER = "Never compared with a trace of this model on this card: durations come from the rates in tests/builders/gpus.py."
HALF_ON_CUDA_CORES = replace(MIXED_FLOAT16, matrix="fp16_cuda")


@dataclass(frozen=True)
class Case:
    """One made-up run: what is odd about it, and how to play it."""

    oddity: str
    training: Training
    cut_at: float | None = None  # the trace file ends after this share of its bytes
    made_by: str = "sample_traces/make.py synthetic"


def _training(name: str, **facts: object) -> Training:
    return Training(name=name, profile=WINDOW, **facts)  # type: ignore[arg-type]


def _pair(
    prefix: str, oddity: str, float32: Callable[[str], Training], mixed: Callable[[str], Training], kind: str
) -> dict[str, Case]:
    names = f"{prefix}-float32", f"{prefix}-{kind}"
    return {
        names[0]: Case(f"the float32 baseline of {names[1]}", float32(names[0])),
        names[1]: Case(oddity, mixed(names[1])),
    }


def _convnet_pair(
    prefix: str, oddity: str, gpu, base: Numerics, mixed: Numerics, kind: str, **common
) -> dict[str, Case]:  # type: ignore[no-untyped-def]
    model = common.pop("model", {})
    hosts = common.pop("hosts", (Host(), Host()))
    models = convnet(gpu, base, **model), convnet(gpu, mixed, **model)
    peaks = 6_100_000_000, 3_700_000_000
    if common.get("allocator_events"):
        peaks = step_memory.peak_bytes(models[0]), step_memory.peak_bytes(models[1])
    return _pair(
        prefix,
        oddity,
        lambda n: _training(n, gpu=gpu, numerics=base, model=models[0], host=hosts[0], peak_bytes=peaks[0], **common),
        lambda n: _training(n, gpu=gpu, numerics=mixed, model=models[1], host=hosts[1], peak_bytes=peaks[1], **common),
        kind,
    )  # fmt: skip


def _compiled_pair() -> dict[str, Case]:
    """Filters of 5, 7 and 11 on images of 256 x 256, batch 128: one XLA program a step."""
    made = {}
    for policy, numerics, peak in (
        ("float32", FLOAT32, 1_089_016_888),
        ("mixed_float16", MIXED_FLOAT16, 620_248_091),
    ):
        name = f"v100-xla-convnet-{policy.replace('_', '-')}"
        model = step(program("published_convnet", "v100", policy, 128), V100)
        made[name] = Case(
            f"one compiled XLA program a step, {policy}: kernels are fusions and library calls",
            _training(
                name,
                gpu=V100,
                numerics=numerics,
                model=model,
                peak_bytes=peak,
                host=JAX_HOST,
                fit={"jit_compile": True},
                facts=JAX,
            ),
            made_by=COMPILED,
        )
    return made


def cases() -> dict[str, Case]:
    """All synthetic cases by name."""
    small = {"batch": 4, "widths": (16, 32, 32, 64), "sizes": (32, 16, 8, 4), "classes": 10}
    text = {"blocks": 3, "length": 128, "batch": 32}
    island = {"conv2d_2": FLOAT32, "conv2d_3": FLOAT32}
    thrash = frozenset({2, 3, 5, *range(20, 160, 3)})
    v100 = convnet(V100, MIXED_FLOAT16)
    return {
        **_convnet_pair("v100-convnet", "healthy: a clear speedup", V100, FLOAT32, MIXED_FLOAT16, "mixed-float16"),
        "v100-float32-island": Case(
            "two convolutions are kept in float32, with casts around them; compare with v100-convnet-float32",
            _training("v100-float32-island", gpu=V100, numerics=MIXED_FLOAT16, model=convnet(V100, MIXED_FLOAT16, overrides=island)),
        ),
        **_pair(
            "v100-odd-vocabulary", "the vocabulary is 33,709: the logits matmul misses the Tensor Cores",
            lambda n: _training(n, gpu=V100, numerics=FLOAT32, model=transformer(V100, FLOAT32, vocabulary=33709, **text)),
            lambda n: _training(n, gpu=V100, numerics=MIXED_FLOAT16,
                                model=transformer(V100, MIXED_FLOAT16, vocabulary=33709, logits=HALF_ON_CUDA_CORES, **text)),
            "mixed-float16",
        ),
        **_convnet_pair(
            "v100-input-bound", "the input pipeline needs about 48 ms a batch, in float32 too", V100, FLOAT32, MIXED_FLOAT16,
            "mixed-float16", hosts=(Host(input_us=6_000.0, noise=0.03), Host(input_us=25_500.0, noise=0.03)),
        ),
        **_convnet_pair(
            "a100-launch-bound", "a small model at batch 4: the host cannot launch as fast as the GPU finishes",
            A100, TF32, MIXED_FLOAT16, "mixed-float16", model=small, tf32_enabled=True,
        ),
        "v100-loss-scale-thrash": Case(
            "gradients overflow every third step and the loss scale falls below 1",
            _training("v100-loss-scale-thrash", gpu=V100, numerics=MIXED_FLOAT16, model=v100, skip_steps=thrash),
        ),
        **_convnet_pair("a100-tf32-baseline", "the float32 baseline already runs on Tensor Cores, as TF32", A100, TF32, MIXED_FLOAT16, "mixed-float16", tf32_enabled=True),
        **_convnet_pair(
            "gtx1080ti", "a card without Tensor Cores; the batch norms keep float32 activations (allocator events)",
            GTX1080TI, FLOAT32, HALF_ON_CUDA_CORES, "mixed-float16", allocator_events=True,
        ),
        "h100-mixed-bfloat16": Case(
            "healthy bfloat16 on Hopper, no baseline recorded",
            _training("h100-mixed-bfloat16", gpu=H100, numerics=MIXED_BFLOAT16, model=transformer(H100, MIXED_BFLOAT16, **text), tf32_enabled=True),
        ),
        **_compiled_pair(),
        "v100-truncated": Case("the trace file ends in the middle of an event", _training("v100-truncated", gpu=V100, numerics=MIXED_FLOAT16, model=v100), cut_at=0.6),
    }  # fmt: skip


def make_synthetic() -> None:
    for name, case in cases().items():
        directory = HERE / name
        shutil.rmtree(directory, ignore_errors=True)
        write(case.training, directory)
        for trace in directory.rglob("*.xplane.pb"):
            data = trace.read_bytes()
            trace.write_bytes(data[: int(len(data) * (case.cut_at or 1.0))])
        origin(directory, "synthetic", case.oddity, case.made_by, NEVER)
        print(f"{name}: {sum(f.stat().st_size for f in directory.rglob('*') if f.is_file()):,} bytes")


def origin(directory: Path, kind: str, oddity: str, made_by: str, never: str) -> None:
    facts = {"kind": kind, "oddity": oddity, "made_by": made_by, "never_compared_with": never}
    (directory / "origin.json").write_text(json.dumps(facts, indent=1) + "\n")


def make_recorded() -> None:
    from mpprof.demo import POLICIES, train
    from mpprof.report.redact import Redactor

    for policy in POLICIES:
        directory = HERE / f"recorded-cpu-{policy.replace('_', '-')}"
        shutil.rmtree(directory, ignore_errors=True)
        train(policy, directory)
        for trace in directory.rglob("*.xplane.pb"):
            trace.write_bytes(Redactor(()).trace(trace.read_bytes()))  # the folder that it was recorded in
        origin(
            directory, "recorded", "no accelerator: the account's basis is the host",
            "sample_traces/make.py recorded (Keras on TensorFlow, CPU, 2 cores)",
            "A CPU has no Tensor Cores: nothing here says anything about a GPU.",
        )  # fmt: skip
        print(directory.name)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=("synthetic", "recorded"))
    {"synthetic": make_synthetic, "recorded": make_recorded}[parser.parse_args().what]()
