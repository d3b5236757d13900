"""What is noted of a job's channels changes no step, agrees with the checkpoints, and shows where a cut is wrong."""

from __future__ import annotations

import os
import re
import sys
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from barrier_tck.harness.campaign.configuration import configuration_from
from barrier_tck.harness.campaign.message_traces import trace_messages
from barrier_tck.harness.campaign.runner import run_campaign
from barrier_tck.harness.cli import main as cli
from barrier_tck.harness.draw.constraints import Constraints
from barrier_tck.harness.draw.profiles import profile_named
from barrier_tck.harness.draw.strategies import draw_plan
from barrier_tck.harness.plan.job_graph import JobPlan, Spread
from barrier_tck.harness.plan.trial_plan import CheckpointingMode, CheckpointPlan, TrialPlan, WorkloadPlan
from barrier_tck.harness.record import elements
from barrier_tck.harness.record.message_trace import CutTaken, Sent, Taken, What
from barrier_tck.harness.record.operations import Finished
from barrier_tck.harness.record.records import TrialResult, summary_of
from barrier_tck.harness.record.run_directory import RunDirectory, write_trial
from barrier_tck.harness.record.run_reader import RunDirectoryCorrupt, read_message_trace
from barrier_tck.harness.record.verdict import Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.message_tracing import MessageTraceDirectory
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.workload_names import job_of
from barrier_tck.reports.cut import CheckpointCut, Side, checkpoints_traced, cut_of
from tests.harness.fake_system import TABLE, FakeSystem
from tests.reports.synthetic_run import campaign_of

SYSTEM = ReferenceSimulated()
NOTING = SYSTEM.tracing_messages()


def noted(plan: TrialPlan, directory: Path) -> TrialResult:
    return execute(plan, NOTING, directory, checkers=())


def cuts(result: TrialResult) -> list[CheckpointCut]:
    """Return the cuts of the completed checkpoints, but not of one before which everybody had finished."""
    completed = [one.checkpoint for one in result.record.checkpoints if one.status == "completed"]
    noted = checkpoints_traced(result.trace_events)
    return [cut_of(result.record, result.trace_events, number) for number in completed if number in noted]


@pytest.mark.long
def test_a_cut_names_who_had_finished_before_it(tmp_path: Path) -> None:
    constraints = Constraints(SYSTEM.job, SYSTEM.capabilities)
    named = 0
    for seed in range(4):
        result = noted(draw_plan(seed, profile_named("ends"), constraints), tmp_path)
        assert result.history is not None
        for cut in cuts(result):
            finished = {
                line.operation.subtask
                for line in result.history.of(Finished)
                if line.operation.attempt == cut.attempt
            }
            assert cut.without_snapshot == ()
            assert set(cut.finished) <= finished
            assert all(name in cut.rendered() for name in cut.finished[:5])
            named += len(cut.finished)
    assert named > 0


@pytest.mark.nightly
@pytest.mark.parametrize("profile", ["standard", "graphs"])
def test_drawn_trials_take_the_same_steps_with_notes_and_their_cuts_are_consistent(
    profile: str, tmp_path: Path
) -> None:
    constraints = Constraints(SYSTEM.job, SYSTEM.capabilities)
    drawn, early = 0, 0
    for seed in range(8 if profile == "standard" else 24):
        plan = draw_plan(seed, profile_named(profile), constraints)
        plain, watched = execute(plan, SYSTEM, tmp_path, checkers=()), noted(plan, tmp_path)
        assert plain.record.trace_digest == watched.record.trace_digest
        assert not plain.trace_events
        for cut in cuts(watched):
            drawn += 1
            early += sum(channel.early for channel in cut.channels)
            assert cut.is_sound, cut.rendered()
            if cut.mode == "exactly_once":
                assert {channel.crossing for channel in cut.channels} == {0}
    assert drawn > 12
    assert early or profile == "standard"  # at-least-once trials, where it is allowed


