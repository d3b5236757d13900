"""Code that a file names runs only if the command line names it too, whatever lies beside the file.

Grain: commands in this process, in a directory with a module that shows when it is imported.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from barrier_tck.harness.campaign.configuration import AimedTrial, CampaignConfiguration, configuration_from
from barrier_tck.harness.campaign.mix import MixSection
from barrier_tck.harness.certify.backend.stage import BackendFailure
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.cli.untrusted_code import UntrustedCode, code_of_campaign, require_named
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan, WorkloadPlan, write
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.support.errors import UsageProblem
from tests.harness.cli.test_cli import last_json

EVIL = """
from pathlib import Path
from barrier_tck.harness.workloads.keyed_totals import KeyedTotals as Workload
from barrier_tck.reference_impl.state.heap import HeapStateBackend as Backend
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated as System
from barrier_tck.reference_impl.storage.checkpoint_storage import file_storage as Storage

Path("it-ran").touch()
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Return the working directory, which contains ``evil.py`` and is searched first, as with ``python -m``."""
    (tmp_path / "evil.py").write_text(EVIL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["", *sys.path])
    sys.modules.pop("evil", None)
    yield tmp_path
    sys.modules.pop("evil", None)


PLANS = {
    "--state-backend": (TrialPlan(state_backend="evil:Backend"), "the state backend 'evil:Backend'"),
    "--checkpoint-storage": (
        TrialPlan(checkpoints=CheckpointPlan(storage="evil:Storage")),
        "the checkpoint storage 'evil:Storage'",
    ),
    "--workload": (TrialPlan(workload=WorkloadPlan(name="evil:Workload")), "the workload 'evil:Workload'"),
}


@pytest.mark.parametrize("option", PLANS)
def test_a_plan_alone_runs_no_code_that_it_names(
    option: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, words = PLANS[option]
    write(plan, here / "plan.json")
    assert cli.run(["replay", "plan.json"]) == 3
    message = capsys.readouterr().err
    assert f"plan.json names code that would run: {words}" in message
    assert f"name it too: {option} evil:" in message
    assert not (here / "it-ran").exists()
    assert cli.run(["replay", "plan.json", "--system", "reference-simulated"]) == 3
    assert not (here / "it-ran").exists()
    assert cli.run(["replay", "plan.json", option, f"evil:{words.split(':')[1].strip(chr(39))}"]) == 0
    assert (here / "it-ran").exists()


def test_a_plan_may_be_trusted_with_all_that_it_names(here: Path) -> None:
    write(PLANS["--workload"][0], here / "plan.json")
    assert cli.run(["replay", "plan.json", "--trust"]) == 0
    assert (here / "it-ran").exists()


def test_a_plan_is_run_on_another_backend_without_a_look_at_the_one_that_it_names(here: Path) -> None:
    write(PLANS["--state-backend"][0], here / "plan.json")
    assert cli.run(["replay", "plan.json", "--state-backend", "heap"]) == 0
    assert not (here / "it-ran").exists()


@pytest.mark.long
def test_a_record_runs_no_system_that_it_names_and_its_line_repeats_it(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    options = ["--system", "evil:System", "--state-backend", "evil:Backend", "--trials", "1"]
    assert cli.run(["campaign", *options, "--seed", "1"]) == 0
    (run,) = (here / "runs").iterdir()
    (here / "it-ran").unlink()
    sys.modules.pop("evil")
    capsys.readouterr()
    assert cli.run(["replay", str(run)]) == 3
    assert "names code that would run: the system 'evil:System'" in capsys.readouterr().err
    assert cli.run(["replay", str(run), "--system", "evil:System"]) == 3
    assert "the state backend 'evil:Backend'" in capsys.readouterr().err
    assert cli.run(["report", str(run), "--json"]) == 0
    assert not (here / "it-ran").exists(), "a report imports nothing"
    capsys.readouterr()
    assert cli.run(["replay", str(run), *options[:4], "--json"]) == 0
    assert last_json(capsys)["same_verdict"]


def test_a_damaged_record_is_no_way_around_it(here: Path) -> None:
    assert cli.run(["campaign", "--trials", "1", "--seed", "1"]) == 0
    (run,) = (here / "runs").iterdir()
    for file in run.rglob("*.json*"):
        file.write_text(file.read_text().replace('"reference-simulated"', '"evil:System"'))
    assert open_run(run).campaign.opened_as == "evil:System"
    assert cli.run(["replay", str(run)]) == 3
    assert cli.run(["replay", str(run / "trials" / "00000")]) == 3
    assert not (here / "it-ran").exists()


def test_the_line_that_repeats_a_trial_names_all_code_that_it_needs(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = msgspec.structs.replace(PLANS["--state-backend"][0], mutant="SO-02")
    (here / "bad.toml").write_text(f'name = "bad"\nstate_backend = "{plan.state_backend}"\n')
    system = "barrier_tck.conformance.meta_tests.do_nothing:DoNothing"
    assert cli.run(["campaign", "bad.toml", "--system", system, "--trials", "1", "--json"]) == 1
    command = shlex.split(last_json(capsys)["findings"][0]["replay"])
    assert command[4:] == [system, "--state-backend", "evil:Backend"]
    assert cli.run(command[1:]) == 1


@pytest.mark.long
def test_a_replay_file_of_a_certification_runs_no_backend_that_only_it_names(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    failure = BackendFailure("evil:Backend", "reads-see-the-writes", "it was wrong", ())
    (here / "failure.json").write_bytes(msgspec.json.encode(failure))
    assert cli.run(["certify", "--replay", "failure.json"]) == 3
    assert "name it too: barrier-tck certify evil:Backend --replay failure.json" in capsys.readouterr().err
    assert not (here / "it-ran").exists()
    assert cli.run(["certify", "heap", "--replay", "failure.json"]) == 0
    assert not (here / "it-ran").exists()


# --- wherever a campaign may name code ----------------------------------------------------------------------

TARGET = "evil:Thing"
PARTS = ("workload", "job", "deployment", "checkpoints", "restart", "network", "limits")
"""Sections of a campaign file that are parts of a plan."""
ONLY_WORDS = (
    *("name", "note", "profile", "mutant", "job.shape", "deployment.slow_vertex"),
    *("mode", "local_recovery"),  # of a mix, whose words are checked when its system is known
)
"""Fields whose texts are compared or printed, and never imported."""


def places(fields: Iterable[str]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what may stand in a campaign or in one of its trials, with the target in one place, by that place."""
    for field in fields:
        yield field, {field: TARGET}
    for part in PARTS:
        for field in type(getattr(TrialPlan(), part)).__struct_fields__:
            yield f"{part}.{field}", {part: {field: TARGET}}


