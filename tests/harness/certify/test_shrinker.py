"""A failing sequence is made smaller as far as so many calls allow, however long they take."""

from __future__ import annotations

import time
from collections import Counter

import pytest

from barrier_tck.harness.certify.engine.playing import Breach
from barrier_tck.harness.certify.engine.shrinker import smallest
from barrier_tck.harness.certify.engine.stage import Stage
from barrier_tck.harness.certify.engine.steps import Step
from barrier_tck.harness.certify.engine.violation import Violation


class Number(Step, frozen=True, tag="number"):
    """Adds a number to what was played."""

    value: int


class Numbers:
    """Fails at the end if both 30 and 70 were played."""

    def __init__(self) -> None:
        self.played: list[Number] = []
        self.shown: Counter[str] = Counter()
        self.reached: Counter[str] = Counter()
        self.calls = 0

    @property
    def effort(self) -> int:
        return self.calls

    def apply(self, step: Number) -> None:
        self.calls += 1
        self.played.append(step)
        if {30, 70} <= {one.value for one in self.played}:
            raise Violation("both", "BCK-1")

    def close(self) -> None: ...

    def end(self, violation: Violation | None = None) -> None: ...

    def abandon(self) -> None: ...


class NumbersStage(Stage[Number]):
    """Keeps every session."""

    def __init__(self, effort_max: int) -> None:
        self.shrink_effort_max = effort_max
        self.sessions: list[Numbers] = []

    remaining_s = 60.0
    processes = 0

    def begin(self, steps: tuple[Number, ...]) -> Numbers:
        self.sessions.append(Numbers())
        return self.sessions[-1]

    def renew(self) -> None: ...


class LuckyStage(NumbersStage):
    """A stage whose sessions fail by chance too, when they play few steps for the first time; not in a new process."""

    def __init__(self, effort_max: int, by_chance: int, ever_again: bool = True) -> None:
        super().__init__(effort_max)
        self.by_chance = by_chance
        """A sequence of at most so many steps fails whatever it has, until the process is renewed."""
        self.ever_again = ever_again
        """Whether any sequence fails in a new process."""
        self.renewed = 0

    def begin(self, steps: tuple[Number, ...]) -> Numbers:
        session = Lucky(steps, self)
        self.sessions.append(session)
        return session

    def renew(self) -> None:
        self.renewed += 1


class Lucky(Numbers):
    """Fails at its last step by chance, if its stage says so."""

    def __init__(self, steps: tuple[Number, ...], stage: LuckyStage) -> None:
        super().__init__()
        self.last = steps[-1] if steps else None
        self.by_chance = len(steps) <= stage.by_chance and not stage.renewed
        self.never = bool(stage.renewed) and not stage.ever_again

    def apply(self, step: Number) -> None:
        if self.never:
            self.played.append(step)
            return
        super().apply(step)
        if self.by_chance and step is self.last:
            raise Violation("by chance", "BCK-1")


LONG = tuple(map(Number, range(200)))


def shrunk(effort_max: int, share: float = 1.0) -> tuple[Breach[Number], int]:
    """Return what is left of a long sequence, and how many calls that took without the last repetition."""
    stage = NumbersStage(effort_max)
    found = smallest(stage, Breach(LONG, Violation("both", "BCK-1")), share)
    return found, sum(session.calls for session in stage.sessions[:-1])


def test_what_does_not_matter_is_left_out() -> None:
    found, _ = shrunk(10_000)
    assert [step.value for step in found.steps] == [30, 70]


