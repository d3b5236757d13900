"""Brings the clocks of processes in line, so that nothing is drawn as taken before it was sent.

On Spark each process derives the coordinator's time from when it was deployed, which is off by the time that this took.
What a channel delivered bounds the difference: a batch is not taken before it is sent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from barrier_tck.harness.record.message_trace import Sent, Taken, TraceEvent, What


def in_line(trace_events: Sequence[TraceEvent]) -> tuple[tuple[TraceEvent, ...], float]:
    """Return the events of one attempt with the least possible shifts of clocks forwards, and the largest shift in
    ms."""
    shifts = _shifts(_least_delays(trace_events))
    moved = tuple(
        msgspec.structs.replace(event, at_ms=event.at_ms + shifts[event.subtask])
        if event.subtask in shifts
        else event
        for event in trace_events
    )
    return moved, max(shifts.values(), default=0.0)


def _least_delays(trace_events: Sequence[TraceEvent]) -> dict[tuple[str, str], float]:
    """Return for each sender and receiver how long the fastest batch took by their own clocks."""
    sent = {
        (event.channel, event.position): event
        for event in trace_events
        if isinstance(event, Sent) and event.what is What.BATCH
    }
    found: dict[tuple[str, str], float] = {}
    for entry in trace_events:
        if isinstance(entry, Taken) and entry.what is What.BATCH:
            start = sent.get((entry.channel, entry.position))
            if start is not None:
                ends, delay = (start.subtask, entry.subtask), entry.at_ms - start.at_ms
                found[ends] = min(delay, found.get(ends, delay))
    return found


def _shifts(delays: Mapping[tuple[str, str], float]) -> dict[str, float]:
    """Return the least shift of each clock that has one: longest paths, a round for each process at most."""
    shifts: dict[str, float] = {}
    for _ in {name for ends in delays for name in ends}:
        changed = False
        for (sender, receiver), delay in delays.items():
            needed = shifts.get(sender, 0.0) - delay
            if needed > shifts.get(receiver, 0.0):
                shifts[receiver] = needed
                changed = True
        if not changed:
            break
    return shifts
