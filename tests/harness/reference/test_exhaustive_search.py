"""Searches of all interleavings: of drawn models of messages (pure functions), and of the smallest simulated job."""

from __future__ import annotations

import dataclasses
import pickle
import random
from collections.abc import Hashable, Sequence

import pytest

from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.exhaustive import searched_world
from barrier_tck.harness.reference.exhaustive.scope_search import (
    path_file,
    planted_in,
    prepared,
    read_path,
    replay_path,
    search_scope,
)
from barrier_tck.harness.reference.exhaustive.scopes import SCOPES, Scope
from barrier_tck.harness.reference.exhaustive.search import Progress, Reduction, Search, Step, Watcher
from barrier_tck.harness.reference.exhaustive.searched_world import CRASHED, HistoryLine, told_apart
from barrier_tck.harness.support.errors import InternalError, UsageProblem

ACTORS = 3
SEEDS = 12
WITHOUT_CRASH = dataclasses.replace(SCOPES["line-exactly-once"], crashes=0)
SMALLEST = dataclasses.replace(WITHOUT_CRASH, triggers=0)


class Messages:
    """Actors that remember what they took, in order, and answer some of it; drawn from a seed."""

    def __init__(self, seed: int) -> None:
        draw = random.Random(seed)
        names = [f"a{number}" for number in range(ACTORS)]
        self.answers = {
            (name, taken): [
                (name, to, f"{name}{taken}{to}") for to in names if to != name and draw.random() < 0.3
            ]
            for name in names
            for taken in range(2)
        }
        self.crash = draw.random() < 0.5
        self.taken: dict[str, list[str]] = {name: [] for name in names}
        self.dead: list[str] = []
        self.queues: dict[tuple[str, str], list[str]] = {
            ("world", to): [f"w{to}"] for to in names if to == "a0" or draw.random() < 0.5
        }

    def steps(self) -> Sequence[Step]:
        found = [
            Step(to, f"{sender}>{to}")
            for (sender, to), queue in sorted(self.queues.items())
            if queue and to not in self.dead
        ]
        if self.crash and not self.dead:
            found += [Step(name, f"crash {name}") for name in self.taken]
        return found

    def own_accord(self, step: Step) -> bool:
        return step.queue.startswith("crash")

    def waiting(self) -> dict[str, list[Step]]:
        return {
            f"{sender}>{to}": [Step(to, f"{sender}>{to}")] * len(queue)
            for (sender, to), queue in sorted(self.queues.items())
            if queue and to not in self.dead
        }

    def take(self, step: Step) -> None:
        if self.own_accord(step):
            self.dead.append(step.actor)
            return
        sender, to = step.queue.split(">")
        taken = self.taken[to]
        answers = self.answers.get((to, len(taken)), ())
        taken.append(self.queues[sender, to].pop(0))
        for source, target, text in answers:
            self.queues.setdefault((source, target), []).append(text)

    def copy(self) -> bytes:
        return pickle.dumps((self.taken, self.dead, self.queues))

    def restore(self, copied: bytes) -> None:
        self.taken, self.dead, self.queues = pickle.loads(copied)

    def digest(self) -> Hashable:
        alive = [(where, queue) for where, queue in sorted(self.queues.items()) if queue]
        return repr((self.taken, self.dead, [entry for entry in alive if entry[0][1] not in self.dead]))


def _searched(seed: int, reduction: Reduction) -> tuple[Progress, list[Hashable]]:
    model = Messages(seed)
    ends: dict[Hashable, None] = {}

    class Ends(Watcher):
        def ended(self) -> bool:
            ends[model.digest()] = None
            return False

    return Search(model, reduction, Ends()).run(), sorted(ends, key=str)


def test_a_reduced_search_reaches_every_end_of_a_full_one() -> None:
    saved = 0
    for seed in range(SEEDS):
        full, ends = _searched(seed, Reduction(order=False))
        reduced, found = _searched(seed, Reduction())
        assert full.complete and reduced.complete
        assert found == ends, f"seed {seed}"
        saved += full.steps - reduced.steps
    assert saved > 0


def test_states_that_were_met_before_are_not_searched_again() -> None:
    walked, ends = _searched(1, Reduction(order=False, states=False))
    hashed, found = _searched(1, Reduction(order=False))
    assert found == ends and 1 < hashed.steps < walked.steps


class Forgetful(Messages):
    """Whose actors only know which messages they took, and not in what order; their answers follow from how many."""

    def digest(self) -> Hashable:
        queues = [(where, queue) for where, queue in sorted(self.queues.items()) if queue]
        return repr(({name: sorted(each) for name, each in self.taken.items()}, self.dead, queues))


def test_each_step_leads_to_a_new_state_or_is_reported_with_a_way_to_an_end() -> None:
    pasts_met_again = 0
    for seed in range(SEEDS):
        model = Forgetful(seed)

        class Ways(Watcher):
            again = 0
            search: Search

            def __init__(self, model: Forgetful) -> None:
                self.pasts: dict[str, str] = {}
                self.first: dict[Hashable, Hashable] = {}
                self.model = model

            def stepped(self, before: Hashable, after: Hashable) -> None:
                self.pasts.setdefault(str(after), repr(self.model.taken))
                self.first.setdefault(before, after)

            def met_again(self, state: Hashable) -> bool:
                self.again += 1
                assert self.model.digest() == state
                nonlocal pasts_met_again
                pasts_met_again += self.pasts.get(str(state)) not in (None, repr(self.model.taken))
                for step, after in self.search.way_from(state):
                    assert after == self.first[self.model.digest()], "the way is that of the first steps"
                    self.model.take(step)
                    assert self.model.digest() == after
                assert all(self.model.own_accord(step) for step in self.model.steps())
                return False

        watcher = Ways(model)
        watcher.search = Search(model, Reduction(), watcher)
        progress = watcher.search.run()
        assert progress.complete and progress.steps == progress.states - 1 + watcher.again, f"seed {seed}"
    assert pasts_met_again > 0, "a state was met with another past"


