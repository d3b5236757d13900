"""Notes what pictures of cuts need and a run directory does not hold yet: a simulated trial runs again for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from barrier_tck.harness.cli.untrusted_code import code_of, require_named
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.reports.cuts import Wanted
    from barrier_tck.reports.loading import ReportedRun


def trace_requested_cuts(run: ReportedRun, wanted: tuple[Wanted, ...], trust: bool) -> None:
    """Note what passed the channels of trials of which a cut is requested.

    Raises UsageProblem if that is impossible, or if it would run code that only the run directory names.
    """
    from barrier_tck.harness.campaign.message_traces import are_traced
    from barrier_tck.reports.cuts import require_kept

    if not wanted:
        return
    require_kept(run, wanted)
    for trial in dict.fromkeys(request.trial for request in wanted):
        if not are_traced(run.directory, trial):
            if not trust:
                require_named(code_of(run.details[trial].plan, _system_of(run)), (), str(run.directory))
            _note(run, trial)


def trace_cuts_shown(run: ReportedRun, console: Console, trust: bool = False) -> None:
    """Note what passed the channels of the trials that a report shows anyway, where that is possible.

    ``trust`` says that code named in the run directory may run, for instance because it just did.
    """
    from barrier_tck.harness.campaign.message_traces import are_traced
    from barrier_tck.reports.cuts import shown_by_default

    for trial in dict.fromkeys(request.trial for request in shown_by_default(run)):
        known = trust or not any(code_of(run.details[trial].plan, _system_of(run)))
        if known and not are_traced(run.directory, trial):
            try:
                _note(run, trial, if_possible=True)
            except UsageProblem as problem:
                console.print(f"no picture of a cut of trial {trial}: {problem}", markup=False)


def _system_of(run: ReportedRun) -> str:
    return run.campaign.opened_as or run.campaign.system


def _note(run: ReportedRun, trial: int, if_possible: bool = False) -> None:
    from barrier_tck.harness.campaign.message_traces import can_trace, trace_messages
    from barrier_tck.harness.cli.opening import opened

    with opened(_system_of(run)) as system:
        if not if_possible or can_trace(system):
            trace_messages(run.directory, trial, system)
