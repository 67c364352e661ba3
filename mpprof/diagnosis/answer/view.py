"""What the sentences ask of a judged run: its kind, its step, its baseline, and what its parts are called."""

from __future__ import annotations

from functools import cached_property

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.kernels import device_peaks
from mpprof.diagnosis.leading import LEADS, unlike
from mpprof.diagnosis.outcomes import known
from mpprof.diagnosis.signals import Case, Signals
from mpprof.model.account import Class, Speedup
from mpprof.model.answer import Kind
from mpprof.model.device import MAYBE_NVIDIA, DeviceFacts, DevicePeaks
from mpprof.model.finding import Diagnosis, Finding


class View:
    """One judged run, as its answer sees it."""

    def __init__(self, report: Diagnosis) -> None:
        self.report = report
        self.signals = Signals(
            Case(
                run=report.run,
                account=report.account,
                steps=report.steps,
                tensor_core=report.tensor_core,
                speedup=report.speedup,
                trace_problem=report.absent.get("time"),
                computes=report.computes,
                window=report.window,
            )
        )

    @cached_property
    def kind(self) -> Kind:
        """What there is to judge from."""
        report, speedup = self.report, self.report.speedup
        against = speedup is not None and speedup.baseline == "measured"
        if unlike(report) or (against and speedup is not None and speedup.observed is None):
            return "incomparable"
        if self.on_cpu:
            return "cpu"
        if against:
            return "measured"
        if report.account is None:
            return "records" if report.window is None else "window"
        return "float32" if self.signals.wide else "estimated"

    @property
    def unread(self) -> str:
        """Why a trace that there is tells nothing, such as events of a device that are not read; "": else."""
        if not self.report.run.traces or self.report.window is not None:
            return ""
        return self.report.absent.get("time", "")

    @property
    def on_cpu(self) -> bool:
        """The run was on a CPU, or its trace shows ops of one alone."""
        return self.signals.on_cpu or (self.signals.host_only and known(self.signals.accelerator) is None)

    @property
    def comparison(self) -> Speedup | None:
        """The measured speedup, of runs that can be compared; None: there is none."""
        speedup = self.report.speedup
        known_one = speedup is not None and speedup.baseline == "measured" and speedup.observed is not None
        return speedup if known_one and not unlike(self.report) else None

    @property
    def step_ns(self) -> float | None:
        """The step, as all of the report has it; None: not known."""
        if self.report.account is not None:
            return self.report.account.step_ns
        return self.report.steps.mean_ns if self.report.steps else None

    @property
    def share(self) -> float | None:
        """How much of the matrix time ran on matrix units; None: not known."""
        return self.report.tensor_core.ratio if self.report.tensor_core else None

    @cached_property
    def _facts(self) -> DeviceFacts | None:
        """The accelerator, as the trace and the records have it."""
        device = self.report.device
        own = next((each for each in self.report.run.devices if each.kind != "cpu"), None)
        if device is None or device.kind == "cpu":
            device = own
        return None if device is None else device_peaks.completed(device, own)

    @property
    def without_units(self) -> bool:
        """The card is known to have no matrix units."""
        return self._facts is not None and device_peaks.has_matrix_units(self._facts) is False

    @property
    def peaks(self) -> DevicePeaks | None:
        """Its peak rates; None: not known."""
        return None if self._facts is None else device_peaks.peaks(self._facts)

    @property
    def capability(self) -> tuple[int, int] | None:
        """Its compute capability; None: not known, or of another maker's."""
        facts = self._facts
        return facts.compute_capability if facts is not None and facts.vendor in MAYBE_NVIDIA else None

    @property
    def device(self) -> str:
        """What the device is called in a sentence."""
        if self.on_cpu:
            return "CPU"
        kind = known(self.signals.accelerator)
        if kind is None and self.report.device is not None:
            kind = self.report.device.kind
        return {"gpu": "GPU", "tpu": "TPU"}.get(kind or "gpu", "device")

    @cached_property
    def units(self) -> str:
        """What its matrix units are called."""
        share = self.report.tensor_core
        others = any(cell.placement == "matrix_core" for cell in self.signals.cells)
        if others or (share is not None and share.unit == "matrix_core"):
            return "matrix cores"
        return "matrix units" if self.device == "TPU" else "Tensor Cores"

    @property
    def base(self) -> str:
        """What the run is compared with: float32 only where that is known of it."""
        speedup = self.report.speedup
        own = speedup is not None and speedup.baseline_dtype == "float32" and self.signals.computes.narrow
        return "float32" if own else "the baseline"

    @property
    def mixed(self) -> bool:
        """The comparison is one of mixed precision with float32."""
        return self.base == "float32"

    @property
    def best(self) -> Finding | None:
        """The finding that gains most, of those that are only worth a mention, too; None: none gains much."""
        step = self.step_ns
        kept = [
            each
            for each in self.report.findings
            if each.gain_ns_per_step and each.code not in self.report.dismissed
        ]
        best = max(kept, key=lambda each: each.gain_ns_per_step or 0.0, default=None)
        if best is None or not step or (best.gain_ns_per_step or 0.0) < NOTABLE_RATIO * step:
            return None
        return best

    @property
    def mentioned(self) -> Finding | None:
        """Of a run without a trace that nothing leads: the first finding above a mention; None: there is
        none."""
        if self.kind != "records":
            return None
        kept = (
            each
            for each in self.report.findings
            if each.severity != "info" and each.code not in self.report.dismissed
        )
        return next((each for each in kept if each.code not in LEADS), None)

    @property
    def utilization(self) -> float | None:
        """For how much of the time the device was busy, of a run without a trace; None: not recorded."""
        hardware = self.report.run.hardware
        if hardware is None or self.report.account is not None:
            return None
        used = hardware.utilization_ratio[np.isfinite(hardware.utilization_ratio)]
        return median(used) if len(used) else None

    def longer(self, category: Class) -> tuple[float, float] | None:
        """Return the time of a class in the baseline's step and in this one; None: that is not known."""
        speedup = self.comparison
        parts = [part for part in speedup.slices if part.category == category] if speedup else []
        if not parts:
            return None
        return sum(part.baseline_ns for part in parts), sum(part.mixed_ns for part in parts)


NOTABLE_RATIO = 0.05
"""A remedy that gains less than a twentieth of a step is not named beside an answer."""
