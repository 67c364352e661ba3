"""One process that reads files drawn from a grammar, and holds each so often beside its twin.

    python -m tests.fuzz.grammar.worker GRAMMAR FIRST COUNT SECONDS FOLDER EVERY

Each input is read; of one in EVERY the whole report is made, and that of its twin, which must say the same.
Reading may take SECONDS of processor time, write nothing, start no process, and call nobody.
"""

from __future__ import annotations

import faulthandler
import json
import mmap
import shutil
import signal
import struct
import sys
import time
from pathlib import Path
from typing import Any

from tests.fuzz.worker import Watch, forget_peak, peak_bytes, write_anew

MOST_BYTES = 1 << 30
"""Of memory beyond what is held before an input is read."""


def put(folder: Path, files: dict[str, bytes]) -> None:
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        write_anew(folder / name, content)


def run(name: str, first: int, count: int, seconds: float, folder: Path, every: int) -> dict[str, Any]:
    from mpprof import store, traces
    from mpprof.errors import MpprofError
    from tests.fuzz.grammar import saying
    from tests.fuzz.grammar.grammars import BY_NAME, pair, single
    from tests.fuzz.targets import check

    grammar, watch = BY_NAME[name], Watch()
    one = folder / "one"
    (folder / "number").write_bytes(b"\0" * 8)
    with (folder / "number").open("r+b") as file:
        number_at = mmap.mmap(file.fileno(), 8)
    faulthandler.enable()
    faulthandler.register(signal.SIGPROF, all_threads=False, chain=True)

    def read(path: Path) -> None:
        if path.is_dir():
            store.read_records(path)
        else:
            check(traces.read(path))

    def timed(call: Any, path: Path) -> Any:
        """What it says; None where it is refused."""
        signal.setitimer(signal.ITIMER_PROF, seconds)
        watch.on = True
        try:
            return call(path) or {}
        except MpprofError:
            return None
        finally:
            watch.on = False
            signal.setitimer(signal.ITIMER_PROF, 0)

    figures: dict[str, Any] = {
        "executions": count,
        "pairs": 0,
        "refused": 0,
        "slowest_s": 0.0,
        "largest_bytes": 0,
    }
    for number in (0, *range(first, first + count)):  # what is imported late comes with the first
        number_at[:] = struct.pack("<q", number)
        reported = number % every == 0
        files, change, twins = pair(grammar, number) if reported else (single(grammar, number), "", {})
        put(one, files)
        forget_peak()
        held, at = peak_bytes(), time.process_time()
        document = timed(saying.said if reported else read, one / grammar.at)
        took = time.process_time() - at
        figures["refused"] += document is None
        size = sum(map(len, files.values()))
        figures["largest_bytes"] = max(figures["largest_bytes"], size)
        if number != first and took > figures["slowest_s"]:
            figures |= {"slowest_s": round(took, 4), "slowest": number}
        if reported and twins != files:
            shutil.rmtree(one)  # the twin lies at the same path, which the report names
            put(one, twins)
            twin = timed(saying.said, one / grammar.at)
            assert (twin is None) == (document is None), f"{change}: one is refused, its twin is not"
            told = [] if twin is None else list(saying.differences(document, twin))
            assert not told, f"{change}: another report: {told[:5]}"
            figures["pairs"] += 1
        assert peak_bytes() - held < MOST_BYTES, f"{size} bytes took {(peak_bytes() - held) >> 20} MiB"
    figures["peak_mib"] = peak_bytes() >> 20
    return figures


def main(arguments: list[str]) -> None:
    name, first, count, seconds, folder, every = arguments
    print(json.dumps(run(name, int(first), int(count), float(seconds), Path(folder), int(every))))


if __name__ == "__main__":
    main(sys.argv[1:])
