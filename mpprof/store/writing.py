"""Writing a run's files so that nothing recorded is lost and nothing unfinished is read.

`run.json` is replaced as a whole, by a thread for which training does not wait. Line files only grow: a
thread hands the lines to the system every second, so a kill -9 loses at most the last second (a power cut may
lose more: there is no fsync).
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Any

from mpprof.store import formats

FLUSH_SECONDS = 1.0
LINES_AT_ONCE = 32
PAUSE_SECONDS = 0.0001
MOST_PAUSES = 64
"""Of one flush. A training that computes in Python lets go of the interpreter every 5 ms only: at more pauses
than that, a flush of very many lines would take longer than they took to arrive."""
CLOSE_SECONDS = 5.0
MOST_QUEUED = 1_000_000
"""Records that wait for a disk that hangs; more than these would eat the training's memory."""

CLAIM = ".claimed"
JOIN_SECONDS = 20.0
"""How long a worker waits for the run that the first one opens: they start at about the same time."""

Record = dict[str, Any]


Trouble = Callable[[Path, BaseException], None]


def write_run(folder: Path, record: Record) -> None:
    """Replace `<folder>/run.json` atomically. Raises OSError."""
    replace_document(folder / formats.RUN_FILE, {"schema": formats.RUN_SCHEMA, **record})


def replace_document(target: Path, record: Record) -> None:
    """Replace a whole JSON file atomically. Raises OSError."""
    replace_text(target, formats.document(record))


def replace_text(target: Path, text: str) -> None:
    """Replace a whole file atomically: write beside it, fsync, rename. Raises OSError."""
    beside = _beside(target)
    try:
        with open(beside, "w", encoding="utf-8", opener=open_above_standard) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, target)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
    finally:
        _WRITTEN.discard(beside)


_WRITTEN: set[Path] = set()
_NAMING = threading.Lock()


def _beside(target: Path) -> Path:
    """Return where to write before the rename. When two threads write at once, as after an interrupt, each
    has a file of its own."""
    first = beside = target.with_name(f".{target.name}.{os.getpid()}")
    with _NAMING:
        while beside in _WRITTEN:
            beside = first.with_name(f"{first.name}-{len(_WRITTEN)}-{time.monotonic_ns():x}")
        _WRITTEN.add(beside)
    return beside


def open_above_standard(path: str | os.PathLike[str], flags: int) -> int:
    """Open a file as `os.open` does, but never as one of the first three descriptors: where a process has
    closed its standard error, what it writes there would go into the file that got its number."""
    files = [os.open(path, flags, 0o666)]
    while files[-1] <= 2:
        files.append(os.dup(files[-1]))
    for file in files[:-1]:
        os.close(file)
    return files[-1]


class DocumentWriter:
    """Replaces one file as a whole, from a thread that runs while there is something to write.

    Of several texts that are put while the disk is busy, the newest is written. One that cannot be written is
    kept for `again`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._text: str | None = None  # the newest, until it is on disk
        self._since = 0.0  # when the first of those that are not on disk was put
        self._error: BaseException | None = None
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None

    def put(self, text: str) -> None:
        """Hand over the file's new text. Raises RuntimeError where no thread can be started."""
        with self._lock:
            if self._text is None:
                self._since = time.monotonic()
            self._text = text
        self.again()

    def again(self) -> None:
        """Write what is not on disk, unless a thread is at it. Raises RuntimeError as `put` does."""
        with self._lock:
            if self._text is None or self._thread is not None:
                return
            thread = threading.Thread(target=self._run, name=f"mpprof {self.path.name}", daemon=True)
            thread.start()
            self._thread = thread

    def settle(self, timeout_s: float) -> BaseException | None:
        """Wait until all is on disk. Returns why it is not, after an error or the timeout."""
        self.again()
        thread = self._thread
        if thread is not None:
            thread.join(timeout_s)
        if self._text is None:
            return None
        return self._error or TimeoutError(f"no answer within {timeout_s:g} s")

    @property
    def late_s(self) -> float:
        """For how long the disk has not had the newest text."""
        return 0.0 if self._text is None else time.monotonic() - self._since

    def _run(self) -> None:
        while True:
            with self._lock:
                text = self._text
                if text is None:
                    self._thread = None
                    return
            error: BaseException | None = None
            try:
                replace_text(self.path, text)
            except (Exception, SystemExit) as raised:  # noqa: BLE001 - nobody would hear of it from this thread
                error = raised
            with self._lock:
                self._error = error
                if error is not None:
                    self._thread = None
                    return
                self._text = None if self._text is text else self._text


