"""The report on one screen: 25 lines of 80 columns; `text` has all of it (`-v`).

Which run, the answer, four figures, the causes as bars, the first remedies, warnings, how much is not
shown, what to run next. Nothing is cut in the middle: what does not fit is left out as a whole and counted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from mpprof.analysis.steps.stalls import BEGINS
from mpprof.diagnosis.rules import (
    mp201_endless_skips,
    mp202_loss_scale_underflow,
    mp203_loss_scale_runaway,
    mp205_periodic_skips,
    mp705_exposed_communication,
    mp913_ended_by_error,
)
from mpprof.errors import with_file_name
from mpprof.model.account import tells
from mpprof.model.answer import Answer
from mpprof.model.device import short_name
from mpprof.model.finding import Finding
from mpprof.model.frozen import frozen
from mpprof.model.report import Report
from mpprof.model.run import BROKEN_OFF
from mpprof.model.run_time import RECORDING_ENDED
from mpprof.report import content, units, words
from mpprof.report import without_finding as limited
from mpprof.report.terminal import Lines, wrapped

WIDTH, HEIGHT = 80, 25
MOST_FIRST, LEAST_FIRST = 7, 5
"""Lines of the run and its answer."""
MOST_BARS, LEAST_BARS, MOST_CAUSES, MOST_REMEDIES = 7, 4, 4, 3
LINES_OF_REMEDY = LINES_OF_WARNINGS = 2
_SHORTER = (
    (MOST_REMEDIES, True, MOST_FIRST), (2, True, MOST_FIRST), (2, True, LEAST_FIRST),
    (MOST_REMEDIES, False, MOST_FIRST), (2, False, MOST_FIRST), (1, False, MOST_FIRST),
)  # fmt: skip
"""What there is room for: so many remedies, why no more is to be gained, so many lines of run and answer."""
_ENDED_BY_ERROR = mp913_ended_by_error.CODE
_OF_SCALE = {
    mp201_endless_skips.CODE,
    mp202_loss_scale_underflow.CODE,
    mp203_loss_scale_runaway.CODE,
    mp205_periodic_skips.CODE,
}
"""Causes that the loss scale shows."""
_OF_COMMUNICATION = mp705_exposed_communication.CODE[:3]
"""With it begins the code of every cause in communication."""
MOST_CODES = 3
"""Causes without a bar of their own that are named."""
MUCH_RATIO = 0.10
_NEARLY = 0.995
_LONG_BAR, _SHORT_BAR = 28, 8


@frozen
class Bar:
    """A length of time in a chart. `part` bars are parts of the first one, `note` is what stands behind."""

    label: str
    ns: float
    note: str = ""
    part: bool = False


def render(
    document: Report,
    *,
    color: bool = False,
    width: int = WIDTH,
    ascii_only: bool = False,
    path: str | None = None,
    again: str | None = None,
) -> str:
    """Return the report (`report.json.document`) on one screen: as many remedies as have room.

    `path` for the commands that are suggested at the end, `again` for the one that shows the rest."""
    last = [*([(again, "all of it")] if again else []), *_one_step_on(document, path)]
    for most, floor, first in _SHORTER:
        out = Lines(color=color, width=width, time=document.time)
        _report(out, document, most, first, floor=floor)
        commands(out, last)
        if len(out.lines) <= HEIGHT:
            break
    return out.text(ascii_only=ascii_only)


def _report(out: Lines, document: Report, most: int, first: int, *, floor: bool) -> None:
    """Write the report with this many remedies and `first` lines at most, and with why there is no more to
    gain."""
    out.paragraph(_identity(document, out.width), hang=2, style="dim")
    answer = document.answer
    for said in filter(None, (content.head(answer), answer.sentence)):
        out.paragraph(said, style="bold")
    out.paragraph(_because(answer, out, first))
    out.row("")
    for line in figures(document, out.width):
        out.row(line)
    out.row("")
    taken = sum(1 for line in out.lines if line)
    _chart(out, bars(document, max(LEAST_BARS, MOST_BARS - max(0, taken - 4))))
    if floor and answer.floor:
        out.paragraph(f"{words.NO_MORE}{answer.floor}", hang=2)
    _what_to_change(out, document, most)
    blank(out)
    out.paragraph(rest(document, warn(out, _warnings(document)), most))


# --- identity, verdict, figures ----------------------------------------------------------------------------


def _identity(document: Report, width: int) -> str:
    """Return the run's name and what it is, in one line; where the width does not suffice, what tells least
    is left out."""
    run = document.run
    device = run.device
    short = short_name(device.replace("(by its figures, not its name)", "(inferred)")) if device else None
    batch = f"batch {words.count(run.batch_size)}" if run.batch_size is not None else None
    compiled = words.compiled(run.backend, run.jit_compile)
    precision = [fact for fact in (run.policy, words.computes(document)) if fact]
    candidates = [
        (*precision, run.backend, device, compiled, batch),
        (*precision, device, compiled, batch),
        (*precision, short, compiled, batch),
        (*precision, short, compiled if isinstance(run.jit_compile, bool) else batch),
        (*precision, short, batch),
        (*precision, short),
    ]
    texts = [", ".join(str(fact) for fact in facts if fact) for facts in candidates]
    return fitting([f"{run.name}: {text or 'nothing recorded about it'}" for text in texts], width, 1)


def _because(answer: Answer, out: Lines, most: int) -> str:
    """Return as many of the sentences behind the answer's as the first lines have room for."""
    texts = [" ".join(answer.because[:kept]) for kept in range(len(answer.because), -1, -1)]
    room = most - len(out.lines)
    return next(text for text in texts if not text or len(wrapped(text, out.width)) <= room)


