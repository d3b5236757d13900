"""The container engine of this machine, and what keeps it from being used."""

from __future__ import annotations

import contextlib
import platform
from collections.abc import Iterator
from typing import Any

import docker
import requests
from docker.errors import DockerException

from barrier_tck.harness.support.errors import EnvironmentProblem, HarnessError, OperatingError

ENGINE_ADVICE = (
    "Start one (Debian: apt-get install docker.io, then dockerd), and see that this user may use it, "
    "or point DOCKER_HOST at its socket."
)
_TIMEOUT_S = 60
_PROBE_TIMEOUT_S = 5


def connect(timeout_s: int = _TIMEOUT_S) -> Any:
    """Return a client of the engine that DOCKER_HOST names, or of the usual one.

    Raises:
        EnvironmentProblem: no engine answers, or it cannot run the hosts of a cluster.
    """
    with problems(EnvironmentProblem, f"No container engine can be reached. {ENGINE_ADVICE}"):
        client = docker.from_env(timeout=timeout_s)
        about = client.info()
    problem = problem_of(about)
    if problem is not None:
        client.close()
        raise EnvironmentProblem(problem)
    return client


def problem_of(about: dict[str, Any]) -> str | None:
    """Say why an engine, described by its own words about itself, cannot run hosts; None if it can.

    Hosts see files and processes of this machine, so the engine must run on it, not elsewhere or in another kernel.
    """
    if about.get("OSType") != "linux":
        return f"The container engine runs {about.get('OSType')} containers; hosts need Linux."
    if (about.get("KernelVersion"), about.get("Name")) != (platform.release(), platform.node()):
        return (
            f"The container engine runs on {about.get('Name')} (kernel {about.get('KernelVersion')}), and not on this "
            f"machine ({platform.node()}, kernel {platform.release()}). Hosts use this machine's files: "
            "unset DOCKER_HOST, or run the harness where the engine is."
        )
    missing = [word for word in ("MemoryLimit",) if not about.get(word)]
    if missing:
        return (
            f"The kernel gives the container engine no {', '.join(missing)}: hosts could not be kept small."
        )
    return None


def version() -> str:
    """Return name and version of the engine, for instance ``20.10.24, overlay2, cgroups v1``; raises as `connect`."""
    client = connect(_PROBE_TIMEOUT_S)
    with contextlib.closing(client), problems(EnvironmentProblem, "The container engine went away."):
        about = client.info()
    return f"{about['ServerVersion']}, {about['Driver']}, cgroups v{about.get('CgroupVersion', '1')}"


@contextlib.contextmanager
def problems(
    kind: type[HarnessError] = OperatingError, what: str = "The container engine failed."
) -> Iterator[None]:
    """Turn what the engine's client raises into an error of the harness."""
    try:
        yield
    except (DockerException, requests.RequestException) as error:
        raise kind(f"{what} ({_cause(error)})") from error


def _cause(error: BaseException) -> str:
    """Return what the operating system said, if it did, in place of all that the clients wrap it in."""
    inner: BaseException | None = error
    while inner is not None:
        if isinstance(inner, OSError) and inner.strerror:
            return inner.strerror
        inner = inner.__cause__ or inner.__context__
    return str(error)
