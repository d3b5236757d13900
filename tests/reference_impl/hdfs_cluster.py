"""A real HDFS for tests: a name node and a data node, as processes of this machine that can be killed.

Their classes are in the jar of Hadoop's mini cluster, which ``BARRIER_TCK_HADOOP_JAR`` names; what it needs is among
PySpark's jars. ``.ci/run`` gets it where there is Maven.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import psutil
import pyspark
import pytest
import requests

from barrier_tck.faults.toxiproxy import leash
from barrier_tck.harness.cluster.installation import import_path
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.webhdfs import Patience, WebHdfs
from tests.waiting import eventually

JAR = "BARRIER_TCK_HADOOP_JAR"
NAME_NODE, DATA_NODE = "namenode.NameNode", "datanode.DataNode"
_HOST = "127.0.0.1"
_START_S = 180.0
"""A JVM starts within seconds; not so on a machine with much else to do."""


class Hdfs:
    """One name node and one data node. ``start`` them; ``close`` in every case. Killed nodes keep what they have."""

    def __init__(self, directory: Path) -> None:
        """Take an empty directory for all that they keep; skips the test if the classes are not on this machine."""
        jar = os.environ.get(JAR, "")
        if not Path(jar).is_file():
            pytest.skip(f"{JAR} names no jar of Hadoop's mini cluster; .ci/run gets it where there is Maven")
        directory.mkdir()
        self._directory = directory
        jars = Path(pyspark.__file__).parent / "jars" / "*"
        self._command = [
            str(find_java().executable),
            "-Xmx256m",
            "-XX:+UseSerialGC",
            "-XX:TieredStopAtLevel=1",
        ]
        self._command += [f"-Djava.io.tmpdir={directory}", f"-Dhadoop.log.dir={directory}"]
        self._command += ["-cp", os.pathsep.join([str(directory), jar, str(jars)])]
        rpc, self._web, self._data_web = (_free_port() for _ in range(3))
        (directory / "core-site.xml").write_text(_site({"fs.defaultFS": f"hdfs://{_HOST}:{rpc}"}))
        (directory / "hdfs-site.xml").write_text(_site(_settings(directory, self._web, self._data_web)))
        (directory / "log4j2.properties").write_text(_LOGGING)
        self._nodes: dict[str, subprocess.Popen[bytes]] = {}

    @property
    def url(self) -> str:
        """Return where checkpoint storage can be."""
        return f"webhdfs://{_HOST}:{self._web}"

    def start(self) -> None:
        """Start what does not run, and return when files can be written."""
        if not (self._directory / "names" / "current").exists():
            command = [
                *self._command,
                f"org.apache.hadoop.hdfs.server.{NAME_NODE}",
                "-format",
                "-nonInteractive",
            ]
            subprocess.run(command, check=True, capture_output=True, timeout=_START_S)
        for node in (NAME_NODE, DATA_NODE):
            self.start_node(node)
        eventually("HDFS takes files", self._is_ready, _START_S)

    def start_node(self, node: str) -> None:
        """Start a node, if it does not run."""
        if node in self._nodes:
            return
        with open(self._directory / f"{node}.log", "ab") as log:
            self._nodes[node] = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    leash.__name__,
                    *self._command,
                    f"org.apache.hadoop.hdfs.server.{node}",
                ],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": import_path()},
                start_new_session=True,
            )

    def kill(self, node: str) -> None:
        """Kill a node (SIGKILL) and return when it is dead."""
        held = self._nodes.pop(node)
        (process,) = eventually(f"{node} runs", lambda: psutil.Process(held.pid).children())
        process.kill()
        self._end(held)

    def close(self) -> None:
        """End both nodes."""
        for held in self._nodes.values():
            self._end(held)
        self._nodes.clear()

    def syncs(self) -> int:
        """Return how often the data node has synced a file since it started."""
        bean = _bean(self._data_web, f"Hadoop:service=DataNode,name=DataNodeActivity-{_HOST}-*")
        return int(bean["FsyncCount"])

    def _end(self, held: subprocess.Popen[bytes]) -> None:
        assert held.stdin is not None
        held.stdin.close()
        held.wait()

    def _is_ready(self) -> bool:
        for node, held in self._nodes.items():
            said = (self._directory / f"{node}.log").read_text()[-2000:]
            assert held.poll() is None, f"{node} has ended: {said}"
        # A name node takes a data node that was killed for alive for minutes. So only a file tells.
        hdfs = WebHdfs([f"http://{_HOST}:{self._web}"], patience=Patience(repeat_s=0))
        try:
            hdfs.create("/probe", b"there")
            return hdfs.read("/probe") == b"there"
        except StorageError:
            return False


def _bean(port: int, name: str) -> Mapping[str, Any]:
    answer = requests.get(f"http://{_HOST}:{port}/jmx", params={"qry": name}, timeout=_START_S)
    (bean,) = answer.json()["beans"]
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
