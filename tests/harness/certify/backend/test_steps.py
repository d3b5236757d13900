"""Steps of a certification: each has a description of its own, and survives a replay file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.certify.backend import listed_steps, steps, wire
from barrier_tck.harness.certify.backend.model import NAMES, RANGES
from barrier_tck.harness.certify.backend.simpler_steps import simpler_steps
from barrier_tck.harness.certify.backend.stage import BackendFailure
from barrier_tck.harness.cli.main import run


def test_every_step_has_a_description_and_survives_json() -> None:
    every: tuple[steps.AnyStep, ...] = (
        steps.Put(0, NAMES[0], 1, b"\xff\x00", b"v" * 100),
        steps.Delete(0, NAMES[0], 1, b""),
        steps.Get(0, NAMES[0], 1, b""),
        steps.Scan(1, NAMES[2], 7),
        steps.PutMany(0, NAMES[1], (1,), (b"k",), (b"v",)),
        steps.GetMany(0, NAMES[1], (1,), (b"k",)),
        steps.Snapshot(0, 1),
        steps.Snapshot(0, 2, wire.StorageFault(3, "short")),
        steps.Run(0, 1),
        steps.Start(0, 1, 2),
        steps.Finish(0, 1),
        steps.Run(0, 1, here=True),
        steps.Cancel(0, 1),
        steps.Cancel(0, 1, elsewhere=True),
        steps.Confirm(0, 1),
        steps.AbortSnapshot(0, 1),
        steps.Verify(0, 1, elsewhere=True),
        steps.Rescale((1, 0), 2, 9),
        steps.Restart((0, 1), "call"),
        steps.Crowd(0, 1, 10, 16, 2),
        steps.Dropped(0, 1, 10, 16, 2),
        steps.Resources(2),
        steps.Layout(((0, 40), (40, 64)), files_wanted=3),
        steps.Fill(0, NAMES[0], (1, 2), 1_000, 12, 30, salt=1),
        steps.DeleteMany(0, NAMES[0], (1, 2), 12, 0, 1_000, 2),
        steps.Series(0, 3, NAMES[0], 1, 5),
        steps.Failures(0, 3, NAMES[0], (0, 1), 100, 12, 5, reuse_from=1),
        steps.ReadAll(0),
        steps.DisturbedScan(0, NAMES[0], 1, b"a", b"b", b"c"),
        steps.Foreign(0, "get"),
        steps.Unseen(0, "confirm"),
        steps.Race(0, 3, NAMES[0], (0, 1), 5),
        steps.Race(0, 3, NAMES[0], (0, 1), 5, cancelled=True),
        steps.Steady(0, 3, 10, 16, 2),
        *(steps.Damaged(0, 1, -1, damage) for damage in wire.DAMAGES),
        steps.CutOff(0, 1, -1, 100),
        steps.Restart((1, 0), "bare"),
        steps.Damaged(1, 2, 0, "half", beside=1),
        steps.ManyStates(0, 300),
        steps.Closed(3),
        steps.ClosedAmid(3, 2),
        steps.Chain(0, 3, NAMES[0], (0, 1), 100, 12, 5),
        steps.Refusals(0, 1, 2),
        steps.SideBySide(3),
        steps.ManySources((0, 2, 5), 3, files_wanted=7),
        steps.SideBySide(3, (1, 4)),
        steps.Repeated(1, 8),
        steps.Repeated(1, 8, incremental=True),
        steps.Layout(((0, 40), (40, 64)), compression="zstd"),
        steps.Layout(((0, 40), (40, 64)), own_threads=False),
        steps.Restart((0, 1), compression="zstd"),
        steps.Verify(0, 1),
        steps.Verify(0, 1, compression="none"),
        steps.Verify(0, 1, compression="zstd"),
        steps.Verify(0, 1, read_only=True),
        steps.Layout(((0, 40), (40, 64)), second="zstd"),
        steps.Verify(0, 1, second=True),
    )
    failure = BackendFailure("heap", "all-at-once", "?", every)
    assert msgspec.json.decode(msgspec.json.encode(failure), type=BackendFailure) == failure
    assert len({step.description() for step in every}) == len(every)
    one = steps.Fill(0, NAMES[0], (1,), 1, 6, 8).description()
    assert ": 1 key of 6 bytes, values of 8, " in one


@pytest.mark.parametrize(
    ("step", "written"),
    [
        (steps.SideBySide(3), ("'totals'", "k0, ..., k5", "job 'certified-keyed'", "subtask 1")),
        (steps.ManySources((0, 3, 4), 2), ("three keys into each key group", "'totals'", "[0, 3, 4]")),
        (steps.Closed(3), ("b'v' at b'k' of 'totals' in key group 1", "snapshot 3")),
        (steps.Resources(2), ("first and k0 to k3 of 'totals'", "000000")),
        (steps.Series(0, 3, NAMES[0], 1, 5), ("b'newest' of 'totals', key group 1",)),
        (steps.Repeated(1, 8), ("60 entries (00000, ...) of 'totals'", "from 1 to 8")),
    ],
)
def test_a_step_that_writes_by_itself_says_what_it_writes(
    step: steps.AnyStep, written: tuple[str, ...]
) -> None:
    assert [each for each in written if each not in step.description()] == []


def test_checks_of_several_stores_become_smaller() -> None:
    fewer = list(simpler_steps(steps.ManySources((0, 3, 4, 9, 16), 2, files_wanted=7)))
    bounds = [step.bounds for step in fewer if isinstance(step, steps.ManySources)]
    assert {(0, 3, 4), (4, 9, 16), (0, 4, 9, 16), (3, 4, 9, 16)} <= set(bounds)
    assert any(isinstance(step, steps.ManySources) and step.files_wanted == 1 for step in fewer)
    assert list(simpler_steps(steps.ManySources((0, 3), 2))) == []
    stores = [
        step.stores for step in simpler_steps(steps.SideBySide(1)) if isinstance(step, steps.SideBySide)
    ]
    assert (0, 1, 2) in stores and (0, 1, 2, 3, 4) in stores
    assert list(simpler_steps(steps.SideBySide(1, (3,)))) == []


@pytest.mark.parametrize(
    ("step", "plain"),
    [
        (
            steps.Layout(RANGES, 3, compression="zstd", own_threads=False, incremental=True),
            steps.Layout(RANGES, incremental=True),
        ),
        (steps.Verify(0, 1, compression="zstd", read_only=True), steps.Verify(0, 1)),
        (steps.Restart((1, 0), compression="zstd"), steps.Restart((1, 0))),
    ],
)
def test_hints_that_do_not_matter_are_left_out(step: steps.AnyStep, plain: steps.AnyStep) -> None:
    assert plain in list(simpler_steps(step)) and list(simpler_steps(plain)) == []


@pytest.mark.long
def test_a_replay_file_does_not_choose_what_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = "tests.harness.certify.backend.misbehaving_backends:RaisesWhenMade"
    file = tmp_path / "failure.json"
    file.write_bytes(
        msgspec.json.encode(BackendFailure(target, "all-at-once", "?", (steps.Get(0, NAMES[0], 1, b""),)))
    )
    assert run(["certify", "--replay", str(file)]) == 3
    assert f"name it too: barrier-tck certify {target} --replay {file}" in capsys.readouterr().err
    assert run(["certify", "heap", "--replay", str(file)]) == 0
    message = capsys.readouterr().out
    assert "1. store0.get('totals', 1, b'')" in message


def _fills(played: Sequence[steps.AnyStep]) -> list[steps.Fill]:
    return [step for step in played if isinstance(step, steps.Fill)]


@pytest.mark.parametrize("incremental", [False, True])
def test_large_batches_are_of_every_size_in_one_group_and_in_several_with_three_unfinished(
    incremental: bool,
) -> None:
    played = listed_steps.batches_written_over(1.0, incremental)
    sizes = {(fill.count, len(fill.groups) > 1) for fill in _fills(played)}
    assert sizes == {(size, several) for size in (2, 16, 100, 256, 1_000, 4_096) for several in (False, True)}
    unfinished: set[int] = set()
    most, verified = 0, set()
    for step in played:
        match step:
            case steps.Snapshot(checkpoint=number, reuse_from=reuse_from):
                assert bool(reuse_from) == incremental
                unfinished.add(number)
                most = max(most, len(unfinished))
            case steps.Run(checkpoint=number):
                unfinished.remove(number)
            case steps.Verify(checkpoint=number):
                verified.add(number)
    assert most == 3 and not unfinished
    assert verified == {step.checkpoint for step in played if isinstance(step, steps.Snapshot)}
    salts = [fill.salt for fill in _fills(played)]
    assert salts == [0, 1, 0, 2] * len(sizes), "the values of the beginning come back, and others follow"


def test_contents_come_again_after_others_and_each_increment_is_restored() -> None:
    played = listed_steps.contents_that_come_again()
    verified = [step.checkpoint for step in played if isinstance(step, steps.Verify) and not step.elsewhere]
    assert verified == [step.checkpoint for step in played if isinstance(step, steps.Snapshot)]
    changes = [step for step in played if isinstance(step, (steps.Fill, steps.DeleteMany))]
    kinds = [step.salt if isinstance(step, steps.Fill) else "deleted" for step in changes]
    assert kinds == [0, 1, 0, 1, "deleted", 0, "deleted", 0] * 4
    assert any(isinstance(step, steps.Verify) and step.elsewhere for step in played)


def test_stores_side_by_side_have_names_that_are_alike_when_joined_by_anything_or_nothing() -> None:
    for separator, numbers in zip(steps.SEPARATORS, steps.JOINED_ALIKE, strict=True):
        places = [steps.SIDE_BY_SIDE[number] for number in numbers]
        assert len(set(places)) == len(places) >= 3
        joined = {separator.join(map(str, place)) for place in places}
        assert len(joined) < len(places), separator
    assert "" in steps.SEPARATORS
    played = listed_steps.stores_side_by_side()
    asked = [step.stores for step in played if isinstance(step, steps.SideBySide)]
    assert set(steps.JOINED_ALIKE) <= set(asked)


def test_a_replay_says_which_steps_did_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played: tuple[steps.AnyStep, ...] = (
        steps.Put(0, NAMES[0], 0, b"k", b"v"),
        steps.Verify(0, 99),
        steps.Snapshot(0, 1),
        steps.Run(0, 1),
        steps.Verify(0, 1),
    )
    file = tmp_path / "replay.json"
    file.write_bytes(msgspec.json.encode(BackendFailure("heap", "all-at-once", "", played)))
    assert run(["certify", "heap", "--replay", str(file)]) == 0
    printed = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert printed[-1] == "nothing is violated, but 1 of 5 steps did nothing"
    at = printed.index("did nothing: it was not possible then")
    assert printed[at - 1].startswith("2. restore snapshot 99")
