# cython: language_level=3, boundscheck=False, wraparound=False, cdivision=True, initializedcheck=False
"""The compiled walk over the protobuf wire format: same columns as `walk_reference`, which explains them.

Every read of the buffer is checked against the end of the message that it belongs to, and `_check_extents`
keeps every message inside the buffer. Every write goes to a row below `Walk.room`. What is done for each event
stands in functions of their own, without Python: only so does the C compiler take it for the hot part.
"""

import numpy as np

from libc.stdint cimport int8_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, realloc
from libc.string cimport memcmp, memset

import os

from mpprof.traces.common.walk_reference import SHORTEST_EVENT, EventColumns, Fields

CALLS = 4  # as in walk_reference when this was built

cdef extern from *:
    """
    #define LIMIT_PS ((int64_t) 1 << 61)
    """
    const int64_t LIMIT_PS  # twice that still fits
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
    while at < c.end and shift < 70:  # the tenth byte is shifted by 63
        byte = data[at]
        at += 1
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
    cdef int64_t at = c.at, left = c.end - at - 2
    cdef uint64_t value
    cdef uint8_t tag
    if left >= 0:  # most fields are a number, or a few bytes, with a tag of one byte
        tag = data[at]
        value = data[at + 1]
        if 8 <= tag < 0x80:
            field.number = tag >> 3
            field.wire = tag & 7
            field.cut = False
            if field.wire == 0:
                c.at = at + 1
                if not read_varint(data, c, &value):
                    c.at = at
                    return False
                field.value = <int64_t> value
                field.size = -1
                return True
            if field.wire == 2 and value < 0x80 and <int64_t> value <= left:
                field.value = at + 2
                field.size = <int64_t> value
                c.at = at + 2 + field.size
                return True
    return read_any_field(data, c, field)


cdef bint read_any_field(const uint8_t* data, Cursor* c, Field* field) noexcept nogil:
    """`read_field`, of whatever length."""
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


cdef enum:
    FIRST_ROOM = 1024  # rows: a plane has tens of lines, and a line a few fields beside its events


def scan(const uint8_t[::1] buffer, const int64_t[::1] starts, const int64_t[::1] ends, uint64_t wanted):
    cdef Py_ssize_t n = starts.shape[0], m, room = FIRST_ROOM, row = 0
    cdef int64_t damage = -1
    cdef Cursor c
    cdef Field f
    cdef const uint8_t* data = &buffer[0] if buffer.shape[0] else NULL
    cdef int32_t[::1] parent_v, number_v
    cdef int8_t[::1] wire_v
    cdef int64_t[::1] value_v, size_v
    cdef bint ok
    _check_extents(buffer.shape[0], starts, ends)
    while True:  # rows beyond the room are only counted: once more, with room for them all
        parent_v = np.empty(room, np.int32)
        number_v = np.empty(room, np.int32)
        wire_v = np.empty(room, np.int8)
        value_v = np.empty(room, np.int64)
        size_v = np.empty(room, np.int64)
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
                        if row < room:
                            parent_v[row] = <int32_t> m
                            number_v[row] = <int32_t> f.number
                            wire_v[row] = <int8_t> f.wire
                            value_v[row] = f.value
                            size_v[row] = f.size
                        row += 1
                    if not ok:
                        break
        if row <= room:
            break
        room = row
    return Fields(
        np.asarray(parent_v[:row]), np.asarray(number_v[:row]), np.asarray(wire_v[:row]),
        np.asarray(value_v[:row]), np.asarray(size_v[:row]), damage,
    )


def fields(const uint8_t[::1] buffer, int64_t start, int64_t end):
    cdef Cursor c
    cdef Field f
    cdef const uint8_t* data = &buffer[0] if buffer.shape[0] else NULL
    cdef bint ok = True
    cdef list found = []
    if start < 0 or end < start or end > buffer.shape[0]:
        raise ValueError("message 0 lies outside the buffer")
    c.at = start
    c.end = end
    while ok and c.at < c.end:
        ok = read_field(data, &c, &f)
        if (ok or f.cut) and f.number < 64:
            found.append((f.number, f.wire, f.value, f.size))
    return found


cdef struct Table:
    const int64_t* keys  # sorted; none: `rows` are indexed by key
    const int32_t* rows
    int64_t count  # of keys, or of rows where there are none
    bint direct


