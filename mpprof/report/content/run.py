"""The run, its step log, its warnings, its wall time and its memory, in sentences and rows."""

from __future__ import annotations

import re

from mpprof.diagnosis.rules import mp201_endless_skips
from mpprof.model.account import BUSY_RATIO, BusyKernel
from mpprof.model.frozen import frozen
from mpprof.model.memory import KEPT, Advice, MemoryAccount, MemoryItem
from mpprof.model.quantities import first_of
from mpprof.model.report import Report
from mpprof.model.run_time import RunPart
from mpprof.model.steps import StepSummary, WorkerSummary
from mpprof.report import words

RUN_TIME_HEADING = "Where the run's time went"
MOST_NAMED = 3
"""So many pieces of a part are named."""
LEAST_NAMED = 0.01
"""Pieces below a hundredth of their part are not."""
MOST_KERNELS = 6
"""So many kernels are listed with their rates: with a heading and titles, eight lines."""

LEAST_HOURS = 0.001
"""A shorter time of the GPU reads better in seconds."""


def subject(document: Report) -> str:
    """Return what was measured: "mixed_float16, tensorflow, Tesla V100, XLA off, batch 32"; only what is
    known."""
    run = document.run
    precision = [run.policy, words.computes(document)]
    facts = [*precision, run.backend, run.device, words.compiled(run.backend, run.jit_compile)]
    if run.batch_size is not None:
        facts.append(f"batch {words.count(run.batch_size)}")
    return ", ".join(words.plain(str(fact)) for fact in facts if fact) or "nothing recorded about the run"


def steps(document: Report) -> str:
    """Return the step log in one sentence."""
    log = document.steps
    if log is None:
        return f"not recorded: {document.absent.get('steps', 'there is no step log')}"
    parts = [f"{words.plural(log.count, 'step')}, {words.count(log.steady)} steady"]
    if (mean := log.mean_ns) is not None:
        parts.append(f"{words.duration(mean)} a step (mean)")
    if log.median_ns is not None:
        parts.append(f"median {words.duration(log.median_ns)}, p95 {words.duration(log.p95_ns)}")
    if (rate := log.examples_per_s) is not None:
        hours = log.gpu_hours_per_epoch
        each = f" ({_gpu_time(hours)} an epoch)" if hours is not None else ""
        parts.append(f"{words.count(round(rate)) if rate >= 100 else f'{rate:.3g}'} examples/s{each}")
    if log.skipped is not None:
        parts.append(f"{words.count(log.skipped)} skipped ({words.percent(log.skipped_ratio)})")
    if scale := loss_scale(log):
        parts.append(f"loss scale {scale}")
    if log.peak_memory_bytes is not None:
        parts.append(f"peak memory {words.size(log.peak_memory_bytes)}")
    return "; ".join([*parts, *_workers(log.workers)])


def _gpu_time(hours: float) -> str:
    return f"{hours:.3g} GPU-hours" if hours >= LEAST_HOURS else f"{hours * 3600:.3g} GPU-seconds"


def loss_scale(log: StepSummary | None) -> str:
    """Return the first loss scale and the last: "2^15 to 2^-35"; empty where none was recorded."""
    scale = log.loss_scale if log else None
    if scale is None:
        return ""
    return " to ".join(dict.fromkeys(words.scale(end) for end in (scale.first, scale.last)))


def _workers(workers: tuple[WorkerSummary, ...]) -> list[str]:
    """Return how the step times of several workers compare, and which worker is the slowest."""
    timed = [(mean, each.worker) for each in workers if (mean := each.mean_ns) is not None]
    if len(timed) < 2:
        return []
    (fast, _), (slow, slowest) = min(timed), max(timed)
    said = f"{len(timed)} workers, steps of {words.duration(fast)}"
    if words.duration(slow) == words.duration(fast):
        return [f"{said} each"]
    return [f"{said} to {words.duration(slow)} (the slowest is worker {slowest})"]


def skips_arise(document: Report) -> bool:
    """Return whether steps may be skipped: not where nothing scales the loss (float32, bfloat16, an
    inference)."""
    computes = document.run.computes_in
    if any(each.code == _SKIPS for each in document.not_applicable):
        return False
    return computes is None or computes.kind not in ("float32", "float64")


