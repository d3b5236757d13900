"""The pytest plugin: ``--system`` chooses the system under test, and fixtures pass it to the tests.

Loading it imports neither PySpark nor a system; this happens when the first test asks for ``system``.
"""

from __future__ import annotations

import contextlib
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import pytest

if TYPE_CHECKING:
    from barrier_tck.harness.plan.trial_plan import TrialPlan
    from barrier_tck.harness.record.records import TrialRecord
    from barrier_tck.harness.streaming.streaming_job import StreamingJob
    from barrier_tck.harness.support.root_seed import RootSeed
    from barrier_tck.harness.system.system_under_test import Capability, SystemUnderTest

RunTrial = Callable[["TrialPlan"], "TrialRecord"]
"""Runs a plan on the chosen system, judges it with the standard checkers, and asserts nothing."""

_DEFAULT = "reference-simulated"


class JudgeQuery(Protocol):
    """Runs drawn trials of a query."""

    def __call__(
        self,
        job: StreamingJob,
        trials: int = 5,
        seed: int | None = None,
        retries: str = "stock",
        budget: str | None = None,
        cluster: str = "local",
    ) -> tuple[TrialRecord, ...]:
        """Return the records of all trials, if all are valid; the first other one fails the test, with its
        findings."""


@dataclass(frozen=True, slots=True)
class BackendUnderTest:
    """The state backend that is certified: its name, how many examples are run, and their seed."""

    target: str
    scale: float
    """Multiplies the number of examples: 1 as in ``barrier-tck certify``, less if no backend was asked for."""
    seed: int
    """Seed of the examples."""
    capabilities: tuple[str, ...]
    """The capabilities that it declares."""


@dataclass(frozen=True, slots=True)
class StorageUnderTest:
    """The checkpoint storage that ``--checkpoint-storage`` names."""

    target: str
    location: str
    """Directory, or beginning of a URL, that was never used."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--system``, ``--seed``, ``--state-backend``, ``--checkpoint-storage`` and ``--every-fallback``."""
    group = parser.getgroup("barrier-tck")
    group.addoption(
        "--system", default=_DEFAULT, metavar="NAME", help=f"system under test (default: {_DEFAULT})"
    )
    group.addoption(
        "--seed",
        type=int,
        default=None,
        metavar="N",
        help="seed from which plans and examples are drawn (default: that of --hypothesis-seed, else a new one, which "
        "the header says)",
    )
    group.addoption(
        "--state-backend",
        default=None,
        metavar="MODULE:NAME",
        help="state backend to certify in its own process, and for the state of all trials (default: heap, with "
        "few examples)",
    )
    group.addoption(
        "--checkpoint-storage",
        default="files",
        metavar="MODULE:NAME",
        help="checkpoint storage to certify in processes of its own (default: files)",
    )
    group.addoption(
        "--checkpoint-storage-at",
        default=None,
        metavar="LOCATION",
        help="directory, or beginning of a URL, below which it may write (default: a directory for each test)",
    )
    group.addoption(
        "--every-fallback",
        action="store_true",
        help="where trials take long, too, try every cell of the matrix of fallbacks of local recovery (default: each "
        "damage, and each backend and mode, in one cell)",
    )


_SEED_OF_SESSION = "barrier_tck_seed"
"""Where pytest-xdist keeps the seed for the processes that it starts."""
_seed: pytest.StashKey[RootSeed] = pytest.StashKey()
"""The seed of the session, and whether it was drawn."""

_supervised = pytest.StashKey[bool]()
"""Set where the tests run in a child process already."""


def supervised_already(config: pytest.Config) -> None:
    """Let pytest run in this process, because it is a child process whose parent looks after it."""
    config.stash[_supervised] = True


@pytest.hookimpl(tryfirst=True)
def pytest_cmdline_main(config: pytest.Config) -> int | None:
    """Run the tests in a child process if they run a third party's code.

    Such code may end its process, for instance with ``os._exit(0)``. This must not look as if all tests had passed.
    Processes of pytest-xdist need no other parent: it reports one that ends as a failed test.
    """
    from barrier_tck.harness.cli.supervision import supervised
    from barrier_tck.harness.support.third_party import is_target

    named = (config.getoption("--system"), config.getoption("--state-backend") or "")
    if _supervised in config.stash or hasattr(config, "workerinput") or not any(map(is_target, named)):
        return None
    config.stash[_supervised] = True
    return supervised(lambda: _tested(config), _ended_early)


def _tested(config: pytest.Config) -> int:
    """Let pytest do what it would have done."""
    try:
        return int(config.hook.pytest_cmdline_main(config=config))
    except pytest.UsageError as error:
        sys.stderr.write(f"ERROR: {error}\n")
        return int(pytest.ExitCode.USAGE_ERROR)