cdef Table table_of(const int64_t[::1] keys, const int32_t[::1] rows):
    cdef Table table
    if keys.shape[0] > rows.shape[0]:
        raise ValueError("a table has fewer rows than keys")
    table.direct = keys.shape[0] == 0
    table.count = rows.shape[0] if table.direct else keys.shape[0]
    table.keys = NULL
    table.rows = NULL
    if keys.shape[0]:
        table.keys = &keys[0]
    if rows.shape[0]:
        table.rows = &rows[0]
    return table


cdef inline int64_t look_up(int64_t key, const Table* table) noexcept nogil:
    """The row of a key: directly, or by bisection; -1 where there is none."""
    cdef int64_t low = 0, high = table.count, middle
    if table.direct:
        return table.rows[key] if 0 <= key < high else -1
    while low < high:
        middle = (low + high) >> 1
        if table.keys[middle] < key:
            low = middle + 1
        else:
            high = middle
    return table.rows[low] if low < table.count and table.keys[low] == key else -1


cdef struct Texts:  # the distinct texts met, numbered in the order of first use
    int64_t* slots  # number + 1; 0: free
    int64_t mask
    int64_t count
    int64_t* starts  # half as many as slots
    int64_t* sizes


cdef bint grow(const uint8_t* data, Texts* texts, int64_t mask) noexcept nogil:
    """Room for half of `mask + 1` texts; False where there is no memory for it."""
    cdef int64_t* slots = <int64_t*> calloc(mask + 1, sizeof(int64_t))
    cdef int64_t* starts = <int64_t*> realloc(texts.starts, (mask + 1) // 2 * sizeof(int64_t))
    cdef int64_t* sizes = NULL
    cdef int64_t i
    cdef uint64_t hashed
    if starts != NULL:
        texts.starts = starts
        sizes = <int64_t*> realloc(texts.sizes, (mask + 1) // 2 * sizeof(int64_t))
    if sizes != NULL:
        texts.sizes = sizes
    if slots == NULL or starts == NULL or sizes == NULL:
        free(slots)
        return False
    for i in range(texts.count):
        hashed = hash_bytes(data + starts[i], sizes[i]) & <uint64_t> mask
        while slots[hashed]:
            hashed = (hashed + 1) & <uint64_t> mask
        slots[hashed] = i + 1
    free(texts.slots)
    texts.slots = slots
    texts.mask = mask
    return True


cdef int64_t number_of(const uint8_t* data, Texts* texts, int64_t start, int64_t size) noexcept nogil:
    """The number of a text; -1 where there is no memory for one more."""
    cdef uint64_t hashed = hash_bytes(data + start, size) & <uint64_t> texts.mask
    cdef int64_t number
    while texts.slots[hashed]:
        number = texts.slots[hashed] - 1
        if texts.sizes[number] == size and memcmp(data + texts.starts[number], data + start, size) == 0:
            return number
        hashed = (hashed + 1) & <uint64_t> texts.mask
    number = texts.count
    texts.count += 1
    texts.starts[number] = start
    texts.sizes[number] = size
    texts.slots[hashed] = number + 1
    if texts.count * 2 > texts.mask and not grow(data, texts, texts.mask * 4 + 3):
        return -1
    return number


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


cdef struct Stat:
    int64_t key
    int kind  # 0: no value that is read; 1: a whole number; 2: a reference; 3: a text
    int64_t value  # of a text its start
    int64_t size


cdef bint read_stat(const uint8_t* data, Cursor* c, Stat* stat) noexcept nogil:
    """False, with the cursor at the damaged byte, if the stat cannot be read to its end."""
    cdef Field field
    stat.key = 0
    stat.kind = 0
    stat.value = 0
    stat.size = 0
    while c.at < c.end:
        if not read_field(data, c, &field):
            return False
        if field.wire == 0:
            if field.number == 1:
                stat.key = field.value
            elif field.number == 3 or field.number == 4:
                stat.kind = 1
                stat.value = field.value
            elif field.number == 7:
                stat.kind = 2
                stat.value = field.value
        elif field.wire == 2 and field.number == 5:
            stat.kind = 3
            stat.value = field.value
            stat.size = field.size
    return True


cdef struct Event:
    int64_t metadata
    int64_t offset
    int64_t duration
    bint aggregated


cdef struct Walk:
    const uint8_t* data
    Table metadata
    Table stats
    const int32_t* slots  # the column of each row of `stats`
    int64_t slot_count
    const uint8_t* marked
    int64_t marks_wanted  # rows of `marked`
    int64_t room  # rows of the columns
    int64_t row  # the next one
    int32_t* rows
    int64_t* starts
    int64_t* durations
    int ints
    int texts
    int64_t* int_columns  # one after the other
    int32_t* text_columns
    Texts names
    int64_t* marks  # row, start (of its tag) and end of each
    int64_t mark_count
    int64_t mark_room
    bint no_memory
    int64_t damage
    int64_t damaged
    int64_t negative
    int64_t aggregated


cdef inline void at_damage(Walk* walk, int64_t at) noexcept nogil:
    walk.damaged += 1
    if walk.damage < 0:
        walk.damage = at


cdef bint keep_stat(Walk* walk, Stat* stat) noexcept nogil:
    """Into the column of the stat, if it is wanted. False where there is no memory for its text."""
    cdef int64_t number, slot, row = look_up(stat.key, &walk.stats)
    if row < 0 or row >= walk.slot_count:
        return True
    slot = walk.slots[row]
    if slot < 0 or slot >= walk.ints + walk.texts:
        return True
    if slot < walk.ints:
        if stat.kind == 1:
            walk.int_columns[slot * walk.room + walk.row] = stat.value
        return True
    slot = (slot - walk.ints) * walk.room + walk.row
    if stat.kind == 2:
        walk.text_columns[slot] = <int32_t> look_up(stat.value, &walk.stats)
    elif stat.kind == 3:
        number = number_of(walk.data, &walk.names, stat.value, stat.size)
        if number < 0:
            return False
        walk.text_columns[slot] = <int32_t> (-2 - number)
    return True


cdef bint read_event(Walk* walk, Cursor* c, Event* event) noexcept nogil:
    """Its stats go into their columns. False, with the cursor at the damaged byte, if it cannot be read."""
    cdef Field field
    cdef Cursor inner
    cdef Stat stat
    cdef int k
    event.metadata = 0
    event.offset = 0
    event.duration = 0
    event.aggregated = False
    for k in range(walk.ints):
        walk.int_columns[k * walk.room + walk.row] = -1
    for k in range(walk.texts):
        walk.text_columns[k * walk.room + walk.row] = -1
    while c.at < c.end:
        if not read_field(walk.data, c, &field):
            return False
        if field.wire == 0:
            if field.number == 1:
                event.metadata = field.value
            elif field.number == 2:
                event.offset = field.value
            elif field.number == 3:
                event.duration = field.value
            elif field.number == 5:
                event.aggregated = True
        elif field.number == 4 and field.wire == 2:
            inner.at = field.value
            inner.end = field.value + field.size
            if not read_stat(walk.data, &inner, &stat):
                c.at = inner.at
                return False
            if stat.kind and not keep_stat(walk, &stat):
                walk.no_memory = True
                return True
    return True


cdef bint keep_event(Walk* walk, Event* event, int64_t begin, int64_t end) noexcept nogil:
    """Into the row. False where there is no memory for its mark."""
    cdef int64_t start_ns, offset = clamp(event.offset), duration = clamp(event.duration)
    cdef int64_t r = look_up(event.metadata, &walk.metadata)
    cdef int64_t* marks
    if duration < 0:
        walk.negative += 1
        duration = 0
    start_ns = floor_ns(offset)
    walk.rows[walk.row] = <int32_t> r
    walk.starts[walk.row] = start_ns
    walk.durations[walk.row] = floor_ns(clamp(offset + duration)) - start_ns
    if 0 <= r < walk.marks_wanted and walk.marked[r]:
        if walk.mark_count == walk.mark_room:
            marks = <int64_t*> realloc(walk.marks, (2 * walk.mark_room + 64) * 3 * sizeof(int64_t))
            if marks == NULL:
                return False
            walk.marks = marks
            walk.mark_room = 2 * walk.mark_room + 64
        marks = walk.marks + 3 * walk.mark_count
        marks[0] = walk.row
        marks[1] = begin
        marks[2] = end
        walk.mark_count += 1
    walk.row += 1
    return True


cdef void walk_line(Walk* walk, Cursor c, int64_t shortest) noexcept nogil:
    cdef Field field
    cdef Cursor inner
    cdef Event event
    cdef int64_t begin
    while c.at < c.end and not walk.no_memory:
        begin = c.at
        if not read_field(walk.data, &c, &field):
            at_damage(walk, c.at)
            return
        if field.number != 4 or field.wire != 2:
            continue
        if field.size < shortest or walk.row == walk.room:
            at_damage(walk, field.value)
            continue
        inner.at = field.value
        inner.end = field.value + field.size
        if not read_event(walk, &inner, &event):
            at_damage(walk, inner.at)
        elif event.aggregated:
            walk.aggregated += 1
        elif not keep_event(walk, &event, begin, inner.end):
            walk.no_memory = True


cdef int64_t count_events(const uint8_t* data, Cursor c, int64_t shortest) noexcept nogil:
    cdef Field field
    cdef int64_t count = 0
    while c.at < c.end and read_field(data, &c, &field):
        if field.number == 4 and field.wire == 2 and field.size >= shortest:
            count += 1
    return count


def events(
    const uint8_t[::1] buffer, const int64_t[::1] starts, const int64_t[::1] ends,
    const int64_t[::1] metadata_keys, const int32_t[::1] metadata_rows,
    const int64_t[::1] stat_keys, const int32_t[::1] stat_rows, const int32_t[::1] stat_slots,
    int ints, int texts, const uint8_t[::1] marked,
):
    cdef Py_ssize_t n = starts.shape[0], m
    cdef int64_t shortest = SHORTEST_EVENT
    cdef Cursor c
    cdef Walk walk
    _check_extents(buffer.shape[0], starts, ends)
    memset(&walk, 0, sizeof(Walk))
    if buffer.shape[0]:
        walk.data = &buffer[0]
    walk.metadata = table_of(metadata_keys, metadata_rows)
    walk.stats = table_of(stat_keys, stat_rows)
    if stat_slots.shape[0]:
        walk.slots = &stat_slots[0]
    walk.slot_count = stat_slots.shape[0]
    if marked.shape[0]:
        walk.marked = &marked[0]
    walk.marks_wanted = marked.shape[0]
    walk.ints = ints
    walk.texts = texts
    walk.damage = -1
    bounds = np.zeros(n + 1, np.int64)
    cdef int64_t[::1] bounds_v = bounds
    with nogil:  # count, so that the columns are allocated once
        for m in range(n):
            c.at = starts[m]
            c.end = ends[m]
            walk.room += count_events(walk.data, c, shortest)
    if walk.room > 0x7FFFFFFF:
        raise MemoryError("more than 2**31 events in one plane")
    # One row at least, so that each has an address.
    row_of = np.empty(max(walk.room, 1), np.int32)
    start = np.empty(max(walk.room, 1), np.int64)
    length = np.empty(max(walk.room, 1), np.int64)
    int_columns = np.empty((ints, walk.room), np.int64)
    text_columns = np.empty((texts, walk.room), np.int32)
    cdef int32_t[::1] row_v = row_of, text_v = text_columns.reshape(-1)
    cdef int64_t[::1] start_v = start, length_v = length, int_v = int_columns.reshape(-1)
    walk.rows = &row_v[0]
    walk.starts = &start_v[0]
    walk.durations = &length_v[0]
    walk.int_columns = &int_v[0] if int_v.shape[0] else NULL
    walk.text_columns = &text_v[0] if text_v.shape[0] else NULL
    try:
        if not grow(walk.data, &walk.names, 4095):
            raise MemoryError()
        with nogil:
            for m in range(n):
                bounds_v[m] = walk.row
                c.at = starts[m]
                c.end = ends[m]
                walk_line(&walk, c, shortest)
            bounds_v[n] = walk.row
        if walk.no_memory:
            raise MemoryError()
        marks = column(walk.marks, 3 * walk.mark_count).reshape(-1, 3)
        return EventColumns(
            bounds, row_of[:walk.row], start[:walk.row], length[:walk.row],
            int_columns[:, :walk.row], text_columns[:, :walk.row],
            column(walk.names.starts, walk.names.count), column(walk.names.sizes, walk.names.count),
            marks[:, 0].copy(), marks[:, 1].copy(), marks[:, 2].copy(),
            walk.damage, walk.damaged, walk.negative, walk.aggregated,
        )
    finally:
        free(walk.names.slots)
        free(walk.names.starts)
        free(walk.names.sizes)
        free(walk.marks)


cdef column(const int64_t* values, int64_t count):
    """A copy as an array."""
    copy = np.empty(count, np.int64)
    cdef int64_t[::1] copy_v = copy
    cdef int64_t i
    for i in range(count):
        copy_v[i] = values[i]
    return copy
