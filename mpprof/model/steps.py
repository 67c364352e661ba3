"""The step log in columns, the hardware samples, and what is said of them in short."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpprof.columnar import Columnar
from mpprof.model.frozen import frozen
from mpprof.model.memory import RecordedMemory

Int64 = NDArray[np.int64]
Float64 = NDArray[np.float64]
Bool = NDArray[np.bool_]

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

    worker: int
    count: int
    mean_ns: float | None
    median_ns: float | None
    p95_ns: float | None


@frozen
class StepSummary:
    """What the step log says in short. `None`: not recorded (the run's `absent` says why)."""

    count: int
    steady: int  # steps that are neither warm-up, profiled, nor an epoch's edge
    first_steady: int | None  # step number at which warm-up has ended; None: it never did
    mean_ns: float | None  # the step time: of all steps after warm-up, every stall included
    median_ns: float | None  # per optimizer step (interval / covers) over the steady ones
    p95_ns: float | None
    interval_ns: tuple[float, float] | None  # 95 %, of the median; of few means, of their mean
    skipped: int | None
    skipped_ratio: float | None
    loss_scale: LossScaleSummary | None
    peak_memory_bytes: int | None
    examples_per_s: float | None = None  # None: no batch size, or no step time
    steps_per_epoch: int | None = None  # the median epoch that has ended; None: none has
    gpu_hours_per_epoch: float | None = None  # of its steps, on all GPUs; None: no GPU, epoch or step time
    workers: tuple[WorkerSummary, ...] = ()  # each of them, in order, where several trained together
    memory: RecordedMemory | None = None  # what the records say of memory
    mean_interval_ns: tuple[float, float] | None = None  # 95 %, of `mean_ns`, within this run
    why_no_interval: str | None = None  # of `mean_ns`
