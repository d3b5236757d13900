"""Fixtures of the suite. The option ``--system`` and the fixture ``system`` come from ``harness.pytest_plugin``."""

from __future__ import annotations

import inspect
import warnings

import pytest

from barrier_tck.conformance.trials import NothingShown, Trials
from barrier_tck.harness.system.system_under_test import SystemUnderTest


@pytest.fixture(scope="session")
def trials(
    request: pytest.FixtureRequest, system: SystemUnderTest, tmp_path_factory: pytest.TempPathFactory
) -> Trials:
    """Run plans on the chosen system, each in the scale of its world, once for the session; on the chosen backend."""
    seed = int(request.config.getoption("--seed"))
    backend = request.config.getoption("--state-backend")
    every = request.config.getoption("--every-fallback")
    return Trials(system, tmp_path_factory.mktemp("trials"), seed, backend, every_fallback=every)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that take longest, so that none of several processes waits for one that began late."""
    items.sort(key=lambda item: item.get_closest_marker("begun_first") is None)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> object:
    """Run a test again in which what it is about did not happen, where a plan's trials differ from run to run.

    A trial in which something was wrong fails the test at once. The last try is left to pytest.
    """
    trials = pyfuncitem.funcargs.get("trials")
    if not isinstance(trials, Trials):
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in inspect.signature(pyfuncitem.obj).parameters}
    for number in range(2, trials.tries_max + 1):
        try:
            pyfuncitem.obj(**arguments)
        except NothingShown as nothing:
            what = str(nothing).partition("\n")[0]
            pyfuncitem.user_properties.append(
                ("tried", number)
            )  # JUnit reports keep it, and the page of the nights
            warnings.warn(f"try {number} of {trials.tries_max}, because in the last {what}", stacklevel=1)
            trials.forget()
        else:
            return True
    return None