@pytest.mark.nightly
def test_what_crosses_a_cut_is_what_the_checkpoint_holds_of_its_channels(tmp_path: Path) -> None:
    """Channel by channel and record by record, in modes whose barriers overtake, with batches cut into buffers too."""
    compared: Counter[str] = Counter()
    for seed in range(24):
        plan = draw_plan(seed, profile_named("modes"), _around())
        if plan.checkpoints.mode == "at_least_once":
            overtaking = msgspec.structs.replace(plan.checkpoints, mode="unaligned")
            plan = msgspec.structs.replace(plan, checkpoints=overtaking)
        result = noted(plan, tmp_path)
        assert result.history is not None
        views = {view.checkpoint: view for view in result.history.checkpoints}
        for cut in cuts(result):
            assert cut.is_sound, cut.rendered()
            held = {
                f"{one.sender}->{one.receiver}" + (f"#{one.edge}" if one.edge else ""): len(one.rows)
                for one in views[cut.checkpoint].in_flight
            }
            for channel in cut.channels:
                crossing = [batch for batch in channel.batches if batch.side is Side.IN_FLIGHT]
                # Of what was restored, only that is noted which was taken before the attempt ended.
                untaken = max(0, channel.crossing) - len(crossing)
                noted_sent = [batch.position for batch in crossing if batch.position >= 0]
                assert untaken == 0 or 0 < untaken <= -(channel.taken or 0)
                assert noted_sent == list(range(max(0, channel.taken or 0), channel.sent or 0))
                if channel.sent is None or channel.taken is None:
                    # An end took no snapshot, so what crosses is not known; what is kept is all that there is.
                    assert bool(channel.kept) == bool(held.get(channel.name, 0))
                elif untaken == 0 and all(
                    batch.records for batch in crossing
                ):  # else it was restored, and its size is not noted
                    assert sum(batch.records for batch in crossing) == held.get(channel.name, 0)
                    compared[cut.mode] += len(crossing)
    assert compared["unaligned"] > 10
    assert compared["aligned_timeout"] > 10
    assert not compared["exactly_once"]


@pytest.mark.parametrize("mode", ["exactly_once", "unaligned"])
def test_watermarks_are_noted_at_both_ends_as_the_recorded_elements_say(
    mode: CheckpointingMode, tmp_path: Path
) -> None:
    """Two instruments of their own saw them: each channel has the same watermarks at the same places."""
    plan = TrialPlan(
        workload=WorkloadPlan("event-time", batches=12, batch_records=3, keys=4, records_per_second=600),
        job=job_of("event-time", JobPlan("sources")),
        checkpoints=CheckpointPlan(mode=mode, interval_ms=15),
    )
    result = noted(plan, tmp_path)
    assert result.history is not None
    assert result.history.elements is not None
    compared: Counter[str] = Counter()
    for one in result.history.elements:
        for kind, names, noted_as in (
            (elements.SentWatermark, one.outputs, Sent),
            (elements.TookWatermark, one.inputs, Taken),
        ):
            for channel, name in enumerate(names):
                expected = [
                    (entry.at_ms, entry.idle)
                    for entry in one.entries
                    if isinstance(entry, kind) and entry.channel == channel
                ]
                found = [
                    (event.watermark_ms, event.idle)
                    for event in result.trace_events
                    if isinstance(event, noted_as)
                    and event.subtask == one.subtask
                    and event.channel == name.removesuffix("#0")
                    and event.watermark_ms is not None
                ]
                assert found == expected, f"{name} at {one.subtask}"
                compared[noted_as.__name__] += len(found)
                compared["idle"] += sum(idle for _, idle in found)
    assert min(compared["Sent"], compared["Taken"], compared["idle"]) > 3
    assert any(cut.has_event_time for cut in cuts(result))
    assert any(cut.idle for cut in cuts(result))


@pytest.mark.long
def test_a_cut_lies_where_the_positions_of_its_checkpoint_say(tmp_path: Path) -> None:
    """Every record of the sources' channels before the cut is one before the positions, and the other way round."""
    compared = 0
    for seed in range(2, 8):
        plan = msgspec.structs.replace(draw_plan(seed, profile_named("standard"), _around()), mutant=None)
        result = noted(plan, tmp_path)
        assert result.history is not None
        views = {view.checkpoint: view for view in result.history.checkpoints}
        restored = {one.attempt: one.restored_checkpoint for one in result.record.attempts}
        sources = {one.subtask for one in result.trace_events if isinstance(one, CutTaken) and not one.taken}
        for cut in cuts(result):
            view, since = views[cut.checkpoint], restored[cut.attempt]
            if (since is not None and since not in views) or view.finished:
                continue  # what a source sent that has finished is beside no cut
            begun = views[since].positions if since is not None else {}
            expected = sum(view.positions.values()) - sum(begun.values())
            if since is None:
                expected -= sum(plan.workload.start_offset for _ in view.positions)
            sent = sum(
                batch.records
                for channel in cut.channels
                if channel.sender in sources and channel.sent is not None
                for batch in channel.batches
                if batch.position < channel.sent
            )
            assert sent == expected, f"seed {seed}, checkpoint {cut.checkpoint}"
            compared += 1
    assert compared > 10


