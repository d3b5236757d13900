"""The run of three processes of the textbooks through the whole runtime: a fixed plan, and its exact channel states.

P1 initiates; P3 sees the first marker, then P2. Every process has a channel to each other one and to itself, for its
internal events. What is late on which channel decides the order; the seed decides nothing.

Grain: whole simulated trials. The machines alone are shown by ``tests/reference_impl/test_three_processes.py``.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.faults.kinds.delay_channel import DelayChannel
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, At, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import (
    SINK,
    SOURCE,
    EdgePlan,
    JobPlan,
    OperatorPlan,
    Spread,
    VertexPlan,
)
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    FilledPlan,
    NetworkPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.record.history import End, History
from barrier_tck.harness.record.operations import Acknowledged, AttemptStarted, MessagesObserved
from barrier_tck.harness.record.records import TrialRecord
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.system.system_under_test import NemesisHooks, TrialOutcome
from barrier_tck.harness.trial.trial_run import run_trial
from barrier_tck.harness.workloads.rounds import Rounds
from barrier_tck.harness.workloads.workload import SplitData

P1, P2, P3 = PROCESSES = ("p[0]", "p[1]", "p[2]")
TO = {P1: "k1", P2: "k0", P3: "k2"}
"""A key that is led to each process."""

NOTHING = (0, "nothing")
A = (1, "A")  # an internal event of P1
H_D = (3, "H->D")  # from P2 to P1
J = (5, "J")  # an internal event of P3
E_F = (7, "E->F")  # from P1 to P3, behind the marker
RECEIVERS = {A: P1, H_D: P1, J: P3, E_F: P3, NOTHING: P1}
SCRIPT = {P1: (NOTHING, A, E_F), P2: (NOTHING, H_D), P3: (NOTHING, J)}
"""What each process sends: at the start, after 50 ms, and after 100 ms. What has an even id is not sent on."""


class CourseNote(Rounds):
    """The three processes with the messages of the run."""

    name = f"{__name__}:CourseNote"

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return what each process sends."""
        return tuple(
            SplitData(
                f"of-p{number + 1}",
                number,
                tuple(
                    {"id": event[0] + 10 * number, "key": TO[RECEIVERS[event]], "path": ""}
                    for event in SCRIPT[name]
                ),
                0,
                "p",
            )
            for number, name in enumerate(PROCESSES)
        )


def message_of(row: dict[str, object]) -> str:
    """Return the name of a message; its id also tells who sent it."""
    number = int(str(row["id"])) % 10
    return next(name for known, name in RECEIVERS if known == number)


JOB = JobPlan(
    vertices=(
        # A process sends what it makes itself, and not what it takes.
        VertexPlan("p", SOURCE, 3, then=(OperatorPlan("p.sends", "again", {"turns": 1}),)),
        VertexPlan("out", SINK, 1),
    ),
    edges=(
        EdgePlan("p", "p", Spread.HASH, ("key",), feedback=True),
        EdgePlan("p", "out", Spread.REBALANCE),
    ),
)


def late(sender: str, receiver: str, latency_ms: int) -> ScheduledFault:
    return ScheduledFault(DelayChannel(sender, receiver, latency_ms, 10_000), At(0))


PLAN = TrialPlan(
    workload=WorkloadPlan(CourseNote.name, batch_records=1, records_per_second=20),
    job=JOB,
    checkpoints=CheckpointPlan(
        protocol="chandy_lamport", initiators=((P1,),), interval_ms=70, min_pause_ms=10_000, async_ms_max=0
    ),
    network=NetworkPlan(latency_ms_max=0),
    faults=(
        late(P1, P1, 60),  # A is under way when P1 records itself
        late(P2, P1, 60),  # so is the message from H to D, which P2 sent before it records itself
        late(P3, P3, 60),  # and J
        late(P1, P2, 20),  # P2 hears from P3 first
        late(P2, P3, 70),
    ),
)
"""The snapshot begins at 70 ms, between what is sent at 50 ms and at 100 ms."""


