"""What held the memory at the peak, what was saved, and an out-of-memory error."""

from __future__ import annotations

from typing import Annotated, Literal, NotRequired, TypedDict

from mpprof.model.document.values import Code, Count, Number
from mpprof.model.memory import Kind, StatesFrom


class OutOfMemory(TypedDict):
    schema: Literal["mpprof.out_of_memory/1"]
    framework: Literal["tensorflow", "xla", "torch"]
    asked_bytes: Annotated[int | None, "null: the error states no size."]
    limit_bytes: int | None
    used_bytes: int | None
    loose_bytes: Annotated[int | None, "What the allocator held and did not use."]
    others_bytes: Annotated[int | None, "What other processes held of the device."]
    free_bytes: NotRequired[Annotated[int | None, "What the driver had free on the device."]]
    device: str | None
    op: str | None
    parts: Annotated[dict[str, int] | None, "Of a compiled program: arguments, outputs, temporaries ..."]
    filled: Annotated[list[Filled], "What the error lists, largest first."]
    listed_bytes: NotRequired[Annotated[int | None, "The sum that the error states of its list."]]
    refused_bytes: NotRequired[
        Annotated[int | None, "The least that the driver refused: less was free in one piece."]
    ]
    words: NotRequired[Annotated[str | None, "The error's words, where it states no size."]]
    advice: Annotated[list[Advice], "What to try, the likeliest first."]


class Filled(TypedDict):
    name: str
    dtype: str | None
    shape: str | None
    count: int
    bytes: int


class Advice(TypedDict):
    cause: str
    text: str
    snippet: str | None


class Memory(TypedDict):
    peak_bytes: int
    at_peak: Annotated[list[MemoryItem], "Each division sums to the peak as far as it is known."]
    saved_bytes: int | None
    reachable_bytes: int | None
    allocator: NotRequired[Annotated[str | None, "The allocator; null: known from the records alone."]]
    allocators: NotRequired[Annotated[list[Allocator], "Of the trace: devices first, then by peak."]]
    peak_ns: NotRequired[Annotated[int | None, "When the peak was, on the trace's clock."]]
    rounding_bytes: NotRequired[
        Annotated[int | None, "What the blocks live at the peak hold beyond what was asked for."]
    ]
    fragmentation_ratio: NotRequired[
        Annotated[Number | None, "Of the free memory at the peak, what lies outside its largest block."]
    ]
    tensors: NotRequired[Annotated[list[Tensor], "The largest blocks live at the peak, equal ones together."]]
    across_steps: NotRequired[
        Annotated[
            list[HeldAcross] | None,
            "What is allocated in one step and outlives the next; null: the trace does not hold two steps.",
        ]
    ]
    course: NotRequired[Annotated[Course | None, "Live bytes over the trace."]]
    expected_saving_bytes: NotRequired[
        Annotated[
            int | None,
            "What 16 bits could have saved at the baseline's peak: half of the float32 activations that are "
            "kept for backward and computed in 16 bits, less the 16-bit copies of the weights.",
        ]
    ]
    gap: NotRequired[
        Annotated[
            list[MemoryCause],
            "expected_saving_bytes - saved_bytes by cause; with unexplained_bytes they sum to it.",
        ]
    ]
    unexplained_bytes: NotRequired[int | None]
    shrank: NotRequired[
        Annotated[
            list[MemoryOfKind],
            "What the peak holds less than the baseline's by kind, though nothing was expected of it; "
            "unexplained_bytes is negative by that. What is below 1 % of the baseline's peak is left out.",
        ]
    ]
    beside_gap: NotRequired[
        Annotated[
            list[MemoryCause],
            "Findings about memory that the run does not use. They are no part of the gap, which is of the "
            "bytes that the allocator gave out: MP602 is what the driver's figure holds beyond the "
            "allocator's peak, MP303 what the card has left for a larger batch. Empty without a baseline.",
        ]
    ]
    driver: NotRequired[
        Annotated[DriverSaving | None, "The driver's figures beside the saving; null: not recorded of both."]
    ]
    states_from: NotRequired[
        Annotated[
            StatesFrom | None,
            "What the estimated items follow from: the recorded model, the gradients that the optimizer's "
            "updates free, or the 16-bit copies of the weights; null: nothing is estimated.",
        ]
    ]
    why_unassigned: NotRequired[
        Annotated[
            str,
            "Why it is not known what is in memory that XLA took for a program. Left out where it is known, "
            "or XLA took none.",
        ]
    ]


class MemoryComparison(TypedDict):
    """What `mpprof memory RUN --baseline BASE --format json` prints."""

    schema: Literal["mpprof.memory/1"]
    run: str
    baseline: str
    memory: Annotated[Memory | None, "As in the report; null: absent has the reason."]
    unlike: Annotated[list[str], "Differences other than precision, which leave the saving unknown."]
    absent: Annotated[dict[str, str], "By the name of a key: why it is not known."]


class MemoryItem(TypedDict):
    by: Literal["dtype", "op", "layer", "kind"]
    name: str
    bytes: int
    estimated: NotRequired[
        Annotated[
            bool, "True: no event shows it; it is derived from memory.states_from. Left out where measured."
        ]
    ]
    assigned: NotRequired[
        Annotated[
            bool,
            "True: no event states it, but XLA's buffer assignment of the program that took the memory does. "
            "Left out otherwise.",
        ]
    ]


class Allocator(TypedDict):
    name: str
    where: Literal["device", "host"]
    peak_bytes: Annotated[int, "Within the trace."]
    lifetime_peak_bytes: Annotated[int | None, "By its own count, since it was made."]
    capacity_bytes: int | None
    events: Count


class Tensor(TypedDict):
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
    assigned: NotRequired[Annotated[bool, "True: by XLA's buffer assignment. Left out otherwise."]]


class HeldAcross(TypedDict):
    op: str
    layer: str
    dtype: str
    count: Count
    bytes: int


class Course(TypedDict):
    time_ns: Annotated[list[int], "On the trace's clock: the fullest moment of each of up to 240 stretches."]
    total_bytes: list[int]
    parts: Annotated[
        dict[str, dict[str, list[int]]],
        'By "kind" and "dtype": the parts of one division sum to total_bytes at every moment.',
    ]


class DriverSaving(TypedDict):
    bytes: int
    baseline_bytes: int
    saved_bytes: Annotated[int, "baseline_bytes - bytes."]
    peak_saved_bytes: Annotated[int, "What the allocator's recorded peak fell by."]
    hidden_bytes: Annotated[int, "Of peak_saved_bytes, what the driver's figure does not show."]
    unused_bytes: Annotated[int, "In use by the driver's figure beyond the allocator's recorded peak."]
    code: NotRequired[Annotated[Code, "Why the driver's figure hardly fell. Left out where it fell too."]]


class MemoryCause(TypedDict):
    code: Code
    bytes: int


class MemoryOfKind(TypedDict):
    kind: Kind
    bytes: int
