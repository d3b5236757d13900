"""The planted bugs of redistribution (RSC-1 to RSC-3)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec

from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.faults.vocabulary import After, ProtocolPoint, ScheduledFault
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import (
    CheckpointPlan,
    DeploymentPlan,
    LimitsPlan,
    NetworkPlan,
    RescalePlan,
    SavepointPlan,
    TrialPlan,
    WorkloadPlan,
)
from barrier_tck.harness.reference.mutants import rescale_bugs as bugs
from barrier_tck.harness.reference.mutants.mutant import SIMULATED, Mutant
from barrier_tck.reference_impl.runtime.components import Components

OURS = "planted here, no public report"


def _plan(*rescales: dict[str, int], slow: str = "last", **changes: Any) -> TrialPlan:
    """Return a plan of a vertex without state between two that keep some. It is stopped as often as it is rescaled,
    in unaligned mode, with full buffers.
    """
    changed = {
        "workload": WorkloadPlan("lineage", batches=15, records_per_second=600),
        "deployment": DeploymentPlan(slow_vertex=slow, slow_batch_ms=6),
        "checkpoints": CheckpointPlan(mode="unaligned", interval_ms=15, retained=2, async_ms_max=4),
        "network": NetworkPlan(channel_capacity=3, buffer_bytes=40),
        "limits": LimitsPlan(virtual_ms=10_000),
        "savepoints": tuple(
            SavepointPlan(after_checkpoints=2 * number + 1, stop=True) for number in range(len(rescales))
        ),
        "rescales": tuple(RescalePlan(widths) for widths in rescales),
        **changes,
    }
    return msgspec.structs.replace(SIMULATED, job=JobPlan("between"), **changed)


_NARROWER = _plan({"first": 2, "last": 2})
_MIDDLE = _plan({"between": 2}, slow="between")
_SOURCES = _plan({"read": 2, "first": 2}, slow="first")
_WIDER = _plan({"last": 16})
_LISTS = msgspec.structs.replace(
    _plan({"dealt": 5, "shared": 3}, slow="shared"),
    job=JobPlan("lists"),
    workload=WorkloadPlan("lineage", batches=20, keys=1, records_per_second=600),
)


def rescale_mutants(product: Components) -> Iterator[Mutant]:
    """Yield the bugs of redistribution."""

    def bug(name: str, clause: str, what: str, reported: str, redistribute: Any, plan: TrialPlan) -> Mutant:
        return Mutant(name, clause, what, reported, replace(product, redistribute=redistribute), plan)

    yield bug(
        "RS-01",
        "RSC-2",
        "Of the operators of a chain, only the first one that keeps state gets its keyed state back.",
        "FLINK-10809",
        bugs.GivesStateToHeadsOnly(),
        _NARROWER,
    )
    yield bug(
        "RS-02",
        "REC-1",
        "Lists that subtasks keep without keys are given back without gaps, though the parallelism is the same.",
        "FLINK-11618",
        bugs.DealsWithoutGaps(),
        msgspec.structs.replace(
            _LISTS,
            rescales=(),
            savepoints=(),
            checkpoints=CheckpointPlan(interval_ms=15),
            faults=(
                ScheduledFault(KillWorker("dealt[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=2)),
            ),
        ),
    )
    yield bug(
        "UC-07",
        "RSC-3",
        "Records in flight are redistributed for vertices that keep state, and for no others.",
        "FLINK-31963",
        bugs.ForgetsChannelsOfStateless(),
        _MIDDLE,
    )
    yield bug(
        "RS-04",
        "REC-6",
        "Records in flight go to the subtask with the index of their former receiver, whatever their keys.",
        OURS,
        bugs.SendsToFormerOwners(),
        _NARROWER,
    )
    yield bug(
        "RS-05",
        "RSC-3",
        "Of the records in flight, only those are redistributed that receivers hold.",
        OURS,
        bugs.ForgetsWhatSendersHold(),
        _plan({"first": 2, "last": 2}, network=NetworkPlan(channel_capacity=3)),
    )
    yield bug(
        "RS-07",
        "RSC-2",
        "A file of keyed state goes to the owner of its first key group only.",
        OURS,
        bugs.GivesEachFileOnce(),
        _WIDER,
    )
    yield bug(
        "RS-08",
        "RSC-3",
        "Batches in flight on edges without a key go to every present receiver.",
        OURS,
        bugs.DoublesWholeBatches(),
        _MIDDLE,
    )
    yield bug(
        "RS-09",
        "RSC-3",
        "A source's subtask gets positions of the splits that the subtask of its name had, and of no others.",
        OURS,
        bugs.BeginsSplitsAgain(),
        _plan({"read": 2}),
    )
    yield bug(
        "RS-13",
        "RSC-3",
        "A list that is for all subtasks is dealt out as any other.",
        OURS,
        bugs.DealsOutListsForAll(),
        _LISTS,
    )
    yield bug(
        "RS-14",
        "RSC-3",
        "After a change of parallelism, each subtask gets the whole of a list that should be dealt out.",
        OURS,
        bugs.GivesListsToAll(),
        _LISTS,
    )
    yield Mutant(
        "RS-10",
        "RSC-3",
        "The batches in flight on a former channel are put back the newest one first.",
        OURS,
        replace(product, rerouting=bugs.ReplaysTheNewestFirst),
        _NARROWER,
    )
    yield Mutant(
        "RS-11",
        "RSC-3",
        "Redistributed records are read in turn with newer ones that arrive on other channels.",
        OURS,
        replace(product, subtask_driver=bugs.LetsNewerRecordsPass),
        _SOURCES,
    )
    yield Mutant(
        "RS-12",
        "RSC-3",
        "If a checkpoint that was taken while redistributed records were replayed is restored, newer ones pass them.",
        OURS,
        replace(product, subtask_driver=bugs.ForgetsWhatCameFirst),
        msgspec.structs.replace(
            _SOURCES,
            # The fourth one is the first of the job that goes on.
            faults=(ScheduledFault(KillWorker("last[0]"), After(ProtocolPoint.CHECKPOINT_COMPLETED, nth=4)),),
        ),
    )
