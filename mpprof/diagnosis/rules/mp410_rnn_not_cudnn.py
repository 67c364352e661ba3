"""An LSTM or GRU cannot use cuDNN's kernel and runs as a loop.

What it means
    On TensorFlow and torch, Keras takes cuDNN's recurrent kernel only for the default arguments. With
    anything else it runs a loop of thousands of tiny kernels, which mixed precision makes smaller still.

How we know
    The recorded arguments of the layer: an activation other than tanh, a recurrent activation other than
    sigmoid, `recurrent_dropout`, `unroll`, no bias, or (GRU) `reset_after=False`. The type is no reason:
    cuDNN's op takes float16 and bfloat16, too. On TensorFlow a mask is none either, as long as sequences are
    padded on the right; on torch any mask is one, and so is jit_compile=True.

What it costs
    The difference between the loop and cuDNN's kernel, which one run cannot show; its launches appear as
    MP302.

What to do
    Go back to the defaults, and ask for an error instead of silence:

        keras.layers.LSTM(256, use_cudnn=True)

When to ignore
    When the arguments are the point of the model, or XLA or torch.compile compiles the loop.

Sources
    Read in Keras 3.15.1 (`rnn/lstm.py`, `_do_lstm_arguments_support_cudnn`, `_assert_valid_mask`; torch's
    `rnn.py`, `cudnn_ok`) and tf_keras 2.21 (`rnn/lstm.py`, `is_cudnn_supported_inputs`); the types of
    `CudnnRNNV3` in TensorFlow 2.21; tf#29506; keras#14047, keras#15140.
"""

from __future__ import annotations

from mpprof.diagnosis import evidence
from mpprof.diagnosis.outcomes import CONFIGURED, Clear, Found, NotApplicable, Outcome, Unable, known, need
from mpprof.diagnosis.signals import Signals
from mpprof.model.run import LayerFacts, RunFacts

CODE, SLUG, TITLE = "MP410", "rnn-not-cudnn", "A recurrent layer runs as a loop"
ABOUT = "recurrent layers without cuDNN"
SPECIFICITY = CONFIGURED
BOUND = "device"

RECURRENT = ("LSTM", "GRU")
BACKENDS = (None, "tensorflow", "torch")
"""Whose recurrent layers may be cuDNN's; None: an old record, which was of TensorFlow."""
_DEFAULTS = {
    "activation": "tanh",
    "recurrent_activation": "sigmoid",
    "recurrent_dropout": 0,
    "unroll": False,
    "use_bias": True,
    "reset_after": True,
}


def judge(signals: Signals) -> Outcome:
    recurrent = [f for f in need(signals.layers) if f.kind in RECURRENT]
    if not recurrent:
        return NotApplicable("the model has no LSTM or GRU")
    if known(signals.backend) not in BACKENDS:
        return NotApplicable("Keras uses cuDNN's recurrent kernel on TensorFlow and torch only")
    if signals.on_cpu:
        return Unable("the run used no GPU")
    facts = need(signals.facts)
    reasons = {
        layer.name: [*against_cudnn(layer).values(), *against_cudnn_on_torch(layer, facts)]
        for layer in recurrent
    }
    wrong = {name: ", ".join(words) for name, words in reasons.items() if words}
    if not wrong:
        if any(key in layer.config for layer in recurrent for key in _DEFAULTS):
            return Clear("the arguments allow cuDNN's kernel")
        return Clear("no argument was recorded that rules cuDNN out")
    listed = evidence.listed([f"{name} ({words})" for name, words in wrong.items()])
    return Found(
        summary=f"{listed}: cuDNN's kernel is ruled out, and the layer runs as a loop",
        evidence=tuple(evidence.text(name, words) for name, words in wrong.items()),
        confidence="medium",
        severity="warning",
        layers=tuple(wrong),
    )


def against_cudnn(layer: LayerFacts) -> dict[str, str]:
    """{argument: as it is written} of what rules cuDNN out; empty where nothing does, and of other layers."""
    if layer.kind not in RECURRENT:
        return {}
    return {
        key: f"{key}={layer.config[key]!r}"
        for key, default in _DEFAULTS.items()
        if key in layer.config and layer.config[key] != default
    }


def against_cudnn_on_torch(layer: LayerFacts, run: RunFacts) -> list[str]:
    """What rules cuDNN out on torch alone; empty on another backend, and of other layers."""
    if layer.kind not in RECURRENT or run.framework.get("backend") != "torch":
        return []
    compiled = any(fit.jit_compile is True for fit in run.fits)
    return [*(["a mask"] if layer.masked else []), *(["jit_compile=True"] if compiled else [])]
