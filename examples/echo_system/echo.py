"""A system under test in one file: it echoes records, survives the kill of its worker, and can lose some.

Read with chapters 1 and 2 of the guide. Run it beside the folder ``examples``::

    python -m examples.echo_system.echo          # the honest system: exit code 0
    python -m examples.echo_system.echo --lossy  # the other one: exit code 1
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa

from barrier_tck.harness import (
    After,
    Aggregate,
    AttemptEnded,
    AttemptRunning,
    AttemptStarted,
    Capability,
    Committed,
    EdgePlan,
    End,
    FaultRanges,
    History,
    JobFinished,
    JobPlan,
    JobView,
    KillWorker,
    NemesisHooks,
    NoTargets,
    Operation,
    ProcessTarget,
    Profile,
    ProtocolPoint,
    Reason,
    Recorded,
    Role,
    Row,
    ScheduledFault,
    SequentialSpec,
    SplitData,
    Spread,
    SubtaskView,
    TargetGone,
    TrialOutcome,
    TrialPlan,
    TrialRecord,
    UsageProblem,
    VertexPlan,
    WorkloadPlan,
    WorkloadRanges,
    register_workload,
    run_trial,
    workload_names,
)

# --- the workload: what the job means -----------------------------------------------------------------------


class EchoWorkload:
    """Records ``id, count``. Every record has a key of its own, so its count is 1 and an echo is right."""

    name = "echo"
    description = "Write every record to the output, once and unchanged."
    spec = SequentialSpec(id_column="id", key_columns=("id",), aggregates=(Aggregate("count"),))

    shapes = ("line",)

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return the only graph: a source and a sink."""
        return JobPlan(
            shape="line",
            vertices=(VertexPlan("source", "source", 1), VertexPlan("sink", "sink", 1)),
            edges=(EdgePlan("source", "sink", Spread.FORWARD),),
        )

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept only this graph."""
        return None if job == self.job("line", {}) else "echo knows one line of two vertices, each one wide"

    @property
    def input_directory(self) -> Path | None:
        """Return None: the input is generated."""
        return None

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return the columns of the input, for systems that read it from files."""
        return {"source": pa.schema([("id", pa.int64()), ("count", pa.int64())])}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return one split with all records."""
        number = plan.workload.batches * plan.workload.batch_records
        return (SplitData("all", 0, tuple({"id": identifier, "count": 1} for identifier in range(number))),)


if EchoWorkload.name not in workload_names():
    register_workload(EchoWorkload.name, EchoWorkload)

# --- the system ---------------------------------------------------------------------------------------------

SUBTASK = "echo[0]"


@dataclass
class Disk:
    """What survives a worker: how far the input was read, and the output."""

    position: int = 0
    output: list[Row] = field(default_factory=list)


@dataclass
class Worker:
    """The process that is killed; implements ``ProcessTarget``."""

    number: int
    dead: bool = False

    @property
    def description(self) -> str:
        """Return its name in the fault log."""
        return f"worker {self.number}"

    def kill(self, lose_unsynced: bool = False) -> None:
        """Kill it; raises TargetGone if it was dead already."""
        if self.dead:
            raise TargetGone(self.description)
        self.dead = True

    def is_dead(self) -> bool:
        """Return whether it is dead: the proof that the fault fired."""
        return self.dead


class EchoTargets(NoTargets):
    """The targets of faults: only the worker, as there are no executors and no coordinator."""

    def __init__(self) -> None:
        """Start with the first worker."""
        self.worker = Worker(1)

    def worker_of(self, subtask: str) -> ProcessTarget | None:
        """Return the worker that runs now."""
        return self.worker


class EchoSystem:
    """Writes a batch and the new position in one step, so a worker that dies loses and repeats nothing."""

    name = "echo"
    world = "simulated"
    capabilities = frozenset({Capability.WORKER_KILL})
    uses: tuple[str, ...] = ()
    profiles = (
        Profile(
            name="echo",
            description="Short inputs, and up to two kills of the worker.",
            workload=WorkloadRanges(names=("echo",), batches=(1, 12), batch_records=(1, 4)),
            faults=FaultRanges(number=(0, 2), timed_per_mille=0),
        ),
    )

    def job(self, plan: TrialPlan) -> JobView:
        """Return the one subtask, which passes one point as often as there are batches."""
        if plan.workload.name != "echo":
            raise UsageProblem(f"it knows no workload but echo, and not {plan.workload.name}")
        passes = {ProtocolPoint.RECORDS_PROCESSED: plan.workload.batches}
        return JobView((SubtaskView(SUBTASK, (Role.SOURCE, Role.SINK), passes),))

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        """Echo the input batch by batch; a dead worker is replaced by one that goes on from the disk."""
        rows = EchoWorkload().splits(plan)[0].rows
        disk, targets, lines = Disk(), EchoTargets(), list[Recorded[Operation]]()

        def note(operation: Operation) -> None:
            lines.append(Recorded(len(lines), float(len(lines)), "coordinator", operation))

        nemesis.bind(targets, lambda: float(len(lines)))
        note(AttemptStarted(1))
        note(AttemptRunning(1))
        while disk.position < len(rows):
            if targets.worker.dead:
                note(AttemptEnded(targets.worker.number, Reason.PROCESS_LOST))
                targets.worker = Worker(targets.worker.number + 1)
                note(AttemptStarted(targets.worker.number))
                note(AttemptRunning(targets.worker.number))
            batch = rows[disk.position : disk.position + plan.workload.batch_records]
            before = disk.position
            self.echo(batch, disk, targets.worker, nemesis)
            if disk.position > before:
                note(Committed(SUBTASK, disk.position // plan.workload.batch_records))
        note(JobFinished())
        history = History(tuple(lines), End.FINISHED, Reason.FINISHED, "", output=tuple(disk.output))
        return TrialOutcome(history, (SUBTASK,), duration_ms=float(len(lines)))

    def echo(self, batch: tuple[Row, ...], disk: Disk, worker: Worker, nemesis: NemesisHooks) -> None:
        """Process one batch. The worker stands still at the point, where it may be killed."""
        nemesis.point_reached(ProtocolPoint.RECORDS_PROCESSED, SUBTASK, worker.number)
        if worker.dead:
            return
        disk.output.extend(batch)
        disk.position += len(batch)

    def close(self) -> None:
        """Do nothing: a run leaves nothing behind."""


class LossyEchoSystem(EchoSystem):
    """Moves the position first: a worker that dies between the two steps loses its batch."""

    name = "lossy-echo"

    def echo(self, batch: tuple[Row, ...], disk: Disk, worker: Worker, nemesis: NemesisHooks) -> None:
        """Process one batch in the wrong order."""
        disk.position += len(batch)
        nemesis.point_reached(ProtocolPoint.RECORDS_PROCESSED, SUBTASK, worker.number)
        if worker.dead:
            return
        disk.output.extend(batch)


# --- running it ---------------------------------------------------------------------------------------------

CALM = TrialPlan(workload=WorkloadPlan(name="echo", batches=5, batch_records=2))
"""Ten records in five batches, and nothing goes wrong."""

WITH_KILL = TrialPlan(
    workload=CALM.workload,
    faults=(ScheduledFault(KillWorker(SUBTASK), After(ProtocolPoint.RECORDS_PROCESSED, SUBTASK, nth=3)),),
)
"""The same, but the worker is killed in the middle of the third batch."""


def judge(plan: TrialPlan, system: EchoSystem) -> TrialRecord:
    """Run a plan and judge it with the standard checkers."""
    with tempfile.TemporaryDirectory() as directory:
        return run_trial(plan, system, Path(directory))


def main(arguments: list[str]) -> int:
    """Run both plans, print what every checker found, and return the exit code."""
    system = LossyEchoSystem() if "--lossy" in arguments else EchoSystem()
    worst = 0
    for title, plan in (("without a fault", CALM), ("with a kill", WITH_KILL)):
        record = judge(plan, system)
        print(f"{system.name}, {title}: {record.verdict.value}")
        for finding in record.findings:
            print(f"  {finding.checker}: {finding.verdict.value}: {finding.summary}")
            for example in finding.examples:
                print(f"    {example}")
        worst = max(worst, {"valid": 0, "invalid": 1, "unknown": 2}[record.verdict.value])
    return worst


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
