"""The options of ``barrier-tck campaign`` as one value, and the campaign that they begin or continue."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from barrier_tck.harness.cli.campaign_output import print_options, print_seed
from barrier_tck.harness.cli.opening import opened
from barrier_tck.harness.cli.options import listed
from barrier_tck.harness.cli.plan_stores import opened_store
from barrier_tck.harness.cli.printing import VerdictConsole
from barrier_tck.harness.cli.shipped import found_campaign
from barrier_tck.harness.cli.spreading import require_fit, spread_over, start_where_trials_run
from barrier_tck.harness.cli.untrusted_code import (
    UntrustedCode,
    code_of_campaign,
    code_of_profiles,
    require_named,
)
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.root_seed import root_seed
from barrier_tck.harness.support.third_party import search_working_directory

if TYPE_CHECKING:
    from barrier_tck.harness.campaign.configuration import CampaignConfiguration
    from barrier_tck.harness.campaign.plan_store.store import PlanStore
    from barrier_tck.harness.cluster.cluster_config import ClusterKind
    from barrier_tck.harness.draw.search.strategies import StrategyName
    from barrier_tck.harness.system.system_under_test import SystemUnderTest

QUERY_TRIALS = 20
"""The number of trials of a user's query, if nothing else is asked for: each takes seconds, and not milliseconds."""


@dataclass(frozen=True)
class CampaignOptions:
    """What the command line says; None: not given, so the campaign file or the default decides."""

    file: Path | None
    system: str | None
    query: str | None
    trials: int | None
    budget: str | None
    seed: int | None
    strategy: StrategyName | None
    controls: int | None
    workload: str | None
    state_backend: str | None
    checkpoint_storage: str | None
    cluster: ClusterKind | None
    only: str | None
    fail_fast: bool | None
    shrink: bool | None
    trust: bool
    jobs: int
    on: str | None
    rows_to: str | None
    shard: str | None
    store: str | None
    no_store: bool
    out: Path

    @property
    def campaign_file(self) -> Path | None:
        """Return the campaign file; a name may mean one that comes with barrier-tck."""
        return None if self.file is None else found_campaign(self.file)

    @property
    def source(self) -> str:
        """Return where values come from, for messages."""
        file = self.campaign_file
        return str(file) if file is not None else "the command line"

    @property
    def clauses(self) -> tuple[str, ...] | None:
        """Return the clauses for which trials are judged."""
        return listed("--only", self.only) if self.only is not None else None


def begin(options: CampaignOptions, console: VerdictConsole) -> Path:
    """Run a campaign from its beginning; return its directory."""
    from barrier_tck.harness.campaign.configuration_checks import check_configuration, import_system
    from barrier_tck.harness.campaign.runner import run_campaign
    from barrier_tck.harness.campaign.shards import (
        require_shardable,
        require_told_nothing,
        shard_of,
    )
    from barrier_tck.harness.record.run_directory import new_run_path, require_place

    configuration, source = _configured(options), options.source
    require_place(options.out)
    search_working_directory()
    import_system(configuration, source if options.system is None else "--system")
    with opened(configuration.system.name) as deployed:
        store = _store(options, configuration, deployed)
        check_configuration(configuration, deployed, source)
        require_fit(options.on, options.jobs, options.rows_to, deployed)
        shard = shard_of(options.shard or "", "--shard")
        require_shardable(shard, configuration)
        if options.on is not None:
            require_told_nothing(configuration, "--on")
        seed = root_seed(configuration.seed)
        configuration = msgspec.structs.replace(configuration, seed=seed.value)
        print_seed(console, seed)
        cluster = configuration.cluster
        start_where_trials_run(options.on, deployed, cluster)
        with spread_over(options.on, configuration.name, deployed, options.rows_to, cluster) as spread:
            path = new_run_path(options.out, configuration.name, datetime.now())
            print_options(console, configuration, deployed, path)
            if shard.is_part:
                console.print(f"  shard: {shard}", markup=False)
            progress = VerdictConsole(stderr=True)
            run_campaign(
                configuration,
                deployed,
                path,
                console=progress,
                jobs=options.jobs,
                spread=spread,
                shard=shard,
                store=store,
            )
        return path


def _store(
    options: CampaignOptions, configuration: CampaignConfiguration, system: SystemUnderTest
) -> PlanStore | None:
    """Return the store of plans; what the campaign names, or its system brings, its plans may name, too."""
    allowed = (*code_of_campaign(configuration), *code_of_profiles(system))
    return opened_store(options.store, options.no_store, allowed, options.trust)


def resume(path: Path, options: CampaignOptions, console: VerdictConsole) -> Path:
    """Continue an interrupted campaign; return its directory."""
    from barrier_tck.harness.campaign.configuration import stored_configuration
    from barrier_tck.harness.campaign.resuming import require_resumable
    from barrier_tck.harness.campaign.runner import resume_campaign

    _require_nothing_else(options)
    record = path / "campaign.json"
    interrupted = require_resumable(path)
    stored = interrupted.stored
    configuration = stored_configuration(stored.campaign.configuration, str(record))
    named = _named_again(options, configuration)
    if not options.trust:
        allowed = [UntrustedCode(name.replace("-", " "), here or "") for name, here in named.items()]
        require_named(code_of_campaign(configuration), allowed, str(record))
    if options.trust or any(here is not None for here in named.values()):
        search_working_directory()
    with opened(configuration.system.name) as deployed:
        store = _store(options, configuration, deployed)
        require_fit(options.on, options.jobs, options.rows_to, deployed)
        print_seed(console, root_seed(configuration.seed))
        cluster = configuration.cluster
        start_where_trials_run(options.on, deployed, cluster)
        with spread_over(options.on, configuration.name, deployed, options.rows_to, cluster) as spread:
            print_options(console, configuration, deployed, path)
            console.print(f"resumed after {interrupted.finished} trials")
            progress = VerdictConsole(stderr=True)
            resume_campaign(path, deployed, console=progress, jobs=options.jobs, spread=spread, store=store)
        return path


