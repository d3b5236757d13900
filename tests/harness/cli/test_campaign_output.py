"""What a campaign prints before its first trial and after its last reads as English; grain: text."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.campaign.configuration import CampaignConfiguration, ClusterSection, SystemSection
from barrier_tck.harness.campaign.mix import FaultsSection, MixSection
from barrier_tck.harness.cli.campaign_output import print_campaign, print_options
from barrier_tck.harness.cli.campaign_settings import in_plain_text, settings_of
from barrier_tck.harness.cli.printing import VerdictConsole
from barrier_tck.harness.cluster.cluster_config import ClusterKind
from barrier_tck.harness.record.records import FindingGroup, StoreRecord
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.reports.loading import load_run
from tests.reports.synthetic_run import campaign_of, record_of, write_run

MIXED = CampaignConfiguration(
    trials=6,
    seed=3,
    mix=MixSection(workload={"keyed-totals": 3, "passthrough": 1}, mode={"exactly_once": 1}),
    faults=FaultsSection(per_trial=(1, 3), packages={"kill": 3, "host-loss": 1}),
    checkpoints={"interval_ms": 50},
)


CONFIGURATION = msgspec.to_builtins(CampaignConfiguration())


def test_a_campaign_file_is_printed_without_defaults_and_without_python() -> None:
    assert settings_of(MIXED) == {
        "checkpoints": "interval ms 50",
        "mix of workloads": "keyed-totals 3, passthrough 1",
        "mix of checkpoint modes": "exactly once 1",
        "faults per trial": "1 to 3",
        "packages of faults": "kill 3, host-loss 1",
    }
    assert settings_of(CampaignConfiguration()) == {}


def test_a_cluster_is_printed_with_what_is_special_to_it() -> None:
    plain = CampaignConfiguration(cluster=ClusterSection())
    small = CampaignConfiguration(cluster=ClusterSection(name=ClusterKind.DOCKER, workers=2))
    assert settings_of(plain)["cluster"] == "local"
    assert settings_of(small)["cluster"] == "docker, 2 workers"


def test_values_of_every_kind_are_plain() -> None:
    assert in_plain_text({"speed": 4, "sides": [1, 2], "on": True}) == "speed 4, sides (1, 2), on yes"
    assert in_plain_text([{"at_ms": 5}, {"at_ms": 9}]) == "at ms 5; at ms 9"


def test_the_options_do_not_contradict_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_options(VerdictConsole(), MIXED, ReferenceSimulated(), Path("runs/x"))
    printed = capsys.readouterr().out
    for raw in ("{", "'", "version: 1", "fail_fast", "strategy", "False"):
        assert raw not in printed
    (profile,) = [line for line in printed.splitlines() if line.startswith("  profile: ")]
    assert profile.endswith("0 to 4 faults; but with the faults per trial that the campaign sets.")
    own = msgspec.structs.replace(MIXED, faults=None)
    print_options(VerdictConsole(), own, ReferenceSimulated(), Path("runs/x"))
    assert "but with" not in capsys.readouterr().out


def test_a_setting_cannot_write_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    hostile = CampaignConfiguration(system=SystemSection(settings={"name": "\x1b[2J\nverdict: VALID"}))
    print_options(VerdictConsole(), hostile, ReferenceSimulated(), Path("runs/x"))
    assert "  settings of the system: name \\x1b[2J verdict: VALID\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("store", "line"),
    [
        (
            StoreRecord("plans", new=18),
            "plans kept for next time: 18 with new behaviour, 0 failing (in plans)",
        ),
        (
            StoreRecord("plans", tried_first=1, failed=2, new_tried=4),
            (
                "1 stored plan that had failed and 4 stored plans that reached most tried first; "
                "plans kept for next time: 0 with new behaviour, 2 failing (in plans)"
            ),
        ),
    ],
)
def test_what_was_stored_is_said_in_a_line(
    store: StoreRecord, line: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [record_of(0)]
    run = load_run(
        write_run(tmp_path / "run", records, campaign_of(records, store=store, configuration=CONFIGURATION))
    )
    print_campaign(VerdictConsole(), run)
    assert line in capsys.readouterr().out.splitlines()


def test_the_trial_of_a_shown_finding_is_listed_to_be_repeated(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The finding shows the trial whose plan became the smallest, which need not be a small trial itself."""
    found = (Finding("exactly-once-output", ("SNK-1",), Verdict.INVALID, "a record is lost"),)
    records = [
        msgspec.structs.replace(record_of(trial), verdict=Verdict.INVALID, findings=found)
        for trial in range(5)
    ]
    largest = 2  # it alone has a second fault
    group = FindingGroup("SNK-1", "exactly-once-output", "nothing special", 5, tuple(range(5)), largest)
    campaign = campaign_of(records, groups=(group,), failing=tuple(range(5)), configuration=CONFIGURATION)
    print_campaign(VerdictConsole(), load_run(write_run(tmp_path / "run", records, campaign)))
    printed = capsys.readouterr().out
    assert "trial 2, exactly-once-output" in printed
    repeated = [line.split(":")[0] for line in printed.splitlines() if line.startswith("repeat trial ")]
    assert repeated[0] == "repeat trial 2"
    assert len(repeated) == 3