def test_whoever_looks_at_a_state_that_is_met_again_can_stop_the_search() -> None:
    class Stops(Watcher):
        met = 0

        def met_again(self, state: Hashable) -> bool:
            self.met += 1
            return True

    watcher = Stops()
    progress = Search(Forgetful(1), Reduction(), watcher).run()
    assert watcher.met == 1 and not progress.complete


def test_histories_are_one_for_judges_if_only_what_they_cannot_order_differs() -> None:
    def line(kind: str, text: str) -> HistoryLine:
        return HistoryLine(kind, text.encode())

    first, second = line("milestone", "1"), line("milestone", "2")
    heard, other, own, another = (
        line("heard", "a"),
        line("heard", "b"),
        line("of one", "x"),
        line("of one", "y"),
    )
    lines = [first, heard, other, own, second, another]
    assert told_apart(lines) == told_apart([own, another, first, other, heard, second])
    for changed in (
        [second, heard, other, own, first, another],  # milestones in another order
        [first, heard, own, second, other, another],  # heard after another milestone
        [first, heard, other, second, another],
        [first, heard, other, own, CRASHED, second, another],
    ):
        assert told_apart(changed) != told_apart(lines)
    before, after = [first, CRASHED, second, heard], [first, second, CRASHED, heard]
    assert told_apart(before) != told_apart(after)


@pytest.mark.long
def test_a_digest_that_leaves_out_what_the_future_depends_on_is_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """If files of the checkpoint were no part of a state, two states with different ends would be taken for one."""
    monkeypatch.setattr(searched_world, "_of_disk", lambda disk: None)
    with_crash = dataclasses.replace(SMALLEST, crashes=1)
    with pytest.raises(InternalError, match="two ways led to one state"):
        search_scope(with_crash, seconds=60)


def test_a_search_that_is_out_of_time_is_not_complete() -> None:
    progress = Search(Messages(5), seconds=0.0).run()
    assert not progress.complete and progress.states == 1


@pytest.mark.parametrize(("bug", "what"), [("LO-16", "RLock"), ("RR-01", "recursion")])
def test_a_bug_whose_code_cannot_be_copied_is_told_apart_from_one_of_the_search(bug: str, what: str) -> None:
    with pytest.raises(UsageProblem, match=f"line-exactly-once cannot be searched with this bug.*{what}"):
        search_scope(planted_in(SMALLEST, bug))


def test_the_smallest_job_is_searched_completely() -> None:
    result = search_scope(SMALLEST)
    assert (result.complete, result.states, result.ends, result.histories) == (True, 197, 2, 6)
    assert result.findings == ()


@pytest.mark.long
@pytest.mark.parametrize("scope", SCOPES.values(), ids=SCOPES)
def test_a_world_goes_on_from_a_copy_of_it_as_it_went_on_itself(scope: Scope) -> None:
    """Random walks to an end; from copies on the way, the same steps lead to the same states and the same end."""
    draw = random.Random(scope.name)
    crashed = 0
    with prepared(scope) as ready:
        model = ready.model
        first = model.copy()
        for walk in range(4):
            if walk:
                model.restore(first)
            path: list[Step] = []
            digests: list[Hashable] = []
            copies: list[bytes] = []
            while steps := model.steps():
                path.append(draw.choice(steps))
                copies.append(model.copy())
                model.take(path[-1])
                digests.append(model.digest())
            end = model.outcome()
            crashed += model.root.fault is not None
            assert ready.judge(path) is None
            for place in (0, *draw.sample(range(len(path)), 2)):
                model.restore(copies[place])
                for step, digest in zip(path[place:], digests[place:], strict=True):
                    model.take(step)
                    assert model.digest() == digest, (step, place)
                assert model.outcome() == end, place
                assert ready.judge(path) is None, place
    assert crashed > 0 or not scope.crashes, "a crash is among the steps that are copied"


@pytest.mark.nightly
def test_a_line_without_a_crash_is_searched_completely() -> None:
    result = search_scope(WITHOUT_CRASH)
    assert (result.complete, result.states, result.ends, result.histories) == (True, 2182, 8, 35)
    assert result.findings == ()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "states", "ends", "histories"),
    [
        ("last-exactly-once", 17_778, 74, 819),
        ("last-at-least-once", 17_778, 74, 819),
        ("last-unaligned", 23_496, 216, 997),
    ],
)
def test_a_line_with_a_crash_at_any_place_is_searched_completely(
    name: str, states: int, ends: int, histories: int
) -> None:
    result = search_scope(SCOPES[name])
    assert (result.complete, result.states, result.ends, result.histories) == (True, states, ends, histories)
    assert result.findings == ()


@pytest.mark.nightly
def test_a_planted_bug_is_found_and_its_choices_show_it_again() -> None:
    scope = planted_in(WITHOUT_CRASH, "AL-01")
    (finding,) = search_scope(scope).findings
    assert finding.verdict is Verdict.INVALID
    again, choices = read_path(path_file(scope, finding).decode(), "finding.json")
    assert replay_path(again, choices) == finding
    with pytest.raises(UsageProblem, match="choice 1, 'nothing', is not possible"):
        replay_path(again, ["nothing"])