class Keeping(ReferenceSimulated):
    """Keeps the history of the trial."""

    history: History

    def run(self, plan: FilledPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Run it."""
        outcome = super().run(plan, nemesis, directory)
        self.history = outcome.history
        return outcome


def tried(plan: TrialPlan, tmp_path: Path) -> tuple[TrialRecord, History]:
    system = Keeping()
    record = run_trial(plan, system, tmp_path)
    assert system.history.end is End.FINISHED, system.history.detail
    assert record.verdict is Verdict.VALID, record.findings
    return record, system.history


def told(history: History, attempt: int = 1) -> dict[str, list[tuple[str, str, tuple[str, ...]]]]:
    """Return what each process sent to processes, and took, in its order."""
    return {
        line.operation.subtask: [
            (
                event.kind,
                event.channel,
                tuple(message_of(msgspec.json.decode(row)) for row in event.rows),
            )
            for event in line.operation.events
            if event.kind in ("sent", "taken") and not event.channel.endswith("out[0]")
        ]
        for line in history.of(MessagesObserved)
        if line.operation.attempt == attempt and line.operation.subtask in PROCESSES
    }


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_the_channel_states_are_exactly_those_of_the_note(seed: int, tmp_path: Path) -> None:
    plan = msgspec.structs.replace(PLAN, seed=seed)
    record, history = tried(plan, tmp_path)
    snapshot = next(view for view in history.checkpoints if view.checkpoint == 1)
    in_channels = {
        f"C{one.sender[2]}{one.receiver[2]}": [message_of(row) for row in one.rows]
        for one in snapshot.in_flight
        if one.rows
    }
    assert in_channels == {"C00": ["A"], "C10": ["H->D"], "C22": ["J"]}, "C11, C21 and C33, counted from 1"

    assert snapshot.positions == {"of-p1": 2, "of-p2": 2, "of-p3": 2}, "E->F is sent behind it"
    recorded = {part.subtask: part.alignment_started_ms for part in record.snapshots if part.checkpoint == 1}
    assert sorted(PROCESSES, key=recorded.__getitem__) == [P1, P3, P2]
    done = [line.operation.subtask for line in history.of(Acknowledged) if line.operation.checkpoint == 1]
    assert [name for name in done if name in PROCESSES] == [P2, P1, P3]
    assert told(history)[P3] == [
        ("sent", "p[2]->p[2]", ("J",)),
        ("taken", "p[0]->p[2]", ("E->F",)),  # while P3 still records its other channels
        ("taken", "p[2]->p[2]", ("J",)),
    ]


def test_the_processes_send_and_take_the_same_in_the_same_order_without_the_snapshot(tmp_path: Path) -> None:
    """CHL-3: every process does the same in the same order; only the markers are missing."""
    _, with_snapshot = tried(PLAN, tmp_path / "with")
    rarely = msgspec.structs.replace(PLAN.checkpoints, interval_ms=1_000_000)
    _, without = tried(msgspec.structs.replace(PLAN, checkpoints=rarely), tmp_path / "without")
    assert len(with_snapshot.checkpoints) == 1 + len(without.checkpoints), "each job ends with one"
    assert sum(map(len, told(without).values())) == 8, "four messages, each sent and taken"
    assert told(with_snapshot) == told(without)


def test_a_restore_of_the_snapshot_replays_the_messages_of_its_channels_first(tmp_path: Path) -> None:
    killed = ScheduledFault(KillWorker(P2), After(ProtocolPoint.CHECKPOINT_COMPLETED))
    _, history = tried(msgspec.structs.replace(PLAN, faults=(*PLAN.faults, killed)), tmp_path)
    starts = [
        (line.operation.attempt, line.operation.restored_checkpoint) for line in history.of(AttemptStarted)
    ]
    assert starts == [(1, None), (2, 1)]
    taken = {
        name: [rows for kind, _, rows in events if kind == "taken"]
        for name, events in told(history, attempt=2).items()
    }
    assert sorted(taken[P1]) == [("A",), ("H->D",)], "each once; their channels have no order"
    assert (taken[P2], taken[P3]) == ([], [("J",), ("E->F",)]), "E->F was not sent yet"
