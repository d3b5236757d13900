"""``barrier-tck replay``: run a plan again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer
from rich.console import Console

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.exit_codes import EXIT_CODES
from barrier_tck.harness.cli.opening import opened, start
from barrier_tck.harness.cli.options import ClusterOption, JsonOption, ReplaySystemOption
from barrier_tck.harness.cli.patched_run import run_with_patch
from barrier_tck.harness.cli.printing import VerdictConsole, console_for, emit
from barrier_tck.harness.cli.untrusted_code import TrustOption, UntrustedCode, code_of, require_named
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import digest_of
from barrier_tck.harness.reference.bugs.patched_copy import patch_of_this_process
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import read_text
from barrier_tck.harness.support.third_party import search_working_directory

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.replay import KeptFor, Replayed, ReplaySource


def replay(
    context: typer.Context,
    path: Annotated[
        Path,
        typer.Argument(
            metavar="PLAN.json|RUN_DIR", help="A plan file, a trial's directory or a run directory."
        ),
    ],
    system: ReplaySystemOption = None,
    state_backend: Annotated[
        str | None,
        typer.Option(
            "--state-backend",
            metavar="NAME",
            autocompletion=completion.BACKENDS,
            help="State backend to run the plans on: heap, rocksdb, or package.module:Factory. Default: each plan's.",
        ),
    ] = None,
    checkpoint_storage: Annotated[
        str | None,
        typer.Option(
            "--checkpoint-storage",
            metavar="NAME",
            autocompletion=completion.STORAGES,
            help="Checkpoint storage to run the plans with: files, s3, hdfs, memory, or package.module:Factory. "
            "Default: each plan's.",
        ),
    ] = None,
    workload: Annotated[
        str | None,
        typer.Option(
            "--workload",
            metavar="NAME",
            autocompletion=completion.WORKLOADS,
            help="Workload to run the plans with: a name, or package.module:Factory. Default: each plan's.",
        ),
    ] = None,
    patch: Annotated[
        Path | None,
        typer.Option(
            "--patch", metavar="FILE", help="The patch that the plans carry, if you trust it: it is code."
        ),
    ] = None,
    cluster: ClusterOption = None,
    times: Annotated[
        int,
        typer.Option(
            "--times",
            metavar="N",
            min=1,
            help="Where runs of one plan differ, run it up to N times until it is not valid.",
        ),
    ] = 1,
    trust: TrustOption = False,
    as_json: JsonOption = False,
) -> None:
    """Run a plan again, and compare verdict and steps.

    Steps are compared in the simulator only. For a run directory, its failing trials are replayed or, if none failed,
    all trials that were kept. Code from elsewhere that a plan or record names runs only if an option names it too.

    \b
    Examples:
      barrier-tck replay runs/standard-20260101-120000/shrunk/00012.json
      barrier-tck replay runs/standard-20260101-120000
      barrier-tck replay plan.json --state-backend your_package:YourBackend
      barrier-tck replay plan.json --system reference-spark --times 20      until the race shows
    """
    from barrier_tck.harness.campaign import replay as replaying
    from barrier_tck.harness.campaign.configuration import ClusterSection
    from barrier_tck.harness.campaign.phase_progress import PhaseProgress
    from barrier_tck.harness.system.system_names import DEFAULT_SYSTEM
    from barrier_tck.harness.trial.plan_check import check_plan

    console = console_for(as_json)
    sources = tuple(
        replaying.varied(source, state_backend, workload, checkpoint_storage)
        for source in replaying.sources_of(path)
    )
    recorded = sources[0].recorded
    name = system or (recorded.opened_as or recorded.system if recorded is not None else DEFAULT_SYSTEM)
    carried = _patch_of(sources, path)
    if patch is not None and read_text(patch) != carried:
        differs = "no patch" if carried is None else f"another patch than {patch}"
        raise UsageProblem(
            f"{path} carries {differs}; leave --patch out, or name the file that the plan was made with"
        )
    if not trust:
        given = (
            UntrustedCode("system", system or ""),
            *_given(state_backend, checkpoint_storage, workload, patch),
        )
        for source in sources:
            require_named(code_of(source.plan, name), given, str(source.path))
    if carried is not None and patch_of_this_process() is None:
        run_with_patch(carried, str(path), context.obj)
    replayed = []
    if trust or any((system, state_backend, checkpoint_storage, workload)):
        search_working_directory()
    with opened(name) as deployed:
        for source in sources:
            check_plan(source.plan, deployed, str(source.path))
        start(deployed, ClusterSection(name=cluster) if cluster is not None else None)
        for source in sources:
            slow = deployed.world != "simulated"
            with PhaseProgress(VerdictConsole(stderr=True), str(source.path), slow=slow) as progress:
                result = replaying.replay(source, deployed, times=times, begins=progress.show)
            replayed.append(result)
            _print_replayed(console, result)
    verdict = replaying.worst_verdict(replayed)
    same = all(result.same_verdict for result in replayed)
    emit(
        as_json,
        {
            "verdict": verdict.value,
            "same_verdict": same,
            "replayed": [
                {
                    "plan": str(entry.source.path),
                    "verdict": entry.record.verdict.value,
                    "same_verdict": entry.same_verdict,
                    "runs": entry.runs,
                    "trace_digest": entry.record.trace_digest,
                    "invalid": [f.checker for f in entry.record.findings if f.verdict is Verdict.INVALID],
                    "findings": [
                        msgspec.to_builtins(msgspec.structs.replace(finding, details={}))
                        for finding in entry.record.findings
                        if finding.verdict is not Verdict.VALID
                    ],
                }
                for entry in replayed
            ],
        },
    )
    raise typer.Exit(EXIT_CODES[verdict])


def _patch_of(sources: Sequence[ReplaySource], path: Path) -> str | None:
    """Return the patch that plans carry; raises UsageProblem if they differ: a process runs one patched copy."""
    patches = list(dict.fromkeys(source.plan.patch for source in sources))
    if len(patches) != 1:
        raise UsageProblem(f"the plans in {path} carry different patches: replay them one by one")
    return patches[0]


def _given(
    state_backend: str | None, checkpoint_storage: str | None, workload: str | None, patch: Path | None
) -> Iterator[UntrustedCode]:
    """Yield the code that options name besides the system."""
    if state_backend is not None:
        yield UntrustedCode("state backend", state_backend)
    if checkpoint_storage is not None:
        yield UntrustedCode("checkpoint storage", checkpoint_storage)
    if workload is not None:
        yield UntrustedCode("workload", workload)
    if patch is not None:
        yield UntrustedCode("patch", digest_of(read_text(patch)))


def _print_replayed(console: Console, result: Replayed) -> None:
    """Print one replayed plan: verdict, trace, and what was found."""
    record, recorded = result.record, result.source.recorded
    was = f" (recorded: {recorded.verdict.value})" if recorded is not None else ""
    was += f", in the last of {result.runs} runs" if result.runs > 1 else ""
    console.print(f"{result.source.path}: {record.verdict.value}{was}", markup=False)
    if record.trace_digest is not None:
        trace = record.trace_digest[:16]
        same = (
            "ran with the same steps as recorded"
            if recorded is not None
            else "ran twice with identical steps"
        )
        console.print(f"  {same} ({trace})", markup=False)
    if result.shows_no_more is not None:
        console.print(f"  {_shows_no_more(result, result.shows_no_more)}", markup=False)
    for finding in record.findings:
        if finding.verdict is not Verdict.VALID:
            clauses = f" ({finding.named_clauses})" if finding.clauses else ""
            console.print(
                f"  {finding.checker}{clauses}: {finding.verdict.value}: {finding.summary}", markup=False
            )
            if finding.first is not None:
                console.print(f"    {finding.broken}: {finding.first.description}", markup=False)
            for example in finding.examples[:3]:
                console.print(f"    {example}", markup=False)


def _shows_no_more(result: Replayed, before: KeptFor) -> str:
    """Say that the plan of a failure did not fail, which alone does not tell that anything was mended."""
    from barrier_tck.reports.wording import plural

    sentence = (
        f"this plan is kept because it failed ({before.clause or 'no clause'}, {before.checker}; in "
        f"{before.failed_runs} of {plural(before.runs, 'run')}), and now it did not fail in "
        f"{plural(result.runs, 'run')}"
    )
    if result.exact:
        return f"{sentence}, and here one run tells: what it showed is mended"
    return (
        f"{sentence}; it may be mended, or a race that shows in more runs: --times {max(10, 2 * result.runs)}"
    )
