"""Rounds run in an environment with the release; grain: small wheels that take the place of PySpark, and its command.

No network is needed, and no Spark: the release's command writes what a certification or a campaign leaves.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.campaign.bisected_releases import ReleasePlace
from barrier_tck.harness.plan.trial_plan import TrialPlan, to_json
from barrier_tck.harness.record.records import RECORD_VERSION, CampaignRecord, FindingGroup
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.yardstick import running
from barrier_tck.harness.yardstick.bugs import CampaignLook
from barrier_tck.harness.yardstick.results import Played
from barrier_tck.harness.yardstick.running import InEnvironments
from tests.harness.campaign.test_bisected_releases import write_wheel
from tests.harness.yardstick.known_bug import bug

COMMAND = """
import json, sys
from pathlib import Path
VERSION, SHOWS = {version!r}, {shows!r}
arguments = sys.argv[1:]
with open({log!r}, "a") as log:
    print(VERSION, *arguments, file=log)
if arguments[0] == "replay":
    print(json.dumps({{"verdict": SHOWS}}))
    sys.exit({{"valid": 0, "invalid": 1}}[SHOWS])
if SHOWS == "refused":
    print(json.dumps({{"error": "the query is not deterministic"}}))
    sys.exit(3)
if SHOWS == "hangs":
    while True:
        pass
run = Path(arguments[arguments.index("--out") + 1], "campaign-1")
(run / "trials" / "00003").mkdir(parents=True)
(run / "campaign.json").write_text({record!r})
(run / "trials" / "00003" / "plan.json").write_text({plan!r})
"""
RECORD = CampaignRecord(
    version=RECORD_VERSION,
    name="campaign",
    system="structured-streaming",
    seed=1,
    verdict=Verdict.INVALID,
    trials=4,
    valid=3,
    invalid=1,
    unknown=0,
    faults_fired=4,
    recoveries=4,
    checkpoints_completed=9,
    started_at="2026-01-01T00:00:00+00:00",
    wall_seconds=9.0,
    groups=(
        FindingGroup(
            clause="SNK-1",
            checker="committed-output",
            shape="lost",
            trials=1,
            numbers=(3,),
            smallest_trial=3,
            summary="3 lost rows",
        ),
    ),
)
BUG = bug(
    look=CampaignLook("totals_by_key"), settings={}, pyspark="3.4.2", first_affected="3.4.0", compared="3.4.3"
)


@pytest.fixture(autouse=True)
def _without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let pip reach no index, even where it is configured with one, and take the releases' own command."""
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_RETRIES", "1")
    for name in ("PIP_FIND_LINKS", "PIP_NO_INDEX", "PIP_EXTRA_INDEX_URL", "PIP_CONFIG_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(running, "_COMMAND", "pyspark.a_command")
    monkeypatch.setattr("barrier_tck.harness.campaign.bisection._COMMAND", "pyspark.a_command")


def search_in(tmp_path: Path, **releases: str) -> InEnvironments:
    """Return a search among releases of PySpark; of each, what its command shows."""
    wheels = tmp_path / "wheels"
    wheels.mkdir(exist_ok=True)
    for release, shows in releases.items():
        version = release.removeprefix("of_").replace("_", ".")
        command = COMMAND.format(
            version=version,
            shows=shows,
            log=str(tmp_path / "log"),
            record=msgspec.json.encode(RECORD).decode(),
            plan=to_json(TrialPlan()),
        )
        write_wheel(wheels, "pyspark", version, {"pyspark/__init__.py": "", "pyspark/a_command.py": command})
    out = tmp_path / "out"
    out.mkdir(exist_ok=True)
    return InEnvironments(out, tmp_path / "work", ReleasePlace(folder=wheels))


def log_of(tmp_path: Path) -> list[str]:
    """Return the commands that the releases were given."""
    return (tmp_path / "log").read_text().splitlines()


def test_a_campaign_is_told_the_job_and_the_seed_and_no_schedule(tmp_path: Path) -> None:
    looked = search_in(tmp_path, of_3_4_2="invalid").look(BUG, 5, 60.0)
    assert (looked.round.seed, looked.round.tried, looked.problem) == (5, 4, "")
    (command,) = log_of(tmp_path)
    assert command.startswith("3.4.2 campaign --query barrier_tck.harness.yardstick.jobs:totals_by_key ")
    assert " --seed 5 " in command
    assert (tmp_path / "out" / "environments" / "3.4.2.txt").read_text() == "pyspark==3.4.2\n"


def test_what_is_found_is_kept_and_played_with_each_release(tmp_path: Path) -> None:
    search = search_in(tmp_path, of_3_4_2="invalid", of_3_4_3="valid")
    (finding,) = search.look(BUG, 5, 60.0).round.findings
    assert (finding.what, finding.summary) == ("committed-output (SNK-1)", "3 lost rows")
    assert (tmp_path / "out" / finding.file).read_text() == to_json(TrialPlan())
    assert search.play(BUG, finding, BUG.pyspark) == (Played.THERE, "")
    assert search.play(BUG, finding, BUG.compared) == (Played.GONE, "")
    played = [line.split()[:2] for line in log_of(tmp_path)[1:]]
    assert played == [["3.4.2", "replay"], *[["3.4.3", "replay"]] * 3], "once is enough where it shows again"


def test_an_environment_is_made_once_and_kept_for_the_next_command(tmp_path: Path) -> None:
    search_in(tmp_path, of_3_4_2="invalid").look(BUG, 5, 60.0)
    for wheel in (tmp_path / "wheels").iterdir():
        wheel.unlink()
    looked = search_in(tmp_path).look(BUG, 6, 60.0)
    assert looked.round.tried == 4


def test_a_release_that_cannot_be_installed_is_a_reason(tmp_path: Path) -> None:
    looked = search_in(tmp_path, of_3_4_3="valid").look(BUG, 5, 60.0)
    assert looked.round.tried == 0
    assert "pip cannot install it" in looked.problem


def test_what_the_command_says_is_the_reason(tmp_path: Path) -> None:
    looked = search_in(tmp_path, of_3_4_2="refused").look(BUG, 5, 60.0)
    assert (looked.round.tried, looked.problem) == (0, "the query is not deterministic")


def test_a_round_is_ended_when_its_time_is_over(tmp_path: Path) -> None:
    looked = search_in(tmp_path, of_3_4_2="hangs").look(BUG, 5, 1.0)
    assert looked.round.tried == 0
    assert looked.round.processor_seconds >= 1.0
    assert "in the time that there was" in looked.problem


def test_a_store_is_certified_with_the_settings_of_a_user() -> None:
    arguments = running._arguments(bug(), 5, Path("out"))
    assert arguments[:4] == ["certify", "spark:rocksdb", "--conf", "spark.a.b=true"]
    assert running._again(bug(), Path("x.json"))[-2:] == ["--replay", "x.json"]
