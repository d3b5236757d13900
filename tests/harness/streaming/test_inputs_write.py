"""Drawn input lets every kind of query write in most micro-batches; grain: streams in this process, without faults.

A fault is a chance to be wrong only if the sink had been given rows of what runs again.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from barrier_tck.harness import QueryPlace, StreamingJob
from barrier_tck.harness.campaign.configuration import CampaignConfiguration, SystemSection
from barrier_tck.harness.campaign.planned_trials import campaign_plans
from barrier_tck.harness.cluster.spark_session import spark_session
from barrier_tck.harness.streaming import stock_job
from barrier_tck.harness.streaming.driver import stock_jobs
from barrier_tck.harness.streaming.driver.job_check import checked
from barrier_tck.harness.streaming.structured_streaming import StructuredStreaming
from barrier_tck.harness.workloads.workload_names import filled
from tests.harness.streaming import local_streams, reported_jobs, unusual_jobs

pytestmark = [pytest.mark.spark, pytest.mark.nightly]
PLANS = 4


@pytest.fixture(scope="module")
def spark() -> Iterator[SparkSession]:
    with spark_session(
        None, "input-tests", {"spark.sql.shuffle.partitions": "2"}, quick_start=True
    ) as session:
        yield session


def nothing(batch: DataFrame, batch_id: int, place: QueryPlace) -> None:
    """Stand for a sink."""


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(stock_job.job, id="totals"),
        pytest.param(stock_jobs.windows, id="windows"),
        pytest.param(unusual_jobs.long_windows, id="long windows"),
        pytest.param(stock_jobs.pairs, id="join"),
        pytest.param(unusual_jobs.window_join, id="window join"),
        pytest.param(unusual_jobs.left_outer, id="left outer join"),
        pytest.param(unusual_jobs.right_outer, id="right outer join"),
        pytest.param(unusual_jobs.full_outer, id="full outer join"),
        pytest.param(stock_jobs.keys, id="each key once"),
        pytest.param(unusual_jobs.within_short_watermark, id="each key once within the watermark"),
        pytest.param(unusual_jobs.merged, id="changes"),
        pytest.param(unusual_jobs.deleted, id="changes with deletions"),
        pytest.param(unusual_jobs.pandas_state, id="state of pandas functions"),
        pytest.param(reported_jobs.nested_windows, id="windows of windows"),
        pytest.param(reported_jobs.sessions, id="sessions"),
    ],
)
def test_a_query_writes_in_most_micro_batches(spark: SparkSession, tmp_path: Path, job: StreamingJob) -> None:
    job = replace(job, sink=nothing)
    system = StructuredStreaming(job)
    section = SystemSection(f"{stock_job.__name__}:job")
    plans = islice(campaign_plans(CampaignConfiguration(system=section, seed=3, trials=PLANS), system), PLANS)
    wrote = batches = 0
    for number, plan in enumerate(plans):
        place = QueryPlace(
            *(str(tmp_path / f"{number}-{name}") for name in ("input", "output", "checkpoint"))
        )
        system._write_input(filled(system._sample), Path(place.input))
        held_back_s = checked(spark, job, place).held_back_s
        place = replace(place, input=f"{place.input}-drawn")
        system._write_input(plan, Path(place.input), held_back_s)
        sizes = local_streams.run(spark, job, place)[: plan.workload.batches]
        wrote, batches = wrote + sum(map(bool, sizes)), batches + len(sizes)
    assert wrote / batches > 0.6, f"{wrote} of {batches}"
