"""What held a device's memory: who allocated it, when, and what of it was live at the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Literal, get_args

from mpprof.model.account import Phase
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_bytes
from mpprof.model.trace import HloInstruction
from mpprof.tensors import WIDE

Kind = Literal[
    "parameters", "optimizer slots", "16-bit weight copies", "gradients", "activations kept for backward",
    "other activations", "optimizer temporaries", "workspaces", "input", "other", "rounding",
    "held before the window", "unknown",
]  # fmt: skip
"""What a block of memory is for. `parameters` and `optimizer slots` are what the optimizer keeps from step to
step; `16-bit weight copies` what a layer computes with; `other activations` die before the backward pass
begins, or are of a trace that tells of no such pass; `input` are batches, those made ahead too; `workspaces`
are what an op allocates and frees again; `held before the window` was allocated before the profiler started,
by whom no event tells; `other` is of an op that is none of these, and an operand of a gradient's op in
another layout."""

StatesFrom = Literal["records", "updates", "weight_copies", "modules"]
"""What tells how much of the memory that was held before the window are parameters and slots: the recorded
model, the gradients that the optimizer's updates free, the 16-bit copies of the weights, or the weights that
PyTorch's ops were given in their modules."""

KINDS: tuple[Kind, ...] = get_args(Kind)
UPDATE: tuple[Phase, ...] = ("optimizer", "loss_scale")
"""The phases of a step in which no activation is needed any more."""
By = Literal["dtype", "op", "layer", "kind"]


@frozen
class MemoryItem:
    """Part of what was live at the peak. `estimated`: no event tells, it follows from what
    `MemoryAccount.states_from` names. `assigned`: no event tells, it stands in XLA's buffer assignment of the
    program that took the memory."""

    by: By
    name: str
    bytes: int
    estimated: bool = False
    assigned: bool = False


@frozen
class Allocator:
    """One allocator of the trace. `lifetime_peak_bytes` is its own count since it was made (None: not
    stated), `capacity_bytes` what it could give in all."""

    name: str
    where: Literal["device", "host"]
    peak_bytes: int  # within the trace
    lifetime_peak_bytes: int | None
    capacity_bytes: int | None
    events: int


@frozen
class Tensor:
    """Blocks that were live at the peak, alike in all that is stated here. `born_ns` is when the first of
    them was allocated, `life_ns` how long it lived, None where it outlives the trace, or
    where that states no times (`Trace.missing`)."""

    kind: Kind
    op: str
    layer: str
    dtype: str
    shape: str
    count: int
    bytes: int
    born_ns: int
    life_ns: int | None
    assigned: bool = False


@frozen
class Held:
    """Blocks that an op allocated in one step and that outlive the next one: how many there were in all."""

    op: str
    layer: str
    dtype: str
    count: int
    bytes: int


@frozen
class Course:
    """Live bytes over the trace: at each of `time_ns` the fullest moment of the stretch that ends there.

    `parts[by][name]` are as many values as `time_ns` has; the parts of one `by` sum to `total_bytes`."""

    time_ns: tuple[int, ...]
    total_bytes: tuple[int, ...]
    parts: dict[str, dict[str, tuple[int, ...]]]


@frozen
class RecordedMemory:
    """What the records say, without a trace; None: not recorded. Of several devices the one that holds most.

    `peak_bytes` is the allocator's over the whole run, `steady_peak_bytes` that after warm-up, which may be
    lower: autotuning and tracing come first. `driver_bytes` is the driver's figure (median), which holds what
    a framework took in advance; `host_bytes` the process' largest resident size."""

    peak_bytes: int | None
    steady_peak_bytes: int | None
    first_live_bytes: int | None
    last_live_bytes: int | None
    driver_bytes: int | None
    host_bytes: int | None


@frozen
class Filled:
    """Blocks that an out-of-memory error lists, equal ones together; None: not stated."""

    name: str
    dtype: str | None
    shape: str | None
    count: int
    bytes: int


