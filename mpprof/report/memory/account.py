"""`mpprof memory` as text: what held the memory at the peak, what outlives its step, what was saved."""

from __future__ import annotations

from collections.abc import Iterator

from mpprof.model.memory import MemoryAccount, MemoryCause, MemoryComparison, MemoryItem, OutOfMemory, Tensor
from mpprof.model.report import Report
from mpprof.report import words
from mpprof.report.blocks import Block, Heading, Labelled, Notes, Text, number, table, text
from mpprof.report.content import (
    BEFORE,
    BEYOND_THE_GAP,
    did_not_fit,
    drivers_figure,
    finding,
    held,
    is_told,
    live_memory_unknown,
)  # fmt: skip
from mpprof.report.terminal import Lines, wrapped
from mpprof.report.text import laid_out

MOST = 8
_BAR = 12
_OWNERS = 20
"""Fewer columns than that tell nothing of a kind's layers."""


def render(document: Report, *, width: int, most: int = MOST, ascii_only: bool = False) -> str:
    """Return the text of the document's memory section; `most` rows of each list."""
    out = Lines(color=False, width=width)
    return laid_out(of_memory(document, most), out).text(ascii_only=ascii_only)


def of_memory(document: Report, most: int) -> Iterator[Block]:
    """Yield what held the memory at the peak, what outlives its step, what was recorded, what was saved."""
    yield from _head(document)
    yield from _kinds(document)
    yield from _divisions(document, most)
    yield from _tensors(document, most)
    yield from _across(document, most)
    if recorded := _records(document):
        yield Labelled([("Recorded", recorded)], aligned=True)
    if said := saving(document):
        yield Heading(said[0])
        yield Notes([line.removeprefix("  ") for line in said[1:]])


def comparison(document: Report, baseline: str) -> MemoryComparison:
    """Return the report's `memory` against a baseline, with the reasons of what is not known of it."""
    absent = {name: why for name, why in document.absent.items() if name.partition(".")[0] == "memory"}
    unlike = tuple(document.facts.unlike or ())
    return MemoryComparison(document.run.name, baseline, document.memory, unlike, absent)


def _head(document: Report) -> Iterator[Block]:
    memory, unknown = document.memory, live_memory_unknown(document)
    mine = memory.main_allocator if memory else None
    if memory is None or mine is None:
        if memory is not None:
            yield Text(f"Peak {words.size(memory.peak_bytes)}, by the records")
        yield Text(unknown)
        return
    where = words.plain(mine.name) + (" (host memory)" if mine.where == "host" else "")
    capacity = mine.capacity_bytes
    share = f" of {words.size(capacity)} ({words.percent(mine.peak_bytes / capacity)})" if capacity else ""
    yield Heading(f"Peak {words.size(mine.peak_bytes)}{share} on {where}")
    said = []
    if (life := mine.lifetime_peak_bytes) is not None and life > mine.peak_bytes:
        said.append(f"before the trace it held up to {words.size(life)}")
    if rounding := memory.rounding_bytes:
        said.append(f"{words.size(rounding)} more than asked for")
    if (loose := memory.fragmentation_ratio) is not None:
        said.append(f"{words.percent(loose)} of the free memory lies outside its largest block")
    others = [
        f"{words.plain(each.name)} {words.size(each.peak_bytes)}"
        for each in memory.allocators
        if each is not mine
    ]
    if others:
        said.append(f"other allocators: {', '.join(others[:MOST])}")
    yield Notes(said)


def _kinds(document: Report) -> Iterator[Block]:
    memory = document.memory
    items = _of(memory, "kind")
    if memory is None or not items:
        return
    yield Heading("At the peak")
    rows = []
    for item in items:
        ratio = item.bytes / memory.peak_bytes if memory.peak_bytes else 0.0
        rows.append(
            (words.size(item.bytes), words.percent(ratio), words.bar(ratio, _BAR), held(item),
             _owners(memory, item.name))
        )  # fmt: skip
    yield table(
        [number("bytes"), number("share"), text("bar"), text("kind"), text("of")],
        rows, "of", cut=_first_owners, headless=True,
    )  # fmt: skip
    snapshot = [
        f"{told}: {document.absent[key]}." for key, told in _OF_SNAPSHOT.items() if key in document.absent
    ]
    yield Notes([*_by_xla(memory, items), *_older(memory, items, document.absent), *snapshot])


_STATES_FROM = {
    "records": "the recorded model and optimizer",
    "updates": "the gradients that the optimizer's updates free",
    "weight_copies": "the 16-bit copies of the weights",
    "modules": "the weights that the modules' ops were given",
}


def _by_xla(memory: MemoryAccount, items: list[MemoryItem]) -> list[str]:
    """Return what the mark of XLA's assignment means, and why memory that XLA took for a program has none."""
    lines = []
    if any(item.assigned for item in items):
        lines = [
            "Assigned: XLA takes memory for a whole program, and no event states what is in it; this is from "
            "the program's buffer assignment in the trace, when each block is fullest."
        ]
    if why := memory.why_unassigned:
        lines += [f"What XLA took for a program is unknown, too: {why}."]
    return lines


