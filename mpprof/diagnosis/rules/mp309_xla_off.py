"""XLA is off for the whole model because of one layer or setting.

What it means
    `jit_compile="auto"` is decided for the whole model. One layer that XLA cannot compile (an LSTM or GRU
    that may use cuDNN, many preprocessing layers), a `tf.distribute` strategy or deterministic ops turn it
    off, and norms, casts and elementwise work stay unfused.

How we know
    `jit_compile` is recorded as off, and so is a reason: a layer whose `supports_jit` is False, a strategy,
    or determinism. If there is no such reason, the script turned XLA off; this is reported only for a 16-bit
    run in which XLA would have much to fuse. Without a record the trace shows whether XLA compiles the step.

What it costs
    The part of norms, casts and elementwise work that fusion would save. One run cannot show how much that
    is.

When to ignore
    When cuDNN's LSTM is most of the step: it is faster than XLA's loop.

Sources
    Read in Keras 3.15.1: `trainer.py` (`_resolve_auto_jit_compile`, `model_supports_jit`), `rnn/lstm.py`.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.analysis.layers.kinds import takes_cudnn
from mpprof.diagnosis.prelude import *
from mpprof.diagnosis.remedies import conditions

CODE, SLUG, TITLE = "MP309", "xla-off", "XLA is off for the whole model"
ABOUT = "norms and elementwise work that XLA would fuse"

FUSIBLE: tuple[Class, ...] = ("norm", "elementwise", "cast", "reduce")
_EVIDENCE = "norms, casts, sums and elementwise work"
WARNING_RATIO = 0.30
"""With a third of the step in what XLA would fuse, the obstacle is worth removing."""


def judge(signals: Signals) -> Outcome:
    if known(signals.backend) not in (None, "tensorflow"):
        return NotApplicable("the backend compiles by itself")
    if known(signals.fit) is None and signals.on_cpu:
        return NO_GPU  # what fusion gains on a CPU says nothing about a GPU
    if known(signals.fit) is None and (compiled := conditions.compiled_by_xla(signals)) is not None:
        return Clear("XLA compiles the step") if compiled else _by_choice(signals, _fusible(signals))
    fit, facts = need(signals.fit), need(signals.facts)
    if fit.jit_compile is None:
        return Unable(f"whether XLA compiles the model was not recorded{signals.hint('record model')}")
    if fit.jit_compile is not False:
        return Clear("XLA compiles the model")
    obstacles = [f"{f.name} ({f.class_name})" for f in need(signals.layers) if f.supports_jit is False]
    if facts.distribution:
        obstacles.append(facts.distribution)
    if facts.deterministic_ops:
        obstacles.append("deterministic ops")
    # On a CPU fusion says nothing about what a GPU would gain.
    share = None if signals.on_cpu else _fusible(signals)
    if not obstacles:
        return _by_choice(signals, share)
    return Found(
        summary=f"XLA is off because of {evidence.listed(obstacles)}"
        + (f", with {format_ratio(share)} of the step in work that it would fuse" if share else ""),
        cases=(*_obstacles(signals), "obstacles"),
        evidence=(
            evidence.text("obstacles", evidence.listed(obstacles)),
            *((evidence.ratio(_EVIDENCE, share, WARNING_RATIO),) if share is not None else ()),
        ),
        confidence="medium",
        severity="warning" if share is not None and share >= WARNING_RATIO else "info",
        layers=tuple(f.name for f in need(signals.layers) if f.supports_jit is False),
    )


def _fusible(signals: Signals) -> float | None:
    """Return the share of the step in work that XLA would fuse; None without an account. Pooling does not
    count: its windows overlap, and XLA gives it a kernel of its own, too."""
    if known(signals.activity) is None:
        return None
    rows = signals.select(lambda cell: cell.category in FUSIBLE and cell.family != "pool")
    return signals.time(rows) / signals.whole_ns if signals.whole_ns > 0 else None


def _by_choice(signals: Signals, share: float | None) -> Outcome:
    """Judge a run in which nothing prevents XLA: a mention is worth it where XLA would have something to
    fuse."""
    if share is None or share < WARNING_RATIO:
        return Clear("XLA is off, and little was found that it would fuse")
    if signals.wide:
        return NOT_IN_16_BITS
    if signals.half is None:
        return Unable(signals.computes.reason)
    return Found(
        summary=f"XLA is off, with {format_ratio(share)} of the step in work that it would fuse",
        evidence=(evidence.ratio(_EVIDENCE, share, WARNING_RATIO),),
        confidence="medium",
        severity="info",
    )


def _obstacles(signals: Signals) -> tuple[str, ...]:
    """Return the kinds of obstacles to XLA, as far as something can be done about each."""
    facts = need(signals.facts)
    refusing = [f for f in need(signals.layers) if f.supports_jit is False]
    cases = [
        "recurrent" if kinds.is_recurrent(f) else "preprocessing" if kinds.is_entry(f) else "layer"
        for f in refusing
    ]
    return tuple(dict.fromkeys([*cases, *(["determinism"] if facts.deterministic_ops else [])]))


def check_model(model: Untrained) -> Iterator[Note]:
    """Yield each thing that turns `jit_compile="auto"` off, by itself."""
    if not model.on_tensorflow or (model.fit is not None and model.fit.jit_compile is True):
        return
    for layer in model.layers:
        if model.run.is_keras_2:  # which never compiles unless asked
            break
        if takes_cudnn(layer):
            # On a machine without a GPU Keras has not yet decided against XLA for cuDNN's sake.
            name, code = model.changed(layer, use_cudnn=False)
            reason = "on a GPU Keras uses cuDNN for it, and turns XLA off for the whole model"
            code = f"{code}  # if the other layers take most of the step"
            yield Note("info", name, reason, code, "A recurrent layer turns XLA off")
        elif layer.supports_jit is False:
            reason = f"XLA cannot compile {layer.class_name}, so XLA is off for the whole model"
            yield Note("info", layer.name, reason, _moved_out(model, layer), "A layer turns XLA off")
    if model.run.distribution:
        reason = f"Keras compiles nothing by itself under {model.run.distribution}"
        yield Note("info", None, reason, model.snippet(CODE, "obstacles"))
    if model.run.deterministic_ops:
        reason, advice = "with deterministic ops Keras never uses XLA", model.signals.advice("MP307")
        yield Note("info", None, reason, f"# {advice}")


def _moved_out(model: Untrained, layer: LayerFacts) -> str:
    if not kinds.is_entry(layer):
        return f"# {layer.class_name}.supports_jit = True, once its call() holds no op that XLA lacks"
    top = layer.name.partition("/")[0]
    return (
        f'outside = model.get_layer("{top}")\n'
        f"model = {model.keras}.Sequential([one for one in model.layers if one is not outside])\n"
        "# and: data = data.map(lambda x, y: (outside(x, training=True), y))"
    )
