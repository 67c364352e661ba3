"""The flow of time: the float32 run and this run as bars of classes on one scale, joined by bands; below
them, hatched, what precision alone would make of it, and what the changes would.

`flow_of` takes the report's facts and `draw` makes SVG of them. Every length is a figure of the report; a
colour shows where the work ran."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import TYPE_CHECKING

from mpprof.model.account import SHOWN_AS, tells
from mpprof.report import units, words
from mpprof.report.content import (
    SMALL_RATIO,
    Parts,
    baseline_after,
    baseline_words,
    changes_type,
    left_after,
    lost_per_update,
    parts_of,
    paying,
    positive,
    time_slices,
    time_whole,
)
from mpprof_dashboards import theme
from mpprof_dashboards.drawings import svg

if TYPE_CHECKING:
    from mpprof.model.report import Report, Time

_LEAST_RATIO = 0.0008
"""Of the longest bar: less than a pixel of a wide page is drawn with its neighbour's."""
_SAID_RATIO = 0.015
"""Of the longest bar: a band whose class changed by less is not labelled, unless it is wide itself."""
_WIDE_RATIO = 0.08
_TOLD_WAITS = 0.05
"""Of the attainable step: waits that it keeps and that are less need no word."""
_NEARLY_RATIO = 0.1
"""Of a change of all waits: what one of them leaves of it where it alone is named."""


@dataclass(frozen=True, slots=True)
class Segment:
    """A stretch of a bar. `kind` is what it is spent on: a key of `theme.FLOW_COLOURS`; `key` tells it from
    others of the same kind."""

    key: str
    kind: str
    name: str
    ns: float
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Bar:
    """`computed` bars are hatched. `said` follows the length at the bar's end."""

    key: str
    name: str
    note: str
    segments: tuple[Segment, ...]
    said: str = ""
    computed: bool = False
    strong: bool = False

    @property
    def ns(self) -> float:
        return sum(part.ns for part in self.segments)


@dataclass(frozen=True, slots=True)
class Band:
    """What becomes of one kind of work: (begin, end) in the upper bar and in the lower one, and what is said
    of it."""

    kind: str
    upper: tuple[float, float]
    lower: tuple[float, float]
    said: str


@dataclass(frozen=True, slots=True)
class Flow:
    """Bars from top to bottom; bands join the first two of them, where there are any."""

    bars: tuple[Bar, ...]
    bands: tuple[Band, ...] = ()

    @property
    def whole_ns(self) -> float:
        return max((bar.ns for bar in self.bars), default=0.0)


# --- the facts ---------------------------------------------------------------------------------------------


def flow_of(document: Report, base: Time | None = None) -> Flow:
    """Return the flow of a report; `base` is the account of the baseline, which tells where its matrix work
    ran. Without bars where the step is not known."""
    facts = document.facts
    step = facts.step_ns
    if step is None:
        return Flow(())
    now = _this_run(document, step)
    upper = _baseline(document, base)
    others = [
        bar
        for bar in (_update(document), *_in_16_bits(document, step), _alone(document), _after(document))
        if bar
    ]
    bars = [bar for bar in (upper, _unprofiled(document, step) if upper else None, now) if bar]
    divided = upper is not None and len(upper.segments) > 1 and len(now.segments) > 1
    bands = _bands(upper, now) if upper and divided else ()
    return Flow((*bars, *others), bands)


def _segments(parts: Parts, per: str) -> tuple[Segment, ...]:
    """Return the parts as segments, those that look the same as one; what they consist of is in the hint."""
    grouped: dict[tuple[str, str], dict[str, float]] = {}
    for (role, place), ns in parts.items():
        kind = theme.FLOW_PLACES.get(place, "open") if role == "matmul" else SHOWN_AS.get(role, "rest")
        key = role if kind == "wait" else kind
        name = theme.UNIT_WORDS.get(place, place) if role == "matmul" else theme.class_label(role)
        inside = grouped.setdefault((kind, key), {})
        inside[name] = inside.get(name, 0.0) + ns
    order = list(theme.FLOW_COLOURS)
    waits = list(theme.WAITS)

    def place_of(found: tuple[str, str]) -> tuple[int, int]:
        return order.index(found[0]), waits.index(found[1]) if found[1] in waits else 0

    return tuple(
        Segment(
            key,
            kind,
            _name(kind, grouped[kind, key]),
            sum(grouped[kind, key].values()),
            "; ".join(f"{name} {words.duration(ns)} {per}" for name, ns in grouped[kind, key].items()),
        )
        for kind, key in sorted(grouped, key=place_of)
    )


