"""A system that is not ours, played from a script: it has other names, another topology, no barriers and no executors.

It processes micro-batches, numbered from 0: a batch is committed, and then noted as complete. Nobody acknowledges
anything. A ``Wording`` gives its names and messages; the scripts know neither.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pyarrow as pa

from barrier_tck.faults.targets import NoTargets, ProcessTarget
from barrier_tck.harness.plan.job_graph import EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record import operations as ops
from barrier_tck.harness.record.history import End, History, Recorded, Row
from barrier_tck.harness.record.operations import Operation
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.job_view import JobView, Role, SubtaskView
from barrier_tck.harness.system.system_under_test import Capability, NemesisHooks, TrialOutcome
from barrier_tck.harness.workloads.sequential_model import Aggregate, SequentialSpec
from barrier_tck.harness.workloads.workload import SplitData
from tests.harness.fake_system import FakeProcess

READERS = 3
WRITERS = ("a", "b")
BATCH = 6
"""Records of one batch: two from each reader."""


@dataclass(frozen=True)
class Wording:
    """The names of everything, and the message when something goes wrong."""

    workload: str
    """How a plan names the workload: ``package.module:Factory``."""
    reader: str
    worker: str
    writer: str
    numbered: str
    """How a subtask is named, with ``{vertex}`` and ``{number}``."""
    warden: str
    """The process that reports most operations."""
    columns: tuple[str, str, str, str, str]
    """The columns for id, key, value, count and sum."""
    says: Callable[[str], str]
    """Returns its message about something that went wrong."""

    def subtask(self, vertex: str, number: int | str) -> str:
        """Return the name of one subtask."""
        return self.numbered.format(vertex=vertex, number=number)

    @property
    def victim(self) -> str:
        """Return the one subtask that keeps state."""
        return self.subtask(self.worker, 0)


SALT = Wording(
    workload="tests.harness.oracle.foreign_system:salt",
    reader="tap",
    worker="vat",
    writer="spout",
    numbered="{vertex}/{number}",
    warden="warden",
    columns=("serial", "vat", "grams", "pieces", "weight"),
    says=lambda what: f"the warden noted: {what}",
)

LIKE_OURS = Wording(
    workload="tests.harness.oracle.foreign_system:like_ours",
    reader="source",
    worker="totals",
    writer="sink",
    numbered="{vertex}[{number}]",
    warden="coordinator",
    columns=("id", "key", "value", "count", "sum"),
    # A reader of words finds everything in them that the reference runtime ever says.
    says=lambda what: (
        "no checkpoint can be restored, and nothing was deleted. Tried: checkpoint 1: totals[0] declined: "
        "checkpoints/job/chk-1/totals-0: it has 3 bytes, expected 9; all 20 restarts are used up; its host was lost"
    ),
)

SILENT = Wording(
    workload="tests.harness.oracle.foreign_system:silent",
    reader="n",
    worker="o",
    writer="c",
    numbered="{number}#{vertex}",
    warden="",
    columns=("n", "k", "v", "c", "s"),
    says=lambda what: "",
)

WORDINGS = {"salt": SALT, "like ours": LIKE_OURS, "silent": SILENT}


class Heap:
    """The records of three readers, counted and weighed by key."""

    description = "Count and weigh the pieces of each key; write one row per record."
    shapes = ("funnel",)
    input_directory: Path | None = None

    def __init__(self, wording: Wording) -> None:
        self._wording = wording
        self.name = wording.workload

    @property
    def spec(self) -> SequentialSpec:
        identifier, key, value, count, total = self._wording.columns
        return SequentialSpec(identifier, (key,), (Aggregate(count), Aggregate(total, value)))

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        words = self._wording
        return JobPlan(
            shape="funnel",
            vertices=(
                VertexPlan(words.reader, "source", READERS),
                VertexPlan(words.worker, "scales", 1),
                VertexPlan(words.writer, "sink", len(WRITERS)),
            ),
            edges=(
                EdgePlan(words.reader, words.worker, Spread.REBALANCE),
                EdgePlan(words.worker, words.writer, Spread.REBALANCE),
            ),
        )

    def problem_of(self, job: JobPlan) -> str | None:
        return None

    @property
    def schemas(self) -> Mapping[str, pa.Schema]:
        identifier, key, value, _, _ = self._wording.columns
        columns = [(identifier, pa.int64()), (key, pa.string()), (value, pa.int64())]
        return {self._wording.reader: pa.schema(columns)}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        identifier, key, value, _, _ = self._wording.columns
        number = plan.workload.batches * plan.workload.batch_records
        return tuple(
            SplitData(
                f"{self._wording.reader}{reader}",
                reader,
                tuple(
                    {identifier: 100 * reader + i, key: f"k{(reader + i) % 2}", value: i + 1}
                    for i in range(number)
                ),
                vertex=self._wording.reader,
            )
            for reader in range(READERS)
        )


def salt() -> Heap:
    return Heap(SALT)


def like_ours() -> Heap:
    return Heap(LIKE_OURS)


def silent() -> Heap:
    return Heap(SILENT)


class _Processes(NoTargets):
    """Only worker processes can be hit."""

    def __init__(self) -> None:
        self.worker = FakeProcess("a process")

    def worker_of(self, subtask: str) -> ProcessTarget | None:
        return self.worker


@dataclass
class Stage:
    """The stage on which a script is played: the clock, the operations told, and the output."""

    plan: TrialPlan
    words: Wording
    nemesis: NemesisHooks
    processes: _Processes = field(default_factory=_Processes)
    now_ms: float = 0.0
    lines: list[Recorded[Operation]] = field(default_factory=list)
    output: list[Row] = field(default_factory=list)
    end: tuple[End, Reason, str] = (End.FINISHED, Reason.FINISHED, "")

    def __post_init__(self) -> None:
        heap = Heap(self.words)
        splits = heap.splits(self.plan)
        rows = [row for offset in zip(*(split.rows for split in splits), strict=True) for row in offset]
        self.right: list[Row] = heap.spec.running(rows)
        """All rows of a right output, batch by batch."""
        self.nemesis.bind(self.processes, lambda: self.now_ms)

    def tell(self, operation: Operation) -> None:
        """Note an operation, one millisecond after the previous one."""
        self.now_ms += 1
        self.lines.append(Recorded(len(self.lines), self.now_ms, self.words.warden, operation))

    def attempt(self, number: int, restored: int | None = None) -> None:
        self.processes.worker = FakeProcess("a process")
        self.tell(ops.AttemptStarted(number, restored))
        self.tell(ops.AttemptRunning(number))
        self.nemesis.first_attempt_ran()

    def fails(self, number: int) -> None:
        lost = self.words.says("a process is gone")
        self.tell(ops.AttemptEnded(number, Reason.PROCESS_LOST, lost))

    def wait(self, milliseconds: float) -> None:
        self.now_ms += milliseconds

    def strike(self) -> None:
        """Let the next fault of the plan fire."""
        due = self.nemesis.next_time_ms()
        assert due is not None
        self.now_ms = max(self.now_ms, due)
        self.nemesis.time_reached(self.now_ms)

    def rows(self, batch: int) -> list[Row]:
        return [dict(row) for row in self.right[batch * BATCH : (batch + 1) * BATCH]]

    def shows(self, batch: int) -> None:
        """Make the right rows of a batch visible."""
        self.output += self.rows(batch)

    def commits(self, batch: int | None) -> None:
        for writer in WRITERS:
            self.tell(ops.Committed(self.words.subtask(self.words.writer, writer), batch))

    def batch(self, number: int, complete: bool = True) -> None:
        """Show and commit a batch and, if ``complete``, note it as complete."""
        self.shows(number)
        self.commits(number)
        if complete:
            self.tell(ops.CheckpointCompleted(number))

    def finishes(self) -> None:
        self.tell(ops.JobFinished())

    def gives_up(self, reason: Reason) -> None:
        detail = self.words.says("it is no use")
        self.tell(ops.JobFailed(reason, detail))
        self.end = (End.FAILED, reason, detail)

    def is_cut_off(self) -> None:
        """Let the trial reach its time limit."""
        detail = self.words.says("too late")
        self.tell(ops.JobCut(Reason.OUT_OF_TIME, detail))
        self.end = (End.STUCK, Reason.OUT_OF_TIME, detail)


class ForeignSystem:
    """Plays a script instead of a job."""

    name = "foreign"
    world = "simulated"

    def __init__(
        self, script: Callable[[Stage], None], words: Wording, capabilities: frozenset[Capability]
    ) -> None:
        self._script = script
        self._words = words
        self.capabilities = capabilities

    def job(self, plan: TrialPlan) -> JobView:
        words = self._words
        readers = [SubtaskView(words.subtask(words.reader, n), (Role.SOURCE,)) for n in range(READERS)]
        writers = [SubtaskView(words.subtask(words.writer, name), (Role.SINK,)) for name in WRITERS]
        return JobView((*readers, SubtaskView(words.victim, (Role.STATEFUL,)), *writers))

    def run(self, plan: TrialPlan, nemesis: NemesisHooks, directory: Path) -> TrialOutcome:
        stage = Stage(plan, self._words, nemesis)
        self._script(stage)
        end, reason, detail = stage.end
        history = History(tuple(stage.lines), end, reason, detail, output=tuple(stage.output))
        # Files on a disk are what is judged, so the lines are read back as a reader of the run directory would do.
        lines = tuple(
            msgspec.json.decode(msgspec.json.encode(line), type=Recorded[Operation])
            for line in history.operations
        )
        read = msgspec.structs.replace(history, operations=lines)
        return TrialOutcome(read, self.job(plan).names, stage.now_ms)

    def close(self) -> None:
        pass
