"""What the rules about several devices share: whether a run has several, and what waiting for one costs."""

from __future__ import annotations

import numpy as np

from mpprof.analysis.arrays.quantiles import median
from mpprof.analysis.breakdown import communication
from mpprof.analysis.breakdown.communication import Straggling, straggling
from mpprof.diagnosis.outcomes import NO_GPU, Claim, NotApplicable, Unable, need
from mpprof.diagnosis.signals import Signals
from mpprof.diagnosis.wording import CLASS_WORDS
from mpprof.model.account import Cell, Class
from mpprof.model.arrays import distinct
from mpprof.model.hosts import DeviceLoad
from mpprof.model.quantities import format_ns, format_speedup
from mpprof.model.trace import Trace, WorkKind

ALONE = NotApplicable("the run trains on one device")
ONE_AT_WORK = NotApplicable("only one device is at work in the trace")
_EXECUTES = "LoadedExecutable::ExecuteHelper"
_SYNCHRONOUS = "Mirrored"
"""In the names of TensorFlow's strategies whose devices wait for each other in every step."""


def alone(signals: Signals) -> bool:
    """Return whether the run trains on one device, by its records or else by its trace."""
    if signals.collectives or len(signals.devices) > 1:
        return False
    facts = signals.case.run.facts
    if facts is not None and facts.replicas is not None:
        return facts.replicas == 1
    measured = signals.case.measured
    return measured is not None and len(measured.devices) < 2


def not_applicable(signals: Signals) -> NotApplicable | Unable | None:
    """Return why no rule about several devices applies to the run, or can judge it; None: they do."""
    if signals.on_cpu:
        return NO_GPU
    if not alone(signals):
        return None
    facts = signals.case.run.facts
    if facts is not None and facts.replicas is not None:
        return ALONE
    unseen = unseen_devices(signals.case.trace)
    return ONE_AT_WORK if unseen is None else Unable(unseen)


def unseen_devices(trace: Trace | None) -> str | None:
    """Return that the host executes programs on more devices than the trace has kernels of; None where not.
    JAX executes a program on each of several devices by a thread of its own."""
    if trace is None or trace.basis != "device":
        return None
    executes = np.array([_EXECUTES in text for text in trace.strings], np.bool_)[trace.host.name]
    devices = len(distinct(trace.host.thread[executes]))
    seen = len(distinct(trace.kernels.device[trace.kernels.kind == WorkKind.KERNEL]))
    if devices < 2 or seen >= devices:
        return None
    return f"the host executes programs on {devices} devices, and the trace has kernels of {seen}"


def no_strategy(signals: Signals, reason: str) -> NotApplicable | Unable | None:
    """Return what `not_applicable` does, and `reason` where the run has no strategy of TensorFlow; None: it
    has one."""
    refused = not_applicable(signals)
    if refused is not None or mirrored(signals):
        return refused
    if signals.case.run.facts is None:
        return Unable("the strategy was not recorded")
    return NotApplicable(reason)


def mirrored(signals: Signals) -> bool:
    """Return whether one of TensorFlow's synchronous strategies is on record."""
    facts = signals.case.run.facts
    return facts is not None and _SYNCHRONOUS in (facts.distribution or "")


def waited_for(signals: Signals) -> Straggling | Unable | None:
    """Return the devices that the others wait for; None where they all keep pace."""
    need(signals.gpu_account)
    if len(signals.devices) < 2:
        return Unable(
            "one device's trace does not show whether it waits for others; record the traces of all hosts"
        )
    if not signals.collectives and not mirrored(signals):
        return Unable(
            "no collective runs in {whole}, so that the trace does not show whether devices wait for others"
        )
    return straggling(signals.devices)


def waiting(signals: Signals, found: Straggling) -> tuple[Claim, ...]:
    """Return claims on the main device's exposed communication, as far as it waits for the slow devices; none
    where it is one of them."""
    if signals.devices[0] in found.slow:
        return ()
    rows = signals.of("comm")
    whole = signals.time(rows)
    share = min(1.0, found.cost_ns / whole) if whole > 0 else 0.0
    return tuple(Claim(row, signals.cells[row].ns_per_step * (1.0 - share)) for row in rows)


def sums_float32(cell: Cell) -> bool:
    """Return whether the cell sums gradients over the devices in float32: what is summed in the forward pass
    is activations."""
    if cell.category != "comm" or cell.phase == "forward" or communication.kind_of(cell) != "reduce":
        return False
    return communication.precision_of(cell) == "fp32"


def transfer_ratio(signals: Signals) -> float | None:
    """Return the share of the main device's communication in which it does not wait for others; None: one
    device."""
    taken = [each.exposed_ns + each.hidden_ns for each in signals.devices]
    if len(taken) < 2 or taken[0] <= 0:
        return None
    return min(1.0, min(taken) / taken[0])


def mostly(found: Straggling) -> Class | None:
    """Return the class that holds most of the slowest device's extra time; None where no class holds most of
    it."""
    return found.more[0][0] if found.more and 2.0 * found.more[0][1] > found.cost_ns else None


def launched_together(found: Straggling) -> bool:
    """Return whether the slowest device gets its launches from a process that launches for others, too."""
    return any(each.host == found.slow[0].host for each in (*found.slow[1:], *found.others))


def named(devices: tuple[DeviceLoad, ...]) -> str:
    """Return the devices with their hosts: "/device:GPU:0 of node-3 and 2 more"."""
    more = f" and {len(devices) - 1} more" if len(devices) > 1 else ""
    return f"{devices[0].name}{more}"


def beyond(found: Straggling) -> str:
    """Return in what the slowest device takes longer: "; it takes 12 ms longer in waiting for input", or that
    all of its work does."""
    if (category := mostly(found)) is not None:
        return f"; it takes {format_ns(found.more[0][1])} longer in {CLASS_WORDS[category]}"
    usual = median(np.array([each.busy_ns for each in found.others]))
    ratio = found.slow[0].busy_ns / usual if usual > 0 else 0.0
    return f"; all of its work takes {format_speedup(ratio)} as long as theirs" if ratio > 1.0 else ""
