"""From what a child compiled to a `CardForecast`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from mpprof.forecasts import deciding, float8, least_time
from mpprof.forecasts.deciding import Asked, Decision, Program
from mpprof.forecasts.targets import Card
from mpprof.model.account import Phase
from mpprof.model.forecast import (
    AliveBytes,
    Band,
    BatchBytes,
    CardForecast,
    ForecastKernel,
    ForecastMemory,
    ForecastSpeedup,
    Obstacle,
)
from mpprof.model.frozen import frozen
from mpprof.model.kernels import MATMUL_FAMILIES, Precision
from mpprof.model.run import ModelFacts
from mpprof.traces.common.hlo_program import Launch, launches

NOT_INCLUDED = (
    "the workspaces of cuDNN's convolutions, which it chooses on the card",
    "what the framework's allocator and the CUDA context take in addition to the step",
)
_ALWAYS_UNKNOWN = (
    "the input pipeline and the host: a step that waits for them gains less from a faster card, or nothing",
    "TensorFlow: without XLA it launches other kernels, and with XLA it lowers the step in its own way",
)


@frozen
class Compiled:
    """What the child gave for one card and policy: `result.json`, and the programs' HloProtos by name."""

    result: Mapping[str, Any]
    programs: Mapping[str, bytes]


@frozen
class _Judged:
    """One program with what is decided of it."""

    program: Program
    asked: dict[int, Asked]
    decisions: tuple[Decision, ...]


def card_forecast(
    compiled: Compiled, card: Card, model: ModelFacts | None, float32: Compiled | None
) -> CardForecast:
    """Return the forecast of one card and policy. `float32`: the same model and card in float32, for the
    speedup; None where that was not compiled."""
    result = compiled.result
    source = launches(compiled.programs["source"])
    own, library = _both(compiled, source, card, model)
    kernels = tuple(_kernel(own, at, card) for at in range(len(own.program.launches)))
    recurrent = frozenset(result["recurrent_layers"])
    at_least = _at_least(own, library, card, recurrent)
    model_flops = sum(kernel.flops or 0.0 for kernel in kernels)
    shares = _shares(kernels, model_flops)
    return CardForecast(
        card=card.name,
        policy=str(result["policy"]),
        batch_size=int(result["batch_size"]),
        memory=replace(_memory(result), alive=_alive(own.program, result), card_bytes=card.memory_bytes),
        card_memory_bytes=card.memory_bytes,
        at_least_ns=at_least,
        typical_ns=None,
        speedup=None if recurrent else _speedup(own, card, str(result["policy"]), float32, model),
        can_ratio=shares[0],
        cannot_ratio=shares[1],
        open_ratio=shares[2],
        decided_ratio=shares[3],
        model_flops=model_flops,
        executed_flops=sum(kernel.executed_flops or 0.0 for kernel in kernels),
        kernels=kernels,
        obstacles=_obstacles(kernels, model_flops),
        unknown=_unknown(result, kernels, too_short=not recurrent and _too_short(own, card)),
        compile_ns=sum(int(one["compile_ns"]) for one in result["programs"].values()),
        float8=float8.of_layers(_products(own), _products(library) if library else None, model),
    )


def _products(judged: _Judged) -> list[tuple[tuple[str, ...], Precision]]:
    """Return the layers of each product of a program and the type of its operands."""
    decided = enumerate(judged.decisions)
    owners = judged.program.owners
    return [(owners.layers_of(at), each.precision) for at, each in decided if each.family in MATMUL_FAMILIES]


def _both(
    compiled: Compiled, source: Sequence[Launch], card: Card, model: ModelFacts | None
) -> tuple[_Judged, _Judged | None]:
    programs = {
        name: deciding.program(
            launches(compiled.programs[name]), compiled.result["programs"][name]["kernels"], model
        )
        for name in ("own", "library")
        if name in compiled.programs
    }
    own, library = programs["own"], programs.get("library")
    first = _judged(own, library, source, card, compiled.result)
    second = _judged(library, own, source, card, compiled.result) if library is not None else None
    return first, second


def _judged(
    program: Program, other: Program | None, source: Sequence[Launch], card: Card, result: Mapping[str, Any]
) -> _Judged:
    asked = deciding.asked(source, program)
    recurrent = frozenset(result["recurrent_layers"])
    decisions = tuple(
        deciding.decide(at, program, other, card, str(result["policy"]), asked, recurrent)
        for at in range(len(program.launches))
    )
    return _Judged(program, asked, decisions)


