"""What a subtask does at its end: the last output of its operators, the end of its channels, and its last message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain

import msgspec

from barrier_tck.reference_impl.operators.api import Operator, Payload, SourceReader
from barrier_tck.reference_impl.operators.list_process import HasListStates
from barrier_tck.reference_impl.protocol.messages import (
    ChannelsClosed,
    EndOfChannel,
    EndOfInput,
    InputConsumed,
    OperatorSnapshot,
    StateList,
    SubtaskFinished,
    SubtaskSnapshot,
)
from barrier_tck.reference_impl.runtime.operator_contexts import commit_without_checkpoints
from barrier_tck.reference_impl.runtime.ports import CoordinatorLink
from barrier_tck.reference_impl.runtime.routing import Router
from barrier_tck.reference_impl.runtime.subtask_deployment import SubtaskDeployment
from barrier_tck.reference_impl.runtime.subtask_event_time import SubtaskEventTime


class SubtaskEnd:
    """The end of one subtask of one attempt."""

    def __init__(
        self,
        deployment: SubtaskDeployment,
        operators: Sequence[Operator],
        router: Router,
        coordinator: CoordinatorLink,
        is_terminal: bool,
        event_time: SubtaskEventTime,
    ) -> None:
        self._deployment = deployment
        self._operators = operators
        self._router = router
        self._coordinator = coordinator
        self._is_terminal = is_terminal
        self._event_time = event_time

    def end_input(self, run_chain: Callable[[int, Payload | None], None]) -> None:
        """Emit the last output of the operators, unless they had in the checkpoint restored, and pass the end on."""
        deployment = self._deployment
        if not deployment.finished_before:
            for position, operator in enumerate(self._operators):
                for payload in chain(self._event_time.end(operator), operator.end_of_input()):
                    run_chain(position + 1, payload)
        self._event_time.ended()
        self._router.send_control(EndOfInput())
        if not self._is_terminal:
            return
        if deployment.config.checkpoints is None:
            commit_without_checkpoints(self._operators)
        self._coordinator.send(InputConsumed(deployment.attempt, deployment.subtask))

    def report_closed(self) -> None:
        """Say that no barrier reaches the subtask any more (BAR-6)."""
        self._coordinator.send(ChannelsClosed(self._deployment.attempt, self._deployment.subtask))

    def finish(self, source: str, reader: SourceReader | None) -> None:
        """Close the output channels, and say that the subtask has finished (BAR-6).

        What it says becomes its part of later checkpoints: how far its source was read, the lists that others may need
        (RSC-3), and no file, since no subtask needs its keyed state again.
        """
        deployment, before = self._deployment, self._deployment.restore
        self._router.send_control(EndOfChannel())
        if before is not None and before.finished:
            operators = before.operators
        else:
            own = tuple(
                OperatorSnapshot(operator.uid, input_ended=True, lists=_lists_of(operator))
                for operator in self._operators
            )
            read = (OperatorSnapshot(source, positions=reader.positions()),) if reader is not None else ()
            operators = (*read, *own)
        part = SubtaskSnapshot(
            deployment.subtask,
            deployment.attempt,
            operators,
            finished=True,
            event_time=self._event_time.at_the_end(),
        )
        self._coordinator.send(SubtaskFinished(deployment.attempt, deployment.subtask, part))


def _lists_of(operator: Operator) -> tuple[StateList, ...] | msgspec.UnsetType:
    return operator.stored_list_states() if isinstance(operator, HasListStates) else msgspec.UNSET
