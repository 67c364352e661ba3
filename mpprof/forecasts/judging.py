"""From what a child compiled to a `CardForecast`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, cast

from mpprof.analysis.kernels.expected import multiplying
from mpprof.analysis.layers import kinds
from mpprof.forecasts import deciding, least_time, typical
from mpprof.forecasts.deciding import Asked, Decision, Program
from mpprof.forecasts.targets import Card
from mpprof.model.account import Phase
from mpprof.model.forecast import (
    AliveBytes,
    Band,
    BatchBytes,
    CardForecast,
    Float8Layer,
    ForecastKernel,
    ForecastMemory,
    ForecastSpeedup,
    Obstacle,
    TimeShares,
)
from mpprof.model.frozen import frozen
from mpprof.model.kernels import MATMUL_FAMILIES, Precision
from mpprof.model.quantities import first_of
from mpprof.model.run import ModelFacts
from mpprof.tensors import HALF
from mpprof.traces.common.hlo_program import Launch, launches

# What XLA makes of layers that are quantised to float8: products in it, or in 16 bits after rounding.

Products = Sequence[tuple[Sequence[str], Precision]]
"""The layers and the operands' type of each product of a program."""


def of_layers(own: Products, library: Products | None, model: ModelFacts | None) -> tuple[Float8Layer, ...]:
    """Return for each quantised layer in which types its products were compiled; empty: none is quantised. A
    layer without a product of its own, which XLA merged, is left out.

    `own` and `library`: with XLA's kernels and with the library's. XLA's take no float8: where the library's
    do, the card times both and takes the faster."""
    found = []
    for layer in multiplying(model.layers if model else ()):
        if layer.quantized != "float8":
            continue
        mine = _of(layer.name, own)
        narrow = max(_narrow(mine), _narrow(_of(layer.name, library or ())))
        others = tuple(dict.fromkeys(each for each in mine if each != "fp8"))
        if mine:
            found.append(Float8Layer(layer.name, narrow, max(0, len(mine) - narrow), others))
    return tuple(found)


def _of(layer: str, products: Products) -> list[Precision]:
    """Return the types of a layer's own products; one that is fused with another's is that of the first."""
    return [precision for layers, precision in products if layers[:1] == (layer,)]


