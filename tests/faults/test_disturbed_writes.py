"""Writes of checkpoint files that are disturbed: the injector proves one, and says why there was none."""

from __future__ import annotations

import pytest

from barrier_tck.faults.kinds.disturb_writes import DisturbWrites
from barrier_tck.faults.targets import WriteFault
from tests.harness.fake_system import FakeTargets, FakeWrites


class OneWriter(FakeTargets):
    """Exposes the same writes."""

    def __init__(self, writes: FakeWrites) -> None:
        super().__init__()
        self.of_checkpoints = writes

    def writes(self) -> FakeWrites:
        return self.of_checkpoints


def test_disturbed_writes_are_proved_by_one_that_was() -> None:
    writes = FakeWrites("the writes")
    found = DisturbWrites(WriteFault.SLOW, 2, 40).inject(OneWriter(writes))
    assert found.fired and found.heal is None and writes.disturbed == (WriteFault.SLOW, 2, 40)


@pytest.mark.parametrize(
    ("writes", "outcome", "told"),
    [
        (FakeWrites("the writes", gone=True), "not_fired", "no process could write"),
        (FakeWrites("the writes", stubborn=True), "not_fired", "no write was disturbed"),
        (None, "skipped", "writes of checkpoint files"),
    ],
)
def test_writes_that_were_not_made_did_not_fire(writes: FakeWrites | None, outcome: str, told: str) -> None:
    targets = OneWriter(writes) if writes is not None else FakeTargets(missing=("writes",))
    found = DisturbWrites(WriteFault.FULL, 2).inject(targets, lambda seconds: None)
    assert found.outcome == outcome and told in found.reason


def test_only_a_slow_write_is_late() -> None:
    for trouble, latency_ms in ((WriteFault.SLOW, 0), (WriteFault.FULL, 1)):
        with pytest.raises(ValueError, match="a write that is slow has one"):
            DisturbWrites(trouble, 1, latency_ms)
