"""What was looked at and is not there, what does not apply, and what is not known: in words, by reason."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mpprof.diagnosis.outcomes import NOT_NVIDIA
from mpprof.diagnosis.rules import ALL, mp303_batch_not_raised, mp906_unlike_runs, mp910_no_window
from mpprof.model.finding import Unable
from mpprof.model.report import Report

MOST_NAMES = 6
"""So many causes are named for one reason; the JSON report holds them all."""
RECORDERS = ("MPProfilerCallback(", "StepRecorder(")
COMPARED, NO_WINDOW = mp906_unlike_runs.CODE, mp910_no_window.CODE
"""Advice to record what is missing: a run to compare with, as the lines on the speedup say, or a profile
window."""
LARGER_BATCH = mp303_batch_not_raised.CODE
ONLY_A_TRACE = "the trace does not show it, and there are no records of mpprof"
FIELD_WORDS = {
    "run": "the run's own records",
    "run.policy": "the dtype policy",
    "run.backend": "the backend",
    "run.device": "the device",
    "run.jit_compile": "whether XLA compiles the model",
    "run.batch_size": "the batch size",
    "run.compute_dtype": "the compute dtype",
    "run.deterministic_ops": "whether ops are deterministic",
    "run.tf32_enabled": "whether TF32 is on",
    "deterministic_ops": "whether ops are deterministic",
    "tf32_enabled": "whether TF32 is on",
    "batch_size": "the batch size",
    "run_time": "the parts of the run's wall time",
    "run_time.setup": "the time before the first hook",
    "run_time.input": "the wait for input, of the run's time",
    "run_time.callbacks": "the callbacks' own time",
    "run_time.compile": "the time of compiling",
    "run_time.profiler": "the profiler's own time",
    "run_time.loop": "the loop's own time",
    "steps": "the step log",
    "steps.examples_per_s": "examples per second",
    "steps.interval_ns": "the interval of the median step",
    "steps.mean_interval_ns": "the interval of the step time",
    "steps.loss_scale": "the loss scale",
    "steps.mean_ns": "the step time",
    "steps.median_ns": "the median step",
    "steps.p95_ns": "the step time at p95",
    "steps.peak_memory_bytes": "the peak memory",
    "steps.skipped": "skipped steps",
    "steps.skipped_ratio": "skipped steps",
    "steps.first_steady": "the end of warm-up",
    "steps.steps_per_epoch": "steps per epoch",
    "steps.gpu_hours_per_epoch": "GPU-hours per epoch",
    "memory": "memory",
    "memory.reset": "the peak after warm-up",
    "memory.driver": "the saving by the driver's figures",
    "memory.expected_saving_bytes": "the saving to expect",
    "memory.reachable_bytes": "the attainable saving",
    "memory.saved_bytes": "the memory saved",
    "memory.unexplained_bytes": "what was not saved and is not explained",
    "tensor_core": "the share on matrix units",
    "tensor_core.ratio": "the share on matrix units",
    "speedup": "the speedup",
    "speedup.observed": "the observed speedup",
    "speedup.interval": "the interval of the speedup",
    "speedup.profiled": "the speedup of the profiled steps",
    "speedup.expected": "what the device allows",
    "speedup.expected_with_host": "what the device and the host allow",
    "speedup.attainable": "the attainable speedup",
    "speedup.estimated": "the estimated speedup",
    "speedup.ceiling": "the ceiling of the speedup",
    "speedup.baseline_id": "the baseline",
    "speedup.baseline_dtype": "the baseline's compute type",
    "speedup.baseline_step_ns": "the baseline's step time",
    "speedup.reach_ns": "the attainable step time",
    "speedup.gap_ns": "how far the step is from it",
    "speedup.above_attainable_ns": "how far the step is from it",
    "speedup.lost_ns": "what parts of the step lose",
    "speedup.gained_ns": "what parts of the step gain",
    "speedup.unexplained_ns": "what no finding explains",
    "whatif": "the step after the remedies",
    "cause": "the first cause",
    "answer.code": "what leads",
    "account.basis": "what the account rests on",
    "graph_rewrite": "the graph rewrite",
    "distribution": "the distribution strategy",
    "out_of_memory.op": "the op that ran out of memory",
    "out_of_memory.parts": "what filled the memory",
    "out_of_memory.listed_bytes": "all that the error lists",
    "out_of_memory.refused_bytes": "how much was refused",
    "out_of_memory.words": "the error's own words",
    "bounds": "what the records alone prove",
    "time": "where the step's time goes",
    "time.wall_ns": "the step time outside the profiler",
    "time.idle_between_steps_ns": "the time between two steps",
    "time.between_steps": "what runs between two steps",
    "time.function_ns": "the training function's own time",
    "trace.hlo": "compiled programs",
    "trace.clock": "the card's clock and bandwidth",
    "trace.layers": "layers",
    "trace.markers": "step markers",
    "trace.shapes": "shapes and types of an op's inputs",
    "trace.facts": "the card's figures",
    "trace.device": "a device",
    "trace.kernels": "kernels",
    "trace.ops": "ops of the kernels",
    "trace.allocations": "allocator events",
    "skipped": "skipped steps",
    "update.skipped": "skipped steps",
    "loss": "the loss",
    "loss_scale": "the loss scale",
    "input_wait_ns": "waits for input, in the step log",
    "profile_windows": "the profiler window",
    "hardware": "hardware samples",
    "hardware.gpu": "the GPU's load",
    "hardware.cpu": "the CPU's load",
    "model": "the model",
    "model.layers": "the model's layers",
    "model.earlier": "an earlier model",
    "graph_rewrite_result": "what the graph rewrite converted",
    "non_finite_weights": "weights that are not finite",
    "nested_fit": "a fit inside this one",
    "signal": "profiling on a signal",
}
"""What a field of the report or of run.json is called."""


def listed(codes: Sequence[str]) -> str:
    """Return what these causes are about: "waits for input, casts and 3 more"."""
    names = list(map(about, codes))
    more = len(names) - MOST_NAMES
    if more > 1:
        return f"{', '.join(names[:MOST_NAMES])} and {more} more"
    return ", ".join(names)


def about(code: str) -> str:
    """Return what a cause is about, in a few words; its code, of one that this version does not know."""
    return next((rule.ABOUT for rule in ALL if code == rule.CODE), code)


def clear(document: Report) -> str:
    """Return what was looked at and is not there; empty where nothing is."""
    return ", ".join(map(about, document.clear))


def not_applicable(document: Report) -> list[str]:
    """Return what this run cannot have, a line for each reason; of another vendor's cards nothing is said."""
    pairs = ((each.code, each.reason) for each in document.not_applicable)
    return [f"{listed(codes)}: {reason}" for reason, codes in _grouped(pairs) if reason != NOT_NVIDIA.reason]