def _around() -> Constraints:
    return Constraints(SYSTEM.job, SYSTEM.capabilities)


@pytest.mark.long
@pytest.mark.parametrize(
    ("bug", "shows"),
    [
        ("AL-01", "early"),  # barriers
        ("UC-03", "early"),
        ("AO-01", "lost"),
        ("UC-01", "lost"),  # barriers that overtake
        ("UC-13", "early"),
        ("UC-04", "lost"),
        ("UC-05", "lost"),
        ("UR-01", "lost"),
        ("CL-01", "lost"),  # Chandy-Lamport, and loops
        ("CL-02", "lost"),
        ("CL-03", "kept_twice"),
        ("CL-04", "lost"),
        ("CL-05", "lost"),
        ("CL-06", "kept_twice"),
    ],
)
def test_a_planted_bug_is_seen_in_the_cut_and_the_product_passes_the_same_plan(
    bug: str, shows: str, tmp_path: Path
) -> None:
    for plan in planted_bugs()[bug].plans("simulated"):
        broken = [cut for cut in cuts(noted(plan, tmp_path)) if not cut.is_sound]
        if broken:
            break
    else:
        pytest.fail("no cut of any plan shows the bug")
    assert any(getattr(channel, shows) for cut in broken for channel in cut.channels), [
        cut.rendered() for cut in broken
    ]
    product = cuts(noted(msgspec.structs.replace(plan, mutant=None), tmp_path))
    assert product
    assert all(cut.is_sound for cut in product)


def test_a_broadcast_that_was_overtaken_is_in_flight_to_some_receivers_only(tmp_path: Path) -> None:
    """UR-04: nothing is lost, so the cut is consistent; but receivers of one broadcast differ in what they applied."""

    def differing(plan: TrialPlan) -> int:
        (told,) = (edge for edge in plan.job.edges if edge.by is Spread.BROADCAST)
        found = 0
        for cut in cuts(noted(plan, tmp_path)):
            assert cut.is_sound, cut.rendered()
            told_to = [one for one in cut.channels if one.sender.startswith(f"{told.source}[")]
            found += len({one.crossing for one in told_to}) > 1
        return found

    plan = next(planted_bugs()["UR-04"].plans("simulated"))
    assert differing(plan)
    assert not differing(msgspec.structs.replace(plan, mutant=None))


def test_only_what_lies_around_checkpoints_is_kept_and_all_of_it_is_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = draw_plan(0, profile_named("standard"), _around())
    whole = noted(plan, tmp_path).trace_events
    monkeypatch.setattr("barrier_tck.harness.reference.message_tracing.WINDOW", 2)
    some = noted(plan, tmp_path).trace_events
    assert [one for one in some if isinstance(one, CutTaken)] == [
        one for one in whole if isinstance(one, CutTaken)
    ]
    batches = [one for one in some if isinstance(one, Sent) and one.what is What.BATCH]
    assert 0 < len(batches) < len([one for one in whole if isinstance(one, Sent) and one.what is What.BATCH])
    assert all(one in whole for one in batches)


