"""A pytest plugin that keeps what became of each test of the conformance suite, and leaves out what is not claimed.

It runs in the process of pytest; ``barrier-tck conformance`` hands it over. The suite's own marks say what a test is
about and what it needs, so nothing here names a test.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence

import pytest
from rich.progress import Progress, TaskID

from barrier_tck.harness.oracle.clause_mechanisms import lacks_mechanism, mechanism_of
from barrier_tck.harness.pytest_plugin import marked, missing_capabilities, supervised_already
from barrier_tck.harness.record.conformance_record import CaseOutcome, CaseStatus
from barrier_tck.harness.support.errors import HarnessError, UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import shown
from barrier_tck.harness.system.plan_fields import unused_by
from barrier_tck.harness.system.system_names import open_system
from barrier_tck.harness.system.system_under_test import SystemUnderTest

SHOWS_NOTHING = "shows_nothing"
"""The attribute of an exception that says: what the test is about did not happen, and nothing was wrong."""
BROKEN_CLAUSES = "broken_clauses"
"""The attribute of an exception that names the clauses that were broken."""


class Outcomes:
    """Keeps the outcomes of one run of the suite."""

    def __init__(
        self,
        system: str,
        clauses: Sequence[str],
        known: Mapping[str, str],
        progress: Progress,
        begins: Callable[[], None],
    ) -> None:
        """Run on a system that ``--system`` names, tests of certain clauses only (of all if there are none).

        ``begins`` is called when the tests are found and the first one is about to begin. ``known`` holds tests that
        are known to fail, each with what is known of it.
        """
        self._system = system
        self._clauses = clauses
        self._known = known
        self._progress = progress
        self._begins = begins
        self._task: TaskID | None = None
        self._found: dict[str, CaseOutcome] = {}
        self._seconds: dict[str, float] = {}
        self.problem: HarnessError | None = None
        """Why no test was run, if that is not a mistake of this project."""
        self.interrupted = False
        self._unclaimed: dict[str, str] = {}
        """Clauses about mechanisms that the system does not have, with what it does not declare."""
        self.errors: list[str] = []
        """What could not be collected."""

    @property
    def found(self) -> tuple[CaseOutcome, ...]:
        """Return the outcomes, in the order of the suite."""
        return tuple(self._found.values())

    @property
    def passes_now(self) -> tuple[str, ...]:
        """Return the tests that are known to fail and passed."""
        found = (
            self._found
        )  # without those that ``--only`` leaves out, or that an interruption kept from running
        return tuple(name for name in self._known if name in found and found[name].status == "passed")

    @pytest.hookimpl
    def pytest_load_initial_conftests(self, early_config: pytest.Config) -> None:
        """Tell the plugin of the harness that the tests run in a child process already: the command's own."""
        supervised_already(early_config)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        """Leave out tests of other clauses, and those that ask for what the system does not declare."""
        try:
            self._require_names(items)
            with_clauses = [
                item for item in items if not self._clauses or set(self._clauses) & set(_clauses_of(item))
            ]
            system = open_system(self._system)
            self._unclaimed = _unclaimed(items, system)
        except HarnessError as problem:
            self.problem = problem
            items.clear()
            return
        try:
            chosen = [item for item in with_clauses if self._is_claimed(item, system)]
        finally:
            system.close()
        config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
        items[:] = chosen
        self._begins()
        self._task = self._progress.add_task("tests", total=len(chosen))

    def _require_names(self, items: Sequence[pytest.Item]) -> None:
        names = [_name(item) for item in items]
        for name in self._known:
            if name not in names:
                raise UsageProblem(
                    f"the file of known failures names the test {shown(name)}, which does not exist"
                    f"{nearest(name, names)}"
                )
        clauses = list(dict.fromkeys(clause for item in items for clause in _clauses_of(item)))
        for clause in self._clauses:
            if clause not in clauses:
                raise UsageProblem(
                    f"--only names {shown(clause)}, of which no test is{nearest(clause, clauses)}"
                )

    def _is_claimed(self, item: pytest.Item, system: SystemUnderTest) -> bool:
        missing = [member.name for member in missing_capabilities(system, marked(item, "needs"))]
        unused = [field for field in marked(item, "uses") if field in unused_by(system)]
        said = [
            *([f"does not declare {', '.join(missing)}"] if missing else []),
            *([f"does not use {', '.join(unused)}"] if unused else []),
        ]
        if said:
            self._keep(item, "not claimed", " and ".join(said))
        return not said

    @pytest.hookimpl
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep why a module of the suite cannot be collected."""
        if report.failed:
            self.errors.append(f"{report.nodeid}: {report.longreprtext}")

    @pytest.hookimpl
    def pytest_keyboard_interrupt(self) -> None:
        """Remember that not all tests have run."""
        self.interrupted = True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep what became of a test in one of its phases."""
        report = yield
        assert isinstance(report, pytest.TestReport)
        name = _name(item)
        self._seconds[name] = self._seconds.get(name, 0.0) + report.duration
        if report.skipped:
            self._keep(item, "not claimed", _reason_of_skip(report))
        elif report.failed and call.excinfo is not None:
            said = str(call.excinfo.value) or call.excinfo.typename
            if getattr(call.excinfo.value, SHOWS_NOTHING, False):
                self._keep(item, "not shown", said)
            else:
                broken = getattr(call.excinfo.value, BROKEN_CLAUSES, ())
                if name in self._known:
                    self._keep(item, "known failure", self._known[name], broken)
                else:
                    self._keep(item, "failed", said, broken)
        elif report.when == "call":
            self._keep(item, "passed", "")
        if report.when == "teardown" and self._task is not None:
            self._progress.advance(self._task)
        return report

    def _keep(self, item: pytest.Item, status: CaseStatus, reason: str, broken: tuple[str, ...] = ()) -> None:
        name = _name(item)
        self._found[name] = CaseOutcome(
            name=name,
            clauses=_clauses_of(item),
            status=status,
            broken=broken,
            reason=reason,
            unclaimed={
                clause: self._unclaimed[clause] for clause in _clauses_of(item) if clause in self._unclaimed
            },
            seconds=round(self._seconds.get(name, 0.0), 3),
        )


def _name(item: pytest.Item) -> str:
    return f"{item.path.name}::{item.name}"


def _unclaimed(items: Sequence[pytest.Item], system: SystemUnderTest) -> dict[str, str]:
    clauses = dict.fromkeys(clause for item in items for clause in _clauses_of(item))
    declared = [each.name for each in system.capabilities]
    return {
        clause: f"does not declare {' or '.join(each.name for each in mechanism_of(clause))}"
        for clause in clauses
        if lacks_mechanism(clause, declared)
    }


def _clauses_of(item: pytest.Item) -> tuple[str, ...]:
    return tuple(str(clause) for clause in marked(item, "clause"))


def _reason_of_skip(report: pytest.TestReport) -> str:
    reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return reason.removeprefix("Skipped: ")
