"""The candidate's process, as the certifier sees it: requests with time limits, and an end that always comes.

Nothing that the candidate does (hang, fork, print, exit, use too much memory) may stop the certifier. The process has
its own session, which is killed as a whole. Its output is drained and bounded. Each call, and all calls together,
have a time limit.
"""

from __future__ import annotations

import collections
import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, replace
from typing import IO, Any

import msgspec
import psutil

from barrier_tck.harness.certify.backend import wire
from barrier_tck.harness.certify.engine.ended_by_others import ended_by_others
from barrier_tck.harness.support.work_directories import new_work_directory

WORKER = "barrier_tck.harness.certify.backend.candidate.worker"
MARK = "BARRIER_TCK_CANDIDATE"
"""Environment variable by which a candidate's children that left the session are found."""
LOG_BYTES = 16 * 1024
"""How many bytes, from the end, of the candidate's output are kept."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What a candidate process may use."""

    call_s: float = 20.0
    """Time limit of one call, in seconds."""
    trial_s: float = 120.0
    """Time limit of one trial of the reference runtime, in seconds."""
    load_s: float = 20.0
    """Time limit until the backend is imported and made, in seconds; also where calls must hurry."""
    memory_bytes: int = 3 << 30
    """Limit of private memory; 0 means unlimited (a trial on Spark starts a JVM)."""


class CandidateError(Exception):
    """Base of what a call to a candidate can raise."""


class CandidateDied(CandidateError):
    """The process is gone, hung, or sent nonsense; it was killed. The message says what happened."""

    def __init__(self, message: str, hung: bool = False, from_outside: bool = False) -> None:
        """Take what happened, whether a time limit was exceeded, and whether another program ended the process."""
        super().__init__(message)
        self.hung = hung
        self.from_outside = from_outside


class CandidateRaised(CandidateError):
    """The call raised; ``kind`` is that of `wire.Reply`."""

    def __init__(self, kind: str, message: str, fault_fired: bool = False) -> None:
        super().__init__(message)
        self.kind = kind
        self.fault_fired = fault_fired


class Candidate:
    """One process with one backend in it. It is not started twice; ``kill`` is final, and harmless if called twice."""

    def __init__(self, target: str, limits: Limits | None = None, hash_seed: int = 0) -> None:
        self.target = target
        self.limits = limits or Limits()
        self._mark = secrets.token_hex(8)
        ours, theirs = socket.socketpair()
        self._link = ours
        environment = os.environ | {MARK: self._mark, "PYTHONHASHSEED": str(hash_seed)}
        # What can be imported here must be importable there. An empty entry is the current directory, which changes.
        environment["PYTHONPATH"] = os.pathsep.join(os.path.abspath(path) for path in sys.path)
        with theirs:
            command = [sys.executable, "-m", WORKER, str(theirs.fileno()), str(self.limits.memory_bytes)]
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                env=environment,
            )
        self._log: collections.deque[bytes] = collections.deque()
        assert self._process.stdout is not None
        self._drain = threading.Thread(target=self._keep_log, args=(self._process.stdout,), daemon=True)
        self._drain.start()

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._process.pid

    def log(self) -> str:
        """Return the end of what the candidate printed."""
        return b"".join(list(self._log))[-LOG_BYTES:].decode(errors="replace")

    def load(self) -> dict[str, Any]:
        """Import the target and make the backend; returns its name and capabilities."""
        loaded: dict[str, Any] = self.call(wire.LoadRequest(self.target))
        return loaded

    def call(self, request: wire.AnyRequest) -> Any:
        """Send a request and return the reply's value.

        Raises CandidateRaised if the candidate raised an error, CandidateDied if no answer came in time.
        """
        self.post(request)
        reply = self._reply(self._name(request))
        if reply.error is not None:
            raise CandidateRaised(reply.error, reply.message, reply.fault_fired)
        return reply.value

    def run(self, request: wire.EndingRequest) -> wire.Ran:
        """Run or finish an asynchronous part."""
        return msgspec.convert(self.call(request), wire.Ran)

    def resources(self, settle: bool = True) -> wire.Held:
        """Count what the process holds, after threads that are about to end have ended if ``settle``."""
        return msgspec.convert(self.call(wire.ResourcesRequest(settle)), wire.Held)

    def post(self, request: wire.AnyRequest) -> None:
        """Send a request without waiting; the next thing to do is to call ``kill`` or to wait for the reply."""
        long = isinstance(request, wire.TrialRequest | wire.CloseSystemsRequest)
        limit = self.limits.trial_s if long else self.limits.call_s
        if isinstance(request, wire.LoadRequest):
            limit = self.limits.load_s
        try:
            self._link.settimeout(limit)
            wire.send(self._link, request)
        except (wire.Disconnected, OSError) as error:
            raise self._died(self._name(request), error) from error

    def kill(self) -> None:
        """Kill the process and everything that it started; return when it is gone."""
        self._link.close()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.kill()
        self._process.wait()
        for runaway in self._runaways():
            with contextlib.suppress(psutil.Error):
                runaway.kill()
        # A copy that left the session may have held the pipe until now.
        self._drain.join(1.0)

    def _reply(self, asked: str) -> wire.Reply:
        try:
            return wire.decode_reply(wire.receive(self._link))
        except (wire.Disconnected, TimeoutError, msgspec.DecodeError) as error:
            raise self._died(asked, error) from error

    def _died(self, asked: str, error: Exception) -> CandidateDied:
        if isinstance(error, TimeoutError):
            message = f"{asked} did not return within {self._link.gettimeout():g} s; the process was killed"
        else:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(2.0)
            code = self._process.returncode
            if code is None:
                message = f"{asked}: the connection was closed or misused ({error}); the process was killed"
            elif code < 0:
                message = f"{asked} ended the process with {signal.Signals(-code).name}"
            else:
                message = f"{asked} ended the process with exit code {code}"
        from_outside = ended_by_others(self._process.returncode)
        self.kill()
        printed = self.log().strip()[-600:]
        message = f"{message}; the end of its output:\n{printed}" if printed else message
        return CandidateDied(message, isinstance(error, TimeoutError), from_outside)

    def _runaways(self) -> list[psutil.Process]:
        """Return processes that carry the candidate's mark but are not in its session any more."""
        found = []
        for process in psutil.process_iter():
            with contextlib.suppress(psutil.Error, OSError):
                if process.pid != os.getpid() and process.environ().get(MARK) == self._mark:
                    found.append(process)
        return found

    def _keep_log(self, pipe: IO[bytes]) -> None:
        kept = 0
        with pipe:
            while part := os.read(pipe.fileno(), 65536):
                self._log.append(part[-LOG_BYTES:])
                kept += len(self._log[-1])
                while kept - len(self._log[0]) > LOG_BYTES:
                    kept -= len(self._log.popleft())

    @staticmethod
    def _name(request: wire.AnyRequest) -> str:
        return f"{type(request).__struct_config__.tag}()"


