"""A snapshot that PyTorch itself makes: on a CPU its memory profiler's, which states PyTorch's own categories."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path

import pytest

from mpprof.cli import main
from tests.torch.training import torch

pytestmark = pytest.mark.framework

_KINDS = {
    "PARAMETER": "parameters",
    "OPTIMIZER_STATE": "optimizer slots",
    "GRADIENT": "gradients",
    "INPUT": "input",
}


def test_peak_and_categories_are_pytorchs_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The peak is the largest sum of PyTorch's own timeline, and what it calls parameters, inputs, gradients and state
    of the optimizer at that moment are these kinds here. Activations may be inputs of a module that keeps nothing."""
    from torch.cuda import _memory_viz
    from torch.profiler._memory_profiler import Action, TensorKey

    torch.manual_seed(1)
    network = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 8))
    optimizer = torch.optim.Adam(network.parameters())
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        profile_memory=True,
        record_shapes=True,
        with_stack=True,
    ) as profile:
        for _ in range(2):
            loss = network(torch.randn(1024, 256)).square().mean()
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    path = tmp_path / "snapshot.pickle"
    path.write_bytes(pickle.dumps(_memory_viz._profile_to_snapshot(profile)))

    told = profile._memory_profile()
    live: dict[tuple[object, int], int] = {}
    peak: Counter[str] = Counter()
    for _, action, (key, version), size in told.timeline:
        if not isinstance(key, TensorKey):
            continue
        if action == Action.DESTROY:
            live.pop((key, version))
        elif action == Action.INCREMENT_VERSION:
            live.pop((key, version))
            live[key, version + 1] = size
        else:
            live[key, version] = size
        if sum(live.values()) > peak.total():
            peak = Counter()
            for (tensor, number), held in live.items():
                category = told._categories.get(tensor, number)
                peak[category.name if category else "UNKNOWN"] += held

    assert main(["memory", str(path), "--format", "json"]) == 0
    rows = {row["name"]: row["bytes"] for row in json.loads(capsys.readouterr().out) if row["by"] == "kind"}
    assert sum(rows.values()) == peak.total() > 1 << 20
    assert {name: rows.get(kind, 0) for name, kind in _KINDS.items()} == {name: peak[name] for name in _KINDS}