def _kernel(judged: _Judged, at: int, card: Card) -> ForecastKernel:
    work, decision = judged.program.launches[at], judged.decisions[at]
    matrix = decision.family in MATMUL_FAMILIES
    wanted = judged.asked.get(at)
    count = least_time.times(work)
    asked = wanted.flops if wanted else 0.0
    executed = (deciding.asked_flops(work) or 0.0) * count or asked
    return ForecastKernel(
        name=work.hlo.name,
        op=work.hlo.op_name,
        layers=judged.program.owners.layers_of(at),
        phase=judged.program.owners.phase_of(at),
        family=decision.family,
        placement=decision.placement,
        precision=decision.precision,
        evidence=decision.evidence,
        reason=deciding.OBSTACLES[decision.obstacle][0] if decision.obstacle else _settled(decision),
        obstacle=decision.obstacle,
        instruction=decision.instruction,
        count=work.count,
        flops=asked if matrix else None,
        executed_flops=executed if matrix else None,
        bytes=(work.read_bytes + work.written_bytes) * count,
        at_least_ns=least_time.at_least_ns(work, _rate(decision, card), card),
    )


def _settled(decision: Decision) -> str:
    if decision.placement != "tensor_core":
        return "it multiplies no matrices"
    if decision.evidence == "ptx":
        return f"XLA's own kernel has {decision.instruction}, and the library's call is on the same types"
    return "a library's call on types and sizes for which it has kernels on the matrix units"


def _rate(decision: Decision, card: Card) -> float:
    return least_time.fastest_rate(decision.placement, decision.precision, card, card.highest_rates)


# --- time --------------------------------------------------------------------------------------------------


def _at_least(own: _Judged, library: _Judged | None, card: Card, recurrent: frozenset[str]) -> float:
    """Return the least time of a step. It is without the recurrent layers: cuDNN's kernels, which keep
    weights on the SMs, take the loop's place."""

    def parts(judged: _Judged) -> list[tuple[object, float]]:
        return [
            (judged.program.part(at), least_time.at_least_ns(work, _rate(judged.decisions[at], card), card))
            for at, work in enumerate(judged.program.launches)
            if not deciding.is_recurrent(judged.program.owners.layers_of(at), recurrent)
        ]

    each = least_time.of_either(parts(own), parts(library) if library else None)
    if recurrent:
        return each
    read = min(
        least_time.traffic_bytes(judged.program.launches, card.l2_bytes)
        for judged in (own, library)
        if judged is not None
    )
    return max(each, read / card.bandwidth_bytes_per_s * 1e9)


def _ideal(judged: _Judged, card: Card, *, slowest: bool) -> float:
    """Return the roofline time of a step; with `slowest`, on the slower of the units where the card may
    choose."""
    rates = least_time.stated_rates(card)
    pick = least_time.slowest_rate if slowest else least_time.fastest_rate
    return sum(
        least_time.ideal_ns(work, pick(decision.placement, decision.precision, card, rates), card)
        for work, decision in zip(judged.program.launches, judged.decisions, strict=True)
    )


def _speedup(
    own: _Judged, card: Card, policy: str, float32: Compiled | None, model: ModelFacts | None
) -> ForecastSpeedup | None:
    """Return the ratio of the roofline times; None where launches take most of the float32 step."""
    after = _ideal(own, card, slowest=False)
    if float32 is None or policy == "float32" or after <= 0:
        return None
    source = launches(float32.programs["source"])
    programs = [judged for judged in _both(float32, source, card, model) if judged is not None]
    if all(_too_short(judged, card) for judged in programs):
        return None
    by_default, without_tf32 = (_ideal(programs[0], card, slowest=slowest) for slowest in (False, True))
    over = "tf32" if "tf32" in card.highest_rates else "float32"
    return ForecastSpeedup(over, by_default / after, without_tf32 / after)


def _too_short(judged: _Judged, card: Card) -> bool:
    """Return whether the kernels' ideal times are on average below the time that lies between one kernel and
    the next."""
    kernels = sum(map(least_time.times, judged.program.launches))
    return _ideal(judged, card, slowest=True) < kernels * least_time.BETWEEN_KERNELS_NS


# --- memory ------------------------------------------------------------------------------------------------


def _memory(result: Mapping[str, Any]) -> ForecastMemory:
    programs = list(result["programs"].values())
    first = programs[0]
    temporaries = [float(one["temporaries_bytes"]) for one in programs]
    peaks = [
        float(one["peak_bytes"] or one["arguments_bytes"] + one["temporaries_bytes"]) for one in programs
    ]
    return ForecastMemory(
        arguments_bytes=int(first["arguments_bytes"]),
        outputs_bytes=int(first["outputs_bytes"]) - int(first["aliased_bytes"]),
        temporaries_bytes=Band(min(temporaries), max(temporaries)),
        peak_bytes=Band(min(peaks), max(peaks)),
        not_included=NOT_INCLUDED,
    )


