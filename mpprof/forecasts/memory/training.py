"""What a training will take of a card's memory, from a recorded model, before it runs."""

from __future__ import annotations

import operator
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from mpprof.analysis.kernels import expected
from mpprof.analysis.layers import flops, kinds
from mpprof.analysis.layers.kinds import takes_cudnn
from mpprof.analysis.memory import held
from mpprof.errors import UnableError, UsageError
from mpprof.forecasts.memory import backward, kept_for_backward
from mpprof.forecasts.memory.kept_for_backward import Machine
from mpprof.model.limits import LARGEST_BATCH
from mpprof.model.memory import KeptBytes, MemoryForecast, PolicyMemory
from mpprof.model.quantities import first_of
from mpprof.model.run import LayerFacts, ModelFacts, Run, RunFacts
from mpprof.tensors import HALF

POLICIES = ("float32", "mixed_float16", "mixed_bfloat16")
POLICIES_KNOWN = (*POLICIES, "float16", "bfloat16")
GIVE_A_MODEL = (
    "Give a .keras file, module:function that returns a model, or a log directory that mpprof's callback "
    "recorded"
)
"""What to do where there is something else."""
_NAMED = 3
_OF_CUSTOM_LAYERS = (
    "what custom layers and functions keep beyond their input ({}): the peak is at least what is shown, and "
    "no largest batch is stated; with --compile, XLA's own assignment has all of it"
)
_LEFT_OUT = "{}: the peak is at least what is shown, the largest batch at most"
FILL_RATIO = 0.9
"""What a training may fill of a card: the rest is the driver's, the libraries' and the allocator's own."""


def forecast(
    run: Run,
    batch_size: int,
    *,
    policies: Sequence[str] = POLICIES,
    card: str | None = None,
    card_bytes: int | None = None,
    capability: tuple[int, int] | None = None,
    counted_slots: Callable[[], int | None] = lambda: None,
) -> MemoryForecast:
    """Return the memory of a training of the model that `run` recorded, under each policy. `counted_slots` is
    asked for the bytes of the optimizer's slots, for parameters of their own types, where its kind does not
    tell.

    Raises `UsageError` for an unknown policy or a batch below one, `UnableError` where the records hold no
    model, or one that does not state its layers' shapes."""
    facts = run.facts
    if facts is None or facts.model is None:
        raise UnableError("no model was recorded", where=run.name, next=GIVE_A_MODEL)
    if not policies:
        raise UsageError("no dtype policy was named", next=f"Name one or more of {', '.join(POLICIES)}")
    batch_size = checked_batch(batch_size)
    machine = machine_of(run, capability)
    own = held.recorded(run)
    counted = counted_slots() if own is not None and own.slots is None else None
    left_out = _left_out(facts)
    runs, unknown = [], {}
    for policy in dict.fromkeys(policies):
        model = under(facts.model, policy)
        mine = _states(replace(run, facts=replace(facts, model=model)), model)
        if own is not None and mine.slots is None and mine.trained == own.trained:
            mine = replace(mine, slots=counted)  # of another type they would take another size
        graph = _graph(model, machine, mine, policy)
        unknown.update(dict.fromkeys(graph.unknown))
        if graph.custom:
            unknown[_OF_CUSTOM_LAYERS.format(first_of(graph.custom, _NAMED))] = None
        found = backward.backward(graph, machine)
        unknown.update(dict.fromkeys(_LEFT_OUT.format(each) for each in left_out))
        made = _policy(mine, model, policy, batch_size, graph, found, card_bytes)
        runs.append(replace(made, card=card, card_bytes=card_bytes, left_out=left_out))
    if whole := [layer.name for layer in expected.multiplying(facts.model.layers) if _is_whole(layer)]:
        unknown[
            f"what layers of whole numbers keep ({first_of(whole, _NAMED)}): counted as if they were trained"
        ] = None
    if any(one.slots_bytes is None for one in runs):
        why = f"of {own.optimizer}" if own and own.optimizer else "as the model is not compiled"
        unknown[_LEFT_OUT.format(f"the optimizer's slots, {why}")] = None
    return MemoryForecast(
        facts.model.name or run.name,
        batch_size,
        card,
        card_bytes,
        tuple(runs),
        _assumed(run, machine, facts.model),
        tuple(unknown),
    )


def _left_out(facts: RunFacts) -> tuple[str, ...]:
    """Return what a step keeps for its backward pass and is not counted under any policy."""
    model = facts.model
    if model is None:
        return ()
    narrow = sum(layer.quantized == "float8" for layer in model.layers)
    functions = "what functions of keras.ops between the layers keep, which this record does not list"
    return (
        *((functions,) if model.functions is None and not facts.is_keras_2 else ()),
        *(
            (f"what {narrow} float8 layers keep in 8 bits, beside the 16 bits that are counted",)
            if narrow
            else ()
        ),
    )


