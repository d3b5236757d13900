"""A real HDFS: a name node and a data node, as processes of this machine that can be killed and started again.

Their classes are in the jar of Hadoop's mini cluster, which ``BARRIER_TCK_HADOOP_JAR`` names; what it needs is among
PySpark's jars. What they have synced outlives them.
"""

from __future__ import annotations

import contextlib
import os
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.error import URLError
from urllib.request import ProxyHandler, Request, build_opener
from xml.sax.saxutils import escape

import msgspec
import psutil

from barrier_tck.faults.toxiproxy import parent_death_watch
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.cluster.installation import import_path, spark_home
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.support.errors import EnvironmentProblem

JAR = "BARRIER_TCK_HADOOP_JAR"
"""Name of the variable of the environment that says where the jar of Hadoop's mini cluster is."""
NAME_NODE, DATA_NODE = "namenode.NameNode", "datanode.DataNode"
_ARTIFACT = "org.apache.hadoop:hadoop-client-minicluster:3.5.0"
_HOST = "127.0.0.1"
_START_S = 180.0
"""A JVM starts within seconds; not so on a machine with much else to do."""
_POLL_S = 0.1
_END_S = 10.0


def hadoop_jar() -> Path:
    """Return the jar with the classes of HDFS; raises EnvironmentProblem if there is none on this machine."""
    jar = Path(os.environ.get(JAR, ""))
    if jar.is_file():
        return jar
    raise EnvironmentProblem(
        f"checkpoints in HDFS need a name node and a data node: set {JAR} to the jar of {_ARTIFACT} (mvn "
        f"org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy -Dartifact={_ARTIFACT} -DoutputDirectory=.)"
    )


class HdfsNodes:
    """One name node and one data node, always at the same addresses. ``start`` them; ``close`` in every case."""

    outlives_a_kill = True

    def __init__(self, directory: Path) -> None:
        """Take a directory for all that they keep; nothing is started.

        Raises EnvironmentProblem if this machine does not have their classes.
        """
        jar = hadoop_jar()
        directory.mkdir(parents=True, exist_ok=True)
        self._directory = directory
        jars = spark_home() / "jars" / "*"
        self._command = [
            *(str(find_java().executable), "-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"),
            *(f"-Djava.io.tmpdir={directory}", f"-Dhadoop.log.dir={directory}"),
            *("-cp", os.pathsep.join([str(directory), str(jar), str(jars)])),
        ]
        rpc, web, data_web = (_free_port() for _ in range(3))
        self.name_node = (_HOST, web)
        """The address of its web interface."""
        self.data_node = (_HOST, data_web)
        (directory / "core-site.xml").write_text(_site({"fs.defaultFS": f"hdfs://{_HOST}:{rpc}"}))
        (directory / "hdfs-site.xml").write_text(_site(_settings(directory, web, data_web)))
        (directory / "log4j2.properties").write_text(_LOGGING)
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """Return where checkpoint storage can be."""
        return f"webhdfs://{_HOST}:{self.name_node[1]}"

    @property
    def name(self) -> str:
        return f"HDFS (name node at port {self.name_node[1]}, data node at port {self.data_node[1]})"

    @property
    def running(self) -> bool:
        """Whether both nodes are alive."""
        return len(self._nodes) == 2 and all(held.poll() is None for held in self._nodes.values())

    def start(self) -> None:
        """Start what does not run, and return when files can be written; raises EnvironmentProblem if none can."""
        if not (self._directory / "names" / "current").exists():
            self._format()
        for node in (NAME_NODE, DATA_NODE):
            self.start_node(node)
        bound_s = time.monotonic() + _START_S
        while not self._is_ready():
            if time.monotonic() > bound_s:
                raise EnvironmentProblem(f"HDFS takes no file {_START_S:g} s after its nodes were started")
            time.sleep(_POLL_S)

    def start_node(self, node: str) -> None:
        """Start a node, if it does not run."""
        held = self._nodes.get(node)
        if held is not None and held.poll() is None:
            return
        with open(self._directory / f"{node}.log", "ab") as log:
            self._nodes[node] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    parent_death_watch.__name__,
                    *self._command,
                    f"org.apache.hadoop.hdfs.server.{node}",
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": import_path()},
                start_new_session=True,  # a terminal's Ctrl-C must reach the harness alone
            )

    def strike(self, moment: UploadMoment) -> None:
        """Kill the node that serves this moment of an upload: contents are the data node's business, and names the
        other's.
        """
        self.kill(DATA_NODE if moment is UploadMoment.PART else NAME_NODE)

    def kill(self, node: str) -> None:
        """Kill a node (SIGKILL) and return when it is dead. Harmless if it is."""
        held = self._nodes.pop(node, None)
        if held is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            for process in psutil.Process(held.pid).children():
                process.kill()
        _end(held)

    def close(self) -> None:
        """End both nodes. Closing twice is harmless."""
        for held in self._nodes.values():
            _end(held)
        self._nodes.clear()

    def syncs(self) -> int:
        """Return how often the data node has synced a file since it started."""
        port = self.data_node[1]
        bean = _bean(port, f"Hadoop:service=DataNode,name=DataNodeActivity-{_HOST}-*")
        return int(bean["FsyncCount"])

    def _format(self) -> None:
        command = [*self._command, f"org.apache.hadoop.hdfs.server.{NAME_NODE}", "-format", "-nonInteractive"]
        done = subprocess.run(command, capture_output=True, timeout=_START_S, check=False)
        if done.returncode:
            log_tail = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
            raise EnvironmentProblem(f"the name node of HDFS cannot be formatted: {log_tail}")

    def _is_ready(self) -> bool:
        for node, held in self._nodes.items():
            if held.poll() is not None:
                log_tail = (self._directory / f"{node}.log").read_text(errors="replace")[-2_000:]
                raise EnvironmentProblem(f"{node} of HDFS has ended: {log_tail}")
        # A name node takes a data node that was killed for alive for minutes. So only a file shows it.
        url = f"http://{_HOST}:{self.name_node[1]}/webhdfs/v1/probe?user.name=probe&op="
        try:
            sent = _asked("PUT", f"{url}CREATE&overwrite=true&noredirect=true")
            _asked("PUT", msgspec.json.decode(sent)["Location"], b"there")
            return _asked("GET", f"{url}OPEN") == b"there"
        except (URLError, OSError):
            return False


