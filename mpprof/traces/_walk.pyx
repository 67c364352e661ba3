# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled walk over the protobuf wire format: same columns as `walk_reference`, which explains them.

Bounds checking of the arrays is off because every read of the buffer is checked against the end of the
message that it belongs to, and `_check_extents` keeps every message inside the buffer.
"""

import numpy as np

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp

import os

from mpprof.traces.walk_reference import SHORTEST_EVENT, EventColumns, Fields

cdef int64_t LIMIT_PS = 1 << 61  # twice that still fits
cdef uint64_t SEED = int.from_bytes(os.urandom(8), "little") | 1  # no file can be made to collide on purpose


cdef struct Cursor:
    int64_t at
    int64_t end


cdef inline bint read_varint(const uint8_t* data, Cursor* c, uint64_t* value) noexcept nogil:
    """False, with the cursor where it was, if the varint is longer than ten bytes or passes the end."""
    cdef uint64_t result = 0
    cdef int shift = 0
    cdef int64_t at = c.at
    cdef uint8_t byte
    while at < c.end and shift < 70:
        byte = data[at]
        at += 1
        if shift < 64:
            result |= (<uint64_t> (byte & 0x7F)) << shift
        if byte < 0x80:
            c.at = at
            value[0] = result
            return True
        shift += 7
    return False


cdef struct Field:
    uint64_t number
    int wire
    int64_t value  # varint or fixed value; for wire 2 the start of the payload
    int64_t size  # for wire 2 its length, else -1
    bint cut  # the payload passes the end of the message: size is what is there


cdef inline bint read_field(const uint8_t* data, Cursor* c, Field* field) noexcept nogil:
    """False, with the cursor where the field starts, if it is damaged or cut (`field.cut`)."""
    cdef int64_t begin = c.at
    cdef uint64_t tag = 0, value = 0
    cdef int i
    field.cut = False
    if not read_varint(data, c, &tag):
        return False
    field.number = tag >> 3
    field.wire = tag & 7
    field.size = -1
    if field.number == 0 or field.number > 0x1FFFFFFF:
        c.at = begin
        return False
    if field.wire == 0:
        if not read_varint(data, c, &value):
            c.at = begin
            return False
        field.value = <int64_t> value
        return True
    if field.wire == 2:
        if not read_varint(data, c, &value):
            c.at = begin
            return False
        field.value = c.at
        if value > <uint64_t> (c.end - c.at):
            field.size = c.end - c.at
            field.cut = True
            c.at = begin
            return False
        field.size = <int64_t> value
        c.at += field.size
        return True
    if field.wire == 1 or field.wire == 5:
        i = 8 if field.wire == 1 else 4
        if c.end - c.at < i:
            c.at = begin
            return False
        while i > 0:
            i -= 1
            value = (value << 8) | data[c.at + i]
        c.at += 8 if field.wire == 1 else 4
        field.value = <int64_t> value
        return True
    c.at = begin
    return False


def _check_extents(int64_t size, const int64_t[::1] starts, const int64_t[::1] ends):
    cdef Py_ssize_t i
    if starts.shape[0] != ends.shape[0]:
        raise ValueError("starts and ends differ in length")
    for i in range(starts.shape[0]):
        if starts[i] < 0 or ends[i] < starts[i] or ends[i] > size:
            raise ValueError(f"message {i} lies outside the buffer")


def scan(const uint8_t[::1] buffer, const int64_t[::1] starts, const int64_t[::1] ends, uint64_t wanted):
    cdef Py_ssize_t n = starts.shape[0], m, total = 0, row = 0
    cdef int64_t damage = -1
    cdef int round_
    cdef Cursor c
    cdef Field f
    cdef const uint8_t* data = &buffer[0] if buffer.shape[0] else NULL
    cdef int32_t[::1] parent_v = np.empty(0, np.int32), number_v = np.empty(0, np.int32)
    cdef int8_t[::1] wire_v = np.empty(0, np.int8)
    cdef int64_t[::1] value_v = np.empty(0, np.int64), size_v = np.empty(0, np.int64)
    cdef bint ok
    _check_extents(buffer.shape[0], starts, ends)
    for round_ in range(2):  # first count, then fill: no growing
        row = 0
        with nogil:
            for m in range(n):
                c.at = starts[m]
                c.end = ends[m]
                while c.at < c.end:
                    ok = read_field(data, &c, &f)
                    if not ok and damage < 0:
                        damage = c.at
                    if (ok or f.cut) and f.number < 64 and (wanted >> f.number) & 1:
                        if round_ == 1:
                            parent_v[row] = <int32_t> m
                            number_v[row] = <int32_t> f.number
                            wire_v[row] = <int8_t> f.wire
                            value_v[row] = f.value
                            size_v[row] = f.size
                        row += 1
                    if not ok:
                        break
        if round_ == 0:
            total = row
            parent_v = np.empty(total, np.int32)
            number_v = np.empty(total, np.int32)
            wire_v = np.empty(total, np.int8)
            value_v = np.empty(total, np.int64)
            size_v = np.empty(total, np.int64)
    return Fields(
        np.asarray(parent_v), np.asarray(number_v), np.asarray(wire_v), np.asarray(value_v),
        np.asarray(size_v), damage,
    )


cdef inline int64_t look_up(int64_t key, const int64_t[::1] keys, const int32_t[::1] rows) noexcept nogil:
    """The row of a key: directly where `keys` is empty (rows are indexed by key), else by bisection."""
    cdef Py_ssize_t low = 0, high = keys.shape[0], middle
    if high == 0:
        return rows[key] if 0 <= key < rows.shape[0] else -1
    while low < high:
        middle = (low + high) >> 1
        if keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return rows[low] if low < keys.shape[0] and keys[low] == key else -1


cdef struct Interner:
    int64_t* slots  # row + 1 in the table of texts; 0: free
    int64_t mask
    int64_t count


cdef inline uint64_t hash_bytes(const uint8_t* data, int64_t size) noexcept nogil:
    cdef uint64_t h = SEED ^ <uint64_t> size
    cdef int64_t i
    for i in range(size):
        h = (h ^ data[i]) * <uint64_t> 0x9E3779B97F4A7C15
        h ^= h >> 29
    return h


cdef inline int64_t floor_ns(int64_t ps) noexcept nogil:
    return ps // 1000 if ps >= 0 else -((999 - ps) // 1000)


cdef inline int64_t clamp(int64_t ps) noexcept nogil:
    return -LIMIT_PS if ps < -LIMIT_PS else (LIMIT_PS if ps > LIMIT_PS else ps)


def events(
    const uint8_t[::1] buffer, const int64_t[::1] starts, const int64_t[::1] ends,
    const int64_t[::1] metadata_keys, const int32_t[::1] metadata_rows,
    const int64_t[::1] stat_keys, const int32_t[::1] stat_rows,
    int ints, int texts, const uint8_t[::1] marked,
):
    cdef Py_ssize_t n = starts.shape[0], m, row = 0, mark = 0, total = 0
    cdef int64_t damage = -1, damaged = 0, negative = 0, aggregated = 0
    cdef Cursor c, e, s
    cdef Field f, g, h
    cdef const uint8_t* data = &buffer[0] if buffer.shape[0] else NULL
    cdef int64_t metadata, offset, duration, slot, key, code, r, start_ns, found_ref
    cdef int64_t found_value, found_start, found_size, shortest = SHORTEST_EVENT
    cdef int kind, k
    cdef bint good, aggregate
    cdef Interner names
    cdef int64_t[::1] text_start_v, text_size_v
    cdef uint64_t hashed
    _check_extents(buffer.shape[0], starts, ends)
    bounds = np.zeros(n + 1, np.int64)
    cdef int64_t[::1] bounds_v = bounds
    with nogil:  # count, so that the columns are allocated once
        for m in range(n):
            c.at = starts[m]
            c.end = ends[m]
            while c.at < c.end and read_field(data, &c, &f):
                if f.number == 4 and f.wire == 2 and f.size >= shortest:
                    total += 1
    if total > 0x7FFFFFFF:
        raise MemoryError("more than 2**31 events in one plane")
    row_of = np.empty(total, np.int32)
    start = np.empty(total, np.int64)
    length = np.empty(total, np.int64)
    int_columns = np.empty((ints, total), np.int64)
    text_columns = np.empty((texts, total), np.int32)
    cdef int32_t[::1] row_v = row_of
    cdef int64_t[::1] start_v = start, length_v = length
    cdef int64_t[:, ::1] int_v = int_columns
    cdef int32_t[:, ::1] text_v = text_columns
    mark_capacity = 1024
    mark_event = np.empty(mark_capacity, np.int64)
    mark_start = np.empty(mark_capacity, np.int64)
    mark_end = np.empty(mark_capacity, np.int64)
    cdef int64_t[::1] mark_event_v = mark_event, mark_start_v = mark_start, mark_end_v = mark_end
    text_start = np.empty(1024, np.int64)
    text_size = np.empty(1024, np.int64)
    text_start_v = text_start
    text_size_v = text_size
    names.mask = 4095
    names.count = 0
    names.slots = <int64_t*> calloc(names.mask + 1, sizeof(int64_t))
    if names.slots == NULL:
        raise MemoryError()
    try:
        with nogil:
            for m in range(n):
                bounds_v[m] = row
                c.at = starts[m]
                c.end = ends[m]
                while c.at < c.end:
                    if not read_field(data, &c, &f):
                        damaged += 1
                        if damage < 0:
                            damage = c.at
                        break
                    if f.number != 4 or f.wire != 2:
                        continue
                    if f.size < shortest:
                        damaged += 1
                        if damage < 0:
                            damage = f.value
                        continue
                    e.at = f.value
                    e.end = f.value + f.size
                    metadata = 0
                    offset = 0
                    duration = 0
                    good = True
                    aggregate = False
                    for k in range(ints):
                        int_v[k, row] = -1
                    for k in range(texts):
                        text_v[k, row] = -1
                    while e.at < e.end:
                        if not read_field(data, &e, &g):
                            good = False
                            if damage < 0:
                                damage = e.at
                            break
                        if g.wire == 0:
                            if g.number == 1:
                                metadata = g.value
                            elif g.number == 2:
                                offset = g.value
                            elif g.number == 3:
                                duration = g.value
                            elif g.number == 5:
                                aggregate = True
                        elif g.number == 4 and g.wire == 2:
                            s.at = g.value
                            s.end = g.value + g.size
                            key = 0
                            kind = 0
                            found_value = 0
                            found_start = 0
                            found_size = 0
                            while s.at < s.end:
                                if not read_field(data, &s, &h):
                                    good = False
                                    if damage < 0:
                                        damage = s.at
                                    break
                                if h.wire == 0:
                                    if h.number == 1:
                                        key = h.value
                                    elif h.number == 3 or h.number == 4:
                                        kind = 1
                                        found_value = h.value
                                    elif h.number == 7:
                                        kind = 2
                                        found_value = h.value
                                elif h.wire == 2 and h.number == 5:
                                    kind = 3
                                    found_start = h.value
                                    found_size = h.size
                            if not good:
                                break
                            if kind == 0:
                                continue
                            slot = look_up(key, stat_keys, stat_rows)
                            if slot < 0 or slot >= ints + texts:
                                continue
                            if slot < ints:
                                if kind == 1:
                                    int_v[slot, row] = found_value
                                continue
                            if kind == 2:
                                if 0 <= found_value < 0x7FFFFFFF:
                                    text_v[slot - ints, row] = <int32_t> found_value
                            elif kind == 3:
                                hashed = hash_bytes(data + found_start, found_size)
                                while True:
                                    hashed &= <uint64_t> names.mask
                                    r = names.slots[hashed] - 1
                                    if r < 0 or (
                                        text_size_v[r] == found_size
                                        and memcmp(data + text_start_v[r], data + found_start, found_size) == 0
                                    ):
                                        break
                                    hashed += 1
                                if r < 0:
                                    if names.count == text_start_v.shape[0]:
                                        with gil:
                                            text_start = np.concatenate([text_start, np.empty_like(text_start)])
                                            text_size = np.concatenate([text_size, np.empty_like(text_size)])
                                            text_start_v = text_start
                                            text_size_v = text_size
                                    r = names.count
                                    names.count += 1
                                    text_start_v[r] = found_start
                                    text_size_v[r] = found_size
                                    names.slots[hashed] = r + 1
                                    if names.count * 2 > names.mask:
                                        if not grow(&names, data, text_start_v, text_size_v):
                                            with gil:
                                                raise MemoryError()
                                text_v[slot - ints, row] = <int32_t> (-2 - r)
                    if not good:
                        damaged += 1
                        continue
                    if aggregate:
                        aggregated += 1
                        continue
                    r = look_up(metadata, metadata_keys, metadata_rows)
                    offset = clamp(offset)
                    duration = clamp(duration)
                    if duration < 0:
                        negative += 1
                        duration = 0
                    duration = clamp(offset + duration)
                    start_ns = floor_ns(offset)
                    row_v[row] = <int32_t> r
                    start_v[row] = start_ns
                    length_v[row] = floor_ns(duration) - start_ns
                    if 0 <= r < marked.shape[0] and marked[r]:
                        if mark == mark_event_v.shape[0]:
                            with gil:
                                mark_event = np.concatenate([mark_event, np.empty_like(mark_event)])
                                mark_start = np.concatenate([mark_start, np.empty_like(mark_start)])
                                mark_end = np.concatenate([mark_end, np.empty_like(mark_end)])
                                mark_event_v = mark_event
                                mark_start_v = mark_start
                                mark_end_v = mark_end
                        mark_event_v[mark] = row
                        mark_start_v[mark] = f.value
                        mark_end_v[mark] = f.value + f.size
                        mark += 1
                    row += 1
            bounds_v[n] = row
    finally:
        free(names.slots)
    return EventColumns(
        bounds, row_of[:row], start[:row], length[:row], int_columns[:, :row], text_columns[:, :row],
        text_start[: names.count].copy(), text_size[: names.count].copy(),
        mark_event[:mark].copy(), mark_start[:mark].copy(), mark_end[:mark].copy(),
        damage, damaged, negative, aggregated,
    )


cdef bint grow(Interner* names, const uint8_t* data, int64_t[::1] starts, int64_t[::1] sizes) noexcept nogil:
    cdef int64_t mask = names.mask * 4 + 3
    cdef int64_t* slots = <int64_t*> calloc(mask + 1, sizeof(int64_t))
    cdef int64_t i
    cdef uint64_t hashed
    if slots == NULL:
        return False
    for i in range(names.count):
        hashed = hash_bytes(data + starts[i], sizes[i]) & <uint64_t> mask
        while slots[hashed]:
            hashed = (hashed + 1) & <uint64_t> mask
        slots[hashed] = i + 1
    free(names.slots)
    names.slots = slots
    names.mask = mask
    return True
