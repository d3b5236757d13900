"""A campaign on a cluster is ended by a signal; grain: Spark, for hosts as containers an engine, too (`nightly`)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil
import pytest

from barrier_tck.harness.cluster.cluster import Cluster
from barrier_tck.harness.cluster.containers.docker_cluster import DockerCluster
from barrier_tck.harness.cluster.containers.engine import connect
from barrier_tck.harness.cluster.containers.labelled import CLUSTER_LABEL, owner_of
from barrier_tck.harness.cluster.local_cluster import LocalCluster
from barrier_tck.harness.cluster.process_identity import marked_processes
from barrier_tck.harness.support.errors import EnvironmentProblem
from tests.test_tidy import ROOT
from tests.waiting import eventually

SEED = 50
STARTS_S = 300.0
"""So long may hosts and processes take to start, and to end, on a machine that does much else."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)


@dataclass(frozen=True)
class Commanded:
    """A campaign, and how many things it makes: hosts, networks, processes."""

    arguments: Sequence[str]
    cluster: type[Cluster]
    things: tuple[int, int]
    """From the first one to a job that runs, with its driver, its judges and its executors."""


QUERY = ("--query", "barrier_tck.harness.streaming.stock_job:job", "--trials", "20", "--seed", "0")
CAMPAIGNS = {
    "hosts": Commanded(("campaigns/hosts.toml", "--seed", "48"), DockerCluster, (1, 12)),
    "query on containers": Commanded((*QUERY, "--cluster", "docker"), DockerCluster, (1, 12)),
    "query": Commanded(QUERY, LocalCluster, (1, 10)),
}
DRAWN = random.Random(SEED)
MOMENTS = [
    (name, how, DRAWN.randint(*commanded.things)) for name, commanded in CAMPAIGNS.items() for how in SIGNALS
]


@pytest.fixture
def engine(campaign: str) -> Iterator[Any]:
    """A client of the container engine; None for a campaign that needs none."""
    if CAMPAIGNS[campaign].cluster is not DockerCluster:
        yield None
        return
    try:
        client = connect()
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    with contextlib.closing(client):
        yield client


def of_owner(engine: Any, pid: int) -> list[str]:
    """The containers, networks and processes that a process has made."""
    found = [f"process {process.pid}" for process, owner in marked_processes() if owner.pid == pid]
    if engine is None:
        return found
    only = {"filters": {"label": CLUSTER_LABEL}}
    made = [*engine.containers.list(all=True, ignore_removed=True, **only), *engine.networks.list(**only)]
    labels = {
        str(one.name): one.attrs.get("Labels") or one.attrs.get("Config", {}).get("Labels") for one in made
    }
    return [
        *sorted(name for name, label in labels.items() if owner_of(label[CLUSTER_LABEL]).pid == pid),
        *found,
    ]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize(
    ("campaign", "how", "things"), MOMENTS, ids=lambda value: getattr(value, "name", str(value))
)
def test_a_campaign_that_a_signal_ends_leaves_nothing_that_the_next_start_does_not_remove(
    engine: Any,
    campaign: str,
    how: signal.Signals,
    things: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The moment is drawn as a number of things that the campaign has made by then."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "barrier_tck.harness.cli.main", "campaign"]
    commanded = CAMPAIGNS[campaign]
    with subprocess.Popen(
        [*command, *commanded.arguments, "--out", str(tmp_path / "runs")],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(temporary)},
        stdout=subprocess.DEVNULL,
    ) as running:
        try:
            parent = psutil.Process(running.pid)
            worker = eventually("it works in a child", parent.children, STARTS_S)[0]
            eventually(
                f"it has made {things} things", lambda: len(of_owner(engine, worker.pid)) >= things, STARTS_S
            )
            assert running.poll() is None, "the campaign ended by itself"
            running.send_signal(how)
            running.wait(STARTS_S)
            eventually("its worker has ended", lambda: not worker.is_running(), STARTS_S)
        finally:
            running.kill()
    if how is signal.SIGINT:
        assert of_owner(engine, worker.pid) == [], "it has removed everything itself"
        assert sorted(temporary.iterdir()) == []
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    commanded.cluster.reap_orphans()
    assert of_owner(engine, worker.pid) == []
    assert sorted(temporary.iterdir()) == []
