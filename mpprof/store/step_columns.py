"""Parsed lines as the columns of `model.steps`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import NoneType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mpprof.model import limits
from mpprof.model.arrays import Bool, Float64, Int64
from mpprof.model.run_time import RECORDING_ENDED, EpochTable, FitSpan, Spans, SpentKey, SpentTable
from mpprof.model.steps import ABSENT, HardwareTable, StepTable, ValidationTable
from mpprof.store import bounded
from mpprof.store.formats import number

Record = dict[str, Any]

REQUIRED = ("step", "fit", "t_ns")
INTEGERS = (
    "step", "fit", "epoch", "batch", "covers", "t_ns",
    "interval_ns", "duration_ns", "gap_ns", "input_wait_ns", "dispatch_ns", "skipped",
)  # fmt: skip
_LARGEST = dict.fromkeys(INTEGERS, limits.LARGEST_NUMBER) | {
    "covers": limits.MOST_COVERED,
    "epoch": limits.MOST_EPOCHS,
    "fit": limits.MOST_FITS,
    "skipped": limits.MOST_SKIPPED,
}


def sound_step(record: Record) -> bool:
    """Return whether the numbers of a `step` line are within range. A number that the line lacks is no fault
    unless it is required."""
    for key in INTEGERS:
        value = record.get(key)
        if value is None:
            if key in REQUIRED:
                return False
        elif type(value) is not int or not ABSENT <= value <= _LARGEST[key]:
            return False
    if record.get("covers") is not None and record["covers"] < 1:
        return False
    if not isinstance(record.get("memory", []), list):
        return False
    return all(
        number(record[key]) is not None for key in ("loss", "loss_scale") if record.get(key) is not None
    )


class StepColumns:
    """Gathers step lines block by block, so that a long log never stands in memory as objects."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, NDArray[Any]]] = []

    def add(self, records: Sequence[Record]) -> int:
        """Take a block of `step` lines; returns how many were unsound and left out."""
        try:
            self._blocks.append(_block(records))
        except (TypeError, ValueError, OverflowError):
            whole = [{key: value for key, value in one.items() if value is not None} for one in records]
            sound = [record for record in whole if sound_step(record)]
            self._blocks.append(_block(sound))
            return len(records) - len(sound)
        return 0

    def table(self) -> StepTable:
        blocks = self._blocks or [_block(())]
        columns = _joined(blocks)
        _drop_resets(columns["peak_bytes"], columns["live_bytes"])
        for column in columns.values():
            column.setflags(write=False)
        return StepTable(**columns)


def _block(records: Sequence[Record]) -> dict[str, NDArray[Any]]:
    columns: dict[str, NDArray[Any]] = {}
    for name in INTEGERS:
        values: list[Any]
        if name in REQUIRED:
            values = [record.get(name) for record in records]
        else:
            default = 1 if name == "covers" else ABSENT
            values = [record.get(name, default) for record in records]
        columns[name] = _int64(values)
        if ((columns[name] < ABSENT) | (columns[name] > _LARGEST[name])).any():
            raise ValueError(f"{name} is negative, or was never measured")
    if (columns["covers"] < 1).any():
        raise ValueError("a call covers no step")
    for name in ("synced", "profiled"):
        columns[name] = np.array([record.get(name, False) is True for record in records], np.bool_)
    for name in ("loss", "loss_scale"):
        columns[name], columns[f"{name}_known"] = _floats([record.get(name) for record in records])
    memory = [_memory(record["memory"]) if "memory" in record else (ABSENT, ABSENT) for record in records]
    columns["peak_bytes"] = np.array([peak for peak, _ in memory], np.int64)
    columns["live_bytes"] = np.array([live for _, live in memory], np.int64)
    return columns


def _drop_resets(peak: Int64, live: Int64) -> None:
    """Set to `ABSENT` each peak that fell to what is live: it was reset behind the call that its line is of,
    as recordings of before 2026-11-28 did once, and tells nothing of that call."""
    at = np.arange(len(peak))[peak != ABSENT]
    fell = peak[at[1:]] < peak[at[:-1]]
    peak[at[1:][fell & (peak[at[1:]] == live[at[1:]])]] = ABSENT