def test_notes_of_a_process_that_was_killed_are_read_up_to_the_last_whole_line(tmp_path: Path) -> None:
    keep = MessageTraceDirectory(str(tmp_path))
    first = CutTaken(2, "keep[0]", 1_005.0, 4, {}, {"read[0]->keep[0]": 7})
    keep([first, Sent(2, "read[0]", 1_006.0, "read[0]->keep[0]", 8)])
    (file,) = tmp_path.iterdir()
    assert str(os.getpid()) in file.name
    with file.open("ab") as half:
        half.write(b'{"kind":"sent","attem')
    taken = keep.take_all(epoch_ms=1_000.0)
    assert [one.at_ms for one in taken] == [5.0, 6.0]
    assert taken[0] == msgspec.structs.replace(first, at_ms=5.0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of two valid trials and one that a planted bug makes invalid."""
    path = tmp_path_factory.mktemp("runs") / "a"
    directory = RunDirectory.create(path)
    plans = (*(TrialPlan(seed=seed) for seed in range(2)), next(planted_bugs()["AL-01"].plans("simulated")))
    records = []
    for number, plan in enumerate(plans):
        result = execute(plan, SYSTEM, path, trial=number)
        directory.keep(result)
        directory.append(summary_of(result.record))
        records.append(result.record)
    assert [record.verdict.value for record in records] == ["valid", "valid", "invalid"]
    directory.write_campaign(campaign_of(records, system=SYSTEM.name))
    return path


def test_a_report_shows_the_failing_checkpoint_and_the_first_trials_first_one(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(run)]) == 1
    page = (run / "report.html").read_text()
    assert (run / "cuts" / "trial-00000-checkpoint-1.html").is_file()
    failing = [name.name for name in (run / "cuts").glob("trial-00002-*.html")]
    assert len(failing) == 1
    assert f'href="cuts/{failing[0]}"' in page
    assert page.index("trial 2 <small>") < page.index("Checkpoint 1 of trial 0 <small>")
    assert "Not a consistent cut" in page
    assert "A consistent cut" in page


def test_another_cut_is_drawn_when_asked_and_stays_in_the_report(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(run), "--cut", "1:1"]) == 1
    asked = run / "cuts" / "trial-00001-checkpoint-1.html"
    assert f"cut: {asked}" in re.sub(r"\n(?=\S)", "", capsys.readouterr().out)
    assert asked.is_file()
    assert cli.run(["report", str(run)]) == 1
    assert 'href="cuts/trial-00001-checkpoint-1.html"' in (run / "report.html").read_text()


@pytest.mark.parametrize(
    ("cut", "said"),
    [
        ("1", "is not TRIAL:CHECKPOINT"),
        ("a:b", "for instance --cut 12:3"),
        ("7:1", "trial 7 was not kept in full; kept: 0, 1, 2"),
        ("0:99", "no subtask took a snapshot for checkpoint 99; checkpoints of trial 0 with a cut: 1, 2"),
    ],
)
def test_a_cut_that_cannot_be_drawn_is_refused_with_what_there_is(
    cut: str, said: str, run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["report", str(run), "--cut", cut]) == 3
    assert said in " ".join(capsys.readouterr().err.split())


def test_a_system_that_notes_nothing_and_a_trial_that_takes_other_steps_are_refused(
    run: Path, tmp_path: Path
) -> None:
    run_campaign(configuration_from({"trials": 1}, "test"), FakeSystem(), tmp_path / "fake", TABLE)
    with pytest.raises(UsageProblem, match="cannot log what passed through its channels"):
        trace_messages(tmp_path / "fake", 0, FakeSystem())
    other = tmp_path / "other"
    result = execute(draw_plan(0, profile_named("standard"), _around()), SYSTEM, tmp_path, checkers=())
    record = msgspec.structs.replace(result.record, trace_digest="0" * 64)
    (other / "trials" / "00000").mkdir(parents=True)
    write_trial(other / "trials" / "00000", TrialResult(record, None))
    with pytest.raises(UsageProblem, match="takes other steps now"):
        trace_messages(other, 0, SYSTEM)


def test_a_file_of_passages_that_is_damaged_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "passages.jsonl").write_text('{"kind":"melted"}\n')
    with pytest.raises(RunDirectoryCorrupt, match=r"passages\.jsonl, line 1"):
        read_message_trace(tmp_path)
    assert read_message_trace(tmp_path / "none") == ()


def test_noting_is_asked_for_and_never_done_by_itself(run: Path) -> None:
    assert not execute(TrialPlan(), SYSTEM, run, checkers=()).trace_events
    assert (
        execute(TrialPlan(), NOTING, run, checkers=()).record.verdict is Verdict.UNKNOWN
    )  # nobody judged it


def test_a_cut_of_a_system_in_the_working_directory_is_drawn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The command is installed, and does not search there by itself."""
    name = f"mine_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(
        "from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated as Mine\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    begun = [
        "campaign",
        "--system",
        f"{name}:Mine",
        "--trials",
        "1",
        "--seed",
        "1",
        "--no-store",
        "--out",
        "runs",
    ]
    assert cli.run(begun) in (0, 2)
    sys.modules.pop(name)
    sys.path[:] = [entry for entry in sys.path if entry != str(tmp_path)]
    capsys.readouterr()
    assert cli.run(["report", "runs", "--cut", "0:99", "--trust"]) == 3
    assert "checkpoints of trial 0" in " ".join(capsys.readouterr().err.split()), "the system was found"
