"""Where the checks of a checkpoint storage are run: processes of the candidate's, each at a place of its own."""

from __future__ import annotations

import math
from collections import Counter

from barrier_tck.harness.certify.engine.property import Property
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.violation import Violation
from barrier_tck.harness.certify.storage.process import LOG_BYTES, NoAnswer, StorageProcess
from barrier_tck.harness.certify.storage.steps import RunCheck
from barrier_tck.harness.certify.storage.wire import Checked, Loaded, Refused
from barrier_tck.harness.plan.storage_targets import storage_target
from barrier_tck.harness.support.errors import UsageProblem

StorageProperty = Property[RunCheck]


class StorageStage(Stage[RunCheck]):
    """One storage. A process that ends or hangs fails its property, and the others get a new one."""

    def __init__(self, target: str, location: str, property_s: float) -> None:
        self.target = target
        self.loaded: Loaded | None = None
        """What the candidate says of itself, when it was made once."""
        self.log = ""
        """The end of what it printed."""
        self._location = location
        self._property_s = property_s
        self._process: StorageProcess | None = None
        self._started = self._killed = 0

    @property
    def remaining_s(self) -> float:
        return math.inf

    @property
    def processes(self) -> int:
        return self._started + self._killed

    def begin(self, steps: tuple[RunCheck, ...]) -> StorageSession:
        self.start()
        return StorageSession(self)

    def start(self) -> Loaded:
        """Start a process if there is none; raises Violation if no storage can be made, UsageProblem if it is none."""
        if self._process is not None and self.loaded is not None:
            return self.loaded
        self._started += 1
        # A place of its own: another process may have been killed in the middle of something.
        place = f"{self._location}/{self._started}"
        self._process = StorageProcess(storage_target(self.target), place)
        try:
            answer = self._process.loaded(self._property_s)
        except NoAnswer as error:
            self.renew()
            raise _violation(error, "the storage could not be made: ") from error
        if isinstance(answer, Refused):
            raise UsageProblem(answer.message)
        self.loaded = answer
        return answer

    def check(self, name: str) -> Checked:
        """Check a property; raises Violation if there is no answer."""
        assert self._process is not None
        try:
            checked = self._process.check(name, self._property_s)
        except NoAnswer as error:
            raise _violation(error) from error
        self._killed += checked.processes
        return checked

    def renew(self) -> None:
        process, self._process = self._process, None
        if process is not None:
            self.log = (self.log + process.kill())[-LOG_BYTES:]


def _violation(error: NoAnswer, what: str = "") -> Violation:
    return Violation(f"{what}{error}", fatal=True, hung=error.hung, from_outside=error.from_outside)


class StorageSession:
    """One check in the present process."""

    def __init__(self, stage: StorageStage) -> None:
        self._stage = stage
        self.played: list[RunCheck] = []
        self.shown: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.calls = 0
        """How many comparisons there were."""

    @property
    def effort(self) -> int:
        return self.calls

    def apply(self, step: RunCheck) -> None:
        self.played.append(step)
        checked = self._stage.check(step.property)
        self.shown.update(checked.shown)
        self.calls += sum(checked.shown.values())
        if not checked.passed:
            raise Violation(checked.reason, checked.violated)

    def close(self) -> None: ...

    def end(self, violation: Violation | None = None) -> None:
        if violation is not None and violation.fatal:
            self.abandon()

    def abandon(self) -> None:
        self._stage.renew()
