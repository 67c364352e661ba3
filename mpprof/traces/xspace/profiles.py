"""Several profiles in one xplane file: where one ends, and which is there twice.

A profiler writes one host's profile into a file. `scripts/merge_xprof.py` of vllm-project/tpu-inference
merges the files of several hosts into one, and `cat` does the same: one profile after the other. Nothing says
where the next begins, and every host gives its planes the same names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence

from mpprof.model.frozen import frozen
from mpprof.traces.common.names import ACCELERATOR, ENVIRONMENT, HOST
from mpprof.traces.common.planes import RawPlane

NO_HOST = -1
"""The number of a host that is not in the file, or not known."""


def places(names: Sequence[str]) -> tuple[list[int], list[int]]:
    """Return the first and the last profile, counted from 0, that each plane may be of, in the order of the
    file. Where they differ the names leave it open.

    A profile names a plane once, and its environment last. So another one begins behind that, where a name
    comes again, or before: the latest cuts are found from the front, the earliest from the back.
    """
    first = _cut(names, ends=True)
    last = _cut(names[::-1], ends=False)[::-1]
    return first, [max(first, default=0) - number for number in last]


def _cut(names: Iterable[str], *, ends: bool) -> list[int]:
    """Return the number of each name's profile. `ends`: a profile ends with its environment; else it begins
    with it, because the names come from the back."""
    numbers: list[int] = []
    seen: set[str] = set()
    number = 0
    for name in names:
        if name in seen or (seen and (ENVIRONMENT in seen if ends else name == ENVIRONMENT)):
            number += 1
            seen.clear()
        seen.add(name)
        numbers.append(number)
    return numbers


@frozen
class Layout:
    """The planes of a file that are read, the profile of each by number, and the names of the hosts as the
    file states them: one for each of the `count` profiles, or any number. `ordered`: the profiles follow one
    another, so that a device is of the host that lies with it."""

    planes: tuple[RawPlane, ...]
    places: tuple[int, ...]
    count: int
    ordered: bool
    hostnames: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def layout(planes: Sequence[RawPlane], hostnames: Sequence[str]) -> Layout:
    """Tell the profiles in a file apart, and leave out those that are in it twice.

    Where the file names one host and no accelerator twice, all is of that host, whatever else repeats.
    """
    of, last = places([plane.name for plane in planes])
    repeated = copies(planes, of)
    kept = [at for at in range(len(planes)) if at not in repeated.planes]
    accelerators = Counter(planes[at].name for at in kept if ACCELERATOR.match(planes[at].name))
    numbers = sorted({of[at] for at in kept})
    if len(hostnames) == max(last, default=0) + 1:
        hostnames = [hostnames[number] for number in numbers]
    if len(hostnames) == 1 and max(accelerators.values(), default=0) < 2:
        numbers = [0]
    working = [at for at in kept if planes[at].lines]
    devices = [at for at in working if ACCELERATOR.match(planes[at].name)]
    hosts = [at for at in working if HOST.match(planes[at].name)]
    sure = all(of[at] == last[at] for at in (*devices, *hosts))
    return Layout(
        tuple(planes[at] for at in kept),
        tuple(bisect_right(numbers, of[at]) - 1 for at in kept),
        len(numbers),
        sure and {of[at] for at in devices} <= {of[at] for at in hosts},
        tuple(hostnames),
        repeated.warnings,
        repeated.notes,
    )


# --- the same profile twice --------------------------------------------------------------------------------


@frozen
class Copies:
    """Planes, by number, that are left out as part of a profile that is in the file before; and what is
    to be said of these and of other planes that repeat."""

    planes: frozenset[int]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def copies(planes: Sequence[RawPlane], of: Sequence[int]) -> Copies:
    """Return which profiles are copies. A profile that equals an earlier one byte for byte is left out:
    nothing ran twice at the same instants."""
    original = _originals(planes)
    members: dict[int, list[int]] = {}
    for at, number in enumerate(of):
        members.setdefault(number, []).append(at)
    seen: set[tuple[int, ...]] = set()
    left_out: set[int] = set()
    profiles = 0
    for own in members.values():
        content = tuple(original[at] for at in own)
        if content in seen:
            left_out.update(own)
            profiles += any(planes[at].lines for at in own)
        seen.add(content)
    notes = []
    if profiles:
        times = "twice" if profiles == 1 else f"{profiles + 1} times"
        notes.append(f"the file holds the same profile {times}, byte for byte: it was read once")
    twice = Counter(
        planes[at].name
        for at, first in enumerate(original)
        if first != at and planes[at].lines and at not in left_out
    )
    warnings = [
        f"plane {name} is in the file {'twice' if more == 1 else f'{more + 1} times'}, byte for byte, "
        "and other planes are not: each copy was counted"
        for name, more in twice.items()
    ]
    return Copies(frozenset(left_out), tuple(warnings), tuple(notes))


def _originals(planes: Sequence[RawPlane]) -> list[int]:
    """Return for each plane the first one with the same bytes; only planes of one name and size are
    compared."""
    like = [(plane.name, plane.end - plane.start) for plane in planes]
    count = Counter(like)
    if len(count) == len(like):
        return list(range(len(like)))
    import hashlib  # takes as long to import as a small trace to read

    found: dict[tuple[str, int, bytes], int] = {}
    original = []
    for at, (plane, key) in enumerate(zip(planes, like, strict=True)):
        if count[key] == 1:
            original.append(at)
            continue
        digest = hashlib.blake2b(plane.buffer[plane.start : plane.end].data, digest_size=20).digest()
        original.append(found.setdefault((*key, digest), at))
    return original


def labels(profile: Sequence[int | None], hostnames: Sequence[str], count: int) -> list[str]:
    """Return what stands before each device's name, given its profile of the `count` in the file ("one ",
    "host 2 "): its host's name where the file states one for each. All are empty for devices of one host that
    the file does not name."""
    stated = len(hostnames) == len(set(hostnames)) == count and all(hostnames)
    if count < 2 or not (stated or None in profile or len(set(profile)) > 1):
        return [""] * len(profile)
    names = hostnames if stated else [f"host {number + 1}" for number in range(count)]
    return ["unknown host " if number is None else f"{names[number]} " for number in profile]