_OF_SNAPSHOT = {
    "trace.history": "When it was live is not known",
    "trace.stacks": "What all of it is for is not known",
}
"""What a memory snapshot of PyTorch may lack, and what is not known without it."""
_MODULES = ("trace.shapes", "trace.layers")
"""What of a PyTorch trace would tell the weights; formats in which nothing else could do not miss them."""


def _older(memory: MemoryAccount, items: list[MemoryItem], absent: dict[str, str]) -> list[str]:
    """Return why no more is known of what was held before the window, and what would show it."""
    rest = BEFORE in (item.name for item in items)
    if basis := memory.states_from:
        told = f"Estimated from {_STATES_FROM[basis]}: allocated before the profiler started"
        return [f"{told}, like the rest, whose owner no event states." if rest else f"{told}."]
    if not rest:
        return []
    said = [
        "Held before the window: the profiler started later, so no event states by whom. For a run that "
        "mpprof's callback recorded, its parameters and optimizer slots are shown apart (estimated)."
    ]
    if why := [absent[key] for key in _MODULES if key in absent]:
        said += [f"The trace does not show the modules' weights: {each}" for each in why]
    return said


def _owners(memory: MemoryAccount, kind: str) -> str:
    """Return the two layers, or else ops, that own most of the kind's large tensors, with their bytes."""
    sums: dict[str, int] = {}
    for tensor in memory.tensors:
        if tensor.kind == kind:
            name = tensor.layer if tensor.layer != "unknown" else tensor.op
            sums[name] = sums.get(name, 0) + tensor.bytes
    ordered = sorted(sums.items(), key=lambda pair: -pair[1])[:2]
    told = [
        f"{words.op(words.plain(name), 40)} {words.size(size)}" for name, size in ordered if name != "unknown"
    ]
    return ", ".join(told)


def _first_owners(told: str, width: int) -> str:
    """Return both owners, or the first alone where they do not fit; nothing where too little of it would be
    left."""
    if len(told) <= width:
        return told
    name, size, unit = told.partition(", ")[0].rsplit(" ", 2)
    return f"{words.op(name, width - len(size) - len(unit) - 2)} {size} {unit}" if width >= _OWNERS else ""


def _divisions(document: Report, most: int) -> Iterator[Block]:
    lines = []
    for by, title in (("dtype", "Types"), ("layer", "Layers")):
        items = _of(document.memory, by)
        if not any(map(is_told, items)):
            continue
        shown = [f"{words.shorten(words.plain(held(i)), 32)} {words.size(i.bytes)}" for i in items[:most]]
        rest = [f"{len(items) - most} more"] if len(items) > most else []
        lines.append((title, [", ".join([*shown, *rest])]))
    if lines:
        yield Labelled(lines, aligned=True)


def _tensors(document: Report, most: int) -> Iterator[Block]:
    memory = document.memory
    tensors = (memory.tensors if memory else [])[:most]
    if not tensors:
        return
    yield Heading("Largest tensors")
    rows = [
        (words.size(t.bytes), _shape(t), life(t, document),
         f"{words.plain(t.op)}{' (assigned)' if t.assigned else ''}")
        for t in tensors
    ]  # fmt: skip
    yield table(
        [number("bytes"), text("type and shape"), number("lives"), text("op")], rows, "op", cut=words.op
    )


def life(tensor: Tensor, document: Report) -> str:
    """Return how long a tensor lived; "" where the trace states no times."""
    if "trace.times" in document.absent:
        return ""
    return "outlives the trace" if tensor.life_ns is None else words.duration(tensor.life_ns)


def _shape(tensor: Tensor) -> str:
    """Return the count, type and shape of a tensor; for an unknown type, the number of blocks."""
    if tensor.dtype == "unknown":
        return words.plural(tensor.count, "block")
    shape = "" if tensor.shape == "unknown" else tensor.shape
    times = f"{tensor.count} x " if tensor.count > 1 else ""
    return words.shorten(words.plain(f"{times}{tensor.dtype} {shape}".strip()), 24)


def _across(document: Report, most: int) -> Iterator[Block]:
    memory = document.memory
    held = memory.across_steps if memory else None
    if held is None:
        return
    if not held:
        yield Text("Nothing that a step allocates outlives the next step")
        return
    yield Heading("Allocated in one step and live after the next")
    rows = [
        (
            words.size(each.bytes),
            f"{words.plural(each.count, 'block')} of {words.op(words.plain(each.op), 60)}",
        )
        for each in held[:most]
    ]
    yield table([number("bytes"), text("what")], rows, "what", headless=True)


def _records(document: Report) -> list[str]:
    steps = document.steps
    memory = steps.memory if steps else None
    if not memory:
        return []
    lines = []
    if (peak := memory.peak_bytes) is not None:
        said = f"peak {words.size(peak)}"
        if (steady := memory.steady_peak_bytes) is not None and steady < peak:
            said += f", after warm-up {words.size(steady)}"
        first, last = memory.first_live_bytes, memory.last_live_bytes
        if first is not None and last is not None:
            said += f"; live between steps {words.size(first)} at first, {words.size(last)} at the end"
        lines.append(said)
    if (driver := memory.driver_bytes) is not None:
        more = ""
        if peak is not None and driver > 1.25 * peak:
            more = ", taken in advance by the framework and counted whether used or not"
        lines.append(f"the driver shows {words.size(driver)} in use{more}")
    if (host := memory.host_bytes) is not None:
        lines.append(f"host memory of the process: up to {words.size(host)}")
    return lines


