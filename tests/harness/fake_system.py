"""A system under test that does what a table says, so that the harness can be tested without a simulator."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from barrier_tck.faults.targets import (
    CopiesTarget,
    Damage,
    Direction,
    Forgery,
    Impairment,
    LinkTarget,
    MessagesTarget,
    NoTargets,
    ObjectStoreTarget,
    Peers,
    ProcessTarget,
    TargetGone,
    WriteFault,
)
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.faults.vocabulary import After, ProtocolPoint
from barrier_tck.harness.oracle.checker import Checker, TrialContext
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.job_view import JobView
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads.barrier_jobs import barrier_view


class FakeProcess:
    """A process that dies when it is killed, unless told to be immortal."""

    def __init__(self, description: str, immortal: bool = False) -> None:
        self.description = description
        self.dead = False
        self.immortal = immortal
        self.lost_unsynced = False

    def kill(self, lose_unsynced: bool = False) -> None:
        if self.dead:
            raise TargetGone(self.description)
        self.lost_unsynced = lose_unsynced
        self.dead = not self.immortal

    def is_dead(self) -> bool:
        return self.dead


class FakePausable(FakeProcess):
    """A process that can be paused, unless told to be restless; remembers that it was resumed."""

    def __init__(self, description: str, immortal: bool = False, restless: bool = False) -> None:
        super().__init__(description, immortal)
        self.restless = restless
        self.paused = False
        self.resumed = 0

    def pause(self) -> None:
        if self.dead:
            raise TargetGone(self.description)
        self.paused = not self.restless

    def resume(self) -> None:
        self.paused = False
        self.resumed += 1

    def is_paused(self) -> bool:
        return self.paused


class FakeStorageUser(FakeProcess):
    """A process that remembers for how long storage is hidden from its successor."""

    hidden_ms = 0

    def hide_storage(self, duration_ms: int) -> None:
        self.hidden_ms = duration_ms


class FakeHost(FakeProcess):
    """A host that comes back if it is to, unless it stays away."""

    def __init__(self, description: str, stays_away: bool = False) -> None:
        super().__init__(description)
        self.returns = False
        self._stays_away = stays_away

    def come_back(self) -> None:
        self.returns = True

    def is_back(self) -> bool:
        return self.returns and not self._stays_away


class FakeSavepointStarter(FakeProcess):
    """A process that remembers whether its successor is to start from a savepoint."""

    from_savepoint = False

    def start_from_savepoint(self) -> None:
        self.from_savepoint = True


class FakeLink:
    """A connection that is disturbed as asked, unless it is gone or told to be unimpressed."""

    def __init__(self, description: str, gone: bool = False, unimpressed: bool = False) -> None:
        self.description = description
        self.gone = gone
        self.unimpressed = unimpressed
        self.impairment: Impairment | None = None
        self.healed = 0

    def impair(self, impairment: Impairment) -> None:
        if self.gone:
            raise TargetGone(self.description)
        self.impairment = impairment

    def is_impaired(self) -> bool:
        return self.impairment is not None and not self.unimpressed

    def heal(self) -> None:
        self.impairment = None
        self.healed += 1


class FakeCopies:
    """Copies of state to which every fault can be done."""

    def __init__(self, description: str, there: bool = True, stubborn: bool = False) -> None:
        self.description = description
        self.there = there
        self.stubborn = stubborn
        self.done: list[Damage | int] = []

    @property
    def files(self) -> tuple[str, ...]:
        return ("a-file",) if self.done else ()

    def damage(self, damage: Damage) -> None:
        if not self.there:
            raise TargetGone("there is none")
        self.done.append(damage)

    def is_damaged(self) -> bool:
        return bool(self.done) and not self.stubborn

    def refuse_writes(self, checkpoints: int) -> None:
        self.done.append(checkpoints)

    def refuses_writes(self) -> bool:
        return bool(self.done) and not self.stubborn


class FakeMessages:
    """Messages that are repeated as asked, unless told to be stubborn."""

    def __init__(self, description: str, stubborn: bool = False) -> None:
        self.description = description
        self.stubborn = stubborn
        self.repeated: tuple[Direction, float] | None = None
        self.forged: list[Forgery] = []
        self.stopped = 0

    def repeat(self, direction: Direction, late_ms: float) -> None:
        self.repeated = (direction, late_ms)

    def is_repeating(self) -> bool:
        return self.repeated is not None and not self.stubborn

    def forge(self, forgery: Forgery) -> None:
        self.forged.append(forgery)

    def is_forged(self) -> bool:
        return bool(self.forged) and not self.stubborn

    def stop(self) -> None:
        self.repeated = None
        self.stopped += 1


class FakeWrites:
    """Writes that can be disturbed, unless nobody writes or they are told to be stubborn."""

    def __init__(self, description: str, gone: bool = False, stubborn: bool = False) -> None:
        self.description = description
        self.gone = gone
        self.stubborn = stubborn
        self.disturbed: tuple[WriteFault, int, int] | None = None

    def disturb(self, trouble: WriteFault, times: int, latency_ms: int) -> None:
        if self.gone:
            raise TargetGone(self.description)
        self.disturbed = trouble, times, latency_ms

    def is_struck(self) -> bool:
        return self.disturbed is not None and not self.stubborn

    def has_met(self) -> bool:
        return self.is_struck()


class FakeStore:
    """A service that holds checkpoints, to which every fault can be done, unless it is gone or told to be stubborn."""

    def __init__(
        self, description: str, gone: bool = False, stubborn: bool = False, strikes_later: bool = False
    ) -> None:
        self.description = description
        self.gone = gone
        self.stubborn = stubborn
        self.strikes_later = strikes_later
        self.struck = False
        self.link = FakeLink(description)
        self.dies_at: UploadMoment | None = None
        self.throttles = False
        self.failing: tuple[int, bool] | None = None
        self.started = 0

    def kill_in_upload(self, moment: UploadMoment) -> None:
        if self.gone:
            raise TargetGone(self.description)
        self.dies_at = moment

    def is_dead(self) -> bool:
        return self.dies_at is not None and not self.stubborn

    def start_again(self) -> None:
        self.dies_at = None
        self.started += 1

    def throttle(self) -> None:
        self.throttles = True

    def has_throttled(self) -> bool:
        return self.throttles and not self.stubborn

    def stop_throttling(self) -> None:
        self.throttles = False

    def fail_request(self, nth: int, carried_out: bool) -> Callable[[], bool]:
        self.failing = nth, carried_out
        return lambda: self.struck

    def has_struck(self) -> bool:
        return self.struck


class FakeDeletions:
    """Deletions of which none comes."""

    def __init__(self, description: str) -> None:
        self.description = description
        self.refused = 0

    def refuse(self, times: int) -> Callable[[], bool]:
        self.refused += times
        return lambda: False


class FakeSnapshots:
    """Snapshots of which none is taken."""

    def __init__(self, description: str) -> None:
        self.description = description
        self.failing = 0

    def fail(self, times: int) -> Callable[[], bool]:
        self.failing += times
        return lambda: False


class FakeTargets(NoTargets):
    """Hands out one new process or link for each role and subtask; ``missing`` roles are not exposed."""

    def __init__(self, missing: tuple[str, ...] = ()) -> None:
        self.missing = missing
        self.killed: list[str] = []
        self.links: list[FakeLink] = []

    def _target(self, role: str, name: str) -> ProcessTarget | None:
        if role in self.missing:
            return None
        self.killed.append(name)
        return FakePausable(name)

    def executor_of(self, subtask: str) -> ProcessTarget | None:
        return self._target("executor", f"executor of {subtask}")

    def worker_of(self, subtask: str) -> ProcessTarget | None:
        return self._target("worker", f"worker of {subtask}")

    def coordinator(self) -> ProcessTarget | None:
        return self._target("coordinator", "coordinator")

    def host_of(self, subtask: str) -> ProcessTarget | None:
        return self._target("host", f"host of {subtask}")

    def lasting_loss_of(self, subtask: str) -> ProcessTarget | None:
        return self._target("spare executor", f"executor of {subtask}")

    def memory_of(self, subtask: str) -> ProcessTarget | None:
        return self._target("memory limit", f"executor of {subtask}")

    def link(self, sender: str, receiver: str) -> LinkTarget | None:
        return self._links(f"{sender} to {receiver}")[0] if "connection" not in self.missing else None

    def links_of_executor(self, subtask: str, peers: Peers) -> Sequence[LinkTarget] | None:
        return self._links(f"{subtask} to {peers}", "another") if "connections" not in self.missing else None

    def links_between_halves(self, subtasks: Sequence[str]) -> Sequence[LinkTarget] | None:
        return self._links(*subtasks) if "connections" not in self.missing else None

    def local_copies_of(self, subtask: str) -> CopiesTarget | None:
        return None if "local copies" in self.missing else FakeCopies(f"local copies of {subtask}")

    def primary_of(self, subtask: str) -> CopiesTarget | None:
        return None if "durable copy" in self.missing else FakeCopies(f"durable copy of {subtask}")

    def metadata(self) -> CopiesTarget | None:
        return None if "durable copy" in self.missing else FakeCopies("metadata")

    def messages_of(self, subtask: str) -> MessagesTarget | None:
        return None if "messages" in self.missing else FakeMessages(f"messages of {subtask}")

    def object_store(self) -> ObjectStoreTarget | None:
        return None if "object store" in self.missing else FakeStore("object store")

    def writes(self) -> FakeWrites | None:
        return None if "writes" in self.missing else FakeWrites("writes")

    def deletions(self) -> FakeDeletions | None:
        return None if "deletions" in self.missing else FakeDeletions("deletions")

    def snapshots_of(self, subtask: str) -> FakeSnapshots | None:
        return None if "snapshots" in self.missing else FakeSnapshots(f"snapshots of {subtask}")

    def _links(self, *names: str) -> list[FakeLink]:
        self.links += [FakeLink(name) for name in names]
        return self.links[-len(names) :]


Behaviour = Callable[[TrialPlan], Verdict]


class FakeSystem:
    """Passes every point that a fault waits for, and leaves output that ``TableChecker`` understands.

    ``raises`` maps a seed to an exception that ``run`` raises; ``flaky`` adds a counter to the trace.
    """

    name = "fake"
    world = "simulated"
    capabilities = frozenset(Capability)

    def __init__(
        self,
        behaviour: Behaviour = lambda plan: Verdict.VALID,
        raises: Mapping[int, BaseException] | None = None,
        flaky: bool = False,
        passes_points: bool = True,
    ) -> None:
        self.behaviour = behaviour
        self.raises = dict(raises or {})
        self.flaky = flaky
        self.passes_points = passes_points
        self.runs = 0
        self.closed = 0

    def job(self, plan: TrialPlan) -> JobView:
        return barrier_view(plan)

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        self.runs += 1
        assert directory.is_dir()
        if plan.seed in self.raises:
            raise self.raises[plan.seed]
        nemesis.bind(FakeTargets(), lambda: 1.0)
        if self.passes_points:
            self._pass_points(plan, nemesis)
        trace: tuple[str, ...] = (f"seed {plan.seed}", f"faults {len(plan.faults)}")
        if self.flaky:
            trace += (f"run {self.runs}",)
        verdict = self.behaviour(plan)
        history = History((), End.FINISHED, Reason.FINISHED, "", output=({"verdict": verdict.value},))
        return TrialOutcome(history, self.job(plan).names, 10.0, trace=trace)

    def _pass_points(self, plan: TrialPlan, nemesis: NemesisHooks) -> None:
        for scheduled in plan.faults:
            if isinstance(scheduled.trigger, After):
                for _ in range(scheduled.trigger.nth):
                    nemesis.point_reached(scheduled.trigger.point, scheduled.trigger.subtask, 1)
        nemesis.first_attempt_ran()
        due = nemesis.next_time_ms()
        while due is not None:
            nemesis.time_reached(due)
            due = nemesis.next_time_ms()
        nemesis.point_reached(ProtocolPoint.ATTEMPT_RUNNING, None, 1)

    def close(self) -> None:
        self.closed += 1


class TableChecker:
    """Gives the verdict that the fake system's output names."""

    name = "table"
    clauses = ("ALN-2",)

    def check(self, context: TrialContext) -> Finding:
        assert context.history.output is not None
        verdict = Verdict(context.history.output[0]["verdict"])
        return Finding(self.name, self.clauses, verdict, f"the table says {verdict.value}")


class CrashingChecker:
    """Cannot judge anything."""

    name = "crashing"
    clauses = ()

    def check(self, context: TrialContext) -> Finding:
        raise ZeroDivisionError("nothing to divide by")


TABLE: tuple[Checker, ...] = (TableChecker(),)


def interrupting(after: int) -> Behaviour:
    """Return a behaviour that acts like Ctrl-C in the middle of a trial, once ``after`` trials are finished."""
    seen = 0

    def behave(plan: TrialPlan) -> Verdict:
        nonlocal seen
        seen += 1
        if seen > after:
            raise KeyboardInterrupt
        return Verdict.VALID

    return behave


def slowly(seconds: float) -> Behaviour:
    """Return a behaviour that takes some time, for time budgets."""

    def behave(plan: TrialPlan) -> Verdict:
        time.sleep(seconds)
        return Verdict.VALID

    return behave
