"""``barrier-tck campaign``: run many trials, judge them, write a report."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from barrier_tck.harness.cli import completion
from barrier_tck.harness.cli.exit_codes import exit_code_of
from barrier_tck.harness.cli.options import (
    DEFAULT_OUT,
    CheckpointStorageOption,
    ClusterOption,
    JsonOption,
    OutOption,
    QueryOption,
    StateBackendOption,
    SystemOption,
    WorkloadOption,
)
from barrier_tck.harness.cli.plan_stores import NoStoreOption, StoreOption
from barrier_tck.harness.cli.printing import console_for, emit
from barrier_tck.harness.cli.strategy_option import StrategyOption, known_strategy
from barrier_tck.harness.cli.untrusted_code import TrustOption

JOBS_MAX = 256
"""The largest number of processes for trials; a larger number must be a mistake."""


def campaign(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.toml",
            autocompletion=completion.campaign_names,
            help="Campaign file, or the name of one that comes with barrier-tck (barrier-tck init lists them). "
            "Default: the standard campaign.",
        ),
    ] = None,
    system: SystemOption = None,
    query: QueryOption = None,
    trials: Annotated[
        int | None,
        typer.Option(
            "--trials", metavar="N", help="Number of trials. Default: the campaign file's, else 200."
        ),
    ] = None,
    budget: Annotated[
        str | None,
        typer.Option(
            "--budget",
            metavar="TIME",
            help="Run trials for this long, for instance 90s, 5m or 1h30m, instead of a number of trials.",
        ),
    ] = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            metavar="N",
            help="Seed from which plans are drawn. Default: the campaign file's, else "
            "a new one, which is printed first.",
        ),
    ] = None,
    strategy: StrategyOption = None,
    controls: Annotated[
        int | None,
        typer.Option(
            "--controls",
            metavar="N",
            help="Trials that run again with recovery broken on purpose, and must then be invalid. Default: the "
            "campaign file's, else one in 20, on Spark one or two; 0: none.",
        ),
    ] = None,
    workload: WorkloadOption = None,
    state_backend: StateBackendOption = None,
    checkpoint_storage: CheckpointStorageOption = None,
    cluster: ClusterOption = None,
    only: Annotated[
        str | None,
        typer.Option(
            "--only",
            metavar="CLAUSE,...",
            autocompletion=completion.CLAUSES,
            help="Judge trials only for these clauses and for CAM-3, for instance REC-1,ALN-2. "
            "Default: the campaign file's clauses, else all.",
        ),
    ] = None,
    fail_fast: Annotated[
        bool | None,
        typer.Option(
            "--fail-fast/--no-fail-fast",
            help="End with the first invalid trial. Default: as the campaign file says, else no.",
        ),
    ] = None,
    shrink: Annotated[
        bool | None,
        typer.Option(
            "--shrink/--no-shrink",
            help="Make plans that failed smaller when all trials are over; in real time this takes up to 30 more "
            "trials and five minutes. Default: as the campaign file says, else yes.",
        ),
    ] = None,
    resume: Annotated[
        Path | None,
        typer.Option(
            "--resume",
            metavar="RUN_DIR",
            help="Continue the campaign in this run directory: run the missing trials, with the same plans.",
        ),
    ] = None,
    trust: TrustOption = False,
    jobs: Annotated[
        int,
        typer.Option(
            "--jobs",
            metavar="N",
            min=1,
            max=JOBS_MAX,
            help="Run simulated trials in N processes at once; verdicts and files are those of one.",
        ),
    ] = 1,
    on: Annotated[
        str | None,
        typer.Option(
            "--on",
            metavar="MASTER",
            help="Spread trials over a Spark cluster: spark://host:port, yarn, or local[N]. Verdicts are "
            "those of one process; rows of trials are kept as Parquet. A real trial starts a cluster of its own "
            "on an executor's host, where no other one runs meanwhile.",
        ),
    ] = None,
    rows_to: Annotated[
        str | None,
        typer.Option(
            "--rows-to",
            metavar="URL",
            help="With --on: also write the rows of all trials there with Spark, for instance s3a://bucket/run.",
        ),
    ] = None,
    shard: Annotated[
        str | None,
        typer.Option(
            "--shard",
            metavar="I/N",
            help="Run only each Nth trial, from the Ith on; barrier-tck join makes one run of all N shards.",
        ),
    ] = None,
    store: StoreOption = None,
    no_store: NoStoreOption = False,
    out: OutOption = DEFAULT_OUT,
    as_json: JsonOption = False,
) -> None:
    """Run many trials, judge them, and write a report.

    Options win over the campaign file. Exit code 0 if all trials are valid, 1 if a property is violated, 2 if the
    verdict is unknown or the campaign was interrupted.

    \b
    Examples:
      barrier-tck campaign                              200 simulated trials
      barrier-tck campaign --budget 5m --seed 7         as many trials as fit into five minutes
      barrier-tck campaign --trials 5000 --jobs 4       simulated trials on four cores
      barrier-tck campaign graphs --strategy guided     plans like those that reached something new
      barrier-tck campaign --trials 100000 --on spark://host:7077     on a Spark cluster
      barrier-tck campaign --system reference-spark --on spark://host:7077     with a cluster for each trial
      barrier-tck campaign graphs --seed 7 --shard 2/5      the second of five parts; see barrier-tck join
      barrier-tck campaign flights                      a campaign file that comes with barrier-tck
      barrier-tck campaign --system reference-spark --trials 4      on a local Spark cluster
      barrier-tck campaign flights --cluster docker     on hosts that are containers
      barrier-tck campaign --query my_job:job --budget 10m          your own query of Structured Streaming
      barrier-tck campaign --state-backend rocksdb      200 simulated trials with state in RocksDB
      barrier-tck campaign --checkpoint-storage my_storage:MyStorage     with checkpoints in a storage of yours
      barrier-tck campaign --store s3://bucket/plans    with a store of plans that others use, too
      barrier-tck campaign --only REC-1 --fail-fast     until the first wrong restore
      barrier-tck campaign --resume runs/standard-20260101-120000     the trials that an interruption left out
    """
    from barrier_tck.harness.cli import campaign_options, campaign_output
    from barrier_tck.reports.loading import load_run

    console = console_for(as_json)
    options = campaign_options.CampaignOptions(
        file=file,
        system=system,
        query=query,
        trials=trials,
        budget=budget,
        seed=seed,
        strategy=known_strategy(strategy),
        controls=controls,
        workload=workload,
        state_backend=state_backend,
        checkpoint_storage=checkpoint_storage,
        cluster=cluster,
        only=only,
        fail_fast=fail_fast,
        shrink=shrink,
        trust=trust,
        jobs=jobs,
        on=on,
        rows_to=rows_to,
        shard=shard,
        store=store,
        no_store=no_store,
        out=out,
    )
    path = (
        campaign_options.begin(options, console)
        if resume is None
        else campaign_options.resume(resume, options, console)
    )
    run = load_run(path)
    campaign_output.print_campaign(console, run, options.campaign_file)
    emit(as_json, campaign_output.as_object(run))
    raise typer.Exit(exit_code_of(run.campaign.verdict, run.campaign.interrupted))
