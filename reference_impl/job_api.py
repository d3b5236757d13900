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
from barrier_tck.reference_impl.operators.event_time_process import EventTimers
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
from barrier_tck.reference_impl.operators.interval_join import Within
from barrier_tck.reference_impl.operators.job import StreamJob
from barrier_tck.reference_impl.operators.join_sides import JoinForm, JoinSide
from barrier_tck.reference_impl.operators.list_process import OperatorListState, OperatorStates
from barrier_tck.reference_impl.operators.sinks import FileSink
from barrier_tck.reference_impl.operators.sources import CollectionSource, Gap, ParquetSource
from barrier_tck.reference_impl.operators.timed_process import KeyedTimers
from barrier_tck.reference_impl.operators.top_n import Order, Top
from barrier_tck.reference_impl.operators.watermark_strategies import BoundedOutOfOrder, WatermarkAlignment
from barrier_tck.reference_impl.operators.windows import EveryRecords, Session, Sliding, Tumbling
from barrier_tck.reference_impl.protocol.coordinator_states import JobState
from barrier_tck.reference_impl.protocol.messages import CompletedCheckpoint
from barrier_tck.reference_impl.spark.deployment import SparkJobRunner
from barrier_tck.reference_impl.spark.running_attempt import JobEnd
from barrier_tck.reference_impl.spark.spark_observer import SparkJobObserver
from barrier_tck.reference_impl.spark.spark_options import SparkOptions, session_settings
from barrier_tck.reference_impl.state.keyed import KeyedStates
from barrier_tck.reference_impl.state.time_to_live import RefreshedBy, TimeToLive

__all__ = [
    "AggregateFunction",
    "Average",
    "BoundedOutOfOrder",
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
    "EventTimers",
    "EveryRecords",
    "ExponentialDelayRestart",
    "FailureRateRestart",
    "FileSink",
    "FloatSum",
    "Gap",
    "JobConfig",
    "JobEnd",
    "JobGraph",
    "JobState",
    "JoinForm",
    "JoinSide",
    "KeyedStates",
    "KeyedTimers",
    "Max",
    "Min",
    "OnUnreadable",
    "OperatorListState",
    "OperatorStates",
    "Order",
    "OwnAggregate",
    "ParquetSource",
    "RefreshedBy",
    "RestartConfig",
    "Session",
    "Sliding",
    "SparkJobObserver",
    "SparkJobRunner",
    "SparkOptions",
    "StreamJob",
    "Sum",
    "TimeToLive",
    "Top",
    "Tumbling",
    "WatermarkAlignment",
    "Within",
    "session_settings",
]