def _name(kind: str, inside: Mapping[str, float]) -> str:
    """Return the name of what takes most of a segment, and of what takes a fifth of it or more."""
    whole = sum(inside.values())
    named = sorted(inside, key=lambda name: -inside[name])
    said = ", ".join([name for at, name in enumerate(named) if not at or inside[name] >= 0.2 * whole])
    return words.on_units(said) if kind in theme.FLOW_BAND_OF else said


def _this_run(document: Report, step: float) -> Bar:
    time, facts = document.time, document.facts
    name = words.plain(document.run.policy or document.run.compute_dtype or words.computes(document) or "")
    said = words.speedup(facts.observed) if facts.observed and not facts.unlike else ""
    if time is not None and time.unlike is not None:  # the bar is a longer step than its speedup's
        said = ""
    if time is None:
        whole = Segment("step", "plain", words.WHOLE_STEP, step)
        return Bar("step", name, words.THIS_RUN, (whole,), said, strong=True)
    parts = parts_of(time_slices(time))
    scale = time_whole(time) / (sum(parts.values()) or 1.0)
    segments = _segments({key: ns * scale for key, ns in parts.items()}, units.worded(words.PER_STEP, time))
    note = words.THIS_RUN if time.unlike is None else words.PROFILED
    return Bar("step", name, units.worded(note, time), segments, said, strong=True)


def _unprofiled(document: Report, step: float) -> Bar | None:
    """Return the step that the speedup is of, where the profiled ones are unlike it."""
    time, facts = document.time, document.facts
    if time is None or time.unlike is None:
        return None
    name = words.plain(document.run.policy or document.run.compute_dtype or words.computes(document) or "")
    said = words.speedup(facts.observed) if facts.observed and not facts.unlike else ""
    whole = (Segment("unprofiled", "plain", words.WHOLE_STEP, step),)
    return Bar("unprofiled", name, units.worded(words.THIS_RUN, time), whole, said, strong=True)


def _baseline(document: Report, base: Time | None) -> Bar | None:
    facts, speedup = document.facts, document.speedup
    step = facts.baseline_step_ns
    if step is None or facts.unlike or speedup is None:
        return None
    name = baseline_words(document)
    parts: Parts = {}
    for part in speedup.slices:
        key = part.category, "unknown" if part.category == "matmul" else ""
        parts[key] = parts.get(key, 0.0) + part.baseline_ns
    unlike = document.time is not None and document.time.unlike is not None
    if not parts or unlike or not sum(ns for ns in parts.values() if ns > 0):
        return Bar("baseline", name, words.MEASURED, (Segment("baseline", "plain", words.WHOLE_STEP, step),))
    matmul, placed = parts.pop(("matmul", "unknown"), 0.0), _placed(base)
    parts |= {("matmul", place): matmul * ratio for place, ratio in placed.items()}
    parts = positive(parts)
    scale = step / sum(parts.values())
    segments = _segments({key: ns * scale for key, ns in parts.items()}, words.PER_STEP)
    return Bar("baseline", name, words.MEASURED, segments)


def _placed(time: Time | None) -> dict[str, float]:
    """Return the shares of the matrix time by placement; all of it "" where nothing tells."""
    shares = next((part.by for part in time.slices if part.category == "matmul"), ()) if time else ()
    whole = sum(share.ns_per_step for share in shares)
    found: dict[str, float] = {}
    for share in shares if whole > 0 else ():
        found[share.placement] = found.get(share.placement, 0.0) + share.ns_per_step / whole
    return found or {"": 1.0}


def _update(document: Report) -> Bar | None:
    """Return what one applied update takes, where some are skipped."""
    facts = document.facts
    each, step = facts.step_ns_per_update, facts.step_ns
    for cause in facts.causes:
        lost = lost_per_update(document, cause.code)
        if lost is not None and each and step:
            parts = (
                Segment("applied", "plain", words.WHOLE_STEP, step),
                Segment("skipped", "skip", words.SKIPPED, lost),
            )
            return Bar("update", words.APPLIED_UPDATE, "", parts)
    return None


