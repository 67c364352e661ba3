"""What of the peak is accounted for in public GPU traces with allocator events, and what older memory holds.

docs/memory.md has the same figures. The models' parameters are those that their authors state."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.model.memory import MemoryAccount

SHARED = Path(__file__).parents[4] / "shared" / "data" / "traces"
TORCH = {  # 16-bit parameters in millions (the ViT has its pooler, and no classifier); what is left of the peak as held before the window
    "gaunernst_bert-small-uncased__1016001.json.gz": (28.5, 0.34),
    "Falconsai_nsfw_image_detection__1016002.json.gz": (86.4, 0.19),
    "facebook_timesformer-base-finetuned-k400__1016002.json.gz": (121.4, 0.011),
    "Qwen_Qwen1.5-0.5B-Chat__1016005.json.gz": (464.0, 0.028),
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
        pytest.skip(f"{path} is not on this machine")
    found = workflows.analyse(workflows.load(path)).memory
    assert found is not None
    return found


def share(found: MemoryAccount, by: str, name: str) -> float:
    return sum(item.bytes for item in found.at_peak if (item.by, item.name) == (by, name)) / found.peak_bytes


BEFORE = {f"h100-torch/{name}": left for name, (_, left) in TORCH.items()} | XLA | KERAS


@pytest.mark.parametrize(("name", "most_before"), BEFORE.items())
def test_at_most_a_tenth_of_the_peak_has_no_owner(name: str, most_before: float) -> None:
    found = account(name)
    assert share(found, "op", "unknown") <= MOST_UNATTRIBUTED
    assert share(found, "kind", "held before the window") <= most_before
    for by in ("kind", "dtype", "layer", "op"):
        assert sum(item.bytes for item in found.at_peak if item.by == by) == found.peak_bytes


@pytest.mark.parametrize("name", TORCH)
def test_the_weights_of_an_inference_are_its_models(name: str) -> None:
    found = account(f"h100-torch/{name}")
    stated = 2e6 * TORCH[name][0]
    assert share(found, "kind", "parameters") * found.peak_bytes == pytest.approx(stated, rel=0.005)
    assert found.states_from == "modules"
