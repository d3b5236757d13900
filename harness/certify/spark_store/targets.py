"""What ``spark:NAME`` names: a class that implements ``StateStoreProvider``, and the settings of its state store."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from barrier_tck.harness.certify.engine.identity import Identity, identity_of_files
from barrier_tck.harness.cluster.installation import spark_home
from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.support.strict_input import nearest
from barrier_tck.harness.support.third_party import shown

PREFIX = "spark:"
CHANGELOG = "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled"
_STATE = "org.apache.spark.sql.execution.streaming.state"
_ROCKSDB = f"{_STATE}.RocksDBStateStoreProvider"
SHORT_NAMES: dict[str, tuple[str, dict[str, str]]] = {
    "rocksdb": (_ROCKSDB, {CHANGELOG: "false"}),
    "rocksdb-changelog": (_ROCKSDB, {CHANGELOG: "true"}),
    "hdfs": (f"{_STATE}.HDFSBackedStateStoreProvider", {}),
}
"""Short names of Spark's own providers: class and settings."""
_CLASS = re.compile(r"[A-Za-z_$][\w$]*(\.[A-Za-z_$][\w$]*)*")
_SETTING = re.compile(r"spark\.[\w.]+")


@dataclass(frozen=True, slots=True)
class StoreTarget:
    """One provider: as it was named, its class, where the class is found, and the settings of the state store."""

    name: str
    class_name: str
    jars: tuple[str, ...] = ()
    """Jars or directories that come after PySpark's own on the class path."""
    settings: tuple[tuple[str, str], ...] = ()

    @property
    def arguments(self) -> str:
        """Return what a command line must say besides the name, beginning with a space; empty if nothing."""
        short = dict(SHORT_NAMES.get(self.name.removeprefix(PREFIX), ("", {}))[1])
        own = [(key, value) for key, value in self.settings if short.get(key) != value]
        jars = [f" --jars {','.join(self.jars)}"] if self.jars else []
        return "".join([*jars, *(f" --conf {key}={value}" for key, value in own)])


def identity_of_store(target: StoreTarget) -> Identity:
    """Return what exactly is certified: its jars, or the jars of Spark's SQL if it is Spark's own."""
    own = [] if target.jars else sorted((spark_home() / "jars").glob("spark-sql*.jar"))
    spark = f"pyspark {metadata.version('pyspark')}"
    return identity_of_files(spark, [*own, *map(Path, target.jars)])


def is_store_target(name: str) -> bool:
    """Return whether a target of ``certify`` is a Spark state store."""
    return name.startswith(PREFIX)


def store_target(name: str, jars: Sequence[str] = (), settings: Sequence[str] = ()) -> StoreTarget:
    """Return the target; raises UsageProblem if the name, a jar or a setting (``KEY=VALUE``) cannot be one."""
    short = name.removeprefix(PREFIX)
    class_name, own = SHORT_NAMES.get(short, (short, {}))
    if short not in SHORT_NAMES and "." not in short:
        raise UsageProblem(f"{shown(name)} names no state store{nearest(short, tuple(SHORT_NAMES))}")
    if not _CLASS.fullmatch(class_name):
        raise UsageProblem(f"{shown(name)} is not {PREFIX}CLASS, the full name of a Java class")
    for jar in jars:
        if not Path(jar).exists():
            raise UsageProblem(f"--jars names {shown(jar)}, which is not there")
    given = {}
    for setting in settings:
        key, equals, value = setting.partition("=")
        if not equals or not _SETTING.fullmatch(key):
            raise UsageProblem(f"--conf is {shown(setting)}; give spark.KEY=VALUE")
        given[key] = value
    merged = tuple(sorted((own | given).items()))
    return StoreTarget(name, class_name, tuple(str(Path(jar).absolute()) for jar in jars), merged)
