"""A real Spark standalone cluster on this machine, made to be broken.

One master on 127.0.0.1 and N workers on 127.0.0.2, .3, ... run as processes of their own, each worker with
its own directory, cores and memory; every application gets one executor a worker. The harness may kill any
of them. All of them are descendants of one guard process (`barrier_tck.harness.cluster.guard`), which ends the whole
tree when the cluster stops, and also when the harness dies without stopping it.

    with LocalCluster(LocalClusterConfig(workers=2)) as cluster:
        with spark_session(cluster, "example") as spark:
            ...
            os.kill(cluster.executors()[0].pid, signal.SIGKILL)

This module breaks nothing itself; the injectors in `faults` do that.

Measured with PySpark 4.3.0 and Java 17 on two cores shared with other work; one of several one-core executors was
killed (SIGKILL) in the middle of a barrier stage:

* the driver's action failed after 0.05 to 0.23 s (14 kills, median 0.07);
* a replacement process ran after 0.07 to 0.15 s and was registered with the driver after 2.1 to 2.3 s
  (6 kills);
* the Python daemon and workers of the killed executor were gone after 0.03 to 0.25 s (6 kills): the daemon
  sees the end of its input and ends its group, none lingered;
* the stage's Python workers on the *surviving* executors, asleep in user code, held their slots for 2.1 s
  (2 kills): Spark checks every two seconds whether a task was cancelled. A task whose slot is needed sooner
  has to end by itself;
* with no slot to spare, the next barrier stage, which passed one `barrier()`, gave its result 4.1 to 7.4 s after
  the failure (8 kills, median 4.5).
"""

from __future__ import annotations

import atexit
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import psutil

from barrier_tck.harness.cluster.class_archive import SharedClasses, existing_classes
from barrier_tck.harness.cluster.class_sharing import shared_classes
from barrier_tck.harness.cluster.cluster_config import LocalClusterConfig
from barrier_tck.harness.cluster.guard_link import GuardLink
from barrier_tck.harness.cluster.installation import spark_home
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.cluster.process_identity import (
    MARKER,
    ExecutorProcess,
    ProcessIdentity,
    executors_of,
    is_python_worker,
    kill_until_gone,
    marked_processes,
    owner_in_state_file,
    this_process,
)
from barrier_tck.harness.cluster.settings import (
    CLUSTER_LOG4J2,
    MASTER_HOST,
    application_conf,
    bind_problem,
    daemon_environment,
    write_properties,
)
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import (
    AddressUnavailable,
    ClusterDidNotStart,
    EnvironmentProblem,
    LeftBehind,
    OperatingError,
    PortInUse,
    UsageError,
)

__all__ = ["ExecutorProcess", "LocalCluster", "LocalClusterConfig", "SessionPlace"]

_DIRECTORY_PREFIX = "barrier-tck-cluster-"
_STATE_FILE = "cluster.json"
_POLL_S = 0.05
_STOP_GRACE_S = 3.0
_STOP_TIMEOUT_S = 20.0
_LOG_TAIL_LINES = 20


@dataclass(frozen=True, slots=True)
class SessionPlace:
    """All that a process needs to open a session on a cluster that another process started."""

    directory: str
    """The cluster's directory."""
    conf: Mapping[str, str]
    """Holds the cluster's secret."""
    quick_start: bool
    log_level: str


