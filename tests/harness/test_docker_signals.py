"""A campaign on hosts that are containers is ended by a signal; grain: an engine and Spark (`nightly`)."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pytest

from barrier_tck.harness.cluster.containers.docker_cluster import DockerCluster
from barrier_tck.harness.cluster.containers.engine import connect
from barrier_tck.harness.cluster.containers.labelled import CLUSTER_LABEL, owner_of
from barrier_tck.harness.cluster.process_identity import marked_processes
from barrier_tck.harness.support.errors import EnvironmentProblem
from tests.test_tidy import ROOT
from tests.waiting import eventually

SEED = 50
STARTS_S = 300.0
"""So long may hosts and processes take to start, and to end, on a machine that does much else."""
THINGS = (1, 12)
"""From the first network of hosts to a job that runs on them with its driver, its judges and its executors."""
DRAWN = random.Random(SEED)
MOMENTS = [
    (how, DRAWN.randint(*THINGS)) for how in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL, signal.SIGKILL)
]


@pytest.fixture
def engine() -> Iterator[Any]:
    try:
        client = connect()
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    with contextlib.closing(client):
        yield client


def of_owner(engine: Any, pid: int) -> list[str]:
    """The containers, networks and processes that a process has made."""
    only = {"filters": {"label": CLUSTER_LABEL}}
    found = [*engine.containers.list(all=True, ignore_removed=True, **only), *engine.networks.list(**only)]
    labels = {
        str(one.name): one.attrs.get("Labels") or one.attrs.get("Config", {}).get("Labels") for one in found
    }
    made = sorted(name for name, label in labels.items() if owner_of(label[CLUSTER_LABEL]).pid == pid)
    return [
        *made,
        *(f"process {process.pid}" for process, owner in marked_processes() if owner.pid == pid),
    ]


@pytest.mark.spark
@pytest.mark.nightly
@pytest.mark.parametrize(("how", "things"), MOMENTS, ids=lambda value: getattr(value, "name", str(value)))
def test_a_campaign_that_a_signal_ends_leaves_nothing_that_the_next_start_does_not_remove(
    engine: Any, how: signal.Signals, things: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The moment is drawn as a number of things that the campaign has made by then: hosts, networks, processes."""
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    command = [sys.executable, "-m", "barrier_tck.harness.cli.main", "campaign", "campaigns/hosts.toml"]
    environment = os.environ | {"TMPDIR": str(temporary)}
    with subprocess.Popen(
        [*command, "--out", str(tmp_path / "runs")], cwd=ROOT, env=environment, stdout=subprocess.DEVNULL
    ) as campaign:
        try:
            parent = psutil.Process(campaign.pid)
            worker = eventually("it works in a child", parent.children)[0]
            eventually(
                f"it has made {things} things", lambda: len(of_owner(engine, worker.pid)) >= things, STARTS_S
            )
            assert campaign.poll() is None, "the campaign ended by itself"
            campaign.send_signal(how)
            campaign.wait(STARTS_S)
            eventually("its worker has ended", lambda: not worker.is_running(), STARTS_S)
        finally:
            campaign.kill()
    if how is signal.SIGINT:
        assert of_owner(engine, worker.pid) == [], "it has removed everything itself"
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    DockerCluster.reap_orphans()
    assert of_owner(engine, worker.pid) == []
    assert sorted(temporary.iterdir()) == []
