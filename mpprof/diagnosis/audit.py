"""Judge a model before its training, by what its layers, policies and optimizer state.

Every rule that has `check_model(model)` is asked. The engine first asks those that judge on records alone
(`ON_RECORDS`), as for a report. The others need kernels as evidence; before any ran, the sizes and kinds of
layers that they look for are a risk, named with the code that removes it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol, cast

from mpprof.analysis.kernels import device_peaks, expected
from mpprof.analysis.layers import flops, kinds
from mpprof.diagnosis import evidence
from mpprof.diagnosis.engine import judge
from mpprof.diagnosis.outcomes import Rule
from mpprof.diagnosis.rules import ALL
from mpprof.diagnosis.shared import float8
from mpprof.diagnosis.signals import Case, Signals
from mpprof.diagnosis.untrained import Note, Untrained
from mpprof.model.audit import AuditNote, AuditReport, MatrixWork
from mpprof.model.device import DeviceFacts
from mpprof.model.finding import SEVERITY_RANK, Unable
from mpprof.model.run import LayerFacts, ModelFacts, Run, RunFacts


class ModelRule(Rule, Protocol):
    """A rule that can say something of a model before it trains."""

    @property
    def check_model(self) -> Callable[[Untrained], Iterator[Note]]: ...


NO_WORKERS = (
    "Keras 3's fit does not support MultiWorkerMirroredStrategy: train with tf_keras, or with Keras 3 on JAX "
    "(keras.distribution)"
)

_FIRST = (
    "MP801",
    "MP802",
    "MP804",
    "MP808",
    "MP806",
    "MP101",
    "MP102",
    "MP104",
    "MP106",
    "MP402",
    "MP410",
    "MP309",
)
"""Among equally bad notes these come first: they decide about the whole model, or most of it. The others
follow in the catalogue's order."""
_OF_THE_CARD = ("MP801", "MP802", "MP804", "MP808")
"""What decides about every layer: where one of these is a loss, it comes before all others."""
_VOCABULARY = "MP402"
"""What it says of a layer's width takes the place of what narrower rules say of that layer."""
ONLY_BEFORE = (_VOCABULARY,)
"""Told before the first step although it is only possible: a vocabulary cannot be padded once the model has
been trained."""


def audit(run: Run, gpu: DeviceFacts | None = None) -> AuditReport:
    """Judge a run of which only the facts are known: the walk over its model, and its `fit` if there was one.

    `gpu`: the card it shall train on; None: any NVIDIA card with Tensor Cores. A device that the facts
    state is not asked: the model may be looked at on another machine."""
    if run.facts is not None:
        run = replace(run, facts=replace(run.facts, devices=() if gpu is None else (gpu,)))
    facts, fit = run.facts, run.last_fit
    model = facts.model if facts else None
    has_units = device_peaks.has_matrix_units(gpu) if gpu else None
    rules = [rule for rule in _model_rules() if has_units is not False or not _is_of_units(rule)]
    on_records = [rule for rule in rules if _is_on_records(rule)]
    case = Case(run)
    judged, signals = judge(case, on_records), Signals(case)
    notes: list[AuditNote] = []
    clear = [*judged.clear, *(each.code for each in judged.not_applicable)]
    if facts is not None:
        found = {finding.code: finding for finding in judged.findings}
        known = model or ModelFacts(None, None, ())
        untrained = Untrained(signals, facts, known, fit, gpu, flops.shares(known.layers), found)
        taken: set[str | None] = set()
        for rule in rules if model else on_records:
            # The two layers in a Bidirectional say the same.
            said = dict.fromkeys(_of(rule, each) for each in rule.check_model(untrained))
            if rule in on_records:
                taken |= {note.layer for note in said if note.code == _VOCABULARY}
                notes += said
            elif mine := [note for note in said if note.layer is None or note.layer not in taken]:
                notes += mine
            else:
                clear.append(rule.CODE)
    late = []
    if gpu is not None and has_units is None:
        why = f"{_called(gpu)} covers cards with Tensor Cores and without: give the card by its name"
        late.append(Unable("MP802", why))
    order = {rule.CODE: place for place, rule in enumerate(rules)}
    worst = {
        code: min(SEVERITY_RANK[n.severity] for n in notes if n.code == code)
        for code in {n.code for n in notes}
    }
    batch = fit.batch_size if fit else None
    work: tuple[MatrixWork, ...] = ()
    if model and gpu and facts:
        work = expected.matrix_work(model.layers, gpu, tf32=facts.tf32_enabled)
    return AuditReport(
        model=model.name if model else None,
        policy=(fit.policy.own or fit.policy.global_name) if fit else None,
        gpu=_called(gpu) if gpu else None,
        batch_size=batch,
        layers=len(model.layers) if model else 0,
        notes=tuple(
            sorted(notes, key=lambda n: (_place(n, worst), order[n.code], SEVERITY_RANK[n.severity]))
        ),
        unable=(*late, *(Unable(unable.code, unable.reason) for unable in judged.unable)),
        clear=tuple(code for code in dict.fromkeys(clear) if code not in worst),
        warnings=_warnings(facts) if facts is not None else (),
        set_policy=str(signals.words["set_policy"]),
        mixed=_mixed(model, fit.policy.own if fit else None, gpu),
        work=work,
        least_ns=expected.least_ns(model.layers, work, gpu, batch) if model and gpu else None,
        pays=has_units,
        policies=_policies(model.layers) if model else (),
        float8=float8.sentence(model.layers) if model else None,
        quantised=_quantised(model.layers) if model else None,
        custom=_custom(model.layers) if model else (),
        multiplies=kinds.multiplies(model) if model else None,
        functions=kinds.products(model) if model else (),
    )


