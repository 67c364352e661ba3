"""What people ask for, composed of the other packages: analyse a loaded run, diagnose it, make its tables.

The only module that imports both what reads files (store, traces) and what judges them (analysis, diagnosis).
What a report of one trace does not need is imported where it is used.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Literal

from mpprof import traces
from mpprof.analysis.breakdown import accounting, communication
from mpprof.analysis.breakdown.compute_precision import compute_precision, tensor_core_share
from mpprof.analysis.breakdown.rates import busiest
from mpprof.analysis.comparison import estimate
from mpprof.analysis.kernels import device_peaks, placement
from mpprof.analysis.layers import attribution
from mpprof.analysis.memory import blocks
from mpprof.analysis.steps import host_floor, validity
from mpprof.analysis.steps import statistics as stepping
from mpprof.api import hosts as several
from mpprof.diagnosis import engine
from mpprof.diagnosis.answer import compose
from mpprof.diagnosis.remedies.frameworks import ON_JAX, ON_TORCH
from mpprof.diagnosis.signals import Case, Signals
from mpprof.errors import UnableError, UnreadableError, own_baseline
from mpprof.model.account import Account, Speedup, TensorCoreShare
from mpprof.model.device import MAYBE_NVIDIA, DeviceFacts, DevicePeaks
from mpprof.model.finding import Diagnosis
from mpprof.model.frozen import frozen
from mpprof.model.hosts import Collective, Hosts
from mpprof.model.kernels import Placements
from mpprof.model.memory import MemoryAccount, Program
from mpprof.model.quantities import format_count
from mpprof.model.run import NO_END, Run
from mpprof.model.trace import NamedRanges, Trace
from mpprof.runs.loading import (
    Given,
    Place,
    Several,
    load,
    load_all,
    load_at,
    places,
    runs,
    why_no_trace_in,
)
from mpprof.runs.state import has_stopped

if TYPE_CHECKING:
    from mpprof.analysis.comparison.bounds import Proof
    from mpprof.analysis.comparison.comparability import Side
    from mpprof.model.rows import Row
    from mpprof.model.timeline import Roofs

__all__ = [
    "Analysis", "Place", "TableKind", "analyse", "announce", "diagnose", "diagnose_each", "judge", "load",
    "load_all", "load_at", "places", "roofs_of", "rows_of", "runs", "side", "signals_of",
    "table_rows",
]  # fmt: skip

TableKind = Literal["kernels", "products", "ops", "layers", "memory"]
ANNOUNCED_BYTES = 2 << 20
"""Of a longer step log the announced verdict is that of its beginning and its end: about ten thousand steps,
which take a tenth of a second to read. A `fit` is not to end the later the longer its run is."""
RECORD_A_WINDOW = 'Record a profiler window: MPProfilerCallback(logdir, profile_steps="auto")'


@frozen
class Analysis(Case):
    """What was computed from one run: what its judgement needs, and what its tables and figures need beside
    that."""

    ownership: attribution.Ownership | None = None
    ranges: tuple[NamedRanges, ...] = ()  # of the trace that may be steps, where it has none


# --- analysing ---------------------------------------------------------------------------------------------


def analyse(run: Run, *, strict: bool = False) -> Analysis:
    """Read the run's latest trace, if it has one, and compute everything that needs no baseline.

    If a trace cannot be read, the result states this problem and the records are judged; without records, or
    if `strict` is set, it raises UnreadableError.
    """
    steps = stepping.summarise(run.steps, run.facts, spans=run.spans, finished=run.finished)
    if steps is not None and run.steps is not None and run.workers:
        steps = replace(steps, workers=stepping.by_worker({0: run.steps, **run.workers}))
    if steps is not None:
        steps = replace(steps, memory=blocks.recorded(run, steps.peak_memory_bytes))
    trace, problem = _read(run, strict)
    if trace is None:
        peaks = _peaks(run, None)
        computes = compute_precision(run)
        return Analysis(run, steps=steps, peaks=peaks, trace_problem=problem, computes=computes)
    if run.step_range is not None:
        run, trace = _with_steps_of(run, trace, run.step_range)
        steps = None
    run, counted = _counted(run, trace, strict)
    placements, ownership = _placed(trace, run, counted)
    account: Account | None = None
    try:
        account = accounting.account(trace, placements, ownership, run)
        account = replace(
            account,
            host_ns=host_floor.need_ns(trace, account),
            host_path=host_floor.host_path(trace, account),
        )
    except UnableError as error:
        problem = error.what
    hosts = _hosts(run, (trace, placements, ownership), account)
    window = None if account else window_of(run, trace, placements, ownership, problem or "")
    measured = account or window
    cells = measured.main.cells if measured else ()
    device = _device_of(trace, measured)
    return Analysis(
        run=run,
        steps=steps,
        trace=trace,
        placements=placements,
        ownership=ownership,
        account=account,
        tensor_core=_tensor_core(measured, trace, placements, run, device),
        memory=_at_peak(trace, ownership, run),
        peaks=_peaks(run, trace),
        trace_problem=problem,
        computes=compute_precision(run, cells),
        window=window,
        ranges=_may_be_steps(trace, measured) if measured is not None and measured.unit != "step" else (),
        hosts=hosts,
    )


def _placed(trace: Trace, run: Run, counted: placement.Counters) -> tuple[Placements, attribution.Ownership]:
    """Return where each kernel ran, and the layer and phase of its op."""
    placements = placement.place(trace, counted)
    ownership = attribution.attribute(trace, run.model)
    placements = placement.by_layers(trace, placements, ownership)
    return placement.by_norms(trace, placements, ownership), ownership


def _hosts(
    run: Run, own: tuple[Trace, Placements, attribution.Ownership], account: Account | None
) -> Hosts | None:
    """Return what the run's other hosts did; None where there are none, or the own trace shows no step."""
    if not run.hosts or account is None:
        return None

    def read(path: Path, its: Run) -> several.Placed:
        trace = _trace(path, strict=False)
        return trace, *_placed(trace, its, {})

    return several.hosts_of(run, own, account, read)


