"""What every cluster of the harness is: a Spark standalone cluster, made to be broken.

One master and N workers run as processes of their own, each worker on a host with its own address, directory, cores
and memory; every application gets one executor a worker. The harness may kill any of them. What a *host* is, a kind of
cluster decides: ``local_cluster`` uses loopback addresses of this machine, ``containers`` a container for each.

The master is a descendant of one guard process (`barrier_tck.harness.cluster.guard`), which ends what it started when
the cluster stops, and also when the harness dies without stopping it. Every process of a cluster, wherever it runs, has
a pid of this machine, so that faults can hit it and its end can be seen.

Nothing here breaks anything; the injectors in `faults` do that.
"""

from __future__ import annotations

import abc
import atexit
import json
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

import psutil

from barrier_tck.harness.cluster.class_archive import SharedClasses, existing_classes
from barrier_tck.harness.cluster.class_sharing import shared_classes
from barrier_tck.harness.cluster.cluster_config import ClusterConfig
from barrier_tck.harness.cluster.host import Host
from barrier_tck.harness.cluster.installation import spark_home
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.cluster.parent_death_watch import ParentDeathWatch
from barrier_tck.harness.cluster.process_identity import (
    MARKER,
    ExecutorProcess,
    executors_of,
    is_python_worker,
    kill_until_gone,
    marked_processes,
    owner_in_state_file,
)
from barrier_tck.harness.cluster.session_config import SessionConfig
from barrier_tck.harness.cluster.settings import (
    CLUSTER_LOG4J2,
    application_conf,
    daemon_environment,
    write_properties,
)
from barrier_tck.harness.support.atomic_files import write_atomically
from barrier_tck.harness.support.errors import (
    ClusterDidNotStart,
    EnvironmentProblem,
    LeftBehind,
    OperatingError,
    PortInUse,
    UsageError,
)
from barrier_tck.harness.support.owners import ProcessIdentity, owner_in_short, this_process

_DIRECTORY_PREFIX = "barrier-tck-cluster-"
_STATE_FILE = "cluster.json"
_POLL_S = 0.05
_STOP_GRACE_S = 3.0
_STOP_TIMEOUT_S = 20.0
_LOG_TAIL_LINES = 20


