"""The Java compiler, for classes of ours that run inside Spark: they are shipped as source."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from barrier_tck.harness.cluster.installation import spark_home
from barrier_tck.harness.cluster.java import OLDEST_JAVA, find_java, java_executable
from barrier_tck.harness.support.errors import InternalError

_COMPILES_S = 300.0


def java_compiler() -> Path | None:
    """Return the javac beside the Java that Spark uses, or that on PATH; None if there is none.

    Raises:
        JavaMissing, JavaTooOld: there is no Java that Spark can use.
    """
    return _compiler_beside(find_java().executable)


def has_java_compiler() -> bool:
    """Return whether there is a javac; no process is started to find out."""
    java = java_executable(os.environ)
    return java is not None and _compiler_beside(java) is not None


def compile_java(compiler: Path, sources: Sequence[Path], classes: Path) -> None:
    """Compile sources against Spark's jars into a directory; raises InternalError with the compiler's output."""
    jars = str(spark_home() / "jars" / "*")
    # A compiler on PATH may be newer than the Java that Spark uses.
    release = ["--release", str(OLDEST_JAVA)]
    command = [str(compiler), *release, "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", jars]
    done = subprocess.run(
        [*command, *map(str, sources)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_COMPILES_S,
        check=False,
    )
    if done.returncode:
        names = ", ".join(source.name for source in sources)
        raise InternalError(f"{names} cannot be compiled: {done.stderr[-2_000:]}")


def make_jar(compiler: Path, sources: Sequence[Path], jar: Path) -> None:
    """Compile sources into a new jar; raises InternalError with the compiler's output."""
    with tempfile.TemporaryDirectory(dir=jar.parent) as scratch, zipfile.ZipFile(jar, "x") as archive:
        compile_java(compiler, sources, Path(scratch))
        for file in sorted(Path(scratch).rglob("*.class")):
            archive.write(file, file.relative_to(scratch))


def _compiler_beside(java: Path) -> Path | None:
    beside = java.resolve().with_name("javac")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("javac")
    return Path(found) if found else None