def accepted(values: dict[str, Any]) -> CampaignConfiguration | None:
    try:
        return configuration_from(values, "test")
    except UsageProblem:
        return None


def test_a_campaign_is_asked_for_all_the_code_that_it_may_name() -> None:
    """A stored campaign is data: whatever it names, wherever the file may name it, must be named again."""
    everywhere = {
        f"campaign: {place}": values for place, values in places(CampaignConfiguration.__struct_fields__)
    }
    everywhere |= {
        f"trial: {place}": {"trial": [values]} for place, values in places(AimedTrial.__struct_fields__)
    }
    everywhere |= {f"mix: {field}": {"mix": {field: {TARGET: 1}}} for field in MixSection.__struct_fields__}
    named: list[str] = []
    for place, values in everywhere.items():
        configuration = accepted(values)
        if configuration is not None and place.partition(": ")[2] not in ONLY_WORDS:
            assert TARGET in [code.target for code in code_of_campaign(configuration)], place
            named.append(place)
    assert {"campaign: system", "mix: workload", "trial: state_backend", "trial: checkpoints.storage"} <= {
        *named
    }


def test_a_command_without_options_that_name_code_advises_none_of_them() -> None:
    code = [UntrustedCode("system", "evil:System")]
    with pytest.raises(UsageProblem, match="If you trust it, give --trust") as told:
        require_named(code, None, "runs/one")
    assert "--system" not in str(told.value)
    with pytest.raises(UsageProblem, match="name it too: --system evil:System"):
        require_named(code, (), "runs/one")
