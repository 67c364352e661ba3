"""What the step log says."""

from __future__ import annotations

from typing import Annotated, NotRequired, TypedDict

from mpprof.model.document.values import Count, Interval, Number, Reading


class Steps(TypedDict):
    count: Count
    steady: Annotated[Count, "Neither warm-up, profiled, nor an epoch's edge."]
    mean_ns: NotRequired[
        Annotated[
            Number | None,
            "The step time, which `time.step_ns` equals: the time of all steps after warm-up over their "
            "number, stalls included; without validations, profile windows and what lies between epochs.",
        ]
    ]
    median_ns: Annotated[Number | None, "Of the steady steps; it describes their shape."]
    p95_ns: Number | None
    skipped: Annotated[int | None, "Optimizer updates skipped."]
    skipped_ratio: Number | None
    loss_scale: LossScale | None
    peak_memory_bytes: int | None
    interval_ns: Annotated[
        Interval | None,
        "95 % confidence interval of the median; of two to five means of several steps that of their mean.",
    ]
    mean_interval_ns: NotRequired[
        Annotated[
            Interval | None,
            "95 % confidence interval of mean_ns, within this run: how much another run of the same script "
            "would differ is not in it.",
        ]
    ]
    first_steady: Annotated[int | None, "Step at which warm-up has ended."]
    examples_per_s: NotRequired[Annotated[Number | None, "By the mean step."]]
    steps_per_epoch: NotRequired[Annotated[int | None, "Of the median epoch that has ended."]]
    gpu_hours_per_epoch: NotRequired[
        Annotated[Number | None, "Of an epoch's steps on all GPUs, without validation."]
    ]
    workers: NotRequired[
        Annotated[list[Worker], "Each worker's own step times, where several trained together; else empty."]
    ]
    memory: NotRequired[
        Annotated[RecordedMemory, "What the records say of memory; left out without readings."]
    ]


class RecordedMemory(TypedDict):
    peak_bytes: Annotated[int | None, "The allocator's, over the whole run."]
    steady_peak_bytes: Annotated[int | None, "After warm-up; peak_memory_bytes is the same."]
    first_live_bytes: Annotated[int | None, "What was live at the first reading."]
    last_live_bytes: int | None
    driver_bytes: Annotated[
        int | None, "In use by the driver's figure (median), with what the framework reserves ahead."
    ]
    host_bytes: Annotated[int | None, "The process' largest resident size."]


class LossScale(TypedDict):
    first: Reading
    last: Reading
    min: Reading
    max: Reading


class Worker(TypedDict):
    worker: Count
    count: Count
    mean_ns: NotRequired[Number | None]
    median_ns: Number | None
    p95_ns: Number | None
