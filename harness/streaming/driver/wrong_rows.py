"""What is said of rows that are wrong: each with what the batch gives, what is in the output, and its input."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from barrier_tck.harness.record.history import WrongRow, in_times
from barrier_tck.harness.streaming.driver.doubled_rows import (
    Difference,
    Instead,
    Values,
    difference_of,
    in_the_place_of,
)
from barrier_tck.harness.streaming.driver.input_rows import Origin, rendered

EXAMPLES = 5
Parts = Mapping[int, Sequence[Values]]
"""Micro-batch -> the rows that the batch gives for its input alone."""


@dataclass(frozen=True)
class Tallied:
    """One row, with how often it is where."""

    values: Values
    due: int
    """How often the batch gives it."""
    committed: int
    early: int = 0
    """How often it may be there in addition."""
    batches: tuple[int, ...] = ()
    """The micro-batch of each copy, if the sink keeps it."""

    @property
    def wanted(self) -> int:
        """How often it may be there."""
        return self.due + self.early


@dataclass(frozen=True)
class WrongRows:
    """What was found out about rows that are wrong."""

    rows: tuple[WrongRow, ...]
    """The first ones, with those in front that tell most."""
    added_again: int
    """See ``OutputComparison``."""

    def with_more(self, rows: Sequence[WrongRow]) -> WrongRows:
        """Return the same, and other rows behind them."""
        return WrongRows((*self.rows, *rows), self.added_again)

    @property
    def examples(self) -> tuple[str, ...]:
        """The same as lines."""
        return tuple(_line_of(row) for row in self.rows)


def wrong_rows(
    tallied: Sequence[Tallied],
    run_again: Collection[int] = (),
    parts: Callable[[], Parts | None] = lambda: None,
    origin: Callable[[Values], Origin] = lambda _: Origin(),
) -> WrongRows:
    """Describe rows that are wrong; ``parts`` is asked only if a row was committed in the place of another one.

    ``run_again`` are the micro-batches that ran more than once.
    """
    lost = [row for row in tallied if not row.committed]
    strange = [row for row in tallied if not row.wanted]
    pairs = list(in_the_place_of([row.values for row in lost], [row.values for row in strange]))
    known = parts() if pairs else None
    compared = [
        _Pair(pair, lost[pair.expected], strange[pair.committed], known, frozenset(run_again))
        for pair in pairs
    ]
    compared.sort(key=lambda pair: not pair.added_again)
    paired = [row for pair in compared for row in (pair.due, pair.found)]
    alone = [row for row in tallied if not any(row is other for other in paired)]
    described = [pair.described() for pair in compared[:EXAMPLES]]
    described += [(_described(row), row.values) for row in alone[: EXAMPLES - len(described)]]
    return WrongRows(
        tuple(_with_origin(row, origin(values)) for row, values in described),
        sum(min(pair.due.due, pair.found.committed) for pair in compared if pair.added_again),
    )


class _Pair:
    """A row that was committed in the place of one that the batch gives."""

    def __init__(
        self, pair: Instead, due: Tallied, found: Tallied, parts: Parts | None, run_again: Collection[int]
    ) -> None:
        self.due, self.found = due, found
        self._times = pair.times
        self._run_again = run_again
        self._difference = difference_of(due.values, found.values, parts, run_again)

    @property
    def added_again(self) -> bool:
        """Whether the sink has added to it more often than once."""
        return self._times is not None or self._difference.has_too_much_of(self._run_again)

    def described(self) -> tuple[WrongRow, Values]:
        """Return what is said of it, and its values."""
        times = "" if self._times is None else f"{self._times} times as much: "
        row = WrongRow(
            kind="duplicated" if self.added_again else "lost",
            row=rendered(self.due.values),
            expected=self.due.due,
            committed=self.found.committed,
            micro_batches=self.found.batches,
            instead=rendered(self.found.values),
            difference=times + _difference_in_words(self._difference, self._run_again),
        )
        return row, self.due.values


def _difference_in_words(difference: Difference, run_again: Collection[int]) -> str:
    by = " and ".join(
        f"{name} is {'higher' if amount > 0 else 'lower'} by {abs(amount)}"
        for name, amount in difference.amounts.items()
    )
    if difference.equals is None:
        return by
    if difference.together:
        return f"{by}, which is what {_together(difference.together)}"
    if not difference.equals:
        return f"{by}, which is what no micro-batch adds alone"
    again = [batch for batch in difference.equals if batch in run_again]
    named = _either(difference.equals)
    if len(difference.equals) == 1:
        known = "it ran more than once" if again else "it is not known to have run more than once"
    else:
        known = (
            f"{_either(again)} ran more than once" if again else "none is known to have run more than once"
        )
    return f"{by}, which is what micro-batch {named} adds ({known})"


def _together(batches: Sequence[int]) -> str:
    """Return for instance ``micro-batches 1 and 4 (2 times) add together (each ran more than once)``."""
    copies = Counter(batches)
    if len(copies) == 1:
        return f"micro-batch {batches[0]} adds {in_times(len(batches))} (it ran more than once)"
    named = " and ".join(f"{batch}" + f" ({in_times(n)})" * (n > 1) for batch, n in copies.items())
    return f"micro-batches {named} add together (each ran more than once)"


def _either(batches: Sequence[int]) -> str:
    return " or ".join(map(str, batches))


def _described(row: Tallied) -> WrongRow:
    """Describe a row that stands alone."""
    kind = "unexpected" if not row.wanted else "lost" if row.due > row.committed else "duplicated"
    return WrongRow(
        kind=kind,
        row=rendered(row.values),
        expected=row.wanted,
        committed=row.committed,
        micro_batches=row.batches,
    )


def _with_origin(row: WrongRow, origin: Origin) -> WrongRow:
    return msgspec.structs.replace(
        row,
        found_by=origin.found_by,
        within=origin.within,
        input=origin.rows,
        input_rows=origin.number,
        read_by=origin.read_by,
    )


def _line_of(row: WrongRow) -> str:
    """Return what is wrong with a row, and which micro-batches wrote it."""
    return f"{row.kind}: {row.sentence}" + f"; written by {row.writers}" * bool(row.writers)


def repeated_update(values: Values, times: int, batch: int) -> WrongRow:
    """Describe an update that a micro-batch wrote more often than once."""
    return WrongRow(
        kind="duplicated",
        row=rendered(values),
        expected=1,
        committed=times,
        micro_batches=(batch,) * times,
        update=True,
    )