def open_ones(document: Report) -> list[Unable]:
    """Return what could not be judged, without what stands where the speedup would."""
    absent = document.absent
    return [
        unable
        for unable in document.unable
        if not (unable.code == COMPARED and _said_of_speedup(unable.reason, absent))
    ]


def not_judged(document: Report) -> list[str]:
    """Return what could not be judged, a line for each reason; that of the missing account stands above.
    What would settle several reasons follows them once."""
    absent = document.absent
    why = absent.get("time") if document.window is not None else None
    by_reason = _grouped(
        (unable.code, "no step can be told apart" if unable.reason == why else unable.reason)
        for unable in open_ones(document)
    )
    lines: list[str] = []
    wanting = [(reason, codes) for reason, codes in by_reason if _wants_records(reason)]
    if "run" in absent and len(wanting) > 1:  # all of them for the same want
        by_reason = [pair for pair in by_reason if pair not in wanting]
        records = [record for reason, _ in wanting if (record := reason.partition("; ")[2])]
        how = next((record for record in records if "model=" in record), (records or [""])[0])
        said = f"{listed([code for _, codes in wanting for code in codes])}: {ONLY_A_TRACE}"
        lines.append(f"{said}; {how}" if how else said)
    by_record: dict[str, list[tuple[str, list[str]]]] = {}
    for reason, codes in by_reason:
        what, _, record = reason.partition("; ")
        by_record.setdefault(record, []).append((what, codes))
    for record, parts in by_record.items():
        said_of = [f"{listed(codes)}: {what}" for what, codes in parts]
        if record and len(said_of) == 1:
            said_of = [f"{said_of[0]}; {record}"]
        elif record:
            said_of.append(f"to judge these: {record}")
        lines += said_of
    return lines


def _wants_records(reason: str) -> bool:
    """Return whether records of mpprof would remove this reason, judged by what it advises or by what was not
    recorded."""
    what, _, record = reason.partition("; ")
    return any(name in record for name in RECORDERS) or (not record and what.endswith("not recorded"))


def _said_of_speedup(reason: str, absent: dict[str, str]) -> bool:
    """Return whether this is the reason that there is no speedup; that reason is printed in place of the
    speedup."""
    what = reason.partition("; ")[0]
    return any(absent.get(field, "").startswith(what) for field in ("speedup", "speedup.observed"))


def not_measured(document: Report) -> list[str]:
    """Return what is absent, a line for each reason; what another line of the report says is left out."""
    told = {"tensor_core", "speedup", "whatif", "cause", "answer.code", "run_time"}
    told |= {"steps"} if document.steps is None else set()
    told |= {"time"} if document.time is None else set()
    if document.steps is None:
        told.add("bounds")  # they rest on the step log
    if "run" in document.absent:  # without records there is no step time of their own
        told.add("time.wall_ns")
    if any(ONLY_A_TRACE in line for line in not_judged(document)):
        told.add("run")
    parts = (
        "tensor_core.",
        "speedup.",
        "memory.",
        "facts.",
        "steps.examples",
        "steps.gpu_hours",
        "steps.steps_per",
        "account.",
        *(("run.",) if "run" in document.absent else ()),
    )
    fields = (
        (field, why)
        for field, why in document.absent.items()
        if field not in told and not field.startswith(parts)
    )
    return [f"{', '.join(map(field_words, names))}: {why}" for why, names in _grouped(fields)]


def absent_by_reason(document: Report) -> list[tuple[str, list[str]]]:
    """Return what is absent as (reason, names of the values), each name once for a reason. What `facts`
    repeats of other sections is left out."""
    fields = ((field, why) for field, why in document.absent.items() if not field.startswith("facts."))
    return [(why, list(dict.fromkeys(map(field_words, names)))) for why, names in _grouped(fields)]


def field_words(field: str) -> str:
    """Return what a field is called, for people: one without a name of its own by its last part."""
    return FIELD_WORDS.get(field) or field.rpartition(".")[2].removesuffix("_ns").replace("_", " ")


def _grouped(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, list[str]]]:
    """Return (name, reason) pairs grouped as reason -> names, in the order of first appearance."""
    groups: dict[str, list[str]] = {}
    for name, reason in pairs:
        groups.setdefault(reason, []).append(name)
    return list(groups.items())
