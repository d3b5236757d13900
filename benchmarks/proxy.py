"""What a proxy that disturbs nothing costs: a channel without a proxy, through Toxiproxy, through the embedded one.

The channel is the runtime's own: Arrow record batches from one process to another, with the handshake. Rates are
counted where batches arrive. The round trip is that of 64 bytes over a bare connection. The three ways take turns, so
that a busy machine affects all of them alike, and medians are reported. Without ``toxiproxy-server`` on the PATH, its
numbers are left out.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from barrier_tck.faults.toxiproxy.server import PROGRAM, ServerChoice, ServerKind, proxy_server
from barrier_tck.reference_impl.ids import AttemptNumber, ChannelId, SubtaskId
from barrier_tck.reference_impl.runtime_errors import RuntimeFailure
from barrier_tck.reference_impl.spark.handshake import SECRET_BYTES
from barrier_tck.reference_impl.spark.mailbox import Mailbox
from barrier_tck.reference_impl.spark.output_buffers import BufferedOutput
from barrier_tck.reference_impl.spark.spark_options import SparkOptions
from barrier_tck.reference_impl.spark.transport import ChannelServer, connect_channel

BATCH_ROWS = 32_768
BATCHES = 2_000
ROUNDS = 5
ROUND_TRIPS = 2_000
_ATTEMPT = AttemptNumber(1)
_CHANNEL = ChannelId(SubtaskId("sender", 0), SubtaskId("receiver", 0))
_SECRET = b"b" * SECRET_BYTES
_TIMEOUT_S = 60.0

Progress = Callable[[str, float], None]
Way = Callable[[tuple[str, int]], contextlib.AbstractContextManager[tuple[str, int]]]
"""Takes the address of a listener and gives the address to connect to."""


def run(progress: Progress, batches: int = BATCHES, rounds: int = ROUNDS) -> dict[str, Any]:
    """Run the benchmark; ``progress(what, share)`` is called as it advances (share from 0 to 1).

    Raises RuntimeError if not every row arrives.
    """
    with contextlib.ExitStack() as stack:
        ways = _ways(stack)
        rates: dict[str, list[float]] = {name: [] for name in ways}
        trips: dict[str, list[float]] = {name: [] for name in ways}
        for number in range(rounds):
            for position, (name, way) in enumerate(ways.items()):
                progress(name, (number + position / len(ways)) / rounds)
                rates[name].append(_megabytes_per_second(way, batches))
                trips[name].append(_round_trip_us(way))
    return numbers_of(rates, trips, batches)


def numbers_of(rates: dict[str, list[float]], trips: dict[str, list[float]], batches: int) -> dict[str, Any]:
    """Return the medians, and each proxy's rate as a share of the direct one."""
    medians = {name: statistics.median(values) for name, values in rates.items()}
    return {
        "megabytes": round(batches * _batch().nbytes / 1e6),
        **{f"{name}_megabytes_per_second": round(value) for name, value in medians.items()},
        **{
            f"{name}_of_direct": round(value / medians["direct"], 3)
            for name, value in medians.items()
            if name != "direct"
        },
        **{f"{name}_round_trip_us": round(statistics.median(values)) for name, values in trips.items()},
        "runs": {name: [round(value) for value in values] for name, values in rates.items()},
    }


def _ways(stack: contextlib.ExitStack) -> dict[str, Way]:
    ways: dict[str, Way] = {"direct": _directly}
    program = shutil.which(PROGRAM)
    choices = {"toxiproxy": ServerChoice(ServerKind.PROGRAM, program)} if program is not None else {}
    choices["embedded"] = ServerChoice(ServerKind.EMBEDDED)
    for name, choice in choices.items():
        ways[name] = _through(stack, choice)
    return ways


@contextlib.contextmanager
def _directly(address: tuple[str, int]) -> Iterator[tuple[str, int]]:
    yield address


def _through(stack: contextlib.ExitStack, choice: ServerChoice) -> Way:
    client = stack.enter_context(proxy_server(choice))

    @contextlib.contextmanager
    def way(address: tuple[str, int]) -> Iterator[tuple[str, int]]:
        listen = client.create("bench", address)
        try:
            yield listen
        finally:
            client.delete("bench")

    return way


def _megabytes_per_second(way: Way, batches: int) -> float:
    mailbox = Mailbox(1, SparkOptions().channel_batches)
    server = ChannelServer("127.0.0.1")
    server.start([_CHANNEL], _ATTEMPT, _SECRET, mailbox)
    try:
        with way(("127.0.0.1", server.port)) as (host, port):
            sender = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.proxy", host, str(port), str(batches)]
            )
            try:
                taken = mailbox.take([False], _TIMEOUT_S)
                started, rows = time.perf_counter(), 0
                while isinstance(taken, tuple):
                    rows += len(taken[1])
                    taken = mailbox.take([False], _TIMEOUT_S) if rows < batches * BATCH_ROWS else None
                seconds = time.perf_counter() - started
            finally:
                sender.wait(_TIMEOUT_S)
    finally:
        server.close()
    if rows != batches * BATCH_ROWS:
        raise RuntimeError(f"{rows} of {batches * BATCH_ROWS} rows arrived")
    # The clock starts when the first batch has arrived.
    megabytes = (batches - 1) * int(_batch().nbytes) / 1e6
    return megabytes / seconds


def _round_trip_us(way: Way) -> float:
    with socket.create_server(("127.0.0.1", 0)) as listener, way(listener.getsockname()) as address:
        near = socket.create_connection(address)
        far, _ = listener.accept()
        with near, far:
            for end in (near, far):
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            echo = threading.Thread(target=_echo, args=(far,))
            echo.start()
            taken = []
            for _ in range(ROUND_TRIPS):
                started = time.perf_counter()
                near.sendall(b"x" * 64)
                near.recv(64, socket.MSG_WAITALL)
                taken.append(time.perf_counter() - started)
            near.shutdown(socket.SHUT_WR)
            echo.join()
    return statistics.median(taken) * 1e6


def _echo(connection: socket.socket) -> None:
    while data := connection.recv(64, socket.MSG_WAITALL):
        connection.sendall(data)


def _batch() -> pa.RecordBatch:
    values = np.arange(BATCH_ROWS, dtype=np.int64)
    return pa.record_batch({"key": values, "value": values})


def main(arguments: Sequence[str]) -> None:
    """Act as the sending process; the arguments are ``HOST PORT BATCHES``."""
    host, port, batches = arguments[0], int(arguments[1]), int(arguments[2])
    options, room = SparkOptions(), threading.Event()
    channel = connect_channel(_CHANNEL, host, port, _ATTEMPT, _SECRET, _TIMEOUT_S)
    output = BufferedOutput(
        [channel],
        options.channel_batches,
        options.channel_bytes,
        options.fragment_bytes,
        on_capacity=room.set,
        on_sent=lambda _channel, _checkpoint: None,
        on_failure=_give_up,
    )
    batch = _batch()
    for _ in range(batches):
        while output.full:
            room.wait()
            room.clear()
        output.send_data(0, batch)
    output.finish()
    output.close()


def _give_up(error: RuntimeFailure) -> None:
    """End the process: its receiver notices."""
    print(error, file=sys.stderr)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1:])
