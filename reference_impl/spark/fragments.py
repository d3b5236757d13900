"""Large batches in pieces: a barrier that overtakes waits for the piece on the wire, not for the whole batch.

A batch above the limit is encoded as it is for a checkpoint, and cut. The pieces are ordinary elements of their
channel: in queues, in buffers, and in channel state. There a barrier may have passed between two pieces of one batch.
Then the receiver's part of the checkpoint ends with the first pieces, the sender's begins with the rest, and the batch
is whole again once both are restored.
"""

from __future__ import annotations

import pyarrow as pa

from barrier_tck.reference_impl.operators.arrow import ArrowPlane
from barrier_tck.reference_impl.operators.elements import Element, decode_element
from barrier_tck.reference_impl.runtime_errors import CorruptStateError
from barrier_tck.reference_impl.spark.control_wire import WireError
from barrier_tck.reference_impl.storage.channel_state import Fragment

_PLANE = ArrowPlane()


def cut(batch: pa.RecordBatch, most_bytes: int) -> list[Fragment]:
    """Return a batch in pieces of at most ``most_bytes`` bytes."""
    data = _PLANE.encode(batch)
    return [
        Fragment(data[start : start + most_bytes], start + most_bytes < len(data))
        for start in range(0, len(data), most_bytes)
    ]


class Joiner:
    """Puts the pieces of one channel together, in the order in which they are read."""

    def __init__(self, longest: int) -> None:
        """Take the limit on the bytes of a whole batch."""
        self._longest = longest
        self._length = 0
        self.waiting: list[Fragment] = []
        """The pieces of the batch that is not whole yet."""

    def add(self, fragment: Fragment) -> Element | None:
        """Take the next piece; returns the element with the last one. Raises WireError if they are none."""
        self._length += len(fragment.data)
        if self._length > self._longest:
            raise WireError(f"a batch of more than {self._longest} bytes, in fragments")
        self.waiting.append(fragment)
        if fragment.more:
            return None
        data = b"".join(piece.data for piece in self.waiting)
        self.waiting, self._length = [], 0
        try:
            return decode_element(_PLANE, data)
        except CorruptStateError as error:
            raise WireError(f"{len(data)} bytes of fragments that are not a batch: {error}") from error

    def check_between_batches(self) -> None:
        """Raise WireError if something other than the next piece comes while a batch is not whole."""
        if self.waiting:
            raise WireError(
                f"another element after {len(self.waiting)} fragments of a batch that is not whole"
            )