def _int64(values: list[Any]) -> Int64:
    if not values:
        return np.empty(0, np.int64)
    if set(map(type, values)) != {int}:  # bool is an int to numpy and a float would be cut off
        raise TypeError("not whole numbers")
    return np.array(values, np.int64)


def _floats(values: list[Any]) -> tuple[Float64, Bool]:
    """Return the values, NaN where one is missing, and a mask of those that are present."""
    known = np.array([value is not None for value in values], np.bool_)
    if set(map(type, values)) <= {float}:
        return np.array(values, np.float64), known
    numbers = [np.nan if value is None else number(value) for value in values]
    if None in numbers:
        raise TypeError("not a number")
    return np.array(numbers, np.float64), known


def _memory(devices: Any) -> tuple[int, int]:
    """Return the highest peak and the largest live size over the devices, `ABSENT` where no device states
    one."""
    if not isinstance(devices, list):
        raise TypeError("memory is not a list")
    sizes = [device for device in devices if isinstance(device, dict)]
    return _largest(sizes, "peak_bytes"), _largest(sizes, "live_bytes")


def _largest(sizes: Iterable[Record], key: str) -> int:
    found = [
        size[key] for size in sizes if type(size.get(key)) is int and 0 <= size[key] <= limits.LARGEST_NUMBER
    ]
    return max(found, default=ABSENT)


def validation_table(records: Sequence[Record]) -> ValidationTable:
    pairs = [(record.get("t_ns"), record.get("duration_ns")) for record in records]
    whole = [pair for pair in pairs if all(_is_time(value) for value in pair)]
    return ValidationTable(
        t_ns=np.array([end for end, _ in whole], np.int64),
        duration_ns=np.array([duration for _, duration in whole], np.int64),
    )


MEASURED = (
    "utilization_ratio", "memory_used_bytes", "power_w", "sm_clock_hz", "temperature_c", "cpu_ratio",
    "process_cpu_ratio", "rss_bytes",
)  # fmt: skip


class HardwareColumns:
    """Gathers samples block by block. One without a time is left out; what a sample does not carry is NaN."""

    def __init__(self) -> None:
        self._blocks: list[dict[str, NDArray[Any]]] = []
        self._throttle: list[tuple[str, ...]] = []
        self._sets: dict[tuple[str, ...], tuple[str, ...]] = {}  # each is held once

    def add(self, records: Sequence[Record]) -> None:
        timed = [record for record in records if _is_time(record.get("t_ns"))]
        block: dict[str, NDArray[Any]] = {name: _measured(timed, name) for name in MEASURED}
        block["t_ns"] = np.array([record["t_ns"] for record in timed], np.int64)
        block["gpu"] = np.array([_gpu(record) for record in timed], np.int64)
        self._blocks.append(block)
        self._throttle += [self._known_set(record.get("throttle")) for record in timed]

    def _known_set(self, value: Any) -> tuple[str, ...]:
        names = _names(value)
        if len(self._sets) < limits.MOST_THROTTLE_SETS:
            return self._sets.setdefault(names, names)
        return self._sets.get(names, ())

    def table(self) -> HardwareTable:
        if not self._blocks:
            self.add(())
        return HardwareTable(**_joined(self._blocks), throttle=tuple(self._throttle))


def _joined(blocks: list[dict[str, NDArray[Any]]]) -> dict[str, NDArray[Any]]:
    """Return the columns of all blocks, which are emptied: a long log is held in memory only once."""
    return {name: np.concatenate([block.pop(name) for block in blocks]) for name in tuple(blocks[0])}


def _measured(records: Sequence[Record], key: str) -> Float64:
    values = [record.get(key) for record in records]
    if set(map(type, values)) <= {NoneType}:
        return np.full(len(values), np.nan)
    numbers = np.array([np.nan if (known := number(value)) is None else known for value in values])
    numbers[np.abs(numbers) > limits.LARGEST_NUMBER] = np.nan
    return numbers


def _is_time(value: object) -> bool:
    return type(value) is int and abs(value) <= limits.LONGEST_NS


def _gpu(record: Record) -> int:
    """Return the card's number, `ABSENT` where none is stated that a card can have."""
    gpu = record.get("gpu")
    return gpu if type(gpu) is int and 0 <= gpu < limits.MOST_GPUS else ABSENT


