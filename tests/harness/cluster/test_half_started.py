"""A cluster of which one part failed to start: no part stays, and the next trial starts a new cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barrier_tck.harness.reference.spark import spark_system as reference_spark
from barrier_tck.harness.reference.spark.spark_system import ReferenceSpark
from barrier_tck.harness.support.errors import OperatingError


def test_a_session_that_fails_to_start_takes_its_cluster_along(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    events: list[str] = []
    fails = [True]

    @contextlib.contextmanager
    def cluster(_config: Any) -> Iterator[Any]:
        events.append("cluster starts")
        try:
            yield SimpleNamespace(directory=tmp_path)
        finally:
            events.append("cluster ends")

    class Drivers:
        def __init__(self, _cluster: Any) -> None:
            pass

        def present(self) -> None:
            if fails:
                raise OperatingError("no driver")
            events.append("driver starts")

        def close(self) -> None:
            events.append("driver ends")

    monkeypatch.setattr(reference_spark, "cluster_of", cluster)
    monkeypatch.setattr(reference_spark, "JobDrivers", Drivers)
    system = ReferenceSpark()
    with pytest.raises(OperatingError, match="no driver"):
        system._started()
    assert events == ["cluster starts", "driver ends", "cluster ends"]
    fails.clear()
    events.clear()
    assert system._started() is system._started()
    assert events == ["cluster starts", "driver starts"]
    system.close()
    assert events[2:] == ["driver ends", "cluster ends"]
