"""When the garbage collector looks, and that it does as before afterwards; grain: the collector of this process."""

from __future__ import annotations

import contextlib
import gc
from collections.abc import Iterator

import pytest

from barrier_tck.harness.support.garbage_collection import no_collection, rare_collection


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    threshold, enabled = gc.get_threshold(), gc.isenabled()
    yield
    gc.set_threshold(*threshold)
    (gc.enable if enabled else gc.disable)()


def test_collection_is_rare_and_then_as_before_however_it_ends() -> None:
    gc.set_threshold(700, 10, 10)
    frozen = gc.get_freeze_count()
    with contextlib.suppress(KeyError), rare_collection():
        assert gc.get_threshold()[0] >= 100_000 and gc.get_threshold()[1:] == (10, 10)
        raise KeyError
    assert gc.get_threshold() == (700, 10, 10)
    assert gc.get_freeze_count() == frozen


def test_a_collector_that_never_looks_by_itself_is_left_so() -> None:
    gc.set_threshold(0, 10, 10)
    with rare_collection():
        assert gc.get_threshold() == (0, 10, 10)
    assert gc.get_threshold() == (0, 10, 10)


def test_there_is_no_collection_within_another_that_is_off() -> None:
    gc.enable()
    with no_collection():
        assert not gc.isenabled()
        with no_collection():
            assert not gc.isenabled()
        assert not gc.isenabled()
    assert gc.isenabled()
