"""A JVM of our own with PySpark's jars, reached through Py4J: no cluster, no session, no Spark application."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import signal
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from py4j.java_gateway import GatewayClient, GatewayParameters, JavaGateway
from py4j.protocol import Py4JError, Py4JJavaError, Py4JNetworkError, get_return_value, is_error

from barrier_tck.harness.certify.engine.ended_by_others import ended_by_others
from barrier_tck.harness.certify.spark_store.storage_files import FileWatch
from barrier_tck.harness.cluster.class_archive import classes_for
from barrier_tck.harness.cluster.java import find_java
from barrier_tck.harness.support.errors import EnvironmentProblem

_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio", "java.util"),
    *("java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch", "sun.nio.cs"),
    *("sun.security.action", "sun.util.calendar"),
)
"""Packages of Java that Spark reaches into; its own launcher opens the same ones."""
_HEAP = "-Xmx512m"
_LOG_CHARACTERS = 4_000
_NO_REPLY = re.compile(r"An error occurred while calling \S+")
"""All that Py4J says if a reply did not come; of an error it says more."""
_MESSAGE_MAX = 300
_LOGGING = """rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = console
appender.console.type = Console
appender.console.name = console
appender.console.target = SYSTEM_ERR
appender.console.layout.type = PatternLayout
appender.console.layout.pattern = %p %c{1}: %m%n
"""


def _not_of_py4j(record: logging.LogRecord) -> bool:
    return "py4j" not in record.pathname


class Raised(Exception):
    """Java code raised; the text begins with the class of the innermost cause that says something."""


class Died(Exception):
    """The JVM is gone, or did not answer in time; ``hung`` tells which. ``from_outside``: another program ended it."""

    def __init__(self, message: str, hung: bool = False, from_outside: bool = False) -> None:
        super().__init__(message)
        self.hung = hung
        self.from_outside = from_outside


class _Client(GatewayClient):  # type: ignore[misc]  # Py4J has no types
    """A client that raises what Java raised by itself.

    PySpark replaces the function of Py4J that does this, for every gateway of the process and for good, by one that
    asks the JVM of the Spark session about the exception. That is another JVM than ours, or none.
    """

    def send_command(self, command: str, retry: bool = True, binary: bool = False) -> Any:
        """Return the answer; raises Py4JJavaError or Py4JError if it is an error, KeyboardInterrupt if that came."""
        try:
            answer = super().send_command(command, retry, binary)
        except AttributeError as error:
            # After Ctrl-C, Py4J calls a method of the connection that only connections of another kind have.
            if isinstance(error.__context__, KeyboardInterrupt):
                raise error.__context__ from None
            raise
        text = answer[0] if binary else answer
        if is_error(text)[0]:
            get_return_value(text, self)
        return answer


class JavaProcess:
    """One JVM. Its local files are below ``directory``. It ends when this process ends, however that happens."""

    def __init__(self, directory: Path, jars: Sequence[str], call_s: float) -> None:
        """Start it; raises JavaMissing, JavaTooOld, or EnvironmentProblem if it does not answer."""
        java = find_java()
        self.directory = directory
        self._call_s = call_s
        directory.mkdir(parents=True)
        logging_file = directory / "log4j2.properties"
        logging_file.write_text(_LOGGING)
        self._log = directory / "log"
        classes = classes_for(java)
        archive = (
            [f"-XX:SharedArchiveFile={classes.archive}", "-Xlog:cds*=off"]
            if classes.archive.is_file()
            else []
        )
        command = [
            *(str(java.executable), _HEAP, "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", *archive),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED),
            f"-Djava.io.tmpdir={directory}",
            f"-Dlog4j2.configurationFile={logging_file}",
            *("-cp", os.pathsep.join([classes.class_path, *jars])),
            # The server ends with its standard input; the token comes on standard output, never on a command line.
            *("py4j.GatewayServer", "--die-on-broken-pipe", "--enable-auth", "0"),
        ]
        with open(self._log, "wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=os.environ | {"SPARK_LOCAL_DIRS": str(directory)},
                # Ctrl-C reaches only this process, which then ends the other one.
                start_new_session=True,
            )
        self._client: Any = None
        # Py4J logs a traceback when a JVM ends in the middle of a call, which here it is meant to do.
        logging.getLogger().addFilter(_not_of_py4j)
        logging.getLogger("py4j.java_gateway").addFilter(_not_of_py4j)
        assert self._process.stdout is not None
        port, token = (self._process.stdout.readline().strip().decode() for _ in range(2))
        if not port.isdigit() or not token:
            self.kill()
            raise EnvironmentProblem(f"a JVM for the state store did not start: {self.log() or 'no message'}")
        parameters = GatewayParameters(
            port=int(port), auth_token=token, auto_convert=True, read_timeout=call_s
        )
        self._client = _Client(gateway_parameters=parameters)
        self.jvm: Any = JavaGateway(gateway_client=self._client, gateway_parameters=parameters).jvm

    @property
    def pid(self) -> int:
        """Return its process id."""
        return self._process.pid

    @contextlib.contextmanager
    def calls(self) -> Any:
        """Translate what Py4J raises: Raised if Java code raised, Died if the JVM is gone or hangs."""
        try:
            yield
        except Py4JJavaError as error:
            raise Raised(_rendered(error.java_exception)) from error
        except Py4JNetworkError as error:
            raise self._died() from error
        except (Py4JError, OSError) as error:
            if _NO_REPLY.fullmatch(str(error).strip()) or self._gone():
                raise self._died() from error
            raise Raised(str(error).splitlines()[0]) from error

    def kill_at_file(self, directory: Path, count: int) -> FileWatch:
        """Kill it with SIGKILL when so many files have appeared below a directory; returns the started watch."""
        watch = FileWatch(directory, count, self._process.kill)
        watch.start()
        return watch

    def kill_after(self, delay_s: float) -> threading.Timer:
        """Kill it with SIGKILL after a delay, from another thread; returns the started timer."""
        timer = threading.Timer(delay_s, self._process.kill)
        timer.daemon = True
        timer.start()
        return timer

    def kill(self) -> int:
        """Kill it with SIGKILL if it is alive, and return its exit code: negative for a signal."""
        self._process.kill()
        code = self._process.wait()
        logging.getLogger().removeFilter(_not_of_py4j)
        logging.getLogger("py4j.java_gateway").removeFilter(_not_of_py4j)
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                with contextlib.suppress(OSError):  # what was left to write to a dead process
                    stream.close()
        if self._client is not None:
            # Otherwise Py4J tries to release each Java object that Python forgets.
            self._client.is_connected = False
            self._client.close()
        return code

    def log(self) -> str:
        """Return the end of what it wrote to its error stream."""
        try:
            return self._log.read_text(errors="replace")[-_LOG_CHARACTERS:].strip()
        except OSError as error:
            return f"its log cannot be read: {error}"

    def _gone(self) -> bool:
        try:
            self._process.wait(0.2)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _died(self) -> Died:
        if not self._gone():
            return Died(f"the JVM did not answer within {self._call_s:g} s", hung=True)
        code = self._process.returncode
        how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        return Died(f"the JVM ended with {how}", from_outside=ended_by_others(code, handles_signals=True))


def _rendered(exception: Any) -> str:
    """Return class and message of an exception and of its innermost cause, on one line each."""
    causes = [exception]
    while causes[-1].getCause() is not None and len(causes) < 10:
        causes.append(causes[-1].getCause())
    described = [
        f"{one.getClass().getSimpleName()}: {_line(one.getMessage())}" for one in (causes[0], causes[-1])
    ]
    return " <- ".join(dict.fromkeys(described))


def _line(message: str | None) -> str:
    return " ".join(str(message).partition(" SQLSTATE:")[0].split())[:_MESSAGE_MAX]
