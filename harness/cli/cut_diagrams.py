"""Makes the message traces that cut diagrams need: if a run directory has none, its simulated trial runs again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.console import Console

from barrier_tck.harness.cli.untrusted_code import code_of, require_named
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    from barrier_tck.reports.cuts import Wanted
    from barrier_tck.reports.loading import ReportedRun


def trace_requested_cuts(run: ReportedRun, wanted: tuple[Wanted, ...], trust: bool) -> None:
    """Trace the messages of each trial of which a cut diagram is requested.

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
                require_named(code_of(run.details[trial].plan, _system_of(run)), None, str(run.directory))
            _trace(run, trial)


def trace_cuts_shown(run: ReportedRun, console: Console, trust: bool = False) -> None:
    """Trace the messages of the trials whose cuts a report shows without a request, where that is possible.

    ``trust`` says that code named in the run directory may run, for instance because it just did.
    """
    from barrier_tck.harness.campaign.message_traces import are_traced
    from barrier_tck.reports.cuts import shown_by_default

    for trial in dict.fromkeys(request.trial for request in shown_by_default(run)):
        trusted = trust or not any(code_of(run.details[trial].plan, _system_of(run)))
        if trusted and not are_traced(run.directory, trial):
            try:
                _trace(run, trial, if_possible=True)
            except UsageProblem as problem:
                console.print(f"no cut diagram of trial {trial}: {problem}", markup=False)


def _system_of(run: ReportedRun) -> str:
    return run.campaign.opened_as or run.campaign.system


def _trace(run: ReportedRun, trial: int, if_possible: bool = False) -> None:
    from barrier_tck.harness.campaign.message_traces import can_trace, trace_messages
    from barrier_tck.harness.cli.opening import opened

    with opened(_system_of(run)) as system:
        if not if_possible or can_trace(system):
            trace_messages(run.directory, trial, system)
