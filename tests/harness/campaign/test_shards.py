"""Shards: together they are the whole campaign, trial by trial, and nothing else can be joined.

Grain: shards as values; small simulated campaigns, run as a whole and in shards, side by side.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.campaign import dropped_faults
from barrier_tck.harness.campaign.budget import Budget
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, configuration_from
from barrier_tck.harness.campaign.joining import join, joinable, run_directories
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.campaign.runner import resume_campaign, run_campaign
from barrier_tck.harness.campaign.shards import Shard, shard_of
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.trial_rows import RowsInParquet
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.system.system_names import open_system
from tests.harness.campaign.test_same_campaign import EVEN, UNEVEN, interrupted_at
from tests.harness.campaign.test_trial_pool import BUGGY, files_of, without_times

SMALL = {"seed": 3, "trials": 7, "controls": 0}


def run_shards(
    wanted: CampaignConfiguration, of: int, at: Path, system: str = EVEN, **how: Any
) -> list[Path]:
    paths = [at / f"shard-{index}" for index in range(1, of + 1)]
    for index, path in enumerate(paths, start=1):
        run_campaign(wanted, open_system(system), path, shard=Shard(index, of), **how)
    return paths


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("shards")
    run_shards(configuration_from(SMALL, "test"), 2, at)
    return at


# --- which trials ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("of", [1, 2, 3, 7])
def test_shards_share_all_trials(of: int) -> None:
    shards = [Shard(index, of) for index in range(1, of + 1)]
    for trials in range(20):
        own = [[shard.number(place) for place in range(shard.places(trials))] for shard in shards]
        assert sorted(number for numbers in own for number in numbers) == list(range(trials))
        assert [[number for number in range(trials) if shard.owns(number)] for shard in shards] == own
    assert [Shard(2, 5).number(place) for place in range(3)] == [1, 6, 11]
    assert Shard(2, 5).budget(Budget(trials=8)) == Budget(trials=2)


@pytest.mark.parametrize("text", ["0/2", "3/2", "1", "1/0", "a/b", "1/2/3", "-1/2", "1/99999999"])
def test_no_other_shard_is_understood(text: str) -> None:
    with pytest.raises(UsageProblem, match="--shard is '"):
        shard_of(text, "--shard")


@pytest.mark.parametrize(
    "values",
    [
        {"faults": {"per_trial": [1, 2]}},
        pytest.param({"profile": "graphs"}, marks=pytest.mark.long),
        {"trial": [{"repeat": 2}, {"note": "b"}], "faults": {"per_trial": [0, 1]}},
        {"trial": [{"repeat": 3}, {"note": "b", "repeat": 2}]},
    ],
)
def test_a_shard_has_every_nth_plan_of_the_whole(values: dict[str, Any]) -> None:
    wanted, system = configuration_from({"seed": 9} | values, "test"), open_system(EVEN)
    whole = list(islice(campaign_plans(wanted, system), 11))
    for index in (1, 2, 3):
        shard = Shard(index, 3)
        own = list(islice(campaign_plans(wanted, system, shard.owns), shard.places(11)))
        assert own == whole[index - 1 :: 3]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (["--trials", "4"], "all shards need the same seed"),
        (["--seed", "1", "--budget", "1s"], "a budget of time gives each shard another number of trials"),
        (["--seed", "1", "--fail-fast"], "a shard cannot know when another one fails"),
        (["--seed", "1", "--trials", "1"], "of 1 trials this shard has none"),
    ],
)
def test_a_campaign_that_shards_would_change_is_refused(
    given: list[str], sentence: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["campaign", "--shard", "2/2", "--out", str(tmp_path / "runs"), *given]) == 3
    assert sentence in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "runs").exists()


# --- one run of many ------------------------------------------------------------------------------------------------


def assert_joined_is_whole(whole: Path, joined: Path, but: tuple[str, ...] = ()) -> None:
    one, many = open_run(whole), open_run(joined)
    assert [without_times(trial) for trial in tuple(many.rows())] == [
        without_times(trial) for trial in tuple(one.rows())
    ]
    left, right = without_times(many.campaign), without_times(one.campaign)
    assert {k: v for k, v in left.items() if k not in but} == {k: v for k, v in right.items() if k not in but}
    assert many.kept == one.kept
    assert files_of(joined) == files_of(whole) != {}
    for name in one.campaign.shrunk.values():
        assert (joined / name).read_bytes() == (whole / name).read_bytes()


@pytest.mark.nightly
def test_joined_shards_are_the_whole_campaign(tmp_path: Path) -> None:
    wanted = configuration_from({"seed": 5, "trials": 24, "controls": 0}, "test")
    run_campaign(wanted, open_system(EVEN), tmp_path / "whole")
    paths = run_shards(wanted, 3, tmp_path)
    assert all(open_run(path).campaign.shard for path in paths)
    join(paths[::-1], tmp_path / "joined")
    assert_joined_is_whole(tmp_path / "whole", tmp_path / "joined")


@pytest.mark.nightly
def test_failures_keep_their_plans_and_the_first_of_the_whole_are_shrunk(tmp_path: Path) -> None:
    wanted = configuration_from({"seed": 5, "trials": 8}, "test")
    run_campaign(wanted, open_system(BUGGY), tmp_path / "whole")
    join(run_shards(wanted, 2, tmp_path, BUGGY), tmp_path / "joined")
    assert_joined_is_whole(tmp_path / "whole", tmp_path / "joined", ("controls",))
    assert open_run(tmp_path / "joined").campaign.shrunk


@pytest.mark.nightly
def test_what_may_be_dropped_is_decided_for_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of the shards may drop two faults, and so may all of them together."""
    monkeypatch.setattr(dropped_faults, "DROPPED_ANYWAY", 2)
    wanted = configuration_from(
        {"seed": 13, "trials": 24, "faults": {"per_trial": [1, 1]}, "controls": 0}, "test"
    )
    whole = run_campaign(wanted, open_system(UNEVEN), tmp_path / "whole")
    paths = run_shards(wanted, 3, tmp_path, UNEVEN)
    shards = [open_run(path).campaign for path in paths]
    assert sum(shard.unknown for shard in shards) < whole.unknown, "each shard alone drops more"
    join(paths, tmp_path / "joined")
    assert_joined_is_whole(tmp_path / "whole", tmp_path / "joined", ("shrunk",))


