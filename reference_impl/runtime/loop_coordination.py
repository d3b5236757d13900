"""The coordinator's part in the end of loops: which machine an event is for, in the present attempt."""

from __future__ import annotations

from barrier_tck.reference_impl.ids import AttemptNumber
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.loops import Loop
from barrier_tck.reference_impl.protocol.loop_commands import LoopCommand
from barrier_tck.reference_impl.protocol.loop_events import LoopEvent, WaveDue
from barrier_tck.reference_impl.protocol.loop_termination import LoopTermination
from barrier_tck.reference_impl.protocol.messages import LoopCounted, LoopInputEnded, SubtaskRunning

LoopCommands = tuple[tuple[Loop, LoopCommand], ...]
"""What to do, and for which loop."""


class LoopCoordination:
    """The machines of all loops of a job, anew for each attempt: counts of another attempt mean nothing (REC-2)."""

    def __init__(self, graph: JobGraph) -> None:
        self._loops: dict[str, Loop] = {loop.name: loop for loop in graph.loops}
        self._attempt = AttemptNumber(0)
        self._machines: dict[str, LoopTermination] = {}

    def attempt_started(self, attempt: AttemptNumber) -> None:
        self._attempt = attempt
        self._machines = {
            loop.name: LoopTermination(loop.name, loop.members, loop.fed) for loop in self._loops.values()
        }

    def attempt_ended(self) -> None:
        """Forget the attempt: whatever its members still say does not matter."""
        self._machines = {}

    def on_running(self, message: SubtaskRunning) -> LoopCommands:
        loop = next((loop for loop in self._loops.values() if message.subtask in loop.members), None)
        return () if loop is None else self._handle(loop.name, message)

    def on_message(self, message: LoopInputEnded | LoopCounted | WaveDue) -> LoopCommands:
        """Take a message of a member, or a timer."""
        return self._handle(message.loop, message)

    def waiting_for(self) -> tuple[str, ...]:
        """Say what the loops wait for (REC-6)."""
        return tuple(filter(None, (machine.waiting_for() for machine in self._machines.values())))

    def _handle(self, loop: str, event: LoopEvent) -> LoopCommands:
        machine = self._machines.get(loop)
        if machine is None or event.attempt != self._attempt:
            return ()
        return tuple((self._loops[loop], command) for command in machine.handle(event))
