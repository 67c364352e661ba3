"""Bounds of the sizes, counts and times that come from files: what lies beyond one was never measured.

Each is checked where the value enters, and what is beyond it is absent or left out. So arithmetic on what
was read overflows nowhere: the sum of a date and two times fits into 64 bits, the product of all dimensions
of two shapes into a float.
"""

from __future__ import annotations

import numpy as np

from mpprof.model.arrays import Int64

EARLIEST_UNIX_NS = 10**17
"""Times above it count from 1970, smaller ones (three years) from the start of a profile or of a process."""
LATEST_UNIX_NS = 1 << 62
"""The year 2116."""
LONGEST_NS = 1 << 61
"""Times and durations that count from no date: 73 years."""

LONGEST_SUM_NS = 1 << 62
"""What times add up to: a sum of more is this."""

MOST_DIMENSIONS, LARGEST_DIMENSION = 16, 1 << 48
"""Dimensions of a shape, and elements along one."""

LARGEST_BLOCK_BYTES, LARGEST_MEMORY_BYTES = 1 << 42, 1 << 52
"""One allocation, and all that a device or a host holds: a million blocks add up to less than 64 bits."""

LOWEST_SCALE_EXPONENT = -24
"""Of two, of the loss scales that a look tries: a gradient that overflows there is beyond all use."""

LARGEST_NUMBER = 1 << 61
"""Bytes, parameters, steps and other counts."""

LONGEST_NAME, LONGEST_TEXT = 1_000, 100_000
"""Characters of a layer's, a class' or a type's name, and of any other text (a reason, a command line)."""
LARGEST_BATCH = 1_000_000_000
"""Examples of a step that a forecast is asked for."""
MOST_LAYERS = 10_000
"""Layers of a model, and its outputs."""
DEEPEST_LAYER = 32
"""Models that lie in one another, each a part of a layer's path: some five in real ones."""
DEEPEST_OBJECT = 2 * DEEPEST_LAYER
"""Objects of a saved model that lie in one another: models, wrappers, layers and what these hold."""
MOST_INPUTS = 1_024
"""Tensors that one layer takes or gives."""
MOST_FITS, MOST_WINDOWS = 10_000, 1_000
"""Calls of `fit` in a run, and its profile windows."""
MOST_SPENT_NAMES = 1_000
"""What time of a run is recorded of, each by its name: callbacks, inputs and compilers in their places."""
MOST_LOOKS = 1_000
"""Looks at the numbers by layer: the callback makes 8 a run."""
MOST_GPUS = 1_024
"""Devices of a process, and the number of a GPU in a sample."""
MOST_DEVICES = 256
"""Devices of one trace."""
MOST_KERNELS, MOST_OPS = 20_000, 50_000
"""Kernels of a trace that differ in name, op or shapes, and its ops; large models have some thousands."""
MOST_INSTRUCTIONS = 20_000
"""Instructions of compiled programs that are read for a trace; large models run some thousands."""
MEAN_OPERANDS = 64
"""What an instruction of a compiled program reads, on average over the program; two or three in real ones, of
which single ones (a tuple of all variables) read thousands."""
MOST_COVERED = 1_000_000
"""Steps that one call may claim; Keras' `steps_per_execution` is some hundred at most."""
MOST_EPOCHS, MOST_SKIPPED = 1 << 31, 1 << 31
"""Number of an epoch, and updates skipped between two readings: what is made of them fits into 64 bits."""
MOST_BAD_LINES = 100_000
"""Damaged lines of a log; after so many the rest is not read."""
MOST_ENTRIES, DEEPEST_ENTRY = 10_000, 16
"""Entries of a list or an object whose content is not ours (a layer's config, versions, reasons), and how
deep they may lie in one another."""
MOST_THROTTLES, MOST_THROTTLE_SETS = 32, 1_024
"""Reasons for a lower clock in one sample, and sets of them in a run; NVML knows nine: 512 sets."""
MOST_LINES = 2_000_000
"""Lines read of a step log or of samples, before its end: the steps of five hours at 100 a second."""
LONGEST_DAMAGE_BYTES = 1 << 28
"""Bytes of a text file that are looked through for the next whole line or event. A sparse file may have a
gap of any length, which takes no space on the disk."""
LONGEST_RAW_TEXT_BYTES = 1 << 18
"""Of a text, a field of bytes or a list of numbers in an xplane that are read; the longest in real ones are
instructions with thousands of operands."""

UNPACKED_RATIO, XPLANE_UNPACKED_RATIO = 30, 20
"""What a packed file may unpack to, as a multiple of its size: JSON and bundles, and xplanes. The largest
measured of real traces: 21 for JSON, 7 for xplanes."""
MEMBERS_OF_SMALL_PACKED, PACKED_BYTES_OF_MEMBER = 1_000, 100
"""Members of a gzip file, each packed by itself: so many, or where that is more, one for each so many packed
bytes; those of tools that pack in blocks have thousands."""
EVENTS_OF_SMALL_PACKED, PACKED_BYTES_OF_EVENT = 1_000_000, 10
"""Events read of a packed JSON file: so many, or where that is more, one for each so many packed
bytes; real traces have 15 and more for each."""
FIELDS_OF_SMALL_PACKED, PACKED_BYTES_OF_FIELD = 2_000_000, 3
"""Fields of the lines, events and names in a packed xplane: so many, or where that is more, one for each so
many packed bytes; real ones have 4.7 and more for each."""

MOST_LEVELS = 64
"""Directories below one another under a log directory; a run's own lie three or four levels down."""


def sizes(column: Int64, largest: int) -> Int64:
    """Return the sizes in bytes, -1 for those that are larger than any possible size."""
    if column.max(initial=-1) <= largest:
        return column
    return np.where(column <= largest, column, -1)


def unix_ns(value: object) -> int | None:
    """Return a time since 1970; None where the value is no such time."""
    known = isinstance(value, int) and EARLIEST_UNIX_NS < value < LATEST_UNIX_NS
    return value if known and not isinstance(value, bool) else None  # type: ignore[return-value]


MOST_WEIGHTS_NAMED = 20
"""Of a model's weights that are not finite, so many are recorded; more are not looked for."""
LONG_CALL_NS = 10_000_000
"""A call of a callback or for a batch that takes so long, and twice as long as its like so far, has a line of
its own in the step log: it is a stall, and can then be placed."""