def fitting(candidates: Sequence[str], width: int, lines: int) -> str:
    """Return the first text that takes at most this many lines, else the last."""
    return next((text for text in candidates if len(wrapped(text, width)) <= lines), candidates[-1])


def figures(document: Report, width: int) -> list[str]:
    """Return step time, share of matrix time on matrix units, skipped updates and peak memory: one line, more
    only where they need a qualification."""
    facts, log = document.facts, document.steps
    if facts.step_ns is not None:
        first = f"{units.one(document.time)} {words.duration(facts.step_ns)}{content.mean_of(document.time)}"
    elif document.window is not None:
        first = f"window {words.duration(document.window.span_ns)}"
    else:
        first = "step unknown"
    skipped = log.skipped_ratio if log else None
    peak = content.peak(document)
    parts = [first, _share(document)]
    wanted = skipped is not None or (content.skips_arise(document) and not content.on_cpu(document))
    if wanted and skipped is None and peak is None:
        parts.append("skipped steps and peak memory unknown")
    else:
        of_scale = bool(_OF_SCALE & {cause.code for cause in facts.causes})
        of = " of all updates" if of_scale else ""  # such a cause states a share of those after the start
        if wanted:
            parts.append(
                "skipped steps unknown" if skipped is None else f"skipped {words.percent(skipped)}{of}"
            )
        if of_scale:
            parts += [f"loss scale {scale}" for scale in [content.loss_scale(log)] if scale]
        parts.append("peak memory unknown" if peak is None else f"peak {words.size(peak[0])}{peak[1]}")
    return wrapped(units.worded(", ".join(parts), document.time), width, hang=2)


def _share(document: Report) -> str:
    share, units = document.tensor_core, content.matrix_units(document)
    if content.on_cpu(document):
        return "no accelerator in the trace"
    if share is not None and share.ratio is None and not share.matmul_ns_per_step:
        return "no matrix work seen"
    if share is None or share.ratio is None:
        return f"share on {units} unknown"
    ordered = sorted(share.by_precision.items(), key=lambda item: -item[1])
    used = [words.type_name(name) for name, ns in ordered if ns]
    qualified = [", ".join(used)] if used else []
    if share.unknown_ratio:
        qualified.append(f"{words.percent(share.unknown_ratio)} of all work unknown")
    said = f"{units} {words.percent(share.ratio)} of matmul"
    return f"{said} ({'; '.join(qualified)})" if qualified else said


