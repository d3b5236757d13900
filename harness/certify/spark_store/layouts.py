"""How a state store is laid out for an example: its column families, and how the keys of each are encoded."""

from __future__ import annotations

from dataclasses import dataclass

PLAIN, PREFIXED, RANGED, MANY = "plain", "prefixed", "ranged", "many"
"""Kinds of families: no scans, scans by the first column, ordered by the first column, several values for a key."""
DEFAULT = "default"
"""The family that every store has."""
PREFIX_SCAN, RANGE_SCAN = "prefix-scan", "range-scan"
COLUMN_FAMILIES, MULTIPLE_VALUES = "column-families", "multiple-values"
CHECKPOINT_IDS = "checkpoint-ids"
"""Each commit has an id, by which its version is opened (state checkpoint format 2)."""
CAPABILITIES = (PREFIX_SCAN, RANGE_SCAN, COLUMN_FAMILIES, MULTIPLE_VALUES, CHECKPOINT_IDS)
"""What a provider may have beyond the core. It declares nothing, so each is tried once."""

KEY_TYPES, VALUE_TYPES = "ls", "s"
"""Columns of keys and values, as ``unsafe_rows`` names them."""
Key = tuple[int, str]


@dataclass(frozen=True, slots=True)
class Family:
    """One column family."""

    name: str
    kind: str


@dataclass(frozen=True, slots=True)
class StoreLayout:
    """The families of a store; without ``column_families`` there is the default one only."""

    name: str
    families: tuple[Family, ...]
    column_families: bool = False


LAYOUTS = {
    layout.name: layout
    for layout in (
        StoreLayout(PLAIN, (Family(DEFAULT, PLAIN),)),
        StoreLayout(PREFIXED, (Family(DEFAULT, PREFIXED),)),
        StoreLayout(RANGED, (Family(DEFAULT, RANGED),)),
        StoreLayout(
            "families",
            (Family(DEFAULT, PLAIN), Family("twin", PLAIN), Family("by-prefix", PREFIXED)),
            column_families=True,
        ),
        StoreLayout(MANY, (Family(DEFAULT, PLAIN), Family("lists", MANY)), column_families=True),
    )
}
"""All layouts, by name."""
NEEDED = {
    PREFIX_SCAN: LAYOUTS[PREFIXED],
    RANGE_SCAN: LAYOUTS[RANGED],
    COLUMN_FAMILIES: LAYOUTS["families"],
    MULTIPLE_VALUES: LAYOUTS[MANY],
}
"""Capability -> the layout that needs it."""
