"""Reads the records in flight of a checkpoint from their bytes, by the documented format (docs/checkpoint-files.md).

It shares no code with what writes them. What a channel's receiver holds is older than what its sender holds, and a
batch may be cut between the two; here both are put together again.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import msgspec

from barrier_tck.harness.record.history import InFlight, Row, WatermarkInFlight

FORMAT, VERSION = "channel-state", 1
WATERMARK = b"watermark:"
"""What the bytes of a watermark begin with: it stands among the batches."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_Channel = tuple[str, str, int]
_Buffer = tuple[bytes, bool]


class NotChannelState(ValueError):
    """A file does not have the documented form; the text says why."""


def records_in_flight(files: Mapping[str, bytes]) -> tuple[InFlight, ...]:
    """Return what is in flight on every channel of a checkpoint; ``files``: subtask -> content of its file.

    Raises NotChannelState if a file, or both together, are not what the format says.
    """
    held: dict[_Channel, dict[str, list[_Buffer]]] = {}
    encodings: list[str] = []
    for subtask, content in files.items():
        encoding, frames = _frames(content)
        encodings.append(encoding)
        for direction, channel, buffers in frames:
            sender, receiver, _ = channel
            if subtask != {"input": receiver, "output": sender}.get(direction):
                raise NotChannelState(
                    f"the part of {subtask} has an {direction} channel {sender}->{receiver}"
                )
            if direction in held.setdefault(channel, {}):
                raise NotChannelState(f"the part of {subtask} has the channel {sender}->{receiver} twice")
            held[channel][direction] = buffers
    if len(set(encodings)) > 1:
        raise NotChannelState(f"its files have several encodings: {' and '.join(sorted(set(encodings)))}")
    return tuple(
        _in_flight(channel, sides.get("input", []), sides.get("output", []), encodings[0])
        for channel, sides in sorted(held.items())
    )


def amounts(content: bytes) -> dict[tuple[str, str, str, int], tuple[int, int]]:
    """Return (direction, sender, receiver, edge) -> number of buffers and of bytes, of each channel of one file.

    Raises NotChannelState if the file is not what the format says.
    """
    _, frames = _frames(content)
    return {
        (direction, *channel): (len(buffers), sum(len(data) for data, _ in buffers))
        for direction, channel, buffers in frames
    }


def _frames(content: bytes) -> tuple[str, list[tuple[str, _Channel, list[_Buffer]]]]:
    try:
        line, _, rest = content.partition(b"\n")
        header = json.loads(line)
        if (header["format"], header["version"]) != (FORMAT, VERSION):
            raise NotChannelState(f"it is a {header['format']!r} file of version {header['version']}")
        return header["encoding"], list(_each_frame(rest))
    except NotChannelState:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise NotChannelState(f"it does not have the documented form: {error!r}") from error


def _each_frame(content: bytes) -> Iterator[tuple[str, _Channel, list[_Buffer]]]:
    while content:
        line, _, content = content.partition(b"\n")
        frame = json.loads(line)
        buffers: list[_Buffer] = []
        for size, more in frame["buffers"]:
            if size < 0:
                raise NotChannelState(f"a buffer has a size of {size}")
            if len(content) <= size:
                raise NotChannelState(f"a buffer of {size} bytes is cut off")
            buffers.append((content[:size], more))
            content = content[size:]
        if content[:1] != b"\n":
            raise NotChannelState("a frame does not end with a newline")
        content = content[1:]
        yield frame["direction"], _channel(frame["channel"]), buffers


def _in_flight(
    channel: _Channel, at_receiver: list[_Buffer], at_sender: list[_Buffer], encoding: str
) -> InFlight:
    rows: list[Row] = []
    watermarks: list[WatermarkInFlight] = []
    batch = b""
    torn = False
    for data, more in (*at_receiver, *at_sender):
        batch, torn = batch + data, more
        if not more:
            if batch.startswith(WATERMARK):
                watermarks.append(_watermark(batch.removeprefix(WATERMARK), len(rows)))
            else:
                rows += _rows(batch, encoding)
            batch = b""
    sender, receiver, edge = channel
    problem = "its last batch is not whole: neither end holds the rest of it" if torn else ""
    held = len(at_receiver), len(at_sender)
    return InFlight(sender, receiver, edge, tuple(rows), *held, problem, tuple(watermarks))


def _watermark(data: bytes, behind: int) -> WatermarkInFlight:
    try:
        fields = json.loads(data)
        origin = "|".join(channel_name(one) for one in fields["origin"])
        return WatermarkInFlight(behind, int(fields["at_ms"]), bool(fields["idle"]), origin)
    except (KeyError, TypeError, ValueError) as error:
        raise NotChannelState(f"a watermark does not have the documented form: {error!r}") from error


def channel_name(channel: Mapping[str, Any]) -> str:
    """Return the name of a channel that the format describes: ``sender->receiver#edge``."""
    sender, receiver, edge = _channel(channel)
    return f"{sender}->{receiver}#{edge}"


def _channel(channel: Mapping[str, Any]) -> _Channel:
    sender, receiver = (
        f"{channel[end]['vertex']}[{channel[end]['index']}]" for end in ("sender", "receiver")
    )
    return sender, receiver, int(channel["edge"])


def _extension(code: int, data: memoryview) -> datetime | date | Decimal:
    """Return the timestamp, date or decimal that an extension stands for."""
    try:
        if code == 1 and len(data) == 8:
            return _EPOCH + timedelta(microseconds=int.from_bytes(data, "big", signed=True))
        if code == 2 and len(data) == 4:
            return _EPOCH.date() + timedelta(days=int.from_bytes(data, "big", signed=True))
        if code == 3:
            return Decimal(bytes(data).decode("ascii"))
    except (ArithmeticError, ValueError) as error:
        raise ValueError(f"extension {code} holds {bytes(data)!r}") from error
    raise ValueError(f"an extension {code} of {len(data)} bytes is not documented")


_decode_rows = msgspec.msgpack.Decoder(list[dict[str, Any]], ext_hook=_extension).decode


def _rows(data: bytes, encoding: str) -> list[Row]:
    if encoding == "rows":
        try:
            rows: list[Row] = _decode_rows(data)
        except (msgspec.MsgspecError, ValueError) as error:
            raise NotChannelState(f"a batch is not a MessagePack array of maps: {error}") from error
        return rows
    if encoding != "arrow":
        raise NotChannelState(f"the encoding {encoding!r} is not documented")
    import pyarrow as pa

    try:
        with pa.ipc.open_stream(data) as reader:
            return list(reader.read_all().to_pylist())
    except (pa.ArrowInvalid, OSError) as error:
        raise NotChannelState(f"a batch is not an Arrow stream: {error}") from error
