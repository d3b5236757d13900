"""Records in flight: the reader reads what the page documents, and records where none may be are found."""

from __future__ import annotations

import ast
import json
import re
import sys
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barrier_tck.harness.campaign.sometimes import AllSometimes
from barrier_tck.harness.oracle.checker import TrialContext
from barrier_tck.harness.oracle.checkers.dataflow import Dataflow
from barrier_tck.harness.oracle.checkers.snapshot_formula import SnapshotFormula
from barrier_tck.harness.oracle.evidence import stored_channels
from barrier_tck.harness.oracle.evidence.duplicates import DUPLICATED
from barrier_tck.harness.oracle.evidence.in_flight import IN_FLIGHT, in_flight_problems
from barrier_tck.harness.oracle.evidence.stored_channels import NotChannelState, records_in_flight
from barrier_tck.harness.oracle.evidence.trial_input import TrialInput
from barrier_tck.harness.plan.job_graph import SINK, EdgePlan, JobPlan, Spread, VertexPlan
from barrier_tck.harness.plan.trial_plan import CheckpointPlan, TrialPlan
from barrier_tck.harness.record.history import History, InFlight, Row, SnapshotView, WatermarkInFlight
from barrier_tck.harness.record.records import TrialSummary
from barrier_tck.harness.record.verdict import Finding, Verdict
from barrier_tck.harness.reference.bugs.catalogue import planted_bugs
from barrier_tck.harness.reference.simulated.simulated_system import ReferenceSimulated
from barrier_tck.harness.trial.trial_run import execute
from barrier_tck.harness.workloads.barrier_jobs import barrier_view
from barrier_tck.harness.workloads.lineage import Lineage, source
from barrier_tck.reference_impl.ids import ChannelId, SubtaskId
from barrier_tck.reference_impl.operators.elements import encode_watermark
from barrier_tck.reference_impl.operators.rows import RowPlane
from barrier_tck.reference_impl.protocol.watermarks import Watermark
from barrier_tck.reference_impl.storage.channel_state import Fragment, encode
from tests.harness.oracle.oracle_histories import a_context, a_plan, input_of, positions_at, right_view
from tests.test_tidy import ROOT

# --- the reader ---------------------------------------------------------------------------------------------

ENDS = ("source[0]", "totals[0]")
HEADER = {"format": "channel-state", "version": 1, "encoding": "rows"}


def channel(sender: str = ENDS[0], receiver: str = ENDS[1], edge: int = 0) -> dict[str, Any]:
    ends = {"sender": sender, "receiver": receiver}
    parsed = {end: re.fullmatch(r"(\w+)\[(\d+)\]", name) for end, name in ends.items()}
    return {
        **{end: {"vertex": found[1], "index": int(found[2])} for end, found in parsed.items() if found},
        "edge": edge,
    }


def batch(*ids: int) -> bytes:
    return msgspec.msgpack.encode([{"id": one} for one in ids])


def frame(direction: str, *buffers: tuple[bytes, bool], of: dict[str, Any] | None = None) -> bytes:
    """Return a frame as the page describes it."""
    sizes = [[len(data), more] for data, more in buffers]
    line = json.dumps({"direction": direction, "channel": of or channel(), "buffers": sizes})
    return b"%b\n%b\n" % (line.encode(), b"".join(data for data, _ in buffers))


def a_file(*frames: bytes, **header: Any) -> bytes:
    return json.dumps(HEADER | header).encode() + b"\n" + b"".join(frames)


def ids(one: InFlight) -> list[int]:
    return [row["id"] for row in one.rows]


def test_the_example_of_the_page_is_read_in_full() -> None:
    page = (ROOT / "docs" / "checkpoint-files.md").read_text().partition("## Records in flight")[2]
    example = re.search(r"```\n(.*?)```", page, re.DOTALL)
    assert example is not None
    header, line = example[1].splitlines()
    (whole, _), (begun, more) = json.loads(line)["buffers"]
    assert more
    data = msgspec.msgpack.encode([{"k": "x" * (whole - 5)}])
    assert len(data) == whole
    content = b"%b\n%b\n%b%b\n" % (header.encode(), line.encode(), data, b"x" * begun)
    (found,) = records_in_flight({"totals[0]": content})
    assert (found.sender, found.receiver, found.edge) == ("source[0]", "totals[0]", 0)
    # The rest of the second batch is in the part of the sender, which the page does not show.
    assert (len(found.rows), found.at_receiver, found.at_sender) == (1, 2, 0)
    assert "its last batch is not whole" in found.problem