def _with_steps_of(run: Run, trace: Trace, step_range: str) -> tuple[Run, Trace]:
    """Return the run and its trace, where the run's steps are ranges of the trace: what the run's log calls a
    step is another thing."""
    from mpprof.analysis.steps import ranges

    trace = ranges.with_steps_of(trace, step_range)
    if run.steps is None:
        return run, trace
    said = "the step log is left out: its steps are not the ranges that were asked for"
    return replace(run, steps=None, workers={}, warnings=(*run.warnings, said)), trace


def _may_be_steps(trace: Trace, measured: Account) -> tuple[NamedRanges, ...]:
    from mpprof.analysis.steps import ranges

    return tuple(each for each in ranges.suggested(trace) if each.name != measured.unit_name)


def window_of(
    run: Run, trace: Trace, placements: Placements, ownership: attribution.Ownership, why: str
) -> Account | None:
    """Return the account of the trace's whole window; None where no kernel ran in it."""
    from mpprof.analysis.breakdown import whole_window

    return whole_window.account_of_window(trace, placements, ownership, run, why)


def _counted(run: Run, trace: Trace, strict: bool) -> tuple[Run, placement.Counters]:
    """Return what hardware counters said of kernels, where the run has a file of them. A damaged file is a
    warning of the run, unless `strict`; so are verdicts that were kept by an older rule and prove nothing."""
    if not (run.path / "mpprof" / "counters.json").is_file():
        return run, {}
    from mpprof import store
    from mpprof.analysis.kernels import counters

    try:
        stored = store.read_counters(run.path)
    except UnreadableError as error:
        if strict:
            raise
        return replace(run, warnings=(*run.warnings, f"counters are left out: {error}")), {}
    present = [device.facts for device in trace.devices]
    proven = counters.as_proven(stored, present)
    if lost := [verdict for verdict in proven.values() if verdict.reason.code == counters.NOT_PROVEN]:
        warning = (
            f"{len(lost)} of {len(proven)} verdicts in counters.json are not used: an older version of "
            "mpprof took them from counters that do not show Tensor Core use on this card. Run "
            "`mpprof verify` again"
        )
        run = replace(run, warnings=(*run.warnings, warning))
    return run, counters.of_devices(proven, present)


