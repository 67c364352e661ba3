"""What held a device's memory: who allocated it, when, and what of it was live at the peak."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Annotated, Literal, get_args

from mpprof.model.account import Phase
from mpprof.model.columns import Column
from mpprof.model.frozen import frozen
from mpprof.model.quantities import format_bytes
from mpprof.model.trace import HloInstruction
from mpprof.model.written import HIDDEN, LATER, LEFT_OUT, LOW_HIGH, NULL, After, Code, Count, Key
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
STATES: tuple[Kind, ...] = ("parameters", "optimizer slots", "held before the window")
KEPT: Kind = "activations kept for backward"
UPDATE: tuple[Phase, ...] = ("optimizer", "loss_scale")
"""The phases of a step in which no activation is needed any more."""
By = Literal["dtype", "op", "layer", "kind"]


@frozen
class MemoryItem:
    """Part of what was live at the peak."""

    by: By
    name: str
    bytes: Annotated[int, Column(unit="bytes", grouped="sum")]
    estimated: Annotated[
        bool,
        Column("basis", yes="estimated", no="measured"),
        LEFT_OUT,
        "True: no event shows it; it is derived from memory.states_from. Left out where measured.",
    ] = False
    assigned: Annotated[
        bool,
        Column("stated by", yes="XLA's assignment"),
        LEFT_OUT,
        "True: no event states it, but XLA's buffer assignment of the program that took the memory does. "
        "Left out otherwise.",
    ] = False


@frozen
class Allocator:
    """One allocator of the trace. `capacity_bytes` is what it could give in all; None: not stated."""

    name: str
    where: Literal["device", "host"]
    peak_bytes: Annotated[int, "Within the trace."]
    lifetime_peak_bytes: Annotated[int | None, "By its own count, since it was made."]
    capacity_bytes: int | None
    events: Count


@frozen
class Tensor:
    """Blocks that were live at the peak, alike in all that is stated here."""

    kind: Kind
    op: str
    layer: str
    dtype: str
    shape: str
    count: Count
    bytes: Annotated[int, "Of all of them."]
    born_ns: Annotated[int, "When the first was allocated, on the trace's clock."]
    life_ns: Annotated[
        int | None, "Until the last was freed; null: it outlives the trace, or the trace states no times."
    ]
    assigned: Annotated[bool, LEFT_OUT, "True: by XLA's buffer assignment. Left out otherwise."] = False


@frozen
class HeldAcross:
    """Blocks that an op allocated in one step and that outlive the next one: how many there were in all."""

    op: str
    layer: str
    dtype: str
    count: Count
    bytes: int


@frozen
class Course:
    """Live bytes over the trace: at each of `time_ns` the fullest moment of the stretch that ends there.

    `parts[by][name]` are as many values as `time_ns` has; the parts of one `by` sum to `total_bytes`."""

    time_ns: Annotated[
        tuple[int, ...], "On the trace's clock: the fullest moment of each of up to 240 stretches."
    ]
    total_bytes: tuple[int, ...]
    parts: Annotated[
        dict[str, dict[str, tuple[int, ...]]],
        'By "kind" and "dtype": the parts of one division sum to total_bytes at every moment.',
    ]


@frozen
class RecordedMemory:
    """What the records say, without a trace; None: not recorded. If there are several devices, the one that
    holds most.

    `steady_peak_bytes` may be lower than `peak_bytes`: autotuning and tracing come first."""

    peak_bytes: Annotated[int | None, "The allocator's, over the whole run."]
    steady_peak_bytes: Annotated[int | None, "After warm-up; peak_memory_bytes is the same."]
    first_live_bytes: Annotated[int | None, "What was live at the first reading."]
    last_live_bytes: int | None
    driver_bytes: Annotated[
        int | None, "In use by the driver's figure (median), with what the framework reserves ahead."
    ]
    host_bytes: Annotated[int | None, "The process' largest resident size."]


@frozen
class Filled:
    """Blocks that an out-of-memory error lists, equal ones together; None: not stated."""

    name: str
    dtype: str | None
    shape: str | None
    count: int
    bytes: int


@frozen
class Advice:
    """What to try after an out-of-memory error, with the command or code where there is one."""

    cause: str
    text: str
    snippet: Annotated[str, NULL] = ""


@frozen
class OutOfMemory:
    """What an out-of-memory error states; None: not stated.

    `others_bytes` is None also for so little that it may be rounding of the printed figures. `filled` has the
    largest of the list. Where the driver refused sizes one after the other (`refused_bytes`), `asked_bytes`
    is the first of them: what an allocator wanted to take in advance, no tensor."""

    framework: Literal["tensorflow", "xla", "torch"]
    asked_bytes: Annotated[int | None, "null: the error states no size."]
    limit_bytes: int | None
    used_bytes: int | None
    loose_bytes: Annotated[int | None, "What the allocator held and did not use."]
    others_bytes: Annotated[int | None, "What other processes held of the device."]
    device: str | None
    op: str | None
    filled: Annotated[tuple[Filled, ...], "What the error lists, largest first."]
    parts: Annotated[
        dict[str, int] | None,
        After("op"),
        "Of a compiled program: arguments, outputs, temporaries ...",
    ] = None
    free_bytes: Annotated[
        int | None, LATER, After("others_bytes"), "What the driver had free on the device."
    ] = None
    listed_bytes: Annotated[int | None, LATER, "The sum that the error states of its list."] = None
    refused_bytes: Annotated[
        int | None, LATER, "The least that the driver refused: less was free in one piece."
    ] = None
    words: Annotated[str | None, LATER, "The error's words, where it states no size."] = None
    card_bytes: Annotated[int | None, LATER, "The card's memory, by the records."] = None
    advice: Annotated[tuple[Advice, ...], "What to try, the likeliest first."] = ()

    @property
    def schema(self) -> Annotated[Literal["mpprof.out_of_memory/1"], After("")]:
        """The name of its document."""
        return "mpprof.out_of_memory/1"


@frozen
class MemoryCause:
    """Part of what mixed precision could have saved and did not: the bytes that one finding explains."""

    code: Code
    bytes: int


@frozen
class MemoryOfKind:
    kind: Kind
    bytes: int


@frozen
class DriverSaving:
    """The driver's figure (nvidia-smi's) of this run and of the baseline, in bytes."""

    bytes: int
    baseline_bytes: int
    peak_saved_bytes: Annotated[int, "What the allocator's recorded peak fell by."]
    unused_bytes: Annotated[
        int,
        After("hidden_bytes"),
        "In use by the driver's figure beyond the allocator's recorded peak.",
    ]
    code: Annotated[
        Code | None,
        LEFT_OUT,
        After("unused_bytes"),
        "Why the driver's figure hardly fell. Left out where it fell too.",
    ]

    @property
    def saved_bytes(self) -> Annotated[int, After("baseline_bytes"), "baseline_bytes - bytes."]:
        return self.baseline_bytes - self.bytes

    @property
    def hidden_bytes(
        self,
    ) -> Annotated[int, "Of peak_saved_bytes, what the driver's figure does not show."]:
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

    `saved_bytes` is the baseline's peak less this run's, None without a baseline and, with `why_not_saved`,
    against one that differs in more than its precision. `beyond_16_bits_bytes` is what the peak falls by once
    the float32 activations of layers that compute in 16 bits (MP604) take 16 bits; `gap` has of that what was
    expected. `driver` is None where either run's driver figure or peak is not recorded. `why_unassigned` is
    None where it is known what is in memory that XLA took for a program, or there is none."""

    peak_bytes: int
    at_peak: Annotated[tuple[MemoryItem, ...], "Each division sums to the peak as far as it is known."]
    saved_bytes: int | None = None
    reachable_bytes: int | None = None
    allocator: Annotated[str | None, LATER, "The allocator; null: known from the records alone."] = None
    allocators: Annotated[tuple[Allocator, ...], LATER, "Of the trace: devices first, then by peak."] = ()
    peak_ns: Annotated[int | None, LATER, "When the peak was, on the trace's clock."] = None
    rounding_bytes: Annotated[
        int | None, LATER, "What the blocks live at the peak hold beyond what was asked for."
    ] = None
    fragmentation_ratio: Annotated[
        float | None, LATER, "Of the free memory at the peak, what lies outside its largest block."
    ] = None
    tensors: Annotated[
        tuple[Tensor, ...], LATER, "The largest blocks live at the peak, equal ones together."
    ] = ()
    across_steps: Annotated[
        tuple[HeldAcross, ...] | None,
        LATER,
        "What is allocated in one step and outlives the next; null: the trace does not hold two steps.",
    ] = None
    course: Annotated[Course | None, LATER, "Live bytes over the trace."] = None
    expected_saving_bytes: Annotated[
        int | None,
        LATER,
        "What 16 bits could have saved at the baseline's peak: half of the float32 activations that are "
        "kept for backward and computed in 16 bits, less the 16-bit copies of the weights.",
    ] = None
    gap: Annotated[
        tuple[MemoryCause, ...],
        LATER,
        "expected_saving_bytes - saved_bytes by cause; with unexplained_bytes they sum to it.",
    ] = ()
    unexplained_bytes: Annotated[int | None, LATER] = None
    beyond_16_bits_bytes: Annotated[int | None, HIDDEN] = None
    shrank: Annotated[
        tuple[MemoryOfKind, ...],
        LATER,
        "What the peak holds less than the baseline's by kind, though nothing was expected of it; "
        "unexplained_bytes is negative by that. What is below 1 % of the baseline's peak is left out.",
    ] = ()
    why_no_expectation: Annotated[str | None, HIDDEN] = None
    why_not_saved: Annotated[str | None, HIDDEN] = None
    parts: Annotated[PeakParts | None, HIDDEN] = None
    driver: Annotated[
        DriverSaving | None,
        LATER,
        "The driver's figures beside the saving; null: not recorded of both.",
    ] = None
    states_from: Annotated[
        StatesFrom | None,
        LATER,
        "What the estimated items follow from: the recorded model, the gradients that the optimizer's "
        "updates free, or the 16-bit copies of the weights; null: nothing is estimated.",
    ] = None
    why_unassigned: Annotated[
        str | None,
        LEFT_OUT,
        "Why it is not known what is in memory that XLA took for a program. Left out where it is known, "
        "or XLA took none.",
    ] = None
    beside_gap: Annotated[
        tuple[MemoryCause, ...],
        LATER,
        After("shrank"),
        "Findings about memory that the run does not use. They do not belong to the gap, which is of the "
        "bytes that the allocator gave out: MP602 is what the driver's figure holds beyond the "
        "allocator's peak, MP303 what the card has left for a larger batch. Empty without a baseline.",
    ] = ()  # set by the report, which has the findings

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
class MemoryComparison:
    """What `mpprof memory RUN --baseline BASE --format json` prints."""

    run: str
    baseline: str
    memory: Annotated[MemoryAccount | None, "As in the report; null: absent has the reason."]
    unlike: Annotated[tuple[str, ...], "Differences other than precision, which leave the saving unknown."]
    absent: Annotated[dict[str, str], "By the name of a key: why it is not known."]

    @property
    def schema(self) -> Annotated[Literal["mpprof.memory/1"], After("")]:
        """The name of its document."""
        return "mpprof.memory/1"


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
    `largest_batch` None: no card was named, its memory is not known, or the model has `custom_layers` and was
    not compiled; 0: not even one example fits. `custom_layers`: of no known kind, which may keep more for the
    backward pass than their input, which is counted. `left_out`: what else is not counted, so that the peak
    is too low and the largest batch too high.
    `xla_temporaries_bytes` and `xla_peak_bytes`: XLA's own assignment (low, high) where the step was
    compiled, which then decides `peak_bytes` and `largest_batch`."""

    policy: Annotated[str, After("card_bytes")]
    parameters_bytes: int
    gradients_bytes: int
    slots_bytes: int | None
    weight_copies_bytes: int
    input_bytes: int
    kept: tuple[KeptBytes, ...]
    activations_bytes: int
    of_gradients_bytes: Annotated[int, Key("activation_gradients_bytes")]
    fullest_layer: str
    fixed_bytes: int
    bytes_per_example: int
    peak_bytes: int
    largest_batch: int | None
    xla_temporaries_bytes: Annotated[tuple[int, int] | None, LOW_HIGH] = None
    xla_peak_bytes: Annotated[tuple[int, int] | None, LOW_HIGH] = None
    card: Annotated[str | None, After("")] = None
    card_bytes: Annotated[int | None, After("card")] = None
    saving_bytes: Annotated[int | None, After("peak_bytes")] = None  # set by the document
    custom_layers: Annotated[tuple[str, ...], LATER] = ()
    left_out: Annotated[tuple[str, ...], LATER] = ()

    @property
    def kept_bytes(self) -> Annotated[int, After("input_bytes")]:
        return sum(each.bytes for each in self.kept)

    @property
    def estimated(self) -> Annotated[tuple[str, ...], After("xla_peak_bytes")]:
        """The keys that are estimates; the others follow exactly from the model."""
        always = ("weight_copies_bytes", "kept", "kept_bytes", "activations_bytes", "largest_batch")
        return always if self.xla_peak_bytes else (*always, "peak_bytes", "saving_bytes")

    @property
    def at_least(self) -> Annotated[tuple[str, ...], After("estimated")]:
        """What is too low for want of the optimizer's slots, or of what custom layers keep; XLA's own peak
        has both."""
        low: tuple[str, ...] = () if self.slots_bytes is not None else ("fixed_bytes",)
        if self.custom_layers or self.left_out:
            low += ("kept_bytes", "activations_bytes", "bytes_per_example")
        return low if self.xla_peak_bytes or not low else (*low, "peak_bytes")

    @property
    def at_most(self) -> Annotated[tuple[str, ...], After("at_least")]:
        """What is too high for want of the optimizer's slots."""
        return ("largest_batch",) if "peak_bytes" in self.at_least and self.largest_batch is not None else ()


@frozen
class MemoryForecast:
    """What `mpprof.forecast_memory` says: a run for each card and policy. `assumed` says what it rests on,
    `unknown` of which layers too little is known. `card`, `card_bytes` None: no card was named, or several,
    of which each run has its own."""

    model: str
    batch_size: Annotated[int, Key("batch")]
    card: str | None
    card_bytes: int | None
    runs: tuple[PolicyMemory, ...]
    assumed: tuple[str, ...]
    unknown: tuple[str, ...] = ()

    @property
    def schema(self) -> Annotated[Literal["mpprof.memory_forecast/1"], After("")]:
        """The name of its document."""
        return "mpprof.memory_forecast/1"

    def __repr__(self) -> str:
        several = len(self.cards) > 1
        runs = ", ".join(
            f"{'at least ' if 'peak_bytes' in run.at_least else ''}{format_bytes(run.peak_bytes)} "
            f"in {run.policy}{f' on {run.card}' if several else ''}"
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
    not known. `scratch`: a library call's own working space. `recasts`: it holds an argument of the program
    in another type, and nothing else."""

    hlo: HloInstruction | None
    bytes: int
    scratch: bool = False
    recasts: bool = False


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
