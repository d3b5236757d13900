"""Makes a failing plan smaller by greedy passes, each of which keeps the same verdict of the same checker.

Only ``sort_key`` defines what "simpler" means. A pass proposes changed plans and need not know whether they are
simpler, can run or fail: proposals that are not simpler are not tried, and faults whose subtask is gone are aimed at
another subtask.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from barrier_tck.faults.fields import down_from
from barrier_tck.faults.schedule import ScheduleError, validate
from barrier_tck.faults.vocabulary import After, At, ScheduledFault
from barrier_tck.harness.campaign.plain_faults import is_plain, plainer
from barrier_tck.harness.campaign.smaller_jobs import (
    narrower,
    without_a_vertex,
    without_an_edge,
    without_an_operator,
)
from barrier_tck.harness.draw.slow_checkpoints import in_time
from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, NetworkPlan, RestartPlan, TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.job_view import JobView, ViewOf
from barrier_tck.harness.workloads.workload_names import filled

StillFails = Callable[[TrialPlan], bool]
"""Runs a plan and says whether it fails in the same way."""

Fit = Callable[[TrialPlan], TrialPlan]
"""Adapts a plan to what its system uses."""

Propose = Callable[[TrialPlan, JobView], Iterator[TrialPlan]]
"""Proposes changed plans; it gets the plan's present job."""

CALM_CHECKPOINTS = CheckpointPlan(async_ms_max=0)
CALM_NETWORK = NetworkPlan(latency_ms_max=0)
CALM_RESTART = RestartPlan()
"""The calm settings to which shrinking returns, field by field."""

_USUAL = ("state_backend", "local_recovery", "on_unreadable")
"""Fields of the plan itself that shrinking sets back to what they usually are."""

RUNS_MAX = 400
"""Default limit of the number of plans that one shrinking runs."""

SECONDS_MAX = 60.0
"""Default limit of the processor seconds of one shrinking, because trials of a job that gets stuck are slow."""
_BY_THE_CLOCK = 10
"""How many times as long it may take by the clock: a busy machine changes nothing, and systems may have processes of
their own."""

SEEDS_TRIED = 10
"""A smaller plan may need another seed to fail; this many seeds are tried."""


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest failing plan that was found, and how many plans were run to find it."""

    plan: TrialPlan
    runs: int
    accepted: tuple[TrialPlan, ...] = ()
    """Every smaller plan that failed, in the order in which they were found; empty if none did."""


SortKey = tuple[Any, ...]


def sort_key(plan: TrialPlan) -> SortKey:
    """Order plans by simplicity: fewer faults, subtasks and records, calmer settings, earlier times, smaller values."""
    workload, job = plan.workload, plan.job
    records = workload.batches * workload.batch_records * sum(vertex.parallelism for vertex in job.sources)
    return (
        len(plan.faults),
        len(plan.savepoints),
        sum(len(rescale.widths) for rescale in plan.rescales),
        sum(len(vertex.operators) for vertex in job.vertices),
        sum(vertex.parallelism for vertex in job.vertices),
        len(job.edges),
        records,
        workload.batches,
        plan.deployment.executors,
        _restless(plan),
        sum(not is_plain(scheduled.fault) for scheduled in plan.faults),
        tuple(sorted(_fault_key(scheduled) for scheduled in plan.faults)),
        tuple(
            (asked.stop, asked.claim, asked.after_checkpoints, asked.delay_ms) for asked in plan.savepoints
        ),
        (
            workload.keys,
            workload.start_offset,
            workload.early_ends,
            workload.records_per_second is not None,
        ),
        _settings_values(plan),
        plan.seed,
    )


def _fault_key(scheduled: ScheduledFault) -> SortKey:
    fault, trigger = scheduled.fault, scheduled.trigger
    hit = fault.subtasks
    where = (tuple((len(name), name) for name in hit), fault.magnitudes())
    if isinstance(trigger, At):
        return (fault.loses_unsynced, 1, trigger.time_ms, *where, "")
    return (fault.loses_unsynced, 0, trigger.nth, *where, trigger.subtask or "")


def _calm_pairs(plan: TrialPlan) -> tuple[tuple[str, msgspec.Struct, msgspec.Struct], ...]:
    return (
        ("checkpoints", plan.checkpoints, CALM_CHECKPOINTS),
        ("network", plan.network, CALM_NETWORK),
        ("restart", plan.restart, CALM_RESTART),
    )


def _restless(plan: TrialPlan) -> int:
    """Count the settings that differ from the calm ones."""
    differing: int = sum(
        getattr(actual, name) != getattr(calm, name)
        for _, actual, calm in _calm_pairs(plan)
        for name in calm.__struct_fields__
    )
    deployment = int(not plan.deployment.write_through) + int(plan.deployment.cached_keys is not None)
    elastic = int(plan.deployment.elastic_wait_ms is not None) + len(plan.deployment.fixed_vertices)
    elastic += int(plan.deployment.replaced_after_ms > 0) + len(plan.deployment.clock_skew_ms)
    usual = TrialPlan()
    unusual: int = sum(getattr(plan, name) != getattr(usual, name) for name in _USUAL)
    return differing + deployment + elastic + unusual + int(plan.limits != TrialPlan().limits)


def _settings_values(plan: TrialPlan) -> int:
    numbers: list[int] = []
    for _, actual, calm in _calm_pairs(plan):
        values = (getattr(actual, name) for name in calm.__struct_fields__)
        numbers.extend(value for value in values if isinstance(value, int))
    return sum(numbers)


# --- passes: each proposes plans -------------------------------------------------------------------------


def _with_job(plan: TrialPlan, job: JobPlan) -> TrialPlan:
    """Return the plan with another job, and without initiators that could not reach all of it."""
    groups = plan.checkpoints.initiators
    fitting = tuple(
        group
        for group in groups
        if all(name in job.subtasks for name in group) and not job.unreached_by(group)
    )
    checkpoints = msgspec.structs.replace(plan.checkpoints, initiators=fitting)
    names = [vertex.name for vertex in job.vertices]
    rescales = tuple(
        msgspec.structs.replace(
            rescale, widths={name: w for name, w in rescale.widths.items() if name in names}
        )
        for rescale in plan.rescales
    )
    fixed = tuple(name for name in plan.deployment.fixed_vertices if name in names)
    deployment = msgspec.structs.replace(plan.deployment, fixed_vertices=fixed)
    changed = {"job": job, "checkpoints": checkpoints, "deployment": deployment}
    try:
        return msgspec.structs.replace(plan, **changed, rescales=rescales)
    except ValueError:  # the smaller job cannot be rescaled so: it has a forward edge now, for instance
        return msgspec.structs.replace(plan, **changed, rescales=())


def drop_faults(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose each fault alone, then all but each one."""
    if len(plan.faults) > 2:
        for scheduled in plan.faults:
            yield msgspec.structs.replace(plan, faults=(scheduled,))
    for index in range(len(plan.faults)):
        yield msgspec.structs.replace(plan, faults=plan.faults[:index] + plan.faults[index + 1 :])


