"""The step log in columns, the hardware samples, and what is said of them in short."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray

from mpprof.columnar import Columnar
from mpprof.model.arrays import Bool, Float64, Int64
from mpprof.model.frozen import frozen
from mpprof.model.memory import RecordedMemory
from mpprof.model.written import HIDDEN, LATER, LEFT_OUT, After, Count, IntervalNs, Ns

ABSENT = -1
"""In integer columns that cannot be negative: not measured."""


def _with_none(values: NDArray[Any], known: Bool) -> list[Any]:
    """Return the values as Python objects, None where they are not known."""
    return [value if there else None for value, there in zip(values.tolist(), known.tolist(), strict=True)]


@frozen
class StepTable(Columnar):
    """One row per `step` line of steps.jsonl, in the order written; all columns have the same length n.

    The arrays are for arithmetic: integer columns hold `ABSENT` (-1) where a line has no such key, a float
    column has a twin `<name>_known`, because the value itself may be NaN. `to_dict`, `to_polars` and
    `to_pandas` have None instead, and no twins.
    """

    step: Int64  # 1-based, after this call, over all fits
    fit: Int64  # counted from 1
    epoch: Int64  # Keras' epoch, 0-based
    batch: Int64  # Keras' batch within the epoch, of the last step of this call
    covers: Int64  # steps that really ran in this call, >= 1
    t_ns: Int64  # of the call's end, from run.json's clock.monotonic_ns
    interval_ns: Int64  # batch begin to the next batch begin of the same epoch, per call; -1 for the last
    duration_ns: Int64  # begin to end of the call
    gap_ns: Int64  # previous end to this begin; -1 at an epoch's start
    input_wait_ns: Int64  # only where it was measured
    dispatch_ns: Int64  # asynchronous backends: what the host took
    synced: Bool  # a device synchronisation of ours lies in this call
    profiled: Bool  # the profile window covers this call
    loss: Float64
    loss_known: Bool
    loss_scale: Float64
    loss_scale_known: Bool
    skipped: Int64  # optimizer updates skipped since the last row that has it
    peak_bytes: Int64  # the highest peak over the devices read on this line
    live_bytes: Int64

    def __len__(self) -> int:
        return len(self.step)

    def to_dict(self) -> dict[str, list[Any]]:
        columns = {each.name: getattr(self, each.name) for each in fields(self)}
        known = {name: columns.get(f"{name}_known", values != ABSENT) for name, values in columns.items()}
        return {
            name: values.tolist() if values.dtype == np.bool_ else _with_none(values, known[name])
            for name, values in columns.items()
            if not name.endswith("_known")
        }


@frozen
class ValidationTable(Columnar):
    """One row per `validation` line: when it ended and how long it took."""

    t_ns: Int64
    duration_ns: Int64

    def to_dict(self) -> dict[str, list[Any]]:
        return {
            each.name: _with_none(values, values != ABSENT)
            for each in fields(self)
            for values in [getattr(self, each.name)]
        }


@frozen
class HardwareTable(Columnar):
    """One row per line of hardware.jsonl; NaN: not measured on that line. Empty arrays: no samples."""

    t_ns: Int64
    gpu: Int64  # NVML index, -1: a line without a GPU
    utilization_ratio: Float64
    memory_used_bytes: Float64
    power_w: Float64
    sm_clock_hz: Float64
    temperature_c: Float64
    cpu_ratio: Float64  # of the machine: all processes, over all cores
    process_cpu_ratio: Float64  # of the process that trains and its children, over all cores
    rss_bytes: Float64
    throttle: tuple[tuple[str, ...], ...]  # per row

    def __len__(self) -> int:
        return len(self.t_ns)

    def to_dict(self) -> dict[str, list[Any]]:
        arrays = {each.name: getattr(self, each.name) for each in fields(self) if each.name != "throttle"}
        columns = {
            name: _with_none(values, values != ABSENT if values.dtype == np.int64 else ~np.isnan(values))
            for name, values in arrays.items()
        }
        return columns | {"throttle": [list(names) for names in self.throttle]}


@frozen
class LossScaleSummary:
    """The dynamic loss scale over the run, from the lines where it was read."""

    first: float
    last: float
    min: float
    max: float


@frozen
class WorkerSummary:
    """One worker's own step log in short; `worker` 0 is the first. None: it has no steady step."""

    worker: Count
    count: Count
    mean_ns: Annotated[Ns | None, LATER]
    median_ns: Ns | None
    p95_ns: Ns | None


@frozen
class StepSummary:
    """What the step log says in short. `None`: not recorded (the run's `absent` says why)."""

    count: Count
    steady: Annotated[Count, "Neither warm-up, profiled, nor an epoch's edge."]
    first_steady: Annotated[int | None, After("mean_interval_ns"), "Step at which warm-up has ended."]
    mean_ns: Annotated[
        Ns | None,
        LATER,
        "The step time, which `time.step_ns` equals: the time of all steps after warm-up over their "
        "number, stalls included; without validations, profile windows and what lies between epochs.",
    ]
    median_ns: Annotated[Ns | None, "Of the steady steps; it describes their shape."]
    p95_ns: Ns | None
    interval_ns: Annotated[
        IntervalNs | None,
        After("peak_memory_bytes"),
        "95 % confidence interval of the median; of two to five means of several steps that of their mean.",
    ]
    skipped: Annotated[int | None, "Optimizer updates skipped."]
    skipped_ratio: float | None
    loss_scale: LossScaleSummary | None
    peak_memory_bytes: int | None
    examples_per_s: Annotated[float | None, LATER, "By the mean step."] = None
    steps_per_epoch: Annotated[int | None, LATER, "Of the median epoch that has ended."] = None
    gpu_hours_per_epoch: Annotated[
        float | None, LATER, "Of an epoch's steps on all GPUs, without validation."
    ] = None
    workers: Annotated[
        tuple[WorkerSummary, ...],
        LATER,
        "Each worker's own step times, where several trained together; else empty.",
    ] = ()
    memory: Annotated[
        RecordedMemory | None,
        LEFT_OUT,
        "What the records say of memory; left out without readings.",
    ] = None
    mean_interval_ns: Annotated[
        IntervalNs | None,
        LATER,
        After("interval_ns"),
        "95 % confidence interval of mean_ns, within this run: how much another run of the same script "
        "would differ is not in it.",
    ] = None
    why_no_interval: Annotated[str | None, HIDDEN] = None  # of `mean_ns`
