"""Changes of an xplane file after which it says the same: whatever is reported of it must not change.

Each changes the tree it is given. What another collector may write otherwise is what changes: the order of
fields, ids, where a line's time counts from, how a text is stored, and things beside the training.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sequence

from tests.fuzz.grammar import words
from tests.fuzz.grammar.xplane_tree import INT, REF, TEXT, UINT, Event, Line, Plane, Space, Stat

Change = Callable[[random.Random, Space], None]

ABSOLUTE_NS = 10**17
DERIVED = range(0xDEADBEEF, 0xDEADBEEF + 16)


def lines_shuffled(dice: random.Random, space: Space) -> None:
    for plane in space.planes:
        dice.shuffle(plane.lines)


def events_shuffled(dice: random.Random, space: Space) -> None:
    """But for events of one nanosecond: of these the file's order says which lies in which."""
    for plane in space.planes:
        for line in plane.lines:
            place: dict[int, float] = {}
            line.events.sort(key=lambda event: place.setdefault(event.offset_ps // 1000, dice.random()))


def stats_shuffled(dice: random.Random, space: Space) -> None:
    """But for those of one key, of which the last counts."""
    for plane in space.planes:
        for event in plane.events():
            place: dict[int, float] = {}
            event.stats.sort(key=lambda stat: place.setdefault(stat.key, dice.random()))


def tables_shuffled(dice: random.Random, space: Space) -> None:
    for plane in space.planes:
        plane.names = dict(_shuffled(dice, plane.names.items()))
        plane.stat_names = dict(_shuffled(dice, plane.stat_names.items()))
        if len({stat.key for stat in plane.stats}) == len(plane.stats):
            dice.shuffle(plane.stats)


def planes_shuffled(dice: random.Random, space: Space) -> None:
    """Where no name repeats and there is one device: else the order says whose they are, or which is first."""
    names = [plane.name for plane in space.planes]
    if len(set(names)) == len(names) and sum(name.startswith("/device:") for name in names) < 2:
        dice.shuffle(space.planes)


def names_renumbered(dice: random.Random, space: Space) -> None:
    for plane in space.planes:
        if plane.name.startswith("/host:metadata"):
            continue  # there the ids are those of programs
        new = _numbers(dice, plane.names)
        plane.names = {new[id]: named for id, named in plane.names.items()}
        for event in plane.events():
            event.metadata = new.get(event.metadata, event.metadata)


def stats_renumbered(dice: random.Random, space: Space) -> None:
    for plane in space.planes:
        new = _numbers(dice, plane.stat_names)
        plane.stat_names = {new[id]: name for id, name in plane.stat_names.items()}
        for stat in plane.all_stats():
            stat.key = new.get(stat.key, stat.key)
            if stat.kind == REF and isinstance(stat.value, int):
                stat.value = new.get(stat.value, stat.value)


def lines_renumbered(dice: random.Random, space: Space) -> None:
    """Threads and streams by other ids; those that a converter derived keep theirs."""
    for plane in space.planes:
        new = _numbers(dice, [line.id for line in plane.lines])
        for line in plane.lines:
            if line.id & 0xFFFFFFFF not in DERIVED and new[line.id] & 0xFFFFFFFF not in DERIVED:
                line.id = new[line.id]


def correlations_renumbered(dice: random.Random, space: Space) -> None:
    """Ids are a process' own: any others that pair the same kernels and launches will do."""
    start = dice.randrange(1, 1 << 31)
    for plane in space.planes:
        keys = {id for id, name in plane.stat_names.items() if name == "correlation_id"}
        for stat in plane.all_stats():
            if (
                stat.key in keys
                and isinstance(stat.value, int)
                and stat.kind in (UINT, INT)
                and stat.value > 0
            ):
                stat.value = (stat.value + start) & 0xFFFFFFFF or 1 << 32


def lines_rebased(dice: random.Random, space: Space) -> None:
    """Each line's events count from another instant, some backwards; where none ends near the last there is."""
    for line in _lines(space):
        far = any(abs(event.offset_ps) + event.duration_ps > 1 << 60 for event in line.events)
        if far or abs(line.timestamp_ns) > 1 << 61:
            continue
        moved = dice.choice((0, 1, -1, 1_000_000, dice.randrange(-(10**9), 10**9)))
        moved = max(moved, 1 - line.timestamp_ns) if line.timestamp_ns else 0
        line.timestamp_ns += moved
        for event in line.events:
            event.offset_ps -= moved * 1000


def clock_shifted(dice: random.Random, space: Space) -> None:
    """The profiler's zero lies elsewhere; what happened when stays."""
    started = [s for plane in space.planes for s in _named_stats(plane, "profile_start_time")]
    stamps = [line.timestamp_ns for line in _lines(space) if line.events]
    if not started or not stamps or max(stamps) > ABSOLUTE_NS or min(stamps) < 0:
        return
    moved = dice.choice((1, 10**3, dice.randrange(1, 10**12)))
    for stat in started:
        assert isinstance(stat.value, int)
        stat.value -= moved
    for line in _lines(space):
        if line.events:
            line.timestamp_ns += moved


def clock_absolute(dice: random.Random, space: Space) -> None:
    """Lines count from 1970, as some versions write them, and not from the profile's start."""
    started = [s.value for plane in space.planes for s in _named_stats(plane, "profile_start_time")]
    stamps = [line.timestamp_ns for line in _lines(space) if line.events]
    if len(started) != 1 or not isinstance(started[0], int) or not ABSOLUTE_NS < started[0] < 2**62:
        return
    if not stamps or max(stamps) > ABSOLUTE_NS or min(stamps) < 0:
        return
    for line in _lines(space):
        line.timestamp_ns += started[0]


def texts_referred(dice: random.Random, space: Space) -> None:
    """Texts of events as references into the table of stats."""
    for plane in space.planes:
        for stat in plane.all_stats():
            if stat.kind == TEXT and isinstance(stat.value, bytes) and dice.random() < 0.7:
                stat.kind, stat.value = REF, plane.stat_id(stat.value.decode())


def texts_spelled(dice: random.Random, space: Space) -> None:
    """References as the texts that they lead to."""
    for plane in space.planes:
        for stat in plane.all_stats():
            if stat.kind == REF and stat.value in plane.stat_names and dice.random() < 0.7:
                stat.kind, stat.value = TEXT, plane.stat_names[int(stat.value)].encode()


def numbers_signed(dice: random.Random, space: Space) -> None:
    """Numbers that are none below 0 as signed or unsigned ones."""
    for plane in space.planes:
        for stat in plane.all_stats():
            if stat.kind in (UINT, INT) and isinstance(stat.value, int) and stat.value >= 0:
                stat.kind = dice.choice((UINT, INT))


def lines_split(dice: random.Random, space: Space) -> None:
    """A thread's events in two lines of one id, as a collector writes that empties its buffers twice."""
    for plane in space.planes:
        for line in list(plane.lines):
            if len(line.events) > 1 and dice.random() < 0.5:
                at = dice.randrange(1, len(line.events))
                rest = Line(line.id, line.name, line.timestamp_ns, line.events[at:], line.display_name)
                del line.events[at:]
                plane.lines.insert(dice.randrange(plane.lines.index(line) + 1, len(plane.lines) + 1), rest)


def unknown_planes_added(dice: random.Random, space: Space) -> None:
    """Planes of kinds that hold no work of the training, or are not known yet, whatever their times; some twice."""
    known = {plane.name for plane in space.planes}
    for _ in range(dice.choice((1, 1, 3))):
        plane = Plane(words.unknown_plane(dice))
        if plane.name in known:
            continue
        for n in range(dice.choice((0, 1, 2))):
            line = Line(n, words.name(dice), dice.choice((0, 1, 10**9, 1_700_000_000_000_000_000, 2**62)))
            for _ in range(dice.choice((0, 1, 30))):
                line.events.append(_event(dice, plane))
            plane.lines.append(line)
        plane.stats = [Stat(plane.stat_id(words.name(dice)), UINT, dice.randrange(1 << 40))]
        for _ in range(dice.choice((1, 1, 2))):
            space.planes.insert(dice.randrange(len(space.planes) + 1), plane)


def counts_added(dice: random.Random, space: Space) -> None:
    """Events that only count how often something ran: they lie nowhere in time."""
    for plane in space.planes:
        for line in plane.lines:
            if plane.names and line.events and dice.random() < 0.5:
                metadata = dice.choice(list(plane.names))
                times = dice.choice((1, 7, 10**6))
                for _ in range(dice.choice((1, 3))):
                    counted = Event(metadata, 0, dice.randrange(1 << 40), occurrences=times)
                    line.events.insert(dice.randrange(len(line.events) + 1), counted)


def instants_added(dice: random.Random, space: Space) -> None:
    """Host events that take no time, of no name that means anything."""
    for plane in space.planes:
        if plane.name != "/host:CPU":
            continue
        for line in plane.lines:
            if not line.events:
                continue
            at = dice.choice(line.events).offset_ps
            for _ in range(dice.choice((1, 5))):
                event = Event(plane.name_id(dice.choice(words.INSTANTS)), at, 0)
                line.events.append(event)


def fields_unknown(dice: random.Random, space: Space) -> None:
    """Stats that nobody reads."""
    for plane in space.planes:
        for event in plane.events():
            if dice.random() < 0.1:
                kind, value = words.value(dice)
                event.stats.append(Stat(plane.stat_id("_unknown_" + dice.choice("abc")), kind, value))


CHANGES: tuple[Change, ...] = (
    lines_shuffled, events_shuffled, stats_shuffled, tables_shuffled, planes_shuffled, names_renumbered,
    stats_renumbered, lines_renumbered, correlations_renumbered, lines_rebased, clock_shifted, clock_absolute,
    texts_referred, texts_spelled, numbers_signed, lines_split, unknown_planes_added, counts_added,
    instants_added, fields_unknown,
)  # fmt: skip


def _lines(space: Space) -> Iterable[Line]:
    return (line for plane in space.planes for line in plane.lines)


def _named_stats(plane: Plane, name: str) -> list[Stat]:
    keys = {id for id, known in plane.stat_names.items() if known == name}
    return [stat for stat in plane.stats if stat.key in keys]


def _shuffled(dice: random.Random, items: Iterable[tuple[int, object]]) -> list[tuple[int, object]]:
    listed = list(items)
    dice.shuffle(listed)
    return listed


def _numbers(dice: random.Random, ids: Iterable[int]) -> dict[int, int]:
    """A new number for each id."""
    old: Sequence[int] = list(dict.fromkeys(ids))
    most = dice.choice((len(old) + 1, 1 << 20, (1 << 62)))
    return dict(zip(old, dice.sample(range(1, max(most, len(old) + 1)), len(old)), strict=True))


def _event(dice: random.Random, plane: Plane) -> Event:
    kind, value = words.value(dice)
    stats = [Stat(plane.stat_id(dice.choice(("correlation_id", "group_id", "x"))), kind, value)]
    return Event(plane.name_id(words.name(dice)), dice.randrange(1 << 40), dice.randrange(1 << 36), stats)
