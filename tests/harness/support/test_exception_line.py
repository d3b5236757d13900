"""An exception is named by its own line, whatever notes libraries add to it."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barrier_tck.harness.support.exception_line import exception_line
from barrier_tck.harness.support.third_party import what_happened
from barrier_tck.reference_impl.runtime.crashes import crash_of

NOTE = "Falsifying example: collect(\n    plan=Plan(\n        faults=(1, 2)))"


def noted() -> ValueError:
    error = ValueError("no value\nat all")
    error.add_note(NOTE)
    error.add_note(NOTE)
    return error


def test_notes_are_left_out_and_stay_with_the_exception() -> None:
    error = noted()
    assert exception_line(error) == what_happened(error) == "ValueError: no value\nat all"
    assert error.__notes__ == [NOTE, NOTE]


def test_without_notes_it_is_what_python_prints_last() -> None:
    assert exception_line(KeyError("name")) == "KeyError: 'name'"
    with pytest.raises(SyntaxError) as caught:
        compile("1 +", "mine.py", "exec")
    caught.value.add_note(NOTE)
    assert exception_line(caught.value) == "SyntaxError: invalid syntax"


def test_a_process_that_died_of_an_exception_with_notes_names_it_too() -> None:
    crash = crash_of(noted())
    assert crash is not None
    assert crash.error == "ValueError: no value\nat all"


@pytest.mark.long
def test_a_failed_draw_is_named_by_what_was_raised_in_it() -> None:
    @settings(database=None, max_examples=5)
    @given(st.integers())
    def draws(_: int) -> None:
        raise ZeroDivisionError("nothing to draw from")

    with pytest.raises(ZeroDivisionError) as caught:
        draws()
    assert caught.value.__notes__
    assert exception_line(caught.value) == "ZeroDivisionError: nothing to draw from"
