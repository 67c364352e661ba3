"""Named questions about one run, answered lazily, each with a value or with `Absent` and the reason.

Rules ask these and nothing else, so that no rule mistakes "not recorded" for "no".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, partial
from operator import attrgetter
from pathlib import Path

import numpy as np

from mpprof.analysis.attainable.evidence import Evidence, well_fed
from mpprof.analysis.breakdown import communication
from mpprof.analysis.breakdown.compute_precision import compute_precision
from mpprof.analysis.kernels import device_peaks
from mpprof.analysis.steps import host_floor
from mpprof.analysis.steps.idle import HOST_RUNS
from mpprof.analysis.steps.run_time import run_time, why_none
from mpprof.analysis.steps.stalls import Stalls, stalls
from mpprof.analysis.steps.statistics import asynchronous
from mpprof.diagnosis.outcomes import (
    ENDED_BY_ERROR,
    NO_GPU,
    NOT_IN_16_BITS,
    OUT_OF_MEMORY,
    Absent,
    Claim,
    NotApplicable,
    Unable,
    cost_ns,
    known,
)
from mpprof.diagnosis.remedies import choosing, conditions, frameworks
from mpprof.diagnosis.remedies.frameworks import Framework
from mpprof.model.account import (
    FEW_WORKS,
    IDLE_CLASSES,
    Account,
    Cell,
    Class,
    ComputePrecision,
    KernelCalls,
    Speedup,
    TensorCoreShare,
)
from mpprof.model.answer import Remedy
from mpprof.model.arrays import Bool, Float64, Int64
from mpprof.model.device import MAYBE_NVIDIA, DeviceFacts, DevicePeaks, Vendor
from mpprof.model.frozen import frozen
from mpprof.model.hosts import Collective, DeviceLoad, Hosts
from mpprof.model.kernels import ACCELERATED, Placements
from mpprof.model.memory import MemoryAccount, PeakParts
from mpprof.model.run import FitFacts, LayerFacts, OptimizerFacts, Run, RunFacts
from mpprof.model.run_time import RunTime
from mpprof.model.shell import quoted
from mpprof.model.steps import StepSummary, StepTable
from mpprof.model.trace import HostKind, Trace

HALF_DTYPES = {"float16": "fp16", "bfloat16": "bf16"}

HALF_PRECISIONS = frozenset(HALF_DTYPES.values())
DISTORTED_RATIO = 1.5
"""A profiled step half as long again as an unprofiled one is mostly another step."""
NOTABLE_MEMORY, LARGE_MEMORY = 0.05, 0.2
"""Shares of the peak that are worth a mention, as one more example in twenty, and a warning."""
_ACCELERATORS = ("GPU", "Gpu", "gpu", "cuda", "Cuda", "CUDA", "cuStream", "TPU")
"""What a trace of a run with an accelerator names, even where it shows no work of it."""
NO_WORK: frozenset[Class] = frozenset((*IDLE_CLASSES, "profiling"))


@frozen
class Case:
    """All that is known of one run when it is judged; `None`: there is none.

    `trace_problem` says why there is no account although there is a trace (or no trace at all). `window` is
    the account of the whole window, where there is none of a step. `dismissed`: codes of findings that are
    not to be remedied.
    """

    run: Run
    trace: Trace | None = None
    placements: Placements | None = None
    account: Account | None = None
    steps: StepSummary | None = None
    tensor_core: TensorCoreShare | None = None
    speedup: Speedup | None = None
    memory: MemoryAccount | None = None
    peaks: DevicePeaks | None = None
    trace_problem: str | None = None
    baseline: Case | None = None
    computes: ComputePrecision | None = None  # None: by the run's records and the account's cells
    ladder: bool = False  # a rung of several, or before and after a change: runs differ by design
    window: Account | None = None
    hosts: Hosts | None = None  # None: the run is on one host
    dismissed: frozenset[str] = frozenset()

    @property
    def measured(self) -> Account | None:
        """The account of a step, else of the whole window."""
        return self.account or self.window


@frozen
class SkipHistory:
    """One row per reading of the skip counter: the step it was read after, the optimizer updates skipped
    since the reading before, and the steps that ran since then. Sums are exact, positions to the reading.
    `scale`: the loss scale then, NaN where it was not read; `spoiled`: a loss on record since the reading
    before is not finite."""

    step: Int64
    skipped: Int64
    span: Int64
    scale: Float64
    spoiled: Bool

    def __getitem__(self, rows: Bool | slice) -> SkipHistory:
        """Return these readings alone."""
        return SkipHistory(
            self.step[rows], self.skipped[rows], self.span[rows], self.scale[rows], self.spoiled[rows]
        )


class Signals:
    """The questions. Every property gives a value or `Absent`."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.claimed: frozenset[int] = frozenset()
        """Rows of the cells that other causes hold: set before a rule of the remainder is asked."""

    # ---- what can be done

    def remedies(
        self, cause: str, cases: Sequence[str] = ("",), values: Mapping[str, object] | None = None
    ) -> tuple[Remedy, ...]:
        """Return those of the table's remedies for a cause (or for "record run" and its like) that fit this
        run."""
        return choosing.choose(cause, self, cases, values)

    def advice(self, cause: str, case: str = "") -> str:
        """Return the remedies as one text; "" where nothing can be done."""
        return choosing.joined(choosing.choose(cause, self, (case,)))

    def hint(self, cause: str) -> str:
        """Return the remedies as the end of a sentence: "; record ...", or nothing."""
        said = self.advice(cause)
        return f"; {said}" if said else ""

    @cached_property
    def only_infers(self) -> bool:
        """The trace shows an inference: nothing is scaled, updated or skipped."""
        return conditions.shows_inference(self)

    @property
    def forward_alone(self) -> bool:
        """The account is of a forward pass, or of a part of one, and no records tell of a training."""
        account = self.case.account
        return self.case.run.facts is None and account is not None and account.unit in ("pass", "part")

    @property
    def how_to_compare(self) -> str:
        """Why there is no speedup, and how to record the run that is missing for one."""
        return f"{self._why_no_comparison}. {self.advice('record other precision', 'how')}"

    @property
    def _why_no_comparison(self) -> str:
        if self.computes.kind == "unknown":
            return "no other run to compare with"
        if self.computes.narrow:
            kind = "other" if self.only_infers else "float32"
            return f"no {kind} run to compare with"
        return f"this run computes in {self.computes.words}: it is a baseline itself"

    @cached_property
    def framework(self) -> Framework:
        """What the model is written in."""
        return frameworks.of_model(self.case.run.facts, self.case.trace, self.named)

    @cached_property
    def loop_framework(self) -> Framework:
        """What runs the training loop: in a loop of the user's own not Keras, but what lies below."""
        return frameworks.of_loop(self.case.run.facts, self.framework)

    @cached_property
    def vendor(self) -> Vendor:
        """Who makes the device."""
        device = self._device
        return device_peaks.vendor(device) if device is not None else "unknown"

    @cached_property
    def words(self) -> dict[str, object]:
        """What the table's remedies leave open, by name."""
        run = self.case.run.path
        return frameworks.words(self.case.run.facts, self.framework) | {
            "recorder": "MPProfilerCallback" if self.loop_framework in frameworks.KERAS else "StepRecorder",
            "run": quoted(run),
            "logdir": quoted(_logdir(run)),
        }

    def named(self, *marks: str) -> bool:
        """Return whether a text of the trace (events, kernels, ops) holds any of these words."""
        texts = self._texts
        return any(mark in texts for mark in marks)

    @cached_property
    def _texts(self) -> str:
        trace = self.case.trace
        return "\n".join((*trace.strings, *map(attrgetter("name"), trace.ops))) if trace is not None else ""

    def _absent(self, reason: str, remedy: str = "record run") -> Absent:
        """Return no answer for want of what this remedy records."""
        return Absent(reason, partial(self.advice, remedy))

    # ---- what was recorded of the run

    @property
    def facts(self) -> RunFacts | Absent:
        return self.case.run.facts or self._absent("no facts of the run were recorded")

    @property
    def ran_out_of_memory(self) -> bool:
        """The training is known to have ended for want of memory."""
        facts = known(self.facts)
        return facts is not None and facts.ended is not None and facts.ended.reason == "out_of_memory"

    @property
    def ended_by_error(self) -> NotApplicable | None:
        """What a rule says that asks for a longer training, of one that an error ended."""
        facts = known(self.facts)
        if facts is None or facts.ended is None or not facts.ended.by_error:
            return None
        return OUT_OF_MEMORY if self.ran_out_of_memory else ENDED_BY_ERROR

    @property
    def fit(self) -> FitFacts | Absent:
        return (
            self.case.run.last_fit
            or self._without_keras
            or self._absent("the facts of `fit` were not recorded", "record model")
        )

    @property
    def _without_keras(self) -> Absent | None:
        """What questions about Keras' `fit` and its policy meet in a trace that shows another framework."""
        if self.case.run.facts is not None or self.framework not in ("torch", "jax"):
            return None
        if self.named("keras", "Keras"):
            return None
        name = "PyTorch" if self.framework == "torch" else "JAX"
        return Absent(f"the trace shows {name}, but not Keras", moot=True)

    @property
    def optimizer(self) -> OptimizerFacts | Absent:
        fit = self.case.run.last_fit
        if fit is None or fit.optimizer.class_name is None:
            return self._absent("the optimizer was not recorded", "record model")
        return fit.optimizer

    @property
    def layers(self) -> tuple[LayerFacts, ...] | Absent:
        """The model's layers in the order of the walk, never empty."""
        run = self.case.run
        if not run.layers:
            why = run.facts.absent.get("model") if run.facts else None
            return self._absent(
                f"the model's layers were not recorded{f' ({why})' if why else ''}", "record model"
            )
        return run.layers

    @property
    def layers_in_16_bits(self) -> tuple[LayerFacts, ...] | Absent:
        """The same, for what is asked of layers in 16 bits: a run that is known to compute in float32 has
        none, whatever its layers are."""
        if self.wide and isinstance(self.layers, Absent):
            return Absent(NOT_IN_16_BITS.reason, moot=True)
        return self.layers

    @property
    def parameters(self) -> int | Absent:
        model = self.case.run.model
        if model is None or model.parameters is None:
            return self._absent("the number of parameters was not recorded", "record model")
        return model.parameters

    @property
    def backend(self) -> str | Absent:
        facts = self.case.run.facts
        backend = facts.framework.get("backend") if facts else None
        return str(backend) if backend else self._absent("the backend was not recorded")

    @property
    def global_policy(self) -> str | Absent:
        """The process' policy, "mixed_float16" for example."""
        fit = self.case.run.last_fit
        name = fit.policy.global_name if fit else None
        return (
            name or self._without_keras or self._absent("the dtype policy was not recorded", "record model")
        )

    @cached_property
    def computes(self) -> ComputePrecision:
        """What the run computes in, and what tells it."""
        return self.case.computes or compute_precision(self.case.run, self.cells)

    @property
    def compute_dtype(self) -> str | Absent:
        """What the run computes in, all or part of it: "float16", "float32"."""
        return self.computes.dtype or self._absent(self.computes.reason)

    @property
    def wide(self) -> bool:
        """The run is known to compute in no 16-bit type."""
        return self.computes.kind in ("float32", "float64")

    def not_in(self, dtype: str) -> NotApplicable:
        """Return the answer of a rule for runs that compute in `dtype` to a run that does not."""
        return NOT_IN_16_BITS if self.wide else NotApplicable(f"the run does not compute in {dtype}")

    @property
    def not_narrow(self) -> NotApplicable | Unable:
        """The answer of a rule for 16-bit runs to a run whose precision is not known."""
        return Unable(self.computes.reason) if self.computes.kind == "unknown" else NOT_IN_16_BITS

    @property
    def half(self) -> str | None:
        """ "fp16" or "bf16" where the run computes in it, all or part; None: it does not, or is not known."""
        return HALF_DTYPES.get(self.computes.dtype or "")

    # ---- memory

    @property
    def memory_in_use(self) -> tuple[int, int] | Absent:
        """The most that the allocator held (by the step log, else by the trace), and what it could hold
        (by its events in the trace, else the whole card)."""
        peak = self.case.steps.peak_memory_bytes if self.case.steps else None
        total = self._device.memory_bytes if self._device else None
        memory = self.case.memory
        mine = memory.main_allocator if memory else None
        if mine is not None and mine.where == "device":
            peak = max(mine.peak_bytes, mine.lifetime_peak_bytes or 0) if peak is None else peak
            total = mine.capacity_bytes or total
        if peak is None or not total:
            return Absent("the allocator's peak or the device's memory is not on record")
        return peak, total

    @property
    def before_the_model_ran(self) -> bool:
        """The only peak is that of a window without a whole step, and nothing tells of an earlier one."""
        memory, steps = self.case.memory, self.case.steps
        mine = memory.main_allocator if memory else None
        if not self.in_window or mine is None or (steps is not None and steps.peak_memory_bytes is not None):
            return False
        return (mine.lifetime_peak_bytes or 0) <= mine.peak_bytes

    @property
    def at_peak(self) -> tuple[MemoryAccount, PeakParts] | Absent:
        """What was live at the peak of a GPU's memory, for what is asked of runs that compute in 16 bits."""
        if self.wide:
            return Absent(NOT_IN_16_BITS.reason, moot=True)
        if self.on_cpu:
            return Absent(NO_GPU.reason, moot=True)
        if self.computes.kind == "unknown":
            return Absent(self.computes.reason)
        memory = self.case.memory
        if memory is None or memory.parts is None:
            return Absent("no allocator events show what was live at the peak")
        return memory, memory.parts

    # ---- the device

    @cached_property
    def accelerator(self) -> str | Absent:
        """ "gpu", "tpu" or "cpu": what the training ran on."""
        trace = self.case.trace
        kinds = {device.kind for device in self.case.run.facts.devices} if self.case.run.facts else set()
        if trace is not None and trace.basis == "device":
            kinds |= {device.facts.kind for device in trace.devices}
        for kind in ("gpu", "tpu", "cpu"):
            if kind in kinds:
                return kind
        if not kinds and self._multiplied_on_cpu:
            return "cpu"
        return self._absent("the device was not recorded")

    @property
    def _multiplied_on_cpu(self) -> bool:
        """The trace shows that the run's matrix work ran on the CPU: it names no accelerator, or holds
        calls of a driver of which none launches anything."""
        return (
            self.host_only
            and any(cell.placement == "cpu" for cell in self.cells)
            and (self._launches_nothing or not self.named(*_ACCELERATORS))
        )

    @property
    def _launches_nothing(self) -> bool:
        trace = self.case.trace
        if trace is None or not (trace.host.correlation >= 0).any():
            return False
        return not np.isin(trace.host.kind, (HostKind.LAUNCH, HostKind.COPY)).any()

    @property
    def on_cpu(self) -> bool:
        """The run is known to have had no accelerator."""
        return known(self.accelerator) == "cpu"

    @property
    def without_gpu(self) -> bool:
        """The run is known to have run on a CPU or a TPU."""
        return known(self.accelerator) in ("cpu", "tpu")

    @cached_property
    def device(self) -> DeviceFacts | Absent:
        """The accelerator, by the trace where that describes it, filled up from the run's facts."""
        found = self._device
        if found is not None:
            return found
        if self.on_cpu:
            return Absent(NO_GPU.reason, moot=True)
        return self._absent("the device was not recorded")

    @cached_property
    def _device(self) -> DeviceFacts | None:
        recorded = self.case.run.devices
        from_run = next((d for d in recorded if d.kind != "cpu"), None)
        from_trace = None
        if self.case.trace is not None and self.case.trace.basis == "device":
            name = self.case.measured.main.device if self.case.measured else None
            devices = [d for d in self.case.trace.devices if d.facts.kind != "cpu"]
            from_trace = next((d.facts for d in devices if d.plane == name), None) or (
                devices[0].facts if devices else None
            )
        if from_trace is None:
            return from_run
        return device_peaks.completed(from_trace, from_run)

    @property
    def without_matrix_units(self) -> bool:
        """The device is known to have no matrix units: nothing can fall off them (MP8 speaks there)."""
        return self._device is not None and device_peaks.has_matrix_units(self._device) is False

    @property
    def capability(self) -> tuple[int, int] | Absent:
        device = self.device
        if isinstance(device, Absent):
            return device
        return device.compute_capability or self._absent("the device's compute capability is not stated")

    @property
    def peaks(self) -> DevicePeaks | Absent:
        return self.case.peaks or Absent("the peak rates of this device are not known")

    # ---- the step log

    @property
    def table(self) -> StepTable | Absent:
        table = self.case.run.steps
        if table is None or not len(table):
            return self._absent("no step log was recorded")
        return table

    @property
    def summary(self) -> StepSummary | Absent:
        return self.case.steps or self._absent("no step log was recorded")

    @property
    def mean_step_ns(self) -> float | None:
        """The recorded step time, a mean; None where no step after warm-up has a time."""
        summary = self.case.steps
        return None if summary is None else summary.mean_ns

    @property
    def runs_behind(self) -> bool:
        """The device runs behind the host: one that is blocked need not keep the other waiting."""
        table = self.case.run.steps
        return table is not None and asynchronous(table, self.case.run.facts)

    @cached_property
    def stalls(self) -> Stalls | None:
        """Long steps, and what they wait for, by the records and the trace; None where no step has a time."""
        account = self.case.account
        return stalls(self.case.run, account.stalled if account is not None else None)

    @cached_property
    def run_time(self) -> RunTime | Absent:
        """What the wall time of all `fit` calls was spent on."""
        run = self.case.run
        return run_time(run) or self._absent(why_none(run))

    @cached_property
    def skips(self) -> SkipHistory | Absent:
        table = self.table
        if isinstance(table, Absent):
            return table
        rows = np.flatnonzero(table.skipped >= 0)
        if not len(rows):
            facts = self.case.run.facts
            why = facts.absent.get("skipped") if facts else None
            return self._absent(f"skipped steps were not recorded{f' ({why})' if why else ''}")
        step = table.step[rows]
        before = np.concatenate([[int(table.step[0] - table.covers[0])], step[:-1]])
        scale = np.where(table.loss_scale_known[rows], table.loss_scale[rows], np.nan)
        bad = np.cumsum(table.loss_known & ~np.isfinite(table.loss))[rows]
        spoiled = np.diff(bad, prepend=0) > 0
        # A recorded loss is the epoch's mean so far: once it is not finite, it stays so until the epoch ends.
        # A call without a loss of its own, as an epoch's last may be, takes the one before it in its epoch.
        told = np.maximum.accumulate(np.where(table.loss_known, np.arange(len(table)), -1))[rows]
        same = (told >= 0) & (table.fit[told] == table.fit[rows]) & (table.epoch[told] == table.epoch[rows])
        spoiled |= same & ~np.isfinite(table.loss[told])
        return SkipHistory(step, table.skipped[rows], step - before, scale, spoiled)

    @cached_property
    def scales(self) -> Float64 | Absent:
        """The loss scale at each reading, oldest first; never empty."""
        table = self.table
        if isinstance(table, Absent):
            return table
        scales = table.loss_scale[table.loss_scale_known]
        return scales if len(scales) else self._absent("the loss scale was not recorded")

    # ---- the account

    @property
    def trace(self) -> Trace | Absent:
        if self.case.trace is not None:
            return self.case.trace
        why = self.case.trace_problem or "there is no trace of this run"
        return self._absent(why, "record window")

    @property
    def account(self) -> Account | Absent:
        if self.case.account is not None:
            return self.case.account
        if self.case.trace_problem:
            return Absent(self.case.trace_problem)
        if self.case.trace is None:
            return self._absent("there is no trace of this run", "record window")
        return self._absent("the trace gives no account of a step", "record window")

    @property
    def gpu_account(self) -> Account | Absent:
        """The account of an accelerator; absent for one of the host's executor threads."""
        return _on_accelerator(self.account, on_cpu=self.on_cpu)

    @property
    def activity(self) -> Account | Absent:
        """The account of a step, else of the whole window. For what needs no step: its times are of whichever
        it is."""
        found = self.case.measured
        if found is not None and found.too_little:
            return Absent(f"the window holds fewer than {FEW_WORKS} kernels and copies")
        return found or self.account

    @property
    def gpu_activity(self) -> Account | Absent:
        """The same, of an accelerator."""
        return _on_accelerator(self.activity, on_cpu=self.on_cpu)

    @property
    def in_window(self) -> bool:
        """What is judged is the whole window: "per step" is then said of nothing."""
        return self.case.account is None and self.case.window is not None

    @property
    def unmarked(self) -> bool:
        """What is judged is a window in which nothing marks a step; marked ones may be cut, or damaged."""
        return self.in_window and self.case.trace is not None and not len(self.case.trace.markers)

    @property
    def host_only(self) -> bool:
        """The trace shows ops of a CPU alone: the run was on one, or its accelerator was not traced."""
        return self.case.measured is not None and self.case.measured.trace_basis == "host"

    @cached_property
    def cells(self) -> tuple[Cell, ...]:
        """The account of the step, else of the whole window."""
        return self.case.measured.main.cells if self.case.measured else ()

    def select(self, chosen: Callable[[Cell], bool]) -> tuple[int, ...]:
        """Return the rows of the cells for which `chosen` holds and that have time."""
        return tuple(row for row, cell in self._with_time if chosen(cell))

    def of(self, category: Class) -> tuple[int, ...]:
        """Return the rows of the cells of a class that have time."""
        return self._by_class.get(category, ())

    @cached_property
    def _by_class(self) -> dict[Class, tuple[int, ...]]:
        rows: dict[Class, list[int]] = {}
        for row, cell in self._with_time:
            rows.setdefault(cell.category, []).append(row)
        return {category: tuple(found) for category, found in rows.items()}

    @cached_property
    def _with_time(self) -> tuple[tuple[int, Cell], ...]:
        return tuple((row, cell) for row, cell in enumerate(self.cells) if cell.ns_per_step > 0)

    def time(self, rows: Iterable[int]) -> float:
        """Return the ns per step of these cells together."""
        return float(sum(self.cells[row].ns_per_step for row in rows))

    def ratio(self, rows: Iterable[int]) -> float:
        """Return these cells' share of the step, else of the whole window; 0 without an account."""
        return self.time(rows) / self.whole_ns if self.whole_ns > 0 else 0.0

    def calls(self, rows: Iterable[int]) -> float:
        """Return the calls per step of these cells together."""
        return sum(self.cells[row].calls_per_step for row in rows)

    def layers_of(self, rows: Iterable[int]) -> tuple[str, ...]:
        """Return the layers of these cells, each once; those of no known layer are left out."""
        return tuple(dict.fromkeys(layer for row in rows if (layer := self.cells[row].layer)))

    def names_of(self, rows: Iterable[int]) -> list[str]:
        """Return what each of these cells is called: its layer, else its op, else its kernel."""
        cells = [self.cells[row] for row in rows]
        return [cell.layer or cell.op or cell.kernel or "an op without a name" for cell in cells]

    def cost_ratio(self, claims: Sequence[Claim]) -> float:
        """Return the cost of these claims as a share of the step; 0 without an account."""
        return self.cost_ns(claims) / self.whole_ns if self.whole_ns > 0 else 0.0

    def cost_ns(self, claims: Sequence[Claim]) -> float:
        """Return the cost of these claims in ns, of idle time no more than there is without the profiler."""
        of_work = [claim for claim in claims if self.cells[claim.cell].category not in NO_WORK]
        return min(cost_ns(claims, self.cells), self.idle_ns + cost_ns(of_work, self.cells))

    @cached_property
    def idle_ns(self) -> float:
        """Idle time of a step: what profiling added to a step is not counted, and adds no work. Where it
        distorted the window, that of a profiled step."""
        left = ("idle_stall",) if self.distorted else ()  # no profiled step holds it
        cells = [cell for cell in self.cells if cell.category in IDLE_CLASSES and cell.category not in left]
        account = self.case.measured
        # Where steps are timed in groups, a negative `idle_stall` is what profiling adds.
        least = -np.inf if account is not None and not account.grouped else 0.0
        idle = sum(max(least, cell.ns_per_step) for cell in cells)
        added = 0.0 if account is None or self.distorted else account.added_by_profiling_ns
        return max(0.0, idle - added)

    @property
    def distorted(self) -> bool:
        """Profiled steps took far longer than unprofiled ones, and which part of them grew is not known."""
        account = self.case.account
        usual_ns = account.unprofiled_ns if account else None
        return bool(account and usual_ns and account.window_ns > DISTORTED_RATIO * usual_ns)

    @property
    def untraced_ns(self) -> float:
        """What unprofiled steps take above the profiled ones, which then do not show what makes the others
        longer; 0 where the profiled ones are about as long."""
        account = self.case.account
        usual_ns = account.unprofiled_ns if account else None
        if account is None or not usual_ns or account.window_ns * DISTORTED_RATIO >= usual_ns:
            return 0.0
        return usual_ns - account.window_ns

    @property
    def one_step(self) -> bool:
        """The trace holds a single step, which may not be representative."""
        account = self.case.account
        return account is not None and account.one_step

    @cached_property
    def whole_ns(self) -> float:
        """What shares are shares of: the step; where profiling distorted it the profiled step, with stalls in
        proportion, because then the slices of that are no parts of the other; all work and idling where they
        are more than the step, because profiling made the work longer. Without steps the whole window; 0
        without an account."""
        account = self.case.measured
        if account is None:
            return 0.0
        work_ns = sum(cell.ns_per_step for cell in self.cells if cell.category not in NO_WORK)
        return max(self._distorted_ns or account.step_ns, self.idle_ns + work_ns)

    @property
    def _distorted_ns(self) -> float:
        """A step with its stalls, all of it as much longer as profiling made the profiled steps, in which no
        stall is; 0 where profiling did not distort them."""
        account = self.case.account
        if account is None or not self.distorted:
            return 0.0
        usual_ns = account.unprofiled_ns or account.step_ns
        return account.window_ns * max(1.0, account.step_ns / usual_ns)

    @property
    def busy_ratio(self) -> float:
        """The device's busy time as a share of the step, else of the whole window; 0 without an account."""
        account = self.case.measured
        return account.device_ns / account.window_ns if account and account.window_ns > 0 else 0.0

    @property
    def undistorted(self) -> float:
        """From ns of the window to ns of a step as it runs without the profiler: 1, or less where profiling
        distorted the window. Then a cost is its share of the profiled step, taken of the other, and of low
        confidence: which part of the step grew is not known."""
        account = self.case.measured
        return account.step_ns / self.whole_ns if account and self.whole_ns > 0 else 1.0

    def share(self, *roles: Class) -> float | Absent:
        """Return these classes' share of the step, else of the whole window."""
        account = self.activity
        if isinstance(account, Absent):
            return account
        ns = sum(s.ns_per_step for s in account.main.slices if s.category in roles)
        return (min(ns, self.idle_ns) if NO_WORK.issuperset(roles) else ns) / self.whole_ns

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Rows of the cells in which the device worked: no idling, no `profiling`."""
        return self.select(lambda cell: cell.category not in NO_WORK)

    @property
    def matrix_units(self) -> str:
        """What the device's matrix units are called."""
        if self.vendor in MAYBE_NVIDIA:
            return "Tensor Cores"
        return "matrix cores" if self.vendor == "amd" else "matrix units"

    @cached_property
    def fallbacks(self) -> tuple[int, ...]:
        """Matrix work on ordinary arithmetic, on a device with matrix units (or not known to have none)."""
        if self.without_matrix_units:
            return ()
        return self.select(lambda cell: cell.category == "matmul" and cell.placement == "cuda_core")

    @cached_property
    def not_in_16_bits(self) -> tuple[int, ...]:
        """Matrix work that ran on no matrix unit in 16 bits: the fallbacks, and what ran as TF32."""
        tf32 = self.select(
            lambda cell: (
                cell.category == "matmul" and cell.placement in ACCELERATED and cell.precision == "tf32"
            )
        )
        return tuple(sorted((*self.fallbacks, *tf32)))

    @cached_property
    def reached(self) -> Evidence:
        """What matrix work reaches in 16 bits in this trace."""
        peaks = known(self.peaks)
        return Evidence(peaks, well_fed(self.cells, self.layer, peaks))

    @property
    def kernel_calls(self) -> KernelCalls | Absent:
        """How many kernels the device runs per step, and how long the median one takes."""
        account = self.gpu_activity
        if isinstance(account, Absent):
            return account
        return account.main.calls or self._absent(
            "the trace holds no kernels in whole steps", "record window"
        )

    @property
    def tensor_core(self) -> TensorCoreShare | Absent:
        return self.case.tensor_core or self._absent(
            "there is no trace that shows where the matrix work ran", "record window"
        )

    # ---- several devices

    @cached_property
    def devices(self) -> tuple[DeviceLoad, ...]:
        """Every device of the run in a profiled step, of all hosts, the main one first."""
        account = self.case.account
        return communication.loads(account, self.case.hosts) if account is not None else ()

    @cached_property
    def collectives(self) -> tuple[Collective, ...]:
        """The main device's communication by kind and precision."""
        return communication.collectives(self.cells)

    @property
    def replicas(self) -> int | None:
        """How many devices train together, by the records or else by the traces; None: not known."""
        facts = self.case.run.facts
        recorded = facts.replicas if facts is not None else None
        return max(recorded or 0, len(self.devices)) or None

    @property
    def unattributed_idle_ratio(self) -> float | Absent:
        """Share of the step that the device idled for a cause the trace does not show."""
        account = self.activity
        if isinstance(account, Absent):
            return account
        rows = self.select(lambda cell: cell.category == "idle_other" and cell.cause is None)
        return self.ratio(rows)

    @cached_property
    def host_ahead_ns(self) -> float | None:
        """How much work the device has left in a step that began with an empty queue when the host has
        launched all of it, or begins to wait; None: nothing tells."""
        trace, account = self.case.trace, self.case.measured
        if account is None or account.host_path is not None or trace is None:
            return account.host_path.ahead_ns if account is not None and account.host_path else None
        return host_floor.ahead_ns(trace, account)

    @property
    def code_on_host(self) -> tuple[float, str]:
        """Share of the step that the device idled while the host ran functions that launch nothing, and what
        the trace shows of them: "the host runs" that which took longest; 0 and "" where it shows none."""
        if isinstance(self.activity, Absent) or self.whole_ns <= 0:
            return 0.0, ""
        cells = [cell for cell in self.cells if (cell.cause or "").startswith(HOST_RUNS)]
        if not cells:
            return 0.0, ""
        longest = max(cells, key=lambda cell: cell.ns_per_step)
        more = " and other functions" if len(cells) > 1 else ""
        return sum(cell.ns_per_step for cell in cells) / self.whole_ns, f"{longest.cause}{more}"

    # ---- against a baseline

    @property
    def speedup(self) -> Speedup | Absent:
        """The comparison with a measured baseline."""
        speedup = self.case.speedup
        if speedup is None or speedup.baseline != "measured":
            return self._no_baseline
        return speedup

    @cached_property
    def baseline(self) -> Signals | Absent:
        if self.case.baseline is None:
            return self._no_baseline
        return Signals(self.case.baseline)

    @property
    def _no_baseline(self) -> Absent:
        return self._absent(self._why_no_comparison, "record other precision")

    def layer(self, name: str | None) -> LayerFacts | None:
        return self._layers_by_name.get(name or "")

    @cached_property
    def _layers_by_name(self) -> dict[str, LayerFacts]:
        return {layer.name: layer for layer in self.case.run.layers}


def _on_accelerator(account: Account | Absent, *, on_cpu: bool) -> Account | Absent:
    if isinstance(account, Account) and account.trace_basis == "host":
        if on_cpu:
            return Absent(NO_GPU.reason, moot=True)
        return Absent("the trace holds no events of a GPU, only the host's")
    return account


def _logdir(run: Path) -> Path:
    """Return the log directory that a run lies in: profilers put a trace three folders below it."""
    parts = run.parts
    if "plugins" in parts[:-1]:
        return Path(*parts[: parts.index("plugins")])
    return run if not run.suffix else run.parent