def _in_16_bits(document: Report, step: float) -> list[Bar]:
    """Return the range of the step that a float32 run could reach in 16 bits, as the report estimates it."""
    speedup = document.speedup
    could = speedup.attainable_range if speedup and document.answer.kind == "float32" else None
    if not could or not tells(could):
        return []
    return [
        Bar(
            f"attainable-{end}", words.IN_16_BITS, words.ESTIMATED,
            (Segment(f"attainable-{end}", "plain", words.WHOLE_STEP, step / times),),
            f"{said} {words.about(words.speedup(times))}", computed=True,
        )
        for end, said, times in (("low", "from", could.low), ("high", "up to", could.high))
    ]  # fmt: skip


def _alone(document: Report) -> Bar | None:
    """Return the attainable step: what this card allows if only the precision differs from the baseline's."""
    facts, speedup = document.facts, document.speedup
    attainable = None if facts.unlike else facts.attainable_step_ns
    if attainable is None or speedup is None or facts.attainable is None:
        return None
    parts: Parts = {}
    name = words.WHOLE_STEP
    for limit in speedup.attainable_limits:
        for place, ns in limit.places or (("", limit.best_ns),):
            parts[limit.category, place] = parts.get((limit.category, place), 0.0) + ns
    most = sum(parts.values())
    if 0.9 * most <= attainable < most:  # what is below nothing has no limit: profiling
        parts["profiling", ""] = attainable - most
    parts = positive(parts)
    whole = sum(parts.values())
    if any(limit.kind == "host" for limit in speedup.attainable_limits):
        whole, name = 0.0, words.HOST_LIMITS
    close = whole > 0 and abs(whole - attainable) <= 0.02 * attainable
    segments = (
        _segments({key: ns * attainable / whole for key, ns in parts.items()}, words.PER_STEP)
        if close
        else (Segment("attainable", "plain", name, attainable),)
    )
    said = words.about(words.speedup(facts.attainable))
    waits = [limit for limit in speedup.attainable_limits if limit.category in theme.WAITS]
    kept, were = sum(limit.best_ns for limit in waits), sum(limit.ns_per_step for limit in waits)
    if close and kept >= _TOLD_WAITS * attainable and abs(kept - were) < SMALL_RATIO * were:
        said += f"; {words.WAITS_STAY}"
    return Bar("attainable", words.PRECISION_ALONE, words.COMPUTED, segments, said, computed=True)


def _after(document: Report) -> Bar | None:
    """Return the step after all remedies."""
    after, step = document.facts.after_remedies_ns, document.facts.step_ns
    codes = paying(document.whatif, step)
    if after is None or not step or not codes:
        return None
    name = words.AFTER_CHANGES if len(codes) > 1 else words.AFTER_CHANGE
    said = after_said(document, after, codes)
    parts = after_parts(document, after, codes)
    if len(parts) > 1:  # a switch that is turned off brings back what its remedy took away
        own = {part.key: part for part in parts}
        parts = tuple(
            own.pop(each.key, replace(each, ns=0.0)) for each in _this_run(document, step).segments
        ) + tuple(own.values())
    note = words.HOST_LIMITED if document.facts.limited_by == "host" else words.COMPUTED
    if document.speedup and document.speedup.how_to_switch:
        note += f", {words.IN_FLOAT32}"
    return Bar("after", name, note, parts, said, computed=True)


def after_parts(document: Report, after: float, codes: Sequence[str]) -> tuple[Segment, ...]:
    """Return the step `after` the remedies of these causes by class: each gains where the cause was seen to
    cost. As one segment where that is not known of one of them."""
    alone = (Segment("after", "plain", words.WHOLE_STEP, after),)
    time, found = document.time, {each.code: each for each in document.findings}
    if time is None or time.unlike is not None or changes_type(document):
        return alone
    left = left_after(time_slices(time), [found[code] for code in codes], after)
    return alone if left is None else _segments(left, words.PER_STEP)