def _states(run: Run, model: ModelFacts) -> held.States:
    found = held.recorded(run)
    if found is None:
        named = f"the model {model.name}" if model.name else "the model"
        raise UnableError(
            f"{named} is not built: it has neither weights nor shapes",
            next="Call it once on a batch, or model.build(shape), before it is saved or returned",
        )
    return found


def _graph(model: ModelFacts, machine: Machine, mine: held.States, policy: str) -> kept_for_backward.Graph:
    """Return what a step keeps for its backward pass. Raises `UnableError` with what is known all the
    same."""
    try:
        return kept_for_backward.graph(model, machine)
    except UnableError as error:
        if not mine.parameters:
            raise
        raise UnableError(f"{error.what}, so activations are not known. {_known(mine, policy)}",
                          next=error.next) from error  # fmt: skip


def checked_batch(size: Any) -> int:
    """Return the number of examples. Raises `UsageError` for what is not a whole number, below one, or beyond
    any batch."""
    try:
        found = operator.index(size)
    except TypeError:
        found = 0
    if isinstance(size, bool) or not 1 <= found <= LARGEST_BATCH:
        shown = f"more than {LARGEST_BATCH:,}" if found > LARGEST_BATCH else repr(size)
        raise UsageError(
            f"the batch cannot be {shown} examples", next=f"Give a whole number from 1 to {LARGEST_BATCH:,}"
        )
    return found


def _known(mine: held.States, policy: str) -> str:
    """Return what follows from the parameters alone."""
    slots = "an unknown size" if mine.slots is None else f"{mine.slots:,} bytes"
    return (
        f"In {policy} the parameters take {mine.parameters:,} bytes, their gradients {mine.trained:,} bytes "
        f"and the optimizer's slots {slots}"
    )


def machine_of(run: Run, capability: tuple[int, int] | None = None) -> Machine:
    """Return what decides the rules on a GPU: there Keras has XLA compile a step on TensorFlow and JAX by
    default."""
    backend = _backend(run)
    fit = run.last_fit
    asked = fit is not None and (fit.jit_compile is True or (_ran_on_a_gpu(run) and fit.jit_compile is False))
    compiled = bool(fit and fit.jit_compile) if asked else _compiles_by_default(run)
    eager = fit is not None and bool(fit.run_eagerly)
    return Machine(
        backend,
        backend == "jax" or (backend == "tensorflow" and compiled and not eager),
        capability,
        fit.loss if fit is not None else None,
    )


def _backend(run: Run) -> str:
    return str((run.facts.framework if run.facts else {}).get("backend") or "tensorflow")


def _ran_on_a_gpu(run: Run) -> bool:
    return run.facts is not None and any(each.kind == "gpu" for each in run.facts.devices)


def _compiles_by_default(run: Run) -> bool:
    """Return whether Keras compiles on a GPU where the model leaves the choice to Keras: a machine without a
    GPU does not tell, as Keras never compiles there."""
    facts = run.facts
    if facts is None:
        return True
    layers = facts.model.layers if facts.model else ()
    return not (
        facts.is_keras_2
        or facts.framework.get("loop") == "custom"
        or facts.distribution
        or facts.deterministic_ops
        or any(layer.supports_jit is False or takes_cudnn(layer) for layer in layers)
    )


def under(model: ModelFacts, policy: str) -> ModelFacts:
    """Return the model under another policy: its layers of the policy that most with weights have get the new
    one, of two as frequent the one in 16 bits, and so do all other layers in 16 bits; a float32 layer among
    those, such as an output, keeps its own. A quantised layer counts as one of the policy that it was
    quantised from."""
    types, moved = _types(policy), {_main(model), *_narrow(model)}
    return replace(
        model,
        layers=tuple(_under(one, *types) if _unquantised(one) in moved else one for one in model.layers),
    )


def _main(model: ModelFacts) -> str | None:
    """Return the policy that most layers with weights have."""
    inside = [layer for layer in model.layers if layer.kind != "InputLayer"]
    names = Counter(_unquantised(layer) for layer in [one for one in inside if one.parameters] or inside)
    return max(names, key=lambda name: (names[name], name != "float32")) if names else None


def _narrow(model: ModelFacts) -> set[str]:
    """Return the policies of 16 bits that layers with weights have."""
    names = (_unquantised(layer) for layer in model.layers if layer.parameters)
    return {name for name in names if name and name.removeprefix("mixed_") in HALF}