def _tensor_core(
    account: Account | None, trace: Trace, placements: Placements, run: Run, device: DeviceFacts | None
) -> TensorCoreShare | None:
    """Return the Tensor Core share of what the account covers: the steps, or the whole window; None
    without work. Where no matrix work shows it, the device tells what its units are."""
    if account is None:
        return None
    on_host = trace.basis == "host"
    units = _has_matrix_units(run, device)
    share = tensor_core_share(account.main.cells, on_host=on_host, matrix_units=units)
    share = replace(share, of=account.of)
    other = device is not None and device.kind != "cpu" and device_peaks.vendor(device) not in MAYBE_NVIDIA
    if other and not share.by_precision:
        share = replace(share, unit="matrix_core")
    if not any(verdict.strength == "counter" for verdict in placements.verdicts):
        return share
    return replace(share, verified_ratio=placement.verified_ratio(trace, placements))


def _read(run: Run, strict: bool) -> tuple[Trace | None, str | None]:
    if not run.traces:
        return None, _why_no_trace(run)
    try:
        return _trace(run.traces[-1], strict), None
    except UnreadableError as error:
        if strict or run.steps is None:
            raise
        return None, f"{error.where}: {error.what}" if error.where else error.what


def _trace(path: Path, strict: bool) -> Trace:
    """Read afresh, or from the cache where the format is slow to parse. `strict` must see damage to refuse
    it, so it does not use the cache."""
    if strict or not traces.is_slow(path):
        return traces.read(path, strict=strict)
    from mpprof.traces.cache import entries

    return entries.trace(path, traces.version(), lambda: traces.read(path))


def _why_no_trace(run: Run) -> str:
    if run.facts and run.facts.profile_windows:
        window = run.facts.profile_windows[-1]
        if window.status in ("done", "foreign"):
            if window.trace is None:
                return "the profiler window left no trace: its directory was not recorded"
            return why_no_trace_in(run.path, window.trace)
        return f"the profiler window left no trace: {window.status}"
    if run.facts:
        return run.facts.absent.get("profile_windows", "no profiler window was recorded")
    return "no trace was found in this directory"


def _peaks(run: Run, trace: Trace | None) -> DevicePeaks | None:
    """Return the peaks of the device that the trace names, completed by what the run recorded of it (its
    marketing name)."""
    recorded = [facts for facts in run.devices if facts.kind != "cpu"]
    for facts in recorded or ([trace.devices[0].facts] if trace and trace.devices else []):
        if (peaks := device_peaks.peaks(facts)) is not None:
            return peaks
    return None


# --- judging -----------------------------------------------------------------------------------------------


def diagnose(run: Given, baseline: Given | None = None, *, strict: bool = False) -> Diagnosis:
    """Return the whole judgement of a run or of the one at a path, against a baseline where one is given."""
    return diagnose_each([run], baseline, strict=strict)[0]


def diagnose_each(
    runs: Several, baseline: Given | None = None, *, strict: bool = False
) -> tuple[Diagnosis, ...]:
    """Return the judgement of each run against the same baseline, which is analysed once."""
    base = None if baseline is None else analyse(load(baseline), strict=strict)
    return tuple(judge(analyse(load(run), strict=strict), base) for run in runs)


def judge(
    mine: Analysis,
    baseline: Analysis | None = None,
    *,
    ladder: bool = False,
    dismissed: Iterable[str] = (),
) -> Diagnosis:
    """Return the judgement of what was already analysed. `ladder`: as a rung of several runs, or after a
    change, unlike by design. `dismissed`: codes of findings that come last, and are not called the cause.
    Raises UsageError for a run that is its own baseline."""
    if baseline is not None:
        from mpprof.analysis.comparison.comparability import same_run

        if same_run(mine.run, baseline.run):
            raise own_baseline(mine.run.name, str(baseline.run.path))
    speedup = _speedup(mine, baseline)
    case = replace(mine, speedup=speedup, baseline=baseline, ladder=ladder, dismissed=frozenset(dismissed))
    held = _saved(mine, baseline, engine.unlike(case) if baseline else ())
    judgement = engine.judge(replace(case, memory=held))
    diagnosis = _diagnosis(case, judgement, held, _proof(mine, baseline))
    answer = compose(diagnosis)
    return replace(
        diagnosis,
        answer=answer,
        verdict=answer.sentence,
        cause=answer.code,
        explanation=answer.because,
    )


