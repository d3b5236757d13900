"""A job on Spark whose messages about checkpoints can be made to arrive twice, on the coordinator's side of the way.

Both copies pass on the coordinator's event loop: one from a subtask is taken twice, one to a subtask is sent twice on
the same connection. What comes again after the attempt is over is dropped with its connection (REC-2). Messages that
no subtask sent are taken there, too.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

from barrier_tck.faults.targets import Direction
from barrier_tck.harness.reference.repeated_messages import RepeatedMessages
from barrier_tck.reference_impl.ids import SubtaskId
from barrier_tck.reference_impl.protocol.messages import AcknowledgeCheckpoint
from barrier_tck.reference_impl.spark.coordinator_service import SlotConnection
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner


class RepeatingRunner(SparkJobRunner):
    """Runs one job once, as its base does."""

    def __init__(self, *arguments: Any, repeats: RepeatedMessages, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._repeats = repeats
        self._copies = itertools.count()

    def send(self, subtask: SubtaskId, message: Any) -> None:
        """Send to a subtask, and later once more if that is in force."""
        super().send(subtask, message)
        connection = self._attempt.placed.get(subtask) if self._attempt is not None else None
        if connection is not None:
            for late_ms in self._repeats.copies(str(subtask), Direction.BACKWARD, message):
                self._later(late_ms, lambda: connection.send(message))

    def message_received(self, connection: SlotConnection, message: Any) -> None:
        """Take a message of a subtask, and later once more if that is in force."""
        take = super().message_received
        for late_ms in self._repeats.copies(str(connection.subtask), Direction.FORWARD, message):
            self._later(late_ms, lambda: take(connection, message))
        take(connection, message)

    def take_forged(self, message: AcknowledgeCheckpoint) -> None:
        """Let the coordinator take a message that no subtask sent, after what it does now. Called on any thread."""
        self._loop.post(lambda: self._required_driver().on_message(message))

    def _later(self, late_ms: float, call: Callable[[], None]) -> None:
        self._loop.set_timer(f"again-{next(self._copies)}", self.now_ms() + late_ms, call)
