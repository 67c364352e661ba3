"""A sink that writes TensorBoard's event files, without TensorFlow and without TensorBoard.

An event file is a TFRecord file: per record its length (8 bytes), a masked CRC-32C of those, the bytes, and a
masked CRC-32C of these (tensorflow/core/lib/io/record_writer.h). A record is an `Event` message
(tensorflow/core/util/event.proto): wall_time = 1 (double), step = 2 (int64), file_version = 3 (string),
summary = 5 (Summary { value = 1 { tag = 1, simple_value = 2 (float) } }).
"""

from __future__ import annotations

import os
import platform
import struct
import time
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from mpprof.store.writing import open_above_standard

_POLYNOMIAL = 0x82F63B78
"""Castagnoli's, bits reversed: RFC 3720, appendix B.4."""
_MASK = 0xA282EAD8
"""TFRecord's mask of a checksum: tensorflow/core/lib/hash/crc32c.h."""


def _table() -> tuple[int, ...]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return tuple(table)


_TABLE = _table()


def crc32c(data: bytes) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _TABLE[(crc ^ byte) & 0xFF] ^ crc >> 8
    return crc ^ 0xFFFFFFFF


def record(data: bytes) -> bytes:
    """Return the bytes of one TFRecord."""
    length = struct.pack("<Q", len(data))
    return length + _masked(length) + data + _masked(data)


def _masked(data: bytes) -> bytes:
    crc = crc32c(data)
    return struct.pack("<I", ((crc >> 15 | crc << 17) + _MASK) & 0xFFFFFFFF)


def event(unix_s: float, step: int, values: Mapping[str, float]) -> bytes:
    """Return an `Event` with one scalar per value; `step` >= 0."""
    summary = b"".join(_field(1, _field(1, tag.encode()) + _float(2, value)) for tag, value in values.items())
    return _double(1, unix_s) + b"\x10" + _varint(step) + _field(5, summary)


def _field(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _double(number: int, value: float) -> bytes:
    return _varint(number << 3 | 1) + struct.pack("<d", value)


def _float(number: int, value: float) -> bytes:
    try:
        packed = struct.pack("<f", value)
    except OverflowError:  # beyond float32
        packed = struct.pack("<f", float("inf") if value > 0 else float("-inf"))
    return _varint(number << 3 | 5) + packed


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class EventFile:
    """Writes `mpprof/…` scalars into `folder`, a file per `fit`; TensorBoard shows them as the run of that
    name. Raises OSError."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._file: BinaryIO | None = None
        self._files = 0

    def scalars(self, step: int, unix_s: float, values: Mapping[str, float]) -> None:
        if self._file is None:
            self._file = self._open()
        self._file.write(record(event(unix_s, step, values)))
        self._file.flush()

    def close(self) -> None:
        if self._file is not None:
            self._file.close()
        self._file = None

    def _open(self) -> BinaryIO:
        self._files += 1
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{platform.node()}.{os.getpid()}.{self._files}.mpprof"
        file = open(self._folder / name, "xb", opener=open_above_standard)  # noqa: SIM115 - `close` does
        file.write(record(_double(1, now) + _field(3, b"brain.Event:2")))
        return file