def test_what_the_receiver_holds_comes_before_what_the_sender_holds() -> None:
    (found,) = records_in_flight(
        {
            "source[0]": a_file(frame("output", (batch(3), False), (batch(4, 5), False))),
            "totals[0]": a_file(frame("input", (batch(1, 2), False))),
        }
    )
    assert (ids(found), found.at_receiver, found.at_sender, found.problem) == ([1, 2, 3, 4, 5], 1, 2, "")


def test_edges_and_channels_are_kept_apart() -> None:
    found = records_in_flight(
        {
            "totals[0]": a_file(
                frame("input", (batch(1), False)),
                frame("input", (batch(2), False), of=channel(edge=1)),
                frame("input", (batch(3), False), of=channel("source[1]")),
            )
        }
    )
    assert [(one.sender, one.edge, ids(one)) for one in found] == [
        ("source[0]", 0, [1]),
        ("source[0]", 1, [2]),
        ("source[1]", 0, [3]),
    ]


def test_a_batch_that_neither_end_holds_to_its_end_is_told() -> None:
    data = batch(7, 8)
    at_receiver = {"totals[0]": a_file(frame("input", (batch(1), False), (data[:4], True)))}
    (torn,) = records_in_flight(at_receiver)
    assert ids(torn) == [1]
    assert "neither end holds the rest" in torn.problem
    rest = {"source[0]": a_file(frame("output", (data[4:], False)))}
    (whole,) = records_in_flight(at_receiver | rest)
    assert (ids(whole), whole.problem) == ([1, 7, 8], "")


def test_watermarks_stand_in_their_place_among_the_records() -> None:
    was = ChannelId(SubtaskId("source", 3), SubtaskId("totals", 1), 0)
    marks = [encode_watermark(Watermark(7)), encode_watermark(Watermark(9, True, (was, was)))]
    content = a_file(
        frame("input", (batch(1), False), (marks[0], False), (batch(2, 3), False), (marks[1], False))
    )
    (found,) = records_in_flight({"totals[0]": content})
    name = "source[3]->totals[1]#0"
    first, last = WatermarkInFlight(1, 7), WatermarkInFlight(3, 9, True, f"{name}|{name}")
    assert (ids(found), found.watermarks) == ([1, 2, 3], (first, last))
    assert found.elements == [found.rows[0], first, *found.rows[1:], last]


def test_a_watermark_of_another_form_is_refused() -> None:
    with pytest.raises(NotChannelState, match="watermark"):
        records_in_flight({"totals[0]": a_file(frame("input", (b'watermark:{"at_ms":"soon"}', False)))})


@given(st.data())
def test_what_the_runtime_writes_is_read_wherever_batches_are_cut(data: st.DataObject) -> None:
    batches = [batch(*range(10 * n, 10 * n + n)) for n in range(data.draw(st.integers(1, 4)))]
    fragments: list[Fragment] = []
    for whole in batches:
        cuts = sorted(data.draw(st.sets(st.integers(1, len(whole) - 1), max_size=3))) if whole[1:] else []
        edges = [0, *cuts, len(whole)]
        pieces = [whole[a:b] for a, b in pairwise(edges)]
        fragments += [Fragment(piece, number < len(pieces) - 1) for number, piece in enumerate(pieces)]
    place = data.draw(st.integers(0, len(fragments)))
    one = ChannelId(SubtaskId("source", 0), SubtaskId("totals", 0), 0)
    files = {
        "source[0]": b"".join(encode({}, {one: fragments[place:]}, "rows")),
        "totals[0]": b"".join(encode({one: fragments[:place]}, {}, "rows")),
    }
    (found,) = records_in_flight(files)
    assert ids(found) == [10 * n + k for n in range(len(batches)) for k in range(n)]
    assert (found.at_receiver, found.at_sender) == (place, len(fragments) - place)
    assert found.problem == ""


