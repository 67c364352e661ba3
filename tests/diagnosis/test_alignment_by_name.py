"""Kernels that say by their names that sizes are odd, in a trace that holds no shapes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import mpprof
from mpprof.model.finding import Diagnosis
from tests.traces.kineto import Kineto

FULL = "ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn"
VOCABULARY = "cutlass_80_{op}_bf16_s16816gemm_bf16_256x128_64x3_tn_align{of}"


def judged(path: Path, name: str, us: float = 48, **shapes: Any) -> Diagnosis:
    """Five steps of 100 us of products, of which the kernel of this name takes its part."""
    kineto = Kineto()
    for step in range(5):
        at = 200.0 * step
        kineto.host("user_annotation", f"ProfilerStep#{step}", at, 199)
        kineto.op("aten::mm", at + 2, 8)
        kineto.launch(FULL, at + 4, at + 20, 100 - us)
        kineto.op("aten::mm", at + 12, 8, **shapes)
        kernel = f"void cutlass::Kernel2<{name}>({name}::Params)"
        kineto.launch(kernel, at + 14, at + 120 - us, us)
    return mpprof.diagnose(kineto.write(path / "vocabulary.pt.trace.json.gz"))


@pytest.mark.parametrize("of", [1, 2])
def test_align1_and_align2_are_evidence_without_shapes(of: int, tmp_path: Path) -> None:
    diagnosis = judged(tmp_path, VOCABULARY.format(op="tensorop", of=of))
    (found,) = [finding for finding in diagnosis.findings if finding.code == "MP401"]
    assert found.severity == "warning"
    assert "48.0 % of the matrix time" in found.summary
    assert f"align{of}" in found.summary
    assert found.cost_ns_per_step is None


@pytest.mark.parametrize("of", [4, 8])
def test_wider_loads_are_none(of: int, tmp_path: Path) -> None:
    diagnosis = judged(tmp_path, VOCABULARY.format(op="tensorop", of=of))
    assert "MP401" not in {finding.code for finding in diagnosis.findings}


def test_nor_is_little_of_the_step(tmp_path: Path) -> None:
    diagnosis = judged(tmp_path, VOCABULARY.format(op="tensorop", of=2), us=0.9)
    assert "MP401" not in {finding.code for finding in diagnosis.findings}


def test_sizes_that_are_known_say_more(tmp_path: Path) -> None:
    shapes = {
        "Input Dims": [[512, 768], [768, 30522]],
        "Input type": ["c10::BFloat16", "c10::BFloat16"],
    }
    diagnosis = judged(tmp_path, VOCABULARY.format(op="tensorop", of=2), **shapes)
    said = " ".join(finding.summary for finding in diagnosis.findings)
    assert "30522" in said or "30,522" in said
    assert "has no shapes" not in said
