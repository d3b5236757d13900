"""Planted bugs of two-phase commits: which transaction belongs to which checkpoint, and what was committed already."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial

from barrier_tck.harness.reference.mutants.data_bugs import with_sink
from barrier_tck.reference_impl.ids import CheckpointId
from barrier_tck.reference_impl.operators.sinks import TransactionalFileSink
from barrier_tck.reference_impl.protocol.messages import OperatorSnapshot
from barrier_tck.reference_impl.protocol.transactions import TransactionHandle
from barrier_tck.reference_impl.state.backend import SnapshotFuture
from barrier_tck.reference_impl.state.snapshots import FinishedSnapshot

_COMMITTED_FOR = re.compile(r"-chk([0-9]+)-")


class RecordsNothingWhenIdle(TransactionalFileSink):
    """SI-05: a checkpoint before which no record came is acknowledged, and nothing is recorded for it: not even the
    transactions that are prepared and not committed yet.
    """

    def snapshot(self, checkpoint: CheckpointId) -> SnapshotFuture[OperatorSnapshot]:
        """List nothing if nothing came."""
        idle = not self._buffer and self._current is None
        taken = super().snapshot(checkpoint)
        return FinishedSnapshot(OperatorSnapshot(self.uid, input_ended=self._input_ended)) if idle else taken


class CommitsForTheCurrentOne(TransactionalFileSink):
    """SI-06: what is prepared when a notification comes counts as prepared for that checkpoint, whatever it carries."""

    def checkpoint_completed(self, checkpoint: CheckpointId) -> bool:
        """Commit all of it."""
        self.commit(self._prepared)
        self._prepared = []
        return super().checkpoint_completed(checkpoint)


class ComparesWithTheHighest(TransactionalFileSink):
    """SI-07: the output remembers the highest checkpoint that anybody committed; what is not above it is skipped."""

    def recover_and_commit(self, transactions: Sequence[TransactionHandle]) -> None:
        """Skip what looks committed."""
        found = map(_COMMITTED_FOR.search, self._files.list_files(self._directory))
        highest = max((int(match[1]) for match in found if match), default=0)
        super().recover_and_commit([one for one in transactions if one.checkpoint > highest])


class CommitsUnderItsOwnName(TransactionalFileSink):
    """SI-17: a commit is found again by the attempt that made it; the next attempt copies the files once more."""

    def commit(self, transactions: Sequence[TransactionHandle]) -> None:
        """Copy the files that this attempt has not committed."""
        for transaction in transactions:
            for file in transaction.files:
                committed = re.sub(r"-a[0-9]+-", f"-a{self._attempt}-", file.committed)
                if not self._files.exists(committed):
                    stream = self._files.create(committed)
                    stream.write(self._files.read(file.pending))
                    stream.sync()
                    stream.close()
        if transactions:
            self._syncs.sync(self._directory)


class DropsWithTheCheckpoint(TransactionalFileSink):
    """SI-08: the log of prepared transactions is cut back together with the checkpoint that is under way; if that one
    fails, what was prepared for it is gone.
    """

    def checkpoint_aborted(self, checkpoint: CheckpointId) -> None:
        """Forget the transaction of the failed checkpoint."""
        self._prepared = [prepared for prepared in self._prepared if prepared.checkpoint != checkpoint]


records_nothing_when_idle = partial(with_sink, RecordsNothingWhenIdle)
"""Builds the chain with SI-05."""
commits_for_the_current_one = partial(with_sink, CommitsForTheCurrentOne)
"""Builds the chain with SI-06."""
compares_with_the_highest = partial(with_sink, ComparesWithTheHighest)
"""Builds the chain with SI-07."""
commits_under_its_own_name = partial(with_sink, CommitsUnderItsOwnName)
"""Builds the chain with SI-17."""
drops_with_the_checkpoint = partial(with_sink, DropsWithTheCheckpoint)
"""Builds the chain with SI-08."""