def _unquantised(layer: LayerFacts) -> str | None:
    return layer.dtype_policy and layer.dtype_policy.rpartition("_from_")[2]


def _types(policy: str) -> tuple[str, str]:
    """Return the types that a policy computes in and keeps variables in."""
    compute = policy.removeprefix("mixed_")
    if policy not in POLICIES_KNOWN:
        raise UsageError(
            f"{policy!r} is not a dtype policy that can be forecast",
            next=f"Take {', '.join(POLICIES_KNOWN)}",
        )
    return compute, "float32" if policy.startswith("mixed_") else compute


def _under(layer: LayerFacts, compute: str, variable: str) -> LayerFacts:
    given = layer.output_dtype
    floating = given is None or given.startswith(("float", "bfloat"))
    output = compute if floating and layer.kind != "InputLayer" else given
    return replace(layer, compute_dtype=compute, variable_dtype=variable, output_dtype=output)


def _policy(
    mine: held.States,
    model: ModelFacts,
    policy: str,
    batch: int,
    graph: kept_for_backward.Graph,
    found: backward.Backward,
    card_bytes: int | None,
) -> PolicyMemory:
    trained, slots = mine.trained, mine.slots
    copies = _copies(model)
    given = sum(one.bytes for one in graph.operations if not one.inputs)
    fixed = mine.parameters + trained + (slots or 0) + copies
    each = found.peak_bytes + given
    return PolicyMemory(
        policy=policy,
        parameters_bytes=mine.parameters,
        gradients_bytes=trained,
        slots_bytes=slots,
        weight_copies_bytes=copies,
        input_bytes=given * batch,
        kept=_largest(found, batch),
        activations_bytes=found.peak_bytes * batch,
        of_gradients_bytes=found.gradients_bytes * batch,
        fullest_layer=found.layer,
        fixed_bytes=fixed,
        bytes_per_example=each,
        peak_bytes=fixed + each * batch,
        largest_batch=None if graph.custom else largest_batch(card_bytes, fixed, each),
        custom_layers=graph.custom,
    )


def largest_batch(card_bytes: int | None, fixed_bytes: int, bytes_per_example: int) -> int | None:
    """Return the most examples that fit: fixed bytes and theirs at most FILL_RATIO of the card."""
    if card_bytes is None:
        return None
    return max(0, int(FILL_RATIO * card_bytes - fixed_bytes) // max(1, bytes_per_example))


def _copies(model: ModelFacts) -> int:
    """Return the bytes of a 16-bit copy of each weight that multiplies in 16 bits and is kept in more."""
    by_name = {layer.name: layer for layer in model.layers}
    return sum(
        2 * (layer.parameters or 0)
        for layer in model.layers
        if kinds.is_matrix(layer) and not kinds.is_attention(layer) and not flops.repeats(layer, by_name)
        and layer.compute_dtype in HALF and layer.variable_dtype not in HALF and not _is_whole(layer)
    )  # fmt: skip


def _is_whole(layer: LayerFacts) -> bool:
    """Return whether a layer multiplies whole numbers, of which it makes no copy in 16 bits."""
    return layer.quantized not in (None, "float8")


def _largest(found: backward.Backward, batch: int) -> tuple[KeptBytes, ...]:
    sums: defaultdict[tuple[str, str, str], int] = defaultdict(int)
    for one in found.kept:
        sums[one.layer, one.what, one.dtype] += one.bytes * batch
    ordered = sorted(sums.items(), key=lambda pair: (-pair[1], pair[0]))
    return tuple(KeptBytes(*name, size) for name, size in ordered if size)


def _assumed(run: Run, machine: Machine, model: ModelFacts) -> tuple[str, ...]:
    how = "compiled by XLA" if machine.compiled else "op by op, without XLA"
    fit = run.last_fit
    if machine.backend == "tensorflow" and fit and fit.jit_compile is False and not _ran_on_a_gpu(run):
        how += ", as Keras decides by default on a GPU (recorded without one, where it never compiles)"
    trying = ", and what XLA takes to try algorithms as it compiles," if machine.compiled else ""
    unlike = sorted({name for name in (_main(model), *_narrow(model)) if name})
    one = f"all layers of {' and '.join(unlike)} are under the one policy that is named"
    return (
        *([one] if len(unlike) > 1 else []),
        f"the step runs on {machine.backend}, {how}",
        "all gradients of parameters are there at once",
        f"libraries' workspaces, copies in another layout and the allocator's rounding{trying} are not "
        "included",
    )