def _ended_early(how: str) -> int:
    from barrier_tck.harness.cli.supervision import cause_of

    sys.stderr.write(
        f"barrier-tck: pytest's process ended {how} before the tests were over: {cause_of(how)}\n"
    )
    return int(pytest.ExitCode.INTERRUPTED)


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers, and refuse an unknown system before anything is collected."""
    from barrier_tck.harness.plan.storage_targets import storage_target
    from barrier_tck.harness.support.errors import UsageProblem
    from barrier_tck.harness.support.root_seed import root_seed
    from barrier_tck.harness.support.third_party import search_working_directory
    from barrier_tck.harness.system.system_names import require_system

    search_working_directory()
    config.addinivalue_line("markers", "clause(id): names the clause of the specification that a test checks")
    config.addinivalue_line(
        "markers", "needs(*capabilities): skips the test on systems without these (Capability members)"
    )
    config.addinivalue_line(
        "markers", "uses(*fields): skips the test on systems that leave these fields of a plan unused"
    )
    config.addinivalue_line(
        "markers", "long: takes long; run before each merge, but not by those who want a quick answer"
    )
    config.addinivalue_line(
        "markers", "long_on_clusters: the same, but only where time is real; in a simulator it is quick"
    )
    config.addinivalue_line(
        "markers",
        "begun_first: takes most of a minute on a cluster, so that the conformance suite begins with it",
    )
    config.addinivalue_line(
        "markers",
        "nightly: takes too long to be run before each merge",
    )
    config.addinivalue_line("markers", "nightly_on_clusters: the same, but only where time is real")
    config.stash[_seed] = root_seed(_given_seed(config))
    config.option.seed = config.stash[_seed].value
    try:
        require_system(config.getoption("--system"))
        if config.getoption("--state-backend") is not None:
            from barrier_tck.harness.certify.backend.suite import require_target

            require_target(config.getoption("--state-backend"))
        storage_target(config.getoption("--checkpoint-storage"))
    except UsageProblem as error:
        raise pytest.UsageError(str(error)) from error


def _given_seed(config: pytest.Config) -> int | None:
    """Return the seed that the command line gives, as ``--seed`` or else as Hypothesis's; None if it gives none.

    A process of pytest-xdist is given that of the process that started it.
    """
    if hasattr(config, "workerinput"):
        return int(config.workerinput[_SEED_OF_SESSION])
    own: int | None = config.getoption("--seed")
    of_hypothesis = config.getoption("--hypothesis-seed", default=None)
    if own is not None or of_hypothesis in (None, "random"):
        return own
    return int(of_hypothesis)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Let all processes of pytest-xdist draw from the same seed."""
    node.workerinput[_SEED_OF_SESSION] = node.config.stash[_seed].value


def pytest_report_header(config: pytest.Config) -> list[str]:
    """Say which system and backend are tested, and with which versions."""
    from barrier_tck.harness.support.environment import environment

    versions = environment()
    shown = ", ".join(
        f"{name} {versions[name]}" for name in ("barrier-tck", "python", "pyspark", "hypothesis")
    )
    backend = config.getoption("--state-backend") or "heap"
    return [
        f"barrier-tck: system {config.getoption('--system')}, state backend {backend}, {shown}",
        f"barrier-tck: seed {config.stash[_seed]}, PYTHONHASHSEED {versions['hash_seed']}",
    ]


@pytest.fixture(scope="session")
def system(request: pytest.FixtureRequest) -> Iterator[SystemUnderTest]:
    """Open the chosen system, once for the session: a real one keeps its cluster from test to test."""
    from barrier_tck.harness.system.system_names import open_system

    opened = open_system(request.config.getoption("--system"))
    try:
        yield opened
    finally:
        opened.close()


@pytest.fixture
def checkpoint_storage(request: pytest.FixtureRequest, tmp_path: Path) -> StorageUnderTest:
    """Return the storage that ``--checkpoint-storage`` names, and a place for it that was never used."""
    chosen = request.config.getoption("--checkpoint-storage")
    below = request.config.getoption("--checkpoint-storage-at")
    place = str(tmp_path) if below is None else f"{below.rstrip('/')}/{uuid.uuid4().hex}"
    return StorageUnderTest(chosen, place)


@pytest.fixture(scope="session")
def state_backend(request: pytest.FixtureRequest) -> BackendUnderTest:
    """Return the backend that ``--state-backend`` names, checked once; if it is no backend, the tests fail."""
    from barrier_tck.harness.certify.backend.pool import CandidateError
    from barrier_tck.harness.certify.backend.suite import probe
    from barrier_tck.harness.support.errors import UsageProblem

    chosen: str | None = request.config.getoption("--state-backend")
    target = chosen or "heap"
    try:
        declared = tuple(probe(target)["capabilities"])
    except UsageProblem as error:
        pytest.exit(f"--state-backend: {error}", returncode=pytest.ExitCode.USAGE_ERROR)
    except CandidateError as error:
        pytest.fail(f"{target} could not be made: {error}", pytrace=False)
    seed = int(request.config.getoption("--seed"))
    return BackendUnderTest(target, 1.0 if chosen else 0.1, seed, declared)