class LineWriter:
    """Appends records to one file from a thread of its own.

    `put` only appends to a queue. The first error (full disk, vanished mount) is given to `trouble`
    once, from the thread; from then on records are dropped and what is on disk stays readable.
    """

    def __init__(
        self,
        path: Path,
        schema: str | None,
        trouble: Trouble,
        seen: Callable[[Any], None] | None = None,
        each_second: Callable[[], None] | None = None,
        text: Callable[[Any], str] = formats.line,
    ) -> None:
        """Create the file, which must not exist; without a `schema`, continue a file that does. `text` makes
        a record's line of JSON. `seen` is given each record after it was written, and `each_second` is called
        about once a second; they must not raise. All three are called in the writer's thread.

        Raises OSError."""
        self._seen, self._each_second, self._text = seen, each_second, text
        self.path = path
        self._trouble = trouble
        self._queue: deque[Any] = deque()
        self.append: Callable[[Any], None] = self._queue.append
        """`put` without asking whether anybody still writes: for a few records between two that are put."""
        self._wake = threading.Event()
        self._writing = threading.Lock()
        self._broken = self._torn = False
        self._last: Callable[[], Record] | None = None
        self._whole = 0  # lines of the last write that are on disk, also where it failed
        self._pid = os.getpid()
        new = os.O_CREAT | os.O_EXCL if schema else 0
        self._file = open_above_standard(path, os.O_WRONLY | os.O_APPEND | new)
        self._opened = os.fstat(self._file)
        if schema:
            self._write(formats.line({"schema": schema}) + "\n")
        self._thread = threading.Thread(target=self._run, name=f"mpprof {path.name}", daemon=True)
        self._thread.start()

    def put(self, record: Any) -> None:
        """Hand over a record; it must not be changed afterwards."""
        if self._broken:
            return
        self._queue.append(record)
        if len(self._queue) > MOST_QUEUED:
            self._give_up(TimeoutError("the disk does not answer"))

    def flush(self) -> None:
        """Write what is queued before returning."""
        if os.getpid() != self._pid:  # a forked child must not write into its parent's file
            self._queue.clear()
            return
        with self._writing:
            self._drain()

    def end_with(self, record: Callable[[], Record]) -> None:
        """Write one more line behind what is queued when the thread ends, or as soon as a disk takes it that
        has taken nothing more. `record` makes it, in the writer's thread."""
        self._last = record

    def close(self, timeout_s: float = CLOSE_SECONDS) -> bool:
        """Write what is queued and end the thread. A disk that hangs is left behind after `timeout_s`:
        False."""
        self._wake.set()
        if os.getpid() != self._pid:
            return True
        self._thread.join(timeout_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._wake.wait(FLUSH_SECONDS):
            with self._writing:
                self._drain(PAUSE_SECONDS)
                if self._broken:
                    self._write_last()
            if self._each_second is not None:
                self._each_second()
        with self._writing:
            self._drain()
            self._write_last()
            with contextlib.suppress(OSError):  # the last write has reported what is known of it
                if os.path.samestat(os.fstat(self._file), self._opened):
                    os.close(self._file)

    def _drain(self, pause_s: float = 0.0) -> None:
        """Write what is queued now. Python runs one thread at a time: a pause after every few lines keeps
        the training's thread from waiting for this one."""
        count = len(self._queue)
        at_once = max(LINES_AT_ONCE, count // MOST_PAUSES)
        try:
            while count > 0 and not self._broken:
                records = [self._queue.popleft() for _ in range(min(count, at_once))]
                try:
                    self._write("\n".join(map(self._text, records)) + "\n")
                finally:
                    for record in records[: self._whole] if self._seen is not None else ():
                        self._seen(record)  # type: ignore[misc]  # known not to be None
                count -= len(records)
                if pause_s:
                    time.sleep(pause_s)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - nobody would hear of it from this thread
            self._give_up(error)

    def _give_up(self, error: BaseException) -> None:
        self._broken = True
        self._queue.clear()
        self._trouble(self.path, error)

    def _write_last(self) -> None:
        """Write the line of `end_with`, behind a line that may have been cut off."""
        if self._last is not None:
            with contextlib.suppress(Exception, SystemExit):  # the disk still does not take it
                self._write("\n" * self._torn + formats.line(self._last()) + "\n")
                self._last = None

    def _write(self, text: str) -> None:
        self._whole = 0
        self._check()
        rest = memoryview(text.encode("utf-8", "replace"))  # a lone surrogate in a name is no text
        self._torn = True
        while rest:
            count = os.write(self._file, rest)
            self._whole += bytes(rest[:count]).count(b"\n")
            rest = rest[count:]
        self._torn = False

    def _check(self) -> None:
        """Make sure that what is written can be read under the file's name. Raises OSError.

        A path that was unlinked or whose mount is gone still takes writes, and so does one whose name another
        file has got. Another part of the process may have closed the descriptor, and its number may be
        another file's by now: then the file is opened again.
        """
        try:
            named = self.path.stat()
        except (FileNotFoundError, NotADirectoryError):
            raise FileNotFoundError(2, "the file has vanished", str(self.path)) from None
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(self._file), named):
                return
        if not os.path.samestat(self._opened, named):
            raise FileExistsError(17, "another file has taken its name", str(self.path))
        self._file = open_above_standard(self.path, os.O_WRONLY | os.O_APPEND)


def claim(logdir: Path, name: str, cluster: str = "") -> Path:
    """Return the root of a new run: `logdir` itself, or `<logdir>/<name>` where it already holds a run. The
    other workers of a `cluster` find the run by that name (see `join`).

    Never two runs in one directory: whoever creates the folder's claim first has it. Raises OSError.
    """
    candidates = [logdir, logdir / name, *(logdir / f"{name}-{k}" for k in range(2, 100))]
    for root in candidates:
        folder = formats.folder_of(root)
        folder.mkdir(parents=True, exist_ok=True)
        if (folder / formats.RUN_FILE).exists() or (folder / formats.STEPS_FILE).exists():
            continue
        try:
            claimed = os.open(folder / CLAIM, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        except FileExistsError:
            continue
        try:
            os.write(claimed, f"{cluster} {name}".encode())
        finally:
            with contextlib.suppress(OSError):  # the name, which is the claim, is there
                os.close(claimed)
        return root
    raise FileExistsError(17, "holds a hundred runs that began in this second", str(logdir))


def join(logdir: Path, cluster: str, worker: int, since_unix_s: float) -> tuple[Path, str]:
    """Return the root and the name of the run that the first worker of `cluster` opens, once it exists; the
    folder of this `worker` is made in it. Runs from before `since_unix_s` are ignored.

    Raises `TimeoutError` where none appears, and OSError."""
    deadline = time.monotonic() + JOIN_SECONDS
    while time.monotonic() < deadline:
        for claimed in (formats.folder_of(logdir) / CLAIM, *logdir.glob(f"*/{formats.FOLDER}/{CLAIM}")):
            with contextlib.suppress(FileNotFoundError, FileExistsError):
                key, _, name = claimed.read_text(encoding="utf-8").partition(" ")
                if key == cluster and name and claimed.stat().st_mtime >= since_unix_s:
                    root = claimed.parent.parent
                    formats.folder_of(root, worker).mkdir()
                    return root, name
        time.sleep(0.05)
    raise TimeoutError(f"the run of the first worker has not appeared within {JOIN_SECONDS:g} s")