def after_said(document: Report, after: float, codes: Sequence[str]) -> str:
    """Return the speedup of a step after the remedies of these causes, and what is left of it where float32
    gets the same changes, too."""
    facts = document.facts
    base = None if facts.unlike or changes_type(document) else facts.baseline_step_ns
    if not base or not after:
        return ""
    same = baseline_after(base, [cause for cause in facts.causes if cause.code in codes])
    return words.after_changes(base / after, same / after, baseline_words(document), len(codes))


def _bands(upper: Bar, lower: Bar) -> tuple[Band, ...]:
    above, below = _extents(upper), _extents(lower)
    least = max(upper.ns, lower.ns)
    bands = []
    for kind in theme.FLOW_BANDS:
        if kind not in above and kind not in below:
            continue
        begin, end = (_end_before(extents, kind) for extents in (above, below))
        one, other = above.get(kind, (begin, begin)), below.get(kind, (end, end))
        before, now = one[1] - one[0], other[1] - other[0]
        told = abs(now - before) >= _SAID_RATIO * least or max(before, now) >= _WIDE_RATIO * least
        said = ""
        if told and kind == "wait":
            said = _wait_said(upper, lower)
        elif told:
            said = words.became(before, now, theme.FLOW_WORDS.get(kind, ""), as_times=kind == "matmul")
        bands.append(Band(kind, one, other, said))
    return tuple(bands)


def _wait_said(upper: Bar, lower: Bar) -> str:
    """Return what became of the waits, by the name of the one that makes nearly all of the change."""
    before, now = ({part.key: part for part in bar.segments if part.kind == "wait"} for bar in (upper, lower))
    sums = [sum(part.ns for part in parts.values()) for parts in (before, now)]
    changes = {key: sum(part.ns for part in (now.get(key),) if part) for key in (*before, *now)}
    changes = {key: ns - (before[key].ns if key in before else 0.0) for key, ns in changes.items()}
    key = max(changes, key=lambda each: abs(changes[each]))
    one, whole = changes[key], sums[1] - sums[0]
    if key in before and key in now and abs(whole - one) <= _NEARLY_RATIO * abs(whole):
        return words.became(before[key].ns, now[key].ns, now[key].name.lower())
    return words.became(sums[0], sums[1], theme.FLOW_WORDS["wait"])


def _extents(bar: Bar) -> dict[str, tuple[float, float]]:
    found: dict[str, tuple[float, float]] = {}
    at = 0.0
    for part in bar.segments:
        kind = theme.FLOW_BAND_OF.get(part.kind, part.kind)
        begin, _ = found.get(kind, (at, at))
        at += part.ns
        found[kind] = begin, at
    return found


def _end_before(extents: Mapping[str, tuple[float, float]], kind: str) -> float:
    """Return where a kind that a bar does not hold would lie in it."""
    order = theme.FLOW_BANDS
    return max(
        (
            end
            for each, (_, end) in extents.items()
            if each in order and order.index(each) < order.index(kind)
        ),
        default=0.0,
    )


# --- the drawing -------------------------------------------------------------------------------------------

_HEIGHT, _LOW_HEIGHT, _ROOM_FOR_BANDS, _GAP, _TOP = 30, 22, 46, 31, 18
_NARROW = 759
"""Pixels of a drawing up to which names stand above the bars, and nothing beside them (mpprof.css)."""
_MIDDLE = 4.5
"""Pixels from the middle of a bar down to the foot of its letters."""


_GROUND = svg.element(
    "filter",
    svg.element("feFlood", style="flood-color:var(--mp-surface,#fff)")
    + svg.element("feComposite", in_="SourceGraphic"),
    id="mp-ground", x=-0.04, y=0, width=1.08, height=1,
)  # fmt: skip
"""What a label on hatching or dots stands on."""


