"""The names for those who write a job for the reference runtime and run it on Spark.

Import them from here, because the modules that define them may change. Those who test a system import from
``barrier_tck.harness``.
"""

from barrier_tck.reference_impl.config import (
    CheckpointConfig,
    CheckpointMode,
    ElasticConfig,
    ExponentialDelayRestart,
    FailureRateRestart,
    JobConfig,
    OnUnreadable,
    RestartConfig,
)
from barrier_tck.reference_impl.operators.folds import (
    AggregateFunction,
    Average,
    DecimalSum,
    DistinctSketch,
    Max,
    Min,
    OwnAggregate,
)
from barrier_tck.reference_impl.operators.functions import Count, CountIf, Emission, FloatSum, Sum
from barrier_tck.reference_impl.operators.graph import JobGraph
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.list_process import OperatorListState, OperatorStates
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource, ParquetSource
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.running_attempt import JobEnd
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver
from barrier_tck.reference_impl.spark.spark_options import SparkOptions, session_settings
from barrier_tck.reference_impl.state.keyed import KeyedStates

__all__ = [
    "AggregateFunction",
    "Average",
    "CheckpointConfig",
    "CheckpointMode",
    "CollectionSource",
    "CompletedCheckpoint",
    "Count",
    "CountIf",
    "DecimalSum",
    "DistinctSketch",
    "ElasticConfig",
    "Emission",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FileSink",
    "FloatSum",
    "JobConfig",
    "JobEnd",
    "JobGraph",
    "JobState",
    "KeyedStates",
    "KeyedTimers",
    "Max",
    "Min",
    "OnUnreadable",
    "OperatorListState",
    "OperatorStates",
    "OwnAggregate",
    "ParquetSource",
    "RestartConfig",
    "SparkJobObserver",
    "SparkJobRunner",
    "SparkOptions",
    "StreamJob",
    "Sum",
    "session_settings",
]
