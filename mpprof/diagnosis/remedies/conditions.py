"""What remedies depend on in the evidence. Each condition is true only where it is known to hold."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from mpprof.analysis.attainable.work import by_atomics
from mpprof.analysis.breakdown import communication, copies
from mpprof.analysis.kernels.op_types import family_of, type_from_name
from mpprof.analysis.layers import kinds
from mpprof.analysis.steps import unmarked
from mpprof.analysis.steps.calls import FUNCTIONS, calls, fetches_per_call
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.remedies import frameworks
from mpprof.model.kernels import CONVOLUTIONS
from mpprof.model.trace import HostKind

if TYPE_CHECKING:
    from mpprof.diagnosis.signals import Signals

Condition = Callable[["Signals"], bool]

AMPERE, VOLTA = (8, 0), (7, 0)
_OF_TRAINING = (*unmarked.WORDS, "train", "Train")
"""A training's trace holds at least one of these in the names of its kernels, ops, ranges or calls."""
_OF_TORCH = ("aten::", "at::native::")
"""A trace with the names of torch's functions or kernels would name those of its autograd and optimizers."""
_OF_JAX_GRADIENTS = ("grad", "vjp")
"""What the calls of Python's functions hold where JAX derives: `value_and_grad`, `backward_pass`, `vjp`."""
MOSTLY_RATIO = 0.9
"""This share of the bytes counts as nearly all: a loss is read through pageable memory beside the batches."""
FEW_EXCHANGES = 4
"""Larger buckets make fewer, and one alone begins when the backward pass has ended (our judgement)."""
MANY_PROGRAMS = 8
"""A training step and the handling of its batch are a few compiled functions; eager JAX compiles one for each
kind of op (our judgement)."""


# ---- what it computes in


def in_float32(signals: Signals) -> bool:
    """Tell whether the run computes in float32."""
    return signals.computes.kind == "float32"


def in_16_bits(signals: Signals) -> bool:
    """Tell whether the run computes in 16 bits or less, all or part of it."""
    return signals.computes.narrow


def of_a_cpu_alone(signals: Signals) -> bool:
    """Tell whether all known work ran on a CPU."""
    return signals.on_cpu or signals.host_only


def only_infers(signals: Signals) -> bool:
    """Tell whether the trace shows an inference."""
    return signals.only_infers


def forward_alone(signals: Signals) -> bool:
    """Tell whether what was profiled holds no backward pass."""
    return signals.forward_alone


def shows_inference(signals: Signals) -> bool:
    """Tell whether the trace shows products by torch or JAX, and nothing of a backward pass or an optimizer.

    For JAX this needs the name of each product's function, which names compiled gradients, and the calls of
    Python's functions, which alone name eager ones.
    """
    if signals.case.run.facts is not None or not _would_name_gradients(signals):
        return False
    if not any(cell.category == "matmul" for cell in signals.cells):
        return False
    of_training = any(cell.category == "optimizer" or cell.phase == "backward" for cell in signals.cells)
    return not of_training and not signals.named(*_OF_TRAINING)


def _would_name_gradients(signals: Signals) -> bool:
    """Tell whether the framework's gradients, if there were any, would be named in the trace, and none is."""
    if signals.framework == "jax":
        products = [cell.op for cell in signals.cells if cell.category == "matmul"]
        named = all(op is not None and "jit(" in op for op in products)
        return named and signals.named(".py:") and not signals.named(*_OF_JAX_GRADIENTS)
    return signals.named(*_OF_TORCH)


def in_float16(signals: Signals) -> bool:
    """Tell whether the run computes in float16, whose range is narrow."""
    return known(signals.compute_dtype) == "float16"


def in_bfloat16(signals: Signals) -> bool:
    """Tell whether the run computes in bfloat16."""
    return known(signals.compute_dtype) == "bfloat16"


def scales_dynamically(signals: Signals) -> bool:
    """Tell whether a dynamic loss scale skips the steps that overflow."""
    optimizer = known(signals.optimizer)
    return optimizer is not None and bool(optimizer.dynamic)


def own_training_step(signals: Signals) -> bool:
    """Tell whether the training step is the user's own: a recorded loop's, or of a model that overrides
    `train_step`."""
    facts = signals.case.run.facts
    overridden = facts is not None and facts.model is not None and facts.model.train_step is not None
    return overridden or own_loop(signals)


def may_be_unscaled(signals: Signals) -> bool:
    """Tell whether the training step is the user's own, and whether it scales its loss is not known."""
    fit = known(signals.fit)
    return own_training_step(signals) and (fit is None or fit.scale_loss_called is None)