@frozen
class OutOfMemory:
    """What an out-of-memory error states; None: not stated.

    `loose_bytes` is what the allocator holds and does not use, `others_bytes` what other processes hold of
    the device (None also for so little that it may be rounding of the printed figures), `free_bytes` what the
    driver has free on it. `parts` are the bytes of a compiled program: arguments, outputs, temporaries,
    constants. `listed_bytes` is the sum that the error states of its list, of which `filled` has the
    largest. `refused_bytes` is the least of the sizes that the driver refused one after the other: less was
    free in one piece; `asked_bytes` is then the first of them, what an allocator wanted to take in advance,
    no tensor. `words`: of an error that states no size at all."""

    framework: Literal["tensorflow", "xla", "torch"]
    asked_bytes: int | None
    limit_bytes: int | None
    used_bytes: int | None
    loose_bytes: int | None
    others_bytes: int | None
    device: str | None
    op: str | None
    filled: tuple[Filled, ...]
    parts: dict[str, int] | None = None
    free_bytes: int | None = None
    listed_bytes: int | None = None
    refused_bytes: int | None = None
    words: str | None = None


@frozen
class Advice:
    """What to try after an out-of-memory error, with the command or code where there is one."""

    cause: str
    text: str
    snippet: str = ""


@frozen
class Cause:
    """Part of what mixed precision could have saved and did not: the bytes that one finding explains."""

    code: str
    bytes: int


@frozen
class DriverSaving:
    """The driver's figure (nvidia-smi's) of this run and of the baseline, in bytes.

    `peak_saved_bytes` is what the allocator's recorded peak fell by, `unused_bytes` what this run's figure
    holds beyond that peak. `code` is the finding that says why the figure hardly fell though the peak did;
    None where it fell too."""

    bytes: int
    baseline_bytes: int
    peak_saved_bytes: int
    unused_bytes: int
    code: str | None

    @property
    def saved_bytes(self) -> int:
        return self.baseline_bytes - self.bytes

    @property
    def hidden_bytes(self) -> int:
        """What was saved and the driver's figure does not show."""
        return max(0, self.peak_saved_bytes - self.saved_bytes)


@frozen
class PeakParts:
    """What a comparison needs of the peak, in bytes that were asked for (rounding left out).

    `phase` is that of the op whose allocation made the peak. `kept` has the activations that are kept for
    backward by layer and type, `flowing` those that nothing keeps and the gradients of activations.
    `half_layers` are the layers that allocate anything in 16 bits, at any time; `undecided_bytes` what they
    hold of float32 gradients of which the trace does not tell whether they are a weight's or an activation's.
    `copies_once_bytes` is one 16-bit copy of each weight, `copies_bytes` all of them.

    `moments[code]` are the moments that may hold most once that cause's bytes are taken away, the peak first:
    (bytes of the cause, live bytes). Those of MP606 are what ops of UPDATE allocated but states."""

    phase: str
    asked: dict[Kind, int]
    kept: dict[tuple[str, str], int]
    flowing: dict[tuple[str, str], int]
    undecided_bytes: int
    copies_once_bytes: int
    copies_bytes: int
    half_layers: frozenset[str]
    moments: dict[str, tuple[tuple[int, int], ...]]

    def wide(self, held: Mapping[tuple[str, str], int]) -> Counter[str]:
        """Return by layer what is float32 of `held` (`kept`, `flowing`) in layers that compute in 16 bits."""
        found = Counter[str]()
        for (layer, dtype), size in held.items():
            found[layer] += size if dtype in WIDE and layer in self.half_layers else 0
        return +found