def test_arrow_batches_are_read() -> None:
    table = pa.table({"id": [1, 2]})
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    data = sink.getvalue().to_pybytes()
    (found,) = records_in_flight({"totals[0]": a_file(frame("input", (data, False)), encoding="arrow")})
    assert ids(found) == [1, 2]


def extension(code: int, data: bytes) -> bytes:
    """Return a batch with one value, as the page describes extensions."""
    return msgspec.msgpack.encode([{"value": msgspec.msgpack.Ext(code, data)}])


@pytest.mark.parametrize(
    ("code", "data", "value"),
    [
        (1, bytes.fromhex("000619d2d6edd007"), datetime(2024, 6, 1, 12, 0, 0, 7, tzinfo=UTC)),
        (1, bytes.fromhex("ffffffffffffffff"), datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC)),
        (2, bytes.fromhex("fffffffe"), date(1969, 12, 30)),
        (3, b"-12.50", Decimal("-12.50")),
    ],
)
def test_timestamps_dates_and_decimals_are_read_as_documented_and_as_the_runtime_writes_them(
    code: int, data: bytes, value: Any
) -> None:
    content = a_file(frame("input", (extension(code, data), False)))
    (found,) = records_in_flight({"totals[0]": content})
    assert [(row["value"], type(row["value"])) for row in found.rows] == [(value, type(value))]
    assert RowPlane().encode([{"value": value}]) == extension(code, data)


