"""What is said of rows that are wrong, and of their input; grain: rows as dictionaries, and small files."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.harness.record.history import InputRow, WrongRow
from barrier_tck.harness.streaming.driver.input_rows import InputRows, Origin
from barrier_tck.harness.streaming.driver.wrong_rows import (
    Parts,
    Tallied,
    WrongRows,
    repeated_update,
    wrong_rows,
)
from barrier_tck.harness.streaming.query_rpc import NOTHING_KNOWN, RowNames


def never() -> Parts:
    raise AssertionError("nothing was committed in the place of another row, so this need not be known")


@pytest.mark.parametrize(
    ("tallied", "lines"),
    [
        (Tallied({"id": 1}, 1, 0), ["lost: id=1 is not in the output"]),
        (Tallied({"id": 1}, 2, 0), ["lost: id=1 is not in the output, and expected 2 times"]),
        (Tallied({"id": 1}, 2, 1), ["lost: id=1 is in the output once, and expected 2 times"]),
        (
            Tallied({"id": 1}, 1, 3, batches=(2, 2, 4)),
            [
                (
                    "duplicated: id=1 is in the output 3 times, and expected once; "
                    "written by micro-batches 2 (2 times) and 4"
                ),
            ],
        ),
        (
            Tallied({"id": 1}, 0, 2, early=1),
            ["duplicated: id=1 is in the output 2 times, and expected once"],
        ),
        (
            Tallied({"id": 1}, 0, 1, batches=(5,)),
            [
                (
                    "unexpected: id=1 is in the output once, and the query run as a batch gives no such row; "
                    "written by micro-batch 5"
                ),
            ],
        ),
    ],
)
def test_a_row_that_stands_alone_is_described_in_a_line_and_with_its_micro_batches(
    tallied: Tallied, lines: list[str]
) -> None:
    found = wrong_rows([tallied], parts=never)
    assert (list(found.examples), found.added_again) == (lines, 0)


PARTS = {0: [{"key": "a", "n": 10}], 1: [{"key": "a", "n": 3}], 2: []}
DUE = Tallied({"key": "a", "n": 13}, 1, 0)


def in_its_place(number: int, run_again: tuple[int, ...], parts: Parts | None = PARTS) -> WrongRows:
    return wrong_rows([DUE, Tallied({"key": "a", "n": number}, 0, 1)], run_again, lambda: parts)


@pytest.mark.parametrize(
    ("number", "run_again", "kind", "difference"),
    [
        (
            16,
            (1,),
            "duplicated",
            "n is higher by 3, which is what micro-batch 1 adds (it ran more than once)",
        ),
        (
            16,
            (0,),
            "lost",
            "n is higher by 3, which is what micro-batch 1 adds (it is not known to have run more than once)",
        ),
        (10, (1,), "lost", "n is lower by 3, which is what micro-batch 1 adds (it ran more than once)"),
        (15, (1,), "lost", "n is higher by 2, which is what no micro-batch adds alone"),
        (
            19,
            (1,),
            "duplicated",
            "n is higher by 6, which is what micro-batch 1 adds 2 times (it ran more than once)",
        ),
        (
            29,
            (0, 1),
            "duplicated",
            "n is higher by 16, which is what micro-batches 0 and 1 (2 times) add together (each ran more than once)",
        ),
        (
            26,
            (1,),
            "duplicated",
            "2 times as much: n is higher by 13, which is what no micro-batch adds alone",
        ),
    ],
)
def test_a_total_that_is_no_multiple_is_compared_with_what_each_micro_batch_adds(
    number: int, run_again: tuple[int, ...], kind: str, difference: str
) -> None:
    found = in_its_place(number, run_again)
    assert found.examples == (
        f"{kind}: key=a, n={number} is in the output in place of key=a, n=13: {difference}",
    )
    assert found.added_again == (kind == "duplicated")


def test_what_micro_batches_add_is_not_guessed() -> None:
    assert in_its_place(16, (1,), None).rows[0].difference == "n is higher by 3"
    equal = {0: [{"key": "a", "n": 5}], 1: [{"key": "a", "n": 5}], 2: [{"key": "a", "n": 3}]}
    either = in_its_place(18, (1,), equal).rows[0].difference
    assert either == "n is higher by 5, which is what micro-batch 0 or 1 adds (1 ran more than once)"
    neither = in_its_place(18, (2,), equal)
    assert neither.rows[0].difference.endswith("(none is known to have run more than once)")
    assert neither.added_again == 0


def test_those_that_were_added_again_come_first_and_five_are_shown() -> None:
    tallied = [
        *(Tallied({"key": "x", "n": number}, 1, 0) for number in range(4)),
        *(Tallied({"key": "y", "n": 2}, 1, 0), Tallied({"key": "y", "n": 5}, 0, 1)),
        *(Tallied({"key": "a", "n": 13}, 1, 0), Tallied({"key": "a", "n": 16}, 0, 1)),
    ]
    found = wrong_rows(tallied, (1,), lambda: PARTS)
    assert [row.row for row in found.rows] == [
        "key=a, n=13",
        "key=y, n=2",
        "key=x, n=0",
        "key=x, n=1",
        "key=x, n=2",
    ]


def test_an_update_of_a_changelog_that_came_twice_follows_the_others() -> None:
    found = wrong_rows([Tallied({"id": 1}, 1, 0)]).with_more([repeated_update({"key": "a", "n": 1}, 2, 3)])
    assert found.examples[1:] == (
        "duplicated: one micro-batch wrote the update key=a, n=1 2 times; written by micro-batch 3 (2 times)",
    )


def test_each_row_has_its_input() -> None:
    origin = Origin(("id",), (InputRow("0.parquet", 2, "id=1", 4),), 1, (4,))
    asked: list[object] = []

    def find(values: Any) -> Origin:
        asked.append(values)
        return origin

    found = wrong_rows([Tallied({"id": 1}, 1, 0)], origin=find)
    expected = WrongRow(
        kind="lost",
        row="id=1",
        expected=1,
        committed=0,
        found_by=("id",),
        input=origin.rows,
        input_rows=1,
        read_by=(4,),
    )
    assert (found.rows, asked) == ((expected,), [{"id": 1}])


# --- the input ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module", name="directory")
def _directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files of three rows: ids from 0, two keys in turn."""
    directory = tmp_path_factory.mktemp("input")
    for number in range(3):
        ids = range(3 * number, 3 * number + 3)
        at = datetime(2024, 1, 1, tzinfo=UTC)
        columns = {"id": list(ids), "key": ["ab"[one % 2] for one in ids], "at": [at] * 3}
        pq.write_table(pa.table(columns), directory / f"{number}.parquet")
    return directory


