"""Where a campaign's trials run: on this machine, or on the Spark cluster that ``--on`` names."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import TYPE_CHECKING

from rich.text import Text

from barrier_tck.harness.cli.opening import start
from barrier_tck.harness.cli.printing import VerdictConsole
from barrier_tck.harness.support.errors import UsageProblem

if TYPE_CHECKING:
    import pyarrow
    from pyspark.sql import SparkSession

    from barrier_tck.harness.campaign.configuration import ClusterSection
    from barrier_tck.harness.campaign.runner import Spread
    from barrier_tck.harness.record.trial_rows import CopyPart
    from barrier_tck.harness.system.system_under_test import SystemUnderTest


def require_fit(on: str | None, jobs: int, copies: str | None, system: SystemUnderTest) -> None:
    """Raise UsageProblem, before anything is started, if the options contradict each other or the system."""
    from barrier_tck.harness.campaign.trial_pool import require_parallel

    require_parallel(system, jobs)
    if on is None:
        if copies is not None:
            raise UsageProblem("--rows-to is for campaigns on a cluster; give --on too")
        return
    from barrier_tck.harness.cluster.session_elsewhere import master_of

    master_of(on)
    if jobs > 1:
        raise UsageProblem("--jobs and --on are both given; keep one of the two")


def start_where_trials_run(
    on: str | None, system: SystemUnderTest, cluster: ClusterSection | None = None
) -> None:
    """Start what the system needs; a real system is started on each host of a cluster, and not here."""
    if on is None or system.world == "simulated":
        start(system, cluster)
        return
    from barrier_tck.harness.campaign.started_systems import choose_cluster

    choose_cluster(system, cluster)


@contextlib.contextmanager
def spread_over(
    on: str | None,
    name: str,
    system: SystemUnderTest,
    copies: str | None,
    cluster: ClusterSection | None = None,
) -> Iterator[Spread | None]:
    """Open an application on the cluster, if one is named, and end it; another Ctrl-C does not interrupt the ending.

    Raises EnvironmentProblem, which names the host, if a host cannot run a real system.
    """
    if on is None:
        yield None
        return
    from barrier_tck.harness.campaign.phase_progress import PhaseProgress
    from barrier_tck.harness.campaign.runner import Spread
    from barrier_tck.harness.campaign.spark_runs import SETTINGS, SparkRuns
    from barrier_tck.harness.cluster.session_elsewhere import session_on

    real = system.world != "simulated"
    with contextlib.ExitStack() as open_session:
        console = VerdictConsole(stderr=True)
        with console.status(Text(f"starting Spark on {on}")):
            session = open_session.enter_context(
                session_on(on, f"barrier-tck campaign {name}", SETTINGS if real else None)
            )
        try:
            copy = None if copies is None else copying(session, copies)
            runs = SparkRuns(system, session, cluster)
            if real:
                with PhaseProgress(console, system.name, slow=True) as progress:
                    progress.show("starting on the hosts, as soon as no other real trial runs there")
                    runs.prepare()
            yield Spread(runs, copy, runs.once)
        finally:
            before = signal.signal(signal.SIGINT, signal.SIG_IGN)
            try:
                open_session.close()
            finally:
                signal.signal(signal.SIGINT, before)


def copying(session: SparkSession, url: str) -> CopyPart:
    """Return what writes each file of rows below a URL too, with Spark's own file systems."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    def copy(name: str, table: pyarrow.Table) -> None:
        target = f"{url.rstrip('/')}/part={name.removeprefix('part-').removesuffix('.parquet')}"
        try:
            session.createDataFrame(table).coalesce(1).write.mode("overwrite").parquet(target)
        except (PySparkException, Py4JError, OSError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise UsageProblem(f"--rows-to {url}: Spark cannot write there: {first}") from error

    return copy
