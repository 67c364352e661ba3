"""Which hosts trained one run, and where the trace of each lies.

A profiler writes one file for each host: into one session directory, named after the host, or, where mpprof
recorded several workers, into a session of each worker, which the worker's own run.json names.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

from mpprof import traces
from mpprof.errors import UsageError
from mpprof.model.run import HostTrace, ProfileWindow, Run, RunFacts
from mpprof.traces import formats

_KEPT = ("done", "foreign")
"""How a window ended that left a trace."""


def of_session(trace: Path) -> tuple[HostTrace, ...]:
    """Return the hosts of the session that a trace lies in, the trace's own host first; empty where it is the
    only one."""
    beside = traces.hosts_beside(trace)
    if not beside:
        return ()
    others = (HostTrace(host, None if why else file, reason=why) for host, file, why in beside)
    return (HostTrace(formats.host_of(trace.name) or trace.name, trace), *others)


def of_run(root: Path, trace: Path, facts: Mapping[int, RunFacts | None]) -> tuple[HostTrace, ...]:
    """Return the hosts of a recorded run in the window of this trace, the trace's own host first; empty where
    the run has only one. `facts` holds what each worker recorded, None where that cannot be read; worker 0 is
    the first."""
    like = _window_of(root, trace, facts)
    recorded = [_of_worker(root, worker, facts[worker], like) for worker in sorted(facts)]
    session = of_session(trace) or (HostTrace(formats.host_of(trace.name) or trace.name, trace),)
    known = {each.trace for each in recorded if each.trace is not None}
    if trace not in known and recorded and recorded[0].trace is None:
        recorded[0] = replace(recorded[0], trace=trace, reason="")  # its window is not on record
        known.add(trace)
    hosts = [*recorded, *(each for each in session if each.trace is None or each.trace not in known)]
    hosts.sort(key=lambda each: each.trace != trace)
    return _labelled(hosts) if len(hosts) > 1 else ()


def alone(run: Run, host: str) -> Run:
    """Return the run as this one of its hosts saw it: its trace, and its worker's step log. Raises UsageError
    where there is no such host, or no trace of it."""
    chosen = next((each for each in run.hosts if each.host == host), None)
    if chosen is None:
        names = ", ".join(each.host for each in run.hosts) or "this run is on one host"
        raise UsageError(f"no host {host!r} in this run", where=str(run.path), next=f"Its hosts: {names}")
    if chosen.trace is None:
        raise UsageError(
            f"no trace of {host}: {chosen.reason}", where=str(run.path), next="Choose another host"
        )
    own = run.workers.get(chosen.worker) if chosen.worker else run.steps if chosen.worker == 0 else None
    return replace(run, traces=(chosen.trace,), hosts=(), steps=own, workers={})


def _window_of(root: Path, trace: Path, facts: Mapping[int, RunFacts | None]) -> ProfileWindow | None:
    """Return the window that left this trace, from whichever worker recorded it."""
    windows = (window for its in facts.values() if its is not None for window in its.profile_windows)
    return next((each for each in windows if each.trace and root / each.trace == trace.parent), None)


def _of_worker(root: Path, worker: int, facts: RunFacts | None, like: ProfileWindow | None) -> HostTrace:
    """Return the worker's trace of the window that begins at the same step, or else of its last window."""
    if facts is None:
        return HostTrace(f"worker {worker}", None, worker, "its records cannot be read")
    name = facts.host or f"worker {worker}"
    ended = [window for window in facts.profile_windows if window.status in _KEPT and window.trace]
    same = [window for window in ended if like is not None and window.first_step == like.first_step]
    window = next(reversed(same or ended), None)
    if window is None or window.trace is None:
        return HostTrace(name, None, worker, _why_none(facts))
    folder = root / window.trace
    inside = folder.is_dir() and folder.resolve().is_relative_to(root.resolve())
    found = traces.find_traces(folder, host=window.host) if inside else ()
    own = [file for file in found if window.host and formats.host_of(file.name) == window.host]
    if chosen := own or list(found[-1:]):
        return HostTrace(window.host or name, chosen[-1], worker)
    return HostTrace(window.host or name, None, worker, f"no trace was found in {window.trace}")


def _why_none(facts: RunFacts) -> str:
    if facts.profile_windows:
        return f"the profiler window left no trace: {facts.profile_windows[-1].status}"
    return facts.absent.get("profile_windows", "no profiler window was recorded")


def _labelled(hosts: Iterable[HostTrace]) -> tuple[HostTrace, ...]:
    """Return the hosts, where several workers of one machine are named by their numbers, too."""
    hosts = tuple(hosts)
    count = Counter(each.host for each in hosts)
    return tuple(
        replace(each, host=f"{each.host} worker {each.worker}")
        if count[each.host] > 1 and each.worker is not None
        else each
        for each in hosts
    )