def drop_savepoints(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose all but each savepoint, then each one earlier and at once, without its stop, and unclaimed."""
    asked = plan.savepoints
    for index in range(len(asked)):
        yield msgspec.structs.replace(plan, savepoints=asked[:index] + asked[index + 1 :])
    for index, entry in enumerate(asked):
        calm = [
            msgspec.structs.replace(entry, stop=False, claim=False),
            msgspec.structs.replace(entry, delay_ms=0),
        ]
        calm += [msgspec.structs.replace(entry, claim=False)] if entry.claim else []
        earlier = down_from(entry.after_checkpoints, 0)
        calm += [msgspec.structs.replace(entry, after_checkpoints=number) for number in earlier]
        for simpler in calm:
            yield msgspec.structs.replace(plan, savepoints=(*asked[:index], simpler, *asked[index + 1 :]))


def drop_rescales(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose fewer rescales, then each one of fewer vertices, and to a smaller parallelism."""
    asked = plan.rescales
    for index, entry in enumerate(asked):
        yield msgspec.structs.replace(plan, rescales=asked[:index] + asked[index + 1 :])
        for name, width in entry.widths.items():
            fewer = {other: kept for other, kept in entry.widths.items() if other != name}
            proposals = [fewer, *({**entry.widths, name: less} for less in down_from(width, 1))]
            for widths in proposals:
                changed = msgspec.structs.replace(entry, widths=widths)
                with contextlib.suppress(ValueError):  # the ends of a forward edge must be equally wide
                    yield msgspec.structs.replace(
                        plan, rescales=(*asked[:index], changed, *asked[index + 1 :])
                    )


def reduce_parallelism(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose narrower vertices and fewer executors."""
    widths = {vertex.parallelism: tuple(down_from(vertex.parallelism, 1)) for vertex in plan.job.vertices}
    for job in narrower(plan.job, widths):
        yield _with_job(plan, job)
    for fewer in down_from(plan.deployment.executors, 1):
        yield _with(plan, "deployment", executors=fewer)


def simplify_job(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose the job without a vertex, without a chained operator, without an edge."""
    for propose in (without_a_vertex, without_an_operator, without_an_edge):
        for job in propose(plan.job):
            yield _with_job(plan, job)


def reduce_records(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose fewer batches, fewer records per batch, fewer keys, and no offset, early end or rate limit."""
    for batches in down_from(plan.workload.batches, 0):
        yield _with(plan, "workload", batches=batches)
    for records in down_from(plan.workload.batch_records, 1):
        yield _with(plan, "workload", batch_records=records)
    for keys in down_from(plan.workload.keys, 1):
        yield _with(plan, "workload", keys=keys)
    for offset in down_from(plan.workload.start_offset, 0):
        yield _with(plan, "workload", start_offset=offset)
    for early in down_from(plan.workload.early_ends, 0):
        yield _with(plan, "workload", early_ends=early)
    if plan.workload.records_per_second is not None:
        yield _with(plan, "workload", records_per_second=None)


def calm_down(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose the calm settings: all at once, then part by part, then field by field."""
    pairs = _calm_pairs(plan)
    yield msgspec.structs.replace(plan, **{name: calm for name, _, calm in pairs})
    for name, _, calm in pairs:
        yield msgspec.structs.replace(plan, **{name: calm})
    for name, actual, calm in pairs:
        for field in calm.__struct_fields__:
            if getattr(actual, field) != getattr(calm, field):
                try:
                    calmer = _with(plan, name, **{field: getattr(calm, field)})
                except ValueError:
                    continue  # the field goes together with another one
                yield calmer
    yield _with(plan, "deployment", write_through=True)
    if plan.deployment.clock_skew_ms:
        yield _with(plan, "deployment", clock_skew_ms=())
    if plan.deployment.cached_keys is not None:
        yield _with(plan, "deployment", cached_keys=None)
    if plan.deployment.elastic_wait_ms is not None:
        alone = {"slots_per_executor": None, "replaced_after_ms": 0, "fixed_vertices": ()}
        yield _with(plan, "deployment", elastic_wait_ms=None, **alone)
        yield _with(plan, "deployment", replaced_after_ms=0)
        yield _with(plan, "deployment", fixed_vertices=())
    yield msgspec.structs.replace(plan, limits=TrialPlan().limits)
    for name in _USUAL:
        yield msgspec.structs.replace(plan, **{name: getattr(TrialPlan(), name)})


def smaller_settings(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose smaller numbers for the settings that could not be calmed and that are simpler if smaller."""
    for name, field in (
        ("checkpoints", "async_ms_max"),
        ("checkpoints", "min_pause_ms"),
        ("network", "latency_ms_max"),
        ("network", "slow_channel"),
        ("network", "slow_factor"),
        ("restart", "delay_ms"),
    ):
        value: int | None = getattr(getattr(plan, name), field)
        for smaller in down_from(value or 0, 0 if field != "slow_factor" else 1):
            yield _with(plan, name, **{field: smaller})


def simplify_faults(plan: TrialPlan, view: JobView) -> Iterator[TrialPlan]:
    """Propose for each fault: a plain failure, no loss, a shorter duration, the first occurrence, an earlier time, the
    first subtask."""
    for index, scheduled in enumerate(plan.faults):
        for simpler in _simpler_fault(scheduled, view):
            changed = (*plan.faults[:index], simpler, *plan.faults[index + 1 :])
            yield msgspec.structs.replace(plan, faults=changed)


def _simpler_fault(scheduled: ScheduledFault, view: JobView) -> Iterator[ScheduledFault]:
    fault, trigger = scheduled.fault, scheduled.trigger
    yield from plainer(scheduled, view)
    for simpler in fault.simpler():
        yield ScheduledFault(simpler, trigger)
    match trigger:
        case At(time_ms=time_ms):
            for earlier in down_from(int(time_ms), 0):
                yield ScheduledFault(fault, At(earlier))
        case After(nth=nth):
            for sooner in down_from(nth, 1):
                yield ScheduledFault(fault, msgspec.structs.replace(trigger, nth=sooner))
    first = scheduled.renamed(lambda subtask: view.like(subtask)[0])
    if first != scheduled:
        yield first


def other_seeds(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose small seeds, for the plan itself."""
    for seed in range(min(plan.seed, SEEDS_TRIED)):
        yield msgspec.structs.replace(plan, seed=seed)


def smaller_with_other_seeds(plan: TrialPlan) -> Iterator[TrialPlan]:
    """Propose the big steps again with a few other seeds each, because a smaller job may only fail with another
    seed."""
    for propose in (drop_faults, simplify_job, reduce_parallelism):
        for smaller in propose(plan):
            for seed in range(3):
                yield msgspec.structs.replace(smaller, seed=seed)


def _for_any_job(propose: Callable[[TrialPlan], Iterator[TrialPlan]]) -> Propose:
    return lambda plan, _: propose(plan)


PASSES: tuple[Propose, ...] = (
    *map(_for_any_job, (drop_faults, drop_savepoints, drop_rescales, simplify_job)),
    *map(_for_any_job, (reduce_parallelism, reduce_records, calm_down)),
    simplify_faults,
    *map(_for_any_job, (smaller_with_other_seeds, smaller_settings, other_seeds)),
)
"""Every pass, the big steps first."""


def _with(plan: TrialPlan, part: str, **fields: object) -> TrialPlan:
    changed = msgspec.structs.replace(getattr(plan, part), **fields)
    return msgspec.structs.replace(plan, **{part: changed})


# --- the greedy search -----------------------------------------------------------------------------------


def shrink(
    plan: TrialPlan,
    still_fails: StillFails,
    view: ViewOf,
    runs_max: int = RUNS_MAX,
    seconds_max: float = SECONDS_MAX,
    fit: Fit = lambda plan: plan,
) -> Shrunk:
    """Return the smallest plan found that still fails, within ``runs_max`` runs and ``seconds_max`` of processor time.

    ``plan`` itself is assumed to fail and is not run. Passes are repeated until none of them finds a simpler plan.
    ``fit`` removes from a proposal what the system does not use. A plan whose checkpoints have the time that they need
    stays one: otherwise a job that is stuck for the lack of time, and right, would stand for one that is wrong.
    """
    best: TrialPlan = filled(plan)
    search = _Search(still_fails, view, fit, runs_max, seconds_max, _has_time(best))
    before: TrialPlan | None = None
    while best != before and search.may_run:
        before = best
        for propose in PASSES:
            best = search.exhaust(best, propose)
    return Shrunk(best, search.runs, tuple(search.accepted))


class _Search:
    """Counts runs and remembers what was tried."""

    def __init__(
        self,
        still_fails: StillFails,
        view: ViewOf,
        fit: Fit,
        runs_max: int,
        seconds_max: float,
        keeps_time: bool,
    ) -> None:
        self._processor_until = time.process_time() + seconds_max
        self._clock_until = time.monotonic() + _BY_THE_CLOCK * seconds_max
        self._fit = fit
        self._keeps_time = keeps_time
        self._still_fails = still_fails
        self._view = view
        self._runs_max = runs_max
        self._tried: set[TrialPlan] = set()
        self.accepted: list[TrialPlan] = []
        self.runs = 0

    @property
    def may_run(self) -> bool:
        in_time = time.process_time() < self._processor_until and time.monotonic() < self._clock_until
        return self.runs < self._runs_max and in_time

    def exhaust(self, plan: TrialPlan, propose: Propose) -> TrialPlan:
        """Apply one pass again and again until it finds nothing simpler."""
        while True:
            better = self._first_better(plan, propose)
            if better is None:
                return plan
            plan = better

    def _first_better(self, plan: TrialPlan, propose: Propose) -> TrialPlan | None:
        view = self._view(plan)
        for proposal in propose(plan, view):
            if not self.may_run:
                return None
            candidate = self._runnable(proposal, view)
            if candidate is None or candidate in self._tried or sort_key(candidate) >= sort_key(plan):
                continue
            self._tried.add(candidate)
            self.runs += 1
            if self._still_fails(candidate):
                self.accepted.append(candidate)
                return candidate
        return None

    def _runnable(self, proposal: TrialPlan, before: JobView) -> TrialPlan | None:
        """Return the proposal with faults aimed at existing subtasks; None if its workload cannot run on its job, or
        its checkpoints lack the time that those of the first plan had."""
        try:
            proposal = filled(self._fit(proposal))
            if self._keeps_time and not _has_time(proposal):
                return None
            return retarget(proposal, before, self._view(proposal))
        except UsageProblem:
            return None


def _has_time(plan: TrialPlan) -> bool:
    """Return whether checkpoints that expire do not start the job again and again."""
    return in_time(plan) == plan


def retarget(plan: TrialPlan, before: JobView, now: JobView) -> TrialPlan | None:
    """Aim faults whose subtask is gone at the last remaining one that does the same; None if there is none.

    ``before`` is the job for which the faults were aimed, ``now`` is the plan's own job.
    """

    def existing(name: str) -> str:
        if name in now.by_name:
            return name
        left = [subtask.name for subtask in now.subtasks if subtask.is_like(before.by_name[name])]
        return left[-1] if left else name

    changed = tuple(scheduled.renamed(existing) for scheduled in plan.faults)
    try:
        validate(changed, now.names, now.connections)
    except ScheduleError:
        return None
    slow = plan.network.slow_channel
    channels = len(plan.job.channels)
    if slow is not None and slow >= channels:
        plan = _with(plan, "network", slow_channel=channels - 1)
    return msgspec.structs.replace(plan, faults=changed)