class Cluster(abc.ABC):
    """A Spark standalone cluster of real processes; a context manager.

    Nothing runs until `start` (or `with`). A cluster is started once; make another for another run.
    """

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self._id = secrets.token_hex(8)
        self._secret = secrets.token_hex(32)
        self._directory: Path | None = None
        self._link: ParentDeathWatch | None = None
        self._master_url: str | None = None
        self._processes: dict[str, ProcessIdentity] = {}
        self._started = False
        self.classes: SharedClasses | None = None
        """The archive of classes that its JVMs start with, if there is one."""

    def start(self) -> Self:
        """Start master and workers and wait until every worker has registered.

        Raises:
            JavaMissing, JavaTooOld: no Java that Spark can use.
            PortInUse, AddressUnavailable: an address of the cluster cannot be bound.
            EnvironmentProblem: the directory cannot be written, or there can be no such hosts on this machine.
            ClusterDidNotStart: a process ended or stayed silent for `startup_timeout_s`.
        """
        if self._started:
            raise UsageError("This cluster was started before; make a new one for each run.")
        java = find_java()
        self._check_machine()
        self.reap_orphans()
        self._started = True
        self.classes = shared_classes(java) if self.config.quick_start else existing_classes(java)
        self._directory = self._make_directory()
        atexit.register(self.stop)
        try:
            self._write_configuration(self._directory)
            self._link = ParentDeathWatch(self._directory, temporary=self.config.directory is None)
            self._write_state()
            self._make_hosts()
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
        """End every process and host of the cluster, then remove its temporary directory. Safe to call twice.

        A directory given in the configuration stays, without the workers' scratch files.

        Raises:
            LeftBehind: a process, a host or the temporary directory is still there.
        """
        directory, link = self._directory, self._link
        if directory is None:
            return
        self._directory, self._link = None, None
        atexit.unregister(self.stop)
        left = self._remove_hosts()
        if link is not None:
            try:
                link.call({"do": "stop", "grace_s": _STOP_GRACE_S}, _STOP_GRACE_S + _STOP_TIMEOUT_S)
            except OperatingError:
                # The guard was killed or hangs. What it held is found by its marker, just below.
                kill_until_gone(self._members)
            link.close()
        kill_until_gone(self._members)
        left += [f"process {process.pid} ({process.name()})" for process in self._members()]
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

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    @classmethod
    def reap_orphans(cls) -> tuple[int, ...]:
        """Kill processes and remove directories of clusters whose harness is dead; return the pids killed.

        A guard does this by itself within a second; this is for the case that the guard was killed too.
        Clusters whose owner still runs, this process or another, are left alone.
        """
        killed = kill_until_gone(lambda: (p for p, owner in marked_processes() if not owner.running()))
        for directory in Path(tempfile.gettempdir()).glob(f"{_DIRECTORY_PREFIX}*"):
            # The name shows the owner, also when a driver that outlived its guard for a moment has written there since.
            owner = owner_in_short(directory.name.removeprefix(_DIRECTORY_PREFIX).rpartition("-")[0])
            if owner is not None and not owner.running():
                shutil.rmtree(directory, ignore_errors=True)
        return killed

    @property
    def master_url(self) -> str:
        """`spark://<address>:<port>`.

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

        They do not say how Spark recovers from a failure: the application on the cluster decides that. They hold
        the cluster's secret: pass them in a file of mode 0600 or inside a process, never on a command
        line. `barrier_tck.harness.cluster.spark_session.spark_session` does that.
        """
        return application_conf(
            self.config, self.directory, self.driver_host, self.master_url, self._secret, self.classes
        )

    def session_config(self) -> SessionConfig:
        """What another process needs to open a session here. It holds the secret, as `spark_conf` does."""
        conf = self.spark_conf()
        return SessionConfig(str(self.directory), conf, self.config.quick_start, self.config.log_level)

    def driver_environment(self) -> dict[str, str]:
        """The variables with which a driver's process is found again as a part of this cluster, and leaves nothing
        outside its directory.
        """
        return {MARKER: self._marker(), "TMPDIR": str(self.directory / "tmp")}

    def executors(self, application: str | None = None) -> tuple[ExecutorProcess, ...]:
        """The executor JVMs that run now, of one application or of all, in order of worker and pid.

        A running process may not be registered with its driver yet: that takes a second or two.
        """
        found: list[ExecutorProcess] = []
        for worker in range(self.config.workers):
            pid = self._pid_of_worker(worker)
            if pid is not None:
                found += executors_of(pid, worker, self.worker_host(worker))
        return tuple(entry for entry in found if application in (None, entry.application))

    def wait_for_executors(
        self, count: int, timeout_s: float = 30.0, application: str | None = None
    ) -> tuple[ExecutorProcess, ...]:
        """Wait until at least `count` executor processes run, of one application or of all, and return them.

        Raises:
            OperatingError: there are fewer after `timeout_s`.
        """
        deadline = time.monotonic() + timeout_s
        while len(executors := self.executors(application)) < count:
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
        """The pid of the worker daemon's JVM (not of its executors).

        Raises:
            OperatingError: it does not run.
        """
        pid = self._pid_of_worker(worker)
        if pid is None:
            raise OperatingError(f"Worker {worker} on {self.worker_host(worker)} does not run.")
        return pid

    def worker_of(self, pid: int) -> int | None:
        """The worker that process `pid` belongs to (its JVM, an executor, a Python worker), or None."""
        workers = {self._pid_of_worker(worker): worker for worker in range(self.config.workers)}
        try:
            line = [psutil.Process(pid), *psutil.Process(pid).parents()]
        except psutil.NoSuchProcess:
            return None
        return next((workers[process.pid] for process in line if process.pid in workers), None)

    def worker_at(self, host: str) -> int | None:
        """The pid of the worker daemon's JVM at an address; None if no worker has the address, or runs there."""
        workers = (worker for worker in range(self.config.workers) if self.worker_host(worker) == host)
        return next(map(self._pid_of_worker, workers), None)

    def local_directory(self, host: str) -> Path | None:
        """Where the worker at an address and its executors keep local files; None if no worker has the address."""
        for worker in range(self.config.workers):
            if self.worker_host(worker) == host:
                return self.directory / f"worker-{worker}" / "local"
        return None

    def worker_hosts(self) -> tuple[str, ...]:
        """The addresses of all workers, in their order."""
        return tuple(self.worker_host(worker) for worker in range(self.config.workers))

    def python_processes(self, executor_pid: int) -> tuple[int, ...]:
        """The pids of the Python daemon and workers of a running executor, daemon first."""
        try:
            family = psutil.Process(executor_pid).children(recursive=True)
        except psutil.NoSuchProcess:
            return ()
        return tuple(process.pid for process in family if is_python_worker(process))

    def processes(self) -> tuple[int, ...]:
        """The pids of all processes of the cluster now: master, workers, executors, Python workers, drivers."""
        return tuple(process.pid for process in self._members())

    def log_files(self) -> tuple[Path, ...]:
        """The logs of master, workers and executors so far, for a run directory to copy."""
        directory = self.directory
        return tuple(sorted([*directory.glob("*.log"), *directory.glob("worker-*/work/*/*/std*")]))

    # --- what a kind of cluster says for itself -------------------------------------------------------------

    @property
    @abc.abstractmethod
    def driver_host(self) -> str:
        """The address of this machine on which master and drivers listen, and which every worker can reach."""

    @abc.abstractmethod
    def worker_host(self, worker: int) -> str:
        """The address of worker `worker`, counted from 0."""

    def host(self, address: str) -> Host | None:
        """The host with an address, if it can be hit as a whole; None where workers are just processes."""
        return None

    @abc.abstractmethod
    def _check_machine(self) -> None:
        """Raise EnvironmentProblem if this machine cannot run such a cluster; called before anything is made."""

    @abc.abstractmethod
    def _make_hosts(self) -> None:
        """Make what has to be there before master and workers."""

    @abc.abstractmethod
    def _remove_hosts(self) -> list[str]:
        """Remove what `_make_hosts` and `_run_worker` made besides processes; return what is left, in words."""

    @abc.abstractmethod
    def _run_worker(self, worker: int, command: list[str], environment: Mapping[str, str]) -> None:
        """Start a worker's process with its output in `worker-N.log`."""

    @abc.abstractmethod
    def _pid_of_worker(self, worker: int) -> int | None:
        """The pid of a worker's process; None if it was not started, or is not there now."""

    # --------------------------------------------------------------------------------------------------------

    def _marker(self) -> str:
        owner = this_process()
        return f"{self._id}:{owner.pid}:{owner.created!r}"

    def _running_directory(self) -> Path:
        if self._directory is None:
            raise UsageError(
                f"The cluster is not running; use `with {type(self).__name__}(...) as cluster:`."
            )
        return self._directory

    def _members(self) -> Iterator[psutil.Process]:
        return (process for process, _ in marked_processes(self._id))

    def _make_directory(self) -> Path:
        wanted = self.config.directory
        try:
            if wanted is None:
                return Path(tempfile.mkdtemp(prefix=f"{_DIRECTORY_PREFIX}{this_process().short}-"))
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
        host = self.driver_host
        arguments = ["--host", host, "--port", str(port), "--webui-port", "0"]
        self._spawn(
            "master",
            self._command("org.apache.spark.deploy.master.Master", arguments),
            {**environment, "SPARK_LOCAL_IP": host, "SPARK_PUBLIC_DNS": host},
        )

    def _start_worker(self, worker: int, master_url: str, environment: Mapping[str, str]) -> None:
        host, home = self.worker_host(worker), self.directory / f"worker-{worker}"
        (home / "local").mkdir(parents=True, exist_ok=True)
        (home / "work").mkdir(exist_ok=True)
        arguments = ["--host", host, "--port", "0", "--webui-port", "0"]
        arguments += ["--cores", str(self.config.applications * self.config.cores_per_worker)]
        memory_mb = self.config.applications * self.config.memory_per_worker_mb
        arguments += ["--memory", f"{memory_mb}m"]
        arguments += ["--work-dir", str(home / "work"), master_url]
        # Bound to its own address, web page included; executors inherit these.
        own = {"SPARK_LOCAL_IP": host, "SPARK_PUBLIC_DNS": host, "SPARK_LOCAL_DIRS": str(home / "local")}
        command = self._command("org.apache.spark.deploy.worker.Worker", arguments)
        self._run_worker(worker, command, {**environment, **own})

    def _command(self, main_class: str, arguments: list[str]) -> list[str]:
        properties = ["--properties-file", str(self.directory / "conf" / "spark-daemon.conf")]
        return [str(spark_home() / "bin" / "spark-class"), main_class, *properties, *arguments]

    def _spawn(self, name: str, command: list[str], environment: Mapping[str, str]) -> None:
        """Let the guard start a process of this machine."""
        answer = self._guard().call(
            {
                "do": "start",
                "name": name,
                "argv": command,
                "env": dict(environment),
                "cwd": str(self.directory),
                "log": str(self.directory / f"{name}.log"),
            },
            timeout_s=10.0,
        )
        self._processes[name] = ProcessIdentity(int(answer["pid"]), float(answer["created"]))

    def _guard(self) -> ParentDeathWatch:
        if self._link is None:
            raise UsageError(
                f"The cluster is not running; use `with {type(self).__name__}(...) as cluster:`."
            )
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
            exit_code = self._exit_code(name)
            if exit_code is not None:
                problem = f"The Spark {name} ended with exit code {exit_code} during start-up."
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

    def _exit_code(self, name: str) -> int | None:
        """How a process that the guard started has ended; None if it runs."""
        exited: dict[str, int] = self._guard().call({"do": "status"}, timeout_s=10.0)["exited"]
        return exited.get(name)

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