def test_it_ends_after_so_many_calls_whatever_the_clock_says(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = []
    for now in (0.0, 1e6):
        ticks = iter(range(1_000_000))
        monkeypatch.setattr(time, "monotonic", lambda now=now, ticks=ticks: now * next(ticks))
        found, calls = shrunk(300)
        assert 300 <= calls <= 300 + len(LONG)
        sizes.append(len(found.steps))
    assert sizes[0] == sizes[1] and 2 < sizes[0] < len(LONG)


def test_a_share_of_nothing_leaves_the_sequence_as_it_was() -> None:
    found, calls = shrunk(10_000, share=0.0)
    assert (found.steps, calls) == (LONG, 0)


def test_if_the_smallest_does_not_fail_again_the_newest_before_it_that_does_is_made_smaller_in_new_processes() -> (
    None
):
    stage = LuckyStage(100_000, by_chance=20)
    found = smallest(stage, Breach(LONG, Violation("both", "BCK-1")))
    assert [step.value for step in found.steps] == [30, 70]
    assert str(found.violation) == "both"
    assert stage.renewed > 1
    again = stage.sessions[-stage.renewed :]
    sizes = [len(session.played) for session in again]
    newest = next(place for place, size in enumerate(sizes) if size > 20)
    assert newest > 1, "the smaller ones, which failed by chance, were played again before it"
    assert sizes[:newest] == sorted(sizes[:newest]), "the newest, which are the smallest, come first"


def test_one_that_is_short_but_failed_by_chance_is_made_smaller_in_new_processes_too() -> None:
    """The newest that fails again is short enough, and still has steps that do not matter."""
    found = smallest(LuckyStage(100_000, by_chance=5), Breach(LONG, Violation("both", "BCK-1")))
    assert [step.value for step in found.steps] == [30, 70]


def test_what_failed_once_in_a_new_process_is_played_again_there() -> None:
    """In one run of a new process a sequence of three steps fails by chance, and then never again."""

    class Once(MindfulStage):
        used = False

        def begin(self, steps: tuple[Number, ...]) -> Numbers:
            if not self.spoilt and len(steps) == 3 and not self.used:
                self.used = True
                session = Lucky(steps, LuckyStage(0, by_chance=3))
                self.sessions.append(session)
                return session
            return super().begin(steps)

    found = smallest(Once(100_000), Breach(LONG, Violation("both", "BCK-1")))
    assert {30, 70} <= {step.value for step in found.steps}


def test_going_back_ends_with_a_part_of_the_effort_and_then_the_first_is_what_was_found() -> None:
    stage = LuckyStage(1_000, by_chance=20, ever_again=False)
    first = Breach(LONG, Violation("both", "BCK-1"))
    assert smallest(stage, first) is first
    played = sum(len(session.played) for session in stage.sessions[-stage.renewed :])
    assert stage.renewed > 1 and played <= 1_000


def test_another_clause_in_a_new_process_is_not_the_same_failure() -> None:
    class Elsewhere(NumbersStage):
        def renew(self) -> None:
            self.clause = "BCK-2"

        clause = "BCK-1"

        def begin(self, steps: tuple[Number, ...]) -> Numbers:
            session = super().begin(steps)
            apply = session.apply

            def renamed(step: Number) -> None:
                try:
                    apply(step)
                except Violation as violation:
                    violation.clause = self.clause
                    raise

            session.apply = renamed  # type: ignore[method-assign]
            return session

    first = Breach(LONG, Violation("both", "BCK-1"))
    assert smallest(Elsewhere(10_000), first) is first


def test_a_process_that_another_program_ended_meanwhile_is_no_smaller_failure() -> None:
    class Ended(NumbersStage):
        """Of every third session, another program ends the process."""

        def begin(self, steps: tuple[Number, ...]) -> Numbers:
            session = super().begin(steps)
            if len(self.sessions) % 3 == 0:
                session.apply = ended  # type: ignore[method-assign]
            return session

    def ended(step: Number) -> None:
        raise Violation("ended with SIGTERM", "BCK-1", fatal=True, from_outside=True)

    found = smallest(Ended(10_000), Breach(LONG, Violation("both", "BCK-1")))
    assert str(found.violation) == "both"
    assert {30, 70} <= {step.value for step in found.steps}


class MindfulStage(NumbersStage):
    """A stage whose process is spoilt by a run of many steps: from then on only long sequences fail in it."""

    def __init__(self, effort_max: int) -> None:
        super().__init__(effort_max)
        self.spoilt = False

    def begin(self, steps: tuple[Number, ...]) -> Numbers:
        session = Masked() if self.spoilt and len(steps) < LONG_ENOUGH else Numbers()
        self.spoilt = self.spoilt or len(steps) >= LONG_ENOUGH
        self.sessions.append(session)
        return session

    def renew(self) -> None:
        self.spoilt = False


class Masked(Numbers):
    """Fails never."""

    def apply(self, step: Number) -> None:
        self.calls += 1
        self.played.append(step)


LONG_ENOUGH = 40


def test_a_sequence_that_stays_long_because_processes_remember_is_made_smaller_in_new_ones() -> None:
    found = smallest(MindfulStage(100_000), Breach(LONG, Violation("both", "BCK-1")))
    assert [step.value for step in found.steps] == [30, 70]


class HangingStage(NumbersStage):
    """A stage whose sessions exceed the time limit of a call at their end if both 30 and 70 were played."""

    def __init__(self, effort_max: int, scales: bool = True) -> None:
        super().__init__(effort_max)
        self.scales = scales
        self.share = 1.0
        self.cost = 0.0
        """The usual limits that were waited for."""

    def scale_time_limit(self, share: float) -> bool:
        self.share = share
        return self.scales

    def slow(self, steps: tuple[Number, ...]) -> bool:
        """Whether a sequence that does not hang takes longer than a share of the limit."""
        return False

    def begin(self, steps: tuple[Number, ...]) -> Numbers:
        session = super().begin(steps)
        apply = session.apply

        def hanging(step: Number) -> None:
            try:
                apply(step)
                if step is steps[-1] and self.share < 1 and self.slow(steps):
                    raise Violation("both", "BCK-1")
            except Violation as violation:
                violation.hung = True
                self.cost += self.share
                raise

        session.apply = hanging  # type: ignore[method-assign]
        return session


HUNG = Breach(LONG, Violation("both", "BCK-1", fatal=True, hung=True))


def test_one_that_hangs_is_made_smaller_with_a_shorter_limit_and_hangs_for_the_usual_one_at_the_end() -> None:
    stage = HangingStage(60_000)
    found = smallest(stage, HUNG)
    assert [step.value for step in found.steps] == [30, 70]
    assert stage.share == 1.0
    assert 1.0 < stage.cost < 5.0, "the usual limit was waited for once, at the end, and a tenth of it else"


def test_hangs_are_counted_as_effort_though_they_take_no_calls() -> None:
    """Each costs what 1,500 calls do, so few are tried however short the sequence is."""
    stage = HangingStage(6_000)
    smallest(stage, HUNG)
    assert stage.cost < 2.5


def test_what_is_only_slow_is_not_taken_for_what_hangs() -> None:
    class SlowStage(HangingStage):
        def slow(self, steps: tuple[Number, ...]) -> bool:
            return len(steps) == 1

    found = smallest(SlowStage(60_000), HUNG)
    assert {30, 70} <= {step.value for step in found.steps}
    assert found.violation.hung


def test_one_that_hangs_is_left_as_it_is_where_no_shorter_limit_is_possible() -> None:
    stage = HangingStage(60_000, scales=False)
    assert smallest(stage, HUNG) is HUNG
    assert stage.sessions == []


def test_a_smaller_one_that_hangs_where_the_first_did_not_is_another_failure() -> None:
    stage = HangingStage(60_000)
    first = Breach(LONG, Violation("both", "BCK-1"))
    assert smallest(stage, first) is first
    assert len(stage.sessions) <= 2, "each costs the usual limit"
