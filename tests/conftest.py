"""What all of the project's own tests share."""

from __future__ import annotations

import gc

import pytest
from hypothesis import settings

from barrier_tck.harness.support import root_seed

# No example is timed, because the first one in a file may pay for imports, and machines are shared.
settings.register_profile("barrier-tck", deadline=None)
settings.load_profile("barrier-tck")


FIXED_SEED = 0


@pytest.fixture(autouse=True)
def _seeds_are_fixed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let what draws its own seed draw always the same, in this process: a test must not surprise.

    A test of drawing itself undoes this; a test that starts a process gives it ``--seed``.
    """
    monkeypatch.setattr(root_seed, "new_seed", lambda: FIXED_SEED)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Let the tests of a file that need Spark run in one process: they share a cluster, which takes long to start."""
    if config.pluginmanager.hasplugin("xdist"):
        for item in items:
            if item.get_closest_marker("spark") is not None:
                item.add_marker(pytest.mark.xdist_group(item.nodeid.partition("::")[0]))


def pytest_collection_finish() -> None:
    """Leave collected tests alone: the garbage collector would look at thousands of lasting objects each time."""
    gc.freeze()


@pytest.fixture(autouse=True)
def _no_store_of_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no campaign of a test, in this process or in others, try plans that another test has stored."""
    monkeypatch.setenv("BARRIER_TCK_STORE", "none")
