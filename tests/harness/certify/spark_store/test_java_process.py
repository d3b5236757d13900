"""The JVM of our own that drives Spark's classes; grain: one JVM, without a session."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
from pathlib import Path

import pytest
from py4j import java_gateway
from py4j.protocol import Py4JNetworkError
from pyspark.errors.exceptions.captured import install_exception_handler

from barrier_tck.harness.certify.spark_store.java_process import Died, JavaProcess, Raised, _Client


class Interrupted(java_gateway.GatewayConnection):  # type: ignore[misc]  # Py4J has no types
    """A connection on which Ctrl-C comes while an answer is waited for."""

    def __init__(self, end: socket.socket) -> None:
        self.socket = end
        self.is_connected = True

    def send_command(self, command: str) -> str:
        raise KeyboardInterrupt


def test_ctrl_c_amid_a_call_is_ctrl_c_and_no_error_of_py4j() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        client = _Client(gateway_parameters=java_gateway.GatewayParameters(port=server.getsockname()[1]))
        with socket.create_connection(server.getsockname()) as end:
            client.deque.append(Interrupted(end))
            with pytest.raises(KeyboardInterrupt):
                client.send_command("c\n")


@pytest.mark.parametrize(
    ("ends", "how", "from_outside"),
    [
        ("kill -TERM $$", "SIGTERM", True),
        ("exit 143", "exit code 143", True),
        ("exit 1", "exit code 1", False),
        ("kill -KILL $$", "SIGKILL", False),
    ],
)
def test_a_jvm_that_was_asked_to_end_says_so_by_its_signal_or_its_exit_code(
    ends: str, how: str, from_outside: bool
) -> None:
    process = JavaProcess.__new__(JavaProcess)
    process._process = subprocess.Popen(["sh", "-c", ends])
    process._call_s = 20.0
    process._process.wait()
    with pytest.raises(Died) as raised, process.calls():
        raise Py4JNetworkError("no answer")
    assert str(raised.value) == f"the JVM ended with {how}"
    assert raised.value.from_outside == from_outside


@pytest.mark.long
@pytest.mark.spark
def test_a_jvm_that_is_killed_is_seen_to_be_killed_and_leaves_nothing(tmp_path: Path) -> None:
    process = JavaProcess(tmp_path / "jvm", (), 20.0)
    assert process.jvm.java.lang.Math.max(2, 3) == 3
    assert process.kill() == -signal.SIGKILL
    with pytest.raises(ProcessLookupError):
        os.kill(process.pid, 0)


@pytest.mark.long
@pytest.mark.spark
def test_what_java_raised_is_told_although_a_spark_session_handles_exceptions_of_this_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PySpark's handler is put where it stays for the rest of the process; it would ask another JVM, or none."""
    monkeypatch.setattr(java_gateway, "get_return_value", java_gateway.get_return_value)
    install_exception_handler()
    process = JavaProcess(tmp_path / "jvm", (), 20.0)
    try:
        with pytest.raises(Raised, match=r"NumberFormatException.*no number"), process.calls():
            process.jvm.java.lang.Integer.parseInt("no number")
        with pytest.raises(Raised, match="IndexOutOfBounds"), process.calls():
            process.jvm.java.util.ArrayList().get(3)
        assert process.jvm.java.lang.Math.max(2, 3) == 3
    finally:
        process.kill()
