"""Named questions about one run, answered lazily, each with a value or with `Absent` and the reason.

Rules ask these and nothing else, so that no rule mistakes "not recorded" for "no".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from mpprof.diagnosis.ledger import cost_ns
from mpprof.diagnosis.outcomes import Absent, Claim, known
from mpprof.model.account import IDLE_CLASSES, Account, Cell, Class, MemoryAccount, Speedup, TensorCoreShare
from mpprof.model.device import DeviceFacts, DevicePeaks
from mpprof.model.frozen import frozen
from mpprof.model.kernels import ACCELERATED, Placements
from mpprof.model.run import FitFacts, LayerFacts, OptimizerFacts, Run, RunFacts
from mpprof.model.steps import StepSummary, StepTable
from mpprof.model.trace import Trace

RECORD_RUN = 'train with MPProfilerCallback("logs/run") so that the run\'s facts are recorded'
RECORD_WINDOW = 'record a profile window: MPProfilerCallback("logs/run", profile_steps="auto")'
RECORD_MIXED = "record the same training in mixed precision: mpprof report MIXED_RUN --baseline THIS_RUN"
RECORD_BASELINE = "record the same training in float32 and name it: mpprof report RUN --baseline FLOAT32_RUN"

HALF_DTYPES = {"float16": "fp16", "bfloat16": "bf16"}
HALF_PRECISIONS = frozenset(HALF_DTYPES.values())
DISTORTED_RATIO = 1.5
"""A profiled step half as long again as an unprofiled one is mostly another step."""
NO_WORK: frozenset[Class] = frozenset((*IDLE_CLASSES, "profiling"))


@dataclass(frozen=True)
class Case:
    """All that is known of one run when it is judged; `None`: there is none.

    `trace_problem` says why there is no account although there is a trace (or no trace at all).
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
    ladder: bool = False  # compared as one rung of several: runs differ by design


@frozen
class SkipHistory:
    """One row per reading of the skip counter: the step it was read after, the optimizer updates skipped
    since the reading before, and the steps that ran since then. Sums are exact, positions to the reading."""

    step: NDArray[np.int64]
    skipped: NDArray[np.int64]
    span: NDArray[np.int64]

    def within(self, first: int, last: int | None = None) -> tuple[int, int]:
        """(skipped, steps) of the readings that lie wholly in steps `first`..`last`, both inclusive."""
        inside = self.step - self.span + 1 >= first
        if last is not None:
            inside &= self.step <= last
        return int(self.skipped[inside].sum()), int(self.span[inside].sum())