# --- bars --------------------------------------------------------------------------------------------------


def bars(document: Report, most: int) -> list[Bar]:
    """Return the step with the causes that could shorten it; with none, the step with its largest classes.
    The first bar is the whole; empty where neither is known."""
    found = cause_bars(document, most) or _class_bars(document, most)
    return [replace(bar, label=units.worded(bar.label, document.time)) for bar in found]


def cause_bars(document: Report, most: int) -> list[Bar]:
    """Return this run's step, what each cause's remedy gains of it, what no cause explains, the step after
    all remedies."""
    facts, step = document.facts, content.step_ns(document)
    if not step:
        return []
    findings = {found.code: found for found in document.findings}
    gaining = [
        (findings[cause.code], gain)
        for cause in facts.causes
        if (gain := cause.gain_ns_per_step or 0.0) >= content.PAYING_RATIO * step
    ]
    if not gaining:
        return []
    one = content.one_step(document)
    at_most = "up to " if one else ""
    tail = _after_causes(document, step, one=one)
    room = min(MOST_CAUSES, most - 1 - len(tail))
    kept = gaining if len(gaining) <= max(2, room) else gaining[: max(1, room - 1)]
    rows = [
        Bar(cause_label(found), gain, f"{at_most}{words.percent(gain / step):>6}", part=True)
        for found, gain in kept
    ]
    if left := gaining[len(kept) :]:
        ns = sum(gain for _, gain in left)
        rows.append(
            Bar(
                _smaller(left),
                ns,
                f"{at_most}{words.percent(ns / step):>6}",
                part=True,
            )
        )
    whole = "this run (one profiled step)" if one else "this run's step"
    return [Bar(whole, step), *rows, *tail]


def _smaller(left: Sequence[tuple[Finding, float]]) -> str:
    """Return the label of causes that share a row; each code with its gain where there is room."""
    if len(left) > MOST_CODES:
        return f"{len(left)} smaller ones"
    room = len(left) < MOST_CODES
    return ", ".join(f"{found.code} {words.duration(gain)}" if room else found.code for found, gain in left)


def _after_causes(document: Report, step: float, *, one: bool) -> list[Bar]:
    facts = document.facts
    rows = _exposed_communication(document, step)
    unexplained = None if facts.unlike else facts.unexplained_ns
    if unexplained is not None and unexplained > content.SMALL_RATIO * step:
        rows.append(Bar("not explained", unexplained, f"{words.percent(unexplained / step):>6}", part=True))
    base = None if facts.unlike else facts.baseline_step_ns
    if base and content.changes_type(document):
        rows.append(Bar(f"{content.baseline_words(document)}, measured", base))
    switched = _in_16_bits(document, step)
    if (after := facts.after_remedies_ns) is not None and not one:
        over = content.speedup_after(document, after)
        faster = over is not None and over >= 1  # what stays slower than the baseline is no target
        times = [f"{words.speedup(over)} over {content.baseline_words(document)}"] if over and faster else []
        limit = ["then the host limits"] if facts.limited_by == "host" else []
        plan = document.whatif
        surfacing = plan.surfacing if plan and not times else []  # there is room for one note
        limit += [
            f"then {each.code} gains {words.duration(each.gain_ns)}"
            for each in surfacing[:1]
            if each.gain_ns >= content.SURFACING_RATIO * after
        ]
        off = bool(document.speedup and document.speedup.how_to_switch)
        which = "remedied, in float32" if off else "all remedied, about"
        rows.append(Bar(which, after, "; ".join([*times, *limit])))
    return [*rows, *switched]