def _diagnosis(
    mine: Analysis, judgement: engine.Judgement, held: MemoryAccount | None, proof: Proof | None
) -> Diagnosis:
    """Return what was computed of a run with what the rules say of it, before it is put into sentences."""
    measured = mine.account or mine.window
    run = replace(mine.run, stopped=has_stopped(mine.run, now_unix_ns=time_ns()))
    warnings = _warnings(mine)
    if run.stopped:  # the answer says that there is no end
        own, warnings = (
            tuple(said for said in each if not said.startswith(NO_END)) for each in (run.warnings, warnings)
        )
        run = replace(run, warnings=own)
    return Diagnosis(
        run=run,
        steps=mine.steps,
        account=mine.account,
        tensor_core=mine.tensor_core,
        speedup=judgement.speedup,
        bounds=proof.bounds if proof else (),
        memory=held,
        findings=judgement.findings,
        unable=judgement.unable,
        clear=judgement.clear,
        not_applicable=judgement.not_applicable,
        warnings=(*warnings, *judgement.warnings),
        absent=_absent(mine, held, proof),
        device=_main_device(mine),
        computes=mine.computes,
        whatif=judgement.whatif,
        window=mine.window,
        how_to_mark=judgement.how_to_mark,
        how_to_switch=judgement.how_to_switch,
        unlike=judgement.unlike,
        ranges=mine.ranges,
        hosts=mine.hosts,
        devices=communication.loads(mine.account, mine.hosts) if mine.account else (),
        collectives=_collectives(mine),
        dismissed=mine.dismissed,
        kernels=busiest(measured, mine.peaks) if measured else (),
    )


def _warnings(mine: Analysis) -> tuple[str, ...]:
    """Return the notes on the run, its trace and its steps that do not depend on rules."""
    measured = mine.account or mine.window
    return (
        *mine.run.warnings,
        *((*mine.trace.warnings, *mine.trace.notes) if mine.trace else ()),
        *(measured.notes if measured else ()),
        *validity.doubts(mine.run, mine.account.stalled if mine.account else None),
        *validity.of_the_machine(mine.run),
        *several.doubts(mine.hosts, mine.account, mine.run),
    )


def _at_peak(trace: Trace, ownership: attribution.Ownership, run: Run) -> MemoryAccount | None:
    """Return what held the memory at its peak; None for a trace without allocator events, as most are."""
    if not len(trace.allocations):
        return None
    from mpprof.analysis.memory import composition

    return composition.at_peak(trace, ownership, run, _programs(trace))


def _programs(trace: Trace) -> tuple[Program, ...]:
    """Return the compiled programs of a trace that shows memory taken by XLA for some."""
    from mpprof.analysis.memory import assigned

    if not (sizes := assigned.sizes_taken(trace)):
        return ()
    from mpprof.traces.xspace.programs import programs

    return programs(trace.source.path, sizes)


def _collectives(mine: Analysis) -> tuple[Collective, ...]:
    cells = mine.account.main.cells if mine.account is not None else ()
    return communication.collectives(cells)


def _saved(mine: Analysis, baseline: Analysis | None, unlike: Sequence[str]) -> MemoryAccount | None:
    """Return the memory account, with what was saved where there is a baseline that differs in precision
    alone."""
    if baseline is None:
        return mine.memory
    from mpprof.analysis.memory import saved

    if unlike:
        return saved.unknown(mine.memory, mine.steps, unlike)
    return saved.against(mine.memory, mine.steps, baseline.steps, baseline.memory, mine.run, baseline.run)


def _main_device(mine: Analysis) -> DeviceFacts | None:
    return _device_of(mine.trace, mine.account or mine.window) if mine.trace else None


def _device_of(trace: Trace, account: Account | None) -> DeviceFacts | None:
    """Return the device that the account is of, else the trace's first, as the trace states it."""
    found, main = trace.devices, account.main.device if account else None
    chosen = next((device for device in found if device.plane == main), found[0] if found else None)
    return chosen.facts if chosen else None


def _has_matrix_units(run: Run, device: DeviceFacts | None) -> bool | None:
    """Return whether the device has matrix units, by the trace and the run's facts; None: not known."""
    if device is None:
        return None
    recorded = (facts for facts in run.devices if facts.kind != "cpu")
    return device_peaks.has_matrix_units(device_peaks.completed(device, next(recorded, None)))


