"""Runs trials where Spark sends them: in the Python worker of an executor, with a process of its own for the trials.

A Python worker only hands a trial on and waits, as a thread of ``trial_pool`` does. So it sees which trial ended its
process, and no trial can end the worker, whose death Spark would answer by running all trials of its task again
(decision 0083). Requests and answers are the lines of ``trial_messages``, in columns of Arrow.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime

import msgspec
import pyarrow

from barrier_tck.harness.campaign.process_of_trials import TrialProcess
from barrier_tck.harness.campaign.trial_messages import (
    NotDone,
    OpenSystem,
    TrialLost,
    line_of,
    request_of,
)
from barrier_tck.harness.support.errors import HarnessError

REQUESTS = pyarrow.schema(
    [
        pyarrow.field("place", pyarrow.int64(), nullable=False),
        pyarrow.field("opening", pyarrow.binary(), nullable=False),
        pyarrow.field("request", pyarrow.binary(), nullable=False),
        pyarrow.field("within_s", pyarrow.float64()),
    ]
)
"""What an executor is given: requests, each with the place of its answer, and the message that opens its system."""
ANSWERS = pyarrow.schema(
    [
        pyarrow.field("place", pyarrow.int64(), nullable=False),
        pyarrow.field("answer", pyarrow.binary(), nullable=False),
    ]
)
ANSWERS_IN_SPARK = "place long not null, answer binary not null"
"""The same columns in Spark's words."""

TRIES = 2
"""A trial that ended so many processes is not given another one."""


def answers(batches: Iterator[pyarrow.RecordBatch]) -> Iterator[pyarrow.RecordBatch]:
    """Answer one request after the other; this is the function that Spark's executors call."""
    for batch in batches:
        for row in batch.to_pylist():
            answer = _attendant(row["opening"]).answer(row["request"], row["within_s"])
            yield pyarrow.RecordBatch.from_pylist([{"place": row["place"], "answer": answer}], schema=ANSWERS)


class Attendant:
    """Gives requests to a process, and to another one if that ends."""

    def __init__(self, opening: OpenSystem) -> None:
        self._opening = opening
        self._process: TrialProcess | None = None

    def answer(self, request: bytes, within_s: float | None) -> bytes:
        """Return the line that answers a line. If the request ends its process, another one gets it; if it ends that
        one too, or if there is no answer in time, the answer is ``TrialLost``.
        """
        started_at, started = datetime.now(UTC), time.monotonic()
        endings: list[str] = []
        while len(endings) < TRIES:
            try:
                process = self._process or self._started()
            except HarnessError as error:
                return line_of(NotDone(type(error).__name__, str(error)))
            line = process.ask_in_lines(request, within_s)
            if line is not None:
                return line
            self._process = None
            if process.overran:
                return _lost(process.overran, started_at, started)
            endings.append(process.ending())
        return _lost(
            f"each of the {TRIES} processes that ran it ended: {', '.join(endings)}", started_at, started
        )

    def _started(self) -> TrialProcess:
        process = TrialProcess()
        try:
            process.open(self._opening)
        except HarnessError:
            process.close(at_once=True)
            raise
        self._process = process
        return process

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.close(at_once=True)
            self._process = None


def _lost(why: str, started_at: datetime, started: float) -> bytes:
    return line_of(TrialLost(why, started_at, time.monotonic() - started))


_latest: tuple[bytes, Attendant] | None = None
"""A Python worker serves one task after the other, and mostly of one campaign: its process lives on between them. It
ends when its input does, with the worker."""


def _attendant(opening: bytes) -> Attendant:
    global _latest
    if _latest is None or _latest[0] != opening:
        if _latest is not None:
            _latest[1].close()
        _latest = opening, Attendant(_opened_here(opening))
    return _latest[1]


def _opened_here(line: bytes) -> OpenSystem:
    """Return the opening with the module search path of this worker; where the driver's directories are found too,
    they come last: a system that lies in its working directory is found on a cluster of the same machine.
    """
    opening = request_of(line)
    assert isinstance(opening, OpenSystem), "a system is opened first"
    here = [entry for entry in sys.path if entry]
    others = (entry for entry in opening.path if entry not in here and os.path.exists(entry))
    return msgspec.structs.replace(opening, path=(*here, *others))