def _exposed_communication(document: Report, step: float) -> list[Bar]:
    """Return communication that no other work hides, where it is much and no finding is about it: one
    device's trace does not show how much of it is waiting for others."""
    if not document.time or any(found.code.startswith(_OF_COMMUNICATION) for found in document.findings):
        return []
    ns = sum(part.ns_per_step for part in document.time.slices if part.category == "comm")
    if ns < MUCH_RATIO * step:
        return []
    return [Bar("no finding: communication", ns, f"{words.percent(ns / step):>6}  exposed", part=True)]


def _in_16_bits(document: Report, step: float) -> list[Bar]:
    """Return what mixed precision without the remedies may make of a float32 run's step, where it may pay."""
    gain = document.speedup
    could = gain.attainable_range if gain and gain.how_to_switch else None
    if not could or not tells(could) or document.answer.kind != "float32":
        return []
    return [Bar("in 16 bits alone", step / could.high, f"estimated, up to {words.speedup(could.high)}")]


def cause_label(found: Finding) -> str:
    """Return a cause by code and slug, with its layers as far as whole names fit."""
    name = f"{found.code} {found.slug}{' (dismissed)' if found.dismissed is not None else ''}"
    layers = [words.plain(layer) for layer in found.layers]
    for shown in range(len(layers), 0, -1):
        more = f" and {len(layers) - shown} more" if shown < len(layers) else ""
        label = f"{name}: {', '.join(layers[:shown])}{more}"
        if len(label) <= 44:
            return label
    return f"{name}: {words.plural(len(layers), 'layer')}" if layers else name


def _class_bars(document: Report, most: int) -> list[Bar]:
    """Return the largest classes of the step, or of the whole window."""
    if time := document.time:
        rows, whole = content.time_rows(time), content.time_whole(time)
        steps = words.plural(time.window_steps, "profiled step")
        on = "a CPU" if time.basis == "host" else words.plain(time.device)
        first = Bar(
            "a profiled step" if time.unlike is not None else "this run's step",
            whole,
            f"shares {content.shares_of(time)}from {steps} on {on}",
        )
    elif document.window is not None:
        found = document.window
        rows, whole = content.window_rows(found), found.span_ns
        first = Bar("the whole window", whole, "not divided into steps")
    else:
        return []
    classes = sorted((row for row in rows if not row.part), key=lambda row: -abs(row.ns))
    kept = classes if len(classes) < most else classes[: most - 2]
    shown = [
        Bar(row.label, row.ns, _with_text(row, rows), part=True) for row in kept if row.label[0].isalpha()
    ]
    ns = sum(row.ns for row in classes if row.label not in {bar.label for bar in shown})
    if len(shown) < len(classes):
        shown.append(Bar("smaller ones", ns, f"{words.percent(ns / whole if whole else 0.0):>6}", part=True))
    return [first, *shown]


def _with_text(row: content.TimeRow, rows: Sequence[content.TimeRow]) -> str:
    """Return the row's share and text; for idle time the known cause of most of it."""
    text = row.text
    if row.label.startswith("idle"):
        for part in rows[rows.index(row) + 1 :]:
            if not part.part:
                break
            if part.label != content.NOT_IN_THE_TRACE and part.ns >= content.MOSTLY_RATIO * row.ns:
                whole = part.ns >= _NEARLY * row.ns
                text = part.label if whole else f"mostly {part.label}"
    return f"{row.share:>6}  {text}".rstrip()


def _chart(out: Lines, rows: Sequence[Bar]) -> None:
    """Write one line for each bar: label, time, bar, note. Notes that do not fit beside the longest bar are
    left out."""
    if not rows:
        return
    column = words.column(max(abs(row.ns) for row in rows))
    label = max(len(row.label) + 2 * row.part for row in rows)
    ns = max(len(column(row.ns)) for row in rows)
    room = out.width - label - ns - 2
    notes = max((len(row.note) for row in rows if row.part), default=0)
    longest = max(_SHORT_BAR, min(_LONG_BAR, room - notes - 2))
    scale = max(abs(row.ns) for row in rows) or 1.0
    for row in rows:
        name = f"{'  ' * row.part}{row.label}"
        bar = words.bar(max(0.0, row.ns) / scale, longest)
        line = f"{name:<{label}} {column(row.ns):>{ns}} {bar}"
        for behind in (" " * (longest - len(bar) + 1), " "):
            if row.note and len(line) + len(behind) + len(row.note) <= out.width:
                line += behind + row.note
                break
        out.row(line)


