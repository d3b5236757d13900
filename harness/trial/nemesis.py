"""The nemesis: carries out a plan's fault schedule while a deployment runs, heals the faults, and keeps the books.

All times that it takes or gives are those of the deployment's clock, in milliseconds since the trial's start. The
time of a timed fault counts from when the first attempt ran; the duration of a fault counts from when it fired.
Whatever still lasts at the end of the run is healed then.

Each planned fault fires at most once. A fault that is due while its target is not there (a subtask between
two attempts) stays due: an aimed one until the next matching occurrence, a timed one until ``RETRY_MS``
later; the record then says why it fired late, or why it never did. A fault whose injector raises is recorded
with the error and never tried again, so the trial becomes UNKNOWN and is not lost.

On Spark, points are reported by several threads, so a lock protects the books. It is not held during an injection:
a kill takes long, and the other threads must not wait for it. The simulator calls from one thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from barrier_tck.faults.fault import Fault, tag_of
from barrier_tck.faults.injectors.injection import Heal, Injection
from barrier_tck.faults.targets import Targets
from barrier_tck.faults.triggers import OccurrenceCounter, describe
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import (
    FaultFired,
    FaultHealed,
    FaultStarted,
    FaultUnclear,
    HealingStarted,
    HealingUnclear,
    Operation,
)
from barrier_tck.harness.record.records import FaultRecord
from barrier_tck.harness.support.exception_line import exception_line

RETRY_MS = 10.0
"""How long a timed fault whose target is not there waits before its next try."""
RETRIES_MAX = 3_000
"""After this many tries a timed fault is given up as skipped: half a minute. A recovery on Spark takes seconds."""

_EARLY_MS = 0.001
"""A deployment subtracts floats to get its time, so a fault counts as due a microsecond early."""

Inject = Callable[[Fault, Targets], Injection]


def inject(fault: Fault, targets: Targets) -> Injection:
    """Carry a fault out with its own injector."""
    return fault.inject(targets)


@dataclass(slots=True)
class _Entry:
    """The books on one planned fault. It is ``done`` once it fired, failed or was given up."""

    index: int
    planned: ScheduledFault
    counter: OccurrenceCounter | None
    due_ms: float
    """For timed faults: the time of the next try, counted from when the first attempt ran."""
    done: bool = False
    tries: int = 0
    outcome: str = "not_fired"
    target: str = ""
    reason: str = ""
    fired_at_ms: float | None = None
    attempt: int | None = None
    heal: Heal | None = None
    """Undoes the fault. None before it fired, if it cannot be undone, and once undoing it has begun."""
    heal_at_ms: float = 0.0
    healed_at_ms: float | None = None
    met: Callable[[], bool] | None = None
    """For a fault that lies in wait, until the end of the run: says whether what it waits for came."""
    files: tuple[str, ...] = ()
    booked: list[tuple[float, Operation]] = field(default_factory=list)
    """What happened to it, as operations with their times."""
    went_on: bool = False
    """Whether it killed a subtask that was seen to process records again later."""


class Nemesis:
    """Implements ``harness.system.system_under_test.NemesisHooks`` for one trial; each trial needs its own."""

    def __init__(
        self,
        schedule: Sequence[ScheduledFault],
        inject: Inject = inject,
        words: Callable[[FaultRecord], FaultRecord] = lambda record: record,
    ) -> None:
        """Take the faults, what carries them out, and what says in a system's own words what became of one."""
        self._inject = inject
        self._words = words
        self._lock = threading.Lock()
        self._targets: Targets | None = None
        self._now_ms: Callable[[], float] = lambda: 0.0
        self._attempt: int | None = None
        self._entries = [_entry(index, planned) for index, planned in enumerate(schedule)]
        self._first_ran_ms: float | None = None
        self._over = False
        self._killed: dict[str | None, list[_Entry]] = {}
        """Subtask -> the faults that killed it, and after which it was not seen yet."""
        self.passed: set[tuple[ProtocolPoint, str | None]] = set()
        """The points that were passed, each with its subtask (None: the coordinator)."""
        self._lasting = [e for e in self._entries if e.planned.fault.heals_after_ms is not None]
        self._timed = [entry for entry in self._entries if isinstance(entry.planned.trigger, At)]
        self._aimed: dict[ProtocolPoint, list[_Entry]] = {}
        for entry in self._entries:
            if isinstance(entry.planned.trigger, After):
                self._aimed.setdefault(entry.planned.trigger.point, []).append(entry)

    # --- harness.system.system_under_test.NemesisHooks ------------------------------------------------------

    def bind(self, targets: Targets, now_ms: Callable[[], float]) -> None:
        """Learn what can be hit, and the deployment's clock (milliseconds since the trial's start)."""
        self._targets = targets
        self._now_ms = now_ms

    def point_reached(self, point: ProtocolPoint, subtask: str | None, attempt: int) -> None:
        """Count the occurrence, and carry out what is due at it before the subtask goes on."""
        self._attempt = attempt
        self.passed.add((point, subtask))
        if self._killed and point is ProtocolPoint.RECORDS_PROCESSED and subtask in self._killed:
            for entry in self._killed.pop(subtask):
                entry.went_on = True
        waiting = self._aimed.get(point)
        if waiting is None:  # the common case costs no lock
            return
        with self._lock:
            due = [entry for entry in waiting if _passed(entry, point, subtask)]
            _claim(due)
        for entry in due:
            self._carry_out(entry, attempt)

    def first_attempt_ran(self) -> None:
        """Start the clock of the timed faults."""
        if self._first_ran_ms is None:
            self._first_ran_ms = self._now_ms()

    def next_time_ms(self) -> float | None:
        """Return when the next timed fault or healing is due, on the deployment's clock; None if there is none."""
        with self._lock:
            times = [entry.heal_at_ms for entry in self._lasting if entry.heal is not None]
            origin_ms = self._first_ran_ms
            if origin_ms is not None:
                times += [origin_ms + entry.due_ms for entry in self._timed if not entry.done]
        return min(times, default=None)

    def time_reached(self, now_ms: float) -> None:
        """Heal the faults whose time is over, then carry out the timed faults that are due; the deployment's clock."""
        self._heal(lambda entry: entry.heal_at_ms <= now_ms + _EARLY_MS)
        if self._first_ran_ms is None:
            return
        since_ms = now_ms - self._first_ran_ms
        with self._lock:
            due = [entry for entry in self._timed if not entry.done and entry.due_ms <= since_ms + _EARLY_MS]
            _claim(due)
        for entry in due:
            self._carry_out(entry, self._attempt, retry_ms=since_ms + RETRY_MS)

    def heal_all(self) -> None:
        """Heal whatever still lasts at the end of the run; the record shows a healing that failed.

        A fault that fires afterwards (another thread may be in the middle of it) is healed at once. One that lay in
        wait and met nothing did not fire.
        """
        with self._lock:
            self._over = True
        self._heal(lambda entry: True)
        self._check_what_was_met()

    def watched_points(self) -> tuple[tuple[ProtocolPoint, str | None], ...]:
        """Return the points that planned faults wait for, each with its subtask (None: any), in the plan's order."""
        triggers = [entry.planned.trigger for entry in self._entries]
        pairs = [(trigger.point, trigger.subtask) for trigger in triggers if isinstance(trigger, After)]
        return tuple(dict.fromkeys(pairs))

    # --- the books ------------------------------------------------------------------------------------------

    def records(self) -> tuple[FaultRecord, ...]:
        """Return what became of each planned fault, in the order of the plan."""
        with self._lock:
            return tuple(self._words(_record(entry)) for entry in self._entries)

    def operations(self) -> tuple[Recorded[Operation], ...]:
        """Return the history's lines of process ``nemesis``, by time; their index starts at 0."""
        with self._lock:
            lines = [line for entry in self._entries for line in entry.booked]
        lines.sort(key=lambda line: line[0])  # stable: lines of the same time stay in the order of the plan
        return tuple(
            Recorded(index, time_ms, "nemesis", operation) for index, (time_ms, operation) in enumerate(lines)
        )

    def _carry_out(self, entry: _Entry, attempt: int | None, retry_ms: float = 0.0) -> None:
        """Inject a claimed fault and record the result; release the claim if the target was not there.

        ``retry_ms`` is when a timed fault is tried again; after ``RETRIES_MAX`` tries it keeps its claim.
        """
        entry.tries += 1
        started_ms = self._now_ms()
        try:
            if self._targets is None:
                raise RuntimeError("a point was reached before the deployment bound its targets")
            injection = self._inject(entry.planned.fault, self._targets)
        except Exception as error:  # noqa: BLE001 - a broken injector must not destroy the record
            with self._lock:
                entry.reason = f"the injector failed: {exception_line(error)}"
                entry.booked.append((started_ms, FaultStarted(entry.index)))
                entry.booked.append((started_ms, FaultUnclear(entry.index, exception_line(error))))
            return
        with self._lock:
            entry.outcome, entry.target, entry.reason = injection.outcome, injection.target, injection.reason
            entry.files, entry.met = injection.files, injection.met
            if injection.fired:
                if entry.planned.fault.ends is not None:
                    for subtask in entry.planned.fault.subtasks:
                        self._killed.setdefault(subtask, []).append(entry)
                entry.fired_at_ms, entry.attempt = started_ms, attempt
                fired_ms = self._now_ms()
                entry.heal, entry.heal_at_ms = (
                    injection.heal,
                    fired_ms + (entry.planned.fault.heals_after_ms or 0),
                )
                entry.booked.append((started_ms, FaultStarted(entry.index)))
                entry.booked.append((fired_ms, FaultFired(entry.index, injection.target, injection.files)))
                if entry.tries > 1:
                    entry.reason = f"its target was not there at first; it fired at try {entry.tries}"
            else:
                entry.due_ms = retry_ms
                entry.done = entry.counter is None and entry.tries >= RETRIES_MAX
            over = self._over
        if over:
            self._heal(lambda entry: True)

    def _heal(self, due: Callable[[_Entry], bool]) -> None:
        """Heal the lasting faults that are due, each once, in the order of the plan.

        One that still lies in wait goes on for as long again, unless the run is over.
        """
        with self._lock:
            claimed: list[tuple[_Entry, Heal]] = []
            for entry in self._lasting:
                if entry.heal is None or not due(entry):
                    continue
                if entry.met is not None and not self._over and not entry.met():
                    entry.heal_at_ms += entry.planned.fault.heals_after_ms or 0
                else:
                    claimed.append((entry, entry.heal))
                    entry.heal = None
        for entry, heal in claimed:
            started_ms = self._now_ms()
            try:
                heal()
            except Exception as error:  # noqa: BLE001 - the other faults must still be healed, and the record kept
                with self._lock:
                    entry.reason = f"it could not be healed: {exception_line(error)}"
                    entry.booked.append((started_ms, HealingStarted(entry.index)))
                    entry.booked.append((self._now_ms(), HealingUnclear(entry.index, exception_line(error))))
                continue
            with self._lock:
                entry.healed_at_ms = self._now_ms()
                entry.booked.append((started_ms, HealingStarted(entry.index)))
                entry.booked.append((entry.healed_at_ms, FaultHealed(entry.index)))

    def _check_what_was_met(self) -> None:
        with self._lock:
            waiting = [(entry, entry.met) for entry in self._entries if entry.met is not None]
            for entry, met in waiting:
                entry.met = None
                if not met():
                    entry.outcome, entry.fired_at_ms, entry.attempt = "not_fired", None, None
                    entry.healed_at_ms = None
                    entry.reason = (
                        "it lay in wait, and until the end of the run nothing came that it could hit"
                    )
                    entry.booked.clear()


