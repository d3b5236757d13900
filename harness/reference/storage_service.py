"""The service that keeps the checkpoints of a simulated trial, and what is wrong with it: an object store, or HDFS.

A model of such a service asks here what becomes of each request, and carries out what arrives. Nothing happens in the
middle of a step of the simulator. So what is to strike in a request lies in wait for it. A client that gets no answer
asks again at once, until its patience is over. If answers are late, the task's outcome is reported later.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from enum import Enum

from barrier_tck.faults.latency import Latency
from barrier_tck.faults.targets import Impairment, TargetGone
from barrier_tck.faults.upload_moment import UploadMoment
from barrier_tck.harness.reference.delegating_files import DelegatingFileSystem
from barrier_tck.reference_impl.storage.filesystem import FileSystem


class Fate(Enum):
    """What becomes of a request."""

    ANSWERED = "it is carried out, and answered"
    UNANSWERED = "it is carried out, and the answer is lost"
    REFUSED = "it arrives, and is refused for the moment"
    LOST = "it never arrives"


class ServiceFault:
    """One thing that is wrong with the service, from one fault."""

    def __init__(self) -> None:
        """No request has met it yet."""
        self.in_force = True
        self.met = False
        """Whether a request has met it."""


class Strike(ServiceFault):
    """The death of the server of a request, at a moment of it."""

    def __init__(self, moment: UploadMoment) -> None:
        """Lie in wait for that moment."""
        super().__init__()
        self.moment = moment


class FailedRequest(ServiceFault):
    """One request that gets no answer: the nth from now on that changes something."""

    def __init__(self, nth: int, carried_out: bool) -> None:
        super().__init__()
        self._left = nth
        self._carried_out = carried_out

    def fate(self) -> Fate | None:
        """Count a request; return what becomes of it, or None if it is not the one."""
        self._left -= 1
        if self._left:
            return None
        self.met = True
        return Fate.UNANSWERED if self._carried_out else Fate.LOST


class Server:
    """A process of the service, which strikes kill."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._strikes: list[Strike] = []

    @property
    def alive(self) -> bool:
        """Whether it was not killed, or is started again."""
        return not any(strike.in_force for strike in self._strikes)

    def die(self, strike: Strike) -> None:
        """Die, until the strike is over."""
        self._strikes.append(strike)


class StorageService:
    """One service and its faults; it is also the clock of its clients."""

    def __init__(self, name: str, files: FileSystem, choices: random.Random) -> None:
        self.name = name
        self.files = files
        self.choices = choices
        self._strikes: list[Strike] = []
        self._refusals: list[ServiceFault] = []
        self._cuts: list[ServiceFault] = []
        self._late: list[tuple[ServiceFault, Latency]] = []
        self._failing: list[FailedRequest] = []
        self._waited_s = 0.0
        self._late_ms = 0.0

    # --- for models and clients -----------------------------------------------------------------------------

    def fate(self, repeatable: bool = False) -> Fate:
        """Return what becomes of a request that is made now; a dead server is the business of the model.

        ``repeatable``: it changes something, and is sent again if it is not answered.
        """
        for fault, latency in self._late:
            fault.met = True
            self._late_ms += latency.latency_ms
        if self._cuts:
            # What was under way when connections were closed had arrived, or had not.
            under_way = not any(cut.met for cut in self._cuts)
            for cut in self._cuts:
                cut.met = True
            return Fate.UNANSWERED if under_way and self.choices.random() < 0.5 else Fate.LOST
        for refusal in self._refusals:
            refusal.met = True
        if self._refusals:
            return Fate.REFUSED
        return self._failed() if repeatable and self._failing else Fate.ANSWERED

    def _failed(self) -> Fate:
        fates = [fate for failing in self._failing if (fate := failing.fate()) is not None]
        self._failing = [failing for failing in self._failing if not failing.met]
        return fates[0] if fates else Fate.ANSWERED

    def due(self, moment: UploadMoment) -> Strike | None:
        """Return what strikes at this moment of a request; it strikes once."""
        strike = next((entry for entry in self._strikes if entry.moment is moment), None)
        if strike is not None:
            self._strikes.remove(strike)
            strike.met = True
        return strike

    def now_s(self) -> float:
        """Return how long clients have waited, in virtual seconds."""
        return self._waited_s

    def pause(self, seconds: float) -> None:
        """Let a client ask again: nothing is mended meanwhile, so no time passes for other clients."""
        self._waited_s += seconds

    def take_late_ms(self) -> float:
        """Return how much longer than usual everything took since this was asked last (virtual ms)."""
        late_ms, self._late_ms = self._late_ms, 0.0
        return late_ms

    # --- for faults -----------------------------------------------------------------------------------------

    def await_moment(self, moment: UploadMoment) -> Strike:
        """Let a strike lie in wait."""
        self._strikes.append(Strike(moment))
        return self._strikes[-1]

    def refuse(self) -> ServiceFault:
        """Refuse every request from now on."""
        self._refusals.append(ServiceFault())
        return self._refusals[-1]

    def fail(self, nth: int, carried_out: bool) -> FailedRequest:
        """Let one request get no answer."""
        self._failing.append(FailedRequest(nth, carried_out))
        return self._failing[-1]

    def impair(self, impairment: Impairment) -> ServiceFault:
        """Disturb the connections with the service; raises TargetGone for what is not known here."""
        fault = ServiceFault()
        if impairment.closes:
            self._cuts.append(fault)
        elif isinstance(impairment, Latency):
            self._late.append((fault, impairment))
        else:
            raise TargetGone(f"{self.name} suffers no {type(impairment).__name__}")
        return fault

    def end(self, fault: ServiceFault) -> None:
        """End a trouble; servers that it has killed start again. Harmless twice."""
        fault.in_force = False
        self._strikes = [strike for strike in self._strikes if strike.in_force]
        self._refusals = [refusal for refusal in self._refusals if refusal.in_force]
        self._cuts = [cut for cut in self._cuts if cut.in_force]
        self._late = [late for late in self._late if late[0].in_force]


