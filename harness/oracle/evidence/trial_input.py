"""The input of one trial as the oracle sees it: made only from the plan, once, for all checkers."""

from __future__ import annotations

from functools import cached_property

import msgspec

from barrier_tck.harness.oracle.evidence.prefix import (
    Contributions,
    Extent,
    ParquetPrefix,
    PrefixFold,
    RowsPrefix,
    contributions_of,
)
from barrier_tck.harness.plan.trial_plan import TrialPlan
from barrier_tck.harness.workloads.sequential_model import Key, SequentialSpec, Totals
from barrier_tck.harness.workloads.workload import SplitData, Workload, job_of_plan, read_splits


class InputRecord(msgspec.Struct, frozen=True):
    """One record of the input: its place, its key, and what it adds to each accumulator."""

    split: str
    offset: int
    key: Key
    increments: list[int]

    def __str__(self) -> str:
        return f"{self.split}@{self.offset}, key {'/'.join(map(str, self.key))}"


class TrialInput:
    """Rows, ids, totals and prefixes of a plan's input, each made when it is first needed.

    The rows are the oracle's own, so changes that a system makes to its rows have no effect here.
    """

    def __init__(self, workload: Workload, plan: TrialPlan) -> None:
        self.workload = workload
        job = job_of_plan(workload, plan)
        self.plan = plan if job is plan.job else msgspec.structs.replace(plan, job=job)

    @property
    def spec(self) -> SequentialSpec:
        """Return the sequential model; raises ValueError for a workload that has none."""
        if self.workload.spec is None:
            raise ValueError(f"the workload {self.workload.name!r} has no sequential model")
        return self.workload.spec

    @cached_property
    def splits(self) -> tuple[SplitData, ...]:
        """All splits, as rows; costly for a large Parquet input."""
        return read_splits(self.workload, self.plan)

    @cached_property
    def records(self) -> dict[int, InputRecord]:
        """Id -> record, for every record of the input; raises ValueError if an id occurs twice."""
        id_column, found = self.spec.id_column, {}
        number = 0
        for split in self.splits:
            name, start, contributions = split.name, split.start_offset, self._contributions[split.name]
            for offset, row in enumerate(split.input, start):
                found[row[id_column]] = InputRecord(name, offset, *contributions[offset])
            number += len(split.input)
        if len(found) != number:
            raise ValueError(
                f"the input of workload {self.workload.name!r} has {number - len(found)} repeated ids"
            )
        return found

    @cached_property
    def _contributions(self) -> Contributions:
        return contributions_of(self.spec, self.splits)

    @cached_property
    def totals(self) -> Totals:
        """The totals of the whole input, with which a run without faults ends."""
        return self.prefix.up_to({name: extent.end for name, extent in self.extents.items()})

    @cached_property
    def witnesses(self) -> tuple[str, ...]:
        """The chained operators that count the records of each key once more."""
        operators = [operator for vertex in self.plan.job.vertices for operator in vertex.operators]
        return tuple(operator.name for operator in operators if operator.kind == "witness")

    @property
    def start_offset(self) -> int:
        """Return where every split begins, even a split that is too short to have records there."""
        return self.plan.workload.start_offset

    @cached_property
    def extents(self) -> dict[str, Extent]:
        """Return where each split's input lies."""
        if self.workload.input_directory is None:
            return {split.name: Extent(split.start_offset, len(split.rows)) for split in self.splits}
        return dict(self.prefix.extents)

    @cached_property
    def prefix(self) -> PrefixFold:
        """Return a fold over growing prefixes of the splits."""
        directory = self.workload.input_directory
        if directory is None:
            return RowsPrefix(self.splits, self._contributions)
        return ParquetPrefix(self.spec, directory, self.start_offset)
