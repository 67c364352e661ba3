"""Several hosts and devices, and their communication."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from mpprof.analysis.breakdown.communication import straggling
from mpprof.model.hosts import Collective, DeviceLoad, Hosts
from mpprof.report.json.values import rounded

if TYPE_CHECKING:
    from mpprof.model import document as doc


def hosts_of(found: Hosts) -> doc.Hosts:
    """Return which hosts were read and which are missing."""
    return {
        "read": [
            {
                "host": each.host,
                "worker": each.worker,
                "trace": each.trace.name,
                "step_ns": rounded(each.step_ns),
                "wall_ns": rounded(each.wall_ns),
                "window_steps": list(each.steps),
                "clock_skew": None
                if each.skew is None
                else {
                    "skew_ns": each.skew.skew_ns,
                    "within_ns": each.skew.within_ns,
                    "by": each.skew.by,
                    "count": each.skew.count,
                },
            }
            for each in found.read
        ],
        "missing": [
            {"host": each.host, "worker": each.worker, "reason": each.reason} for each in found.missing
        ],
    }


def why_no_skew(found: Hosts) -> dict[str, str]:
    """Return the reasons, by the field's path."""
    return {f"hosts.{each.host}.clock_skew": each.absent for each in found.read[1:] if each.skew is None}


def communication_of(devices: Sequence[DeviceLoad], collectives: Sequence[Collective]) -> doc.Communication:
    """Return what each device does in a step, and the main device's communication."""
    slow = straggling(devices)
    return {
        "devices": [
            {
                "host": each.host,
                "device": each.device,
                "step_ns": rounded(each.step_ns),
                "own_ns": rounded(each.own_ns),
                "busy_ns": rounded(each.busy_ns),
                "exposed_ns": rounded(each.exposed_ns),
                "hidden_ns": rounded(each.hidden_ns),
            }
            for each in devices
        ],
        "by": [
            {
                "kind": each.kind,
                "precision": each.precision,
                "exposed_ns": rounded(each.exposed_ns),
                "busy_ns": rounded(each.busy_ns),
                "calls": each.calls,
            }
            for each in collectives
        ],
        "stragglers": [{"host": each.host, "device": each.device} for each in slow.slow] if slow else [],
    }
