"""Which recorded arguments of a recurrent layer rule cuDNN's kernel out."""

from __future__ import annotations

from mpprof.model.run import LayerFacts, RunFacts

RECURRENT = ("LSTM", "GRU")
BACKENDS = (None, "tensorflow", "torch")
"""Whose recurrent layers may be cuDNN's; None: an old record, which was of TensorFlow."""
DEFAULTS = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "recurrent_dropout": 0,
    "unroll": False,
    "use_bias": True,
    "reset_after": True,
}


def against_cudnn(layer: LayerFacts) -> dict[str, str]:
    """Return {argument: as it is written} of what rules cuDNN out; empty where nothing does, and for other
    layers."""
    if layer.kind not in RECURRENT:
        return {}
    return {
        key: f"{key}={layer.config[key]!r}"
        for key, default in DEFAULTS.items()
        if key in layer.config and layer.config[key] != default
    }


def takes_cudnn(layer: LayerFacts) -> bool:
    """Return whether Keras on TensorFlow takes cuDNN's kernel for the layer on a GPU, which no XLA program
    can hold."""
    return layer.config.get("use_cudnn") in ("auto", True) and not against_cudnn(layer)


def against_cudnn_on_torch(layer: LayerFacts, run: RunFacts) -> list[str]:
    """Return what rules cuDNN out on torch alone; empty on another backend, and for other layers."""
    if layer.kind not in RECURRENT or run.framework.get("backend") != "torch":
        return []
    compiled = any(fit.jit_compile is True for fit in run.fits)
    return [*(["a mask"] if layer.masked else []), *(["jit_compile=True"] if compiled else [])]