class ThroughService(DelegatingFileSystem):
    """The files of a process that uses the service as the job does, and meets its faults."""

    def __init__(self, inner: FileSystem, service: StorageService) -> None:
        super().__init__(inner)
        self.service = service


def service_of(files: FileSystem) -> StorageService | None:
    """Return the service that these files lead to; None for judges, who ask what it has stored."""
    while isinstance(files, DelegatingFileSystem):
        if isinstance(files, ThroughService):
            return files.service
        files = files.inner
    return None


class ServiceTarget:
    """The service as the target of one fault; implements ``barrier_tck.faults.targets.ObjectStoreTarget``."""

    strikes_later = True

    def __init__(self, service: StorageService) -> None:
        self._service = service
        self._fault: ServiceFault | None = None
        self.link = _ServiceLink(service)

    @property
    def description(self) -> str:
        return self._service.name

    def kill_in_upload(self, moment: UploadMoment) -> None:
        """Kill the server of the next upload at this moment of it."""
        self._fault = self._service.await_moment(moment)

    def is_dead(self) -> bool:
        """Return whether a server was killed, and is dead."""
        return self.has_struck() and self._fault is not None and self._fault.in_force

    def start_again(self) -> None:
        """Start the server that was killed, and wait for no upload."""
        if self._fault is not None:
            self._service.end(self._fault)

    def throttle(self) -> None:
        """Refuse every request."""
        self._fault = self._service.refuse()

    def has_throttled(self) -> bool:
        """Return whether a request was refused."""
        return self.has_struck()

    def stop_throttling(self) -> None:
        """Refuse no more."""
        self.start_again()

    def fail_request(self, nth: int, carried_out: bool) -> Callable[[], bool]:
        """Let one request get no answer."""
        failed = self._service.fail(nth, carried_out)
        return lambda: failed.met

    def has_struck(self) -> bool:
        """Return whether a request has met the fault."""
        return self._fault is not None and self._fault.met


class _ServiceLink:
    """All connections with the service; implements ``barrier_tck.faults.targets.LinkTarget``."""

    def __init__(self, service: StorageService) -> None:
        self._service = service
        self._fault: ServiceFault | None = None

    @property
    def description(self) -> str:
        return f"connections with {self._service.name}"

    def impair(self, impairment: Impairment) -> None:
        self._fault = self._service.impair(impairment)

    def is_impaired(self) -> bool:
        return self._fault is not None and self._fault.in_force

    def heal(self) -> None:
        if self._fault is not None:
            self._service.end(self._fault)
