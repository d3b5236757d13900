"""Stands between a source's reader and its users, and notes from which record each split is read (REC-1). The
positions that a system reports are only its claim. Here each attempt's reader notes, once for each split, the first
record that it reads, before anything can drop it. In the simulator the notes are recorded at once; on Spark a file
takes them from the executor to the driver.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import quote

import msgspec

from barrier_tck.harness.record.operations import InputRead
from barrier_tck.reference_impl.operators.api import Payload, SourceReader
from barrier_tck.reference_impl.protocol.messages import SplitPosition
from barrier_tck.reference_impl.runtime.components import Components
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_driver import SubtaskDriver

_log = logging.getLogger(__name__)

KeepInput = Callable[[InputRead], None]
"""Keeps the record from which a split was read."""


class ObservedReader:
    """A reader that notes the first record that it reads of each split."""

    def __init__(self, inner: SourceReader, note: Callable[[str, int], None]) -> None:
        """Note with ``note(split, offset)``."""
        self.inner = inner
        self._note = note
        self._begun: dict[str, None] = {}
        self._splits = len(inner.positions())

    def restore(self, positions: Sequence[SplitPosition]) -> None:
        """Go to a position."""
        self.inner.restore(positions)

    def poll(self) -> Payload | None:
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

    def positions(self) -> tuple[SplitPosition, ...]:
        """Return the position of every split."""
        return self.inner.positions()

    @property
    def rate_limit(self) -> float | None:
        """Return the rate limit."""
        return self.inner.rate_limit

    def close(self) -> None:
        """Release files."""
        self.inner.close()


@dataclass(frozen=True)
class InputObservingDrivers:
    """Makes subtask drivers whose sources are observed; takes the arguments of ``SubtaskDriver``."""

    make: Callable[..., SubtaskDriver]
    keep: KeepInput

    def __call__(
        self, deployment: SubtaskDeployment, graph: Any, plane: Any, ports: Any, components: Components
    ) -> SubtaskDriver:
        """Return a driver. Its reader is observed directly, below any wrappers of the components."""
        wrap = partial(_wrapped, components.wrap_reader, partial(_kept, self.keep, deployment))
        return self.make(deployment, graph, plane, ports, replace(components, wrap_reader=wrap))


def _wrapped(
    wrap: Callable[[SourceReader], SourceReader], note: Callable[[str, int], None], reader: SourceReader
) -> SourceReader:
    return wrap(ObservedReader(reader, note))


def _kept(keep: KeepInput, deployment: SubtaskDeployment, split: str, offset: int) -> None:
    keep(InputRead(str(deployment.subtask), deployment.attempt, split, offset))


def inputs_observed(components: Components, keep: KeepInput) -> Components:
    """Return the components with drivers whose sources are observed."""
    make = components.subtask_driver or SubtaskDriver
    return replace(components, subtask_driver=InputObservingDrivers(make, keep))


@dataclass(frozen=True)
class InputsDirectory:
    """Passes what was observed from one process to another, a file for each split and attempt."""

    path: str
    """A directory that both reach."""

    def __call__(self, read: InputRead) -> None:
        """Keep it, whole or not at all. A disk that refuses costs the proof, and nothing of the reading."""
        name = f"{quote(read.subtask, safe='')}-a{read.attempt}-{quote(read.split, safe='')}"
        target = Path(self.path) / f"{name}.json"
        temporary = target.with_suffix(f".{os.getpid()}.tmp")
        try:
            temporary.write_bytes(msgspec.json.encode(read))
            os.replace(temporary, target)
        except OSError as error:
            _log.warning("the records from which %s read could not be saved: %s", read.subtask, error)

    def take_all(self) -> tuple[InputRead, ...]:
        """Return all that was observed, by attempt, subtask and split."""
        found = [
            msgspec.json.decode(file.read_bytes(), type=InputRead) for file in Path(self.path).glob("*.json")
        ]
        return tuple(sorted(found, key=lambda read: (read.attempt, read.subtask, read.split)))
