"""The distinct values of a column as a theta sketch of Apache DataSketches, whose bytes depend on the values alone.

A theta sketch keeps the least hashes of the values. Of the sketches of that library it is the one whose stored form
depends neither on the order of the values nor on how they were merged, so both planes and all runs keep the same bytes.
"""

from __future__ import annotations

from functools import cache
from typing import Any

from barrier_tck.reference_impl.operators.encoding import encode_key
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, JobUsageError

_LOG_OF_SIZE = 12
EXACT_UP_TO = 2**_LOG_OF_SIZE
"""How many hashes are kept: up to as many values are counted exactly."""


@cache
def _library() -> Any:
    """Import the library when it is first needed: executors whose jobs have no sketches may lack it."""
    try:
        import datasketches
    except ImportError as error:
        raise JobUsageError(
            "DistinctSketch needs the package datasketches; install it where the job runs: pip install datasketches"
        ) from error
    return datasketches


class DistinctValues:
    """A set of values, of which only the number can be asked, approximately."""

    __slots__ = ("_earlier", "_fresh")

    def __init__(self, stored: bytes | None = None) -> None:
        """Take what ``stored`` gave; raises JobUsageError without the library, CorruptStateError for other bytes."""
        library = _library()
        self._fresh = library.update_theta_sketch(_LOG_OF_SIZE)
        self._earlier: Any = None
        if stored is not None:
            try:
                self._earlier = library.compact_theta_sketch.deserialize(stored)
            except (TypeError, ValueError, RuntimeError, IndexError) as error:
                raise CorruptStateError(
                    f"{stored[:40]!r} is no sketch of distinct values: {error}"
                ) from error

    def add(self, value: Any) -> None:
        """Add a value; raises JobUsageError for what cannot be a key."""
        # Equal values have equal bytes. The library takes texts, and Latin-1 makes a different one of any bytes.
        self._fresh.update(encode_key((value,)).decode("latin-1"))

    def merge(self, other: DistinctValues) -> None:
        """Add the values of another one."""
        self._earlier = self._union(self._earlier, other._compact())

    def stored(self) -> bytes:
        """Return the bytes, the same for the same values."""
        found: bytes = self._compact().serialize()
        return found

    def estimate(self) -> int:
        """Return about how many values there are."""
        estimate: float = self._compact().get_estimate()
        return round(estimate)

    def _compact(self) -> Any:
        return self._union(self._earlier, self._fresh)

    @staticmethod
    def _union(*sketches: Any) -> Any:
        union = _library().theta_union(_LOG_OF_SIZE)
        for sketch in sketches:
            if sketch is not None:
                union.update(sketch)
        return union.get_result()
