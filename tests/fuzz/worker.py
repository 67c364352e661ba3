"""One process that reads damaged files; what it must not do ends it.

    python -m tests.fuzz.worker TARGET FIRST COUNT SECONDS FOLDER [WALK]

Input number N of a target is the same on every machine. Its number stands in `FOLDER/number` while it is read,
and its bytes in `FOLDER/input`; a summary is printed as JSON at the end. WALK: another build of the compiled
walk. Reading may take SECONDS of processor time, write nothing but its cache, start no process, and call nobody.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import mmap
import os
import random
import resource
import shutil
import signal
import struct
import sys
import time
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

MEMORY_MULTIPLE, MEMORY_BASE = 64, 100 << 20
"""What reading may take at most: so many times the file's bytes, and so many more."""

_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_FORBIDDEN = frozenset(
    ("os.remove", "os.rename", "os.mkdir", "os.rmdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.system",
     "subprocess.Popen", "os.exec", "os.fork", "os.posix_spawn", "socket.connect", "shutil.rmtree", "tempfile.mkstemp")
)  # fmt: skip


class Watch:
    """Refuses whatever a reader must not do, while one is at work."""

    def __init__(self) -> None:
        self.on = False
        sys.addaudithook(self._hook)

    def _hook(self, event: str, args: tuple[Any, ...]) -> None:
        if not self.on:
            return
        writes = (
            event == "open" and isinstance(args[2], int) and args[2] & _WRITING and str(args[0]) != os.devnull
        )
        if writes or event in _FORBIDDEN:
            raise AssertionError(f"a reader did {event}{args[:2]}")


class OtherWalk(MetaPathFinder):
    """Finds another build of the compiled walk in place of the installed one."""

    NAME = "mpprof.traces.common._walk"

    def __init__(self, file: Path) -> None:
        self.file = file

    def find_spec(self, name: str, path: Any, target: Any = None) -> ModuleSpec | None:
        return spec_from_file_location(name, self.file) if name == self.NAME else None


def peak_bytes() -> int:
    """The most that this process has held at once. `ru_maxrss` would count what the parent held before exec."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/self/status").read_bytes().splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def forget_peak() -> None:
    """The peak starts again from what is held now: a large input before, or the making of one, is not the
    next one's. Without Linux' clear_refs the peak stays, and the bound is the laxer for it."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


LARGEST = 4 << 20
"""Repetition on repetition would make inputs of hundreds of megabytes, which tell no more and take the time."""


def made(target: Any, number: int) -> bytes:
    """Input `number` of a target; 0 and the next few are the whole files."""
    whole = target.seeds()
    if number < len(whole):
        return bytes(whole[number])
    dice = random.Random(f"{target.name} {number}")
    return bytes(target.mutate(dice, dice.choice(whole)))[:LARGEST] or b"\n"


def write_anew(path: Path, data: bytes) -> None:
    """Over a file that is there, ext4 waits for the disk: 4 ms each time."""
    path.unlink(missing_ok=True)
    path.write_bytes(data)


def run(target: Any, first: int, count: int, seconds: float, folder: Path) -> dict[str, Any]:
    from mpprof.errors import MpprofError
    from tests.fuzz import seeds

    path = folder / "root" / target.file
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.parent.name == "mpprof":
        for name in ("run.json", "steps.jsonl", "hardware.jsonl"):
            shutil.copyfile(seeds.SAMPLE / name, path.parent / name)
    before = sorted(path.parent.iterdir())
    watch, outcomes = Watch(), {"whole": 0, "warned": 0, "refused": 0}
    (folder / "number").write_bytes(b"\0" * 8)
    with (folder / "number").open("r+b") as file:
        number_at = mmap.mmap(file.fileno(), 8)
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, all_threads=False, chain=True)
    for data in target.seeds():  # imports and tables come with the first whole files
        write_anew(path, data)
        target.read(path)
    base, slowest, longest, largest = peak_bytes(), 0, 0.0, 0
    first_base = highest = base
    began = time.perf_counter()
    for number in range(first, first + count):
        data = made(target, number)
        number_at[:] = struct.pack("<q", number)
        write_anew(path, data)
        largest = max(largest, len(data))
        if peak_bytes() - base > MEMORY_BASE // 4:
            highest = max(highest, peak_bytes())
            forget_peak()
            base = peak_bytes()
        signal.setitimer(signal.ITIMER_PROF, seconds)
        at = time.process_time()
        watch.on = True
        try:
            outcomes["warned" if target.read(path) else "whole"] += 1
        except MpprofError:
            outcomes["refused"] += 1
        finally:
            watch.on = False
            signal.setitimer(signal.ITIMER_PROF, 0)
        took = time.process_time() - at
        if took > longest:
            longest, slowest = took, number
        over = peak_bytes() - base - MEMORY_MULTIPLE * len(data)
        assert over < MEMORY_BASE, (
            f"{len(data)} bytes took {(over >> 20) + 1} MiB beyond {MEMORY_MULTIPLE} times that"
        )
    path.unlink(missing_ok=True)
    left = sorted(path.parent.iterdir())
    assert not set(left) - set(before), f"files were left behind: {left}"
    return {
        "executions": count, **outcomes, "seconds": round(time.perf_counter() - began, 1),
        "slowest_s": round(longest, 4), "slowest": slowest, "largest_bytes": largest, "peak_mib": max(highest, peak_bytes()) >> 20,
        "base_mib": first_base >> 20,
        "walk": getattr(sys.modules.get(OtherWalk.NAME), "__file__", None),
    }  # fmt: skip


def main(arguments: list[str]) -> None:
    name, first, count, seconds, folder, *walk = arguments
    if walk:
        sys.meta_path.insert(0, OtherWalk(Path(walk[0])))
    from tests.fuzz.targets import BY_NAME

    print(json.dumps(run(BY_NAME[name], int(first), int(count), float(seconds), Path(folder))))


if __name__ == "__main__":
    main(sys.argv[1:])