TAKEN = {"0.parquet": 0, "1.parquet": 1, "2.parquet": 1}
NAMES = RowNames("id", ("key",))


def test_a_row_is_found_by_its_id_with_its_place_and_micro_batch(directory: Path) -> None:
    found = InputRows(directory, TAKEN, NAMES).of({"id": 4, "key": "b", "doubled": 7})
    shown = InputRow("1.parquet", 2, "id=4, key=a, at=2024-01-01 00:00:00+00:00", 1)
    assert found == Origin(("id",), (shown,), 1, (1,))


def test_without_an_id_all_rows_of_the_key_are_found(directory: Path) -> None:
    found = InputRows(directory, TAKEN, NAMES).of({"key": "b", "total": 7})
    assert (found.found_by, found.number, found.read_by) == (("key",), 4, (0, 1))
    assert [(row.file, row.number) for row in found.rows] == [
        ("0.parquet", 2),
        ("1.parquet", 1),
        ("1.parquet", 3),
        ("2.parquet", 2),
    ]


@pytest.mark.parametrize(
    ("names", "values"),
    [
        (NAMES, {"total": 7}),
        (NAMES, {"id": 99}),
        (NAMES, {"id": "four"}),
        (NAMES, {"key": None}),
        (RowNames("id", ("key", "id")), {"key": "a"}),
        (NOTHING_KNOWN, {"id": 4}),
        (RowNames(any_columns=True), {"id": 4, "key": "b"}),
        (RowNames(any_columns=True), {"at": datetime(2024, 1, 1)}),
    ],
    ids=[
        "no column",
        "no such row",
        "another type",
        "null",
        "half a key",
        "unknown",
        "not in one row",
        "a time",
    ],
)
def test_what_cannot_be_found_is_not_known(directory: Path, names: RowNames, values: dict[str, Any]) -> None:
    assert InputRows(directory, TAKEN, names).of(values) == Origin()


def test_in_files_of_a_user_all_columns_of_the_same_name_must_agree(directory: Path) -> None:
    find = InputRows(directory, {}, RowNames(any_columns=True)).of
    values = {"id": Decimal(4), "at": datetime(2023, 1, 1), "n": 1}
    found = find(values)
    assert (found.found_by, found.number, found.read_by) == (("id",), 1, ())
    assert found.rows[0].micro_batch is None


SECOND = timedelta(seconds=1)