# --- remedies, warnings, the rest --------------------------------------------------------------------------


def blank(out: Lines) -> None:
    """Add an empty line, unless the last one is empty."""
    if out.lines and out.lines[-1]:
        out.row("")


def _what_to_change(out: Lines, document: Report, most: int) -> None:
    """Write what the answer says to do first, then the other remedies by rank; for a float32 run that 16 bits
    may make faster, how to switch them on, too."""
    answer, gain, stays = document.answer, document.speedup, content.changes_type(document)
    codes = [code for code in content.to_change(document) if not _is_first(document, code)]
    entries = [(f"{code}{', in 16 bits' if stays else ''}: ", code) for code in codes]
    if gain and (how := gain.how_to_switch) and how[0].text != answer.do:
        entries.insert(max(0, most - 2), (f"Mixed precision: {how[0].text}", ""))
    if answer.do:
        entries.insert(0, (_first(document), ""))
    numbered(out, entries[:most], document.findings)


def _is_first(document: Report, code: str) -> bool:
    """Return whether the remedy of this cause is what the answer says to do. Where nothing leads the answer
    has no code."""
    answer, found = document.answer, content.finding(document, code)
    texts = [remedy.text for remedy in found.remedies] if found and answer.do else []
    return code == answer.code or any(answer.do.startswith(text) for text in texts)


def _first(document: Report) -> str:
    """Return what to do first, with the code of its cause and how many more remedies that has."""
    answer = document.answer
    found = content.finding(document, answer.code) if answer.code else None
    more = len(found.remedies) - 1 if found else 0
    said = f"{answer.code}: {answer.do}" if found else answer.do
    return f"{said} (and {more} more with -v)" if more > 0 else said


def numbered(out: Lines, entries: Sequence[tuple[str, str]], findings: Iterable[Finding]) -> None:
    """Write the first lines of what to do, each with its head and the code of its finding; without a code the
    head is all of it."""
    by_code = {found.code: found for found in findings}
    if entries:
        blank(out)
    for number, (head, code) in enumerate(entries[:MOST_REMEDIES], 1):
        start = f"{number}. {head}"
        if code:
            lines = remedy_lines(by_code[code], out.width, start)
        else:
            lines = wrapped(start, out.width, hang=3)
            lines = _before_code(lines, out.width) if len(lines) == LINES_OF_REMEDY else lines
        for line in lines:
            out.row(line)


def remedy_lines(found: Finding, width: int, head: str) -> list[str]:
    """Return the remedy in two lines: whole clauses of it, and how many more there are."""
    clauses = found.remedy.split("; ")
    texts = []
    for kept in range(len(clauses), 0, -1):
        left = len(clauses) - kept
        more = f" (and {left} more with -v)" if left else ""
        texts.append(f"{head}{'; '.join(clauses[:kept])}{more}")
    texts.append(f"{head}{found.title}; what to do: mpprof explain {found.code}")
    lines = wrapped(fitting(texts, width - 3, LINES_OF_REMEDY), width, hang=3)
    return _before_code(lines, width) if len(lines) == LINES_OF_REMEDY else lines


def _before_code(lines: list[str], width: int) -> list[str]:
    """Return the same two lines, broken after the last colon where both halves fit: what follows is code to
    copy."""
    what, _, code = f"{lines[0]} {lines[1].strip()}".rpartition(": ")
    fits = len(what) < width and len(code) + 3 <= width and len(what) > len("1. MP402")
    return [f"{what}:", f"   {code}"] if fits else lines


