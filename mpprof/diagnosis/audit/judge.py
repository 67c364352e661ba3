"""The judgement before the training: what the model's layers, policies and optimizer state by themselves.

Rules that need no trace are the catalogue's own (`RECORDED`). The rest of MP4 wants kernels as evidence;
here, before any ran, the sizes and kinds of layers that those rules look for are named as what they are: a
risk, with the code that removes it.
"""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.layers import flops
from mpprof.diagnosis import shapes
from mpprof.diagnosis.audit.checks import CHECKS, WIDE, WIDE_SINCE, Audited
from mpprof.diagnosis.audit.remedies import REMEDIES, Subject, children, ends, placed, written
from mpprof.diagnosis.engine import judge
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.rules import (
    mp101_built_before_policy,
    mp102_no_loss_scaling,
    mp104_float32_island,
    mp106_float16_output,
    mp402_odd_vocabulary,
)
from mpprof.diagnosis.signals import Case, Signals
from mpprof.model.audit import AuditNote, AuditReport
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import Finding, Unable
from mpprof.model.quantities import format_ratio
from mpprof.model.run import LayerFacts, ModelFacts, Run, RunFacts

RECORDED: tuple[Rule, ...] = (
    mp101_built_before_policy,
    mp102_no_loss_scaling,
    mp104_float32_island,
    mp106_float16_output,
    mp402_odd_vocabulary,
)
"""Rules of the catalogue that judge on records alone."""

NO_WORKERS = (
    "Keras 3's fit does not support MultiWorkerMirroredStrategy: train with tf_keras, or with Keras 3 on JAX "
    "(keras.distribution)"
)

_RANK = {"error": 0, "warning": 1, "info": 2}
_OF_THE_MODEL = frozenset({"MP101", "MP102"})


def audit(run: Run, gpu: DeviceFacts | None = None) -> AuditReport:
    """Judge a run of which only the facts are known: the walk over its model, and its `fit` if there was one.

    `gpu`: the card it shall train on; None: any NVIDIA card with Tensor Cores."""
    facts = run.facts
    model = facts.model if facts else None
    fit = run.last_fit
    case = Case(run)
    judged, signals = judge(case, RECORDED), Signals(case)
    notes = [note for found in judged.findings for note in _notes(found, signals, gpu)]
    clear = [*judged.clear, *(each.code for each in judged.not_applicable)]
    if facts is not None and model is not None:
        capability = gpu.compute_capability if gpu else None
        wide = WIDE if capability and capability >= WIDE_SINCE else shapes.ALIGNMENT
        mine = Audited(signals, facts, model, fit, wide, flops.shares(model.layers))
        taken = {note.layer for note in notes if note.code == mp402_odd_vocabulary.CODE}
        for rule, check in CHECKS:
            found = [note for note in check(mine, rule) if note.layer is None or note.layer not in taken]
            notes += dict.fromkeys(found)  # of the two layers in a Bidirectional the same is said
            if not found:
                clear.append(rule.CODE)
    order = {rule.CODE: place for place, rule in enumerate((*RECORDED, *(rule for rule, _ in CHECKS)))}
    worst = {
        code: min(_RANK[n.severity] for n in notes if n.code == code) for code in {n.code for n in notes}
    }
    return AuditReport(
        model=model.name if model else None,
        policy=(fit.policy.own or fit.policy.global_name) if fit else None,
        gpu=gpu.name or None if gpu else None,
        batch_size=fit.batch_size if fit else None,
        layers=len(model.layers) if model else 0,
        notes=tuple(sorted(notes, key=lambda n: (worst[n.code], order[n.code], _RANK[n.severity]))),
        unable=tuple(Unable(unable.code, unable.reason) for unable in judged.unable),
        clear=tuple(code for code in dict.fromkeys(clear) if code not in worst),
        warnings=_warnings(facts) if facts is not None else (),
        set_policy=str(signals.words["set_policy"]),
        mixed="mixed_bfloat16" if model and any(f.quantized for f in model.layers) else "mixed_float16",
    )


