"""From Keras' hooks to step lines: a state machine that knows times and counts, and nothing else.

A call is one run of the train function. Its line is complete when the next call begins (the interval) or
the epoch ends. An input of unknown size gives a begin without an end: that call never ran and is dropped.

Nearly every call is one step like any other, between two that are read. A hook then costs as much as the
memory that it touches, which the training has since displaced from the processor's caches: for those calls
there are hooks (`begin_hook`, `end_hook`, and where only begins are seen `dispatch_hook`) that do the least
that can be done.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from mpprof.model.limits import LONG_CALL_NS
from mpprof.record.run_with_timeout import FAILURES, raise_if_signalled
from mpprof.record.step_line import Line, PlainLine
from mpprof.record.wall_time.sums import Spent, Sum

NEVER = -1
"""A step before which no call ends."""

Hook = Callable[..., None]
Others = Sequence[tuple[Any, Sum | None]]
"""Callbacks, each with the sum that its hook's time is added to; None: it is not timed."""
Failed = Callable[[BaseException], None]


class CallLog:
    """Builds `step` lines. All times are nanoseconds of one monotonic clock, `zero_ns` its zero.

    `step` is the number of steps that have run, over all fits. Methods return a line that is complete,
    or None.
    """

    def __init__(self, zero_ns: int) -> None:
        self.zero_ns = zero_ns
        self.step = 0
        self.fit = 0
        self.epoch = 0
        self.per_call = 1
        self.in_epoch: int | None = None
        self.runs_behind = False  # the device does: a call's own times are the host's
        self.fast_until = NEVER
        """Calls that end before this step are like any other, as long as nothing else happens."""
        self._ended_fast = False  # the call that ended last did, and has no line yet
        self._loss: float | None = None  # of it
        self._keep: Callable[[int], None]  # these three are given to `enter_fast_path`
        self._put: Callable[[Line], None]
        self._append: Callable[[PlainLine], None]
        self._pending: Line | None = None
        self.is_open = False  # a call runs, or turns out not to
        self._batch = 0  # where it began
        self._begin_ns = 0  # of the open call, or of the pending one
        self._gap_ns: int | None = None  # before the open one
        self._end_ns: int | None = None
        self.waited_ns: int | None = None
        self.since_wait = 0  # calls

    def start_fit(self, per_call: int, in_epoch: int | None) -> None:
        """Begin to log a fit. `per_call` is steps_per_execution; `in_epoch` the steps of an epoch, None where
        not known."""
        self.leave_fast_path()
        self.fit += 1
        self.per_call, self.in_epoch = max(1, per_call), in_epoch

    def start_epoch(self, epoch: int) -> None:
        self.leave_fast_path()
        self.epoch = epoch
        self.is_open, self._end_ns, self.waited_ns = False, None, None

    def covers(self, batch: int) -> int:
        """Return how many steps the call that begins with `batch` will run, as far as that is known."""
        left = self.per_call if self.in_epoch is None else self.in_epoch - batch
        return max(1, min(self.per_call, left))

    def left(self, batch: int) -> int | None:
        """Return the steps of this epoch from `batch` on; None where not known."""
        return None if self.in_epoch is None else self.in_epoch - batch

    def begin(self, batch: int, now_ns: int) -> Line | None:
        """Note that a call begins. Returns the line of the call before, which gets its interval and is
        complete."""
        line = self._take_ended_line()
        if self.runs_behind:
            self._start_waiting(now_ns)
        elif line is not None:
            line.interval_ns = now_ns - self._begin_ns
        self._gap_ns = None if self._end_ns is None else now_ns - self._end_ns
        self._batch, self._begin_ns, self.is_open = batch, now_ns, True
        return line

    def end(self, now_ns: int) -> Line | None:
        """Note that the open call has run. Returns its line, which is also `ended_line`; None where none was
        open."""
        self.leave_fast_path()
        if not self.is_open:
            return None
        self.is_open = False
        line = self._line(now_ns)
        if self.runs_behind:
            line.dispatch_ns = now_ns - self._begin_ns
        else:
            line.duration_ns = now_ns - self._begin_ns
        line.gap_ns = self._gap_ns
        self._end_ns, self._pending = now_ns, line
        return line

    def ended_line(self) -> Line | None:
        """Leave the fast path, and return the line of the call that ended last while it is not complete: more
        may be added to it."""
        self.leave_fast_path()
        return self._pending

    def _take_ended_line(self) -> Line | None:
        line, self._pending = self.ended_line(), None
        return line

    # --- calls like any other --------------------------------------------------------------------------

    def enter_fast_path(
        self,
        until: int,
        keep: Callable[[int], None],
        put: Callable[[Line], None],
        append: Callable[[PlainLine], None],
    ) -> None:
        """Enter the fast path, after a call of one step has ended. The hooks below may then tell of calls
        that end before the step `until`. Intervals go to `keep`, complete lines to `put` or `append`."""
        self._keep, self._put, self._append = keep, put, append
        self.fast_until = until

    # Each hook is one function that has all at hand: every further one costs, and so does what it looks up.

    def begin_hook(
        self, spent: Spent, others: Others, otherwise: Callable[[int, int], None], failed: Failed
    ) -> Hook:
        """Return a hook that calls those of the other callbacks, and then does what `begin` does on the fast
        path, where also the first call begins that ends behind it, and else tells `otherwise` the batch and
        the time. `failed` is told of a failure of ours."""
        clock = spent.clock

        def begin(batch: int, logs: Any = None) -> None:
            now_ns = 0
            try:
                now_ns = clock()
            except FAILURES as error:  # no failure of ours may stop the user's training
                raise_if_signalled(error)
                failed(error)
            for callback, total in others:
                callback.on_train_batch_begin(batch, logs=logs)
                try:
                    before_ns, spent.since = now_ns, (now_ns := clock())
                    if total is not None:
                        total.calls += 1
                        total.ns += (took_ns := now_ns - before_ns)
                        if took_ns >= LONG_CALL_NS:
                            spent.stalled(total, took_ns)
                except FAILURES as error:  # as above
                    raise_if_signalled(error)
                    failed(error)
            try:
                if self.step > self.fast_until or self.is_open:
                    otherwise(batch, now_ns)
                    return
                begin_ns, end_ns = self._begin_ns, self._end_ns
                assert end_ns is not None
                interval_ns = now_ns - begin_ns
                self._keep(interval_ns)
                if self._ended_fast:
                    # Before the line is put: where the user interrupts, he does so as a function returns.
                    self._ended_fast = False
                    self._append(
                        (
                            self.step, self.fit, self.epoch, self._batch, end_ns - self.zero_ns, interval_ns,
                            end_ns - begin_ns, self._gap_ns, self._loss,
                        )
                    )  # fmt: skip
                elif (line := self._pending) is not None:
                    self._pending = None
                    line.interval_ns = interval_ns
                    self._put(line)
                self._gap_ns = now_ns - end_ns
                self._batch, self._begin_ns, self.is_open = batch, now_ns, True
            except FAILURES as error:  # as above
                raise_if_signalled(error)
                failed(error)

        return begin

    def end_hook(
        self,
        spent: Spent,
        others: Others,
        otherwise: Callable[[dict[str, Any] | None, int], None],
        failed: Failed,
    ) -> Hook:
        """Return a hook that does what `end` does for a call that began on the fast path, and else tells
        `otherwise` the logs and the time, and then calls the hooks of the other callbacks."""
        clock = spent.clock

        def end(batch: int, logs: dict[str, Any] | None = None) -> None:
            now_ns = 0
            try:
                now_ns = clock()
                if self.step < self.fast_until and self.is_open:
                    self._end_ns, self._ended_fast, self.is_open, self._loss = now_ns, True, False, None
                    self.step += 1
                    if logs and type(loss := logs.get("loss")) is float:
                        self._loss = loss
                else:
                    otherwise(logs, now_ns)
                    now_ns = clock()  # what is done above is too short for a further look
            except FAILURES as error:  # as above
                raise_if_signalled(error)
                failed(error)
            for callback, total in others:
                callback.on_train_batch_end(batch, logs=logs)
                try:
                    before_ns, spent.since = now_ns, (now_ns := clock())
                    if total is not None:
                        total.calls += 1
                        total.ns += (took_ns := now_ns - before_ns)
                        if took_ns >= LONG_CALL_NS:
                            spent.stalled(total, took_ns)
                except FAILURES as error:  # as above
                    raise_if_signalled(error)
                    failed(error)

        return end

    def dispatch_hook(
        self,
        spent: Spent,
        others: Others,
        dispatched: Callable[[PlainLine, int], None],
        otherwise: Callable[[int, int], None],
        failed: Failed,
    ) -> Hook:
        """Return a hook that does on the fast path what `dispatched` does where the device runs behind, and
        hands over the line and the time to `dispatched`; else it tells `otherwise` the batch and the time.
        Then it calls the hooks of the other callbacks."""
        clock = spent.clock

        def begin(batch: int, logs: Any = None) -> None:
            now_ns = 0
            try:
                now_ns = clock()
                if self.step < self.fast_until and self.is_open and batch != self._batch:
                    self.step = step = self.step + 1
                    self.since_wait += 1
                    begin_ns, batch_before = self._begin_ns, self._batch
                    self._batch, self._begin_ns = batch, now_ns
                    t_ns, dispatch_ns = now_ns - self.zero_ns, now_ns - begin_ns
                    dispatched((step, self.fit, self.epoch, batch_before, t_ns, dispatch_ns), now_ns)
                else:
                    otherwise(batch, now_ns)
                now_ns = clock()
            except FAILURES as error:  # as above
                raise_if_signalled(error)
                failed(error)
            for callback, total in others:
                callback.on_train_batch_begin(batch, logs=logs)
                try:
                    before_ns, spent.since = now_ns, (now_ns := clock())
                    if total is not None:
                        total.calls += 1
                        total.ns += (took_ns := now_ns - before_ns)
                        if took_ns >= LONG_CALL_NS:
                            spent.stalled(total, took_ns)
                except FAILURES as error:  # as above
                    raise_if_signalled(error)
                    failed(error)

        return begin

    def leave_fast_path(self) -> None:
        """Leave the fast path, because something else happens."""
        self.fast_until = NEVER
        if self._ended_fast:
            assert self._end_ns is not None
            line = Line(self.step, self.fit, self.epoch, self._batch, 1, self._end_ns - self.zero_ns)
            line.duration_ns, line.gap_ns = self._end_ns - self._begin_ns, self._gap_ns
            line.loss, self._pending, self._ended_fast = self._loss, line, False

    def cut_short(self, ran: int, now_ns: int) -> Line | None:
        """Note that the open call, whose end is not told, ran this many steps and then found no more input.
        It
        ended before now; when is not known. None: no such call."""
        if not 0 < ran <= self.covers(self._batch) or (line := self.end(now_ns)) is None:
            return None
        line.duration_ns = line.dispatch_ns = None
        self.correct(line, line.covers - ran)
        return line

    def covers_of_open(self) -> int:
        """Return how many steps the open call was to run; 0: none is open."""
        return self.covers(self._batch) if self.is_open else 0

    @property
    def batch(self) -> int:
        """Where the open call began, or the last one."""
        return self._batch

    @property
    def begun_ns(self) -> int:
        """When the open call began, or the last one."""
        return self._begin_ns

    @property
    def last_ns(self) -> int:
        """When a call was last told to begin or to end."""
        return max(self._begin_ns, self._end_ns or 0)

    def dispatched(self, batch: int | None, now_ns: int) -> Line | None:
        """Note, where only begins are seen, that the call before has been dispatched.

        `batch` is the call that begins now, None at the end of an epoch. Returns the line of the call
        before. Where the device runs behind it has no interval: that is known only between two waits.
        """
        self.leave_fast_path()
        line = None
        if self.is_open:
            if self._batch == batch:
                return None  # told twice: no call has run in between
            line = self._line(now_ns)
            if batch is None:
                pass  # the epoch's end: what lies before it is not the call's alone
            elif self.runs_behind:
                line.dispatch_ns = now_ns - self._begin_ns
            else:
                line.interval_ns = now_ns - self._begin_ns
        else:
            self._start_waiting(now_ns)
        self.is_open = batch is not None
        if batch is not None:
            self._batch = batch
        self._begin_ns = now_ns
        return line

    def drop(self) -> None:
        """Drop the open call, which has never run."""
        self.leave_fast_path()
        self.is_open = False

    def waited(self, now_ns: int, line: Line | None = None, behind: int = 0) -> None:
        """Note that the device has finished all calls so far, but for the last `behind`: the mean interval
        since the wait before is known. It belongs to `line`, of the last call that has finished."""
        if line is not None:
            line.synced = True
            if (found := self.since_waited(now_ns, behind)) is not None:
                line.interval_ns, line.interval_calls = found
        self.waited_ns, self.since_wait = now_ns, behind

    def since_waited(self, now_ns: int, behind: int = 0) -> tuple[int, int] | None:
        """Return the mean interval in ns of the calls since the wait before, but for the last `behind`, and
        how many these are; None where there are none, or no wait."""
        calls = self.since_wait - behind
        return None if self.waited_ns is None or calls <= 0 else ((now_ns - self.waited_ns) // calls, calls)

    def _start_waiting(self, now_ns: int) -> None:
        if self.waited_ns is None:  # the first call of an epoch starts with an idle device
            self.waited(now_ns)

    def restart_interval(self, now_ns: int) -> None:
        """Restart the interval where our own work (opening or closing a window) ends: it belongs to no call's
        interval."""
        self.leave_fast_path()
        if self.is_open:
            self._begin_ns = now_ns
        if self.waited_ns is not None:
            self.waited(now_ns)

    def leave_out(self, duration_ns: int) -> None:
        """Leave out a duration up to now in which we described the run, or somebody evaluated in the midst of
        an epoch: it belongs to no call's times."""
        self.leave_fast_path()
        self._begin_ns += duration_ns
        if self._end_ns is not None:
            self._end_ns += duration_ns
        if self.waited_ns is not None:
            self.waited_ns += duration_ns

    def close_epoch(self) -> Line | None:
        """Close the epoch: return its last line, which has no interval; a begin without an end is dropped."""
        line = self._take_ended_line()
        self.is_open, self._end_ns, self.waited_ns = False, None, None
        return line

    def correct(self, line: Line, missing: int) -> None:
        """Correct a line whose call, the last one, ran `missing` steps fewer than it claimed."""
        line.step -= missing
        line.covers -= missing
        line.batch -= missing
        self.step -= missing

    def _line(self, now_ns: int) -> Line:
        """Return the line of the call that has run by now, which counts from here on."""
        covers = 1 if self.per_call == 1 else self.covers(self._batch)
        self.step += covers
        self.since_wait += 1
        last = self._batch + covers - 1
        return Line(self.step, self.fit, self.epoch, last, covers, now_ns - self.zero_ns)