def signals_of(mine: Analysis) -> Signals:
    """Return what rules see of a run without a baseline."""
    return Signals(mine)


def _proof(mine: Analysis, baseline: Analysis | None) -> Proof | None:
    """Return what records alone prove, where no trace says where the matrix work ran; None where one does."""
    if mine.peaks is None or (mine.tensor_core is not None and mine.tensor_core.ratio is not None):
        return None
    from mpprof.analysis.comparison import bounds

    return bounds.from_records(mine.run, baseline.run if baseline else None, mine.peaks)


def _speedup(mine: Analysis, baseline: Analysis | None) -> Speedup | None:
    if baseline is not None:
        from mpprof.analysis.comparison import comparability
        from mpprof.analysis.comparison import speedup as comparing

        sides = side(baseline), side(mine)
        if (refused := comparability.refusal(*sides) or comparability.not_steps(*sides)) is not None:
            return comparing.refused(baseline.run, refused)
        found = comparing.speedup(
            mine.account,
            baseline.account,
            mixed_run=mine.run,
            baseline_run=baseline.run,
            peaks=mine.peaks,
            other_card=comparability.other_card(*sides) is not None,
        )
        return _of_windows(found, mine, baseline)
    if mine.account is None:
        return None
    units = _has_matrix_units(mine.run, _main_device(mine))
    return estimate.estimate(mine.account, mine.run, mine.peaks, matrix_units=units)


def _of_windows(found: Speedup, mine: Analysis, baseline: Analysis) -> Speedup:
    """Return the speedup with the true reason for what it lacks, if there is a trace without steps."""
    names = [each.run.name for each in (baseline, mine) if each.account is None and each.window is not None]
    if not names or found.absent is None:
        return found
    why = f"no step of {' and '.join(names)} can be told apart: mpprof compare compares the whole windows"
    without = {field: why for field in found.absent if field not in ("observed", "interval")}
    return replace(found, absent=found.absent | without)


def side(mine: Analysis) -> Side:
    """Return what a run is, beside its step, where it is compared with another."""
    from mpprof.analysis.comparison.comparability import Side

    return Side(mine.run, _main_device(mine), mine.peaks, account=mine.account)


_SAID_ELSEWHERE = ("allocations", "device", "kernels")
"""What a trace lacks that `memory`, `tensor_core` and `time` give as their reason."""


def _absent(mine: Analysis, memory: MemoryAccount | None, proof: Proof | None) -> dict[str, str]:
    """Return the reason for each part that a diagnosis lacks. `memory`, `proof`: those of the diagnosis."""
    absent = (
        mine.run.facts.reasons if mine.run.facts else {"run": "no records of mpprof lie beside the trace"}
    )
    if mine.steps is None:
        absent["steps"] = "no step log"
    if mine.account is None:
        absent["time"] = mine.trace_problem or "no account"
    if mine.hosts is None and mine.run.hosts:
        absent["hosts"] = (
            f"{len(mine.run.hosts)} hosts trained this run, and the trace of {mine.run.hosts[0].host} shows "
            "no step"
        )
    if mine.memory is None:  # where the diagnosis has one all the same, its peak is that of the records
        absent["memory" if memory is None else "memory.allocator"] = _why_no_memory(mine)
    missing = mine.trace.missing if mine.trace else {}
    absent |= {f"trace.{what}": why for what, why in missing.items() if what not in _SAID_ELSEWHERE}
    return absent | ({"bounds": proof.unable} if proof and proof.unable else {})


def _why_no_memory(mine: Analysis) -> str:
    from mpprof.analysis.memory.blocks import why_none as why_no_blocks

    why = why_no_blocks(mine.trace) if mine.trace is not None else mine.trace_problem
    return why or "no allocations were recorded"


def announce(root: str | Path) -> str:
    """Return the answer that the callback prints when `fit` ends, on the run of this very directory. It is
    the same as that of `mpprof report`, or states how many steps it covers."""
    # Only this host: others may still write their traces, and `fit` is not to wait for them.
    run = replace(load_at(Path(root), most_bytes=ANNOUNCED_BYTES), hosts=())
    left_out = stepping.left_out(run.steps) if run.steps is not None else None
    answer = diagnose(run).answer
    assert answer is not None
    said = [f"{answer.head}." if answer.head else "", answer.sentence]
    said.append(f"First: {answer.do}." if answer.do else "")
    if left_out is not None:
        first, last = map(format_count, left_out)
        said.append(f"This covers the first {first} and the last {last} steps.")
    return " ".join(filter(None, said))