_opener = build_opener(ProxyHandler({}))
"""The proxies of the environment are for what is not on this machine."""


def _asked(method: str, url: str, content: bytes | None = None) -> bytes:
    request = Request(url, content, {"Content-Type": "application/octet-stream"}, method=method)
    with _opener.open(request, timeout=_START_S) as answer:
        got: bytes = answer.read()
    return got


def _end(held: subprocess.Popen[bytes]) -> None:
    assert held.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        held.stdin.close()
    try:
        held.wait(_END_S)
    except subprocess.TimeoutExpired:
        held.kill()
        held.wait()


def _bean(port: int, name: str) -> Mapping[str, Any]:
    (bean,) = msgspec.json.decode(_asked("GET", f"http://{_HOST}:{port}/jmx?qry={name}"))["beans"]
    found: Mapping[str, Any] = bean
    return found


def _settings(directory: Path, web: int, data_web: int) -> dict[str, str]:
    return {
        "dfs.namenode.name.dir": str(directory / "names"),
        "dfs.datanode.data.dir": str(directory / "blocks"),
        "dfs.namenode.http-address": f"{_HOST}:{web}",
        "dfs.datanode.address": f"{_HOST}:0",
        "dfs.datanode.http.address": f"{_HOST}:{data_web}",
        "dfs.datanode.ipc.address": f"{_HOST}:0",
        "dfs.datanode.hostname": _HOST,
        "dfs.namenode.datanode.registration.ip-hostname-check": "false",
        "dfs.replication": "1",
        "dfs.permissions.enabled": "false",
        # Seconds. So a data node that was started again is known soon.
        "dfs.heartbeat.interval": "1",
        "dfs.namenode.safemode.extension": "0",
    }


def _site(settings: Mapping[str, str]) -> str:
    properties = (
        f"<property><name>{escape(name)}</name><value>{escape(value)}</value></property>"
        for name, value in settings.items()
    )
    return f"<configuration>{''.join(properties)}</configuration>"


def _free_port() -> int:
    with socket.create_server((_HOST, 0)) as free:
        port: int = free.getsockname()[1]
        return port


_LOGGING = """\
rootLogger.level = warn
rootLogger.appenderRef.console.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %d %p %c: %m%n
"""
