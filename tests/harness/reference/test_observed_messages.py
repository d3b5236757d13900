"""Logs of messages: what a process noted outlives it, in its own order, each line whole or not at all."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
from pathlib import Path

import pytest

from barrier_tck.harness.record.operations import LocalEvent, MessagesObserved
from barrier_tck.harness.reference.observed_messages import MemoryLogs, MessagesDirectory

EVENTS = (
    LocalEvent("sent", "read[0]->hub[1]", ('{"id":1,"path":"a\\nb"}', '{"id":2,"path":""}')),
    LocalEvent("recorded", checkpoint=7),
    LocalEvent("taken", "hub[1]->read[0]#2", ('{"id":3,"path":"ü"}',)),
)


def _noted(logs: MessagesDirectory | MemoryLogs, subtask: str, attempt: int) -> None:
    keep = logs(subtask, attempt)
    for event in EVENTS:
        keep(event)


def test_both_kinds_of_logs_give_back_the_same(tmp_path: Path) -> None:
    memory, files = MemoryLogs(), MessagesDirectory(str(tmp_path))
    for logs in (memory, files):
        for attempt, subtask in ((1, "hub[1]"), (1, "read[0]"), (2, "hub[1]")):
            _noted(logs, subtask, attempt)
    assert files.observed() == memory.observed()
    assert [one.events for one in files.observed()] == [EVENTS] * 3


def test_attempts_stay_in_order_of_their_numbers(tmp_path: Path) -> None:
    logs = MessagesDirectory(str(tmp_path))
    for attempt in (10, 9):
        _noted(logs, "hub[0]", attempt)
    assert [one.attempt for one in logs.observed()] == [9, 10]


def _note_and_die(logs: MessagesDirectory) -> None:
    _noted(logs, "hub[0]", 1)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_killed_process_loses_nothing_that_it_noted(tmp_path: Path) -> None:
    logs = MessagesDirectory(str(tmp_path))
    process = multiprocessing.get_context("fork").Process(target=_note_and_die, args=(logs,))
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    assert logs.observed() == (MessagesObserved("hub[0]", 1, EVENTS),)


@pytest.mark.parametrize("left", [0, 10, -1])
def test_half_a_line_is_left_out(tmp_path: Path, left: int) -> None:
    """A kill in the middle of a write leaves it; what it is about did not happen."""
    logs = MessagesDirectory(str(tmp_path))
    _noted(logs, "hub[0]", 1)
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:left])
    found = [one.events for one in logs.observed()]
    assert found == ([EVENTS[:-1]] if left == -1 else [])


def test_a_disk_that_refuses_a_note_is_not_passed_over(tmp_path: Path) -> None:
    logs = MessagesDirectory(str(tmp_path / "missing"))
    with pytest.raises(FileNotFoundError):
        logs("hub[0]", 1)


def test_a_directory_of_logs_can_be_sent_to_executors(tmp_path: Path) -> None:
    logs = MessagesDirectory(str(tmp_path))
    assert pickle.loads(pickle.dumps(logs)) == logs