# ---- the card


def lacks_bfloat16(signals: Signals) -> bool:
    """Tell whether the card has no units for bfloat16."""
    capability = known(signals.capability)
    return signals.vendor == "nvidia" and capability is not None and capability < AMPERE


def lacks_tensor_cores(signals: Signals) -> bool:
    """Tell whether the card has no 16-bit matrix units."""
    peaks, capability = known(signals.peaks), known(signals.capability)
    if peaks is not None:
        return not peaks.has_matrix_units
    return signals.vendor == "nvidia" and capability is not None and capability < VOLTA


def is_ampere(signals: Signals) -> bool:
    """Tell whether the card is of compute capability 8.0 or later."""
    capability = known(signals.capability)
    return signals.vendor == "nvidia" and capability is not None and capability >= AMPERE


def has_cudnn_8(signals: Signals) -> bool:
    """Tell whether cuDNN is 8 or later; cards from Ampere on need that."""
    facts = known(signals.facts)
    version = str(facts.framework.get("cudnn", "")).partition(".")[0] if facts else ""
    return is_ampere(signals) or (version.isdigit() and int(version) >= 8)


# ---- how the step is run

_OF_XLA = ("XlaLaunch", "XlaCompile", "XlaRun", "XlaLocalLaunch", "XlaModule", "xla::", "raced-xla")
"""What TensorFlow's trace of a function that XLA compiled has in its events: the ops that run it
(tensorflow/compiler/jit/kernels/xla_ops.cc), or the kind of the call ("notTraced-xla", where others are
"notTraced-nonXla")."""


def calls_a_function(signals: Signals) -> bool:
    """Tell whether the trace shows that each step is a call of a compiled `tf.function`."""
    trace = signals.case.trace
    if trace is None or signals.case.account is None or signals.framework not in frameworks.ON_TENSORFLOW:
        return False
    found = calls(trace)
    return found is not None and found.family in FUNCTIONS


def steps_per_call(signals: Signals) -> float | None:
    """Return how many steps a call runs, by the batches that it fetches; None where no fetch is seen."""
    trace, account = signals.case.trace, signals.case.account
    if trace is None or account is None or not account.steps or not calls_a_function(signals):
        return None
    found = calls(trace)
    if found is None or not fetches_per_call(trace, found):
        return None
    return account.main.steps / len(account.steps)


def compiled_by_xla(signals: Signals) -> bool | None:
    """Tell whether XLA compiles the step of a `tf.function`: False if the kernels are those of TensorFlow's
    own ops and no event is XLA's; None where the trace does not tell."""
    trace = signals.case.trace
    if trace is None or not calls_a_function(signals):
        return None
    if any(op.hlo is not None for op in trace.ops) or signals.named(*_OF_XLA):
        return True
    of_ops = known(signals.gpu_account) is not None and bool((trace.kernels.op >= 0).any())
    return False if of_ops else None


def compiled(signals: Signals) -> bool:
    """Tell whether a compiler has the step, to fuse its kernels: by the record, else by what ran."""
    fit = known(signals.fit)
    if fit is not None and fit.jit_compile is not None:
        return bool(fit.jit_compile)
    trace = signals.case.trace
    if trace is None:
        return False
    return any(op.hlo is not None for op in trace.ops) or signals.named(*_OF_TORCH_COMPILE)


_OF_TORCH_COMPILE = ("Torch-Compiled Region", "triton_poi", "CompiledFunction")
"""What torch.compile leaves in a trace, the last for any of its backends: the autograd function round what
AOTAutograd traced (torch/_functorch), "CompiledFunctionBackward" its gradient."""


def sums_biases_by_an_op(signals: Signals) -> bool:
    """Tell whether TensorFlow's own op sums gradients of biases, as it does without XLA."""
    return any(map(by_atomics, signals.cells))


def eager_jax(signals: Signals) -> bool:
    """Tell whether JAX runs op by op: the host calls many compiled functions, each of one op."""
    trace = signals.case.trace
    texts = trace.strings if trace is not None else ()
    return sum(text.startswith("PjitFunction(") for text in texts) > MANY_PROGRAMS


def replays_graphs(signals: Signals) -> bool:
    """Tell whether kernels ran in CUDA graphs or command buffers."""
    trace = signals.case.trace
    return trace is not None and bool((trace.kernels.graph >= 0).any())


