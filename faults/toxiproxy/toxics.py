"""What can be wrong with one direction of a proxied connection, in Toxiproxy's own words, checked when made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

UPSTREAM = "upstream"
"""From the client to the server, that is from the end that connected to the proxy."""
DOWNSTREAM = "downstream"

_ATTRIBUTES: dict[str, tuple[str, ...]] = {
    "latency": ("latency", "jitter"),
    "bandwidth": ("rate",),
    "timeout": ("timeout",),
    "reset_peer": ("timeout",),
    "slow_close": ("delay",),
    "limit_data": ("bytes",),
}
"""Type -> its attributes, all of them numbers: milliseconds, bytes, and for ``rate`` 1,000 bytes a second."""


class InvalidToxic(ValueError):
    """A toxic that the server cannot make; the message is the one that the HTTP interface answers with."""


@dataclass(frozen=True, slots=True)
class Toxic:
    """One toxic of a proxy."""

    type: str
    name: str
    stream: str = DOWNSTREAM
    toxicity: float = 1.0
    """The share of the connections that it acts on. 0 is not "off": remove the toxic for that."""
    attributes: Mapping[str, int] = field(default_factory=dict)

    def number(self, attribute: str) -> int:
        """Return an attribute of its type."""
        return self.attributes[attribute]

    def as_json(self) -> dict[str, Any]:
        """Return the toxic as the HTTP interface shows it."""
        return {
            "attributes": dict(self.attributes),
            "name": self.name,
            "type": self.type,
            "stream": self.stream,
            "toxicity": self.toxicity,
        }


def toxic_from_json(body: Mapping[str, Any], old: Toxic | None = None) -> Toxic:
    """Return the toxic that a request describes, with the values of ``old`` for what it leaves out.

    Raises InvalidToxic with Toxiproxy's own words, or with what this server does not know.
    """
    kind = old.type if old is not None else str(body.get("type", ""))
    stream = old.stream if old is not None else str(body.get("stream") or DOWNSTREAM).lower()
    if kind not in _ATTRIBUTES:
        raise InvalidToxic("invalid toxic type")
    if stream not in (UPSTREAM, DOWNSTREAM):
        raise InvalidToxic("stream was invalid, can be either upstream or downstream")
    name = old.name if old is not None else str(body.get("name") or f"{kind}_{stream}")
    toxicity = body.get("toxicity", old.toxicity if old is not None else 1.0)
    if not isinstance(toxicity, int | float) or not 0 <= toxicity <= 1:
        raise InvalidToxic(f"toxicity must be a number from 0 to 1, not {toxicity!r}")
    given = body.get("attributes") or {}
    if not isinstance(given, Mapping):
        raise InvalidToxic(f"attributes must be an object, not {given!r}")
    base = old.attributes if old is not None else {}
    attributes = {key: given.get(key, base.get(key, 0)) for key in _ATTRIBUTES[kind]}
    for key, value in attributes.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < 0:
            raise InvalidToxic(f"{kind}: {key} must be a whole number from 0, not {value!r}")
    return Toxic(kind, name, stream, float(toxicity), attributes)
