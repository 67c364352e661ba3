"""Compile the programs that the tests read: `python -m tests.forecasts.make_programs [CASE...]`.

Needs the extra mpprof[forecast]; no GPU. Each file is one card and policy: the child's result.json, with the
versions that made it, and the HloProtos, packed with LZMA.
"""

from __future__ import annotations

import json
import sys
import zipfile
from pathlib import Path

from mpprof.forecasts import compiling, targets
from mpprof.forecasts.judging import Compiled
from mpprof.model.frozen import frozen

FOLDER = Path(__file__).with_name("programs")


@frozen
class Case:
    """One model for one card under one policy."""

    model: str
    card: str
    policy: str
    batch_size: int

    @property
    def name(self) -> str:
        return f"{self.model}-{self.card}-{self.policy}-{self.batch_size}".replace(" ", "_")


CASES = (
    *(Case("convnet", "v100", policy, 32) for policy in ("float32", "mixed_float16", "mixed_bfloat16")),
    *(Case("convnet", "h100", policy, 32) for policy in ("float32", "mixed_float16")),
    *(Case("published_convnet", "v100", policy, 128) for policy in ("float32", "mixed_float16")),
    *(Case("resnet", "v100", policy, 128) for policy in ("float32", "mixed_float16")),
    Case("resnet", "v100", "mixed_float16", 256),
    *(Case("transfer", "t4", policy, 64) for policy in ("float32", "mixed_float16")),
    *(Case("transformer", card, "mixed_float16", 8) for card in ("t4", "a100")),
    *(Case("transformer", card, "mixed_bfloat16", 8) for card in ("l4", "h100", "b200", "rtx 5090")),
    *(Case("small", "t4", policy, 32) for policy in ("float32", "mixed_float16")),
    *(Case("resnet20", "v100", policy, 128) for policy in ("float32", "mixed_float16")),
    Case("recurrent", "a100", "mixed_float16", 16),
    Case("depthwise", "t4", "mixed_float16", 16),
    Case("convolutions", "a100", "mixed_float16", 16),
    *(Case("dense", "a100", policy, 64) for policy in ("float32", "mixed_float16")),
    Case("dense", "a100", "mixed_float16", 1),
    *(Case("float8", card, "mixed_bfloat16", 8192) for card in ("h100", "a100")),
)


def stored(case: Case) -> Compiled:
    """What was compiled for a case, from its file."""
    with zipfile.ZipFile(FOLDER / f"{case.name}.zip") as archive:
        result = json.loads(archive.read("result.json"))
        names = [name for name in archive.namelist() if name.endswith(".hlo")]
        return Compiled(result, {name.removesuffix(".hlo"): archive.read(name) for name in names})


def store(case: Case, compiled: Compiled) -> None:
    FOLDER.mkdir(exist_ok=True)
    with zipfile.ZipFile(FOLDER / f"{case.name}.zip", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("result.json", json.dumps(compiled.result))
        for name, proto in compiled.programs.items():
            archive.writestr(f"{name}.hlo", proto)


def made(case: Case) -> Compiled:
    return compiling.compiled(
        f"tests.forecasts.models:{case.model}", targets.card(case.card), case.policy, case.batch_size
    )


def main(names: list[str]) -> None:
    for case in CASES:
        if not names or case.name in names or case.model in names:
            store(case, made(case))
            print(case.name)


if __name__ == "__main__":
    main(sys.argv[1:])