def _entry(index: int, planned: ScheduledFault) -> _Entry:
    match planned.trigger:
        case At(time_ms=time_ms):
            return _Entry(index, planned, None, float(time_ms))
        case After() as after:
            return _Entry(index, planned, OccurrenceCounter(after), 0.0)


def _passed(entry: _Entry, point: ProtocolPoint, subtask: str | None) -> bool:
    return not entry.done and entry.counter is not None and entry.counter.passed(point, subtask)


def _claim(due: Sequence[_Entry]) -> None:
    """Mark as done before the lock is released, so that no other thread fires the same fault again."""
    for entry in due:
        entry.done = True


def _record(entry: _Entry) -> FaultRecord:
    trigger = entry.planned.trigger
    return FaultRecord(
        index=entry.index,
        label=entry.planned.fault.description(),
        kind=tag_of(entry.planned.fault),
        trigger=describe(trigger),
        point=trigger.point.value if isinstance(trigger, After) else None,
        outcome=entry.outcome,
        fired_at_ms=entry.fired_at_ms,
        target=entry.target,
        reason=entry.reason or ("" if entry.outcome == "fired" else _never_due(entry)),
        attempt=entry.attempt,
        healed_at_ms=entry.healed_at_ms,
        files=entry.files,
        went_on=entry.went_on,
    )


def _never_due(entry: _Entry) -> str:
    if entry.counter is None:
        return "the trial was over before its time came"
    passed = entry.counter.count
    return f"its point was passed only {'once' if passed == 1 else f'{passed} times'}"