def _policies(layers: Sequence[LayerFacts]) -> tuple[tuple[str, int], ...]:
    """Return the policies of the layers that multiply with weights and how many have each, most first."""
    return tuple(Counter(_named(layer) for layer in expected.multiplying(layers)).most_common())


def _quantised(layers: Sequence[LayerFacts]) -> str | None:
    """Return which layers multiply whole numbers, by the kind of their quantisation; None: none does."""
    names: dict[str, list[str]] = defaultdict(list)
    for layer in expected.multiplying(layers):
        if layer.quantized and layer.quantized != "float8":
            names[layer.quantized].append(layer.name)
    if not names:
        return None
    each = "; ".join(f"to {kind}: {evidence.listed(those)}" for kind, those in names.items())
    return (
        f"Quantised {each}. Their kernels are whole numbers, which training does not change (Keras trains "
        "LoRA's weights beside them), and which unit multiplies them depends on the kernel. Keras refuses "
        "them beside float16"
    )


def _custom(layers: Sequence[LayerFacts]) -> tuple[str, ...]:
    """Return the layers with weights of their own of a class that is not known, nor derives from a known one:
    what they multiply cannot be told."""
    inside = {layer.name: 0 for layer in layers}
    for layer in layers:
        outer = layer.name.rpartition("/")[0]
        if outer in inside:
            inside[outer] += layer.parameters or 0
    return tuple(
        layer.name
        for layer in layers
        if layer.module not in (None, "keras", "tf_keras")
        and layer.base is None
        and (layer.parameters or 0) > inside[layer.name]
    )


def _named(layer: LayerFacts) -> str:
    """Return a layer's policy by its name; where that was not recorded, by the types that it states."""
    if layer.dtype_policy or layer.compute_dtype is None:
        return layer.dtype_policy or "not known"
    wider = layer.variable_dtype not in (None, layer.compute_dtype)
    return f"mixed_{layer.compute_dtype}" if wider else layer.compute_dtype


def _of(rule: Rule, note: Note) -> AuditNote:
    title = note.title or rule.TITLE
    return AuditNote(
        rule.CODE, rule.SLUG, title, note.severity, note.layer, note.reason, note.remedy, note.about
    )


def _place(note: AuditNote, worst: dict[str, int]) -> int:
    """Return the rank of a note: by the worst of its code; what the card itself lacks is before all."""
    lacks = note.code in _OF_THE_CARD and note.severity != "info"
    return -1 if lacks else worst[note.code]


def _called(gpu: DeviceFacts) -> str | None:
    return gpu.name or (f"a GPU of {gpu.architecture}" if gpu.architecture else None)


def _mixed(model: ModelFacts | None, own: str | None, gpu: DeviceFacts | None) -> str:
    """Return the policy to train under: the model's own where that is mixed; of quantised layers the one that
    they were quantised from, or where that is float32 the one that needs no loss scaling, if the card has
    units for it: Keras refuses whole numbers beside float16. A TPU has no units for float16."""
    if gpu is not None and gpu.kind == "tpu":
        return "mixed_bfloat16"
    quantised = [f.dtype_policy or "" for f in (model.layers if model else ()) if f.quantized]
    if any("_float16" in name for name in (own or "", *quantised)):
        return "mixed_float16"
    if "bfloat16" in (own or "") or any(name.startswith("int") for name in quantised):
        return "mixed_bfloat16"
    return "mixed_bfloat16" if quantised and not expected.emulates_bfloat16(gpu) else "mixed_float16"


def _is_of_units(rule: Rule) -> bool:
    """Return whether the rule speaks of matrix units, so that it has nothing to say of a card without."""
    return bool(getattr(rule, "OF_ACCELERATOR", False))


def _model_rules() -> list[ModelRule]:
    """Return the rules that can check a model, in the order of their notes."""
    rules = [cast(ModelRule, rule) for rule in ALL if hasattr(rule, "check_model")]
    return sorted(rules, key=lambda rule: _FIRST.index(rule.CODE) if rule.CODE in _FIRST else len(_FIRST))


def _is_on_records(rule: Rule) -> bool:
    """Return whether the rule's `judge` needs no trace, so that it can be asked before the training, too."""
    return bool(getattr(rule, "ON_RECORDS", False))


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
