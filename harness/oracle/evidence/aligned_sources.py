"""Whether aligned sources kept their bound, and whether one was held back for nothing (EVT-6).

Written from what the alignment promises, and shares no code with a runtime. What is known is in four places, and each
is held against the one before:

1. a subtask reports the smallest watermark of its active splits: its model says which that is;
2. the coordinator announces what is allowed: the smallest active watermark among one report of each member, none older
   than those of the announcement before, and the bound;
3. a subtask learns what was announced, in its order;
4. it reads no split whose watermark is beyond what it learned last, and passes over no other.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from barrier_tck.harness.oracle.evidence.replayed_subtask import BEGINNING, END, ReplayedSubtask
from barrier_tck.harness.plan.job_graph import JobPlan, VertexPlan
from barrier_tck.harness.record.elements import Polled, ToldTime
from barrier_tck.harness.record.operations import SourcesAligned
from barrier_tck.harness.workloads.event_time_parameters import DRIFT, GROUP

_UNCHANGED_REPORTS = 20
"""A subtask whose last reports are all alike, as many as this, stands still: whatever was under way has arrived."""


@dataclass
class AlignedSource:
    """One subtask of an aligned source, in one attempt: its model, and what it reported, learned and passed over."""

    subtask: str
    model: ReplayedSubtask
    finished: bool
    """Whether it had finished before the attempt."""
    lengths: Mapping[str, int]
    """Split -> how many records it has."""
    largest: int = BEGINNING
    """What it learned last; before, it may read only splits without a watermark."""
    reports: list[ToldTime] = field(default_factory=list)
    learned: list[int] = field(default_factory=list)
    held: tuple[str, ...] = ()
    _polled: bool = False

    def learn(self, largest: int) -> None:
        """Take what is allowed from here on."""
        self.largest = largest
        self.learned.append(largest)

    def report_problem(self, report: ToldTime) -> str | None:
        """Take a report, and return what is wrong with it."""
        self.reports.append(report)
        expected = self._expected()
        if report.ended and not expected.ended:
            # That its input has ended shows itself at the next look at its splits: then they must all be at their end.
            left = [name for name, end in self.lengths.items() if self.model.offsets.get(name, 0) < end]
            return f"{self.subtask} reported its end, and {left[0]} has more" if left else None
        if (report.idle, report.ended) != (expected.idle, expected.ended) or (
            _is_active(expected) and report.at_ms != expected.at_ms
        ):
            return f"{self.subtask} reported {_shown(report)}, and stood at {_shown(expected)}"
        return None

    def ahead_problem(self, polled: Polled) -> str | None:
        """Return what is wrong with what is read, ahead of what its model takes."""
        if not polled.rows or self._at(polled.split) <= self.largest:
            return None
        return f"{self.subtask} read {polled.split}@{polled.offset} at {self._place(polled.split)}"

    def held_problem(self, polled: Polled) -> str | None:
        """Take which splits are passed over, ahead of what its model takes; return what is wrong with it."""
        self.held, self._polled = polled.held, True
        wrong = [split for split in polled.held if self._at(split) <= self.largest]
        return f"{self.subtask} passed over {wrong[0]} at {self._place(wrong[0])}" if wrong else None

    def _at(self, split: str) -> int:
        return self.model.valve.inputs[split].at

    def _place(self, split: str) -> str:
        allowed = str(self.largest) if self.largest > BEGINNING else "none yet"
        return f"the watermark {self._at(split)}, and {allowed} was allowed"

    def stands_still(self) -> bool:
        """Return whether nothing has changed for a long time."""
        last = self.reports[-_UNCHANGED_REPORTS:]
        return len(last) == _UNCHANGED_REPORTS and all(one == last[-1] for one in last)

    def active_time(self) -> int | None:
        """Return the smallest watermark of its active splits; None: there is none."""
        expected = self._expected()
        return expected.at_ms if _is_active(expected) else None

    def _expected(self) -> ToldTime:
        valve = self.model.valve
        if self.finished or valve.at == END:
            return ToldTime(END, ended=True)
        # Behind a restore, a reader learns that a split has ended when it looks at it.
        still_open = [one for one in valve.inputs.values() if not (one.ended and self._polled)]
        active = [one.at for one in still_open if not one.idle]
        return ToldTime(min(active, default=valve.at), bool(still_open) and not active, not still_open)


def announcement_problem(
    said: SourcesAligned,
    vertices: Sequence[VertexPlan],
    places: dict[str, int],
    members: Mapping[str, AlignedSource],
) -> str | None:
    """Return what is wrong with an announcement to a group; ``places`` has, and is given, the place of the report of
    each member of which the last one follows.
    """
    wanted = sorted(subtask for vertex in vertices for subtask in vertex.subtasks)
    if sorted((*said.active, *said.idle, *said.ended)) != wanted:
        return f"{said.group} was allowed {said.largest_ms} without a report of each of {', '.join(wanted)}"
    for subtask in wanted:
        member = members.get(subtask)
        if member is None:
            continue  # what it began with is not known
        place = next(
            (
                place
                for place in range(places.get(subtask, 0), len(member.reports))
                if _fits(member.reports[place], subtask, said)
            ),
            None,
        )
        if place is None:
            return f"{said.group} was allowed {said.largest_ms} by a report of {subtask} that it had not made then"
        places[subtask] = place
    drift = vertices[0].parameters[DRIFT]
    allowed = min(min(said.active.values()) + drift, END) if said.active else END
    if said.largest_ms != allowed:
        slowest = min(said.active, key=lambda one: said.active[one], default="none, since none is active")
        return (
            f"{said.group} was allowed {said.largest_ms}, and must be allowed {allowed} (the slowest: {slowest}; idle: "
            f"{', '.join(said.idle) or 'none'}; ended: {', '.join(said.ended) or 'none'})"
        )
    return None


def learned_problem(member: AlignedSource, announced: Sequence[int]) -> str | None:
    """Return what is wrong with what a subtask learned: it must have been announced, in this order."""
    place = 0
    for number, largest in enumerate(member.learned):
        if largest not in announced[place:]:
            return f"{member.subtask} learned, as number {number}, that {largest} is allowed, which was not announced"
        place = announced.index(largest, place)
    return None


def held_for_nothing(members: Iterable[AlignedSource], drift: int) -> Iterator[str]:
    """Yield the splits of a group that are held back for ever, although nobody who is active is behind."""
    all_members = list(members)
    if not all(one.stands_still() or _has_ended(one) for one in all_members):
        return
    active = [at for one in all_members if (at := one.active_time()) is not None]
    allowed = min(active) + drift if active else END
    for one in all_members:
        for split in one.held:
            at = one.model.valve.inputs[split].at
            if at <= allowed:
                yield (
                    f"{one.subtask} does not read {split} at the watermark {at}, and nobody is further behind than "
                    f"{allowed - drift if active else 'the end'}"
                )


def groups_of(job: JobPlan) -> dict[int, list[VertexPlan]]:
    """Return the source vertices of each group."""
    found: dict[int, list[VertexPlan]] = {}
    for vertex in job.sources:
        if DRIFT in vertex.parameters:
            found.setdefault(vertex.parameters.get(GROUP, 0), []).append(vertex)
    return found


def _has_ended(member: AlignedSource) -> bool:
    return bool(member.reports) and member.reports[-1].ended


def _is_active(report: ToldTime) -> bool:
    return not (report.idle or report.ended)


def _fits(report: ToldTime, subtask: str, said: SourcesAligned) -> bool:
    if report.ended or report.idle:
        return subtask in (said.ended if report.ended else said.idle)
    return said.active.get(subtask) == report.at_ms


def _shown(report: ToldTime) -> str:
    return (
        "its end" if report.ended else "that it is idle" if report.idle else f"the watermark {report.at_ms}"
    )