def _warnings(facts: RunFacts) -> tuple[str, ...]:
    left_out = facts.absent.get("model.layers")
    said = (NO_WORKERS if _workers_of_keras_3(facts) else None, left_out and f"not judged: {left_out}")
    return tuple(filter(None, said))


def _workers_of_keras_3(facts: RunFacts) -> bool:
    return (
        facts.distribution == "MultiWorkerMirroredStrategy"
        and facts.framework.get("backend") == "tensorflow"
        and facts.framework.get("keras_package") != "tf_keras"
    )


def _notes(found: Finding, signals: Signals, gpu: DeviceFacts | None) -> Iterator[AuditNote]:
    """A cause of the catalogue, layer by layer, each under the name of what stands in the model's script."""
    run = signals.case.run
    model = run.facts.model if run.facts else None
    layers = {layer.name: layer for layer in model.layers} if model else {}
    named: tuple[str | None, ...] = tuple(dict.fromkeys(found.layers))
    notes: dict[AuditNote, None] = {}
    for name in (None,) if found.code in _OF_THE_MODEL else named or (None,):
        layer = layers.get(name or "")
        if layer is not None and model is not None and found.code == mp106_float16_output.CODE:
            layer = _last_within(model, layer)
        subject = Subject(signals, model, run.last_fit, layer)
        outermost = placed(subject.layers, layer, written)[0] if layer is not None else name
        remedy = REMEDIES[found.code](subject) if found.code in REMEDIES else _code(found)
        reason = _reason(found, run, layer, gpu)
        note = AuditNote(found.code, found.slug, found.title, found.severity, outermost, reason, remedy)
        notes[note] = None
    yield from notes


def _code(found: Finding) -> str:
    """The code of the finding's first remedy; what it says where that has none."""
    return next((each.snippet for each in found.remedies if each.snippet), found.remedy)


def _last_within(model: ModelFacts, layer: LayerFacts) -> LayerFacts:
    """The layer that makes the output of a nested model."""
    while layer.kind in ("Functional", "Sequential") and (inside := children(model.layers, layer)):
        layer = inside[-1]
    return layer


def _reason(found: Finding, run: Run, layer: LayerFacts | None, gpu: DeviceFacts | None) -> str:
    """What is so with this one layer; a finding's own sentence lists them all."""
    if found.code == mp104_float32_island.CODE:
        if layer is not None and layer.compute_dtype != "float32":
            return f"computes in {layer.compute_dtype} and gives float32: it casts within"
        own = "computes in float32 by its own policy"
        facts = run.facts
        if layer is None or facts is None or facts.model is None or layer.name not in ends(facts.model):
            return own
        return f"{own}: {_of_a_head(facts, facts.model, layer, gpu)}"
    if found.code == mp106_float16_output.CODE and layer is not None and layer.output_dtype:
        return f"gives {layer.output_dtype} to the loss, which is computed from rounded values"
    return found.summary


def _of_a_head(facts: RunFacts, model: ModelFacts, layer: LayerFacts, gpu: DeviceFacts | None) -> str:
    """What a large last layer costs that is float32 as a whole, and not its activation alone."""
    share = flops.shares(model.layers).get(layer.name)
    part = f", {format_ratio(share)} of the model's multiplications," if share is not None else ""
    said = f"its product with {shapes.width(layer) or 0:,} outputs{part}"
    if gpu is None:
        return f"{said} then has half the 16-bit rate (TF32) at best"
    peaks = device_peaks.peaks(gpu)
    rates = peaks.flops_per_s if peaks is not None else {}
    tf32 = rates.get("tf32") if facts.tf32_enabled is not False else None
    wide, narrow = tf32 or rates.get("fp32_cuda"), rates.get("fp16")
    if not wide or not narrow:
        return f"{said} is then float32 as well"
    times = narrow / wide
    longer = f": {format_ratio(share * (times - 1))} more matrix time" if share is not None else ""
    kind = "TF32" if tf32 else "float32"
    return f"{said} then runs {times:.2g} times slower at peak rates ({kind}){longer}"
