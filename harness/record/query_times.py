"""What a query's watermark has to do with its output: which rows are due, and which may be missing because late."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import StrEnum

import msgspec


class Reference(StrEnum):
    """What committed output of a query is compared with."""

    BATCH = "batch"
    """The same query as a batch over all input."""
    UNDISTURBED = "undisturbed"
    """An undisturbed run over the same micro-batches, and the batch where no late row has a part."""


class RowsDue(msgspec.Struct, frozen=True):
    """The rows that a query with a watermark gives as a batch, by when a stream gives them."""

    final: int
    """Those that the last watermark has passed."""
    at_once: int
    """Those that wait for no watermark."""
    held_back: int
    """Those that the last watermark has not passed, which need not be there."""


class LateRow(msgspec.Struct, frozen=True):
    """A row of a query's input that was behind the watermark when it was read: the query may drop it."""

    row: str
    file: str
    micro_batch: int
    watermark_ms: int
    """The watermark of that micro-batch, in milliseconds since 1970."""

    @property
    def sentence(self) -> str:
        """The same in words."""
        mark = datetime.fromtimestamp(self.watermark_ms / 1_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3]
        return f"{self.row}, read by micro-batch {self.micro_batch} at the watermark {mark} UTC"


class LateInput(msgspec.Struct, frozen=True, omit_defaults=True):
    """What became of rows of a query's input that were behind the watermark when they were read."""

    number: int
    """How many there are."""
    rows: tuple[LateRow, ...] = ()
    """The first of them."""
    missing: int = 0
    """Rows that the query gives as a batch, and not in an undisturbed run of the same micro-batches: they may be
    missing, because late rows have a part in them."""
    examples: tuple[str, ...] = ()
    """The first of those."""


class WatermarkDifference(msgspec.Struct, frozen=True):
    """A micro-batch whose watermark is another than it must be."""

    micro_batch: int
    found_ms: int
    expected_ms: int
    why: str
    """What the expected one is."""

    @property
    def sentence(self) -> str:
        """The same in words."""
        return (
            f"the watermark of micro-batch {self.micro_batch} is {self.found_ms} ms since 1970, and {self.why} "
            f"{self.expected_ms}"
        )


class WatermarkComparison(msgspec.Struct, frozen=True, omit_defaults=True):
    """How the watermarks of a query's micro-batches compare with what they must be."""

    batches: int = 0
    """The micro-batches of which the watermark was looked at; 0: the query has none."""
    advances: int = 0
    """How often it went on."""
    exact: bool = False
    """Whether they were compared with those of an undisturbed run, and not only with the greatest that they may be."""
    differences: tuple[WatermarkDifference, ...] = ()
    problem: str = ""
    """Why they could not be compared, in words."""
