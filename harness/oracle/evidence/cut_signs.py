"""Which clause a difference breaks: the first rule that holds of it and of the circumstances in which it was seen.

The same difference has many causes. A record may be missing because a barrier overtook it, because it lay in flight in
the checkpoint that was restored and was not put back, or because its key group has another owner since. So a
difference is compared with what the trial did before: whether the attempt was restored since its last right
checkpoint, whether it has another parallelism, where the record was in the restored checkpoint, and whether it comes
later after all.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.evidence.difference import Difference, Kind
from barrier_tck.harness.oracle.evidence.exactness import AT_LEAST_ONCE, is_exact
from barrier_tck.harness.oracle.evidence.moments import completed_at
from barrier_tck.harness.oracle.evidence.named_places import sinks_of, subtasks_named
from barrier_tck.harness.oracle.evidence.opened_checkpoints import opened_checkpoint
from barrier_tck.harness.oracle.evidence.recoveries import attempt_of, restored_checkpoints
from barrier_tck.harness.oracle.evidence.sink_losses import lost_at_sinks
from barrier_tck.harness.oracle.sign import Breach, Sign
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.record.history import SnapshotView
from barrier_tck.harness.record.operations import Finished, InputRead
from barrier_tck.harness.record.reasons import Reason
from barrier_tck.harness.system.system_under_test import Capability


@dataclass(frozen=True, slots=True)
class Circumstances:
    """What a trial had done before a checkpoint, or before its end."""

    exact: bool = True
    """Whether every record counts once."""
    overtakes: bool = False
    """Whether barriers may overtake records."""
    records_all: bool = False
    """Whether every channel is recorded (Chandy-Lamport)."""
    incremental: bool = False
    restored: bool = False
    """Whether its attempt was restored, and none of the checkpoints since then was right."""
    rescaled: bool = False
    """Whether its attempt was restored from a checkpoint of another parallelism."""
    read_again: bool = False
    """Whether its attempt read a split from an earlier record on than it was to resume at."""
    finished: bool = False
    """Whether some of its subtasks had finished."""
    ended: tuple[str, ...] = ()
    """The subtasks that had finished in the checkpoint, and the vertices and operators all of whose subtasks had."""
    at_end: bool = False
    """Whether it is the output, and not a checkpoint."""
    lost_at_sinks: bool = False
    """Whether rows are gone that sinks had committed or prepared in the checkpoint before."""
    observed: bool = False
    """Whether messages are observed, so that a wrong channel state is seen there (``consistent-cut``)."""


Holds = Callable[[Difference, Circumstances], bool]


@dataclass(frozen=True, slots=True)
class _Rule:
    kinds: tuple[Kind, ...]
    holds: Holds
    sign: Sign


def _rule(kinds: tuple[Kind, ...], seen: str, clause: str, holds: Holds = lambda _, __: True) -> _Rule:
    return _Rule(kinds, holds, Sign(seen, clause))


_CONTENT = Kind.MISSING, Kind.SURPLUS, Kind.WRONG
_ROUTES = Kind.SPLIT_KEY, Kind.WRONG_WAY, Kind.FOREIGN_KEY

SKIPPED_SIGN = Sign(
    "an increment skips changes: entries are as in a checkpoint on which it builds, or not there at all",
    "SNP-5",
)
"""That of an increment that leaves out what has changed."""

_RULES = (
    # --- the checkpoint as a whole ---
    _rule(
        (Kind.UNREADABLE,),
        "a prepared transaction is gone that a checkpoint needs",
        "SNK-1",
        lambda d, c: d.at_sink,
    ),
    _rule(
        (Kind.UNREADABLE,),
        "a checkpoint lacks the state of some operators of a chain",
        "STA-1",
        lambda d, c: d.chained,
    ),
    _rule(
        (Kind.UNREADABLE,),
        "a file of an incremental checkpoint is gone, or does not continue the one before it",
        "SNP-5",
        lambda d, c: c.incremental and d.file_gone,
    ),
    _rule((Kind.UNREADABLE,), "a completed checkpoint cannot be opened", "STA-3"),
    _rule((Kind.NO_PART,), "a subtask has no part in a completed checkpoint", "STA-3"),
    _rule(
        (Kind.NO_POSITION,),
        "a split has no position after a change of parallelism",
        "RSC-3",
        lambda d, c: c.rescaled,
    ),
    _rule((Kind.NO_POSITION,), "a split has no position, or an impossible one", "STA-3"),
    _rule((Kind.BACKWARDS,), "a split is at an earlier position than in the checkpoint before", "BAR-2"),
    _rule((Kind.BROADCAST,), "some receivers of a broadcast have applied what others have not", "UNA-5"),
    # --- what an increment holds beside that on which it builds ---
    _Rule((Kind.MISSING,), lambda d, c: c.incremental and d.skipped, SKIPPED_SIGN),
    # --- what sinks had ---
    _rule(
        _CONTENT,
        "rows are gone that a sink had committed, or prepared in a completed checkpoint",
        "SNK-1",
        lambda d, c: c.lost_at_sinks and (d.at_sink or d.of_sent),
    ),
    # --- what was not in the last part of who has finished ---
    _rule(
        (Kind.MISSING,),
        "all has finished that was to take in records, and the last parts that it stored lack them",
        "BAR-6",
        lambda d, c: d.place in c.ended and not d.held_before and not d.in_flight_before,
    ),
    # --- at least once ---
    _rule(
        (Kind.MISSING,),
        "in at-least-once mode restored state is lost after a change of parallelism",
        "RSC-2",
        lambda d, c: not c.exact and c.restored and c.rescaled and d.held_before and not d.at_sink,
    ),
    _rule(
        _CONTENT,
        "after a recovery records are missing, or more of them twice than lay behind the restored barriers",
        "ALO-2",
        lambda d, c: not c.exact and c.restored,
    ),
    _rule(
        _CONTENT,
        "in at-least-once mode a snapshot lacks records before its barriers, or has more than came early",
        "ALO-1",
        lambda d, c: not c.exact,
    ),
    # --- what was in flight in the restored checkpoint ---
    _rule(
        _CONTENT,
        "what a checkpoint held in flight is lost, doubled or elsewhere after a change of parallelism",
        "RSC-3",
        lambda d, c: d.in_flight_before and c.rescaled,
    ),
    _rule(
        (Kind.MISSING,),
        "restored records that were still in flight are left out of a snapshot, and come later",
        "UNA-4",
        lambda d, c: d.in_flight_before and d.comes_later and c.overtakes,
    ),
    _rule(
        _CONTENT,
        "what a checkpoint held in flight in a loop is lost or doubled after it was restored",
        "CHL-5",
        lambda d, c: d.in_flight_before and d.looped,
    ),
    _rule(
        _CONTENT,
        "what a checkpoint held in flight is lost or doubled after it was restored",
        "UNA-1",
        lambda d, c: d.in_flight_before and not c.records_all,
    ),
    # --- what the restored checkpoint held in its state ---
    _rule(
        _CONTENT,
        "lists without keys are lost, doubled or elsewhere after a change of parallelism",
        "RSC-3",
        lambda d, c: c.restored and c.rescaled and d.held_before and d.listed,
    ),
    _rule(
        _CONTENT,
        "restored state is lost, doubled or elsewhere after a change of parallelism",
        "RSC-2",
        lambda d, c: c.restored and c.rescaled and d.held_before,
    ),
    _rule(
        (Kind.SURPLUS, Kind.WRONG),
        "records count twice after a source did not resume at its restored position",
        "SRC-1",
        lambda d, c: c.restored and c.read_again and d.held_before,
    ),
    _rule(
        (Kind.MISSING,),
        "a checkpoint lacks records of the restored state, and a later one has them: it names older files",
        "STA-3",
        lambda d, c: c.restored and d.held_before and d.comes_later,
    ),
    _rule(
        _CONTENT,
        "what the restored checkpoint held is lost or counts twice",
        "REC-1",
        lambda d, c: c.restored and d.held_before and not d.at_sink,
    ),
    # --- order and routes ---
    _rule(
        (Kind.ORDER,),
        "records are in another order after a change of parallelism",
        "RSC-3",
        lambda d, c: c.rescaled or d.moved,
    ),
    _rule(
        (Kind.ORDER,),
        "records that a checkpoint held in flight are in another order after it was restored",
        "UNA-1",
        lambda d, c: d.in_flight_before,
    ),
    _rule((Kind.ORDER,), "a record overtook another one of its channel", "BAR-2"),
    _rule(_ROUTES, "keys are elsewhere after a change of parallelism", "RSC-2", lambda d, c: c.rescaled),
    _rule(_ROUTES, "keys are elsewhere after a restore", "REC-1", lambda d, c: c.restored),
    _rule((Kind.FOREIGN_KEY,), "a subtask holds a key that another one owns", "RSC-1"),
    # --- what a cut holds ---
    _rule(
        (Kind.SURPLUS,),
        "state has what came behind the barriers, and what was sent before them has not: it changed afterwards",
        "SNP-1",
        lambda d, c: d.behind and d.unsent,
    ),
    _rule(
        (Kind.SURPLUS,),
        "what an operator had cleared is still in a snapshot: records wait for timers that have gone off",
        "STA-1",
        lambda d, c: d.cleared,
    ),
    _rule(
        (Kind.MISSING,),
        "the output lacks records that were waiting for a timer",
        "STA-1",
        lambda d, c: c.at_end and d.timed,
    ),
    _rule(
        (Kind.MISSING,),
        "the output lacks the last turns of a loop: it ended too early",
        "CHL-5",
        lambda d, c: c.at_end and d.looped,
    ),
    _rule(
        (Kind.MISSING,),
        "records are missing of which the subtasks had finished",
        "BAR-6",
        lambda d, c: c.finished and not d.at_sink,
    ),
    _rule(
        (Kind.SURPLUS,),
        "a subtask has finished, and sent on before what waits for a timer in the last part that it stored",
        "BAR-6",
        lambda d, c: d.after_end,
    ),
    _rule(
        (Kind.WRONG,),
        "the state of a consistent cut is not what its process had taken: it changed afterwards",
        "SNP-1",
        lambda d, c: c.records_all and c.observed and not c.restored,
    ),
    _rule(
        (Kind.SURPLUS,),
        "an unaligned snapshot, or what a sink wrote before it, has records that came behind its barriers",
        "ALN-2",
        lambda d, c: c.overtakes and d.behind and not d.looped,
    ),
    _rule(
        _CONTENT,
        "in an unaligned checkpoint records for a sink are neither written nor in flight, or both",
        "UNA-1",
        lambda d, c: c.overtakes and d.at_sink and not c.at_end and not c.rescaled,
    ),
    _rule(
        _CONTENT,
        "records are lost or doubled in a sink, though the state before it is right",
        "SNK-1",
        lambda d, c: d.at_sink,
    ),
    _rule(
        (*_CONTENT, Kind.IN_FLIGHT),
        "state and recorded channels together are not what was sent before the cut",
        "CHL-2",
        lambda d, c: c.records_all,
    ),
    _rule(
        (*_CONTENT, Kind.IN_FLIGHT),
        "records of a loop are neither in the state nor in flight, or in both",
        "CHL-5",
        lambda d, c: d.looped,
    ),
    _rule(
        (*_CONTENT, Kind.IN_FLIGHT),
        "records are neither in the state nor in flight, or in both",
        "UNA-1",
        lambda d, c: c.overtakes,
    ),
    _rule(
        (Kind.STRANGE,), "a row was written by what is no sink of the job", "SNK-1", lambda d, c: d.at_sink
    ),
    _rule((Kind.STRANGE,), "state is kept by what is no operator of the job", "STA-1"),
    _rule(tuple(Kind), "a snapshot does not hold exactly the records before its barriers", "ALN-2"),
)

CUT_SIGNS = tuple(rule.sign for rule in _RULES)
"""All signs that a difference can be, in the order in which they are looked for."""

UNREADABLE_SIGNS = tuple(rule.sign for rule in _RULES if rule.kinds == (Kind.UNREADABLE,))
"""Those of a checkpoint that cannot be opened."""


def sign_of(difference: Difference, circumstances: Circumstances) -> Sign:
    """Return the sign of the first rule that holds."""
    return next(
        rule.sign
        for rule in _RULES
        if difference.kind in rule.kinds and rule.holds(difference, circumstances)
    )


def breach_of(
    difference: Difference, circumstances: Circumstances, context: TrialContext, view: SnapshotView | None
) -> Breach:
    """Return what a difference breaks that was seen in a checkpoint or, with None, in the output."""
    sign, place = sign_of(difference, circumstances), difference.place
    if difference.way:
        place += f", on {difference.way}"
    if view is None:
        return Breach(sign, difference.sentence, place=place)
    sentence = f"checkpoint {view.checkpoint}: {difference.sentence}"
    at = completed_at(context, view.checkpoint)
    return Breach(sign, sentence, at, place, view.checkpoint, attempt_of(context.history, view))


def unreadable(view: SnapshotView, context: TrialContext, stateful: Collection[str] = ()) -> Difference:
    """Return the difference that a checkpoint cannot be opened; ``stateful`` are the operators that keep state."""
    problem = view.problem
    assert problem is not None
    gone = problem.reason is Reason.MISSING
    # Whatever is named, but is no state file of the checkpoint, is what a sink prepared.
    prepared = gone and problem.file is None and bool(view.subtasks)
    job = context.plan_of(view.attempt).job
    chained = problem.reason is Reason.INCOMPLETE and any(
        sum(operator.name in stateful for operator in vertex.operators) > 1 for vertex in job.vertices
    )
    return Difference(
        Kind.UNREADABLE,
        f"it could not be opened: {problem}",
        problem.file or (sinks_of(job) if prepared else subtasks_named((problem.detail,), context)),
        at_sink=prepared,
        chained=chained,
        file_gone=gone or problem.reason is Reason.MALFORMED,
    )


def circumstances_of(context: TrialContext, view: SnapshotView | None, was_right: bool) -> Circumstances:
    """Return the circumstances of a checkpoint or, with None, of the output.

    ``was_right`` says whether an earlier checkpoint of the same attempt was right.
    """
    restored_from = restored_checkpoints(context.history)
    attempt = attempt_of(context.history, view) if view is not None else max(restored_from, default=None)
    checkpoint = restored_from.get(attempt) if attempt is not None else None
    restored = restored_view(context, attempt)
    plan = context.plan_of(attempt)
    return Circumstances(
        exact=is_exact(context.plan),
        overtakes=plan.checkpoints.overtakes and plan.checkpoints.mode != AT_LEAST_ONCE,
        records_all=plan.checkpoints.records_all,
        incremental=plan.checkpoints.incremental,
        restored=checkpoint is not None and not was_right,
        rescaled=restored is not None and context.job_number(restored.attempt) != context.job_number(attempt),
        read_again=restored is not None and _read_again(context, attempt, restored),
        finished=_finished(context, attempt, view),
        ended=_ended(view, plan.job) if view is not None else (),
        lost_at_sinks=lost_at_sinks(context, view),
        observed=Capability.MESSAGE_LOG.name in context.capabilities,
        at_end=view is None,
    )


def _finished(context: TrialContext, attempt: int | None, view: SnapshotView | None) -> bool:
    """Return whether subtasks had finished before a checkpoint was complete, or before the end."""
    completed = completed_at(context, view.checkpoint) if view is not None else None
    return any(
        line.operation.attempt == attempt and (completed is None or line.index < completed)
        for line in context.history.of(Finished)
    )


def _ended(view: SnapshotView, job: JobPlan) -> tuple[str, ...]:
    vertices = [vertex for vertex in job.vertices if set(vertex.subtasks) <= set(view.finished)]
    operators = [operator.name for vertex in vertices for operator in vertex.operators]
    return (*view.finished, *(vertex.name for vertex in vertices), *operators)


def restored_view(context: TrialContext, attempt: int | None) -> SnapshotView | None:
    """Return the opened checkpoint from which an attempt started; None if there is none."""
    checkpoint = restored_checkpoints(context.history).get(attempt) if attempt is not None else None
    view = opened_checkpoint(context, checkpoint) if checkpoint is not None else None
    return view if view is not None and view.problem is None else None


def _read_again(context: TrialContext, attempt: int | None, restored: SnapshotView) -> bool:
    return any(
        line.operation.attempt == attempt
        and line.operation.offset < restored.positions.get(line.operation.split, 0)
        for line in context.history.of(InputRead)
    )
