"""What PyTorch records of a collective: one op stands for all, and its args name it. *Synthetic*, laid out as recorded."""

from __future__ import annotations

from pathlib import Path

import pytest

from mpprof.api import workflows
from mpprof.report import json as documents
from tests.builders.read_back import text
from tests.traces.kineto import Kineto

GENERIC = "ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)"
GEMM = (
    "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_kernel__5x_cublas"
)


@pytest.mark.parametrize(
    ("name", "sent", "kind", "precision"),
    [("allreduce", "BFloat16", "reduce", "bf16"), ("_allgather_base", "Float", "gather", "fp32")],
)
def test_a_generic_kernel_sends_what_its_op_states(
    name: str, sent: str, kind: str, precision: str, tmp_path: Path
) -> None:
    """Seen on an MI300X: two sums in bfloat16 were "other collectives in an unknown type"."""
    k = Kineto()
    for step in range(4):
        at = 1000.0 * step
        k.host("user_annotation", f"ProfilerStep#{step + 4}", at, 990)
        k.op("aten::mm", at + 10, 20)
        k.launch(GEMM, at + 15, at + 40, 300)
        stated = {"Collective name": name, "dtype": sent, "In msg nelems": 2_873_320}
        k.op("record_param_comms", at + 50, 20, **stated)
        k.launch(GENERIC, at + 55, at + 340, 500)
    document = documents.document(
        workflows.diagnose(workflows.load(k.write(tmp_path / "host.pt.trace.json")))
    )
    (found,) = document["communication"]["by"]
    assert (found["kind"], found["precision"]) == (kind, precision)


@pytest.mark.parametrize(
    ("sent", "said"), [("Long", "int64"), ("Int", "int32"), ("Opaque", "an unknown type")]
)
def test_integers_that_are_sent_are_no_unknown_type(sent: str, said: str, tmp_path: Path) -> None:
    """PyTorch calls int64 `Long`: tokens or counts, which no switch makes shorter."""
    k = Kineto()
    for step in range(4):
        at = 1000.0 * step
        k.host("user_annotation", f"ProfilerStep#{step + 4}", at, 990)
        k.launch(GEMM, at + 15, at + 40, 300)
        k.op(
            "record_param_comms",
            at + 50,
            20,
            **{"Collective name": "broadcast", "dtype": sent, "In msg nelems": 99},
        )
        k.launch(GENERIC, at + 55, at + 340, 500)
    document = documents.document(
        workflows.diagnose(workflows.load(k.write(tmp_path / "host.pt.trace.json")))
    )
    (found,) = document["communication"]["by"]
    assert found["precision"] == "unknown"
    assert found.get("integers", "") == ("" if sent == "Opaque" else said)
    assert f"other collectives in {said} " in " ".join(text.render(document).split())