def draw(flow: Flow, label: str = "", query: str = "") -> str:
    """Return the flow as SVG; "" without bars. `label` is its name for those who hear the page; with the
    `query` of a page, this run's segments lead to their kernels, its waits to the timeline."""
    whole = flow.whole_ns
    if not whole:
        return ""
    inside, names, y = [], [], float(_TOP)
    for row, bar in enumerate(flow.bars):
        height = _LOW_HEIGHT if bar.computed else _HEIGHT
        below = row == 1 and bool(flow.bands)
        twice = sum(each.name == bar.name for each in flow.bars) > 1
        names.append(_names(bar, y, height, below=below, twice=twice))
        inside.append(_bar(bar, y, height, whole, query if bar.key == "step" else ""))
        y += height
        if row == 0 and flow.bands:
            inside.append(_draw_bands(flow.bands, y, whole))
            y += _ROOM_FOR_BANDS
        elif row + 1 < len(flow.bars):
            y += _GAP + 6 if below else _GAP - 8
    last = flow.bars[-1]
    rest = last.said.partition("; ")[2] if last.computed else ""
    # A switch of a remedy writes into it, so that it is there without words, too.
    tail = svg.element("text", escape(words.plain(rest)), x=0, y=y + 15, class_="mp-flow-above mp-flow-tail")
    tail = svg.element("g", tail, class_="mp-flow-narrow")
    patterns = svg.element("defs", _GROUND + "".join(map(_pattern, theme.FLOW_COLOURS)))
    return svg.element(
        "svg",
        patterns + "".join(names) + tail + "".join(inside),
        xmlns=svg.NAMESPACE,
        class_="mp-flow mp-flow-tailed" if rest else "mp-flow",
        height=f"{y + 8:g}",
        role="group",
        aria_label=label,
        data_whole=repr(whole),
    )


def _pattern(kind: str) -> str:
    """Return the hatching of a colour, for what is computed; of what is unknown the dots."""
    colour = theme.FLOW_COLOURS[kind]
    ground = svg.element("rect", width=7, height=7, style="fill:var(--mp-surface,#fff)")
    lines = svg.element("rect", width=4, height=7, fill=colour)
    hatched = svg.element(
        "pattern", ground + lines, id=f"mp-hatch-{kind}", width=7, height=7, patternUnits="userSpaceOnUse",
        patternTransform="rotate(45)",
    )  # fmt: skip
    if kind != "unknown":  # the dots of all kinds are the same
        return hatched
    dots = svg.element("circle", cx=2.5, cy=2.5, r=1.1, fill=colour)
    return hatched + svg.element(
        "pattern", ground + dots, id="mp-dots", width=5, height=5, patternUnits="userSpaceOnUse"
    )


def _names(bar: Bar, y: float, height: int, *, below: bool, twice: bool) -> str:
    """Return a bar's name for a wide drawing, to its left, and for a narrow one, above or below it, with the
    note that tells it from another bar of that name (`twice`)."""
    strong = " mp-flow-strong" if bar.strong else ""
    middle = y + height / 2
    beside = svg.text(
        bar.name, x=-14, y=middle + (-2 if bar.note else _MIDDLE), class_=f"mp-flow-name{strong}"
    )
    beside += svg.text(bar.note, x=-14, y=middle + 12, class_="mp-flow-note")
    name = f"{bar.name}, {bar.note}" if twice else bar.name
    said = words.joined((name, words.duration(bar.ns), bar.said.partition(";")[0]))
    place = {"x": 0, "y": y + height + 14 if below else y - 5}
    above = svg.text(said, **place, class_=f"mp-flow-above{strong}", data_of=bar.key, data_name=name)
    return svg.element("g", beside, class_="mp-flow-wide") + svg.element("g", above, class_="mp-flow-narrow")


def _bar(bar: Bar, y: float, height: int, whole: float, query: str) -> str:
    at, inside = 0.0, []
    for part in bar.segments:
        drawn = _segment(part, at / whole, part.ns / whole, y, height, computed=bar.computed)
        page = "/timeline" if part.kind == "wait" else "/kernels"
        inside.append(svg.element("a", drawn, href=f"{page}{query}", data_link="1") if query else drawn)
        at += part.ns
    total = svg.element("tspan", words.duration(bar.ns), class_="mp-flow-total")
    # A switch of a remedy writes into it, so that it is there without words, too.
    more = svg.element("tspan", f" {bar.said}" if bar.said else "", class_="mp-flow-said")
    place = {"x": svg.percent(at / whole), "dx": 9, "y": y + height / 2 + _MIDDLE}
    end = svg.element("text", total + more, class_="mp-flow-end mp-flow-wide", **place)
    return svg.element(
        "g", "".join(inside) + end, data_key=bar.key, data_ns=repr(bar.ns), class_="mp-flow-bar"
    )


