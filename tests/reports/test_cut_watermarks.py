"""Watermarks in cut diagrams: where they leave and arrive, what overtakes them, idleness, late records."""

from __future__ import annotations

import re
from html import unescape
from itertools import pairwise
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.plan.job_graph import JobPlan
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan, WorkloadPlan
from barrier_tck.harness.record.message_trace import CutTaken, InFlightKept, Sent, Taken, TraceEvent, What
from barrier_tck.harness.record.records import CheckpointRecord, TrialRecord
from barrier_tck.harness.record.run_directory import write_message_trace
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reports.cut import CheckpointCut, cut_of
from barrier_tck.reports.cuts import Wanted
from barrier_tck.reports.drawn_watermarks import LABELS_MAX, Label
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.space_time import (
    LINES_MAX,
    WATERMARKS_NEAR_LINES,
    CutDiagram,
    diagram_of,
    legend,
    legend_of_marks,
)
from barrier_tck.reports.write import write_reports
from tests.reports.synthetic_run import record_of, write_run

CHANNEL = "read[0]->window[0]"
LATE = "window[0]->late[0]"
SUBTASKS = ("read[0]", "window[0]", "late[0]")


def windows(mode: CheckpointingMode = "exactly_once") -> TrialRecord:
    """Return the record of a trial of windows with late records; its checkpoint 3 is complete."""
    record = record_of(0)
    plan = msgspec.structs.replace(
        record.plan,
        workload=WorkloadPlan("event-time"),
        job=job_of("event-time", JobPlan("tumbling")),
        checkpoints=CheckpointPlan(mode=mode),
    )
    complete = (CheckpointRecord(3, 1, "completed", 0.0, 100.0),)
    return msgspec.structs.replace(record, plan=plan, subtasks=SUBTASKS, checkpoints=complete)


def in_turn(passed: int, taken_after_ms: float = 5.0, step_ms: float = 10.0) -> list[TraceEvent]:
    """Return the notes of batches and watermarks in turn; the watermark at position 2n + 1 says 100 (n + 1)."""
    notes: list[TraceEvent] = []
    for position in range(passed):
        says = 50 * (position + 1) if position % 2 else None
        records = 0 if position % 2 else 2
        sent_ms = step_ms * position
        for kind, subtask, at_ms in (
            (Sent, "read[0]", sent_ms),
            (Taken, "window[0]", sent_ms + taken_after_ms),
        ):
            notes.append(kind(1, subtask, at_ms, CHANNEL, position, records=records, watermark_ms=says))
    return notes


def barrier(sent_ms: float, *taken_ms: float) -> list[TraceEvent]:
    return [
        Sent(1, "read[0]", sent_ms, CHANNEL, 0, What.BARRIER, checkpoint=3),
        *(Taken(1, "window[0]", at_ms, CHANNEL, 0, What.BARRIER, checkpoint=3) for at_ms in taken_ms),
    ]


def snapshots(sent: int, taken: int, sent_ms: float, taken_ms: float) -> list[TraceEvent]:
    return [
        CutTaken(1, "read[0]", sent_ms, 3, {CHANNEL: sent}, {}),
        CutTaken(1, "window[0]", taken_ms, 3, {}, {CHANNEL: taken}),
    ]


def overtaken() -> CheckpointCut:
    """Return a cut whose barrier overtakes two batches and the watermarks 200 and 300."""
    notes = [
        *in_turn(10, taken_after_ms=45.0),
        *snapshots(6, 2, 58.0, 59.0),
        # It arrives ahead of what waits, and is read at its place.
        *barrier(58.0, 59.0, 101.0),
        InFlightKept(1, "window[0]", 60.0, 3, {CHANNEL: 4}, {}),
    ]
    return cut_of(windows("unaligned"), notes, 3)


def styles(cut: CheckpointCut) -> tuple[set[str], set[str]]:
    diagram = diagram_of(cut)
    drawn = {style for style, _ in legend(diagram, "barrier")}
    return drawn, {mark.style for mark, _ in legend_of_marks(diagram, "barrier")}