class Pool:
    """Starts candidates, from the second on one of them ahead of time, within a total time; ``close`` kills all."""

    def __init__(self, target: str, limits: Limits | None = None, total_s: float = 600.0) -> None:
        """Take the target and the limits; ``total_s`` is the total time in seconds."""
        self.target = target
        self._usual_limits = self.limits = limits or Limits()
        self._deadline = time.monotonic() + total_s
        self.directory = new_work_directory("backend")
        """Contains the directories of all sessions; ``close`` removes it."""
        self._started: list[Candidate] = []
        self._spare: Candidate | None = None
        self._hash_seed = 0
        self._idle: Candidate | None = None
        self.taken = 0
        """How many processes were taken so far."""
        self.log = ""
        """The end of the output of the candidate that was given back last."""

    @property
    def remaining_s(self) -> float:
        """Return the seconds left."""
        return self._deadline - time.monotonic()

    def take(self) -> Candidate:
        """Return a process with the backend loaded; the caller must give it back."""
        candidate = self._spare or self._start()
        # Whoever has taken a second one will take more; most steps need one only.
        self._spare = self._start() if self.taken else None
        self.taken += 1
        candidate.load()
        return candidate

    def limit_calls(self, share: float) -> None:
        """Let each call take this share of its usual time limit from now on, in the processes that there are too."""
        usual = self._usual_limits
        self.limits = replace(usual, call_s=share * usual.call_s, trial_s=share * usual.trial_s)
        for candidate in self._started:
            candidate.limits = self.limits

    def keep(self, candidate: Candidate) -> None:
        """Keep a process, in which nothing is under way, for whoever takes it next."""
        self._idle = candidate

    def take_idle(self) -> Candidate | None:
        """Return the process that was kept, if there is one; the caller must give it back."""
        candidate, self._idle = self._idle, None
        return candidate

    def drop_idle(self) -> None:
        """Kill the process that was kept."""
        candidate = self.take_idle()
        if candidate is not None:
            self.give_back(candidate)

    def give_back(self, candidate: Candidate) -> None:
        """Kill a process."""
        candidate.kill()
        self.log = candidate.log() or self.log
        if candidate in self._started:
            self._started.remove(candidate)

    def close(self) -> None:
        """Kill all."""
        for candidate in list(self._started):
            self.give_back(candidate)
        self._spare = self._idle = None
        shutil.rmtree(self.directory, ignore_errors=True)

    def _start(self) -> Candidate:
        """Start a process with a hash seed of its own: nothing may depend on the hash of a key."""
        self._hash_seed += 1
        candidate = Candidate(self.target, self.limits, self._hash_seed)
        self._started.append(candidate)
        return candidate
