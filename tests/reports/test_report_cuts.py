"""Cut diagrams: which side a batch lies on, what is drawn of thousands, and what the pages say."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan
from barrier_tck.harness.record.message_trace import CutTaken, InFlightKept, Sent, Taken, TraceEvent, What
from barrier_tck.harness.record.records import CheckpointRecord, SnapshotRecord, TrialRecord
from barrier_tck.harness.record.run_directory import write_message_trace
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.reports.cut import NoCut, Side, cut_of
from barrier_tck.reports.cut_page import render_cut
from barrier_tck.reports.cuts import Wanted, cut_views, shown_by_default
from barrier_tck.reports.loading import load_run
from barrier_tck.reports.space_time import BARRIERS_MAX, LINES_MAX, diagram_of
from barrier_tck.reports.write import write_reports
from tests.reports.synthetic_run import record_of, write_run

CHANNEL = "read[0]->keep[0]"
SNAPSHOT = SnapshotRecord(1, 1, "keep[0]", 0.0, 0.0, 0, 1.0, 1.0, 10)


def record_with(
    subtasks: tuple[str, ...], mode: CheckpointingMode = "exactly_once", trial: int = 0
) -> TrialRecord:
    record = record_of(trial)
    plan = msgspec.structs.replace(record.plan, checkpoints=CheckpointPlan(mode=mode))
    return msgspec.structs.replace(
        record,
        plan=plan,
        subtasks=subtasks,
        checkpoints=(CheckpointRecord(3, 1, "completed", 0.0, 100.0),),
    )


def one_channel(sent_before: int, taken_before: int, batches: int = 10) -> list[TraceEvent]:
    """Return the notes of a channel: batch n is sent at 10n and taken at 10n + 5, snapshots lie between batches."""
    notes: list[TraceEvent] = []
    for position in range(batches):
        notes.append(Sent(1, "read[0]", 10.0 * position, CHANNEL, position, records=2))
        notes.append(Taken(1, "keep[0]", 10.0 * position + 5, CHANNEL, position, records=2))
    notes.append(CutTaken(1, "read[0]", 10.0 * sent_before - 1, 3, {CHANNEL: sent_before}, {}))
    notes.append(CutTaken(1, "keep[0]", 10.0 * taken_before + 4, 3, {}, {CHANNEL: taken_before}))
    notes.append(Sent(1, "read[0]", 10.0 * sent_before - 1, CHANNEL, sent_before, What.BARRIER, checkpoint=3))
    notes.append(
        Taken(1, "keep[0]", 10.0 * sent_before + 2, CHANNEL, sent_before, What.BARRIER, checkpoint=3)
    )
    return notes


@pytest.mark.parametrize(
    ("sent", "taken", "crossing", "said"),
    [
        (5, 5, [], "A consistent cut"),
        (7, 5, [(5, Side.LOST), (6, Side.LOST)], "2 batches in flight that the snapshot does not hold"),
        (5, 6, [(5, Side.EARLY)], "Not a consistent cut: 1 batch processed before it, but sent after it"),
    ],
)
def test_the_side_of_a_batch_follows_from_what_both_ends_had_counted(
    sent: int, taken: int, crossing: list[tuple[int, Side]], said: str
) -> None:
    cut = cut_of(record_with(("read[0]", "keep[0]")), one_channel(sent, taken), 3)
    (channel,) = cut.channels
    found = [
        (batch.position, batch.side)
        for batch in channel.batches
        if batch.side not in (Side.BEFORE, Side.AFTER)
    ]
    assert found == crossing
    assert said in cut.rendered()
    assert cut.is_sound is (not crossing)
    before = [batch.position for batch in channel.batches if batch.side is Side.BEFORE]
    assert before == list(range(min(sent, taken)))


def test_what_comes_early_is_allowed_in_at_least_once_mode_and_looks_different() -> None:
    cut = cut_of(record_with(("read[0]", "keep[0]"), "at_least_once"), one_channel(5, 6), 3)
    assert cut.is_sound
    assert "At-least-once mode allows this" in cut.rendered()
    assert "early-allowed" in diagram_of(cut).styles
    strict = cut_of(record_with(("read[0]", "keep[0]")), one_channel(5, 6), 3)
    assert "early" in diagram_of(strict).styles
    assert "early-allowed" not in diagram_of(strict).styles


@pytest.mark.parametrize(("sent", "taken"), [(5, 5), (7, 5), (5, 6), (5, 9)])
def test_lines_lie_left_and_right_of_the_cut_as_the_counts_say(sent: int, taken: int) -> None:
    diagram = diagram_of(cut_of(record_with(("read[0]", "keep[0]")), one_channel(sent, taken), 3))
    sender, receiver = (lane.cut_x for lane in diagram.lanes)
    assert sender is not None
    assert receiver is not None
    left = {"before": (True, True), "after": (False, False), "lost": (True, False), "early": (False, True)}
    compared = [line for line in diagram.lines if line.style in left]
    assert len(compared) >= 10
    for line in compared:
        assert (line.x1 < sender, line.x2 < receiver) == left[line.style], line.title
    assert all(line.x1 <= line.x2 for line in diagram.lines)  # time goes from left to right


def test_a_subtask_without_a_snapshot_interrupts_the_cut_and_is_named() -> None:
    notes = [one for one in one_channel(5, 5) if not (isinstance(one, CutTaken) and one.subtask == "keep[0]")]
    record = record_with(("read[0]", "keep[0]", "out[0]"))
    aborted = msgspec.structs.replace(record.checkpoints[0], status="aborted")
    cut = cut_of(msgspec.structs.replace(record, checkpoints=(aborted,)), notes, 3)
    assert "Without a snapshot: keep[0], out[0]" in cut.rendered()
    diagram = diagram_of(cut)
    assert "unknown" in diagram.styles
    assert len(diagram.cut) == 1
    assert cut.channels[0].crossing == 0


def test_a_subtask_without_a_part_of_a_completed_checkpoint_is_said_to_have_finished() -> None:
    notes = [one for one in one_channel(5, 5) if not (isinstance(one, CutTaken) and one.subtask == "keep[0]")]
    cut = cut_of(record_with(("read[0]", "keep[0]")), notes, 3)
    assert (cut.finished, cut.without_snapshot) == (("keep[0]",), ())
    assert "Finished before it: keep[0]." in cut.rendered()
    assert [lane.label for lane in diagram_of(cut).lanes] == ["read[0]", "keep[0] (finished)"]


def test_a_checkpoint_of_which_nothing_was_noted_has_no_cut() -> None:
    with pytest.raises(NoCut, match="checkpoint 9 of trial 0"):
        cut_of(record_with(("read[0]", "keep[0]")), one_channel(5, 5), 9)


def test_clocks_that_are_behind_are_brought_in_line_and_sides_do_not_depend_on_them() -> None:
    late = [
        msgspec.structs.replace(one, at_ms=one.at_ms - 400.0) if one.subtask == "keep[0]" else one
        for one in one_channel(7, 5)
    ]
    straight, shifted = (
        cut_of(record_with(("read[0]", "keep[0]")), notes, 3) for notes in (one_channel(7, 5), late)
    )
    assert straight.shifted_ms == 0.0
    assert shifted.shifted_ms == 395.0  # each batch needs 5 ms, and none may need less than 0
    assert [batch.side for batch in shifted.channels[0].batches] == [
        batch.side for batch in straight.channels[0].batches
    ]
    assert all(line.x1 <= line.x2 for line in diagram_of(shifted).lines if line.style != "barrier")


@pytest.mark.parametrize(
    ("inputs", "outputs", "held", "lost"), [(1, 1, 2, 1), (3, 0, 3, 0), (0, 2, 2, 1), (2, 2, 4, 0)]
)
def test_a_batch_in_flight_is_held_by_the_part_of_its_receiver_or_of_its_sender(
    inputs: int, outputs: int, held: int, lost: int
) -> None:
    notes = [
        *one_channel(8, 5),
        InFlightKept(1, "keep[0]", 90.0, 3, {CHANNEL: inputs}, {}),
        InFlightKept(1, "read[0]", 90.0, 3, {}, {CHANNEL: outputs}),
    ]
    cut = cut_of(record_with(("read[0]", "keep[0]"), "unaligned"), notes, 3)
    (channel,) = cut.channels
    assert (channel.crossing, channel.kept, channel.lost) == (3, held, lost)
    sides = [batch.side for batch in channel.batches if batch.side not in (Side.BEFORE, Side.AFTER)]
    assert sides.count(Side.EXTRA) == 0
    assert sides.count(Side.LOST) == lost
    assert sides.count(Side.IN_FLIGHT) == 3 - lost
    assert channel.kept_twice == max(0, held - 3)
    assert cut.is_sound is (not lost and held == 3)
    assert ("lost" in diagram_of(cut).styles) is bool(lost)


@pytest.mark.parametrize(
    ("sent", "inputs", "outputs", "extra"),
    [(6, 3, 0, [6, 7]), (5, 2, 0, [5, 6]), (5, 0, 2, [3, 4]), (6, 1, 1, [])],
    ids=["behind the barrier", "nothing was in flight", "processed already", "held by both"],
)
def test_a_batch_that_a_snapshot_holds_though_it_was_not_in_flight_is_shown(
    sent: int, inputs: int, outputs: int, extra: list[int]
) -> None:
    notes = [
        *one_channel(sent, 5),
        InFlightKept(1, "keep[0]", 90.0, 3, {CHANNEL: inputs}, {}),
        InFlightKept(1, "read[0]", 90.0, 3, {}, {CHANNEL: outputs}),
    ]
    cut = cut_of(record_with(("read[0]", "keep[0]"), "unaligned"), notes, 3)
    (channel,) = cut.channels
    assert [batch.position for batch in channel.batches if batch.side is Side.EXTRA] == extra
    assert not cut.is_sound
    assert "too many as in flight" in cut.rendered()
    assert ("extra" in diagram_of(cut).styles) is bool(extra)


def test_what_could_not_be_counted_shows_no_error_that_nobody_saw() -> None:
    notes = [*one_channel(8, 5), InFlightKept(1, "keep[0]", 90.0, 3, {CHANNEL: 5}, {}, counted=False)]
    (channel,) = cut_of(record_with(("read[0]", "keep[0]")), notes, 3).channels
    assert (channel.kept, channel.lost, channel.kept_twice) == (3, 0, 0)


def test_a_batch_that_was_restored_at_its_receiver_has_no_sending() -> None:
    notes: list[TraceEvent] = [
        Taken(2, "keep[0]", 3.0, CHANNEL, -2),
        Taken(2, "keep[0]", 9.0, CHANNEL, -1),
        CutTaken(2, "read[0]", 4.0, 3, {CHANNEL: 0}, {}),
        CutTaken(2, "keep[0]", 5.0, 3, {}, {CHANNEL: -1}),
        InFlightKept(2, "keep[0]", 6.0, 3, {CHANNEL: 1}, {}),
    ]
    record = msgspec.structs.replace(
        record_with(("read[0]", "keep[0]"), "unaligned"),
        checkpoints=(CheckpointRecord(3, 2, "completed", 0.0, 100.0),),
    )
    cut = cut_of(record, notes, 3)
    assert [batch.side for batch in cut.channels[0].batches] == [Side.BEFORE, Side.IN_FLIGHT]
    assert "and the snapshot holds the 1 batch in flight" in cut.rendered()
    assert "restored in flight; its sending was not logged" in " ".join(
        line.title for line in diagram_of(cut).lines
    )


def many_lanes(early: int = 0) -> tuple[TrialRecord, list[TraceEvent]]:
    """Return thirty lanes with 14 x 15 channels and thousands of batches; on the first channel some come early."""
    senders = [f"read[{n}]" for n in range(14)]
    receivers = [f"keep[{n}]" for n in range(15)]
    notes: list[TraceEvent] = []
    for sender in senders:
        for receiver in receivers:
            channel = f"{sender}->{receiver}"
            for position in range(40):
                notes.append(Sent(1, sender, position * 2.0, channel, position, records=9))
                notes.append(Taken(1, receiver, position * 2.0 + 1, channel, position, records=9))
            notes.append(Sent(1, sender, 40.0, channel, 20, What.BARRIER, checkpoint=3))
            notes.append(Taken(1, receiver, 42.0, channel, 20, What.BARRIER, checkpoint=3))
    first = f"{senders[0]}->{receivers[0]}"
    for position in range(40, 40 + early):
        notes.append(Sent(1, senders[0], 80.0 + position, first, position, records=9))
        notes.append(Taken(1, receivers[0], 80.5 + position, first, position, records=9))
    notes += [CutTaken(1, s, 40.0, 3, {f"{s}->{r}": 20 for r in receivers}, {}) for s in senders]
    for receiver in receivers:
        taken = {f"{s}->{receiver}": 20 for s in senders}
        if early and receiver == receivers[0]:
            taken[first] = 40 + early
        notes.append(CutTaken(1, receiver, 43.0, 3, {}, taken))
    return record_with((*senders, *receivers, "out[0]")), notes


@pytest.mark.long
@pytest.mark.parametrize("early", [0, 2_000])
def test_thousands_of_batches_on_thirty_lanes_are_a_bounded_picture_that_says_what_it_leaves_out(
    early: int, tmp_path: Path
) -> None:
    record, notes = many_lanes(early)
    cut = cut_of(record, notes, 3)
    diagram = diagram_of(cut)
    assert len(cut.channels) == 210
    batches = [line for line in diagram.lines if line.style != "barrier"]
    assert 0 < len(batches) <= LINES_MAX
    assert len(diagram.lines) - len(batches) <= BARRIERS_MAX
    assert diagram.height < 1_000
    assert "nearest to the cut are drawn" in diagram.left_out
    if early:
        crossing = [line for line in diagram.lines if line.style == "early"]
        assert f"of the {early + 20:,} batches that cross the cut {len(crossing):,} are drawn" in (
            diagram.left_out.lower()
        )
        assert f"{early + 20 - len(crossing):,} more batches" in diagram.bands[0].title
        assert cut.channels[0].early == early + 20
    directory = write_run(tmp_path / "run", [record])
    write_message_trace(directory / "trials" / "00000", notes)
    paths = write_reports(load_run(directory), [Wanted(0, 3)])
    assert paths.html.stat().st_size < 1_500_000
    assert [path.stat().st_size < 400_000 for path in paths.cuts] == [True]


def test_a_page_of_a_cut_of_chandy_and_lamport_speaks_of_markers(tmp_path: Path) -> None:
    record = record_with(("read[0]", "keep[0]"))
    checkpoints = CheckpointPlan(protocol="chandy_lamport")
    marked = msgspec.structs.replace(
        record, plan=msgspec.structs.replace(record.plan, checkpoints=checkpoints)
    )
    directory = write_run(tmp_path / "run", [marked])
    write_message_trace(directory / "trials" / "00000", one_channel(5, 5))
    (path,) = write_reports(load_run(directory), [Wanted(0, 3)]).cuts
    shown = re.sub(r"<(?!title|/)[^>]*>", " ", path.read_text().partition("<body")[2]).lower()
    assert f"{CHANNEL}: marker 3" in unescape(shown)
    assert "chandy-lamport, attempt" in shown
    assert "markers of other checkpoints are left out" in shown
    assert "barrier" not in shown.replace("barrier-tck", "")


@pytest.mark.long
def test_many_cuts_leave_the_report_small_and_each_has_its_own_page(tmp_path: Path) -> None:
    records, notes = [], many_lanes()[1]
    for trial in range(6):
        record = msgspec.structs.replace(many_lanes()[0], trial=trial, verdict=Verdict.VALID)
        records.append(record)
    directory = write_run(tmp_path / "run", records, valid_kept=6)
    for trial in range(6):
        write_message_trace(directory / "trials" / f"{trial:05d}", notes)
    paths = write_reports(load_run(directory), [Wanted(trial, 3) for trial in range(6)])
    assert len(paths.cuts) == 6
    assert paths.html.stat().st_size < 1_500_000
    page = paths.html.read_text()
    assert page.count("on a page of its own") == 6
    assert page.count('class="space-time"') < 6


def test_the_finding_names_the_checkpoint_that_is_shown(tmp_path: Path) -> None:
    def checkpoints(*numbers: int) -> tuple[CheckpointRecord, ...]:
        return tuple(CheckpointRecord(number, 1, "completed", 0.0, 10.0) for number in numbers)

    failing = msgspec.structs.replace(
        record_of(1),
        verdict=Verdict.INVALID,
        findings=(
            Finding(
                "dataflow",
                ("ALN-2",),
                Verdict.INVALID,
                "1 of 4 is wrong",
                {},
                ("checkpoint 7: r4 is missing",),
            ),
        ),
        checkpoints=checkpoints(5, 6, 7, 8),
    )
    silent = msgspec.structs.replace(
        failing,
        trial=2,
        findings=(Finding("output", (), Verdict.INVALID, "2 rows are missing"),),
        attempts=(msgspec.structs.replace(failing.attempts[0], restored_checkpoint=6),),
    )
    valid = msgspec.structs.replace(
        record_of(0), verdict=Verdict.VALID, findings=(), checkpoints=checkpoints(4, 5)
    )
    run = load_run(write_run(tmp_path / "run", [valid, failing, silent]))
    assert set(shown_by_default(run)) == {Wanted(1, 7), Wanted(2, 6), Wanted(0, 4)}
    assert cut_views(run, shown_by_default(run)) == ()  # nothing was noted, so nothing is drawn


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    name = '"><script>alert(1)</script>[0]'
    channel = f"{name}->keep[0]"
    notes: list[TraceEvent] = [
        Sent(1, name, 1.0, channel, 0, records=1),
        Taken(1, "keep[0]", 2.0, channel, 0, records=1),
        CutTaken(1, name, 3.0, 3, {channel: 1}, {}),
        CutTaken(1, "keep[0]", 3.0, 3, {}, {channel: 1}),
    ]
    record = record_with((name, "keep[0]"))
    directory = write_run(tmp_path / "run", [record])
    write_message_trace(directory / "trials" / "00000", notes)
    run = load_run(directory)
    (view,) = cut_views(run, [Wanted(0, 3)])
    page = render_cut(run, view)
    assert "<script" not in page
    assert unescape(page).count(name) >= 2
    paths = write_reports(load_run(directory), [Wanted(0, 3)])
    assert "<script>alert" not in paths.html.read_text()


def test_a_page_of_a_cut_fetches_nothing_and_links_back_to_its_place_in_the_report(tmp_path: Path) -> None:
    directory = write_run(tmp_path / "run", [record_with(("read[0]", "keep[0]"))])
    write_message_trace(directory / "trials" / "00000", one_channel(5, 6))
    paths = write_reports(load_run(directory), [Wanted(0, 3)])
    page, report = paths.cuts[0].read_text(), paths.html.read_text()
    assert "default-src 'none'" in page
    assert not re.search(r'(?:src|href)="(?!#|\.\./report\.html)', page)
    assert 'href="../report.html#cut-0-3"' in page
    assert 'id="cut-0-3"' in report
    assert 'href="cuts/trial-00000-checkpoint-3.html"' in report


def test_the_cut_that_is_shown_of_a_right_trial_has_records_in_flight_or_else_an_alignment(
    tmp_path: Path,
) -> None:
    def trial(number: int, **parts: dict[str, float]) -> TrialRecord:
        ids = [int(name.removeprefix("checkpoint_")) for name in parts]
        return msgspec.structs.replace(
            record_of(0),
            trial=number,
            verdict=Verdict.VALID,
            findings=(),
            checkpoints=tuple(CheckpointRecord(each, 1, "completed", 0.0, 10.0) for each in ids),
            snapshots=tuple(
                msgspec.structs.replace(SNAPSHOT, checkpoint=each, **values)
                for each, values in zip(ids, parts.values(), strict=True)
            ),
        )

    empty = trial(0, checkpoint_1={})
    aligned = trial(1, checkpoint_1={}, checkpoint_2={"alignment_ms": 3.0}, checkpoint_3={})
    held = trial(2, checkpoint_5={"alignment_buffered_bytes": 9}, checkpoint_6={"channel_bytes": 9})
    for records, shown in (
        ([empty], Wanted(0, 1)),
        ([empty, aligned], Wanted(1, 2)),
        ([empty, aligned, held], Wanted(2, 6)),
    ):
        run = load_run(write_run(tmp_path / str(len(records)), records))
        assert shown_by_default(run) == (shown,)