def saving(document: Report) -> list[str]:
    """Return what was saved against the baseline, what could have been saved, and where the rest is; empty
    without a baseline."""
    memory = document.memory
    if memory is None:
        return []
    if unlike := document.facts.unlike:
        differences = [f"  {words.plain(each)}" for each in unlike]
        return ["What was saved is not known: the baseline differs in more than its precision", *differences]
    if memory.saved_bytes is None:
        return []
    told = drivers_figure(memory)
    lines = _saving(document, memory, memory.saved_bytes)
    if beside := memory.beside_gap:
        lines += [
            "Beside that, memory that the run does not use",
            *(_cause(part, document) for part in beside),
        ]
    return [*lines, f"{told[0].upper()}{told[1:]}"] if told else lines


def _saving(document: Report, memory: MemoryAccount, saved: int) -> list[str]:
    expected = memory.expected_saving_bytes
    line = (
        f"Saved against the baseline {words.size(saved)}"
        if saved >= 0
        else f"{words.size(-saved)} more than the baseline"
    )
    if expected is None:
        why = document.absent.get("memory.expected_saving_bytes")
        return [line, *([f"  what could have been saved is not known: {why}"] if why else [])]
    more = saved > max(0, expected)
    said = (
        f"more than the {words.size(expected)} expected of 16 bits"
        if more
        else f"of {words.size(expected)} that 16 bits could save"
    )
    lines = [f"{line}, {said}"]
    lines += [_cause(part, document) for part in memory.gap]
    unexplained = memory.unexplained_bytes
    if unexplained:
        rest = (
            "unexplained"
            if unexplained > 0
            else f"the causes together are more than the gap: {_beyond(memory)}"
        )
        lines.append(f"  {_signed(unexplained):>10}  {rest}")
    return lines


def _beyond(memory: MemoryAccount) -> str:
    """Return why the causes together may be more than the gap: what else shrank, where that is known."""
    shrank = [f"{part.kind} by {words.size(part.bytes)}" for part in memory.shrank]
    return f"other memory shrank, too ({', '.join(shrank)})" if shrank else BEYOND_THE_GAP


def _cause(part: MemoryCause, document: Report) -> str:
    """Return the bytes and the code, with the title of the finding of that code and its first remedy."""
    line = f"  {_signed(part.bytes):>10}  {part.code}"
    found = finding(document, part.code)
    if found is None:
        return f"{line}  (mpprof explain {part.code})"
    remedies = found.remedies
    return f"{line}  {found.title}" + (f": {words.plain(remedies[0].text)}" if remedies else "")


def _signed(value: int) -> str:
    return words.size(value) if value >= 0 else f"-{words.size(-value)}"


def _of(memory: MemoryAccount | None, by: str) -> list[MemoryItem]:
    items = [item for item in memory.at_peak if item.by == by] if memory else []
    return sorted(items, key=lambda item: -item.bytes)


def render_error(found: OutOfMemory, *, width: int, ascii_only: bool = False) -> str:
    """Return what an out-of-memory error says, and what to try, the likeliest first."""
    where = f" on {words.plain(found.device)}" if found.device else ""
    by = f" by {words.op(words.plain(found.op), 60)}" if found.op else ""
    head = [did_not_fit(found.asked_bytes, found.words) + where + (f", asked for{by}" if by else "")]
    facts = (
        ("memory to give out", found.limit_bytes),
        ("in use", found.used_bytes),
        ("held and not in use", found.loose_bytes),
        ("held by other processes", found.others_bytes),
        ("free on the card", found.free_bytes),
        ("the least that the driver refused", found.refused_bytes),
        *(found.parts or {}).items(),
    )
    head += [f"  {words.size(value):>9}  {name}" for name, value in facts if value is not None]
    filled = []
    for each in found.filled:
        kind = " ".join(part for part in (each.dtype, each.shape) if part)
        count = f"{each.count:,} x " if each.count > 1 else ""
        line = f"  {words.size(each.bytes):>9}  {count}{kind}".rstrip()
        filled.append(f"{line}  {words.shorten(words.plain(each.name), max(24, width - len(line) - 2))}")
    todo = []
    for step in found.advice:
        todo += wrapped(step.text, width, indent=2)
        todo += [f"      {line}" for line in step.snippet.splitlines()]
    of = f", of {words.size(found.listed_bytes)} in all" if found.listed_bytes else ""
    parts = [
        head,
        [f"The largest that it lists{of}", *filled] if filled else [],
        ["What to try", *todo] if todo else [],
    ]
    text = "\n\n".join("\n".join(lines) for lines in parts if lines) + "\n"
    return words.ascii_only(text) if ascii_only else text
