"""Remedies for the run at hand: nothing that is on already, and nothing that its backend refuses."""

from __future__ import annotations

from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.signals import Signals


def advice(signals: Signals, *options: str) -> str:
    """The options that would change something here, joined; all of them where nothing was recorded.

    `steps_per_execution` must be 1 on torch (read in Keras 3.15.1, `backend/torch/trainer.py`), and
    `TF_GPU_THREAD_MODE` is TensorFlow's alone.
    """
    fit, backend = known(signals.fit), known(signals.backend)
    void = {
        "jit_compile=True": fit is not None and bool(fit.jit_compile),
        "steps_per_execution": backend == "torch" or (fit is not None and (fit.steps_per_execution or 1) > 1),
        "TF_GPU_THREAD_MODE": backend != "tensorflow",
    }
    kept = [option for option in options if not any(off and name in option for name, off in void.items())]
    return "; ".join(kept)
