"""Stands between a source's reader and its users, and notes from which record each split is read (REC-1). The
positions that a system reports are only its claim. Here each attempt's reader notes, once for each split, the first
record that it reads, before anything can drop it. In the simulator the notes are recorded at once; on Spark a file
takes them from the executor to the driver.

In trials with savepoints it is logged, too, up to which record each split was read, and which subtasks took records
from a channel behind the barrier of a savepoint with which the job was to be stopped, or sent some after it (COO-5).
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from barrier_tck.harness.record.operations import (
    ConsumedAll,
    InputLeft,
    InputRead,
    ReadBehindStop,
    SentBehindEnd,
    SentBehindStop,
    SnapshotLeftOut,
    SnapshotTooEarly,
    TookBehindEnd,
)
from barrier_tck.harness.reference.instrumented import (
    DriverParts,
    MakeDriver,
    with_driver_instrument,
    with_instruments,
)
from barrier_tck.reference_impl.operators.api import NothingYet, Payload, SourceReader
from barrier_tck.reference_impl.protocol.messages import (
    ChannelControl,
    CheckpointBarrier,
    SplitPosition,
    TriggerCheckpoint,
)
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.ports import ChannelOutput, Probe, RuntimePoint
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

_log = logging.getLogger(__name__)

InputNote = (
    InputRead
    | InputLeft
    | ReadBehindStop
    | SentBehindStop
    | SentBehindEnd
    | TookBehindEnd
    | ConsumedAll
    | SnapshotTooEarly
    | SnapshotLeftOut
)
"""What is logged."""

KeepInput = Callable[[InputNote], None]
"""Keeps a note."""


class ObservedReader:
    """A reader that notes the first record that it reads of each split."""

    def __init__(
        self,
        inner: SourceReader,
        note: Callable[[str, int], None],
        note_end: Callable[[str, int], None] | None = None,
    ) -> None:
        """Note with ``note(split, offset)``, and with ``note_end`` where reading ended."""
        self.inner = inner
        self._note = note
        self._note_end = note_end
        self._begun: dict[str, None] = {}
        self._splits = len(inner.positions())

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        self.inner.restore(positions)

    def poll(self) -> Payload | NothingYet | None:
        """Return the next batch; if its split was not seen before, note where the batch begins."""
        if len(self._begun) == self._splits:
            return self.inner.poll()
        before = self.inner.positions()
        payload = self.inner.poll()
        for old, new in zip(before, self.inner.positions(), strict=True):
            if old.offset != new.offset and old.split not in self._begun:
                self._begun[old.split] = None
                self._note(old.split, old.offset)
        return payload

    def pause(self, splits: Collection[str]) -> None:
        self.inner.pause(splits)

    @property
    def split(self) -> str:
        return self.inner.split

    @property
    def open_splits(self) -> Collection[str]:
        return self.inner.open_splits

    @property
    def quiet_splits(self) -> Collection[str]:
        return self.inner.quiet_splits

    def positions(self) -> tuple[SplitPosition, ...]:
        return self.inner.positions()

    @property
    def rate_limit(self) -> float | None:
        return self.inner.rate_limit

    def close(self) -> None:
        """Note where reading ended, and release files."""
        if self._note_end is not None:
            for position in self.inner.positions():
                self._note_end(position.split, position.offset)
            self._note_end = None
        self.inner.close()


def _with_observed_source(parts: DriverParts, make: MakeDriver, keep: KeepInput, ends: bool) -> SubtaskDriver:
    """Return a driver. Its reader, if it has one, is observed directly, below any wrappers of the components."""
    deployment, ports = parts.deployment, parts.ports
    if parts.graph.vertex(deployment.subtask.vertex).source is not None:
        wrap = partial(_wrapped, parts.components.instruments.reader, keep, deployment, ends)
        parts = replace(parts, components=with_instruments(parts.components, reader=wrap))
    if not ends:
        return make(parts)
    stops = _ObservedStops(deployment, keep)
    output, probe = _WatchedOutput(ports.output, stops), _WatchedProbe(ports.probe, stops)
    driver = make(parts.with_ports(output=output, probe=probe))
    stops.watch(driver)
    return driver


def _wrapped(
    wrap: Callable[[SourceReader], SourceReader],
    keep: KeepInput,
    deployment: SubtaskDeployment,
    ends: bool,
    reader: SourceReader,
) -> SourceReader:
    def note(kind: type[InputRead] | type[InputLeft], split: str, offset: int) -> None:
        keep(kind(str(deployment.subtask), deployment.attempt, split, offset))

    return wrap(ObservedReader(reader, partial(note, InputRead), partial(note, InputLeft) if ends else None))


@dataclass
class _ObservedStops:
    """Notes the first records that a subtask takes or sends behind a barrier that stops the job."""

    deployment: SubtaskDeployment
    keep: KeepInput
    terminal: dict[int, None] = field(default_factory=dict)
    """The checkpoints whose barriers are known to stop the job."""
    passed_on: int | None = None
    """The last of them whose barrier was passed on."""
    logged: dict[tuple[type[InputNote], int], None] = field(default_factory=dict)

    def watch(self, driver: SubtaskDriver) -> None:
        """Look at what comes to a driver."""
        on_data, on_control = driver.on_data, driver.on_control
        on_announced, on_message = driver.on_announced, driver.on_message
        stopped: dict[int, int] = {}

        def observed_data(channel: int, payload: Payload) -> None:
            checkpoint = stopped.get(channel)
            if checkpoint is not None:
                self._note(ReadBehindStop, checkpoint)
            on_data(channel, payload)

        def observed_control(channel: int, element: Any) -> None:
            if isinstance(element, CheckpointBarrier) and element.is_terminal:
                stopped[channel] = int(element.checkpoint)
                self.terminal[element.checkpoint] = None
            on_control(channel, element)

        def observed_announced(channel: int, barrier: CheckpointBarrier) -> None:
            if barrier.is_terminal:
                self.terminal[barrier.checkpoint] = None
            on_announced(channel, barrier)

        def observed_message(message: Any) -> None:
            if isinstance(message, TriggerCheckpoint) and message.barrier.is_terminal:
                self.terminal[message.checkpoint] = None
            on_message(message)

        vars(driver).update(
            on_data=observed_data,
            on_control=observed_control,
            on_announced=observed_announced,
            on_message=observed_message,
        )

    def forwarded(self, checkpoint: int) -> None:
        """Take that the barrier of a checkpoint was passed on."""
        self.passed_on = checkpoint if checkpoint in self.terminal else None

    def sent(self) -> None:
        """Take that records are sent."""
        if self.passed_on is not None:
            self._note(SentBehindStop, self.passed_on)

    def _note(self, kind: type[ReadBehindStop] | type[SentBehindStop], checkpoint: int) -> None:
        if (kind, checkpoint) not in self.logged:
            self.logged[kind, checkpoint] = None
            self.keep(kind(str(self.deployment.subtask), self.deployment.attempt, checkpoint))


@dataclass(frozen=True)
class _WatchedOutput:
    inner: ChannelOutput
    stops: _ObservedStops

    def send_data(self, channel: int, payload: Payload) -> None:
        self.stops.sent()
        self.inner.send_data(channel, payload)

    def send_control(self, channel: int, element: ChannelControl) -> None:
        self.inner.send_control(channel, element)


@dataclass(frozen=True)
class _WatchedProbe:
    inner: Probe
    stops: _ObservedStops

    def reach(self, point: RuntimePoint, checkpoint: Any = None, attempt: int = 0) -> None:
        if point is RuntimePoint.BARRIER_FORWARDED:
            self.stops.forwarded(int(checkpoint))
        self.inner.reach(point, checkpoint, attempt)


def inputs_observed(components: Components, keep: KeepInput, ends: bool = False) -> Components:
    """Return the components with drivers whose sources are observed; ``ends`` says whether their ends are, too."""
    return with_driver_instrument(components, partial(_with_observed_source, keep=keep, ends=ends))


@dataclass(frozen=True)
class InputsDirectory:
    """Passes what was observed from one process to another, a file for each split and attempt."""

    path: str
    """A directory that both reach."""

    def __call__(self, note: InputNote) -> None:
        """Keep it, whole or not at all. A disk that refuses costs the proof, and nothing of the reading."""
        match note:
            case ReadBehindStop() | SentBehindStop() | SnapshotTooEarly() | SnapshotLeftOut():
                what = str(note.checkpoint)
            case TookBehindEnd() | ConsumedAll():
                what = "input"
            case SentBehindEnd():
                what = quote(note.channel, safe="")
            case InputRead() | InputLeft():
                what = quote(note.split, safe="")
        name = f"{type(note).__name__}-{quote(note.subtask, safe='')}-a{note.attempt}-{what}"
        target = Path(self.path) / f"{name}.json"
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(note))
            os.replace(temporary, target)
        except OSError as error:
            _log.warning("what was observed at %s could not be saved: %s", note.subtask, error)

    def take_all(self) -> tuple[InputNote, ...]:
        """Return all that was observed, by attempt, subtask and kind."""
        found = [
            (note.attempt, note.subtask, file.name, note)
            for file in sorted(Path(self.path).glob("*.json"))
            for note in [msgspec.json.decode(file.read_bytes(), type=InputNote)]
        ]
        return tuple(note for *_, note in sorted(found, key=lambda entry: entry[:3]))
