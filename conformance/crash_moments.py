"""The moments between the steps of a trial whose system replays exactly, and which process crashes there.

A step is a line of the trace: one thing that one process does. Between two steps nothing happens, so a crash at any
time between them is the same one. The process that took the step before is the first one to crash: its crash between
two steps of others would be noticed at another time, and would find the same state. Where it cannot crash, because it
is not part of the running attempt or takes no other step, the coordinator does.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from barrier_tck.conformance.trials import Trial, happened, require
from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import At, ScheduledFault

_COORDINATOR = "coordinator"
_DONE_TO_IT = ("killed", "broken", "point")
"""What a process does not do itself."""
_ONE_MOMENT_MS = 0.002
"""The trace rounds times to a thousandth: steps that are closer than this are of one moment."""


@dataclass(frozen=True, slots=True)
class Step:
    """One line of a trace."""

    time_ms: float
    process: str
    """The subtask, or the coordinator."""
    number: int
    """The attempt of a subtask, and of the coordinator which one it is."""

    @classmethod
    def parse(cls, line: str) -> Step | None:
        """Read a line: time, process and what it does. None if it is no process's: a point, or a fault that strikes."""
        time_ms, actor, did, *_ = line.split()
        process, _, number = actor.rpartition("#")
        return cls(float(time_ms), process, int(number)) if process and did not in _DONE_TO_IT else None


@dataclass(frozen=True, slots=True)
class CrashMoment:
    """The moment behind a step."""

    steps: int
    """How many lines of the trace lie before it."""
    time_ms: float
    """On the trial's clock."""
    victims: tuple[str, ...]
    """The processes that may crash there; the one that took the last step comes first."""


def moments_of(trial: Trial, begin_ms: float, end_ms: float) -> Iterator[CrashMoment]:
    """Yield every moment between two steps from one time of the trial to another at which a process can crash."""
    steps = [
        (place, step) for place, line in enumerate(trial.trace) if (step := Step.parse(line)) is not None
    ]
    happened(steps, "the system has a trace", trial)
    last = {(step.process, step.number): place for place, step in steps}
    alive: dict[str, int] = {}
    for (place, step), (next_place, following) in pairwise(steps):
        alive[step.process] = max(step.number, alive.get(step.process, 0))
        between = following.time_ms - step.time_ms
        if between < _ONE_MOMENT_MS or not begin_ms < step.time_ms + between / 2 < end_ms:
            continue
        running = max((number for process, number in alive.items() if process != _COORDINATOR), default=0)
        able = [
            process
            for process, number in alive.items()
            if last[process, number] > place and (number == running or process == _COORDINATOR)
        ]
        if able:
            acted = step.process if alive[step.process] == step.number else None
            victims = sorted(able, key=lambda one: (one != acted, one != _COORDINATOR))
            yield CrashMoment(next_place, step.time_ms + between / 2, tuple(victims))


def crash_at(moment: CrashMoment, victim: str, trial: Trial) -> ScheduledFault:
    """Return the crash of a process at a moment: ``trial`` is the one that has the moment."""
    fault: Fault = CrashCoordinator() if victim == _COORDINATOR else KillWorker(victim)
    running_ms = trial.record.attempts[0].running_at_ms
    assert running_ms is not None
    return ScheduledFault(fault, At(moment.time_ms - running_ms))


def require_crash_at(moment: CrashMoment, undisturbed: Trial, crashed: Trial) -> None:
    """Require that the last fault of a trial struck at the moment, and that all steps before it were the same."""
    fired_ms = crashed.record.faults[-1].fired_at_ms
    before: Sequence[str] = undisturbed.trace[: moment.steps]
    require(
        crashed.trace[: moment.steps] == before,
        f"the {moment.steps} steps before the crash were the same",
        crashed,
    )
    struck = fired_ms is not None and abs(fired_ms - moment.time_ms) < _ONE_MOMENT_MS / 2
    require(struck, f"the process crashed at {moment.time_ms}, and not at {fired_ms}", crashed)
