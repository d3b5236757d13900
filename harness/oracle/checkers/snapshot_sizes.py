"""A full snapshot is about as large as what it holds (SNP-8).

Output and state are right, too, if a snapshot has every entry twice, pads its blocks, or drags along what earlier ones
held. What an entry takes depends on the backend, so only files of the heap are measured, of which it is known that
little surrounds the entries. They are measured where they are neither compressed nor increments, and where nothing else
lies beside them: no records in flight, and no state without keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.precondition import ALWAYS
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.oracle.standard_checker import StandardChecker, TrialToJudge
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.history import NamedFile, SnapshotView, StateView
from barrier_tck.harness.record.operations import CheckpointCompleted
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.system.system_under_test import Capability

LARGER_MAX = 1.5
"""How many bytes a snapshot may take for each character of its entries, written as text: mostly it takes about one."""
FILE_BYTES, BLOCK_BYTES = 64, 32
"""What a file may take beside its entries, and what each of its key groups may beside the name of its state."""

_SIZE = Sign("a full snapshot is larger than what it holds explains", "SNP-8")


class SnapshotSizes(StandardChecker):
    """Compares the bytes of full snapshots with the entries in them."""

    name = "snapshot-sizes"
    requires = (
        f"A full snapshot takes no more than {LARGER_MAX} bytes for each character of its entries, {BLOCK_BYTES} and a "
        f"name for each key group, and {FILE_BYTES} for each file."
    )
    judges = (
        "systems whose checkpoints can be opened and whose requests for files were counted, if their state is in the "
        "heap and not compressed"
    )
    covers = {"SNP-8": ALWAYS}
    needs = frozenset({Capability.SNAPSHOT_INSPECTION, Capability.REQUEST_LOG})
    of_fields = frozenset({"state_backend"})
    signs = (_SIZE,)
    rank = 273

    @classmethod
    def applies(cls, trial: TrialToJudge) -> bool:
        plan, default = trial.plan, TrialPlan()
        return trial.opens_checkpoints and (
            plan.state_backend,
            plan.checkpoints.compression,
            plan.checkpoints.incremental,
        ) == (default.state_backend, default.checkpoints.compression, False)

    def check(self, context: TrialContext) -> Finding:
        """Measure the part of each subtask in each checkpoint of one trial."""
        completed = {
            line.operation.checkpoint: line.index for line in context.history.of(CheckpointCompleted)
        }
        measured = size = 0
        breaches: list[Breach] = []
        for view in context.history.checkpoints:
            for subtask, files, parts in _alone(view):
                taken = sum(file.size for file in files)
                measured, size = measured + 1, size + taken
                explained = _explained(len(files), parts)
                if taken > explained:
                    sentence = (
                        f"checkpoint {view.checkpoint} takes {taken} bytes for the state of {subtask}, of which its "
                        f"{sum(len(part.entries) for part in parts)} entries explain {explained} at most"
                    )
                    line = completed.get(view.checkpoint)
                    breaches.append(Breach(_SIZE, sentence, line, subtask, view.checkpoint, view.attempt))
        counts = {"snapshots": measured, "bytes": size, "too_large": len(breaches)}
        if breaches:
            summary = f"{len(breaches)} snapshots are too large; the first: {breaches[0].sentence}"
            return self.broken(context, summary, counts, breaches)
        summary = f"{measured} snapshots of {size} bytes are as large as their entries explain"
        return Finding(self.name, self.clauses if measured else (), Verdict.VALID, summary, counts)


def _alone(view: SnapshotView) -> Iterator[tuple[str, tuple[NamedFile, ...], tuple[StateView, ...]]]:
    """Yield each subtask that stored only keyed state, with its files and what these hold."""
    left_out = {part.subtask for part in view.state if not part.keyed or part.foreign}
    left_out |= {end for channel in view.in_flight for end in (channel.sender, channel.receiver)}
    for subtask, files in view.files.items():
        parts = tuple(part for part in view.state if part.subtask == subtask)
        if parts and subtask not in left_out:
            yield subtask, files, parts


def _explained(files: int, parts: tuple[StateView, ...]) -> int:
    """Return how many bytes so many files with these entries may take."""
    characters = sum(len(repr(entry)) for part in parts for entry in part.entries.items())
    # Without groups, each entry may lie in one of its own.
    blocks = sum(
        (len(set(part.groups.values())) or len(part.entries)) * (BLOCK_BYTES + len(part.name))
        for part in parts
    )
    return FILE_BYTES * files + blocks + int(LARGER_MAX * characters)
