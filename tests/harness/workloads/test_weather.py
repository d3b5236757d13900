"""Flights and weather: a join of two real tables, judged as a dataflow; grain: simulation."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pandas as pd
import pytest

from barrier_tck.faults.vocabulary import ProtocolPoint
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record.history import History
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.weather import Weather, tables
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.kills import kill

PLAN = filled(
    TrialPlan(
        seed=2,
        workload=WorkloadPlan("weather", batches=10, batch_records=5, records_per_second=600),
        checkpoints=CheckpointPlan(interval_ms=12),
        faults=kill(ProtocolPoint.COMPLETION_NOTIFIED, "out[0]", worker=True),
    )
)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    result = execute(PLAN, ReferenceSimulated(), tmp_path_factory.mktemp("trial"))
    assert (result.record.verdict, result.record.faults_fired) == (Verdict.VALID, 1)
    assert result.history is not None
    return result.history


def judge(history: History) -> Verdict:
    return Dataflow(TrialInput(Weather(), PLAN), exact=True).check(TrialContext(PLAN, history)).verdict


def test_the_output_is_the_join_that_pandas_makes(history: History) -> None:
    flights = pd.DataFrame(
        row for split in Weather().splits(PLAN) if split.vertex == "flights" for row in split.input
    )
    expected = flights.merge(pd.DataFrame(tables()[1]), on=["origin", "time_hour"])
    assert history.output is not None and 0 < len(history.output) == len(expected)
    key = ["flight_id"]
    seen = pd.DataFrame(history.output)[expected.columns].sort_values(key).reset_index(drop=True)
    pd.testing.assert_frame_equal(seen, expected.sort_values(key).reset_index(drop=True), check_dtype=False)


def test_a_pair_that_is_missing_or_twice_and_a_row_that_a_side_lost_are_found(history: History) -> None:
    assert judge(history) is Verdict.VALID
    output = history.output or ()
    for changed in (tuple(output[1:]), (*output, output[0])):
        assert judge(msgspec.structs.replace(history, output=changed, output_by=())) is Verdict.INVALID
    place, view = max((place, view) for place, view in enumerate(history.checkpoints) if not view.finished)
    for side in ("left", "right"):
        part = next(part for part in view.state if part.name == side and part.entries)
        text, rows = next(iter(part.entries.items()))
        lost = msgspec.structs.replace(part, entries={**part.entries, text: rows[1:]})
        state = tuple(lost if other is part else other for other in view.state)
        other_view = msgspec.structs.replace(view, state=state)
        broken = (*history.checkpoints[:place], other_view, *history.checkpoints[place + 1 :])
        assert judge(msgspec.structs.replace(history, checkpoints=broken)) is Verdict.INVALID


def test_the_workload_is_one_short_file() -> None:
    import barrier_tck.harness.workloads.weather as module

    assert module.__file__ is not None
    assert len(Path(module.__file__).read_text().splitlines()) < 100
