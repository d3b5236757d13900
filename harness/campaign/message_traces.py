"""Notes what passed through the channels of a trial that is kept in full, so that reports can draw its cuts.

A real system notes it while the trial runs. A system that replays exactly need not: only the trials of which a user
wants to see a cut run again, with notes, and the steps must be those that were recorded.
"""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.record.run_directory import trial_directory, write_message_trace
from barrier_tck.harness.record.run_reader import read_record
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.work_directories import temporary_work_directory
from barrier_tck.harness.system.optional_interfaces import TracesMessages
from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest
from barrier_tck.harness.trial.trial_run import execute


def are_traced(run_directory: Path, trial: int) -> bool:
    """Return whether a trial's directory holds what passed through its channels."""
    return (trial_directory(run_directory, trial) / "passages.jsonl").is_file()


def can_trace(system: SystemUnderTest) -> bool:
    """Return whether a system can note in a second run what passed through the channels in the first."""
    return Capability.DETERMINISTIC_REPLAY in system.capabilities and isinstance(system, TracesMessages)


def trace_messages(run_directory: Path, trial: int, system: SystemUnderTest) -> None:
    """Run a trial again with notes and add them to its directory.

    Raises UsageProblem if the system does not replay or note anything, or if the trial now takes other steps;
    RunDirectoryError if the trial was not kept in full.
    """
    directory = trial_directory(run_directory, trial)
    record = read_record(directory)
    if not can_trace(system):
        raise UsageProblem(
            f"{directory} holds no passages.jsonl, and {system.name} cannot log what passed through its channels in a "
            "second run; run the campaign again with a version that notes it in the first"
        )
    assert isinstance(system, TracesMessages)
    with temporary_work_directory("passages") as scratch:
        again = execute(record.plan, system.tracing_messages(), Path(scratch), checkers=())
    if again.record.trace_digest != record.trace_digest:
        raise UsageProblem(
            f"{directory}: the trial takes other steps now than when it was recorded, so no diagram can be drawn "
            "of it; run the campaign again"
        )
    if not again.trace_events:
        raise UsageProblem(
            f"{directory}: no barrier passed any channel in this trial, so there is no cut to draw"
        )
    write_message_trace(directory, again.trace_events)
