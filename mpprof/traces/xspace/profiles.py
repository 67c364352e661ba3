"""Several profiles in one xplane file: where one ends, which is there twice, which host launched what.

A profiler writes one host's profile into a file. `scripts/merge_xprof.py` of vllm-project/tpu-inference
merges the files of several hosts into one, and `cat` does the same: one profile after the other. Nothing says
where the next begins, and every host gives its planes the same names.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, pairwise

import numpy as np
from numpy.typing import NDArray

from mpprof.model.frozen import frozen
from mpprof.model.trace import HostTable, KernelTable
from mpprof.traces.common import columns
from mpprof.traces.common.names import ACCELERATOR
from mpprof.traces.common.planes import RawPlane

Int64 = NDArray[np.int64]

NO_HOST = -1
"""The number of a host that is not in the file, or not known."""

_FITS = 0.5
_MOST_LATE = 0.1
_EARLY_NS = 1_000_000
"""A host fits a device where at least half of the kernels with an id find it there, of these at most a tenth
launched after they ran: by more than a millisecond, to which the clocks of one host agree."""
_MOST_PAIRS = 1 << 12
"""Of so many pairs of a device and a host at most those are tried that do not lie together in the file."""


@frozen
class Place:
    """The profile that a plane is of, counted from 0: one from `first` to `last`, which the names leave open
    where they differ."""

    first: int
    last: int

    def sure(self) -> bool:
        return self.first == self.last

    def meets(self, other: Place) -> bool:
        return self.first <= other.last and other.first <= self.last


def places(names: Sequence[str]) -> list[Place]:
    """Return the place of each plane, in the order of the file.

    A profile names a plane once, so another one begins where a name comes again, or before: the latest cuts
    are found from the front, the earliest from the back.
    """
    first = _cut(names)
    last = [max(first, default=0) - number for number in reversed(_cut(names[::-1]))]
    return [Place(*each) for each in zip(first, last, strict=True)]


def _cut(names: Sequence[str]) -> list[int]:
    numbers: list[int] = []
    seen: set[str] = set()
    number = 0
    for name in names:
        if name in seen:
            number += 1
            seen.clear()
        seen.add(name)
        numbers.append(number)
    return numbers


@frozen
class Layout:
    """The planes of a file that are read, the place of each, and the names of the hosts as the file states
    them: one for each of the `count` profiles, or any number."""

    planes: tuple[RawPlane, ...]
    places: tuple[Place, ...]
    count: int
    hostnames: tuple[str, ...]
    warnings: tuple[str, ...]
    notes: tuple[str, ...]


def layout(planes: Sequence[RawPlane], hostnames: Sequence[str]) -> Layout:
    """Tell the profiles in a file apart, and leave out those that are in it twice.

    Where the file names one host and no accelerator twice, all is of that host, whatever else repeats.
    """
    of = places([plane.name for plane in planes])
    repeated = copies(planes, of)
    kept = [at for at in range(len(planes)) if at not in repeated.planes]
    accelerators = Counter(planes[at].name for at in kept if ACCELERATOR.match(planes[at].name))
    numbers = sorted({of[at].first for at in kept})
    if len(hostnames) == max((place.last for place in of), default=0) + 1:
        hostnames = [hostnames[number] for number in numbers]
    if len(hostnames) == 1 and max(accelerators.values(), default=0) < 2:
        numbers = [0]
    rank = [bisect_right(numbers, number) - 1 for number in range(len(planes))]
    return Layout(
        tuple(planes[at] for at in kept),
        tuple(Place(rank[of[at].first], rank[of[at].last]) for at in kept),
        len(numbers),
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


def copies(planes: Sequence[RawPlane], of: Sequence[Place]) -> Copies:
    """Return which profiles are copies. A profile that equals an earlier one byte for byte is left out:
    nothing ran twice at the same instants."""
    original = _originals(planes)
    members: dict[int, list[int]] = {}
    for at, place in enumerate(of):
        members.setdefault(place.first, []).append(at)
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


# --- which host launched what a device did -----------------------------------------------------------------


@frozen
class Launchers:
    """Per device: the number of the host that launched its work, NO_HOST where there is none or it cannot be
    told; the profile that it is of, None where that cannot be told; and whether it did something that a host
    beside it may have launched, but nothing tells."""

    host: tuple[int, ...]
    profile: tuple[int | None, ...]
    doubtful: tuple[bool, ...]


def launchers(
    devices: Sequence[Place],
    hosts: Mapping[int, Place],
    kernels: KernelTable,
    host: HostTable,
    of_thread: Int64,
) -> Launchers:
    """Return which of several hosts launched the work of each device.

    `hosts` are the hosts with threads by their number, `of_thread` the number of each row of the threads,
    ascending. The place in the file comes first where it is sure and the launches fit. Else it is the one
    host beside the device whose launches fit, or the one anywhere, whose correlation ids no other device
    uses: a process uses each once. Where several fit as well as each other, or none does and the place is not
    sure, nothing tells.
    """
    fit = _Fit(kernels, host, of_thread, len(devices), hosts)
    own = {
        d: [h for h in _around(each) if h in hosts and hosts[h].meets(each)] for d, each in enumerate(devices)
    }
    sure = {d: [h for h in own[d] if hosts[h] == devices[d] and devices[d].sure()] for d in own}
    near = {d: [h for h in own[d] if fit(d, h)] for d in own}
    far = near
    if len(devices) * len(hosts) <= _MOST_PAIRS:
        far = {d: near[d] or [h for h in hosts if fit(d, h)] for d in own}
    found: dict[int, int] = {d: sure[d][0] for d in own if sure[d] and sure[d][0] in near[d]}
    for candidates in (near, far):
        found |= _undisputed({d: candidates[d] for d in own if d not in found}, found, fit)
    for d in own:
        if d not in found and sure[d] and not near[d]:
            found[d] = sure[d][0]  # kernels without ids, or a host that recorded no launches
    profile = _in_order(devices, hosts, found)
    for d, number in enumerate(profile):
        beside = [h for h in own[d] if number is not None and hosts[h].meets(Place(number, number))]
        if d not in found and not len(fit.ids[d]) and len(beside) == 1:
            found[d] = beside[0]  # it did nothing, or without ids: those around it tell
    return Launchers(
        tuple(found.get(d, NO_HOST) for d in own),
        tuple(profile),
        tuple(bool(own[d]) and d not in found and fit.works(d) for d in own),
    )


def _in_order(
    devices: Sequence[Place], hosts: Mapping[int, Place], found: Mapping[int, int]
) -> list[int | None]:
    """Return the profile of each device: by its launches, by its place, or by the devices before and after
    it, because profiles follow one another."""
    known = [
        max(place.first, found[d]) if d in found and hosts[found[d]].meets(place) else None
        for d, place in enumerate(devices)
    ]
    low = list(accumulate((-1 if one is None else one for one in known), max))
    high = list(accumulate((len(devices) if one is None else one for one in reversed(known)), min))[::-1]
    profile: list[int | None] = []
    for d, place in enumerate(devices):
        left = Place(max(place.first, low[d]), min(place.last, high[d]))
        by_place = left.first if left.sure() else None
        profile.append(found[d] if d in found and known[d] is None else by_place)
    return profile


def _around(place: Place) -> range:
    """Return the numbers that a host of this place may have. Hosts are numbered by the first profile that
    they may be of, at most one apart from the last."""
    return range(place.first - 1, place.last + 1)


def _undisputed(
    candidates: Mapping[int, Sequence[int]], found: Mapping[int, int], fit: _Fit
) -> dict[int, int]:
    """Return the devices that have only one host left, which no other device claims by the same ids."""
    devices: dict[int, list[int]] = {}
    for d, h in found.items():
        devices.setdefault(h, []).append(d)
    taken = {h: np.concatenate([fit.ids[d] for d in own]) for h, own in devices.items()}
    claims: dict[int, list[int]] = {}
    for d, all_of in candidates.items():
        free = [h for h in all_of if h not in taken or not _mostly(fit.ids[d], taken[h])]
        if len(free) == 1:
            claims.setdefault(free[0], []).append(d)
    settled: dict[int, int] = {}
    for h, claiming in claims.items():
        ids, count = np.unique(np.concatenate([fit.ids[d] for d in claiming]), return_counts=True)
        settled |= {d: h for d in claiming if not _mostly(fit.ids[d], ids[count > 1])}
    return settled


def _mostly(ids: Int64, among: Int64) -> bool:
    return 2 * int(np.count_nonzero(np.isin(ids, among))) > len(ids)


class _Fit:
    """Whether the launches of a host fit the kernels of a device. `ids` are those of each device."""

    def __init__(
        self,
        kernels: KernelTable,
        host: HostTable,
        of_thread: Int64,
        devices: int,
        hosts: Mapping[int, Place],
    ) -> None:
        self._kernels, self._host = kernels, host
        bounds = np.searchsorted(kernels.device, np.arange(devices + 1)).tolist()
        self._works: list[bool] = [first < last for first, last in pairwise(bounds)]
        self._rows: list[Int64] = []
        for first, last in pairwise(bounds):
            self._rows.append(first + np.flatnonzero(kernels.correlation[first:last] >= 0))
        self.ids = [np.unique(kernels.correlation[rows]) for rows in self._rows]
        # Threads are numbered plane by plane, and the host's events stand thread by thread.
        first_thread = np.searchsorted(of_thread, list(hosts))
        last_thread = np.searchsorted(of_thread, list(hosts), side="right")
        begin = np.searchsorted(host.thread, first_thread).tolist()
        end = np.searchsorted(host.thread, last_thread).tolist()
        self._of_host = {h: slice(*each) for h, *each in zip(hosts, begin, end, strict=True)}

    def works(self, device: int) -> bool:
        """Return whether the device did anything."""
        return self._works[device]

    def __call__(self, device: int, host: int) -> bool:
        rows, events = self._rows[device], self._of_host[host]
        launch = columns.join(self._kernels.correlation[rows], self._host.correlation[events])
        known = np.flatnonzero(launch >= 0)
        if not len(known) or len(known) < _FITS * len(rows):
            return False
        launched = self._host.start_ns[events][launch[known]]
        late = np.count_nonzero(launched > self._kernels.start_ns[rows[known]] + _EARLY_NS)
        return bool(late <= _MOST_LATE * len(known))


def labels(profile: Sequence[int | None], hostnames: Sequence[str], count: int) -> list[str]:
    """Return what stands before each device's name, given its profile of the `count` in the file ("one ",
    "host 2 "): its host's name where the file states one for each. All are empty for devices of one host that
    the file does not name."""
    stated = len(hostnames) == len(set(hostnames)) == count and all(hostnames)
    if count < 2 or not (stated or len(set(profile)) > 1):
        return [""] * len(profile)
    names = hostnames if stated else [f"host {number + 1}" for number in range(count)]
    return ["unknown host " if number is None else f"{names[number]} " for number in profile]