@frozen
class MemoryAccount:
    """The memory of the allocator that held most. `at_peak` is empty, and everything but the peak None, where
    only the records tell of a peak.

    `rounding_bytes` is what the blocks live at the peak hold beyond what was asked for; `fragmentation_ratio`
    the share of the free memory outside its largest block then. `saved_bytes` is the baseline's peak less
    this run's, None without a baseline and, with `why_not_saved`, against one that differs in more than its
    precision; `expected_saving_bytes` what 16 bits could have saved; their difference is the sum of `gap`
    and `unexplained_bytes`. `beyond_16_bits_bytes` is what the peak falls by once the float32 activations of
    layers that compute in 16 bits (MP604) take 16 bits; `gap` has of that what was expected. `shrank` is what
    other kinds hold less than at the baseline's peak, though nothing was expected of them. `driver` is None
    where either run's driver figure or peak is not recorded.
    `states_from` says what the estimated items follow from; None: nothing is estimated. `why_unassigned`:
    why it is not known what is in memory that XLA took for a program; None: it is, or there is none."""

    peak_bytes: int
    at_peak: tuple[MemoryItem, ...]
    saved_bytes: int | None = None
    reachable_bytes: int | None = None
    allocator: str | None = None
    allocators: tuple[Allocator, ...] = ()
    peak_ns: int | None = None
    rounding_bytes: int | None = None
    fragmentation_ratio: float | None = None
    tensors: tuple[Tensor, ...] = ()
    across_steps: tuple[Held, ...] | None = None  # None: fewer than two steps can be told apart
    course: Course | None = None
    expected_saving_bytes: int | None = None
    gap: tuple[Cause, ...] = ()
    unexplained_bytes: int | None = None
    beyond_16_bits_bytes: int | None = None
    shrank: tuple[tuple[Kind, int], ...] = ()
    why_no_expectation: str | None = None
    why_not_saved: str | None = None
    parts: PeakParts | None = None
    driver: DriverSaving | None = None
    states_from: StatesFrom | None = None
    why_unassigned: str | None = None

    @property
    def whole_bytes(self) -> int:
        """The peak that a cause's bytes are held against: the baseline's, where there is one."""
        return max(1, self.peak_bytes + max(0, self.saved_bytes or 0))

    @property
    def main_allocator(self) -> Allocator | None:
        """The allocator whose memory this is; None where the records alone tell of a peak."""
        return next((each for each in self.allocators if each.name == self.allocator), None)

    def of_gap(self, code: str) -> int | None:
        """Return the bytes of the gap that belong to this cause; None where nothing could be expected."""
        if self.expected_saving_bytes is None:
            return None
        return next((part.bytes for part in self.gap if part.code == code), 0)


@frozen
class KeptBytes:
    """What a layer's results take that are kept for backward, at the batch asked for. `what`: its output, its
    input in 16 bits, a mask, attention's scores, a recurrent layer's gates."""

    layer: str
    what: str
    dtype: str
    bytes: int


@frozen
class PolicyMemory:
    """A training under one policy, before it ran. All but the parameters, gradients and slots is estimated.

    `activations_bytes` is the most that activations kept for backward and gradients of activations take at
    once, `of_gradients_bytes` the latter's part, in the backward pass of `fullest_layer`. `peak_bytes` is
    `fixed_bytes` (parameters, their gradients, slots, 16-bit copies) and what grows with the batch.
    `slots_bytes` None: the optimizer's are not known, and not in the sums (`at_least`, `at_most`).
    `largest_batch` None: no card was named, or its memory is not known; 0: not even one example fits.
    `xla_temporaries_bytes` and `xla_peak_bytes`: XLA's own assignment (low, high) where the step was
    compiled, which then decides `peak_bytes` and `largest_batch`."""

    policy: str
    parameters_bytes: int
    gradients_bytes: int
    slots_bytes: int | None
    weight_copies_bytes: int
    input_bytes: int
    kept: tuple[KeptBytes, ...]
    activations_bytes: int
    of_gradients_bytes: int
    fullest_layer: str
    fixed_bytes: int
    bytes_per_example: int
    peak_bytes: int
    largest_batch: int | None
    xla_temporaries_bytes: tuple[int, int] | None = None
    xla_peak_bytes: tuple[int, int] | None = None
    card: str | None = None
    card_bytes: int | None = None

    @property
    def kept_bytes(self) -> int:
        return sum(each.bytes for each in self.kept)

    @property
    def at_least(self) -> tuple[str, ...]:
        """What is too low for want of the optimizer's slots; XLA's own peak has them."""
        if self.slots_bytes is not None:
            return ()
        return ("fixed_bytes",) if self.xla_peak_bytes else ("fixed_bytes", "peak_bytes")

    @property
    def at_most(self) -> tuple[str, ...]:
        """What is too high for want of the optimizer's slots."""
        return ("largest_batch",) if "peak_bytes" in self.at_least and self.largest_batch is not None else ()