@pytest.mark.long
def test_controls_of_shards_are_added_up(tmp_path: Path) -> None:
    wanted = configuration_from(
        {"seed": 11, "trials": 16, "faults": {"per_trial": [1, 3]}, "controls": 1}, "test"
    )
    paths = run_shards(wanted, 2, tmp_path)
    join(paths, tmp_path / "joined")
    controls = open_run(tmp_path / "joined").campaign.controls
    assert controls is not None and controls.trials == 16
    assert [control.verdict for control in controls.ran] == [Verdict.INVALID] * 2
    for control in controls.ran:
        assert (tmp_path / "joined" / control.plan).is_file()


def test_what_only_all_trials_can_show_is_no_finding_of_a_shard(tmp_path: Path) -> None:
    """Not one of these trials had a duplicate, which a campaign in this mode must have shown."""
    wanted = configuration_from(
        {
            "seed": 1,
            "trials": 4,
            "controls": 0,
            "mix": {"mode": {"at_least_once": 1}},
            "profile": "faultless",
        },
        "test",
    )
    paths = run_shards(wanted, 2, tmp_path)
    assert {open_run(path).campaign.verdict for path in paths} == {Verdict.VALID}
    assert join(paths, tmp_path / "joined").verdict is Verdict.UNKNOWN


def test_an_interrupted_shard_is_resumed_as_a_shard(tmp_path: Path, shards: Path) -> None:
    wanted = configuration_from(SMALL, "test")
    path = tmp_path / "shard"
    assert run_campaign(wanted, interrupted_at(2, open_system(EVEN)), path, shard=Shard(2, 2)).interrupted
    with pytest.raises(UsageProblem, match=r"\(shard 2/2\) was interrupted; finish it: barrier-tck campaign"):
        joinable([shards / "shard-1", path])
    resume_campaign(path, open_system(EVEN))
    assert [trial.trial for trial in tuple(open_run(path).rows())] == [1, 3, 5]
    joinable([shards / "shard-1", path])


