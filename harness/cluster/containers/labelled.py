"""Labels on what the harness makes in an engine, and the removal of what has lost its harness."""

from __future__ import annotations

import contextlib
from typing import Any

from docker.errors import APIError, NotFound

from barrier_tck.harness.cluster.containers.engine import problems
from barrier_tck.harness.support.owners import ProcessIdentity

CLUSTER_LABEL = "barrier-tck.cluster"
"""On containers and networks: `<cluster id>:<owner's pid>:<owner's start time>`, as processes are marked."""
IMAGE_LABEL = "barrier-tck.host-image"
"""On images, which are kept: the base."""
_CONFLICT = 409
_ATTACHED = "active endpoints"
"""What an engine says of a network whose containers are not gone yet."""


def remove_orphans(client: Any) -> list[str]:
    """Remove containers and networks whose owner is dead; return their names. Those of running harnesses stay."""
    with problems():
        return remove(client, lambda label: not owner_of(label).running())


def remove_cluster(client: Any, cluster: str) -> list[str]:
    """Remove the containers and networks of one cluster, named by its id; return what is left, in words."""
    with problems():
        remove(client, lambda label: label.partition(":")[0] == cluster)
        return [
            f"{kind} {entry.name}"
            for kind, found in _found(client)
            for entry in found
            if _label(entry).partition(":")[0] == cluster
        ]


def remove(client: Any, wanted: Any) -> list[str]:
    """Remove the containers and networks whose label is wanted, containers first; return their names."""
    removed = []
    for kind, found in _found(client):
        for entry in found:
            if not wanted(_label(entry)):
                continue
            with _gone_or_going():
                entry.remove(**({"force": True, "v": True} if kind == "container" else {}))
                removed.append(str(entry.name))
    return removed


def owner_of(label: str) -> ProcessIdentity:
    """Return the harness that a label names."""
    _, pid, created = label.split(":")
    return ProcessIdentity(int(pid), float(created))


def _found(client: Any) -> Any:
    only = {"filters": {"label": CLUSTER_LABEL}}
    # One after the other: a network can be removed when its containers are.
    yield "container", client.containers.list(all=True, ignore_removed=True, **only)
    yield "network", client.networks.list(**only)


def _label(resource: Any) -> str:
    labels = resource.attrs.get("Labels") or resource.attrs.get("Config", {}).get("Labels") or {}
    return str(labels[CLUSTER_LABEL])


@contextlib.contextmanager
def _gone_or_going() -> Any:
    """Another harness may remove the same orphans."""
    try:
        yield
    except NotFound:
        return
    except APIError as error:
        if error.status_code != _CONFLICT and _ATTACHED not in str(error):
            raise