@frozen
class MemoryForecast:
    """What `mpprof.forecast_memory` says: a run for each card and policy. `assumed` says what it rests on,
    `unknown` of which layers too little is known. `card`, `card_bytes` None: no card was named, or several,
    of which each run has its own."""

    model: str
    batch_size: int
    card: str | None
    card_bytes: int | None
    runs: tuple[PolicyMemory, ...]
    assumed: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    def __repr__(self) -> str:
        several = len(self.cards) > 1
        runs = ", ".join(
            f"{format_bytes(run.peak_bytes)} in {run.policy}{f' on {run.card}' if several else ''}"
            for run in self.runs
        )
        return f"Memory forecast of {self.model} at batch {self.batch_size:,}: {runs}"

    @property
    def cards(self) -> tuple[str | None, ...]:
        return tuple(dict.fromkeys(run.card for run in self.runs))

    def saving_bytes(self, policy: str, card: str | None = None) -> int | None:
        """Return how many bytes a policy is expected to save of the peak in float32, on that card (None: the
        first); None where either was not asked for."""
        card = card or self.runs[0].card
        peaks = {run.policy: run.peak_bytes for run in self.runs if run.card == card}
        if policy not in peaks or "float32" not in peaks:
            return None
        return peaks["float32"] - peaks[policy]


@frozen
class AliveBuffer:
    """A buffer of a program. `hlo`: what made it, with the type and shape of that part of its result; None:
    not known. `scratch`: a library call's own working space."""

    hlo: HloInstruction | None
    bytes: int
    scratch: bool = False


@frozen
class Taken:
    """An allocation that a program makes when it runs; `result`: it outlives the program. `alive`: what is in
    it when it is fullest, largest first; of one that outlives the program what the program returns in it.
    Empty where the assignment does not state that."""

    bytes: int
    alive: tuple[AliveBuffer, ...]
    result: bool = False


@frozen
class Assignment:
    """What XLA assigned to one program. `peak_bytes` is the most that buffers among the temporaries take at
    once; `temporaries_bytes`, which is allocated, is that and what the packing loses. `alive` are those
    buffers, largest first; empty where the program states no order of allocations. `taken` are the
    allocations that each run makes, in order: outputs and temporaries, but for what reuses arguments."""

    arguments_bytes: int
    outputs_bytes: int
    constants_bytes: int
    temporaries_bytes: int
    peak_bytes: int
    alive: tuple[AliveBuffer, ...]
    taken: tuple[Taken, ...] = ()

    @property
    def whole_bytes(self) -> int:
        return self.arguments_bytes + self.outputs_bytes + self.constants_bytes + self.temporaries_bytes


@frozen
class Program:
    """One compiled program of a trace and its buffer assignment."""

    name: str
    program_id: int
    assigned: Assignment


@frozen
class AliveOf:
    """Buffers of one layer, phase and type that are alive at a program's peak; `layer` "unknown": of none, or
    of none that is known."""

    layer: str
    phase: str
    dtype: str
    bytes: int
