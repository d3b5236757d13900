"""The keys of keyed state, which checkpoints hold as text."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import msgspec

from barrier_tck.harness.workloads.sequential_model import Key


@lru_cache(maxsize=4096)
def key_of_text(text: str) -> Key:
    """Return the key for which a JSON text of key values stands; raises ValueError if it is no JSON list."""
    try:
        return tuple(msgspec.json.decode(text, type=list[Any]))
    except msgspec.DecodeError as error:
        raise ValueError(
            f"the state has a key {text!r}, which is not the JSON text of a list: {error}"
        ) from error
