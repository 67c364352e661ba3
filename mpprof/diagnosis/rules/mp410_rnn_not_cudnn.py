"""An LSTM or GRU cannot use cuDNN's kernel and runs as a loop.

What it means
    On TensorFlow and torch, Keras takes cuDNN's recurrent kernel only for the default arguments. With
    anything else it runs a loop of thousands of tiny kernels, which mixed precision makes smaller still.

How we know
    The recorded arguments of the layer: an activation other than tanh, a recurrent activation other than
    sigmoid, `recurrent_dropout`, `unroll`, no bias, or (GRU) `reset_after=False`. The type does not matter:
    cuDNN's op takes float16 and bfloat16, too. On TensorFlow a mask does not matter either, as long as
    sequences are padded on the right; on torch any mask rules it out, and so does jit_compile=True.

What it costs
    The difference between the loop and cuDNN's kernel, which one run cannot show; its launches appear as
    MP302.

When to ignore
    When the arguments are the point of the model, or XLA or torch.compile compiles the loop.

Sources
    Read in Keras 3.15.1 (`rnn/lstm.py`, `_do_lstm_arguments_support_cudnn`, `_assert_valid_mask`; torch's
    `rnn.py`, `cudnn_ok`) and tf_keras 2.21 (`rnn/lstm.py`, `is_cudnn_supported_inputs`); the types of
    `CudnnRNNV3` in TensorFlow 2.21; tf#29506; keras#14047, keras#15140.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from mpprof.analysis.layers.kinds import BACKENDS, DEFAULTS, RECURRENT, against_cudnn, against_cudnn_on_torch
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies.layer_code import children, in_place, written

CODE, SLUG, TITLE = "MP410", "rnn-not-cudnn", "A recurrent layer runs as a loop"
ABOUT = "recurrent layers without cuDNN"
SAYS = "{layers} run{s} as a loop: cuDNN's kernel is ruled out"
SPECIFICITY = CONFIGURED
OF_ACCELERATOR = True


def judge(signals: Signals) -> Outcome:
    recurrent = [f for f in need(signals.layers) if f.kind in RECURRENT]
    if not recurrent:
        return NotApplicable("the model has no LSTM or GRU")
    if known(signals.backend) not in BACKENDS:
        return NotApplicable("Keras uses cuDNN's recurrent kernel on TensorFlow and torch only")
    facts = need(signals.facts)
    reasons = {
        layer.name: [*against_cudnn(layer).values(), *against_cudnn_on_torch(layer, facts)]
        for layer in recurrent
    }
    wrong = {name: ", ".join(words) for name, words in reasons.items() if words}
    if not wrong:
        if any(key in layer.config for layer in recurrent for key in DEFAULTS):
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


def check_model(model: Untrained) -> Iterator[Note]:
    """Yield a note for each LSTM and GRU whose arguments rule cuDNN out, and for recurrent layers that never
    use it."""
    if model.run.framework.get("backend") not in BACKENDS:
        return
    for layer in model.layers:
        wrong = against_cudnn(layer)
        if wrong:
            name, code = model.placed(layer, lambda one: _for_cudnn(one, model.policy))
            reason = f"{', '.join(wrong.values())}: cuDNN's kernel is ruled out"
            yield Note("warning", name, reason, code)
        elif layer.kind == "RNN":
            yield from _cell(model, layer)
        elif layer.kind == "SimpleRNN":
            yield _simple(model, layer)
        elif causes := against_cudnn_on_torch(layer, model.run):
            yield Note(
                "warning",
                model.placed(layer, written)[0],
                f"{' and '.join(causes)}: Keras on torch then runs a loop",
                _without_on_torch(causes),
            )
        if not model.on_tensorflow:
            continue
        if model.is_masked(layer) and layer.kind in RECURRENT and not wrong:
            what = "falls back to a loop" if layer.module == "tf_keras" else "stops with an error"
            yield Note(
                "info",
                model.placed(layer, written)[0],
                f"gets a mask: with sequences that are not right-padded it {what} on a GPU",
                f'x = {model.keras}.utils.pad_sequences(sequences, padding="post")  # its default is "pre"',
                "A masked recurrent layer needs right-padded sequences",
            )


def _for_cudnn(layer: LayerFacts, own_policy: str | None) -> str:
    return in_place(layer, own_policy, drop=against_cudnn(layer))


def _without_on_torch(causes: list[str]) -> str:
    remedies = {
        "a mask": "keras.layers.Embedding(..., mask_zero=False)  # and no Masking layer: padding then counts",
        "jit_compile=True": "model.compile(..., jit_compile=False)",
    }
    return "\n".join(remedies[cause] for cause in causes)


_FUSED = {"LSTMCell": "LSTM", "GRUCell": "GRU"}
_LOOP = "A recurrent layer that cuDNN does not know runs as a loop"


def _simple(model: Untrained, layer: LayerFacts) -> Note:
    name, code = model.placed(
        layer,
        lambda one: _for_cudnn(replace(one, class_name="GRU", base=None, module=model.keras), model.policy),
    )
    reason = "Keras has a cuDNN kernel for GRU, but not for SimpleRNN"
    return Note("info", name, reason, f"{code}  # another model, with three times the weights", _LOOP)


def _cell(model: Untrained, layer: LayerFacts) -> Iterator[Note]:
    """Yield a note for a layer of the form `RNN(LSTMCell(...))`, which is `LSTM(...)` without cuDNN; several
    cells are several layers."""
    layers = model.layers
    inside = children(layers, layer)
    stacked = inside[0].kind == "StackedRNNCells" if len(inside) == 1 else False
    cells = children(layers, inside[0]) if stacked else inside
    if not cells:
        return
    kinds_of = [cell.kind for cell in cells]
    if any(kind not in _FUSED for kind in kinds_of) or (stacked and "return_state" in layer.arguments):
        yield Note(
            "info",
            model.placed(layer, written)[0],
            f"RNN({', '.join(cell.class_name for cell in cells)}(...)) never uses cuDNN's kernel",
            model.snippet("MP309", "obstacles"),
            _LOOP,
        )
        return

    def write(one: LayerFacts) -> str:
        inside = children(layers, one)
        if stacked:
            return _stack(model, one, children(layers, inside[0]))
        return _fused(model, one, inside[0], one.arguments)

    each = ", ".join(f"{kind}(...)" for kind in kinds_of)
    fused = " and ".join(dict.fromkeys(f"{_FUSED[kind]}(...)" for kind in kinds_of))
    name, code = model.placed(layer, write)
    reason = f"RNN({f'[{each}]' if stacked else each}) never uses cuDNN's kernel, "
    reason += f"layers of {fused} do" if stacked else f"{fused} does"
    yield Note("warning", name, reason, code)


def _fused(model: Untrained, layer: LayerFacts, cell: LayerFacts, given: dict[str, str]) -> str:
    """Return an LSTM or GRU with the arguments of the cell, but for those that rule cuDNN out, and of its
    RNN."""
    kind = _FUSED[cell.kind]
    ruled_out = against_cudnn(replace(cell, class_name=kind, base=None))
    arguments = {k: v for k, v in cell.arguments.items() if k != "name" and k not in ruled_out}
    arguments |= {k: v for k, v in given.items() if k not in ("cell", "unroll")}
    return written(replace(layer, class_name=kind, module=model.keras, arguments=arguments))


def _stack(model: Untrained, layer: LayerFacts, cells: Sequence[LayerFacts]) -> str:
    """Return one layer for each of several cells; all but the last return their sequences."""
    outer = {k: v for k, v in layer.arguments.items() if k not in ("cell", "name", "go_backwards")}
    parts = []
    for place, cell in enumerate(cells):
        given = outer | ({"return_sequences": "True"} if place < len(cells) - 1 else {})
        if place == 0 and "go_backwards" in layer.arguments:
            given["go_backwards"] = layer.arguments["go_backwards"]
        parts.append(_fused(model, layer, cell, given))
    name = f", name={layer.arguments['name']}" if "name" in layer.arguments else ""
    return f"{model.keras}.Sequential([{', '.join(parts)}]{name})"