_SKIPS = mp201_endless_skips.CODE
"""The rule that does not apply where no update can be skipped."""


def recorded_peak(document: Report) -> int | None:
    """Return the peak of the device's memory in the step log; None: not recorded."""
    steps = document.steps
    return steps.peak_memory_bytes if steps else None


def warnings(document: Report) -> list[str]:
    """Return the warnings, and what the account had to leave out or shift."""
    notes = document.time.notes if document.time else []
    notes = document.window.notes if document.window is not None else notes
    return list(dict.fromkeys((*document.warnings, *notes)))


@frozen
class SpentRow:
    label: str
    ns: float
    ratio: float
    by: str


def run_time_rows(document: Report) -> list[SpentRow]:
    """Return the parts that took time, in their fixed order, and last what is not known; empty where the run
    has no step log."""
    found = document.run_time
    if not found:
        return []
    rows = [
        SpentRow(part.name.replace("_", " "), part.ns, part.ratio, _by(part))
        for part in found.parts
        if part.ns
    ]
    if found.unknown_ns:
        ratio = found.unknown_ns / found.wall_ns
        rows.append(SpentRow("not known", found.unknown_ns, ratio, "steps whose lines were not read"))
    return rows


@frozen
class BusyRow:
    """A kernel in words; "-": not known."""

    share: str
    time: str
    rate: str
    of_peak: str
    name: str
    roof: str = ""
    """The rate that the card's peaks allow its ops, which `of_peak` is of; "" where it is not known."""


def busy_heading(document: Report) -> str:
    """Return what the list of kernels holds, and how many it leaves out."""
    more = len(document.kernels) - MOST_KERNELS
    left = f", the longest {MOST_KERNELS} of {len(document.kernels)}" if more > 0 else ""
    return f"Kernels above {100 * BUSY_RATIO:g} % of the device's time{left}"


def busy_shares(document: Report) -> str:
    """Return what the shares of the kernels are of; "" without kernels."""
    first = next((each for each in document.kernels if each.ratio > 0), None)
    if first is None:
        return ""
    return f"time per step, and its share of the {words.duration(first.ns_per_step / first.ratio)} of work"


def busy_kernels(document: Report) -> list[BusyRow]:
    """Return the longest kernels with the rate that is the nearer to its peak; empty where no rate is known
    of any."""
    found = document.kernels[:MOST_KERNELS]
    rates = [
        words.quantity(each.flops_per_s, "flops_per_s")
        if each.bound == "compute" and each.flops_per_s
        else words.quantity(each.bytes_per_s, "bytes_per_s")
        if each.bound == "memory" and each.bytes_per_s
        else "-"
        for each in found
    ]
    if set(rates) <= {"-"}:
        return []
    column = words.column(found[0].ns_per_step)
    return [
        BusyRow(
            words.percent(each.ratio),
            column(each.ns_per_step),
            rate,
            "-" if each.peak_ratio is None else words.percent(each.peak_ratio),
            words.plain(each.name),
            _roof_of(each),
        )
        for each, rate in zip(found, rates, strict=True)
    ]


def _roof_of(each: BusyKernel) -> str:
    compute = each.bound == "compute"
    rate = each.flops_per_s if compute else each.bytes_per_s
    if not rate or not each.peak_ratio:
        return ""
    return words.quantity(rate / each.peak_ratio, "flops_per_s" if compute else "bytes_per_s")


def without_rate(document: Report) -> list[str]:
    """Return why some of these kernels have no rate, where that is known."""
    return [
        f"no rate for {words.op(words.plain(each.name), 60)}: {each.reason}"
        for each in document.kernels[:MOST_KERNELS]
        if each.reason is not None
    ]


def _by(part: RunPart) -> str:
    """Return the largest pieces of a part with their times; of a single one its name, where that says
    more."""
    named = [each for each in part.by if each.ns >= LEAST_NAMED * part.ns]
    if len(named) == 1:
        name = words.plain(named[0].name)
        return "" if name == part.name.replace("_", " ") else name
    said = [f"{words.plain(each.name)} {words.duration(each.ns)}" for each in named]
    return first_of(said, MOST_NAMED)


# --- memory ------------------------------------------------------------------------------------------------

