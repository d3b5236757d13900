"""What the machine of a loop asks of its shell, frozen."""

from __future__ import annotations

import msgspec


class StartWave(msgspec.Struct, frozen=True):
    """Ask every member for its counts."""

    wave: int


class RestLoop(msgspec.Struct, frozen=True):
    """Answer WaveDue after a pause."""

    pause_ms: float


class CloseLoop(msgspec.Struct, frozen=True):
    """Tell every member that its feedback channels have ended."""


LoopCommand = StartWave | RestLoop | CloseLoop
