"""A bug for tests."""

from __future__ import annotations

from typing import Any

import msgspec

from barrier_tck.harness.yardstick.bugs import CertificateLook, KnownBug

BUG = KnownBug(
    id="SPARK-1",
    title="Something is lost",
    report="https://issues.apache.org/jira/browse/SPARK-1",
    fix="",
    first_affected="3.5.0",
    last_affected="4.0.2",
    fixed_in=("4.0.3",),
    versions_from="the report says so",
    pyspark="4.0.0",
    compared="4.0.3",
    seen="Rows are missing.",
    chosen_by="search",
    look=CertificateLook("spark:rocksdb"),
    settings={"spark.a.b": "true"},
)


def bug(**changes: Any) -> KnownBug:
    """Return the bug with other fields."""
    return msgspec.structs.replace(BUG, **changes)


def as_toml(**changes: Any) -> str:
    """Return a file of bugs with one bug; a field that is None is left out."""
    raw: dict[str, Any] = {**msgspec.to_builtins(BUG), **changes}
    lines = [f"{key} = {_toml(value)}" for key, value in raw.items() if value is not None]
    return "\n".join(["[[bug]]", *lines, ""])


def _toml(value: Any) -> str:
    if isinstance(value, dict):
        return "{ " + ", ".join(f'"{key}" = {_toml(one)}' for key, one in value.items()) + " }"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"'