def launches_one_by_one(signals: Signals) -> bool:
    """Tell whether the trace shows launches of kernels, and neither graphs of them nor XLA's programs."""
    trace = signals.case.trace
    return (
        trace is not None
        and bool((trace.host.kind == HostKind.LAUNCH).any())
        and not (replays_graphs(signals) or any(op.hlo is not None for op in trace.ops))
    )


def several_steps_a_call(signals: Signals) -> bool:
    """Tell whether `steps_per_execution` is above 1 already."""
    fit = known(signals.fit)
    return fit is not None and (fit.steps_per_execution or 1) > 1


def fused_optimizer(signals: Signals) -> bool:
    """Tell whether torch's optimizer updates in fused kernels already."""
    return signals.named("FusedAdam", "FusedSgd", "_fused_adam", "_fused_sgd")


# ---- the input


def _input(signals: Signals, key: str) -> Any:
    """Return what was recorded of the input under this key; None: nothing."""
    fit = signals.case.run.last_fit
    return fit.input.get(key) if fit is not None else None


def _operates(signals: Signals, *operations: str) -> bool:
    """Tell whether the recorded pipeline has one of these operations."""
    recorded = _input(signals, "operations")
    return isinstance(recorded, list) and not set(operations).isdisjoint(map(str, recorded))


def from_tf_data(signals: Signals) -> bool:
    """Tell whether a `tf.data` pipeline feeds the training, whatever the backend."""
    return bool(_input(signals, "kind") == "tf.data")


def from_data_loader(signals: Signals) -> bool:
    """Tell whether torch's DataLoader feeds the training, whatever the backend."""
    return bool(_input(signals, "kind") == "DataLoader")


def from_py_dataset(signals: Signals) -> bool:
    """Tell whether a PyDataset (in Keras 2 a Sequence) feeds the training."""
    return bool(_input(signals, "kind") == "PyDataset")


def from_arrays(signals: Signals) -> bool:
    """Tell whether arrays in memory feed the training, which Keras slices into batches."""
    return bool(_input(signals, "kind") == "arrays")


def from_generator(signals: Signals) -> bool:
    """Tell whether a Python generator feeds the training."""
    return bool(_input(signals, "kind") == "generator")


def prefetches(signals: Signals) -> bool:
    """Tell whether a Prefetch is in the input pipeline."""
    return _operates(signals, "Prefetch") or signals.named("::Prefetch", "PrefetchConsume", "PrefetchProduce")


def sends_integers(signals: Signals) -> bool:
    """Tell whether the model takes nothing but integers: tokens, or images as bytes."""
    inputs = [layer.output_dtype or "" for layer in known(signals.layers) or () if layer.kind == "InputLayer"]
    return bool(inputs) and all("int" in dtype for dtype in inputs)


def prefetches_to_device(signals: Signals) -> bool:
    """Tell whether batches are sent to the device ahead of the step, as under a strategy."""
    return signals.named("MultiDeviceIterator")


def maps_in_parallel(signals: Signals) -> bool:
    """Tell whether the pipeline maps with several calls at a time."""
    return _operates(signals, "ParallelMap") or signals.named(
        "::ParallelMap", "ParallelMapConsume", "ParallelMapProduce"
    )


def caches(signals: Signals) -> bool:
    """Tell whether a cache is in the input pipeline."""
    return _operates(signals, "Cache") or signals.named("::Cache", "::MemoryCache", "MemoryDatasetIterator")


def slices_memory(signals: Signals) -> bool:
    """Tell whether the recorded pipeline does nothing but hand on slices of arrays in memory."""
    recorded = _input(signals, "operations")
    works = ("Map", "Interleave", "Generator", "Window", "Scan")
    return (
        isinstance(recorded, list)
        and bool(recorded)
        and recorded[-1] in ("TensorSlice", "Tensor")
        and not any(word in str(operation) for operation in recorded for word in works)
    )


def keeps_workers(signals: Signals) -> bool:
    """Tell whether a DataLoader keeps its workers from one epoch to the next."""
    return _input(signals, "persistent_workers") is True


def loads_in_workers(signals: Signals) -> bool:
    """Tell whether batches are made in processes or threads of their own."""
    loaders, workers = _input(signals, "num_workers"), _input(signals, "workers")
    several = (isinstance(loaders, int) and loaders > 0) or (isinstance(workers, int) and workers > 1)
    return several or signals.named("_MultiProcessingDataLoaderIter")