def _narrow(precisions: Iterable[Precision]) -> int:
    return sum(precision == "fp8" for precision in precisions)


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
    shares = _shares(kernels, [kernel.flops or 0.0 for kernel in kernels])
    times = _ideals(own, card, slowest=False)
    in_float8 = of_layers(_products(own), _products(library) if library else None, model)
    policy, family = str(result["policy"]), "" if recurrent or in_float8 else _family(own, kernels, model)
    return CardForecast(
        card=card.name,
        policy=str(result["policy"]),
        batch_size=int(result["batch_size"]),
        memory=replace(_memory(result), alive=_alive(own.program, result), card_bytes=card.memory_bytes),
        card_memory_bytes=card.memory_bytes,
        at_least_ns=at_least,
        typical_ns=_typical(family, card, policy, sum(times), _kernels(own), at_least),
        speedup=None if recurrent else _speedup(own, card, policy, family, float32, model),
        can_ratio=shares[0],
        cannot_ratio=shares[1],
        open_ratio=shares[2],
        decided_ratio=_decided(kernels, model_flops),
        model_flops=model_flops,
        executed_flops=sum(kernel.executed_flops or 0.0 for kernel in kernels),
        kernels=kernels,
        obstacles=_obstacles(kernels, model_flops, None if recurrent else times),
        unknown=(
            *_of_other_policies(policy, model),
            *_unknown(result, kernels, launches=not recurrent and _is_bound_by_launches(own, card)),
        ),
        compile_ns=sum(int(one["compile_ns"]) for one in result["programs"].values()),
        family=family,
        roofline_ns=None if recurrent else sum(times),
        time=None if recurrent else _time_shares(kernels, times),
        float8=in_float8,
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


def _ideals(judged: _Judged, card: Card, *, slowest: bool) -> list[float]:
    """Return the roofline time of each launch; with `slowest`, on the slower of the units where the card may
    choose."""
    rates = least_time.stated_rates(card)
    pick = least_time.slowest_rate if slowest else least_time.fastest_rate
    return [
        least_time.ideal_ns(work, pick(decision.placement, decision.precision, card, rates), card)
        for work, decision in zip(judged.program.launches, judged.decisions, strict=True)
    ]


def _ideal(judged: _Judged, card: Card, *, slowest: bool) -> float:
    """Return the roofline time of a step."""
    return sum(_ideals(judged, card, slowest=slowest))


def _launched(judged: _Judged, card: Card, *, slowest: bool) -> float:
    """Return the roofline time of a step with its launches."""
    return least_time.with_launches_ns(_ideal(judged, card, slowest=slowest), _kernels(judged))


def _kernels(judged: _Judged) -> int:
    return sum(map(least_time.times, judged.program.launches))


def _typical(
    family: str, card: Card, policy: str, roofline_ns: float, kernels: int, at_least_ns: float
) -> Band | None:
    """Return the range of a step, by measured steps of its family; never below the bound."""
    wide = policy == "float32"
    if not family or not (wide or _is_narrow(policy, card)):
        return None
    found = typical.step(family, card.compute_capability, roofline_ns, kernels, wide=wide)
    return found and Band(max(found.low, at_least_ns), max(found.high, at_least_ns))


def _is_narrow(policy: str, card: Card) -> bool:
    """Return whether products run in 16 bits under this policy on this card."""
    kind = policy.removeprefix("mixed_")
    return kind == "float16" or (kind == "bfloat16" and card.compute_capability >= (8, 0))


_LARGE_FILTER = 6
"""A filter of this size or more: cuDNN computes it by other algorithms than small ones."""
_MAIN = 0.5
_MINOR = 0.05


def _family(own: _Judged, kernels: Sequence[ForecastKernel], model: ModelFacts | None) -> str:
    """Return the family whose measured steps tell about this one: "convolutional" (most operations in
    convolutions of small filters over two axes), "transformer" (most in other products, with attention), ""
    for all others."""
    flops: dict[str, float] = defaultdict(float)
    for work, kernel in zip(own.program.launches, kernels, strict=True):
        done = kernel.flops or 0.0
        flops["all"] += done
        flops["convolved"] += done if kernel.family.startswith("conv") else 0.0
        flops["odd"] += done if kernel.obstacle in ("depthwise", "grouped", "loop") else 0.0
        if kernel.family.startswith("conv") and kernel.phase == "forward":
            flops["forward"] += done
            sizes = [size for size, _ in work.window]
            flops["odd forward"] += done if len(sizes) != 2 or max(sizes) >= _LARGE_FILTER else 0.0
    if flops["odd"] > _MINOR * flops["all"] or flops["odd forward"] > _MINOR * flops["forward"]:
        return ""
    if flops["convolved"] > _MAIN * flops["all"]:
        return "convolutional"
    attends = any(kinds.is_attention(layer) for layer in model.layers) if model else False
    return "transformer" if attends and not flops["convolved"] else ""


def _speedup(
    own: _Judged, card: Card, policy: str, family: str, float32: Compiled | None, model: ModelFacts | None
) -> ForecastSpeedup | None:
    """Return the ratio of the roofline times, and the range by measured steps; None where launches take most
    of the float32 step."""
    after = _launched(own, card, slowest=False)
    if float32 is None or policy == "float32" or after <= 0:
        return None
    source = launches(float32.programs["source"])
    programs = [judged for judged in _both(float32, source, card, model) if judged is not None]
    if all(_too_short(judged, card) for judged in programs):
        return None
    by_default, without_tf32 = (_launched(programs[0], card, slowest=slowest) for slowest in (False, True))
    over = "tf32" if "tf32" in card.highest_rates else "float32"
    found = None
    if family and _is_narrow(policy, card):
        ratio, roofline = by_default / after, _ideal(own, card, slowest=False)
        found = typical.speedup(family, card.compute_capability, roofline, ratio)
    return ForecastSpeedup(over, by_default / after, without_tf32 / after, found)


def _is_bound_by_launches(judged: _Judged, card: Card) -> bool:
    """Return whether a host launches the kernels no faster than they would run."""
    return _ideal(judged, card, slowest=False) < _kernels(judged) * least_time.LAUNCH_NS


def _too_short(judged: _Judged, card: Card) -> bool:
    """Return whether the kernels' ideal times are on average below the time that lies between one kernel and
    the next."""
    return _ideal(judged, card, slowest=True) < _kernels(judged) * least_time.BETWEEN_KERNELS_NS


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
    kernels: Sequence[ForecastKernel], weights: Sequence[float]
) -> tuple[float, float, float] | tuple[None, None, None]:
    """Return the shares of the products, so weighed, that can use matrix units, that cannot, and that are
    open; None of no products."""
    sums: dict[str, float] = defaultdict(float)
    for kernel, weight in zip(kernels, weights, strict=True):
        sums[_unit(kernel)] += weight if kernel.flops else 0.0
    whole = sum(sums.values())
    if whole <= 0:
        return (None,) * 3
    return sums["can"] / whole, sums["cannot"] / whole, sums["open"] / whole


