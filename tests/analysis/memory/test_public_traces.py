"""What of the peak is accounted for in public GPU traces with allocator events, and what older memory holds.

docs/memory.md has the same figures."""

from __future__ import annotations

import pytest

from mpprof.api import workflows
from mpprof.model.memory import MemoryAccount
from tests.paths import NO_TRACES, SHARED

TORCH = {  # what is left of the peak as held before the window
    "gaunernst_bert-small-uncased__1016001.json.gz": 0.334,
    "Falconsai_nsfw_image_detection__1016002.json.gz": 0.19,
    "facebook_timesformer-base-finetuned-k400__1016002.json.gz": 0.011,
    "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": 0.028,
}
XLA = {  # held before the window
    "mi300-jax/jax_conv_minimal_08.xplane.pb": 0.336,
    "mi300-jax/jax08_attention.xplane.pb": 0.094,
    "mi300-jax/jax08_elementwise.xplane.pb": 0.401,
    "mi300-jax/jax08_gemm.xplane.pb": 0.0,
    "mi300-jax/te_fused_attention_gfx950.xplane.pb": 0.204,
    "gtx1080ti-xla/cyclops.xplane.pb": 0.678,
}
KERAS = {"v100-8gpu-bert-fp16/host.xplane.pb": 0.001}
MOST_UNATTRIBUTED = 0.1


def account(name: str) -> MemoryAccount:
    path = SHARED / name
    if not path.exists():
        pytest.skip(NO_TRACES)
    found = workflows.analyse(workflows.load(path)).memory
    assert found is not None
    return found


def share(found: MemoryAccount, by: str, name: str) -> float:
    return sum(item.bytes for item in found.at_peak if (item.by, item.name) == (by, name)) / found.peak_bytes


BEFORE = {f"h100-torch/{name}": left for name, left in TORCH.items()} | XLA | KERAS


@pytest.mark.parametrize(("name", "most_before"), BEFORE.items())
def test_at_most_a_tenth_of_the_peak_has_no_owner(name: str, most_before: float) -> None:
    found = account(name)
    assert share(found, "op", "unknown") <= MOST_UNATTRIBUTED
    assert share(found, "kind", "held before the window") <= most_before
    for by in ("kind", "dtype", "layer", "op"):
        assert sum(item.bytes for item in found.at_peak if item.by == by) == found.peak_bytes


def linear(given: int, made: int, bias: bool = True) -> int:
    return made * (given + bias)


def norm(width: int) -> int:
    """A layer norm's scale and offset."""
    return 2 * width


def attention_block(width: int, inner: int) -> int:
    """BERT's and ViT's layer: query, key, value and output, two products between, two norms."""
    return 4 * linear(width, width) + linear(width, inner) + linear(inner, width) + 2 * norm(width)


PATCHES = linear(3 * 16 * 16, 768)
WEIGHTS = {
    # BERT: 30522 tokens, 512 positions, 2 types, 4 layers of width 512 and 2048; the head's product takes
    # the table of tokens and has an offset of its own.
    "gaunernst_bert-small-uncased__1016001.json.gz": (
        (30522 + 512 + 2) * 512 + norm(512) + 4 * attention_block(512, 2048)
        + linear(512, 512) + norm(512) + 30522
    ),
    # ViT-B/16: 12 layers of width 768 and 3072, a norm, and the pooler's product, which ran here; no classifier
    # did. Its 197 positions and its class token are added by the model itself.
    "Falconsai_nsfw_image_detection__1016002.json.gz": (
        PATCHES + 12 * attention_block(768, 3072) + norm(768) + linear(768, 768)
    ),
    # 12 layers of width 768 and 3072: attention over time and over space, a product and a norm for time besides,
    # 400 classes. Its positions in space and time and its class token are added by the model itself.
    "facebook_timesformer-base-finetuned-k400__1016002.json.gz": (
        PATCHES + norm(768) + linear(768, 400)
        + 12 * (attention_block(768, 3072) + 4 * linear(768, 768) + linear(768, 768) + norm(768))
    ),
    # 151936 tokens, 24 layers of width 1024 and 2816, offsets for query, key and value alone. Its 49 norms are
    # no module's op: the model multiplies them itself.
    "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": 151936 * 1024 + 24 * (
        3 * linear(1024, 1024) + linear(1024, 1024, False)
        + 2 * linear(1024, 2816, False) + linear(2816, 1024, False)
    ),
}  # fmt: skip
"""Parameters that a module's op is given, by each model's architecture. The traces state all of these sizes as
shapes of the ops' operands."""
MULTIPLIED_BY_THE_MODEL = {
    "Falconsai_nsfw_image_detection__1016002.json.gz": (197 + 1) * 768,
    "facebook_timesformer-base-finetuned-k400__1016002.json.gz": (197 + 1 + 8) * 768,
    "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": 49 * 1024,
}
"""Parameters that no module's op is given. TimeSformer's 8 positions in time are from its configuration: the ops
have as many as the input has frames."""


@pytest.mark.parametrize("name", TORCH)
def test_the_weights_of_an_inference_are_its_models(name: str) -> None:
    found = account(f"h100-torch/{name}")
    parameters = share(found, "kind", "parameters") * found.peak_bytes
    assert parameters == pytest.approx(2 * WEIGHTS[name], abs=1)  # bfloat16
    assert found.states_from == "modules"
    assert MULTIPLIED_BY_THE_MODEL.get(name, 0) < 0.002 * WEIGHTS[name]
