"""Deterministic ops are switched on.

What it means
    `enable_op_determinism` forbids fast kernels whose sums change order, and keeps Keras from choosing XLA
    (`jit_compile="auto"`).

How we know
    The switch, as the run recorded it.

What it costs
    Not known without a run that has it off. Users report steps from 6 % to more than 7 times longer.

When to ignore
    When the result must be reproducible to the bit.

Sources
    tf#62100 (80 s -> more than 10 min on a T4), NVIDIA/framework-reproducibility#10 (about 6 %). Read in
    Keras 3.15.1: `model_supports_jit` is False under determinism.
"""

from __future__ import annotations

from mpprof.diagnosis.prelude import *

CODE, SLUG, TITLE = "MP307", "determinism", "Deterministic ops are switched on"
ABOUT = "deterministic ops"
SAYS = "deterministic ops are on: their kernels are slower, and XLA is never chosen by itself"


def judge(signals: Signals) -> Outcome:
    switched = need(signals.facts).deterministic_ops
    if switched is None:
        return Unable(f"whether ops are deterministic was not recorded{signals.hint('record run')}")
    if not switched:
        return Clear("ops need not be deterministic")
    return Found(
        summary="deterministic ops are switched on: slower kernels, and no automatic XLA",
        evidence=(evidence.text("deterministic ops", True),),
        confidence="medium",
        severity="info" if signals.on_cpu else "warning",
    )