def _segment(part: Segment, at: float, ratio: float, y: float, height: int, *, computed: bool) -> str:
    colour = theme.FLOW_COLOURS[part.kind]
    fill = (
        f"url(#mp-hatch-{part.kind})"
        if computed
        else "url(#mp-dots)"
        if part.kind in theme.DOTTED
        else colour
    )
    edge = theme.FLOW_EDGES.get(part.kind, colour if computed else None)
    drawn = svg.element(
        "rect", x=svg.percent(at), y=y, width=svg.percent(max(ratio, _LEAST_RATIO) if ratio else 0.0),
        height=height, fill=fill, stroke=edge or "none",
    )  # fmt: skip
    length = words.duration(part.ns)
    full = f"{part.name} {length}"
    ink = "" if computed or part.kind in theme.DOTTED else theme.text_on(colour)
    place = {"x": svg.percent(at + ratio / 2), "y": y + height / 2 + _MIDDLE}
    long, short = svg.fits_from(full, ratio), svg.fits_from(length, ratio)
    look = "mp-flow-label"
    style = f"fill:{ink}" if ink else None
    # The hint names the part for those who hear it, whatever has room; its label would say it twice.
    place |= {"style": style, "filter": "" if ink else "url(#mp-ground)", "aria_hidden": "true"}
    labels = ""
    if long != "mp-never":
        labels += svg.text(full, class_=f"{look} {long}", **place)
    if short not in ("mp-never", long):
        until = f" mp-until-{long.rpartition('-')[2]}" if long != "mp-never" else ""
        labels += svg.text(length, class_=f"{look} {short}{until}", **place)
    hint = svg.title(
        f"{full}: {part.hint}" if part.hint and not part.hint.startswith(part.name) else part.hint or full
    )
    return svg.element(
        "g",
        hint + drawn + labels,
        class_="mp-flow-part",
        data_key=part.key,
        data_kind=part.kind,
        data_ns=repr(part.ns),
    )


def _draw_bands(bands: Sequence[Band], y: float, whole: float) -> str:
    """Return the bands as paths that stretch with the drawing, and what is said of each where there is
    room."""
    paths = []
    for band in bands:
        (a, b), (c, d) = ([1000 * ns / whole for ns in ends] for ends in (band.upper, band.lower))
        half = _ROOM_FOR_BANDS / 2
        shape = (
            f"M{a:.2f} 0C{a:.2f} {half} {c:.2f} {half} {c:.2f} {_ROOM_FOR_BANDS}L{d:.2f} {_ROOM_FOR_BANDS}"
            f"C{d:.2f} {half} {b:.2f} {half} {b:.2f} 0Z"
        )
        paths.append(svg.element("path", d=shape, class_=f"mp-band mp-band-{band.kind}", data_kind=band.kind))
    drawn = svg.element(
        "svg", "".join(paths), y=y, width="100%", height=_ROOM_FOR_BANDS,
        viewBox=f"0 0 1000 {_ROOM_FOR_BANDS}", preserveAspectRatio="none",
    )  # fmt: skip
    return drawn + "".join(_said(bands, y + _ROOM_FOR_BANDS / 2 + _MIDDLE, whole))


def _said(bands: Sequence[Band], y: float, whole: float) -> list[str]:
    """Return the labels of the bands; of two that would overlap the one that changed more is shown from a
    smaller width on."""
    placed: list[tuple[float, float, int]] = []
    labels = []
    for band in sorted(bands, key=_weight):
        if not band.said:
            continue
        middle = sum((*band.upper, *band.lower)) / 4 / whole
        half = svg.width_of(band.said) / 2 + 4
        for width in svg.ROOM:
            beside = 120 if width > _NARROW else 12
            inside = half <= middle * width + 8 and middle * width + half <= width + beside
            free = all(abs(middle - at) * max(width, since) >= half + own for at, own, since in placed)
            if inside and free:
                placed.append((middle, half, width))
                look = f"mp-flow-label mp-flow-halo mp-said-{band.kind} mp-from-{width}"
                labels.append(svg.text(band.said, x=svg.percent(middle), y=y, class_=look))
                break
    return labels


def _weight(band: Band) -> tuple[bool, float]:
    before, now = band.upper[1] - band.upper[0], band.lower[1] - band.lower[0]
    return band.kind != "matmul", -abs(now - before)