def _alive(program: Program, result: Mapping[str, Any]) -> tuple[AliveBytes, ...]:
    """Return the temporaries at the peak by layer, phase and type; none where XLA's account does not sum to
    what it assigned: it names a loop's values more than once, and values of gigabytes can be missing."""
    own = result["programs"]["own"]
    whole = sum(size for *_, size in own.get("alive", ()))
    if not _LEAST_TOLD * own["temporaries_bytes"] <= whole <= own["temporaries_bytes"]:
        return ()
    rows = {work.hlo.name: at for at, work in enumerate(program.launches)}
    sums: dict[tuple[str, Phase, str], int] = defaultdict(int)
    for name, dtype, size in own.get("alive", ()):
        at = rows.get(name)
        layer, phase = ("", "other") if at is None else program.part(at)
        if dtype == "s8" and at is not None and program.launches[at].hlo.opcode == "custom-call":
            dtype = "workspace"  # a call of cuBLAS declares it as bytes
        sums[layer, cast(Phase, phase), dtype] += size
    return tuple(AliveBytes(*key, size) for key, size in sorted(sums.items(), key=lambda one: -one[1]))


_LEAST_TOLD = 0.5

_RECOMPUTED = b".remat"
"""In the name of each instruction that XLA's rematerialisation made (hlo_rematerialization.cc)."""


def batch_bytes(compiled: Compiled) -> BatchBytes:
    """Return the bytes that the step needs at the batch that was compiled, and whether XLA computes anything
    twice to need no more."""
    made = [program for name, program in compiled.programs.items() if name != "source"]
    return BatchBytes(
        int(compiled.result["batch_size"]),
        _memory(compiled.result).peak_bytes,
        any(_RECOMPUTED in program for program in made),
    )


# --- what is in the way ------------------------------------------------------------------------------------


def _shares(
    kernels: Sequence[ForecastKernel], whole: float
) -> tuple[float, float, float, float] | tuple[None, None, None, None]:
    """Return the shares of the model's matrix operations: can, cannot, open; and decided."""
    if whole <= 0:
        return (None,) * 4
    sums: dict[str, float] = defaultdict(float)
    decided = 0.0
    for kernel in kernels:
        flops = kernel.flops or 0.0
        decided += flops if kernel.evidence != "decided on the card" else 0.0
        if kernel.placement == "cuda_core":
            sums["cannot"] += flops
        elif kernel.placement == "tensor_core" or kernel.obstacle in ("choice", "size", "small"):
            sums["can"] += flops
        else:
            sums["open"] += flops
    return sums["can"] / whole, sums["cannot"] / whole, sums["open"] / whole, decided / whole


def _obstacles(kernels: Sequence[ForecastKernel], whole: float) -> tuple[Obstacle, ...]:
    flops: dict[str, float] = defaultdict(float)
    layers: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for kernel in kernels:
        if kernel.obstacle and kernel.obstacle != "choice":
            flops[kernel.obstacle] += kernel.flops or 0.0
            for layer in kernel.layers[:1]:
                layers[kernel.obstacle][layer] += kernel.flops or 0.0
    found = [
        Obstacle(
            code,
            *deciding.OBSTACLES[code],
            tuple(sorted(layers[code], key=lambda layer: -layers[code][layer])),
            amount / whole if whole else 0.0,
        )
        for code, amount in flops.items()
    ]
    return tuple(sorted(found, key=lambda one: -one.flops_ratio))


def _unknown(
    result: Mapping[str, Any], kernels: Sequence[ForecastKernel], *, too_short: bool
) -> tuple[str, ...]:
    said = list(_ALWAYS_UNKNOWN)
    if too_short:
        said.insert(
            0,
            "what launches cost: at this batch kernels are so short that launching them can take most of the "
            "step, which 16 bits do not shorten; a larger batch tells more",
        )
    if result["recurrent_layers"]:
        names = ", ".join(result["recurrent_layers"])
        said.insert(
            0,
            f"{names}: on the card cuDNN may run it in place of the loop that was compiled; its time is left "
            "out of the bound, no speedup is stated, memory is the loop's, no largest batch is searched for",
        )
    if any(kernel.count is None for kernel in kernels):
        said.append("a loop whose number of iterations the program does not state: counted once")
    return tuple(said)