# --- tables ------------------------------------------------------------------------------------------------


def table_rows(
    run: Run, kind: TableKind, *, by_stream: bool = False, steps: tuple[int, int] | None = None
) -> Sequence[Row]:
    """Return the rows of a table command. Raises UnableError where the run has no trace to make them from."""
    return rows_of(analyse(run), kind, by_stream=by_stream, steps=steps)


def rows_of(
    mine: Analysis, kind: TableKind, *, by_stream: bool = False, steps: tuple[int, int] | None = None
) -> Sequence[Row]:
    """Return the rows of a table, from what was already analysed."""
    if mine.trace is None or mine.placements is None or mine.ownership is None:
        raise UnableError(mine.trace_problem or "no trace", where=str(mine.run.path), next=RECORD_A_WINDOW)
    if kind == "memory":
        return _memory_rows(mine)
    from mpprof.analysis.breakdown import rates, tables

    if steps is None and mine.run.step_range is not None:
        steps = tables.ALL_STEPS
    if kind == "layers":
        return tables.layers(mine.trace, mine.placements, mine.ownership, by_stream=by_stream, steps=steps)
    known = rates.setting(mine.trace, mine.run)
    if kind == "products":
        return tables.products(
            mine.trace, mine.placements, mine.ownership, by_stream=by_stream, steps=steps, known=known,
            run=mine.run,
        )  # fmt: skip
    make = tables.kernels if kind == "kernels" else tables.ops
    return make(mine.trace, mine.placements, mine.ownership, by_stream=by_stream, steps=steps, known=known)


def roofs_of(mine: Analysis) -> Roofs | None:
    """Return the peak rates of the device that the account is of; None where they, or the device, are not
    known."""
    if mine.trace is None or mine.account is None:
        return None
    from mpprof.analysis.breakdown import rates

    known, plane = rates.setting(mine.trace, mine.run), mine.account.main.device
    peaks = next(
        (
            peak
            for device, peak in zip(mine.trace.devices, known.peaks, strict=True)
            if device.plane == plane and peak is not None
        ),
        None,
    )
    if peaks is None:
        return None
    return {
        "card": peaks.name,
        "flops_per_s": dict(peaks.flops_per_s),
        "bandwidth_bytes_per_s": peaks.bandwidth_bytes_per_s,
        "source": peaks.source,
    }


def _what_shows_memory(mine: Analysis) -> str:
    """Return what to do where the trace holds no allocator events."""
    if mine.steps is not None and mine.steps.peak_memory_bytes is not None:
        return "The recorded peak is in mpprof report --format json (steps.memory)"
    framework = Signals(mine).framework
    if framework in ON_TORCH:
        return (
            "torch.profiler.profile(profile_memory=True, record_shapes=True, with_stack=True) shows what is "
            "live, and of which layers"
        )
    if mine.trace is not None and mine.trace.basis == "host":
        return (
            "On a CPU only oneDNN's large tensors are recorded: profile on a GPU, or see what training will "
            "take with mpprof memory MODEL --batch-size N"
        )
    from mpprof.traces.xspace.programs import programs

    if mine.run.traces and programs(mine.run.traces[-1]):
        return "XLA's assignment is in the trace: mpprof memory PATH --programs"
    if framework in ON_JAX:
        return (
            "JAX writes them while it profiles a GPU, but not with XLA_PYTHON_CLIENT_ALLOCATOR=cuda_async; "
            "jax.profiler.save_device_memory_profile(FILE) writes what is live at that moment, for pprof"
        )
    return (
        "TensorFlow and JAX write them while they profile a GPU, but TensorFlow not with "
        "TF_GPU_ALLOCATOR=cuda_malloc_async"
    )


def _memory_rows(mine: Analysis) -> list[Row]:
    if mine.memory is None:
        raise UnableError(_why_no_memory(mine), where=str(mine.run.path), next=_what_shows_memory(mine))
    from mpprof.report.to_json import to_json

    return [to_json(item) for item in mine.memory.at_peak]
