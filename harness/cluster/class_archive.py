"""The archive of Spark's classes for one Spark and one Java: where it lies, and the option with which a JVM uses it."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

import pyspark

from barrier_tck.harness.cluster.installation import spark_home
from barrier_tck.harness.cluster.java import Java
from barrier_tck.harness.support.data_directory import data_directory

_MAKER = Path(__file__).with_name("class_archive_maker.py")
"""What it does with Spark decides which classes are in the archive."""


@dataclass(frozen=True, slots=True)
class SharedClasses:
    """The option with which a JVM uses the archive."""

    archive: Path
    class_path: str
    """What the JVM's class path has to begin with."""

    @property
    def java_option(self) -> str:
        """The options, quoted for Spark's settings. The JVM ignores an archive that does not fit, without a message."""
        return f'"-XX:SharedArchiveFile={self.archive}" -Xlog:cds*=off'

    @property
    def settings(self) -> dict[str, str]:
        """The settings for driver and executors besides ``java_option``."""
        return {
            "spark.driver.extraClassPath": self.class_path,
            "spark.executor.extraClassPath": self.class_path,
        }


def existing_classes(java: Java) -> SharedClasses | None:
    """Return the archive for this Spark and a Java, or None if it has not been made yet."""
    classes = classes_for(java)
    return classes if classes.archive.is_file() else None


def classes_for(java: Java) -> SharedClasses:
    """Return where the archive for this Spark and a Java lies or would lie."""
    jars = spark_home() / "jars"
    identity = hashlib.sha256(f"{java.executable.resolve()} {java.version} {jars}".encode())
    identity.update(_MAKER.read_bytes())
    for jar in sorted(jars.glob("*.jar")):
        # Java refuses an archive that was made from files of another size or time.
        facts = jar.stat()
        identity.update(f"{jar.name} {facts.st_size} {facts.st_mtime_ns}".encode())
    name = f"spark-{pyspark.__version__}-java-{java.feature}-{identity.hexdigest()[:16]}.jsa"
    # Spark's own class path begins like this.
    first = ":".join([*map(str, sorted(jars.glob("slf4j-api-*.jar"))), f"{jars}/*"])
    return SharedClasses(data_directory() / "class-data" / name, first)