def test_each_watermark_is_a_line_of_its_own_kind_with_its_value_where_it_arrives() -> None:
    cut = cut_of(windows(), [*in_turn(6), *snapshots(3, 3, 29.0, 34.0), *barrier(29.0, 34.0)], 3)
    diagram = diagram_of(cut)
    lines = [line for line in diagram.lines if line.style == "watermark"]
    assert [line.title.partition(";")[0] for line in lines] == [
        f"{CHANNEL}: watermark {value} ms" for value in (100, 200, 300)
    ]
    assert [label.text for label in sorted(diagram.labels, key=lambda one: one.x)] == ["100", "200", "300"]
    arrived = [(mark.x, mark.y) for mark in diagram.marks if mark.style == "watermark"]
    assert arrived == [(line.x2, line.y2) for line in lines]
    assert styles(cut) == ({"before", "after", "watermark", "barrier"}, set())


def test_where_a_barrier_overtakes_watermarks_a_ring_names_them() -> None:
    cut = overtaken()
    assert cut.is_sound
    assert "2 watermarks are among what is in flight: the barrier overtook them" in cut.rendered()
    diagram = diagram_of(cut)
    held = [line for line in diagram.lines if line.style == "watermark-flight"]
    assert len(held) == 2
    assert [mark.style for mark in diagram.marks].count("watermark-flight") == 2
    rings = [mark for mark in diagram.marks if mark.style == "overtaken"]
    named = sorted(value for ring in rings for value in re.findall(r"\d+ ms", ring.title))
    assert named == ["200 ms", "300 ms"]
    (line,) = [line for line in diagram.lines if line.style == "barrier"]
    for ring in rings:
        share = (ring.y - line.y1) / (line.y2 - line.y1)
        assert line.x1 + share * (line.x2 - line.x1) == pytest.approx(ring.x, abs=0.2), (
            "it lies on the barrier"
        )
    assert styles(cut)[1] == {"overtaken"}


def test_a_barrier_that_overtakes_is_drawn_to_where_it_arrives_and_not_to_where_it_is_read() -> None:
    (channel,) = overtaken().channels
    assert [(one.sent_ms, one.taken_ms) for one in channel.barriers] == [(58.0, 59.0)]


def test_a_barrier_that_keeps_its_place_overtakes_nothing() -> None:
    cut = cut_of(windows(), [*in_turn(6), *snapshots(4, 4, 39.0, 44.0), *barrier(39.0, 44.0)], 3)
    assert styles(cut)[1] == set()
    assert "in flight: the barrier" not in cut.rendered()


def test_a_watermark_that_a_snapshot_loses_looks_like_a_batch_that_it_loses() -> None:
    notes = [*in_turn(6), *snapshots(4, 3, 39.0, 34.5), *barrier(39.0, 44.0)]
    cut = cut_of(windows("unaligned"), notes, 3)
    (lost,) = [line for line in diagram_of(cut).lines if line.style == "lost"]
    assert "watermark 200 ms" in lost.title


def test_a_lane_shows_when_its_subtask_was_idle() -> None:
    notes = [*in_turn(8), *snapshots(4, 4, 39.0, 44.0), *barrier(39.0, 44.0)]
    idle: list[TraceEvent] = [
        msgspec.structs.replace(note, idle=True)
        if isinstance(note, Sent | Taken) and note.position == 3 and note.what is What.BATCH
        else note
        for note in notes
    ]
    cut = cut_of(windows(), idle, 3)
    diagram = diagram_of(cut)
    (piece,) = diagram.idle
    lane = next(lane for lane in diagram.lanes if lane.label == "read[0]")
    watermarks = {line.title.partition(";")[0]: line for line in diagram.lines if line.style == "watermark"}
    assert piece.y == lane.y
    assert piece.x1 == watermarks[f"{CHANNEL}: watermark 200 ms, from here on idle"].x1
    assert piece.x2 == watermarks[f"{CHANNEL}: watermark 300 ms"].x1
    assert "200 · idle" in [label.text for label in diagram.labels]
    assert "idle" in styles(cut)[0]
    assert diagram_of(cut_of(windows(), notes, 3)).idle == ()