def test_rows_in_parquet_stay_in_parquet(tmp_path: Path, shards: Path) -> None:
    in_parquet = tmp_path / "shard-1"
    shutil.copytree(shards / "shard-1", in_parquet)
    (in_parquet / "trials.jsonl").unlink()
    rows = RowsInParquet(in_parquet)
    for trial in tuple(open_run(shards / "shard-1").rows()):
        rows.append(trial)
    rows.flush()
    join([in_parquet, shards / "shard-2"], tmp_path / "joined")
    assert [trial.trial for trial in tuple(open_run(tmp_path / "joined").rows())] == list(range(7))
    assert (tmp_path / "joined" / "trials.parquet").is_dir()


# --- what is no campaign --------------------------------------------------------------------------------------------


def _changed(path: Path, **values: Any) -> None:
    file = path / "campaign.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | values))


REFUSED: dict[str, tuple[Callable[[Path], object], str]] = {
    "one is missing": (lambda at: shutil.rmtree(at / "shard-2"), "1 of 2 shards are missing: 2/2"),
    "one is there twice": (
        lambda at: shutil.copytree(at / "shard-2", at / "shard-3"),
        "shard 2/2 is there twice: ",
    ),
    "another seed": (lambda at: _changed(at / "shard-2", seed=4), "are of different seeds: 3 and 4"),
    "another campaign": (
        lambda at: _changed(at / "shard-2", name="b"),
        "of different campaigns: standard and b",
    ),
    "another number of shards": (
        lambda at: _changed(at / "shard-2", shard="2/3", trials=2),
        "are of different numbers of shards: 2 and 3",
    ),
    "another version": (
        lambda at: _changed(at / "shard-2", environment={"barrier-tck": "9.9"}),
        "are of different versions of barrier-tck: ",
    ),
    "another profile": (
        lambda at: _changed(
            at / "shard-2",
            configuration=json.loads((at / "shard-2" / "campaign.json").read_text())["configuration"]
            | {"profile": "lite"},
        ),
        "of different campaigns: profile is not the same",
    ),
    "a whole campaign": (
        lambda at: _changed(at / "shard-2", shard=""),
        "is a whole campaign and no shard of one",
    ),
    "one is interrupted": (
        lambda at: _changed(at / "shard-2", interrupted=True),
        "(shard 2/2) was interrupted",
    ),
    "too few trials": (
        lambda at: _changed(at / "shard-2", trials=2),
        "has 2 trials, and shard 2/2 3; run it anew",
    ),
    "no shard": (lambda at: _changed(at / "shard-2", shard="x"), "campaign.json is 'x'; write which shard"),
    "rows of another shard": (
        lambda at: shutil.copyfile(at / "shard-1" / "trials.jsonl", at / "shard-2" / "trials.jsonl"),
        "trial 0 is not the one that comes next in shard 2/2",
    ),
}


@pytest.mark.parametrize("what", REFUSED)
def test_anything_else_is_refused_in_one_sentence(
    what: str, tmp_path: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    spoil, sentence = REFUSED[what]
    at = tmp_path / "shards"
    shutil.copytree(shards, at)
    spoil(at)
    assert cli.run(["join", str(at), "--out", str(tmp_path / "runs")]) == 3
    assert sentence in " ".join(capsys.readouterr().err.split())


def test_the_command_joins_what_lies_in_a_directory(
    tmp_path: Path, shards: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run_directories([shards]) == (shards / "shard-1", shards / "shard-2")
    assert cli.run(["join", str(shards), "--out", str(tmp_path / "runs"), "--json"]) == 0
    found = msgspec.json.decode(capsys.readouterr().out.splitlines()[-1])
    assert (found["verdict"], found["trials"]) == ("valid", 7)
    assert (Path(found["run_directory"]) / "report.html").is_file()
    assert cli.run(["join", str(tmp_path / "nothing")]) == 3