def _unit(kernel: ForecastKernel) -> str:
    if kernel.placement == "cuda_core":
        return "cannot"
    can = kernel.placement == "tensor_core" or kernel.obstacle in ("choice", "size", "small")
    return "can" if can else "open"


def _decided(kernels: Sequence[ForecastKernel], whole: float) -> float | None:
    """Return the share of the model's matrix operations whose unit is decided by evidence."""
    decided = sum(k.flops or 0.0 for k in kernels if k.evidence != "decided on the card")
    return decided / whole if whole > 0 else None


def _time_shares(kernels: Sequence[ForecastKernel], times: Sequence[float]) -> TimeShares | None:
    """Return where the step's roofline time goes; None where it has none."""
    whole = sum(times)
    if whole <= 0:
        return None
    of_products = sum(ns for kernel, ns in zip(kernels, times, strict=True) if kernel.flops) / whole
    shares = _shares(kernels, times)
    can, cannot, left = (of_products * (share or 0.0) for share in shares)
    return TimeShares(can, cannot, left, 1.0 - of_products)


def _obstacles(
    kernels: Sequence[ForecastKernel], whole: float, times: Sequence[float] | None
) -> tuple[Obstacle, ...]:
    """Return what is in the way. `times`: each launch's roofline time; None where other kernels run in place
    of some that were compiled, so that no share of the time is known."""
    all_ns = sum(times) if times is not None else 0.0
    flops: dict[str, float] = defaultdict(float)
    taken: dict[str, float] = defaultdict(float)
    layers: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for kernel, ns in zip(kernels, times or [0.0] * len(kernels), strict=True):
        if kernel.obstacle and kernel.obstacle != "choice":
            flops[kernel.obstacle] += kernel.flops or 0.0
            taken[kernel.obstacle] += ns
            for layer in kernel.layers[:1]:
                layers[kernel.obstacle][layer] += kernel.flops or 0.0
    found = [
        Obstacle(
            code,
            *deciding.OBSTACLES[code],
            tuple(sorted(layers[code], key=lambda layer: -layers[code][layer])),
            amount / whole if whole else 0.0,
            taken[code] / all_ns if all_ns else None,
        )
        for code, amount in flops.items()
    ]
    return tuple(sorted(found, key=lambda one: (-(one.time_ratio or 0.0), -one.flops_ratio)))


def _of_other_policies(policy: str, model: ModelFacts | None) -> tuple[str, ...]:
    """Return what a row does not tell where layers have another policy in 16 bits than its own."""
    others: dict[str, list[str]] = defaultdict(list)
    for layer in model.layers if model else ():
        name = (layer.dtype_policy or "").rpartition("_from_")[2]
        if layer.parameters and name != policy and name.removeprefix("mixed_") in HALF:
            others[name].append(layer.name)
    kept = ", ".join(f"{name} ({first_of(layers, 3)})" for name, layers in others.items())
    return (
        (f"what {policy} in all layers would bring: some set a policy of their own, {kept}",) if kept else ()
    )


def _unknown(
    result: Mapping[str, Any], kernels: Sequence[ForecastKernel], *, launches: bool
) -> tuple[str, ...]:
    said = list(_ALWAYS_UNKNOWN)
    if launches:
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