def pins_memory(signals: Signals) -> bool:
    """Tell whether batches are copied from pinned memory: nearly all bytes, or nothing from pageable."""
    trace = signals.case.trace
    ratio = copies.pinned_ratio(trace) if trace is not None else None
    if ratio is not None:
        return ratio >= MOSTLY_RATIO
    pageable = signals.named("Pageable -> Device", "kind_src:pageable")
    pinned = signals.named("Pinned -> Device", "kind_src:pinned")
    return _input(signals, "pin_memory") is True or (pinned and not pageable)


# ---- layouts


def channels_last(signals: Signals) -> bool:
    """Tell whether convolutions take their channels last: by the layers, by TensorFlow's ops, or by kernels
    that nothing transposes for."""
    recorded = {f.config.get("data_format") for f in known(signals.layers) or () if kinds.is_convolution(f)}
    if recorded - {None}:
        return recorded == {"channels_last"}
    if signals.named("TransposeNHWCToNCHW", "BiasNHWC", "BiasGradNHWC"):
        return True
    turned = ("nchwToNhwc", "nhwcToNchw", "batched_transpose_", "transpose_NCHW2CNHW", "transpose_CNHW2NCHW")
    return signals.named("_nhwc_", "nhwckrsc_nhwc") and not signals.named(*turned)


def within_convolutions(signals: Signals) -> bool:
    """Tell whether most of the transposes are the convolutions' own, put in by a library or the compiler."""
    rows = signals.select(lambda cell: cell.category == "layout" and cell.op is not None)
    types = {
        row: (signals.cells[row].op_type or "", type_from_name(signals.cells[row].op or "")) for row in rows
    }
    own = [row for row, of in types.items() if not CONVOLUTIONS.isdisjoint(map(family_of, of))]
    return bool(own) and 2.0 * signals.time(own) > signals.time(rows)


def exchanges_one_by_one(signals: Signals) -> bool:
    """Tell whether PyTorch's collectives were called without a wrapper that gathers gradients in buckets."""
    wrappers = (
        "DistributedDataParallel",
        "ddp.reducer",
        "FullyShardedDataParallel",
        "FSDP",
        "ZeRO",
        "DeepSpeed",
    )
    return signals.named("c10d::allreduce_") and not signals.named(*wrappers)


def exchanges_in_few(signals: Signals) -> bool:
    """Tell whether a step's gradients travel in so few exchanges that each starts late."""
    sums = [
        cell for cell in signals.cells if cell.category == "comm" and communication.kind_of(cell) == "reduce"
    ]
    return not signals.in_window and 0 < sum(cell.calls_per_step for cell in sums) <= FEW_EXCHANGES


def layout_optimizer(signals: Signals) -> bool:
    """Tell whether TensorFlow's LayoutOptimizer put the transposes in: most of their time, where ops tell."""
    rows = signals.select(lambda cell: cell.category == "layout" and cell.op is not None)
    if not rows:
        return signals.named("-LayoutOptimizer")
    put_in = [row for row in rows if "-LayoutOptimizer" in (signals.cells[row].op or "")]
    return signals.time(put_in) >= 0.5 * signals.time(rows)


# ---- how it was recorded


def recorded(signals: Signals) -> bool:
    """Tell whether mpprof recorded the run: recording it once more brings nothing new."""
    return signals.case.run.facts is not None


def own_loop(signals: Signals) -> bool:
    """Tell whether the steps are those of a recorded loop of the user's own."""
    facts = signals.case.run.facts
    return facts is not None and facts.framework.get("loop") == "custom"


def own_window(signals: Signals) -> bool:
    """Tell whether mpprof's own profile window made the trace, with its choice of tracers."""
    facts = signals.case.run.facts if signals.case.trace is not None else None
    return facts is not None and any(window.status == "done" for window in facts.profile_windows)


def launched(signals: Signals) -> bool:
    """Tell whether `mpprof run` recorded the script, in which no callback is written."""
    facts = signals.case.run.facts
    return facts is not None and facts.launched


def has_host_events(signals: Signals) -> bool:
    """Tell whether the trace shows what the host ran or launched."""
    trace = signals.case.trace
    kinds = (HostKind.OP, HostKind.EXECUTOR, HostKind.LAUNCH)
    return trace is not None and bool(np.isin(trace.host.kind, kinds).any())


def from_nsys(signals: Signals) -> bool:
    """Tell whether the trace is an export of Nsight Systems."""
    return signals.case.trace is not None and signals.case.trace.source.format == "nsys"


def few_steps(signals: Signals) -> bool:
    """Tell whether the window holds five steps or fewer."""
    account = signals.case.account
    return account is not None and len(account.steps) <= 5