GOOD = frame("input", (batch(1), False))
LINE, REST = GOOD.split(b"\n", 1)
BAD = {
    "another format": (a_file(GOOD, format="counters"), "a 'counters' file of version 1"),
    "another version": (a_file(GOOD, version=2), "file of version 2"),
    "another encoding": (a_file(GOOD, encoding="csv"), "'csv' is not documented"),
    "no header": (GOOD, "does not have the documented form"),
    "a header that is no object": (b"[1]\n" + GOOD, "does not have the documented form"),
    "no encoding": (b'{"format":"channel-state","version":1}\n' + GOOD, "does not have the documented form"),
    "nothing": (b"", "does not have the documented form"),
    "text": (b"\xff\xfe\n", "does not have the documented form"),
    "a buffer cut off": (a_file(GOOD[:-2]), "is cut off"),
    "no newline behind a frame": (a_file(GOOD[:-1] + b"x"), "does not end with a newline"),
    "a field missing": (a_file(LINE.replace(b'"buffers"', b'"buffer"') + b"\n" + REST), "documented form"),
    "a buffer without a size": (a_file(re.sub(rb"\[\[\d+, ", b"[[", LINE) + b"\n" + REST), "documented form"),
    "a negative size": (a_file(re.sub(rb"\[\[\d+", b"[[-1", LINE) + b"\n" + REST), "size of -1"),
    "an edge that is no number": (a_file(LINE.replace(b'"edge": 0', b'"edge": "a"') + b"\n" + REST), "form"),
    "another direction": (a_file(GOOD.replace(b'"input"', b'"inward"')), "has an inward channel"),
    "the wrong side": (a_file(GOOD.replace(b'"input"', b'"output"')), "has an output channel"),
    "a stranger's channel": (
        a_file(frame("input", (batch(1), False), of=channel(receiver="sink[0]"))),
        "sink[0]",
    ),
    "a channel twice": (a_file(GOOD, GOOD), "twice"),
    "a batch that is no batch": (a_file(frame("input", (b"\xc1", False))), "not a MessagePack array"),
    "an extension that is not documented": (
        a_file(frame("input", (extension(9, b""), False))),
        "an extension 9 of 0 bytes is not documented",
    ),
    "a timestamp that is too short": (
        a_file(frame("input", (extension(1, b"x"), False))),
        "extension 1 of 1 bytes",
    ),
    "a decimal that is none": (
        a_file(frame("input", (extension(3, b"one"), False))),
        "extension 3 holds b'one'",
    ),
    "a year beyond all": (
        a_file(frame("input", (extension(1, b"\x7f" + bytes(7)), False))),
        "extension 1 holds",
    ),
    "a batch of numbers": (
        a_file(frame("input", (msgspec.msgpack.encode([1]), False))),
        "not a MessagePack array",
    ),
    "no Arrow stream": (a_file(frame("input", (b"abc", False)), encoding="arrow"), "not an Arrow stream"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_that_is_not_as_documented_is_refused(name: str) -> None:
    content, words = BAD[name]
    with pytest.raises(NotChannelState, match=re.escape(words)):
        records_in_flight({"totals[0]": content})


def test_two_encodings_in_one_checkpoint_are_refused() -> None:
    other = a_file(frame("output", (batch(2), False)), encoding="arrow")
    with pytest.raises(NotChannelState, match="arrow and rows"):
        records_in_flight({"totals[0]": a_file(GOOD), "source[0]": other})


def test_the_reader_shares_no_code_with_what_writes() -> None:
    tree = ast.parse(Path(stored_channels.__file__).read_text())
    imported = {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    standard = {name for name in imported if name.partition(".")[0] in sys.stdlib_module_names}
    assert imported - standard == {"barrier_tck.harness.record.history", "msgspec", "pyarrow"}


# --- where records may be in flight -------------------------------------------------------------------------

JOB = JobPlan(
    vertices=(
        source("read", 1),
        VertexPlan("met", "merge", 2),
        VertexPlan("back", "pass", 1),
        VertexPlan("out", SINK, 1),
    ),
    edges=(
        EdgePlan("read", "met", Spread.REBALANCE),
        EdgePlan("read", "met", Spread.BROADCAST, input=1),
        EdgePlan("met", "back", Spread.REBALANCE),
        EdgePlan("back", "met", Spread.BROADCAST, feedback=True),
        EdgePlan("back", "out", Spread.REBALANCE),
    ),
)


def held(sender: str, receiver: str, edge: int = 0, count: int = 1, problem: str = "") -> InFlight:
    rows: tuple[Row, ...] = tuple({"id": number} for number in range(count))
    return InFlight(sender, receiver, edge, rows, problem=problem)


def problems(*in_flight: InFlight, **checkpoints: Any) -> list[str]:
    plan = TrialPlan(job=JOB, checkpoints=CheckpointPlan(**({"mode": "unaligned"} | checkpoints)))
    return list(map(str, in_flight_problems(plan, SnapshotView(1, 1, {}, in_flight=in_flight))))


LOOSE = held("read[0]", "met[1]")
TOLD = (held("read[0]", "met[0]", 1), held("read[0]", "met[1]", 1))


@pytest.mark.parametrize("mode", ["unaligned", "aligned_timeout"])
def test_where_barriers_overtake_records_may_be_in_flight(mode: str) -> None:
    assert problems(LOOSE, *TOLD, mode=mode) == []
    assert problems(mode=mode) == []


def test_where_barriers_do_not_overtake_only_a_loop_has_records_in_flight() -> None:
    (told,) = problems(LOOSE, mode="exactly_once")
    assert "1 records are in flight on read[0]->met[1], though every barrier is aligned" in told
    assert problems(held("back[0]", "met[0]"), mode="exactly_once") == []


def test_a_channel_that_the_job_does_not_have_is_told() -> None:
    for stranger in (held("read[0]", "out[0]"), held("read[0]", "met[0]", 2), held("nobody[0]", "met[0]")):
        (told,) = problems(stranger)
        assert "there is no such channel" in told


def test_all_receivers_of_a_broadcast_have_applied_the_same() -> None:
    (none,) = problems(TOLD[0])
    assert "of a broadcast of read[0], 1 to met[0], 0 to met[1] are in flight" in none
    assert "UNA-5" in none
    (fewer,) = problems(held("read[0]", "met[0]", 1, 3), TOLD[1])
    assert "3 to met[0], 1 to met[1]" in fewer
    other = msgspec.structs.replace(TOLD[1], rows=({"id": 9},))
    assert len(problems(TOLD[0], other)) == 1


def test_where_every_channel_is_recorded_broadcasts_may_differ() -> None:
    assert problems(TOLD[0], protocol="chandy_lamport", mode="exactly_once") == []


def test_what_the_reader_found_wrong_is_told() -> None:
    assert problems(held("read[0]", "met[1]", problem="it is torn")) == [
        "records in flight on read[0]->met[1]: it is torn"
    ]


# --- state and records in flight are together what was read (UNA-1) -----------------------------------------

PLAN = next(planted_bugs()["UC-01"].plans("simulated"))
PLAN = msgspec.structs.replace(PLAN, mutant=None)


@pytest.fixture(scope="module")
def history(tmp_path_factory: pytest.TempPathFactory) -> History:
    """A right history whose checkpoints hold records in flight on several channels."""
    result = execute(PLAN, ReferenceSimulated(), tmp_path_factory.mktemp("right"))
    assert result.history is not None and result.record.verdict is Verdict.VALID, result.record.findings
    return result.history


def judge(history: History) -> Finding:
    view = barrier_view(PLAN)
    context = TrialContext(PLAN, history, job=view, subtasks=view.names)
    return Dataflow(TrialInput(Lineage(), PLAN), True).check(context)


def fullest(history: History) -> tuple[int, int]:
    """Return the checkpoint and the channel with the most records in flight."""
    return max(
        ((n, m) for n, view in enumerate(history.checkpoints) for m in range(len(view.in_flight))),
        key=lambda place: len(history.checkpoints[place[0]].in_flight[place[1]].rows),
    )


def with_rows(history: History, rows: Sequence[Row], place: tuple[int, int]) -> History:
    views = list(history.checkpoints)
    view = views[place[0]]
    in_flight = list(view.in_flight)
    in_flight[place[1]] = msgspec.structs.replace(in_flight[place[1]], rows=tuple(rows))
    views[place[0]] = msgspec.structs.replace(view, in_flight=tuple(in_flight))
    return msgspec.structs.replace(history, checkpoints=tuple(views))


def test_the_right_history_counts_what_is_in_flight(history: History) -> None:
    finding = judge(history)
    assert finding.verdict is Verdict.VALID
    rows = sum(len(one.rows) for view in history.checkpoints for one in view.in_flight)
    assert finding.counts[IN_FLIGHT] == rows > 10
    assert "UNA-1" in finding.clauses


def test_a_record_that_is_missing_from_a_channel_or_on_it_twice_is_found(history: History) -> None:
    place = fullest(history)
    rows = history.checkpoints[place[0]].in_flight[place[1]].rows
    assert len(rows) >= 2
    for wrong in (rows[1:], rows[:-1], (*rows, rows[0]), ()):
        assert judge(with_rows(history, wrong, place)).verdict is Verdict.INVALID


def test_records_that_overtook_each_other_on_a_channel_are_found(history: History) -> None:
    place = fullest(history)
    rows = history.checkpoints[place[0]].in_flight[place[1]].rows
    finding = judge(with_rows(history, rows[::-1], place))
    assert finding.verdict is Verdict.INVALID
    assert any("one overtook the other" in example for example in finding.examples)


def test_a_record_on_another_channel_than_its_own_is_found(history: History) -> None:
    number, which = fullest(history)
    view = history.checkpoints[number]
    own = view.in_flight[which]
    vertex = own.receiver.rpartition("[")[0]
    other = next(name for name in PLAN.job.vertex(vertex).subtasks if name != own.receiver)
    rest = tuple(one for one in view.in_flight if one is not own)
    moved = msgspec.structs.replace(view, in_flight=(*rest, msgspec.structs.replace(own, receiver=other)))
    views = (*history.checkpoints[:number], moved, *history.checkpoints[number + 1 :])
    assert judge(msgspec.structs.replace(history, checkpoints=views)).verdict is Verdict.INVALID


def test_the_formula_of_sums_leaves_out_what_is_in_flight_and_knows_no_strangers() -> None:
    plan = a_plan(checkpoints=CheckpointPlan(mode="unaligned"))
    whole, half = positions_at(plan, 1.0), positions_at(plan, 0.5)
    split = next(iter(whole))
    at = half | {split: whole[split]}
    rows = next(s for s in input_of(plan).splits if s.name == split).rows[half[split] : whole[split]]
    under_way = tuple(
        InFlight(
            "source[0]", f"totals[{n}]", 0, tuple(row for row in rows if (row["key"] == "k0") == (n == 0))
        )
        for n in (0, 1)
    )

    def found(*in_flight: InFlight) -> Finding:
        view = right_view(plan, 1, half, positions=at, in_flight=in_flight)
        return SnapshotFormula(input_of(plan)).check(a_context(plan, views=(view,)))

    assert found(*under_way).verdict is Verdict.VALID, found(*under_way).examples
    assert found(*under_way).counts[IN_FLIGHT] == len(rows) > 1
    assert found(under_way[0]).verdict is Verdict.INVALID
    assert found().verdict is Verdict.INVALID
    stranger = ({**rows[0], "id": 10**9},)
    finding = found(*under_way, InFlight("source[1]", "totals[0]", 0, stranger))
    assert any("is not part of the input" in example for example in finding.examples)


# --- what a campaign must have seen -------------------------------------------------------------------------


def a_trial(checker: str, *clauses: str, **counts: int) -> TrialSummary:
    return TrialSummary(0, Verdict.VALID, findings=(Finding(checker, clauses, Verdict.VALID, "", counts),))


def test_a_campaign_without_any_such_mode_owes_no_records_in_flight() -> None:
    seen = AllSometimes().each["sometimes-in-flight"]
    assert seen.finding() is None
    seen.add(a_trial("dataflow", records=7))
    assert seen.finding() is None


def test_a_campaign_in_which_no_barrier_overtook_a_record_has_not_tested_the_mode() -> None:
    seen = AllSometimes().each["sometimes-in-flight"]
    for _ in range(3):
        seen.add(a_trial("dataflow", "UNA-1", "SNK-1", **{IN_FLIGHT: 0}))
    finding = seen.finding()
    assert finding is not None
    assert (finding.checker, finding.clauses) == ("sometimes-in-flight", ("UNA-1",))
    assert finding.verdict is Verdict.UNKNOWN
    assert "no record was in flight in any checkpoint of the 3 trials" in finding.summary


def test_one_trial_with_records_in_flight_is_enough() -> None:
    seen = AllSometimes().each["sometimes-in-flight"]
    for records in (0, 4, 0, 2):
        seen.add(a_trial("snapshot-formula", **{IN_FLIGHT: records}))
    finding = seen.finding()
    assert finding is not None
    assert finding.verdict is Verdict.VALID
    assert finding.counts == {"trials": 4, "with_records": 2, "records": 6}


def test_a_campaign_says_why_its_checkpoints_may_hold_records_in_flight() -> None:
    seen = AllSometimes().each["sometimes-in-flight"]
    for clauses in (("CHL-5", "ALN-2"), ("CHL-1", "CHL-5")):
        seen.add(a_trial("dataflow", *clauses, **{IN_FLIGHT: 1}))
    finding = seen.finding()
    assert finding is not None and finding.clauses == ("CHL-1", "CHL-5")


def test_duplicates_are_counted_in_trials_that_may_have_some() -> None:
    seen = AllSometimes().each["sometimes-duplicates"]
    seen.add(a_trial("dataflow", records=7))
    assert seen.finding() is None
    seen.add(a_trial("at-least-once-output", "ALO-2"))
    finding = seen.finding()
    assert finding is not None and finding.verdict is Verdict.UNKNOWN
    seen.add(a_trial("dataflow", **{DUPLICATED: 3}))
    finding = seen.finding()
    assert finding is not None and finding.verdict is Verdict.VALID
    assert finding.counts == {"trials": 2, "with_duplicates": 1, "duplicates": 3}
