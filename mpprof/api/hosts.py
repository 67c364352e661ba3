"""The traces of a run's other hosts: each read on its own, and reduced to what its devices did in a step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

from mpprof.analysis.breakdown import accounting, communication
from mpprof.analysis.layers.attribution import Ownership
from mpprof.analysis.steps import statistics as stepping
from mpprof.analysis.steps.accounted_steps import Window, window_of
from mpprof.errors import MpprofError
from mpprof.model.account import Account
from mpprof.model.hosts import Host, Hosts, MissingHost
from mpprof.model.kernels import Placements
from mpprof.model.run import HostTrace, Run
from mpprof.model.trace import Trace

_MOST_SAID = 3
Placed = tuple[Trace, Placements, Ownership]


def hosts_of(run: Run, own: Placed, account: Account, read: Callable[[Path, Run], Placed]) -> Hosts | None:
    """Return every host of the run, that of `own` first; None for a run on one host. One trace at a time is
    held beside `own`, and the host of a trace that cannot be read, or shows no step, is missing."""
    if not run.hosts:
        return None
    first = run.hosts[0]
    shared = _landmarks(own, account, run)
    found = [_account_of(first, run, own[0].source.path, account)]
    missing = []
    for host in run.hosts[1:]:
        if host.trace is None:
            missing.append(MissingHost(host.host, host.worker, host.reason))
            continue
        try:
            its = _of_worker(run, host.worker)
            placed = read(host.trace, its)
            theirs = accounting.account(*placed, its)
        except MpprofError as error:
            missing.append(MissingHost(host.host, host.worker, error.what))
            continue
        skew = communication.skew(_landmarks(placed, theirs, its), shared)
        made = _account_of(host, run, host.trace, theirs)
        made = replace(made, warnings=placed[0].warnings)
        found.append(replace(made, absent=skew) if isinstance(skew, str) else replace(made, clock_skew=skew))
    return Hosts(tuple(found), tuple(missing))


def doubts(hosts: Hosts | None, account: Account | None, run: Run) -> tuple[str, ...]:
    """Return what is not known of a run because traces of it are missing."""
    missing = hosts.missing if hosts is not None else ()
    count = len(missing) + (len(hosts.read) if hosts is not None else 1)
    said = [
        f"{each.host}: {text}" for each in (hosts.read if hosts is not None else ()) for text in each.warnings
    ]
    said += [f"{each.host}, one of {count} hosts of this run, is missing: {each.reason}" for each in missing]
    if more := said[_MOST_SAID:]:
        said[_MOST_SAID:] = [f"{len(more)} more such warnings of other hosts"]
    replicas = run.facts.replicas if run.facts is not None else None
    if replicas is None or account is None or account.trace_basis == "host":
        return tuple(said)
    seen = len(communication.loads(account, hosts))
    if seen < replicas:
        said.append(
            f"{replicas} devices train together, and the traces show the steps of {seen}: a "
            "straggler may be among the others"
        )
    return tuple(said)


def _of_worker(run: Run, worker: int | None) -> Run:
    """Return the run with the step log of this worker: the others' steps are not those of its trace."""
    own = run.steps if worker == 0 else run.workers.get(worker) if worker is not None else None
    return replace(run, steps=own, workers={}, hosts=())


def _landmarks(placed: Placed, account: Account, run: Run) -> communication.Landmarks | str:
    trace, placements, _ = placed
    row = trace.device_row(account.main.device)
    window = window_of(trace, row, run, stepping.summarise(run.steps, run.facts, spans=run.spans))
    return communication.landmarks(trace, placements, window) if isinstance(window, Window) else window


def _account_of(host: HostTrace, run: Run, trace: Path, account: Account) -> Host:
    """Return the host's account in short, without cells: with many hosts, the cells of every device would
    fill memory."""
    devices = (account.profiled or account.main, *account.devices[1:])
    steps = run.workers.get(host.worker) if host.worker else run.steps if host.worker == 0 else None
    summary = stepping.summarise(steps, run.facts)
    return Host(
        host=host.host,
        worker=host.worker,
        trace=trace.name,
        step_ns=account.window_ns,
        wall_ns=summary.mean_ns if summary is not None else None,
        devices=tuple(replace(device, cells=()) for device in devices),
        window_steps=account.steps,
    )
