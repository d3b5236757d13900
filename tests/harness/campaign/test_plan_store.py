"""What a campaign keeps for the next ones, and what these do with it; grain: campaigns on a fake system."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Self

import msgspec
import pytest
from moto.server import ThreadedMotoServer

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.plan_store.bucket_place import BucketPlace
from barrier_tck.harness.campaign.plan_store.places import BYTES_MAX, DirectoryPlace
from barrier_tck.harness.campaign.plan_store.store import PASSES_MIN, PlanStore
from barrier_tck.harness.campaign.plan_store.stored_plan import Shown, failed_plan
from barrier_tck.harness.campaign.replay import sources_of
from barrier_tck.harness.campaign.runner import resume_campaign, run_campaign
from barrier_tck.harness.cli.main import run as command
from barrier_tck.harness.cli.plan_stores import opened_store, project_directory
from barrier_tck.harness.cluster.object_store.object_server import KEY, REGION, SECRET
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.record.records import CampaignRecord, StoreRecord
from barrier_tck.harness.record.run_reader import open_run
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bucket import Bucket, bucket_at
from barrier_tck.harness.support.errors import EnvironmentProblem, UsageProblem
from barrier_tck.harness.system.system_under_test import Capability
from barrier_tck.reference_impl.runtime_errors import StorageError
from barrier_tck.reference_impl.storage.s3 import s3_client
from barrier_tck.reports.loading import load_run
from tests.harness.fake_system import TABLE, Behaviour, FakeSystem, interrupting

FAKE = f"{FakeSystem.__module__}:{FakeSystem.__name__}"
"""What ``--system`` would open the fake system by."""


def two_faults(plan: TrialPlan) -> Verdict:
    return Verdict.INVALID if len(plan.faults) >= 2 else Verdict.VALID


def mended(_: TrialPlan) -> Verdict:
    return Verdict.VALID


class Store:
    """A store in a directory, and the campaigns that use it."""

    def __init__(self, tmp_path: Path) -> None:
        self.directory = tmp_path / "store"
        self._runs = tmp_path
        self._number = 0

    def opened(self) -> PlanStore:
        return PlanStore(DirectoryPlace(self.directory))

    def names(self, folder: str) -> list[str]:
        return sorted(path.name for path in (self.directory / folder).glob("*"))

    @property
    def last(self) -> Path:
        """The run directory of the last campaign."""
        return self._runs / f"run{self._number}"

    def campaign(
        self, behaviour: Behaviour = mended, system: FakeSystem | None = None, **values: Any
    ) -> CampaignRecord:
        self._number += 1
        wanted = {"trials": 12, "seed": 3, "controls": 0, "faults": {"per_trial": [1, 3]}} | values
        configuration = configuration_from(wanted, "test")
        return run_campaign(
            configuration, system or FakeSystem(behaviour), self.last, TABLE, store=self.opened()
        )


def of(record: CampaignRecord) -> StoreRecord:
    assert record.store is not None
    return record.store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path)


@pytest.mark.long
def test_a_plan_that_failed_is_tried_first_by_the_next_campaign_beyond_its_budget(store: Store) -> None:
    first = store.campaign(two_faults)
    assert first.invalid > 1 and of(first).tried_first == 0
    (name,) = store.names("failed")
    entry = json.loads((store.directory / "failed" / name).read_text())
    assert entry["shown"] == {"clause": "ALN-2", "checker": "table", "shape": "an attempt fails"}
    assert (entry["system"], entry["on_version"]) == (FAKE, first.environment["barrier-tck"])
    assert len(entry["plan"]["faults"]) == 2, "the smallest plan stands for all trials of its finding"
    again = store.campaign(two_faults, seed=4)
    assert (of(again).tried_first, of(again).new_tried, again.trials) == (1, 1, 14)
    plan = json.loads((store.last / "trials" / "00000" / "plan.json").read_text())
    assert plan["faults"] == entry["plan"]["faults"]
    assert store.names("failed") == [name]
    assert [group.trials for group in again.groups] == [again.invalid]


@pytest.mark.long
def test_a_plan_that_passes_now_is_reported_once_and_not_tried_again(store: Store) -> None:
    store.campaign(two_faults)
    (name,) = store.names("failed")
    second = store.campaign(mended)
    (passing,) = of(second).passing_now
    assert (passing.file, passing.trial, passing.clause) == (name, 0, "ALN-2")
    assert (store.names("failed"), store.names("passed")) == ([], [name])
    assert any("passes now" in notice for notice in load_run(store.last).notices)
    third = store.campaign(mended)
    assert (of(third).tried_first, of(third).passing_now, third.trials) == (0, (), 13)


def test_two_campaigns_that_see_it_pass_at_once_report_it_once(store: Store) -> None:
    store.campaign(two_faults)
    one, other = store.opened(), store.opened()
    ((found,), (same,)) = one.failed(FAKE), other.failed(FAKE)
    assert [one.passes(found, certain=True), other.passes(same, certain=True)] == [True, False]


class Uncertain(FakeSystem):
    capabilities = frozenset(Capability) - {Capability.DETERMINISTIC_REPLAY}


@pytest.mark.long
def test_where_runs_differ_one_pass_says_little(store: Store) -> None:
    store.campaign(system=Uncertain(two_faults))
    for _ in range(PASSES_MIN - 1):
        record = store.campaign(system=Uncertain(mended))
        assert of(record).tried_first >= 1 and of(record).passing_now == ()
    assert of(store.campaign(system=Uncertain(mended))).passing_now
    assert store.names("failed") == []


@pytest.mark.long
def test_a_plan_that_shows_nothing_stays(store: Store) -> None:
    store.campaign(two_faults)
    before = store.names("failed")
    record = store.campaign(lambda _: Verdict.UNKNOWN)
    assert of(record).tried_first == 1 and of(record).passing_now == ()
    assert store.names("failed") == before


class Other(FakeSystem):
    name = "another-fake"


@pytest.mark.long
def test_plans_of_other_systems_and_of_clauses_that_are_not_judged_are_not_tried(store: Store) -> None:
    store.campaign(two_faults)
    assert of(store.campaign(system=Other(two_faults))).tried_first == 0
    entry = failed_plan(TrialPlan(), "reference-simulated", Shown("REC-1", "rec", "x"))
    store.opened().keep(entry)
    configuration = configuration_from({"trials": 1, "seed": 1, "only": ["ALN-2"], "controls": 0}, "test")
    from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated

    record = run_campaign(
        configuration, ReferenceSimulated(), store.last.parent / "few", store=store.opened()
    )
    assert of(record).tried_first == 0


@pytest.mark.long
@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"{", "is not valid JSON"),
        (b'{"version": 1, "version": 1}', "comes twice"),
        (b'{"version": 99}', "knows only versions up to 1"),
        (b'{"version": 1}', "is missing"),
        (b"[]", "is an object"),
        (b"\xff\xfe", "not a text in UTF-8"),
        (b"[" * 100_000, "nested too deeply"),
        (b" " * (BYTES_MAX + 1), "it is no stored plan"),
        (b"cposix\nsystem\n(S'true'\ntR.", "is not valid JSON"),
    ],
    ids=["cut off", "a key twice", "newer", "no plan", "a list", "no text", "deep", "huge", "a pickle"],
)
def test_a_corrupt_file_is_told_in_a_sentence_and_loses_nothing_else(
    content: bytes, words: str, store: Store
) -> None:
    store.campaign(two_faults)
    (store.directory / "failed" / ("0" * 24 + ".json")).write_bytes(content)
    record = store.campaign(two_faults, trials=1)
    assert of(record).tried_first == 1
    (notice,) = of(record).notices
    assert words in notice and "0" * 24 in notice and "it is left out" in notice
    assert "\n" not in notice


def test_a_stored_plan_that_is_none_is_told_too(store: Store) -> None:
    store.campaign(two_faults)
    (name,) = store.names("failed")
    path = store.directory / "failed" / name
    entry = json.loads(path.read_text())
    entry["plan"]["faults"][0]["fault"]["type"] = "kill_everything"
    path.write_text(json.dumps(entry))
    record = store.campaign(mended, trials=1)
    assert of(record).tried_first == 0
    assert "kill_everything" in of(record).notices[0]


def test_a_plan_that_the_system_cannot_run_is_left_out(store: Store) -> None:
    plan = msgspec.structs.replace(TrialPlan(), state_backend="no such name")
    entry = failed_plan(TrialPlan(), FAKE, Shown("ALN-2", "table", "x"))
    store.opened().keep(msgspec.structs.replace(entry, plan=json.loads(msgspec.json.encode(plan))))
    record = store.campaign(trials=1)
    assert of(record).tried_first == 0 and "no such name" in of(record).notices[0]


def test_a_full_disk_is_told_once_and_the_campaign_goes_on(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(path: Path, _: bytes) -> None:
        raise EnvironmentProblem(f"cannot write {path}: No space left on device")

    monkeypatch.setattr("barrier_tck.harness.campaign.plan_store.places.write_atomically", full)
    record = store.campaign(two_faults)
    assert (record.trials, of(record).failed, of(record).new) == (12, 0, 0)
    (notice,) = of(record).notices
    assert "No space left" in notice
    assert record.groups[0].plan and (store.last / record.groups[0].plan).is_file()


def test_the_plans_that_the_smallest_stands_for_stay_if_it_cannot_be_written(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from barrier_tck.harness.campaign import campaign_memory

    finish = campaign_memory.CampaignMemory.finish
    before: list[str] = []

    def then_full(self: campaign_memory.CampaignMemory, groups: Any) -> None:
        before.extend(store.names("failed"))

        def full(path: Path, _: bytes) -> None:
            raise EnvironmentProblem(f"cannot write {path}: No space left on device")

        monkeypatch.setattr("barrier_tck.harness.campaign.plan_store.places.write_atomically", full)
        finish(self, groups)

    monkeypatch.setattr(campaign_memory.CampaignMemory, "finish", then_full)
    record = store.campaign(two_faults)
    assert len(before) == record.invalid
    assert store.names("failed") == before


@pytest.mark.nightly
def test_an_interrupted_campaign_has_stored_what_it_found_and_is_resumed_with_what_it_tried(
    store: Store, tmp_path: Path
) -> None:
    store.campaign(two_faults)
    whole = store.campaign(two_faults, seed=5)
    whole_run = open_run(store.last)
    store.directory = tmp_path / "another"
    store.campaign(two_faults)
    stopped = interrupting(after=6)

    def behaviour(plan: TrialPlan) -> Verdict:
        stopped(plan)
        return two_faults(plan)

    broken = store.campaign(behaviour, seed=5)
    assert broken.interrupted and of(broken).tried_first == 1
    assert len(store.names("failed")) == broken.invalid, "plans are stored when their trials are over"
    for name in store.names("failed"):  # whatever becomes of the store
        (store.directory / "failed" / name).unlink()
    resumed = resume_campaign(store.last, FakeSystem(two_faults), TABLE, store=store.opened())
    assert (resumed.trials, resumed.invalid) == (whole.trials, whole.invalid)
    assert resumed.groups == whole.groups
    again = open_run(store.last)
    assert [(trial.seed, trial.verdict) for trial in tuple(again.rows())] == [
        (trial.seed, trial.verdict) for trial in tuple(whole_run.rows())
    ]


@pytest.mark.long
def test_what_reached_something_new_is_kept_once(store: Store) -> None:
    first = store.campaign()
    assert of(first).new == len(store.names("new")) > 0
    entries = [json.loads(path.read_text()) for path in (store.directory / "new").iterdir()]
    reached = [name for entry in entries for name in entry["reached"]]
    assert len(reached) == len(set(reached)), "a name is new once"
    assert any(name.startswith("kind: ") for name in reached)
    assert of(store.campaign()).new == 0
    assert of(store.campaign(seed=99, trials=40)).tried_first == 0


@pytest.mark.long
def test_plans_that_reached_most_are_tried_again_before_others_are_drawn(store: Store) -> None:
    """One for ten trials of the budget; a bug that came meanwhile and shows in one of them is found at once."""
    store.campaign(trials=60)
    entries = [json.loads(path.read_text()) for path in (store.directory / "new").iterdir()]
    (most,) = store.opened().reaching_most(FAKE, 1)
    assert len(most.entry.reached) == max(len(entry["reached"]) for entry in entries)
    chosen = store.opened().reaching_most(FAKE, 6)
    assert len({one.name for one in chosen}) == 6 and chosen[0] == most

    def came_since(plan: TrialPlan) -> Verdict:
        return Verdict.INVALID if plan.seed == most.plan.seed else Verdict.VALID

    again = store.campaign(came_since, seed=77, trials=60)
    assert (of(again).tried_first, of(again).new_tried, again.trials) == (0, 6, 66)
    assert [trial.trial for trial in load_run(store.last).listed if trial.verdict is Verdict.INVALID] == [0]
    (name,) = store.names("failed")
    assert name not in [one.name for one in chosen] or name == most.name
    after = store.campaign(mended, seed=78, trials=19)
    assert (of(after).tried_first, len(of(after).passing_now), of(after).new_tried) == (1, 1, 1)
    assert of(store.campaign(seed=79, trials=9)).new_tried == 0
    assert of(store.campaign(seed=80, trials=30, only=["ALN-2"])).new_tried == 0


def test_without_a_store_nothing_is_written(tmp_path: Path) -> None:
    configuration = configuration_from({"trials": 3, "seed": 3, "controls": 0}, "test")
    record = run_campaign(configuration, FakeSystem(two_faults), tmp_path / "run", TABLE)
    assert record.store is None
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


# --- code that plans name -----------------------------------------------------------------------------------

PATCH = "--- a/x\n+++ b/x\n"


@pytest.mark.parametrize(
    ("change", "trust", "words"),
    [
        ({"mutant": "AL-01"}, False, "it plants the bug AL-01"),
        ({"mutant": "AL-01"}, True, None),
        ({"patch": PATCH}, False, "it carries a patch, which is code"),
        ({"patch": PATCH}, True, "it carries a patch, which is code"),
        ({"state_backend": "os:getcwd"}, False, "it names code that would run"),
        ({"state_backend": "os:getcwd"}, True, None),
    ],
)
def test_code_that_a_stored_plan_names_runs_only_if_it_is_named_or_trusted(
    change: dict[str, Any], trust: bool, words: str | None, tmp_path: Path
) -> None:
    opened = opened_store(str(tmp_path), False, (), trust)
    assert opened is not None
    plan = msgspec.structs.replace(TrialPlan(), **change)
    opened.keep(failed_plan(plan, "fake", Shown("ALN-2", "table", "x")))
    found = opened.failed("fake")
    assert len(found) == (words is None)
    assert (words or "") in "".join(opened.notices)


def test_a_stored_plan_is_replayed_as_any_plan(store: Store) -> None:
    store.campaign(two_faults)
    (name,) = store.names("failed")
    (source,) = sources_of(store.directory / "failed" / name)
    assert len(source.plan.faults) == 2 and source.recorded is None


# --- where it is --------------------------------------------------------------------------------------------


def test_the_store_is_in_the_project_unless_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "project" / "below").mkdir(parents=True)
    (tmp_path / "project" / "pyproject.toml").touch()
    monkeypatch.chdir(tmp_path / "project" / "below")
    assert opened_store(None, False, (), False) is None, "the tests' environment names none"
    monkeypatch.delenv("BARRIER_TCK_STORE")
    assert project_directory(Path.cwd()) == tmp_path / "project"
    found = opened_store(None, False, (), False)
    assert found is not None and found.location == str(tmp_path / "project" / ".barrier-tck" / "plans")
    assert opened_store(None, True, (), False) is None
    monkeypatch.setenv("BARRIER_TCK_STORE", str(tmp_path / "elsewhere"))
    assert command(["campaign", "--trials", "2", "--seed", "1", "--controls", "0", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert printed["store"]["location"] == str(tmp_path / "elsewhere")
    assert printed["store"]["new"] == len(list((tmp_path / "elsewhere" / "new").iterdir())) > 0
    assert command(["campaign", "--store", "x", "--no-store"]) == 3
    assert "keep one of the two" in capsys.readouterr().err


class Objects:
    """An object store in memory, which may be out of reach."""

    def __init__(self) -> None:
        self.objects: dict[str, bytes] = {}
        self.away = False

    def _asked(self) -> Self:
        if self.away:
            raise StorageError("no connection")
        return self

    def keys(self, prefix: str) -> list[str]:
        return sorted(key for key in self._asked().objects if key.startswith(prefix))

    def version(self, key: str) -> str:
        return "1" if key in self._asked().objects else ""

    def get(self, key: str) -> tuple[bytes, str]:
        return self._asked().objects[key], "1"

    def put(self, key: str, content: bytes) -> str:
        self._asked().objects[key] = content
        return "1"

    def delete(self, key: str) -> None:
        self._asked().objects.pop(key, None)


def in_bucket(objects: Any) -> PlanStore:
    return PlanStore(BucketPlace(Bucket(objects, "s3://plans/here")))


def test_a_store_may_be_in_a_bucket() -> None:
    objects = Objects()
    entry = failed_plan(TrialPlan(), "fake", Shown("ALN-2", "table", "x"))
    assert in_bucket(objects).keep(entry)
    objects.objects["failed/readme.txt"] = b"no plan"
    opened = in_bucket(objects)
    (found,) = opened.failed("fake")
    assert (found.name, found.plan, opened.notices) == (entry.name, TrialPlan(), [])
    assert opened.passes(found, certain=True)
    assert [key for key in objects.objects if key.startswith(("failed/0", "passed/"))] == [
        f"passed/{entry.name}"
    ]
    objects.away = True
    away = in_bucket(objects)
    assert away.failed("fake") == () and not away.keep(entry)
    assert "s3://plans/here cannot be used: no connection" in away.notices[0]


@pytest.fixture
def server_of_objects(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    # Those of all tests on servers of objects: boto3 reads them once for a process.
    for name, value in (("ACCESS_KEY_ID", KEY), ("SECRET_ACCESS_KEY", SECRET), ("DEFAULT_REGION", REGION)):
        monkeypatch.setenv(f"AWS_{name}", value)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", f"http://{host}:{port}")
    s3_client().create_bucket(Bucket="plans")
    yield
    server.stop()


@pytest.mark.long
def test_campaigns_share_a_store_in_a_real_bucket(
    server_of_objects: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command's own client on a server: the second campaign tries what the first one kept."""
    given = ["campaign", "--trials", "20", "--controls", "0", "--store", "s3://plans/here", "--json"]
    told = []
    for seed in ("1", "2"):
        assert command([*given, "--seed", seed, "--out", str(tmp_path / seed)]) == 0
        told.append(json.loads(capsys.readouterr().out.splitlines()[-1])["store"])
    assert [store["notices"] for store in told] == [[], []]
    assert told[0]["new"] > 0 and told[0]["new_tried"] == 0 and told[1]["new_tried"] == 2


@pytest.mark.parametrize("location", ["s3://", "s3:///prefix", "bucket"])
def test_a_bucket_has_a_name(location: str) -> None:
    with pytest.raises(UsageProblem, match="names no bucket"):
        bucket_at(location)
