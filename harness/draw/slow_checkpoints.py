"""Gives drawn jobs the time that their checkpoints need, or a budget of restarts if that would be too long."""

from __future__ import annotations

import msgspec

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.kind_catalogue import keeps_by_key

MANY_TOLERATED = 100
"""If so many checkpoints in a row may fail, the input of a drawn plan ends before they have."""

USED_UP_IN_TIME = 0.5
"""In which part of a trial's virtual time checkpoints that expire must use up a budget of restarts, so that the job
gives up before the trial is over: some attempts take longer than others."""

STEP_MS = 1
"""About how long a subtask takes at most for one barrier, or for one message of the coordinator."""

MESSAGES = 3
"""Messages of the coordinator to a subtask for a checkpoint: trigger, abortion or completion, and what it subsumes."""

COMPLETE_AT_LEAST = 0.25
"""If asynchronous parts may outlast the timeout, at least this number of checkpoints should complete."""


def that_completes(plan: TrialPlan) -> TrialPlan:
    """Return a plan with shorter asynchronous parts if hardly any checkpoint would complete with those of the plan.

    A checkpoint completes if all its parts are in time, after the barriers and before the acknowledgements travelled:
    in a wide and deep job that is rare. Nothing goes on in such a trial, and nothing is wrong with the system.
    """
    plan = in_time(plan)
    checkpoints, job = plan.checkpoints, plan.job
    if checkpoints.async_ms_max < checkpoints.timeout_ms:
        return plan
    parts = sum(vertex.parallelism for vertex in job.vertices if keeps_by_key(vertex))
    travels_ms = plan.network.latency_ms_max * (1 + job.depth)
    left_ms = max(checkpoints.timeout_ms - travels_ms, checkpoints.timeout_ms // 4)
    longest_ms = int(left_ms / COMPLETE_AT_LEAST ** (1 / max(1, parts)))
    return msgspec.structs.replace(
        plan,
        checkpoints=msgspec.structs.replace(
            checkpoints, async_ms_max=min(checkpoints.async_ms_max, longest_ms)
        ),
    )


def in_time(plan: TrialPlan) -> TrialPlan:
    """Return a plan whose checkpoints are in time if its job would else be started again without end.

    A budget of restarts ends a job in which every checkpoint expires. A strategy that only counts failures that are
    close to each other starts it again and again, from the same checkpoint; and so does a budget that outlasts the
    trial, if few failed checkpoints end an attempt. Such a job gets a timeout that suffices. If that would be too long
    to see any progress, it gets a budget, and no failed checkpoint ends an attempt: the job goes on while its
    checkpoints expire. A slow vertex and the wider jobs of a rescaled trial need time only where failed checkpoints end
    attempts. Whatever the strategy, subtasks can handle the barriers of checkpoints that expire.
    """
    plan = _with_barriers_handled(plan)
    checkpoints = plan.checkpoints
    few = checkpoints.tolerated_failures < MANY_TOLERATED
    endless = plan.restart.strategy in ("failure_rate", "exponential_delay")
    if not endless and not (few and not _is_used_up(plan)):
        return plan
    needed_ms = _needed_ms(plan, slow_batch_ms=0)
    if few:
        jobs = [plan.after_stops(stops) for stops in range(len(plan.rescales) + 1)]
        needed_ms = max(_needed_ms(job, plan.deployment.slow_batch_ms) for job in jobs)
    if needed_ms > max(checkpoints.timeout_ms, plan.limits.progress_ms // 2):
        return msgspec.structs.replace(
            plan,
            restart=msgspec.structs.replace(plan.restart, strategy="fixed_delay"),
            checkpoints=msgspec.structs.replace(
                checkpoints, tolerated_failures=max(checkpoints.tolerated_failures, MANY_TOLERATED)
            ),
        )
    timeout_ms = max(checkpoints.timeout_ms, needed_ms)
    longer = msgspec.structs.replace(
        checkpoints, timeout_ms=timeout_ms, async_ms_max=min(checkpoints.async_ms_max, timeout_ms // 2)
    )
    return msgspec.structs.replace(plan, checkpoints=longer)


def _is_used_up(plan: TrialPlan) -> bool:
    """Return whether a job in which every checkpoint expires has no restarts left before the trial is over."""
    checkpoints, restart = plan.checkpoints, plan.restart
    if restart.strategy == "none":
        return True
    times = checkpoints.interval_ms + checkpoints.min_pause_ms + checkpoints.timeout_ms
    attempt_ms = (checkpoints.tolerated_failures + 1) * times + restart.delay_ms
    return (restart.attempts_max + 1) * attempt_ms <= USED_UP_IN_TIME * plan.limits.virtual_ms


def _with_barriers_handled(plan: TrialPlan) -> TrialPlan:
    """Return a plan whose subtasks can handle the barriers that come if all checkpoints expire.

    The barriers of a checkpoint that has expired are still under way, on each channel. If they come faster than a
    subtask handles them, queues grow without end, and no checkpoint is ever in time again. Nor is any if the barriers
    of one checkpoint alone take longer than its timeout.
    """
    jobs = [plan.after_stops(stops).job for stops in range(len(plan.rescales) + 1)]
    handled_ms = STEP_MS * (MESSAGES + max(barriers_before_the_last(job) for job in jobs))
    checkpoints = msgspec.structs.replace(
        plan.checkpoints, timeout_ms=max(plan.checkpoints.timeout_ms, handled_ms)
    )
    plan = msgspec.structs.replace(plan, checkpoints=checkpoints)
    busiest_ms = STEP_MS * max(
        MESSAGES + job.channels_into(vertex.name) for job in jobs for vertex in job.vertices
    )
    if checkpoints.interval_ms >= busiest_ms:
        return plan
    timeout_ms = max(checkpoints.timeout_ms, busiest_ms * checkpoints.max_concurrent)
    return msgspec.structs.replace(
        plan, checkpoints=msgspec.structs.replace(checkpoints, timeout_ms=timeout_ms)
    )


def barriers_before_the_last(job: JobPlan) -> int:
    """Return how many barriers of one checkpoint subtasks handle, one after the other, until the last is handled.

    A subtask handles one on each of its channels, and then those behind it handle theirs.
    """
    before: dict[str, int] = {}
    for vertex in job.vertices:
        ahead = [before[edge.source] for edge in job.inputs_of(vertex.name) if not edge.feedback]
        before[vertex.name] = job.channels_into(vertex.name) + max(ahead, default=0)
    return max(before.values(), default=0)


def _needed_ms(plan: TrialPlan, slow_batch_ms: int) -> int:
    """Return about how long it takes at most until a checkpoint's last barrier has come, in the plan's first job."""
    network = plan.network
    factor = 1 if network.slow_channel is None else network.slow_factor
    aligned = plan.checkpoints.mode != "at_least_once"
    before = batches_before_barriers(plan.job, network.channel_capacity, aligned)
    queued = max(before.values(), default=0)
    at_slow_vertex = before.get(plan.deployment.slow_vertex or "", 0)
    # A barrier goes once round each loop, which may be one behind the other.
    hops = plan.job.depth + sum(len(loop) for loop in plan.job.loops)
    return (1 + network.latency_ms_max * factor) * (hops + queued) + slow_batch_ms * at_slow_vertex


def batches_before_barriers(job: JobPlan, capacity: int, aligned: bool = True) -> dict[str, int]:
    """Return for each vertex about how many batches its busiest subtask handles from the trigger to the last barrier.

    Each channel may be full. If all records have one key, all that passes a vertex passes one subtask of the next. What
    was under way in a loop comes between what comes from outside, and before the barrier that went round it: so it is
    counted twice, the second time with all that the vertices of the loop had to handle until then.

    Where barriers are not ``aligned``, what comes behind them is handled meanwhile, as much from each channel as from
    the one on which the last barrier comes.
    """
    before: dict[str, int] = {}
    for _ in range(2 if job.loops else 1):
        former = before
        before = {}
        for vertex in job.vertices:
            edges = [edge for edge in job.inputs_of(vertex.name) if former or not edge.feedback]
            ahead = [(former if edge.feedback else before)[edge.source] for edge in edges]
            channels = sum(job.vertex(edge.source).parallelism for edge in edges)
            others = sum(ahead) if aligned else channels * max(ahead, default=0)
            before[vertex.name] = 1 + others + channels * (1 + capacity)
    return before
