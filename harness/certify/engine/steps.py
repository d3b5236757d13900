"""Steps as every kind of certificate has them: frozen data with a kind, in sequences of which any part makes sense."""

from __future__ import annotations

from typing import TypeVar

import msgspec


class Step(msgspec.Struct, frozen=True):
    """What can be done with a candidate, as data that is saved and played again.

    A step that makes no sense at its moment does nothing. So any part of a sequence can be left out, and what is left
    is still a sequence.
    """

    @property
    def kind(self) -> str:
        """Its kind, as replay files name it."""
        return str(type(self).__struct_config__.tag)

    def description(self) -> str:
        """Return it as a line for people."""
        raise NotImplementedError


StepT = TypeVar("StepT", bound=Step)
