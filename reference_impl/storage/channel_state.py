"""The file of a subtask's channel state: the records in flight that its part of a checkpoint holds (UNA-1, CHL-2).

A header line, then one frame for each channel that holds anything, input channels first::

    {"format":"channel-state","version":1,"encoding":"rows"}
    {"direction":"input","channel":{"sender":{...},"receiver":{...},"edge":0},"buffers":[[31,false],[12,true]]}
    <43 bytes>

A frame is a line of JSON, then the bytes of its buffers, oldest first, then a newline. Each buffer is given by its
size and by whether the rest of its batch follows in the next one. A batch may be cut at a barrier: what the receiver
holds ends with its beginning then, and what the sender holds on the same channel begins with the rest. ``encoding``
names the data plane whose ``encode`` made the bytes. Size and checksum of the file are in its handle.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

import msgspec

from barrier_tck.reference_impl.ids import ChannelId
from barrier_tck.reference_impl.protocol.messages import ChannelContent
from barrier_tck.reference_impl.runtime_errors import CorruptStateError, StorageCause, StorageError

FORMAT = "channel-state"
VERSION = 1


class Fragment(msgspec.Struct, frozen=True):
    """A batch, or a part of one, as bytes."""

    data: bytes
    more: bool = False
    """Whether the rest of the batch follows."""


ChannelFragments = Mapping[ChannelId, Sequence[Fragment]]
"""Channel -> what it holds, oldest first."""


class ChannelSide(StrEnum):
    """On which side of the subtask a channel is."""

    INPUT = "input"
    OUTPUT = "output"


class _Header(msgspec.Struct, frozen=True):
    format: str
    version: int
    encoding: str


class _Frame(msgspec.Struct, frozen=True):
    direction: ChannelSide
    channel: ChannelId
    buffers: tuple[tuple[int, bool], ...]


class RecordsInFlight(msgspec.Struct, frozen=True):
    """What a file holds."""

    inputs: dict[ChannelId, tuple[Fragment, ...]]
    outputs: dict[ChannelId, tuple[Fragment, ...]]


_encode = msgspec.json.Encoder().encode
_decode_header = msgspec.json.Decoder(_Header).decode
_decode_frame = msgspec.json.Decoder(_Frame).decode


def encode(inputs: ChannelFragments, outputs: ChannelFragments, encoding: str) -> Iterator[bytes]:
    """Yield the content of the file, in pieces. Channels that hold nothing are left out."""
    yield _encode(_Header(FORMAT, VERSION, encoding)) + b"\n"
    for direction, channels in ((ChannelSide.INPUT, inputs), (ChannelSide.OUTPUT, outputs)):
        for channel, fragments in channels.items():
            if fragments:
                sizes = tuple((len(fragment.data), fragment.more) for fragment in fragments)
                yield _encode(_Frame(direction, channel, sizes)) + b"\n"
                yield from (fragment.data for fragment in fragments)
                yield b"\n"


def contents(channels: ChannelFragments) -> tuple[ChannelContent, ...]:
    """Return how much each channel holds; channels that hold nothing are left out."""
    return tuple(
        ChannelContent(channel, len(fragments), sum(len(fragment.data) for fragment in fragments))
        for channel, fragments in channels.items()
        if fragments
    )


def decode(content: bytes, encoding: str, source: str = "the channel state") -> RecordsInFlight:
    """Read a file; ``encoding`` is the name of the present data plane, ``source`` names the file in errors.

    Raises CorruptStateError if the content is damaged, StorageError if a newer release or another data plane wrote it.
    """
    end = content.find(b"\n")
    try:
        header = _decode_header(content[: max(end, 0)])
        if header.format != FORMAT:
            raise CorruptStateError(f"{source} is a {header.format!r} file", StorageCause.FOREIGN)
        if header.version > VERSION:
            raise StorageError(
                f"{source} has format version {header.version}, written by a newer release; this one reads up to "
                f"version {VERSION}. Resume with the release that wrote it, or a later one"
            )
        if header.encoding != encoding:
            raise StorageError(
                f"{source} holds batches of the data plane {header.encoding!r}, and this job runs on {encoding!r}"
            )
        found: dict[ChannelSide, dict[ChannelId, tuple[Fragment, ...]]] = {side: {} for side in ChannelSide}
        place = end + 1
        while place < len(content):
            end = content.index(b"\n", place)
            frame, place = _decode_frame(content[place:end]), end + 1
            fragments = []
            for size, more in frame.buffers:
                fragments.append(Fragment(content[place : place + size], more))
                place += size
            if frame.channel in found[frame.direction] or content[place : place + 1] != b"\n":
                raise CorruptStateError(f"{source} has a wrong frame for {frame.channel}")
            found[frame.direction][frame.channel] = tuple(fragments)
            place += 1
    except (msgspec.MsgspecError, UnicodeDecodeError, ValueError) as error:
        raise CorruptStateError(f"{source} does not hold channel state: {error}") from error
    return RecordsInFlight(found[ChannelSide.INPUT], found[ChannelSide.OUTPUT])
