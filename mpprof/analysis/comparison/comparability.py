"""In which respects two runs differ beside their precision, and when that leaves nothing to compare.

What both recorded is compared; cards are those of the records or, failing them, of the traces. What only one
side states is reported as not known to be the same.
"""

from __future__ import annotations

from mpprof.model.account import Account, StepUnit
from mpprof.model.device import DeviceFacts, DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.kernels import Precision
from mpprof.model.quantities import format_flops_per_s
from mpprof.model.run import Run

_FRAMEWORK = (
    "keras", "backend", "backend_version", "cuda", "cudnn", "xla_flags", "matmul_precision",
    "command_buffers", "autotune_level",
)  # fmt: skip
_RATES = (("tf32", "TF32 on matrix units"), ("fp32_cuda", "float32"))


@frozen
class Side:
    """One run of a comparison. `device`: its main accelerator as the trace, or else the records, name it."""

    run: Run
    device: DeviceFacts | None = None
    peaks: DevicePeaks | None = None
    ran: Precision | None = None  # what most of its matrix time computed in
    account: Account | None = None  # of its trace's steps


def unlike(one: Side, other: Side) -> tuple[str, ...]:
    """Return how the two runs differ besides the precision, each difference as a short text; empty:
    comparable.

    What neither recorded is passed over, unless one of them has no records at all.
    """
    labels = [cards] if (cards := other_card(one, other)) else []
    if one.run.facts is None or other.run.facts is None:
        missing = " and ".join(side.run.name for side in (one, other) if side.run.facts is None)
        return (
            *labels,
            f"not known to have the same batch, model, settings and versions: no records of {missing}",
        )
    known = dict(_conditions(one.run))
    labels += [
        f"{name}: {_said(known[name])} against {_said(second)}"
        for name, second in _conditions(other.run)
        if known[name] != second
    ]
    kinds = [_layer_classes(side.run) for side in (one, other)]
    if kinds[0] is not None and kinds[1] is not None and kinds[0] != kinds[1]:
        labels.append("model: the layers are not of the same kinds in the same order")
    return tuple(labels)


def same_run(one: Run, other: Run) -> bool:
    """Return whether both are one run, by the id of its records or, without any, by its trace; two ranges of
    steps of it are two."""
    if one.step_range != other.step_range:
        return False
    if one.facts is None or other.facts is None:
        return [trace.resolve() for trace in one.traces] == [trace.resolve() for trace in other.traces]
    return one.facts.run_id == other.facts.run_id


def refusal(one: Side, other: Side) -> str | None:
    """Return why the two runs cannot be compared at all: they train different models. None: they may be
    compared."""
    models = [side.run.model for side in (one, other)]
    kinds = [_layer_classes(side.run) for side in (one, other)]
    if models[0] is None or models[1] is None or not kinds[0] or not kinds[1] or kinds[0] == kinds[1]:
        return None
    sizes = [model.parameters for model in models if model]
    if None in sizes or sizes[0] == sizes[1]:
        return None
    return (
        f"they train different models: {len(kinds[0])} layers with {sizes[0]:,} parameters, and "
        f"{len(kinds[1])} with {sizes[1]:,}; record both runs of one model"
    )


def not_steps(one: Side, other: Side) -> str | None:
    """Return why the times of two traces are not those of the same steps; None where they are, where both are
    passes of one module or program, or where a trace shows none."""
    accounts = one.account, other.account
    if accounts[0] is None or accounts[1] is None:
        return None
    kinds = [(account.unit, account.unit_name) for account in accounts if account is not None]
    if kinds[0] == kinds[1] and kinds[0][0] in ("step", "pass"):
        return None
    shown = [f"{side.run.name} shows {_shown(*kind)}" for side, kind in zip((one, other), kinds, strict=True)]
    return f"not compared: {', and '.join(shown)}; --step-range names ranges that both have"


def _shown(unit: StepUnit, name: str) -> str:
    if unit == "part":
        return "a part that repeats, which may be a layer"
    return f"passes of {name}" if unit == "pass" else "steps"


def other_card(one: Side, other: Side) -> str | None:
    """Return the two cards, where they are known to differ: "device: A100 against V100"; None: they are not
    known to differ."""
    names = [_card(side) for side in (one, other)]
    if names[0] is None or names[1] is None or names[0] == names[1]:
        return None
    devices = [side.device or _recorded(side.run) for side in (one, other)]
    capabilities = [device.compute_capability if device else None for device in devices]
    if capabilities[0] == capabilities[1] and not all(device and device.name for device in devices):
        return None  # one is named and the other described by what it can do, which is the same
    return f"device: {names[0]} against {names[1]}"


def _card(side: Side) -> str | None:
    device = side.device or _recorded(side.run)
    if device is None:
        return None
    return device.name or device.architecture


def rates(one: Side, other: Side) -> str | None:
    """Return what the two cards can do at their peaks, side by side; None where the peaks are alike or not
    known."""
    if one.peaks is None or other.peaks is None or other_card(one, other) is None:
        return None
    parts = []
    first, last = one.peaks.bandwidth_bytes_per_s, other.peaks.bandwidth_bytes_per_s
    if first and last:
        parts.append(f"memory {first / 1e9:,.0f} -> {last / 1e9:,.0f} GB/s")
    for key, name in _RATES:
        before, after = (side.flops_per_s.get(key) for side in (one.peaks, other.peaks))
        if before or after:
            said = [format_flops_per_s(rate) if rate else "none" for rate in (before, after)]
            parts.append(f"{name} {said[0]} -> {said[1]}")
    return f"the cards' peaks: {', '.join(parts)}" if parts else None


def _layer_classes(run: Run) -> list[str] | None:
    model = run.model
    return [layer.class_name for layer in model.layers] if model else None


def _said(value: object) -> str:
    return "not recorded" if value is None else str(value)


def _recorded(run: Run) -> DeviceFacts | None:
    devices = run.devices
    return next((device for device in devices if device.kind != "cpu"), next(iter(devices), None))


def settings(run: Run) -> dict[str, object]:
    """Return what a run recorded of its settings, by name; empty: it has no records."""
    return dict(_conditions(run))


def _conditions(run: Run) -> list[tuple[str, object]]:
    facts, fit = run.facts, run.last_fit
    if facts is None:
        return []
    framework, model, device = facts.framework, facts.model, _recorded(run)
    return [
        ("batch size", fit.batch_size if fit else None),
        ("model parameters", model.parameters if model else None),
        ("layers", len(model.layers) if model else None),
        ("optimizer", (fit.optimizer.inner or fit.optimizer.class_name) if fit else None),
        ("devices", sum(d.kind == device.kind for d in facts.devices) if device else None),
        ("replicas", facts.replicas),
        ("TF32", facts.tf32_enabled),
        ("XLA (jit_compile)", fit.jit_compile if fit else None),
        ("eager", fit.run_eagerly if fit else None),
        ("steps per execution", fit.steps_per_execution if fit else None),
        ("gradient accumulation", fit.gradient_accumulation_steps if fit else None),
        ("deterministic ops", facts.deterministic_ops),
        ("driver", device.driver if device else None),
        *((key, framework.get(key)) for key in _FRAMEWORK),
    ]