class LocalCluster:
    """A Spark standalone cluster of real processes on loopback addresses; a context manager.

    Nothing runs until `start` (or `with`). A cluster is started once; make another for another run.
    """

    def __init__(self, config: LocalClusterConfig | None = None) -> None:
        self.config = config or LocalClusterConfig()
        self._id = secrets.token_hex(8)
        self._secret = secrets.token_hex(32)
        self._directory: Path | None = None
        self._link: GuardLink | None = None
        self._master_url: str | None = None
        self._processes: dict[str, ProcessIdentity] = {}
        self._started = False
        self.classes: SharedClasses | None = None
        """The archive of classes that its JVMs start with, if there is one."""

    def start(self) -> LocalCluster:
        """Start master and workers and wait until every worker has registered.

        Raises:
            JavaMissing, JavaTooOld: no Java that Spark can use.
            PortInUse, AddressUnavailable: an address of the cluster cannot be bound.
            EnvironmentProblem: the directory cannot be written.
            ClusterDidNotStart: a process ended or stayed silent for `startup_timeout_s`.
        """
        if self._started:
            raise UsageError("This cluster was started before; make a new LocalCluster for each run.")
        java = find_java()
        self._check_addresses()
        self.reap_orphans()
        self._started = True
        self.classes = shared_classes(java) if self.config.quick_start else existing_classes(java)
        self._directory = self._make_directory()
        atexit.register(self.stop)
        try:
            self._write_configuration(self._directory)
            self._link = GuardLink(self._directory, temporary=self.config.directory is None)
            self._write_state()
            deadline = time.monotonic() + self.config.startup_timeout_s
            environment = daemon_environment(java.executable, self._directory, self.classes) | {
                MARKER: self._marker()
            }
            self._start_master(environment)
            self._master_url = self._await_line(
                "master", "Starting Spark master at ", deadline, "did not come up"
            ).split()[0]
            for worker in range(self.config.workers):
                self._start_worker(worker, self._master_url, environment)
            for worker in range(self.config.workers):
                self._await_line(
                    f"worker-{worker}", "Successfully registered with master", deadline, "did not register"
                )
            self._write_state()
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """End every process of the cluster, then remove its temporary directory. Safe to call twice.

        A directory given in the configuration stays, without the workers' scratch files.

        Raises:
            LeftBehind: a process or the temporary directory is still there.
        """
        directory, link = self._directory, self._link
        if directory is None:
            return
        self._directory, self._link = None, None
        atexit.unregister(self.stop)
        if link is not None:
            try:
                link.call({"do": "stop", "grace_s": _STOP_GRACE_S}, _STOP_GRACE_S + _STOP_TIMEOUT_S)
            except OperatingError:
                # The guard was killed or hangs. What it held is found by its marker, just below.
                kill_until_gone(self._members)
            link.close()
        kill_until_gone(self._members)
        left = [f"process {process.pid} ({process.name()})" for process in self._members()]
        if self.config.directory is None:
            shutil.rmtree(directory, ignore_errors=True)
            if directory.exists():
                left.append(f"directory {directory}")
        else:
            (directory / _STATE_FILE).unlink(missing_ok=True)
            (directory / "conf" / "spark-daemon.conf").unlink(missing_ok=True)
            for scratch in (*directory.glob("*/local"), directory / "tmp"):
                shutil.rmtree(scratch, ignore_errors=True)
        if left:
            raise LeftBehind(f"Stopping the cluster left {', '.join(left)}; please remove by hand.")

    def __enter__(self) -> LocalCluster:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.stop()

    @staticmethod
    def reap_orphans() -> tuple[int, ...]:
        """Kill processes and remove directories of clusters whose harness is dead; return the pids killed.

        A guard does this by itself within a second; this is for the case that the guard was killed too.
        Clusters whose owner still runs, this process or another, are left alone.
        """
        killed = kill_until_gone(lambda: (p for p, owner in marked_processes() if not owner.running()))
        for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
            owner = owner_in_state_file(directory / _STATE_FILE)
            if owner is not None and not owner.running():
                shutil.rmtree(directory, ignore_errors=True)
        return killed

    @property
    def master_url(self) -> str:
        """`spark://127.0.0.1:<port>`.

        Raises:
            UsageError: the cluster is not running.
        """
        self._running_directory()
        if self._master_url is None:
            raise UsageError("The cluster's master is not up yet.")
        return self._master_url

    @property
    def directory(self) -> Path:
        """The cluster's own directory: logs, configuration, the workers' local files."""
        return self._running_directory()

    @property
    def authentication_secret(self) -> str:
        """The random secret that this cluster's processes and its drivers share."""
        return self._secret

    def spark_conf(self) -> dict[str, str]:
        """The settings that a driver needs to use this cluster.

        They do not say how Spark recovers from a failure: whoever runs on the cluster decides that. They hold
        the cluster's secret: pass them in a file of mode 0600 or inside a process, never on a command
        line. `barrier_tck.harness.cluster.spark_session.spark_session` does that.
        """
        return application_conf(self.config, self.directory, self.master_url, self._secret, self.classes)

    def session_place(self) -> SessionPlace:
        """What another process needs to open a session here. It holds the secret, as `spark_conf` does."""
        conf = self.spark_conf()
        return SessionPlace(str(self.directory), conf, self.config.quick_start, self.config.log_level)

    def driver_environment(self) -> dict[str, str]:
        """The variables with which a driver's process is found again as a part of this cluster, and leaves nothing
        outside its directory.
        """
        return {MARKER: self._marker(), "TMPDIR": str(self.directory / "tmp")}

    def executors(self) -> tuple[ExecutorProcess, ...]:
        """The executor JVMs that run now, in order of worker and pid.

        A running process may not be registered with its driver yet: that takes a second or two.
        """
        found: list[ExecutorProcess] = []
        for worker in range(self.config.workers):
            process = self._processes.get(f"worker-{worker}")
            if process is not None:
                found += executors_of(process.pid, worker, self.config.worker_host(worker))
        return tuple(found)

    def wait_for_executors(self, count: int, timeout_s: float = 30.0) -> tuple[ExecutorProcess, ...]:
        """Wait until at least `count` executor processes run, and return them.

        Raises:
            OperatingError: there are fewer after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while len(executors := self.executors()) < count:
            if time.monotonic() > deadline:
                raise OperatingError(
                    f"{len(executors)} of {count} executors run after {timeout_s:g} s; the logs of the workers may "
                    "tell why, or this machine is too busy."
                )
            time.sleep(_POLL_S)
        return executors

    def master_pid(self) -> int:
        """The pid of the master's JVM."""
        return self._processes["master"].pid

    def worker_pid(self, worker: int) -> int:
        """The pid of the worker daemon's JVM (not of its executors)."""
        return self._processes[f"worker-{worker}"].pid

    def worker_of(self, pid: int) -> int | None:
        """The worker that process `pid` belongs to (its JVM, an executor, a Python worker), or None."""
        workers = {self.worker_pid(worker): worker for worker in range(self.config.workers)}
        try:
            line = [psutil.Process(pid), *psutil.Process(pid).parents()]
        except psutil.NoSuchProcess:
            return None
        return next((workers[process.pid] for process in line if process.pid in workers), None)

    def local_directory(self, host: str) -> Path | None:
        """Where the worker at an address and its executors keep local files; None if no worker has the address."""
        for worker in range(self.config.workers):
            if self.config.worker_host(worker) == host:
                return self.directory / f"worker-{worker}" / "local"
        return None

    def python_processes(self, executor_pid: int) -> tuple[int, ...]:
        """The pids of the Python daemon and workers of a running executor, daemon first."""
        try:
            family = psutil.Process(executor_pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return ()
        return tuple(process.pid for process in family if is_python_worker(process))

    def stray_python_processes(self) -> tuple[int, ...]:
        """The pids of Python daemons and workers that still run although their executor has died."""
        link = self._link
        if link is None:
            return ()
        daemons = {process.pid for process in self._processes.values()}
        adopted = [child for child in psutil.Process(link.process.pid).children() if child.pid not in daemons]
        return tuple(child.pid for child in adopted if is_python_worker(child))

    def log_files(self) -> tuple[Path, ...]:
        """The logs of master, workers and executors so far, for a run directory to copy."""
        directory = self.directory
        return tuple(sorted([*directory.glob("*.log"), *directory.glob("worker-*/work/*/*/std*")]))

    def _marker(self) -> str:
        owner = this_process()
        return f"{self._id}:{owner.pid}:{owner.created!r}"

    def _running_directory(self) -> Path:
        if self._directory is None:
            raise UsageError("The cluster is not running; use `with LocalCluster(...) as cluster:`.")
        return self._directory

    def _members(self) -> Iterator[psutil.Process]:
        return (process for process, _ in marked_processes(self._id))

    def _check_addresses(self) -> None:
        for worker in range(self.config.workers):
            host = self.config.worker_host(worker)
            problem = bind_problem(host, 0)
            if problem is not None:
                raise AddressUnavailable(
                    f"Worker {worker} needs the loopback address {host}, which cannot be bound: {problem}. "
                    "Linux has all of 127.0.0.0/8; elsewhere add it as an alias of the loopback interface."
                )
        port = self.config.master_port
        if port is not None:
            problem = bind_problem(MASTER_HOST, port)
            if problem is not None:
                raise PortInUse(
                    f"Port {port} on {MASTER_HOST} cannot be used for the Spark master: {problem}. "
                    "Stop the process that has it, choose another master_port, or leave it out."
                )

    def _make_directory(self) -> Path:
        wanted = self.config.directory
        try:
            if wanted is None:
                return Path(tempfile.mkdtemp(prefix=_DIRECTORY_PREFIX))
            wanted.mkdir(parents=True, exist_ok=True)
            state = wanted / _STATE_FILE
            owner = owner_in_state_file(state)
            if owner is not None and owner.running():
                raise EnvironmentProblem(
                    f"{wanted} belongs to a running cluster of process {owner.pid}; give another directory."
                )
            state.touch()
        except OSError as error:
            raise EnvironmentProblem(
                f"The cluster's directory cannot be written: {error}. Choose another one, or set TMPDIR."
            ) from error
        return wanted.absolute()

    def _write_configuration(self, directory: Path) -> None:
        for name in ("conf", "driver/local", "tmp"):
            (directory / name).mkdir(parents=True, exist_ok=True)
        (directory / "conf" / "log4j2.properties").write_text(
            CLUSTER_LOG4J2.format(level=self.config.log_level)
        )
        write_properties(
            directory / "conf" / "spark-daemon.conf",
            {
                "spark.authenticate": "true",
                "spark.authenticate.secret": self._secret,
                # The application goes on, however often executors are killed.
                "spark.deploy.maxExecutorRetries": "-1",
                "spark.master.rest.enabled": "false",
                # A port that is in use is an error, not a reason to try the next one.
                "spark.port.maxRetries": "0",
                "spark.worker.cleanup.enabled": "false",
            },
        )

    def _start_master(self, environment: Mapping[str, str]) -> None:
        port = self.config.master_port or 0
        arguments = ["--host", MASTER_HOST, "--port", str(port), "--webui-port", "0"]
        self._spawn(
            "master",
            "org.apache.spark.deploy.master.Master",
            arguments,
            {**environment, "SPARK_LOCAL_IP": MASTER_HOST, "SPARK_PUBLIC_DNS": MASTER_HOST},
        )

    def _start_worker(self, worker: int, master_url: str, environment: Mapping[str, str]) -> None:
        host, home = self.config.worker_host(worker), self.directory / f"worker-{worker}"
        (home / "local").mkdir(parents=True, exist_ok=True)
        (home / "work").mkdir(exist_ok=True)
        arguments = ["--host", host, "--port", "0", "--webui-port", "0"]
        arguments += ["--cores", str(self.config.cores_per_worker)]
        arguments += ["--memory", f"{self.config.memory_per_worker_mb}m"]
        arguments += ["--work-dir", str(home / "work"), master_url]
        # Bound to its own address, web page included; executors inherit these.
        own = {"SPARK_LOCAL_IP": host, "SPARK_PUBLIC_DNS": host, "SPARK_LOCAL_DIRS": str(home / "local")}
        self._spawn(
            f"worker-{worker}", "org.apache.spark.deploy.worker.Worker", arguments, {**environment, **own}
        )

    def _spawn(self, name: str, main_class: str, arguments: list[str], environment: dict[str, str]) -> None:
        properties = ["--properties-file", str(self.directory / "conf" / "spark-daemon.conf")]
        answer = self._guard().call(
            {
                "do": "start",
                "name": name,
                "argv": [str(spark_home() / "bin" / "spark-class"), main_class, *properties, *arguments],
                "env": environment,
                "cwd": str(self.directory),
                "log": str(self.directory / f"{name}.log"),
            },
            timeout_s=10.0,
        )
        self._processes[name] = ProcessIdentity(int(answer["pid"]), float(answer["created"]))

    def _guard(self) -> GuardLink:
        if self._link is None:
            raise UsageError("The cluster is not running; use `with LocalCluster(...) as cluster:`.")
        return self._link

    def _await_line(self, name: str, text: str, deadline: float, failure: str) -> str:
        """Wait until `deadline` for `text` in the log of process `name`; return what follows it on its line."""
        log = self.directory / f"{name}.log"
        while True:
            content = log.read_text(errors="replace")
            # Only up to the last end of line: the last line may be half written.
            after = content[: content.rfind("\n") + 1].partition(text)[2]
            if after:
                return after.partition("\n")[0]
            exited = self._guard().call({"do": "status"}, timeout_s=10.0)["exited"]
            if name in exited:
                problem = f"The Spark {name} ended with exit code {exited[name]} during start-up."
            elif time.monotonic() > deadline:
                problem = (
                    f"The Spark {name} {failure} within {self.config.startup_timeout_s:g} s; "
                    "this machine may be too busy."
                )
            else:
                time.sleep(_POLL_S)
                continue
            tail = "\n".join(content.splitlines()[-_LOG_TAIL_LINES:]) or "(its log is empty)"
            kind = PortInUse if "BindException" in tail else ClusterDidNotStart
            raise kind(f"{problem} The end of its log:\n{tail}")

    def _write_state(self) -> None:
        owner = this_process()
        state = {
            "cluster": self._id,
            "owner": {"pid": owner.pid, "created": owner.created},
            "processes": {
                name: {"pid": process.pid, "created": process.created}
                for name, process in (("guard", self._guard().process), *self._processes.items())
            },
        }
        write_atomically(self.directory / _STATE_FILE, json.dumps(state, indent=1).encode())
