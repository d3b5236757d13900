"""Stands around a subtask driver and records each element that it takes and sends (``record.elements``).

In the simulator the entries are kept in memory. On Spark each process appends them to a file of its own, line by line:
what was written stays when the process is killed.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import quote

import msgspec

from barrier_tck.harness.record.elements import (
    AllOver,
    Allowed,
    ElementEntry,
    InputOver,
    Polled,
    ReadClock,
    Sent,
    SentWatermark,
    SplitsIdle,
    Stood,
    SubtaskElements,
    ToldTime,
    Took,
    TookWatermark,
)
from barrier_tck.harness.reference.instrumented import DriverParts, MakeDriver, with_driver_instrument
from barrier_tck.reference_impl.ids import ChannelId
from barrier_tck.reference_impl.operators.api import DataPlane, NothingYet, Payload
from barrier_tck.reference_impl.protocol.messages import AllowWatermark, ChannelControl, SourceWatermark
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import (
    ChannelOutput,
    Clock,
    CoordinatorLink,
    Probe,
    RuntimePoint,
)
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

_log = logging.getLogger(__name__)

AddEntry = Callable[[ElementEntry], None]
"""Keeps an entry of one subtask."""


class KeepsElements(Protocol):
    """Where entries go."""

    def of_subtask(self, begun: SubtaskElements) -> AddEntry:
        """Begin the record of a subtask, and return what takes its entries."""


@dataclass
class MemoryElements:
    """Keeps entries in memory."""

    _kept: list[tuple[SubtaskElements, list[ElementEntry]]] = field(default_factory=list)

    def of_subtask(self, begun: SubtaskElements) -> AddEntry:
        entries: list[ElementEntry] = []
        self._kept.append((begun, entries))
        return entries.append

    def taken(self) -> tuple[SubtaskElements, ...]:
        """Return all that was recorded, by attempt and subtask."""
        return _sorted(
            [msgspec.structs.replace(begun, entries=tuple(entries)) for begun, entries in self._kept]
        )


_encode = msgspec.json.Encoder(enc_hook=str).encode


@dataclass(frozen=True)
class ElementsDirectory:
    """Keeps the entries of each subtask of each attempt in a file below a directory that all processes reach."""

    path: str

    def of_subtask(self, begun: SubtaskElements) -> AddEntry:
        name = f"{quote(begun.subtask, safe='')}-a{begun.attempt}.jsonl"
        # Unbuffered: a process that is killed leaves all that it has done.
        file = (Path(self.path) / name).open("ab", buffering=0)
        file.write(_encode(begun) + b"\n")

        def add(entry: ElementEntry) -> None:
            file.write(_encode(entry) + b"\n")

        return add

    def taken(self) -> tuple[SubtaskElements, ...]:
        """Return all that was recorded, by attempt and subtask. The last line of a killed process may be cut off."""
        found = []
        for file in sorted(Path(self.path).glob("*.jsonl")):
            head, *lines = file.read_bytes().split(b"\n")
            begun = msgspec.json.decode(head, type=SubtaskElements)
            if lines.pop():
                _log.info("the last entry of %s, attempt %s, is cut off", begun.subtask, begun.attempt)
            entries = tuple(msgspec.json.decode(line, type=ElementEntry) for line in lines)
            found.append(msgspec.structs.replace(begun, entries=entries))
        return _sorted(found)


def _sorted(found: Sequence[SubtaskElements]) -> tuple[SubtaskElements, ...]:
    return tuple(sorted(found, key=lambda one: (one.attempt, one.subtask)))


def _with_observed_elements(parts: DriverParts, make: MakeDriver, keep: KeepsElements) -> SubtaskDriver:
    deployment, graph, plane = parts.deployment, parts.graph, parts.plane
    restored = deployment.restored_checkpoint
    begun = SubtaskElements(
        str(deployment.subtask),
        deployment.attempt,
        None if restored is None else int(restored),
        deployment.finished_before,
        tuple(map(_name, graph.inputs_of(deployment.subtask))),
        tuple(map(_name, graph.outputs_of(deployment.subtask))),
        (),
    )
    add = keep.of_subtask(begun)
    output = _ObservedOutput(parts.ports.output, plane, add)
    link, probe = _ObservedLink(parts.ports.coordinator, add), _ObservedProbe(parts.ports.probe, add)
    clock = ObservedClock(parts.ports.clock, add)
    driver = make(parts.with_ports(output=output, coordinator=link, probe=probe, clock=clock))
    _observe_input(driver, plane, clock, add)
    for operator in driver.operators:
        vars(operator).update(snapshot=partial(_snapshotted, operator.uid, operator.snapshot, clock))
    return driver


def _name(channel: ChannelId) -> str:
    return f"{channel.sender}->{channel.receiver}#{channel.edge}"


def _observe_input(driver: Any, plane: DataPlane, clock: ObservedClock, add: AddEntry) -> None:
    """Record what is processed, when it is: what is withheld behind a barrier that stops the job comes later."""
    process, over, all_over = driver.process, driver.event_time.input_ended, driver.end.end_input

    def observed_process(channel: int, payload: Any) -> None:
        if isinstance(payload, Watermark):
            origin = "|".join(map(_name, payload.origin))
            add(TookWatermark(channel, payload.at_ms, payload.idle, origin))
        else:
            add(Took(channel, tuple(plane.to_rows(payload))))
        with clock.stands():
            process(channel, payload)

    def observed_over(channel: int, run_chain: Any) -> None:
        add(InputOver(channel))
        with clock.stands():
            over(channel, run_chain)

    def observed_all_over(run_chain: Any) -> None:
        add(AllOver())
        with clock.stands():
            all_over(run_chain)

    vars(driver).update(process=observed_process)
    vars(driver.event_time).update(input_ended=observed_over)
    vars(driver.end).update(end_input=observed_all_over)
    if driver.reader is not None:
        paused: list[str] = []
        vars(driver.reader).update(
            poll=partial(_polled, driver.reader, driver.reader.poll, plane, add, paused),
            pause=partial(_paused, driver.reader.pause, paused),
        )
        vars(driver).update(
            poll_source=partial(_idle_noted, driver, driver.poll_source, add, []),
            on_message=partial(_bound_noted, driver.on_message, add),
        )


def _polled(
    reader: Any, poll: Callable[[], Any], plane: DataPlane, add: AddEntry, paused: Collection[str]
) -> Any:
    payload = poll()
    still_open, quiet = tuple(sorted(reader.open_splits)), tuple(sorted(reader.quiet_splits))
    held = tuple(split for split in still_open if split in paused)
    if isinstance(payload, NothingYet):
        add(Polled("", 0, (), still_open, quiet, held))
    elif payload is not None:
        behind = {position.split: position.offset for position in reader.positions()}[reader.split]
        rows = tuple(plane.to_rows(payload))
        add(Polled(reader.split, behind - len(rows), rows, still_open, quiet, held))
    return payload


def _paused(pause: Callable[[Collection[str]], None], paused: list[str], splits: Collection[str]) -> None:
    paused[:] = splits
    pause(splits)


def _bound_noted(on_message: Callable[[Any], None], add: AddEntry, message: Any) -> None:
    if isinstance(message, AllowWatermark):
        add(Allowed(message.largest_ms))
    on_message(message)


def _idle_noted(driver: Any, poll_source: Callable[[], Any], add: AddEntry, known: list[str]) -> Any:
    """Poll a source, and note if other splits count as idle behind that; ``known`` are those that did before."""
    wait_ms = poll_source()
    idle = sorted(position.split for position in driver.splits_time.positions() if position.idle is True)
    if idle != known:
        known[:] = idle
        add(SplitsIdle(tuple(idle)))
    return wait_ms


def _snapshotted(uid: str, snapshot: Callable[[Any], Any], clock: ObservedClock, checkpoint: Any) -> Any:
    with clock.stands(uid):
        return snapshot(checkpoint)


@dataclass
class ObservedClock:
    """A clock that stands still while an element is taken, so that one entry says what it showed.

    Otherwise it would not be known whether state whose time to live ends at that moment was there.
    """

    inner: Clock
    add: AddEntry
    _standing: bool = field(default=False, init=False)
    _operator: str = field(default="", init=False)
    _shows: float | None = field(default=None, init=False)

    def now_ms(self) -> float:
        if not self._standing:
            return self.inner.now_ms()
        if self._shows is None:
            self._shows = self.inner.now_ms()
            self.add(ReadClock(int(self._shows), self._operator))
        return self._shows

    @contextmanager
    def stands(self, operator: str = "") -> Iterator[None]:
        """Let it stand still; the operator is the one that is snapshotted meanwhile."""
        before = self._standing, self._operator, self._shows
        self._standing, self._operator, self._shows = True, operator, None
        try:
            yield
        finally:
            self._standing, self._operator, self._shows = before


@dataclass(frozen=True)
class _ObservedOutput:
    inner: ChannelOutput
    plane: DataPlane
    add: AddEntry

    def send_data(self, channel: int, payload: Payload) -> None:
        if isinstance(payload, Watermark):
            self.add(SentWatermark(channel, payload.at_ms, payload.idle))
        else:
            self.add(Sent(channel, tuple(self.plane.to_rows(payload))))
        self.inner.send_data(channel, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        self.inner.send_control(channel, element)


@dataclass(frozen=True)
class _ObservedLink:
    inner: CoordinatorLink
    add: AddEntry

    def send(self, message: Any) -> None:
        if isinstance(message, SourceWatermark):
            self.add(ToldTime(message.at_ms, message.idle, message.ended))
        self.inner.send(message)


@dataclass(frozen=True)
class _ObservedProbe:
    inner: Probe
    add: AddEntry

    def reach(self, point: RuntimePoint, checkpoint: Any = None, attempt: int = 0) -> None:
        if point is RuntimePoint.SNAPSHOT_TAKEN:
            self.add(Stood(int(checkpoint)))
        self.inner.reach(point, checkpoint, attempt)


def elements_observed(components: Components, keep: KeepsElements) -> Components:
    """Return the components with drivers whose elements are recorded.

    What changes the clocks of drivers is to be put around that: recorded is what the clock shows to operators.
    """
    return with_driver_instrument(components, partial(_with_observed_elements, keep=keep))