def test_late_records_are_marked_where_they_leave_by_their_side_output() -> None:
    late: list[TraceEvent] = [
        Sent(1, "window[0]", 31.0, LATE, 0, records=3),
        Taken(1, "late[0]", 33.0, LATE, 0, records=3),
    ]
    cuts: list[TraceEvent] = [
        CutTaken(1, "read[0]", 29.0, 3, {CHANNEL: 3}, {}),
        CutTaken(1, "late[0]", 40.0, 3, {}, {LATE: 1}),
    ]
    cuts.append(CutTaken(1, "window[0]", 34.0, 3, {LATE: 1}, {CHANNEL: 3}))
    notes: list[TraceEvent] = [*in_turn(6), *late, *cuts, *barrier(29.0, 34.0)]
    diagram = diagram_of(cut_of(windows(), notes, 3))
    (mark,) = [mark for mark in diagram.marks if mark.style == "late"]
    assert "3 late records" in mark.title
    assert mark.y == next(lane.y for lane in diagram.lanes if lane.label == "window[0]")
    other = [note for note in notes if not isinstance(note, Sent | Taken) or note.channel != LATE]
    assert styles(cut_of(windows(), other, 3))[1] == set()


def values_of(diagram: CutDiagram) -> dict[float, list[Label]]:
    found: dict[float, list[Label]] = {}
    for label in sorted(diagram.labels, key=lambda one: one.x):
        found.setdefault(label.y, []).append(label)
    return found


def test_of_a_long_run_few_watermarks_are_drawn_and_the_page_says_how_many(tmp_path: Path) -> None:
    notes = [
        *in_turn(4_000, step_ms=0.5),
        *snapshots(2_000, 2_000, 999.9, 1_004.6),
        *barrier(999.9, 1_004.6),
    ]
    diagram = diagram_of(cut_of(windows(), notes, 3))
    drawn = [line for line in diagram.lines if line.style == "watermark"]
    assert 0 < len(drawn) <= WATERMARKS_NEAR_LINES
    assert (
        f"of the 2,000 watermarks that do not cross it the {len(drawn)} nearest are drawn" in diagram.left_out
    )
    assert "the value of a watermark is written where there is room" in diagram.left_out
    directory = write_run(tmp_path / "run", [windows()])
    write_message_trace(directory / "trials" / "00000", notes)
    paths = write_reports(load_run(directory), [Wanted(0, 3)])
    assert paths.cuts[0].stat().st_size < 100_000
    page = unescape(paths.cuts[0].read_text())
    assert "A dotted line is a watermark" in page
    assert '<td class="n" data-name="watermark sent">100,000 ms</td>' in page


def test_of_thousands_of_overtaken_watermarks_a_bounded_number_is_drawn_and_no_value_covers_another() -> None:
    notes = [
        *in_turn(3_000, taken_after_ms=4_000.0, step_ms=0.5),
        *snapshots(3_000, 0, 1_600.0, 1_601.0),
        *barrier(1_600.0, 1_601.0),
        InFlightKept(1, "window[0]", 1_602.0, 3, {CHANNEL: 3_000}, {}),
    ]
    diagram = diagram_of(cut_of(windows("unaligned"), notes, 3))
    assert 50 < len(diagram.lines) <= LINES_MAX + 1
    assert 1 < len(diagram.labels) <= LABELS_MAX
    for labels in values_of(diagram).values():
        for one, following in pairwise(labels):
            assert one.x + 6 * len(one.text) < following.x
    rings = [mark for mark in diagram.marks if mark.style == "overtaken"]
    assert 1 <= len(rings) <= 10, "rings that would cover each other are one"


def test_a_job_without_event_time_speaks_of_no_watermarks(tmp_path: Path) -> None:
    plain = [note for note in in_turn(6) if not isinstance(note, Sent | Taken) or note.watermark_ms is None]
    directory = write_run(tmp_path / "run", [windows()])
    write_message_trace(directory / "trials" / "00000", [*plain, *snapshots(3, 3, 29.0, 34.0)])
    (page,) = write_reports(load_run(directory), [Wanted(0, 3)]).cuts
    assert "atermark" not in re.sub(r"<style>.*?</style>", "", page.read_text(), flags=re.DOTALL)
