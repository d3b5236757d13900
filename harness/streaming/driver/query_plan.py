"""What Catalyst says of a query: its analyzed plan, read in the JVM, because PySpark has no public way to it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, cast

from barrier_tck.harness.streaming.driver.spark_classes import ClassicDataFrame, dataset_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_PLANS = "org.apache.spark.sql.catalyst.plans"
_CLOCKS = ("CurrentTimestamp", "Now", "LocalTimestamp", "CurrentBatchTimestamp", "CurrentDate", "CurrentTime")
"""Expressions that Catalyst counts as deterministic, because within one run they have one value."""
_OUTER = ("LeftOuter", "RightOuter", "FullOuter")
_KEEPS_ROWS_BACK = ("Aggregate", "FlatMapGroupsWithState", "FlatMapGroupsInPandasWithState")


class QueryPlan:
    """The analyzed plan of a query, given as a stream or as a batch."""

    def __init__(self, spark: SparkSession, rows: DataFrame) -> None:
        self._spark = spark
        self._frame = cast("ClassicDataFrame", rows)
        self._root = self._frame._jdf.queryExecution().analyzed()  # noqa: SLF001

    def nondeterministic(self) -> tuple[str, ...]:
        """Return the expressions whose value differs from run to run, as SQL."""
        found: dict[str, None] = {}
        for node in _nodes(self._root):
            for expression in _each(node.expressions()):
                found |= dict.fromkeys(_nondeterministic(expression))
        return tuple(found)

    def depends_on_partitions(self) -> bool:
        """Return whether some value may be another if rows are in other partitions; that of a clock is not."""
        return any(
            not expression.deterministic()
            for node in _nodes(self._root)
            for expression in _each(node.expressions())
        )

    def watermark_delay_s(self) -> float | None:
        """Return the longest delay of a watermark; None without any, and in a batch, which has none."""
        delays = [_ms_of(self._jvm, node.delay()) / 1_000.0 for node in self._watermarks()]
        return max(delays, default=None)

    def number_of_watermarks(self) -> int:
        """Return how many watermarks Spark keeps: one is there twice in a join of a stream with itself."""
        return sum(1 for _ in self._watermarks())

    def _watermarks(self) -> Iterator[Any]:
        return (node for node in _nodes(self._root) if _name(node) == "EventTimeWatermark")

    def kept_back(self) -> str:
        """Return what makes a stream in append mode keep rows until the watermark passes them; empty: nothing."""
        if any(_name(node) == "Aggregate" and node.isStreaming() for node in _nodes(self._root)):
            return "groups rows"
        return "has an outer join of streams" if any(self.outer_joins_of_streams()) else ""

    def outer_joins_of_streams(self) -> tuple[bool, ...]:
        """Tell of each join, from the top, whether it is an outer join of two streams."""
        return tuple(
            _name(node.joinType()) in _OUTER and node.left().isStreaming() and node.right().isStreaming()
            for node in _nodes(self._root)
            if _name(node) == "Join"
        )

    def pairs_come_at_once(self) -> bool:
        """Return whether no other operator keeps rows back, before a join or after it."""
        return not any(_name(node) in _KEEPS_ROWS_BACK for node in _nodes(self._root))

    def with_inner_joins(self, chosen: tuple[bool, ...]) -> DataFrame | None:
        """Return the rows of the same query, with inner joins for those that are chosen, counted from the top.

        None if it has another number of joins.
        """
        joins = sum(_name(node) == "Join" for node in _nodes(self._root))
        if joins != len(chosen):
            return None
        changed = self._changed(self._root, iter(chosen))
        of_plan: Any = dataset_class(self._spark)
        dataset = of_plan.ofRows(self._spark._jsparkSession, changed)  # noqa: SLF001
        return ClassicDataFrame(dataset, self._spark)

    def _changed(self, node: Any, chosen: Iterator[bool]) -> Any:
        inner = _name(node) == "Join" and next(chosen)
        children = [self._changed(child, chosen) for child in _each(node.children())]
        if children:
            node = node.withNewChildren(self._jvm.PythonUtils.toSeq(children))
        if inner:
            of_pairs = getattr(self._jvm, f"{_PLANS}.JoinType").apply("inner")
            node = node.copy(node.left(), node.right(), of_pairs, node.condition(), node.hint())
        return node

    @property
    def _jvm(self) -> Any:
        return self._spark._jvm  # noqa: SLF001


def delay_ms(spark: SparkSession, delay: str) -> int:
    """Return the milliseconds of a delay that ``withWatermark`` is given, for instance ``10 minutes``."""
    jvm: Any = spark._jvm  # noqa: SLF001
    return _ms_of(jvm, jvm.org.apache.spark.sql.catalyst.util.IntervalUtils.fromIntervalString(delay))


def _ms_of(jvm: Any, delay: Any) -> int:
    of_node: Any = getattr(jvm, f"{_PLANS}.logical.EventTimeWatermark")
    return int(of_node.getDelayMs(delay))


def _nodes(node: Any) -> Iterator[Any]:
    """Yield a node and all below it, from the top."""
    yield node
    for child in _each(node.children()):
        yield from _nodes(child)


def _nondeterministic(expression: Any) -> Iterator[str]:
    """Yield the innermost expressions below one that are not deterministic, or ask a clock."""
    children = list(_each(expression.children()))
    for child in children:
        yield from _nondeterministic(child)
    own = not expression.deterministic() and all(child.deterministic() for child in children)
    if own or _name(expression) in _CLOCKS:
        yield str(expression.sql())


def _each(seq: Any) -> Iterator[Any]:
    """Yield the elements of a Scala sequence."""
    return (seq.apply(index) for index in range(seq.size()))


def _name(value: Any) -> str:
    """Return the name of a class of Catalyst; that of a Scala object ends with a dollar sign."""
    return str(value.getClass().getSimpleName()).rstrip("$")
