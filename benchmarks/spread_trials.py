"""Simulated trials per second with `--jobs 2` and on a Spark cluster of two workers, and what the driver keeps of them.

Both sides run the same campaigns on the same machine, in turn, each in a process of its own, so that neither has the
quiet half of the day. The cluster is a standalone one with one core for each worker, and it is up before the clock
starts; starting what runs the trials counts, which is more on Spark, so the rate of each run's second half is reported
as well: that of a long campaign. Verdicts and digests of both sides must be the same.

Memory is that of the campaign's own process, and on Spark also that of the driver's JVM beside it, sampled while trials
run: the highest value of the first and of the second half. A driver whose memory is flat has about the same in both.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

import psutil

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.runner import Spread, run_campaign
from barrier_tck.harness.campaign.spark_runs import SparkRuns
from barrier_tck.harness.cluster.local_cluster import LocalCluster, LocalClusterConfig
from barrier_tck.harness.cluster.session_elsewhere import session_on
from barrier_tck.harness.record.run_reader import stored_trials
from barrier_tck.harness.system.system_names import open_system
from benchmarks.benchmark_trials import text_table

TRIALS, ROUNDS, WORKERS = 1_000, 2, 2
"""Each side runs so many trials in each round."""
PROFILE = "standard"
SYSTEM = "reference-simulated"
_SAMPLE_S = 0.5


def run(progress: Callable[[str, float], None]) -> dict[str, Any]:
    """Run the benchmark; raises RuntimeError if the two sides do not show the same."""
    shape = LocalClusterConfig(
        workers=WORKERS, cores_per_worker=1, memory_per_worker_mb=1024, quick_start=True
    )
    points: list[dict[str, Any]] = []
    with LocalCluster(shape) as cluster, tempfile.TemporaryDirectory(prefix="barrier-tck-bench-") as place:
        for number in range(ROUNDS):
            for side in ("jobs", "spark")[:: 1 if number % 2 == 0 else -1]:
                progress(f"round {number + 1} with {side}", len(points) / (2 * ROUNDS))
                asked = {
                    "side": side,
                    "seed": number,
                    "trials": TRIALS,
                    "out": f"{place}/{side}-{number}",
                    "master": cluster.master_url,
                    "conf": cluster.spark_conf(),
                }
                points.append({"round": number, "side": side, **_in_a_process(asked)})
    return compared(points)


def compared(points: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the numbers of both sides together; raises RuntimeError if a round showed different trials."""
    sides: dict[str, list[dict[str, Any]]] = {"jobs": [], "spark": []}
    for point in points:
        sides[point["side"]].append(point)
    for jobs, spark in zip(
        *(sorted(side, key=lambda one: one["round"]) for side in sides.values()), strict=True
    ):
        if jobs["digest"] != spark["digest"]:
            raise RuntimeError(f"round {jobs['round']} shows other trials on Spark: {jobs} and {spark}")
    jobs_rate, spark_rate = (
        sum(one["trials"] for one in of_side) / sum(one["seconds"] for one in of_side)
        for of_side in sides.values()
    )
    jobs_later, spark_later = (
        len(of_side) / sum(1 / one["second_half_per_second"] for one in of_side) for of_side in sides.values()
    )
    return {
        "trials_per_second_jobs": round(jobs_rate, 1),
        "trials_per_second_spark": round(spark_rate, 1),
        "spark_to_jobs": round(spark_rate / jobs_rate, 3),
        "spark_to_jobs_second_half": round(spark_later / jobs_later, 3),
        "same_verdicts_and_digests": True,
        "points": list(points),
    }


def table(numbers: dict[str, Any]) -> str:
    """Return the runs as text."""
    columns = (
        "round",
        "side",
        "trials",
        "seconds",
        "second_half_per_second",
        "own_mb_first_half",
        "own_mb_second_half",
    )
    return text_table(numbers["points"], (*columns, "jvm_mb_first_half", "jvm_mb_second_half"))


def _in_a_process(asked: dict[str, Any]) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.spread_trials"]
    done = subprocess.run(command, input=json.dumps(asked), stdout=subprocess.PIPE, text=True, check=True)
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def _one_side(asked: dict[str, Any]) -> dict[str, Any]:
    """Run a campaign on one side, and return its numbers."""
    wanted = configuration_from(
        {"trials": asked["trials"], "seed": asked["seed"], "profile": PROFILE, "controls": 0}, "the benchmark"
    )
    system, out = open_system(SYSTEM), Path(asked["out"])
    with contextlib.ExitStack() as opened:
        spread = None
        if asked["side"] == "spark":
            session = opened.enter_context(session_on(asked["master"], "spread", asked["conf"]))
            spread = Spread(SparkRuns(system, session))
        samples = opened.enter_context(_sampled())
        started = time.monotonic()
        run_campaign(wanted, system, out, jobs=WORKERS if spread is None else 1, spread=spread)
        seconds = time.monotonic() - started
    shown = hashlib.sha256()
    begun: list[float] = []
    for trial in stored_trials(out):
        begun.append(datetime.fromisoformat(trial.started_at).timestamp())
        shown.update(f"{trial.trial} {trial.verdict.value} {trial.trace_digest}\n".encode())
    return {
        "trials": asked["trials"],
        "seconds": round(seconds, 2),
        "second_half_per_second": _second_half(sorted(begun)),
        "digest": shown.hexdigest(),
        **_halves("own", [own for own, _ in samples]),
        **_halves("jvm", [jvm for _, jvm in samples]),
    }


def _second_half(begun: Sequence[float]) -> float:
    """Return how many trials began in a second, from the one in the middle to the last."""
    middle = len(begun) // 2
    return round((len(begun) - 1 - middle) / (begun[-1] - begun[middle]), 1)


def _halves(name: str, values: Sequence[int]) -> dict[str, int]:
    middle = len(values) // 2
    halves = {"first": values[:middle], "second": values[middle:]}
    return {f"{name}_mb_{half}_half": max(part, default=0) >> 20 for half, part in halves.items()}


@contextlib.contextmanager
def _sampled() -> Iterator[list[tuple[int, int]]]:
    """Sample the memory in use by this process, and by the JVM below it, until the end."""
    samples: list[tuple[int, int]] = []
    over = threading.Event()
    me = psutil.Process()
    jvms = [child for child in me.children() if child.name() == "java"]

    def sample() -> None:
        while not over.wait(_SAMPLE_S):
            samples.append((me.memory_info().rss, sum(jvm.memory_info().rss for jvm in jvms)))

    thread = threading.Thread(target=sample)
    thread.start()
    try:
        yield samples
    finally:
        over.set()
        thread.join()


if __name__ == "__main__":
    print(json.dumps(_one_side(json.load(sys.stdin))))
