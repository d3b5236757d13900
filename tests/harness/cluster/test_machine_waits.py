"""How long a job is held up by its machine, on a simulated one: a busy machine gives it time, and a stuck job has none.

Grain: a scripted machine in virtual time.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from barrier_tck.harness.cluster.machine_waits import LOOKS_EVERY_MS, MachineWaits
from barrier_tck.harness.record.held_up_notes import HeldUpNotes
from barrier_tck.harness.record.history import Recorded
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.slow_machine import WAITS_ALLOWED, allowed_on_a_slow_machine_ms
from barrier_tck.harness.support.wall_clock import disks_awaited_s

BOUND_MS = 90_000.0


@dataclass
class Machine:
    """A machine that gives a job's only busy thread a part of a processor, and its sleeping threads all they want."""

    share: float
    stuck: bool = False
    """Whether the job sleeps for ever, but for what wakes up now and then."""
    now_ms: float = 0.0
    work_ms: float = 60_000.0
    waited_ms: float = 0.0

    def pass_time(self, ms: float) -> None:
        self.now_ms += ms
        if self.stuck:
            self.waited_ms += 0.01 * ms * (1 - self.share)
        else:
            self.work_ms -= ms * self.share
            self.waited_ms += ms * (1 - self.share)

    def waited_s(self, process: int) -> dict[int, float]:
        return {process: self.waited_ms / 1_000, process + 1: 0.0}


def ends_as(machine: Machine) -> str:
    """Watch a job as a trial does, until it has done its work or its time is over."""
    noted = list[Recorded[Operation]]()
    waits = MachineWaits(lambda: (10,), machine.waited_s, disks_awaited_s=lambda: 0.0)
    notes = HeldUpNotes(
        waits, lambda held: noted.append(Recorded(len(noted), machine.now_ms, "machine", held))
    )
    while machine.work_ms > 0:
        notes.look(machine.now_ms)
        if machine.now_ms >= BOUND_MS + allowed_on_a_slow_machine_ms(noted, BOUND_MS):
            return "stuck"
        machine.pass_time(1_000)
    return "done"


@pytest.mark.parametrize("share", [1.0, 0.5, 0.25])
def test_how_busy_the_machine_is_does_not_decide_what_becomes_of_a_job(share: float) -> None:
    working, stuck = Machine(share), Machine(share, stuck=True)
    assert (ends_as(working), ends_as(stuck)) == ("done", "stuck")
    assert stuck.now_ms < 1.1 * BOUND_MS, "a stuck job waits for no processor"


def test_a_job_that_is_next_to_never_given_a_processor_has_an_end_too() -> None:
    machine = Machine(share=0.001)
    assert ends_as(machine) == "stuck"
    assert machine.now_ms == pytest.approx((1 + WAITS_ALLOWED) * BOUND_MS, rel=0.02)


def test_of_many_that_wait_at_one_time_that_time_counts_once_and_none_of_before_the_trial() -> None:
    waited_s = {1: {1: 7.0, 2: 0.0}, 9: {9: 0.040}}
    waits = MachineWaits(lambda: tuple(waited_s), lambda process: waited_s[process])
    waits.look(0.0)
    assert waits.processor_ms == 0.0
    waited_s[1] = {1: 7.9, 2: 0.8}
    waits.look(LOOKS_EVERY_MS - 1)
    assert waits.processor_ms == 0.0, "it is not yet time to look"
    waits.look(LOOKS_EVERY_MS)
    assert waits.processor_ms == LOOKS_EVERY_MS
    waited_s[9] = {9: 0.005, 10: 0.030}  # a process that ended, and another one of the same number
    waits.look(2 * LOOKS_EVERY_MS)
    assert waits.processor_ms == pytest.approx(LOOKS_EVERY_MS + 30)


def test_the_time_in_which_some_process_waits_for_a_disk_is_measured_beside_it() -> None:
    disks_s = 100.0
    waits = MachineWaits(lambda: (), lambda process: {}, disks_awaited_s=lambda: disks_s)
    waits.look(0.0)
    assert waits.disk_ms == 0.0, "what was before the trial does not count"
    disks_s = 100.25
    waits.look(LOOKS_EVERY_MS)
    assert (waits.processor_ms, waits.disk_ms) == (0.0, 250.0)


def test_the_kernel_is_asked_for_how_long_disks_were_awaited(tmp_path: Path) -> None:
    pressure = tmp_path / "io"
    assert disks_awaited_s(pressure) == 0.0, "a kernel that does not tell"
    pressure.write_text(
        "some avg10=0.00 avg60=0.53 avg300=1.05 total=320394459\nfull avg10=0.00 avg60=0.30 avg300=0.49 total=7\n"
    )
    assert disks_awaited_s(pressure) == 320.394459