def _warnings(document: Report) -> list[str]:
    time, why = document.time, document.absent.get("time")
    doubt = content.time_doubt(time) if time else None
    if document.time is None and document.window is None and why:
        doubt = with_file_name(why)
        told = doubt.casefold() in document.answer.sentence.casefold()
        doubt = None if told else f"where the step goes is not known: {doubt}"
    failed = content.out_of_memory(document)
    ended = [f"training ran out of memory: {failed[0]}; mpprof memory says what to try"] if failed else []
    if not ended and (stopped := content.finding(document, _ENDED_BY_ERROR)) is not None:
        ended = [stopped.summary]
    ended += [said for said in document.warnings if said.startswith((BROKEN_OFF, RECORDING_ENDED))]
    stalled = [said for said in document.warnings if said.startswith(BEGINS)]
    said = [*ended, *stalled, *([doubt] if doubt else []), *content.warnings(document)]
    return list(dict.fromkeys(said))


def warn(out: Lines, warnings: Sequence[str]) -> int:
    """Write the first warnings, as many as two lines hold whole; return how many are left."""
    used = shown = 0
    for warning in warnings:
        lines = wrapped(f"! {_first_clauses(warning, out.width)}", out.width, hang=2)
        if used + len(lines) > LINES_OF_WARNINGS:
            break
        for line in lines:
            out.row(line, "warning")
        used, shown = used + len(lines), shown + 1
    return len(warnings) - shown


def _first_clauses(text: str, width: int) -> str:
    """Return as many clauses of a warning as two lines hold; where not even one fits, the text is cut after a
    word."""
    for separator in ("; ", ": "):
        clauses = text.split(separator)
        for kept in range(len(clauses), 0, -1):
            said = separator.join(clauses[:kept])
            if len(wrapped(f"! {said}", width, hang=2)) <= LINES_OF_WARNINGS:
                if separator == ": " and len(said) < width:  # what follows may be what matters
                    break
                return said
    lines = wrapped(f"! {text}", width - 4, hang=2)[:LINES_OF_WARNINGS]
    return f"{' '.join(line.strip() for line in lines)[2:]} …"


def rest(document: Report, warnings_left: int, remedies: int = MOST_REMEDIES) -> str:
    """Return how much is not shown, by kind, if this many remedies are."""
    codes = {cause.code for cause in document.facts.causes}
    notes = sum(found.code not in codes for found in document.findings)
    shown = content.to_change(document)[:remedies]
    return counted(
        [
            (len(codes.difference(shown)), "cause"),
            (notes, "note"),
            (warnings_left, "warning"),
        ],
        [
            (len(limited.open_ones(document)), "not judged"),
            (len(document.not_applicable), "not applicable"),
            (len(document.clear), "clear"),
        ],
    )


def counted(things: Sequence[tuple[int, str]], states: Sequence[tuple[int, str]]) -> str:
    said = [words.plural(number, thing) for number, thing in things if number]
    said += [f"{number} {state}" for number, state in states if number]
    return f"More: {', '.join(said)}." if said else "There is no more to it."


def _one_step_on(document: Report, path: str | None) -> list[tuple[str, str]]:
    """Return the manual page of the first cause; without a first cause, the step that would tell more."""
    steps = content.next_steps(document, path)
    if document.facts.causes or content.ran_out_of_memory(document):
        return steps[:1]
    more = [step for step in steps if not step[0].startswith("mpprof explain")]
    return (more[:1] if content.on_cpu(document) else more[-1:]) or steps[:1]


def commands(out: Lines, steps: Iterable[tuple[str, str]]) -> None:
    """Write commands, never broken, because they are there to be copied; each with what it does where the
    width suffices."""
    for command, why in steps:
        fits = len(command) + len(why) + 3 <= out.width
        out.row(f"{command}   {out.paint(why, 'dim')}" if fits else command)
