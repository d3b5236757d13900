"""A bug is looked for in rounds, and what is found must be gone elsewhere; grain: tables, with a scripted search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.yardstick.bugs import KnownBug
from barrier_tck.harness.yardstick.looking import Looked, look_for, reconsidered
from barrier_tck.harness.yardstick.results import (
    Finding,
    Played,
    Result,
    Round,
    Status,
    read_result,
    result_path,
    write_result,
    written_by_hand,
)
from tests.harness.yardstick.known_bug import BUG, bug

NOTHING, ONE, NONE_TRIED = "nothing", "one finding", "nothing tried"


class Scripted:
    """A search of which each round takes 100 s, and shows what a script says."""

    def __init__(
        self, rounds: Sequence[str], compared: Sequence[Played] = (), again: Played = Played.THERE
    ) -> None:
        self._rounds: Iterator[str] = iter(rounds)
        self._compared = iter(compared)
        self._again = again
        self.looked: list[tuple[int, float]] = []
        self.played: list[str] = []

    def look(self, bug: KnownBug, seed: int, seconds: float) -> Looked:
        self.looked.append((seed, seconds))
        script = next(self._rounds)
        if script == NONE_TRIED:
            return Looked(Round(seed, 0, 0.0, 0.0), "there is no such release")
        findings = (Finding("checker", "lost", f"findings/{seed}.json", "repeat"),) if script == ONE else ()
        return Looked(Round(seed, 7, 100.0, 120.0, findings))

    def play(self, bug: KnownBug, finding: Finding, release: str) -> tuple[Played, str]:
        self.played.append(release)
        return (self._again if release == bug.pyspark else next(self._compared)), ""


def looked_for(
    search: Scripted, before: Result | None = None, of: KnownBug = BUG
) -> tuple[Result, list[Result]]:
    """Look for a bug for 250 s, with the seeds 1, 2, 3; return the result and what was kept meanwhile."""
    kept: list[Result] = []
    seeds = count(1)
    return look_for(of, before, 250.0, search, lambda: next(seeds), kept.append), kept


def test_rounds_have_fresh_seeds_and_share_the_time() -> None:
    search = Scripted([NOTHING, NOTHING, NOTHING])
    result, kept = looked_for(search)
    assert result.status is Status.NOT_FOUND
    assert search.looked == [(1, 250.0), (2, 150.0), (3, 50.0)]
    assert (result.tried, result.processor_seconds) == (21, 300.0)
    assert [len(one.rounds) for one in kept] == [1, 2, 3, 3]
    assert [one.status for one in kept] == [*(Status.UNFINISHED,) * 3, Status.NOT_FOUND]


def test_what_is_gone_elsewhere_is_the_bug_and_the_search_ends() -> None:
    search = Scripted([NOTHING, ONE], [Played.GONE])
    result, _ = looked_for(search)
    assert result.status is Status.FOUND
    assert search.played == [BUG.pyspark, BUG.compared]
    (finding,) = result.findings
    assert (finding.on_affected, finding.on_compared) == (Played.THERE, Played.GONE)


def test_what_is_elsewhere_too_is_something_else_and_the_search_goes_on() -> None:
    result, _ = looked_for(Scripted([ONE, NOTHING, ONE], [Played.THERE, Played.GONE]))
    assert result.status is Status.FOUND
    assert len(result.rounds) == 3
    result, _ = looked_for(Scripted([ONE, NOTHING, NOTHING], [Played.THERE]))
    assert result.status is Status.ELSEWHERE_TOO


def test_what_cannot_be_compared_is_not_called_found() -> None:
    result, _ = looked_for(Scripted([ONE, NOTHING, ONE], [Played.UNKNOWN, Played.THERE]))
    assert result.status is Status.UNCLEAR


def test_what_does_not_show_again_is_not_called_found_until_a_person_confirms_it() -> None:
    result, _ = looked_for(Scripted([ONE, NOTHING, NOTHING], [Played.GONE], Played.GONE))
    assert result.status is Status.UNCLEAR
    assert len(result.rounds) == 3, "and the search went on"
    assert reconsidered(result) == result
    finding = msgspec.structs.replace(result.findings[0], confirmed="its stack is that of the report")
    first = msgspec.structs.replace(result.rounds[0], findings=(finding,))
    confirmed = msgspec.structs.replace(result, rounds=(first, *result.rounds[1:]))
    assert reconsidered(confirmed).status is Status.FOUND


def test_what_a_person_dismisses_counts_no_more_and_the_search_goes_on() -> None:
    result, _ = looked_for(Scripted([ONE], [Played.GONE]))
    assert reconsidered(result) == result
    (found,) = result.rounds
    finding = msgspec.structs.replace(found.findings[0], dismissed="the call has another name there")
    dismissed = msgspec.structs.replace(result, rounds=(msgspec.structs.replace(found, findings=(finding,)),))
    assert reconsidered(dismissed).status is Status.UNFINISHED
    search = Scripted([NOTHING, NOTHING])
    again, _ = looked_for(search, reconsidered(dismissed))
    assert (again.status, len(again.rounds)) == (Status.NOT_FOUND, 3)


def test_what_cannot_be_run_says_why_and_runs_nothing() -> None:
    search = Scripted([])
    result, kept = looked_for(search, of=bug(cannot_run="no release has it"))
    assert (result.status, result.reason) == (Status.CANNOT_RUN, "no release has it")
    assert kept == [result]
    assert search.looked == []


def test_a_first_round_without_a_trial_ends_the_search_with_its_reason() -> None:
    result, kept = looked_for(Scripted([NONE_TRIED]))
    assert (result.status, result.reason) == (Status.CANNOT_RUN, "there is no such release")
    assert kept[-1] == result


def test_a_later_round_without_a_trial_leaves_what_was_shown() -> None:
    result, _ = looked_for(Scripted([NOTHING, NONE_TRIED]))
    assert (result.status, result.reason) == (Status.NOT_FOUND, "there is no such release")


def test_an_interrupted_search_is_gone_on_with() -> None:
    class Interrupted(Scripted):
        def look(self, bug: KnownBug, seed: int, seconds: float) -> Looked:
            if seed == 2:
                raise KeyboardInterrupt
            return super().look(bug, seed, seconds)

    kept: list[Result] = []
    seeds = count(1)
    with pytest.raises(KeyboardInterrupt):
        look_for(BUG, None, 250.0, Interrupted([NOTHING]), lambda: next(seeds), kept.append)
    assert kept[-1].status is Status.UNFINISHED
    assert not kept[-1].is_over(50.0)
    search = Scripted([NOTHING, NOTHING])
    result, _ = looked_for(search, kept[-1])
    assert [left for _, left in search.looked] == [150.0, 50.0]
    assert (result.status, result.tried) == (Status.NOT_FOUND, 21)


def test_a_miss_is_gone_on_with_when_there_is_more_time_and_a_find_is_not() -> None:
    missed, _ = looked_for(Scripted([NOTHING, NOTHING, NOTHING]))
    assert missed.is_over(300.0)
    assert not missed.is_over(301.0)
    found, _ = looked_for(Scripted([ONE], [Played.GONE]))
    assert found.is_over(1_000.0)
    cannot, _ = looked_for(Scripted([NONE_TRIED]))
    assert cannot.is_over(1_000.0)


def test_a_result_is_kept_and_read_again(tmp_path: Path) -> None:
    assert read_result(tmp_path, BUG) is None
    assert written_by_hand(tmp_path, BUG.id) == ""
    result, _ = looked_for(Scripted([NOTHING, ONE], [Played.GONE]))
    result = msgspec.structs.replace(result, lacks="late files")
    write_result(tmp_path, result)
    assert read_result(tmp_path, BUG) == result
    assert written_by_hand(tmp_path, BUG.id) == "late files"


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ('"version": 1', '"version": 2', "newer version"),
        ('"status": "not found"', '"status": "lost"', "status"),
        ('"rounds"', '"round"', "round"),
        ('"pyspark": "4.0.0"', '"pyspark": "3.5.0"', "--again"),
        ('"id": "SPARK-1"', '"id": "SPARK-2"', "SPARK-2"),
        ("{", "", "JSON"),
    ],
)
def test_a_result_that_is_none_is_refused(tmp_path: Path, before: str, after: str, said: str) -> None:
    result, _ = looked_for(Scripted([NOTHING] * 3))
    write_result(tmp_path, result)
    path = result_path(tmp_path, BUG.id)
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after, 1))
    with pytest.raises(UsageProblem, match=said):
        read_result(tmp_path, BUG)