@pytest.fixture(scope="module", name="timed", params=[UTC, None], ids=["with a zone", "without one"])
def _timed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, datetime]:
    """Two files of eight rows, one row a second, two keys in turn; and the first time as Spark's rows have it."""
    directory = tmp_path_factory.mktemp("timed")
    first = datetime(2024, 1, 1, tzinfo=request.param)
    for number in range(2):
        ids = range(8 * number, 8 * number + 8)
        times = pa.array(
            [first + SECOND * one for one in ids], pa.timestamp("us", tz=request.param and "UTC")
        )
        columns = {"id": list(ids), "key": ["ab"[one % 2] for one in ids], "at": times}
        pq.write_table(pa.table(columns), directory / f"{number}.parquet")
    return directory, first if request.param is None else first.astimezone().replace(tzinfo=None)


class SparkRow(tuple[Any, ...]):
    """A value of several fields, as Spark gives it."""

    __fields__ = ("start", "end")


@pytest.mark.parametrize("flat", [False, True], ids=["a column", "two columns"])
@pytest.mark.parametrize("keyed", [False, True], ids=["of all", "by key"])
def test_of_a_window_the_rows_are_found_whose_times_lie_in_it(
    timed: tuple[Path, datetime], flat: bool, keyed: bool
) -> None:
    directory, first = timed
    start, end = first + 4 * SECOND, first + 10 * SECOND
    values: dict[str, Any] = (
        {"window_start": start, "window_end": end} if flat else {"window": SparkRow((start, end))}
    )
    values |= {"key": "b", "count": 3} if keyed else {"count": 6}
    found = InputRows(directory, {"0.parquet": 0, "1.parquet": 1}, NAMES).of(values)
    assert (found.found_by, found.within) == (("key",) * keyed, "at")
    places = [(row.file, row.number) for row in found.rows]
    inside = [("0.parquet", place) for place in (5, 6, 7, 8)] + [("1.parquet", place) for place in (1, 2)]
    assert places == (inside[1::2] if keyed else inside)
    assert (found.number, found.read_by) == (len(places), (0, 1))


def test_a_window_without_rows_or_one_of_several_is_not_known(timed: tuple[Path, datetime]) -> None:
    directory, first = timed
    find = InputRows(directory, {}, NAMES).of
    outside = SparkRow((first + 30 * SECOND, first + 40 * SECOND))
    inside = SparkRow((first, first + 8 * SECOND))
    assert find({"window": outside}) == Origin()
    assert find({"window": inside, "other": inside}) == Origin()
    by_id = find({"id": 3, "window": SparkRow((first, first + SECOND))})
    assert (by_id.within, by_id.number) == ("", 1), "the id says more, also if the window is another"
    by_key = find({"key": "a", "window": outside})
    assert (by_key.found_by, by_key.within, by_key.number) == (("key",), "", 8), "it was no window"
    of_user = find({"key": "a", "start": first, "end": first + SECOND})
    assert (of_user.within, of_user.number) == ("", 8), "a user's own columns"


TALLIED = st.builds(
    lambda key, number, due, committed, early: Tallied({"key": key, "n": number}, due, committed, early),
    st.sampled_from("ab"),
    st.sampled_from((13, 16, 26)),
    st.sampled_from((0, 0, 1, 2)),
    st.sampled_from((0, 0, 1, 2)),
    st.sampled_from((0, 0, 1)),
)
"""Rows of which one may be there in the place of another: 13 is right of ``PARTS``, 16 and 26 have something twice."""


@settings(max_examples=400)
@given(
    st.lists(TALLIED, max_size=4, unique_by=lambda row: str(row.values)),
    st.sets(st.integers(0, 2)),
)
def test_no_more_rows_were_added_again_than_are_lost_and_than_are_unexpected(
    tallied: list[Tallied], run_again: set[int]
) -> None:
    lost = sum(max(0, row.due - row.committed) for row in tallied)
    unexpected = sum(row.committed for row in tallied if not row.wanted)
    found = wrong_rows(tallied, sorted(run_again), lambda: PARTS)
    assert 0 <= found.added_again <= min(lost, unexpected)


def test_more_rows_than_are_shown_are_told_of_all_the_same(tmp_path: Path) -> None:
    taken = {f"{number}.parquet": number for number in range(3)}
    for name in taken:
        pq.write_table(pa.table({"key": ["a"] * 6}), tmp_path / name)
    found = InputRows(tmp_path, taken, NAMES).of({"key": "a"})
    assert (len(found.rows), found.number) == (10, 18)
    assert found.read_by == (0, 1, 2), "the last file is beyond the rows that are shown"


def test_many_rows_are_counted_and_the_first_are_shown(tmp_path: Path) -> None:
    pq.write_table(pa.table({"key": ["a"] * 500}), tmp_path / "0.parquet")
    found = InputRows(tmp_path, {"0.parquet": 0}, NAMES).of({"key": "a"})
    assert (len(found.rows), found.number) == (10, 500)