MOST_PARTS_OF_MEMORY = 4
ONE_LAYER_RATIO = 0.99
"""Where all but a hundredth is in one layer, naming the rest divides nothing."""
_SMALLER = r"\d+ smaller ones"
BEFORE = "held before the window"
BEYOND_THE_GAP = "they overlap, or other memory shrank by more than was expected"
"""Why the causes together may be more than what was not saved."""
UNOWNED = ("unknown", BEFORE)
"""Parts of memory of which no event tells the op, layer or type."""


def ran_out_of_memory(document: Report) -> bool:
    """Return whether the training ended for want of memory."""
    ended = document.run.ended
    return ended is not None and ended.reason == "out_of_memory"


def _advised(advice: Advice) -> str:
    line = advice.snippet if advice.snippet and "\n" not in advice.snippet else None
    return ": ".join(filter(None, (advice.text, line)))


def out_of_memory(document: Report) -> list[str]:
    """Return what ended the training, what filled the memory and what to try first; empty where the training
    did not run out of memory."""
    failed = document.out_of_memory
    if failed is None:
        ended = document.run.ended
        return [ended.error or ""] if ended and ended.reason == "out_of_memory" else []
    where = f" of {words.size(failed.limit_bytes)}" if failed.limit_bytes else ""
    used = f", {words.size(failed.used_bytes)}{where} in use" if failed.used_bytes else ""
    by = f" for {words.shorten(words.plain(failed.op), 60)}" if failed.op else ""
    lines = [f"{did_not_fit(failed.asked_bytes, failed.words)}{by}{used}"]
    largest = [f"{words.shorten(words.plain(each.name), 60)} {words.size(each.bytes)}"
               for each in failed.filled[:3]]  # fmt: skip
    listed = failed.listed_bytes
    of = f" of {words.size(listed)} in all" if listed else ""
    lines += [f"The largest that it lists{of}: {', '.join(largest)}"] if largest else []
    return [*lines, *(f"To try: {_advised(each)}" for each in failed.advice)]


def did_not_fit(asked_bytes: int | None, said: str | None) -> str:
    """Return how much an error says did not fit, or its words where it states no size."""
    if asked_bytes is None:
        return f'"{words.plain(said or "out of memory")}": how much did not fit is not stated'
    return f"{words.size(asked_bytes)} did not fit"


def memory(document: Report) -> list[str]:
    """Return what was live at the peak, the largest of each kind; empty where nothing is known."""
    account = document.memory
    if account is None:
        return []
    lines = [f"peak {words.size(account.peak_bytes)}{_beside_the_peak(account)}"]
    if (saved := account.saved_bytes) is not None:
        said = "saved against" if saved >= 0 else "more than"
        lines[0] += f", {words.size(abs(saved))} {said} the baseline"
    reachable = account.reachable_bytes
    if reachable:
        lines[0] += f", {words.size(reachable)} could still be saved"
    if reachable is not None and (causes := account.gap):
        parts = [f"{part.code} {words.size(part.bytes)}" for part in causes]
        way = f"in the way of these {words.size(reachable)}" if reachable else "the peak could still fall by"
        lines.append(f"{way}: {', '.join(parts)}{_unexplained(account) if reachable else ''}")
    if told := drivers_figure(account):
        lines.append(told)
    # Whether the backward pass keeps a result is not known of a window without a whole step.
    divisions = ("dtype", "layer", "op") if document.window is not None else ("kind", "dtype", "layer", "op")
    divided = {by: _divided([i for i in account.at_peak if i.by == by], by) for by in divisions}
    return [*lines, *(f"by {by}: {said}" for by, said in divided.items() if said)]


MOSTLY_RATIO = 0.5
"""A tensor of half of what is unexplained is named."""


def _unexplained(account: MemoryAccount) -> str:
    """Return how much of the gap the causes leave unexplained, and the tensor of no layer that may be most of
    it (logits in float32 for the loss); or by how much the causes exceed the gap."""
    rest = account.unexplained_bytes
    if not rest:
        return ""
    left = f"{words.size(abs(rest))}"
    if rest < 0:
        return f"; together {left} more than that: {BEYOND_THE_GAP}"
    outside = [each for each in account.tensors if each.layer == "unknown" and each.kind == KEPT]
    largest = max(outside, key=lambda each: each.bytes, default=None)
    if largest is None or not MOSTLY_RATIO * rest <= largest.bytes <= rest:
        return f"; {left} unexplained"
    name = words.op(words.plain(largest.op), 48)
    return f"; {left} unexplained: {name} holds {words.size(largest.bytes)}, outside of all layers"