def _names(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list):
        return ()
    names = (each for each in value[: limits.MOST_THROTTLES] if isinstance(each, str))
    return tuple(each[: limits.LONGEST_NAME] for each in names)


_EPOCH = {
    "fit": limits.MOST_FITS,
    "epoch": limits.MOST_EPOCHS,
    "begin_ns": limits.LONGEST_NS,
    "end_ns": limits.LONGEST_NS,
}
_SPENT = {
    "fit": limits.MOST_FITS,
    "first_step": limits.LARGEST_NUMBER,
    "last_step": limits.LARGEST_NUMBER,
    "calls": limits.LARGEST_NUMBER,
}
_OPTIONAL = {"ns": limits.LONGEST_NS}


class SpanColumns:
    """Gathers `fit`, `fit_end`, `recording_end`, `epoch` and `spent` lines; `unsound` counts those that were
    left out."""

    def __init__(self) -> None:
        self._fits: list[FitSpan] = []
        self._epochs: list[tuple[int, ...]] = []
        self._spent: list[tuple[int, ...]] = []
        self._keys: dict[SpentKey, int] = {}
        self.unsound = 0

    def add(self, record: Record) -> None:
        """Take one line; a line of another kind is ignored."""
        kind = record.get("kind")
        if kind == "fit":
            self._begin(record)
        elif kind == "fit_end":
            self._end(record, bounded.name(record, "reason") or "unknown")
        elif kind == "recording_end":
            self._end(record, RECORDING_ENDED)
        elif kind == "epoch":
            self._keep(self._epochs, _whole(record, _EPOCH))
        elif kind == "spent":
            self._keep(self._spent, self._spent_row(record))

    def spans(self) -> Spans:
        epochs = _columns(self._epochs, tuple(_EPOCH))
        spent = _columns(self._spent, ("key", *_SPENT, *_OPTIONAL))
        return Spans(tuple(self._fits), EpochTable(**epochs), SpentTable(tuple(self._keys), **spent))

    def _keep(self, rows: list[tuple[int, ...]], row: tuple[int, ...] | None) -> None:
        if row is None:
            self.unsound += 1
        else:
            rows.append(row)

    def _begin(self, record: Record) -> None:
        fit = bounded.whole(record, "fit", limits.MOST_FITS)
        if fit is not None and len(self._fits) < limits.MOST_FITS:
            self._fits.append(FitSpan(fit, bounded.whole(record, "t_ns", limits.LONGEST_NS)))

    def _end(self, record: Record, reason: str) -> None:
        """End the fit that began last."""
        if self._fits and self._fits[-1].reason is None:
            begun = self._fits[-1]
            end_ns = bounded.whole(record, "t_ns", limits.LONGEST_NS)
            self._fits[-1] = FitSpan(begun.fit, begun.begin_ns, end_ns, reason)

    def _spent_row(self, record: Record) -> tuple[int, ...] | None:
        numbers, texts = _whole(record, _SPENT), [bounded.name(record, key) for key in ("part", "name", "at")]
        ns = ABSENT if record.get("ns") is None else _whole(record, _OPTIONAL)
        if numbers is None or ns is None or None in texts:
            return None
        key = SpentKey(*(text or "" for text in texts))
        if key not in self._keys and len(self._keys) >= limits.MOST_SPENT_NAMES:
            return None
        row = self._keys.setdefault(key, len(self._keys))
        return (row, *numbers, *(ns if isinstance(ns, tuple) else (ns,)))


def _whole(record: Record, largest: Mapping[str, int]) -> tuple[int, ...] | None:
    """Return these numbers of a line; None where one is missing, negative or beyond its bound."""
    values = [bounded.whole(record, key, most) for key, most in largest.items()]
    found = tuple(value for value in values if value is not None and value >= 0)
    return found if len(found) == len(values) else None


def _columns(rows: Sequence[tuple[int, ...]], names: Sequence[str]) -> dict[str, Any]:
    table = np.array(rows, np.int64).reshape(-1, len(names))
    table.setflags(write=False)
    return dict(zip(names, table.T, strict=True))
