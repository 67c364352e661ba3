"""What a trace would be judged by, name and HLO, held to the machine code of single operations (`make_ops`)."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Iterator

import pytest

from mpprof.analysis.kernels.placement import _card, on_device
from mpprof.forecasts import deciding, targets
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Verdict
from mpprof.model.trace import Op
from mpprof.traces.common.hlo_program import Launch, launches
from tests.forecasts.make_ops import CARDS, FOLDER, TILED


@frozen
class Kernel:
    """One launch: `used` are its matrix instructions; None: its kernel is not XLA's own."""

    group: str
    program: str
    work: Launch
    used: tuple[str, ...] | None
    verdict: Verdict


def kernels(capability: str) -> Iterator[Kernel]:
    card = _card(targets.card(CARDS[capability]).facts)
    with zipfile.ZipFile(FOLDER / f"{capability}.zip") as archive:
        for path in archive.namelist():
            group, _, file = path.partition("/")
            if not file.endswith(".hlo") or file == "source.hlo":
                continue
            program = file.removesuffix(".hlo")
            used = json.loads(archive.read(f"{group}/result.json"))["kernels"].get(program)
            if used is None:
                continue
            for work in launches(archive.read(path)):
                op = Op(work.hlo.op_name, work.hlo.opcode, work.hlo)
                verdict = on_device(work.hlo.name.replace(".", "_"), op, "", card)
                name = work.hlo.name
                yield Kernel(group, program, work, tuple(used[name]) if name in used else None, verdict)


@pytest.mark.parametrize("capability", CARDS)
def test_verdicts_agree_with_the_machine_code(capability: str) -> None:
    made = [kernel for kernel in kernels(capability) if kernel.used is not None]
    assert made
    for kernel in made:
        told = (kernel.group, kernel.program, kernel.work.hlo.name, kernel.verdict, kernel.used)
        if kernel.used:
            assert kernel.verdict.placement == "tensor_core", told
        else:
            assert kernel.verdict.placement != "tensor_core", told


@pytest.mark.parametrize(
    ("capability", "instruction"),
    [("8.0", "mma.sync"), ("8.9", "mma.sync"), ("9.0", "wgmma.mma_async"), ("10.0", "tcgen05.mma"),
     ("12.0", "mma.sync")],
)  # fmt: skip
def test_each_generations_instruction_is_among_the_kernels(capability: str, instruction: str) -> None:
    """With the cost model's tiles; in 16 bits and, where the card has it, in 8."""
    used = {one for kernel in kernels(capability) if kernel.group in TILED for one in kernel.used or ()}
    assert any(one.startswith(instruction) for one in used), used


@pytest.mark.parametrize("capability", CARDS)
def test_the_share_of_matrix_operations_that_machine_code_covers(
    capability: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Libraries' kernels have no PTX here: below 8.0 and for convolutions nothing is covered."""
    covered = whole = 0.0
    for kernel in kernels(capability):
        if kernel.program == "own" and kernel.group not in TILED and deciding.is_product(kernel.work.hlo):
            flops = deciding.asked_flops(kernel.work) or 0.0
            whole += flops
            covered += flops if kernel.used is not None else 0.0
            assert kernel.group != "convolutions" or kernel.used is None
    with capsys.disabled():
        print(f" compute capability {capability}: PTX covers {covered / whole:.0%} of the matrix operations")
    assert (covered > 0) == (targets.card(CARDS[capability]).compute_capability >= (8, 0))


@pytest.mark.parametrize("capability", CARDS)
def test_a_product_with_one_row_is_a_loop_in_both_programs(capability: str) -> None:
    """What a forecast says of it cannot depend on the card's choice."""
    for kernel in kernels(capability):
        scopes = kernel.work.hlo.op_name.split("/")
        if kernel.group == "float16" and {"batch_1", "one_column"} & set(scopes):
            assert not deciding.is_product(kernel.work.hlo), (kernel.program, kernel.work.hlo.name)


def test_no_path_of_a_machine_is_kept() -> None:
    for capability in CARDS:
        with zipfile.ZipFile(FOLDER / f"{capability}.zip") as archive:
            for path in archive.namelist():
                kept = archive.read(path)
                assert b"site-packages" not in kept, (capability, path)
                assert b"/tmp/" not in kept, (capability, path)