def live_memory_unknown(document: Report) -> str:
    """Return why nothing is known of what was live, and what to switch on; "" where it is known."""
    memory, absent = document.memory, document.absent
    if memory is not None and memory.at_peak:
        return ""
    why = absent.get("memory" if memory is None else "memory.allocator", "no allocator events are there")
    said = f"What was live is not known: {why}."
    if document.run.backend == "torch":
        return said  # the reason names the setting
    said += " TensorFlow and JAX write allocator events while they profile a GPU"
    profiled = (
        document.time or document.window is not None or any(name.startswith("trace.") for name in absent)
    )
    if profiled:  # another window of the same kind would hold none either
        return f"{said}."
    return f'{said}: open a window with MPProfilerCallback(logdir, profile_steps="auto").'


def drivers_figure(account: MemoryAccount) -> str:
    """Return why the driver's figure hardly fell though memory was saved; "" where it fell, or is not
    known."""
    driver = account.driver
    if not driver or driver.code is None:
        return ""
    saved = driver.saved_bytes
    fell = f"fell by only {words.size(saved)}" if saved > 0 else "did not fall"
    now, before = words.size(driver.bytes), words.size(driver.baseline_bytes)
    return (
        f"the driver's number {fell} ({now} in use, {before} in the baseline), though the allocator's peak "
        f"did by {words.size(driver.peak_saved_bytes)}: the framework reserves "
        f"{words.size(driver.unused_bytes)} ahead ({driver.code})"
    )


def is_told(item: MemoryItem) -> bool:
    """Return whether the item's type, layer or op is known: of estimated parameters and slots only the kind
    is."""
    return item.name not in UNOWNED and (item.by == "kind" or not item.estimated)


def held(item: MemoryItem) -> str:
    """Return the name of a part of the peak; the name says so where the part is estimated."""
    if item.estimated:
        return f"{item.name} (estimated)"
    return f"{item.name} (assigned)" if item.assigned else item.name


def _divided(items: list[MemoryItem], by: str) -> str:
    """Return the largest parts of the peak and the rest; "" where nothing is known of them, or where all is
    in one layer: that is the whole model."""
    named = sorted((i for i in items if not re.fullmatch(_SMALLER, i.name)), key=lambda i: -i.bytes)
    known = [item.bytes for item in named if is_told(item)]
    if not known or (by == "layer" and max(known) >= ONE_LAYER_RATIO * sum(known)):
        return ""
    shown = named[:MOST_PARTS_OF_MEMORY]
    rest = sum(item.bytes for item in items) - sum(item.bytes for item in shown)
    parts = [f"{words.op(words.allocated_by(held(i)), 48)} {words.size(i.bytes)}" for i in shown]
    return ", ".join([*parts, f"others {words.size(rest)}"] if rest else parts)


def peak(document: Report) -> tuple[int, str] | None:
    """Return the most that was held, and to what it refers: "" for all steps after warm-up, by the
    records; else since the process began, by the allocator's own count in the trace, with that of the
    profiler window."""
    if (recorded := recorded_peak(document)) is not None:
        return recorded, ""
    if (account := document.memory) is None:
        return None
    mine = account.main_allocator
    on_host = " on the host" if mine is not None and mine.where == "host" else ""
    window, life = account.peak_bytes, (mine.lifetime_peak_bytes or 0) if mine else 0
    if life <= window:
        return window, f"{on_host} in the window"
    return life, f"{on_host} since the process began, {words.size(window)} in the window"


def _beside_the_peak(account: MemoryAccount) -> str:
    """Return what the allocator held before the window, where that was more, and what it could hold."""
    mine = account.main_allocator
    if mine is None:
        return ""
    most, said = mine.peak_bytes, " in the window"
    if (life := mine.lifetime_peak_bytes) is not None and life >= most:
        said += (
            f", {words.size(life)} since the process began" if life > most else " and since the process began"
        )
        most = life
    if capacity := mine.capacity_bytes:
        said += f"; {words.percent(most / capacity)} of the {words.size(capacity)} that it may take"
    return said