class Signals:
    """The questions. Every property gives a value or `Absent`."""

    def __init__(self, case: Case) -> None:
        self.case = case

    # ---- what was recorded of the run

    @property
    def facts(self) -> RunFacts | Absent:
        return self.case.run.facts or Absent("nothing was recorded of the run beside its trace", RECORD_RUN)

    @property
    def fit(self) -> FitFacts | Absent:
        return self.case.run.last_fit or Absent("the facts of `fit` were not recorded", RECORD_RUN)

    @property
    def optimizer(self) -> OptimizerFacts | Absent:
        fit = self.case.run.last_fit
        if fit is None or fit.optimizer.class_name is None:
            return Absent("the optimizer was not recorded", RECORD_RUN)
        return fit.optimizer

    @property
    def layers(self) -> tuple[LayerFacts, ...] | Absent:
        """The model's layers in the order of the walk, never empty."""
        facts = self.case.run.facts
        if facts is None or facts.model is None or not facts.model.layers:
            why = facts.absent.get("model") if facts else None
            return Absent(f"the model's layers were not recorded{f' ({why})' if why else ''}", RECORD_RUN)
        return facts.model.layers

    @property
    def parameters(self) -> int | Absent:
        facts = self.case.run.facts
        if facts is None or facts.model is None or facts.model.parameters is None:
            return Absent("the number of parameters was not recorded", RECORD_RUN)
        return facts.model.parameters

    @property
    def backend(self) -> str | Absent:
        facts = self.case.run.facts
        backend = facts.framework.get("backend") if facts else None
        return str(backend) if backend else Absent("the backend was not recorded", RECORD_RUN)

    @property
    def global_policy(self) -> str | Absent:
        """The process' policy, "mixed_float16" for example."""
        fit = self.case.run.last_fit
        name = fit.policy.global_name if fit else None
        return name or Absent("the dtype policy was not recorded", RECORD_RUN)

    @cached_property
    def compute_dtype(self) -> str | Absent:
        """What the model computes in: its own policy, else what its layers or its kernels show."""
        fit = self.case.run.last_fit
        if fit and fit.policy.compute_dtype in HALF_DTYPES:
            return str(fit.policy.compute_dtype)
        dtypes = {layer.compute_dtype for layer in known(self.layers) or ()}
        for dtype in HALF_DTYPES:
            if dtype in dtypes:
                return dtype
        if fit and fit.policy.compute_dtype:
            return fit.policy.compute_dtype
        return self._compute_dtype_of_kernels()

    def _compute_dtype_of_kernels(self) -> str | Absent:
        account = known(self.account)
        if account is None:
            return Absent("the model's compute dtype was not recorded", RECORD_RUN)
        time = dict.fromkeys(HALF_DTYPES, 0.0)
        for cell in account.main.cells:
            for dtype, precision in HALF_DTYPES.items():
                if cell.precision == precision:
                    time[dtype] += cell.ns_per_step
        dtype, most = max(time.items(), key=lambda item: item[1])
        if most > 0:
            return dtype
        return Absent("no kernel names a 16-bit type and the model's dtype was not recorded", RECORD_RUN)

    @property
    def half(self) -> str | None:
        """ "fp16" or "bf16" where the model computes in it; None where it does not, or it is not known."""
        return HALF_DTYPES.get(known(self.compute_dtype) or "")

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
        return Absent("the device was not recorded", RECORD_RUN)

    @property
    def on_cpu(self) -> bool:
        """The run is known to have had no accelerator."""
        return known(self.accelerator) == "cpu"

    @cached_property
    def device(self) -> DeviceFacts | Absent:
        """The accelerator, by the trace where that describes it, filled up from the run's facts."""
        recorded = self.case.run.facts.devices if self.case.run.facts else ()
        from_run = next((d for d in recorded if d.kind != "cpu"), None)
        from_trace = None
        if self.case.trace is not None and self.case.trace.basis == "device":
            name = self.case.account.main.device if self.case.account else None
            devices = [d for d in self.case.trace.devices if d.facts.kind != "cpu"]
            from_trace = next((d.facts for d in devices if d.plane == name), None) or (
                devices[0].facts if devices else None
            )
        if from_trace is None and from_run is None:
            if self.on_cpu:
                return Absent("the run had no accelerator")
            return Absent("the device was not recorded", RECORD_RUN)
        return _filled(from_trace, from_run)

    @property
    def capability(self) -> tuple[int, int] | Absent:
        device = self.device
        if isinstance(device, Absent):
            return device
        return device.compute_capability or Absent(
            "the device's compute capability is not stated", RECORD_RUN
        )

    @property
    def peaks(self) -> DevicePeaks | Absent:
        return self.case.peaks or Absent("the peak rates of this device are not known")

    # ---- the step log

    @property
    def table(self) -> StepTable | Absent:
        table = self.case.run.steps
        if table is None or not len(table):
            return Absent("no steps were recorded", RECORD_RUN)
        return table

    @property
    def summary(self) -> StepSummary | Absent:
        return self.case.steps or Absent("no steps were recorded", RECORD_RUN)

    @cached_property
    def skips(self) -> SkipHistory | Absent:
        table = known(self.table)
        if table is None:
            return Absent("no steps were recorded", RECORD_RUN)
        rows = np.flatnonzero(table.skipped >= 0)
        if not len(rows):
            facts = self.case.run.facts
            why = facts.absent.get("skipped") if facts else None
            return Absent(f"skipped steps were not recorded{f' ({why})' if why else ''}", RECORD_RUN)
        step = table.step[rows]
        before = np.concatenate([[int(table.step[0] - table.covers[0])], step[:-1]])
        return SkipHistory(step, table.skipped[rows], step - before)

    @cached_property
    def scales(self) -> NDArray[np.float64] | Absent:
        """The loss scale at each reading, oldest first; never empty."""
        table = known(self.table)
        if table is None:
            return Absent("no steps were recorded", RECORD_RUN)
        scales = table.loss_scale[table.loss_scale_known]
        return scales if len(scales) else Absent("the loss scale was not recorded", RECORD_RUN)

    # ---- the account

    @property
    def account(self) -> Account | Absent:
        if self.case.account is not None:
            return self.case.account
        if self.case.trace_problem:
            return Absent(self.case.trace_problem)
        if self.case.trace is None:
            return Absent("there is no trace of this run", RECORD_WINDOW)
        return Absent("the trace gives no account of a step", RECORD_WINDOW)

    @property
    def gpu_account(self) -> Account | Absent:
        """The account of an accelerator; absent for one of the host's executor threads."""
        account = self.account
        if isinstance(account, Account) and account.trace_basis == "host":
            return Absent("the trace holds no events of a GPU, only the host's")
        return account

    @property
    def cells(self) -> tuple[Cell, ...]:
        return self.case.account.main.cells if self.case.account else ()

    def select(self, chosen: Callable[[Cell], bool]) -> tuple[int, ...]:
        """Rows of the cells for which `chosen` holds and that have time."""
        return tuple(row for row, cell in enumerate(self.cells) if cell.ns_per_step > 0 and chosen(cell))

    def time(self, rows: tuple[int, ...]) -> float:
        """ns per step of these cells together."""
        return float(sum(self.cells[row].ns_per_step for row in rows))

    def cost_ratio(self, claims: Sequence[Claim]) -> float:
        """What these claims come to, as a share of the step; 0 without an account."""
        return cost_ns(claims, self.cells) / self.whole_ns if self.whole_ns > 0 else 0.0

    @property
    def distorted(self) -> bool:
        """Profiled steps took far longer than unprofiled ones, and which part of them grew is not known."""
        account = self.case.account
        return bool(account and account.wall_ns and account.window_ns > DISTORTED_RATIO * account.wall_ns)

    @property
    def whole_ns(self) -> float:
        """What shares are shares of: the step; the profiled step where profiling distorted it, because then
        the slices of that are no parts of the other. 0 without an account."""
        account = self.case.account
        if account is None:
            return 0.0
        return account.window_ns if self.distorted else account.step_ns

    @property
    def undistorted(self) -> float:
        """From ns of the window to ns of a step as it runs without the profiler: 1, or less where profiling
        distorted the window. Then a cost is its share of the profiled step, taken of the other, and of low
        confidence: which part of the step grew is not known."""
        account = self.case.account
        return account.step_ns / self.whole_ns if account and self.whole_ns > 0 else 1.0

    def share(self, *roles: Class) -> float | Absent:
        """These classes' share of the step."""
        account = self.account
        if isinstance(account, Absent):
            return account
        return sum(s.ns_per_step for s in account.main.slices if s.role in roles) / self.whole_ns

    @cached_property
    def work(self) -> tuple[int, ...]:
        """Rows of the cells in which the device worked: no idling, no `profiling`."""
        return self.select(lambda cell: cell.role not in NO_WORK)

    @cached_property
    def fallbacks(self) -> tuple[int, ...]:
        """Matrix work that ran on no matrix unit in 16 bits: on ordinary arithmetic, or as TF32."""
        return self.select(
            lambda cell: (
                cell.role == "matmul"
                and (
                    cell.placement == "cuda_core"
                    or (cell.placement in ACCELERATED and cell.precision == "tf32")
                )
            )
        )

    @cached_property
    def kernel_ns(self) -> tuple[NDArray[np.float64], NDArray[np.float64]] | Absent:
        """(mean duration in ns, calls per step) of every kernel cell."""
        account = self.gpu_account
        if isinstance(account, Absent):
            return account
        cells = [c for c in account.main.cells if c.kernel and c.calls_per_step > 0]
        if not cells:
            return Absent("the trace holds no kernels in whole steps", RECORD_WINDOW)
        calls = np.array([c.calls_per_step for c in cells])
        busy = np.array([c.busy_ns_per_step or c.ns_per_step for c in cells])
        return busy / calls, calls

    @property
    def launches_per_step(self) -> float | Absent:
        kernels = self.kernel_ns
        return kernels if isinstance(kernels, Absent) else float(kernels[1].sum())

    @property
    def median_kernel_ns(self) -> float | Absent:
        """Duration of the median kernel call (calls of one cell count with the cell's mean)."""
        kernels = self.kernel_ns
        if isinstance(kernels, Absent):
            return kernels
        duration, calls = kernels
        order = np.argsort(duration)
        middle = np.searchsorted(np.cumsum(calls[order]), calls.sum() / 2)
        return float(duration[order][min(int(middle), len(order) - 1)])

    @property
    def tensor_core(self) -> TensorCoreShare | Absent:
        return self.case.tensor_core or Absent(
            "there is no trace that shows where the matrix work ran", RECORD_WINDOW
        )

    @property
    def unattributed_idle_ratio(self) -> float | Absent:
        """Share of the step that the device idled for a cause the trace does not show."""
        return self.share("idle_other")

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
        if known(self.compute_dtype) == "float32":
            return Absent("this run computes in float32: it is a baseline itself", RECORD_MIXED)
        return Absent("there is no float32 baseline", RECORD_BASELINE)

    def layer(self, name: str | None) -> LayerFacts | None:
        return self._layers_by_name.get(name or "")

    @cached_property
    def _layers_by_name(self) -> dict[str, LayerFacts]:
        return {layer.name: layer for layer in known(self.layers) or ()}


def _filled(first: DeviceFacts | None, second: DeviceFacts | None) -> DeviceFacts:
    """`first` with what it does not state taken from `second`."""
    if first is None or second is None:
        chosen = first or second
        assert chosen is not None
        return chosen
    gaps = {
        f.name: getattr(second, f.name)
        for f in fields(DeviceFacts)
        if getattr(first, f.name) in (None, "unknown") and getattr(second, f.name) is not None
    }
    return replace(first, **gaps)
