"""The planted bugs of checkpoint storage in HDFS, and plans in which its nodes die so that they show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import msgspec

from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_object_store import KillObjectStore
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.reference.mutants import hdfs_bugs as hdfs
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant
from barrier_tck.reference_impl.runtime.components import Components

_IN_HDFS = msgspec.structs.replace(
    SIMULATED,
    workload=WorkloadPlan(batches=60, records_per_second=600),
    checkpoints=CheckpointPlan(interval_ms=15, retained=2, storage="hdfs"),
)
_STORED = ScheduledFault(
    KillObjectStore(60, UploadMoment.PART), After(ProtocolPoint.SNAPSHOT_TAKEN, "totals[0]", 3)
)
"""A data node dies with half of a state file."""
_RESTORED = ScheduledFault(KillWorker("totals[1]"), After(ProtocolPoint.CHECKPOINT_ABORTED))


def _renamed(moment: UploadMoment, *then: ScheduledFault) -> TrialPlan:
    """Return the plan in which a name node dies over the rename of metadata, and what else happens then."""
    death = ScheduledFault(KillObjectStore(60, moment), After(ProtocolPoint.ALL_ACKNOWLEDGED, nth=2))
    return msgspec.structs.replace(_IN_HDFS, faults=(death, *then))


def hdfs_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of the client of HDFS."""
    here = "planted here, no public report"
    yield Mutant(
        "HD-01",
        "COO-1",
        "A rename that nobody answers counts as done; the name node died before it, and the driver dies afterwards.",
        here,
        replace(product, checkpoint_storage=hdfs.stored_with(hdfs.TakesSilenceForYes)),
        _renamed(
            UploadMoment.COMPLETION,
            ScheduledFault(CrashCoordinator(), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),
        ),
    )
    yield Mutant(
        "HD-02",
        "COO-4",
        "Counters are deleted before others are renamed to their place; the name node dies between, and then a driver.",
        here,
        replace(product, checkpoint_storage=hdfs.stored_with(hdfs.DeletesBeforeItRenames)),
        msgspec.structs.replace(
            _IN_HDFS,
            faults=(
                ScheduledFault(
                    KillObjectStore(60, UploadMoment.COMPLETION),
                    After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2),
                ),
                ScheduledFault(CrashCoordinator(), After(ProtocolPoint.ATTEMPT_FAILED)),
            ),
        ),
    )
    yield Mutant(
        "HD-03",
        "STA-3",
        "Files are closed before a data node has synced them; it dies with its machine, and they are empty.",
        here,
        replace(product, checkpoint_storage=hdfs.stored_with(hdfs.DoesNotSync)),
        msgspec.structs.replace(_IN_HDFS, faults=(_STORED, _RESTORED)),
    )
    yield Mutant(
        "HD-04",
        "STA-3",
        "A state file whose data node dies is sent again, without the chunks that were sent already.",
        here,
        replace(product, checkpoint_storage=hdfs.stored_with(hdfs.SendsTheRest)),
        msgspec.structs.replace(_IN_HDFS, faults=(_STORED,)),
    )
    yield Mutant(
        "HD-05",
        "COO-3",
        "What was written beside is left there if the name node dies before it is renamed.",
        here,
        replace(product, checkpoint_storage=hdfs.stored_with(hdfs.LeavesWhatIsBeside)),
        msgspec.structs.replace(
            _IN_HDFS,
            faults=(
                ScheduledFault(
                    KillObjectStore(30, UploadMoment.COMPLETION),
                    After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2),
                ),
            ),
        ),
    )
    yield Mutant(
        "HD-06",
        "REC-6",
        "The first name node is asked for ever, although it died and the other one is active now.",
        here,
        replace(product, checkpoint_storage=hdfs.stored_with(hdfs.AsksOneNameNode)),
        _renamed(UploadMoment.ANSWER),
    )