def _require_nothing_else(options: CampaignOptions) -> None:
    """Raise UsageProblem for an option that ``--resume`` takes from the run directory."""
    given = {
        "seed": options.seed,
        "strategy": options.strategy,
        "controls": options.controls,
        "fail-fast": options.fail_fast,
        "shrink": options.shrink,
        "only": options.only,
        "FILE.toml": options.file,
        "trials": options.trials,
        "budget": options.budget,
        "cluster": options.cluster,
        "shard": options.shard,
    }
    for name, value in given.items():
        if value is not None:
            raise UsageProblem(f"--resume takes everything from the run directory; leave {name} out")


def _named_again(options: CampaignOptions, configuration: CampaignConfiguration) -> dict[str, str | None]:
    """Return the options that name code which the campaign names already; raises UsageProblem if they differ."""
    system = options.system
    if options.query is not None:
        system = _system_of_query(options.query, system)
    named = {
        "system": system,
        "workload": options.workload,
        "state-backend": options.state_backend,
        "checkpoint-storage": options.checkpoint_storage,
    }
    stored = {
        "system": configuration.system.name,
        "workload": configuration.workload.get("name", TrialPlan().workload.name),
        "state-backend": configuration.state_backend,
        "checkpoint-storage": configuration.checkpoints.get("storage", TrialPlan().checkpoints.storage),
    }
    for name, here in named.items():
        if here is not None and here != stored[name]:
            raise UsageProblem(
                f"--{name} is {here!r}, but the campaign runs on {stored[name]!r}; leave it out"
            )
    return named


def _system_of_query(query: str, system: str | None) -> str:
    """Return the system that ``--query`` means."""
    from barrier_tck.harness.streaming.streaming_job import StreamingJob
    from barrier_tck.harness.support.third_party import article, is_target, object_named, shown

    if system is not None:
        raise UsageProblem("--system and --query are both given; keep one of the two")
    search_working_directory()
    if not is_target(query):
        raise UsageProblem(f"--query is {shown(query)}; name your job as package.module:job")
    if not isinstance(found := object_named(query, "query"), StreamingJob):
        raise UsageProblem(
            f"--query names {shown(query)}, which is {article(type(found).__name__)}; let it be a StreamingJob(...)"
        )
    return query


def _name_of_what_is_tested(options: CampaignOptions) -> str | None:
    """Return the first code of a user's own that is tested; None if there is none.

    A campaign is named for it, so that no run of another system, or of ours, has the same name and is compared with it.
    """
    from barrier_tck.harness.support.third_party import is_target

    own = (options.system, options.state_backend, options.checkpoint_storage, options.workload)
    return next((target for target in own if target is not None and is_target(target)), None)


def _configured(options: CampaignOptions) -> CampaignConfiguration:
    """Read the campaign file, if there is one, and let the given options override it."""
    from barrier_tck.harness.campaign.configuration import (
        NAME_MAX,
        CampaignConfiguration,
        check_values,
        read_configuration,
    )

    system, trials, name = options.system, options.trials, None
    if options.query is not None:
        system = _system_of_query(options.query, system)
        if options.file is None:
            name = options.query
            if trials is None and options.budget is None:
                trials = QUERY_TRIALS
    elif options.file is None:
        name = _name_of_what_is_tested(options)
    if name is not None:
        name = name.replace(":", ".")[-NAME_MAX:]
    file = options.campaign_file
    configuration = CampaignConfiguration() if file is None else read_configuration(file)
    if trials is not None and options.budget is not None:
        raise UsageProblem("--trials and --budget are both given; keep one of the two")
    if system is not None:
        section = msgspec.structs.replace(configuration.system, name=system)
        configuration = msgspec.structs.replace(configuration, system=section)
    given = {
        "name": name,
        "seed": options.seed,
        "strategy": options.strategy,
        "controls": options.controls,
        "fail_fast": options.fail_fast,
        "shrink": options.shrink,
        "only": options.clauses,
        "state_backend": options.state_backend,
    }
    changes: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
    if options.workload is not None:
        if configuration.mix is not None and configuration.mix.workload:
            raise UsageProblem(
                f"{options.source} mixes workloads; leave --workload out, or its key mix.workload"
            )
        changes["workload"] = {**configuration.workload, "name": options.workload}
    if options.checkpoint_storage is not None:
        changes["checkpoints"] = {**configuration.checkpoints, "storage": options.checkpoint_storage}
    if trials is not None or options.budget is not None:
        changes |= {"trials": trials, "budget": options.budget}
    try:
        configuration = msgspec.structs.replace(configuration, **changes)
    except ValueError as error:
        raise UsageProblem(f"{options.source}: {error}") from error
    check_values(configuration, options.source)
    return _on(options.cluster, configuration)


def _on(cluster: ClusterKind | None, configuration: CampaignConfiguration) -> CampaignConfiguration:
    """Return a configuration for another kind of cluster, of the same shape."""
    from barrier_tck.harness.campaign.configuration import ClusterSection

    if cluster is None:
        return configuration
    section = msgspec.structs.replace(configuration.cluster or ClusterSection(), name=cluster)
    return msgspec.structs.replace(configuration, cluster=section)
