"""The end of a loop: two waves that agree, and nothing less (CHL-5).

Grain: the machine, without any I/O; then members that send each other elements at random, where the truth is known.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest

from barrier_tck.reference_impl.ids import AttemptNumber, SubtaskId
from barrier_tck.reference_impl.protocol.loop_commands import CloseLoop, RestLoop, StartWave
from barrier_tck.reference_impl.protocol.loop_events import WaveDue
from barrier_tck.reference_impl.protocol.loop_states import LoopState
from barrier_tck.reference_impl.protocol.loop_termination import PAUSE_MS, LoopTermination
from barrier_tck.reference_impl.protocol.messages import LoopCounted, LoopInputEnded, SubtaskRunning
from barrier_tck.reference_impl.runtime_errors import ProtocolError

ATTEMPT = AttemptNumber(1)
HEAD, BODY = SubtaskId("head", 0), SubtaskId("body", 0)


def machine() -> LoopTermination:
    """Return a machine whose members run and whose input has ended; the first wave is under way."""
    loop = LoopTermination("head", (HEAD, BODY), (HEAD,))
    assert loop.handle(SubtaskRunning(ATTEMPT, HEAD)) == ()
    assert loop.handle(LoopInputEnded(ATTEMPT, HEAD, "head")) == (), "the body does not run yet"
    assert loop.handle(SubtaskRunning(ATTEMPT, BODY)) == (StartWave(1),)
    return loop


def counted(subtask: SubtaskId, wave: int, sent: int, taken: int) -> LoopCounted:
    return LoopCounted(ATTEMPT, subtask, "head", wave, sent, taken)


def wave(
    loop: LoopTermination, number: int, head: tuple[int, int], body: tuple[int, int]
) -> tuple[object, ...]:
    assert loop.handle(counted(HEAD, number, *head)) == ()
    return loop.handle(counted(BODY, number, *body))


def test_two_waves_that_agree_end_the_loop() -> None:
    loop = machine()
    assert wave(loop, 1, (3, 2), (2, 3)) == (StartWave(2),)
    assert wave(loop, 2, (3, 2), (2, 3)) == (CloseLoop(),)
    assert loop.state is LoopState.ENDED
    assert loop.waiting_for() == ""


def test_sums_that_differ_are_counted_again_after_a_pause() -> None:
    loop = machine()
    assert loop.waiting_for() == "the loop head waits for the counts of head[0], body[0]"
    assert wave(loop, 1, (3, 2), (2, 2)) == (RestLoop(PAUSE_MS),)
    assert loop.waiting_for() == "the loop head: 5 elements were sent round it and 4 taken"
    assert loop.handle(WaveDue(ATTEMPT, "head")) == (StartWave(2),)
    assert wave(loop, 2, (3, 2), (2, 3)) == (StartWave(3),)
    assert wave(loop, 3, (3, 2), (2, 3)) == (CloseLoop(),)


def test_one_wave_whose_sums_agree_by_chance_does_not_end_the_loop() -> None:
    """The body answers before it sends one element, and the head after it has taken it: it hides another one."""
    loop = machine()
    assert wave(loop, 1, (3, 3), (2, 2)) == (StartWave(2),)
    assert wave(loop, 2, (3, 3), (3, 2)) == (RestLoop(PAUSE_MS),)


def test_sums_that_agree_with_each_other_but_not_with_those_before_prove_nothing() -> None:
    loop = machine()
    assert wave(loop, 1, (1, 1), (1, 1)) == (StartWave(2),)
    assert wave(loop, 2, (2, 2), (2, 2)) == (StartWave(3),)
    assert wave(loop, 3, (2, 2), (2, 2)) == (CloseLoop(),)


def test_an_answer_to_another_wave_a_second_answer_and_a_second_end_are_illegal() -> None:
    loop = machine()
    with pytest.raises(ProtocolError, match="illegal in state counting"):
        loop.handle(counted(HEAD, 2, 0, 0))
    loop.handle(counted(HEAD, 1, 0, 0))
    with pytest.raises(ProtocolError, match=r"wave 1 waits for \['body\[0\]'\]"):
        loop.handle(counted(HEAD, 1, 0, 0))
    fed = LoopTermination("head", (HEAD, BODY), (HEAD,))
    assert fed.waiting_for() == "the loop head waits for the end of the input of head[0]"
    with pytest.raises(ProtocolError, match="still fed"):
        fed.handle(LoopInputEnded(ATTEMPT, BODY, "head"))


@dataclass
class Mesh:
    """Members that send each other elements, each of which makes up to two others, until their turns are used up."""

    chance: random.Random
    members: tuple[SubtaskId, ...] = tuple(SubtaskId("member", number) for number in range(3))
    sent: dict[SubtaskId, int] = field(default_factory=dict)
    taken: dict[SubtaskId, int] = field(default_factory=dict)
    channels: dict[tuple[SubtaskId, SubtaskId], deque[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.sent, self.taken = dict.fromkeys(self.members, 0), dict.fromkeys(self.members, 0)
        for member in self.members:
            self.send(member, 9)

    def send(self, sender: SubtaskId, turns: int) -> None:
        receiver = self.chance.choice(self.members)
        self.sent[sender] += 1
        self.channels.setdefault((sender, receiver), deque()).append(turns)

    def step(self) -> bool:
        """Let one member take one element; return False if nothing is under way."""
        full = [channel for channel, queue in self.channels.items() if queue]
        if not full:
            return False
        channel = self.chance.choice(full)
        turns = self.channels[channel].popleft()
        self.taken[channel[1]] += 1
        for _ in range(self.chance.randint(0, 2) if turns else 0):
            self.send(channel[1], turns - 1)
        return True

    def under_way(self) -> int:
        return sum(map(len, self.channels.values()))


def ended_with(loop: LoopTermination, mesh: Mesh) -> int:
    """Run waves between random steps until the loop is closed; return how many elements were under way then."""
    commands: list[object] = []
    for member in mesh.members:
        commands += loop.handle(SubtaskRunning(ATTEMPT, member))
        commands += loop.handle(LoopInputEnded(ATTEMPT, member, "member"))
    while True:
        command = commands.pop()
        if isinstance(command, CloseLoop):
            return mesh.under_way()
        if isinstance(command, RestLoop):
            mesh.step()
            commands += loop.handle(WaveDue(ATTEMPT, "member"))
            continue
        assert isinstance(command, StartWave)
        order = mesh.chance.sample(mesh.members, len(mesh.members))
        for member in order:
            for _ in range(mesh.chance.randint(0, 6)):
                mesh.step()
            said = LoopCounted(ATTEMPT, member, "member", command.wave, mesh.sent[member], mesh.taken[member])
            commands += loop.handle(said)


class EndsAfterOneWave(LoopTermination):
    """What a loop must not do."""

    def _is_over(self, before: tuple[int, int] | None, now: tuple[int, int]) -> bool:
        """Believe a single wave."""
        return now[0] == now[1]


def test_no_schedule_ends_a_loop_with_an_element_under_way_and_one_wave_would() -> None:
    wrong = 0
    for seed in range(1000):
        mesh = Mesh(random.Random(seed))
        assert ended_with(LoopTermination("member", mesh.members, mesh.members), mesh) == 0
        mesh = Mesh(random.Random(seed))
        wrong += ended_with(EndsAfterOneWave("member", mesh.members, mesh.members), mesh) > 0
    assert wrong > 10, "schedules in which one wave is not enough are among them"
