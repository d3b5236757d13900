"""If a default of the runtime is on but must be off, the conformance test for it fails."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from barrier_tck.conformance import test_local_recovery, test_smoke
from barrier_tck.conformance.trials import Trials
from barrier_tck.harness.reference import jobs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.reference_impl.config import CheckpointConfig, JobConfig

BODIES: dict[str, Any] = {
    "checkpoints": partial(
        test_smoke.test_without_checkpointing_no_checkpoint_is_taken_and_the_output_is_exact, enabled=None
    ),
    "local_recovery": test_local_recovery.test_local_recovery_is_off_unless_configured,
}


@pytest.mark.parametrize(
    ("default", "value"), [("checkpoints", CheckpointConfig(interval_ms=15)), ("local_recovery", True)]
)
def test_a_default_that_is_on_is_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, default: str, value: object
) -> None:
    on: dict[str, Any] = {default: value}
    monkeypatch.setattr(jobs, "JobConfig", partial(JobConfig, **on))
    with pytest.raises(AssertionError):
        BODIES[default](Trials(ReferenceSimulated(), tmp_path))
