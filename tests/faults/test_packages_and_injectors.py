"""Injectors prove what they did; packages know every fault of the vocabulary."""

from __future__ import annotations

from typing import get_args

import pytest

from faults.injectors import processes
from faults.packages import KILL, inject, kind_of, tag_of
from faults.targets import ProcessTarget
from faults.vocabulary import CrashCoordinator, Fault, KillExecutor, KillWorker
from tests.harness.fake_system import FakeProcess, FakeTargets

FAULTS: tuple[Fault, ...] = (KillExecutor("a[0]"), KillWorker("a[0]"), CrashCoordinator())


class OneTarget(FakeTargets):
    """Exposes the same process in every role."""

    def __init__(self, process: FakeProcess) -> None:
        super().__init__()
        self.process = process

    def _target(self, role: str, name: str) -> ProcessTarget | None:
        return self.process


@pytest.mark.parametrize("fault", FAULTS)
def test_a_kill_is_proved_by_a_dead_target(fault: Fault) -> None:
    process = FakeProcess("the victim")
    injection = inject(fault, OneTarget(process))
    assert process.dead and injection.fired and injection.target == "the victim"


@pytest.mark.parametrize(
    ("fault", "role"), list(zip(FAULTS, ("executor", "worker", "coordinator"), strict=True))
)
def test_a_target_that_is_not_exposed_is_skipped_with_the_reason(fault: Fault, role: str) -> None:
    injection = inject(fault, FakeTargets(missing=(role,)))
    assert injection.outcome == "skipped" and role in injection.reason


def test_a_target_that_was_dead_already_did_not_fire() -> None:
    process = FakeProcess("the victim")
    process.dead = True
    injection = inject(KillWorker("a[0]"), OneTarget(process))
    assert injection.outcome == "not_fired" and "already dead" in injection.reason


def test_a_target_that_outlives_the_kill_did_not_fire_after_a_bounded_wait() -> None:
    pauses: list[float] = []
    process = FakeProcess("the victim", immortal=True)
    injection = processes.kill_process(KillWorker("a[0]"), OneTarget(process), pauses.append)
    assert injection.outcome == "not_fired" and "still alive" in injection.reason
    assert len(pauses) == processes.PROOF_POLLS_MAX


def test_unsynced_writes_are_lost_only_where_the_fault_says_so() -> None:
    for fault, lost in (
        (KillExecutor("a[0]", True), True),
        (CrashCoordinator(), False),
        (KillWorker("a[0]"), False),
    ):
        process = FakeProcess("the victim")
        inject(fault, OneTarget(process))
        assert process.lost_unsynced is lost


def test_every_fault_of_the_vocabulary_has_a_kind_that_builds_it() -> None:
    for fault_type in get_args(Fault):
        built = next(
            kind.build("a[0]", False) for kind in KILL.kinds if kind.tag == fault_type.__struct_config__.tag
        )
        assert isinstance(built, fault_type) and kind_of(built).tag == tag_of(built)
    assert KILL.targets == ("executor", "worker", "coordinator")
