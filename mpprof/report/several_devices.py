"""Several devices and hosts, as lines for people."""

from __future__ import annotations

from mpprof.model.hosts import Communication, DeviceLoad, Host
from mpprof.model.report import Report
from mpprof.report import words

_MOST_LISTED = 8


def lines(document: Report) -> list[str]:
    """Return the devices, what they exchange, and the hosts' clocks; none for a run on one device."""
    if document.communication is None:
        return []
    found = document.communication
    said = [_of_device(each, found) for each in found.devices[:_MOST_LISTED]]
    if len(found.devices) < 2:
        said = []
    if (more := len(found.devices) - _MOST_LISTED) > 0:
        said.append(f"and {words.plural(more, 'more device')}")
    if found.by:
        said.append(_exchanged(found))
    if document.hosts is not None:
        said += [_clock(each) for each in document.hosts.read[1:] if each.clock_skew is not None]
    return said


def name_of(device: str, host: str | None) -> str:
    """Return a device's name, with its host where the run has several."""
    return words.plain(f"{device} of {host}" if host else device)


def _of_device(device: DeviceLoad, found: Communication) -> str:
    slow = any((each.host, each.device) == (device.host, device.device) for each in found.stragglers)
    waits = f", exposed communication {words.duration(device.exposed_ns)}" if found.by else ""
    return (
        f"{name_of(device.device, device.host)}: step {words.duration(device.step_ns)}, "
        f"busy {words.duration(device.busy_ns)}{waits}{' (the others wait for it)' if slow else ''}"
    )


def _exchanged(found: Communication) -> str:
    busy = sum(each.busy_ns for each in found.by)
    exposed = sum(each.exposed_ns for each in found.by)
    kinds = ", ".join(
        f"{_KINDS[each.kind]} in {each.integers or each.precision.replace('unknown', 'an unknown type')} "
        f"{words.duration(each.busy_ns)}"
        for each in found.by[:4]
    )
    main = found.devices[0]
    return (
        f"communication of {name_of(main.device, main.host)} {words.duration(busy)} a step, "
        f"{words.duration(exposed)} of it exposed: {kinds}"
    )


_KINDS = {"reduce": "sums", "gather": "gathers", "other": "other collectives"}


def _clock(host: Host) -> str:
    skew = host.clock_skew
    assert skew is not None
    way = "ahead of" if skew.skew_ns >= 0 else "behind"
    return (
        f"the clock of {words.plain(host.host)} is {words.duration(abs(skew.skew_ns))} {way} that of "
        f"the first host, as estimated from {words.plural(skew.count, skew.by[:-1])} (half within "
        f"{words.duration(skew.within_ns)}); nothing is shifted by it"
    )