@pytest.fixture
def run_trial(system: SystemUnderTest, tmp_path: Path) -> RunTrial:
    """Return a function that runs a plan and returns its record; each call has its own directory in ``tmp_path``."""
    from barrier_tck.harness.trial.plan_check import check_plan
    from barrier_tck.harness.trial.trial_run import run_trial as run

    count = 0

    def run_one(plan: TrialPlan) -> TrialRecord:
        nonlocal count
        check_plan(plan, system)
        directory = tmp_path / f"trial-{count:03d}"
        directory.mkdir()
        count += 1
        return run(plan, system, directory)

    return run_one


@pytest.fixture
def judge_query(request: pytest.FixtureRequest, tmp_path: Path) -> JudgeQuery:
    """Return a function that runs drawn trials of a ``StreamingJob``, on a cluster that is stopped at its end.

    Its arguments mean what the options of ``barrier-tck campaign --query`` mean: a ``budget`` (``10m``) takes the place
    of a number of trials, and ``cluster`` is ``local`` or ``docker``. ``retries`` is the setting of the trials
    (``stock`` or ``none``). Without a ``seed``, plans are drawn from that of ``--seed``, which the
    session's header says.
    """
    of_session = int(request.config.getoption("--seed"))

    def judge(
        job: StreamingJob,
        trials: int = 5,
        seed: int | None = None,
        retries: str = "stock",
        budget: str | None = None,
        cluster: str = "local",
    ) -> tuple[TrialRecord, ...]:
        from barrier_tck.harness.campaign.budget import Budget, parse_duration
        from barrier_tck.harness.campaign.configuration import (
            CampaignConfiguration,
            ClusterSection,
            SystemSection,
        )
        from barrier_tck.harness.campaign.planned_trials import campaign_plans
        from barrier_tck.harness.cluster.cluster_config import ClusterKind
        from barrier_tck.harness.record.verdict import Verdict
        from barrier_tck.harness.support.errors import UsageProblem
        from barrier_tck.harness.system.optional_interfaces import HasCluster
        from barrier_tck.harness.trial.trial_run import run_trial

        section = SystemSection(job.address, {"retries": retries})
        configuration = CampaignConfiguration(
            system=section, seed=of_session if seed is None else seed, trials=trials
        )
        seconds = None if budget is None else parse_duration(budget, "budget")
        allowed = Budget(trials) if seconds is None else Budget(None, seconds)
        records: list[TrialRecord] = []
        with contextlib.closing(job()) as system:
            if cluster != "local":
                if not isinstance(system, HasCluster):
                    raise UsageProblem(f"{system.name} runs on no cluster of its own; leave cluster out")
                system.use_cluster(ClusterSection(ClusterKind(cluster)).config)
            began = time.monotonic()
            for number, plan in enumerate(campaign_plans(configuration, system)):
                if records and not allowed.allows(number, time.monotonic() - began):
                    break
                directory = tmp_path / f"query-trial-{number:03d}"
                directory.mkdir()
                records.append(run_trial(plan, system, directory))
                if records[-1].verdict is not Verdict.VALID:
                    pytest.fail(_rendered(number, records[-1]), pytrace=False)
        return tuple(records)

    return judge


def _rendered(number: int, record: TrialRecord) -> str:
    """Return what the findings of a trial say, and what struck it."""
    lines = [f"trial {number} is {record.verdict.value}"]
    lines += [f"  {fault.label}, {fault.trigger}: {fault.outcome}" for fault in record.faults]
    for finding in record.findings:
        lines.append(f"  {finding.checker}: {finding.verdict.value}: {finding.summary}")
        lines += [f"    {example}" for example in finding.examples]
    return "\n".join(lines)


@pytest.fixture(autouse=True)
def _skip_without_capability(request: pytest.FixtureRequest) -> None:
    """Skip a test, with the reason, if the system lacks what the test's marks ``needs`` and ``uses`` ask for."""
    needed = marked(request.node, "needs")
    used = marked(request.node, "uses")
    if not needed and not used:
        return
    from barrier_tck.harness.system.plan_fields import unused_by

    system: SystemUnderTest = request.getfixturevalue("system")
    missing = missing_capabilities(system, needed)
    if missing:
        pytest.skip(f"{system.name} does not declare: " + " ".join(f"{m.name} ({m.value})" for m in missing))
    unused = [field for field in used if field in unused_by(system)]
    if unused:
        pytest.skip(f"{system.name} does not use: {', '.join(unused)}")


def marked(node: pytest.Item, name: str) -> tuple[Any, ...]:
    """Return the arguments of all marks of a name on a test: its own, and those of its class and module."""
    return tuple(dict.fromkeys(argument for mark in node.iter_markers(name) for argument in mark.args))


def missing_capabilities(system: SystemUnderTest, needed: tuple[Capability, ...]) -> tuple[Capability, ...]:
    """Return the needed capabilities that a system does not declare."""
    return tuple(capability for capability in needed if capability not in system.capabilities)
