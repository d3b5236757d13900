"""The Java compiler, for classes of ours that run inside Spark: they are shipped as source."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyspark

from barrier_tck.harness.cluster.installation import spark_home
from barrier_tck.harness.cluster.java import OLDEST_JAVA, find_java, java_executable
from barrier_tck.harness.support.data_directory import data_directory, locked
from barrier_tck.harness.support.errors import EnvironmentProblem, InternalError
from barrier_tck.harness.support.notices import notice

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
    """Compile sources against Spark's jars into a directory.

    Raises InternalError with the compiler's output, or EnvironmentProblem if it does not end.
    """
    jars = str(spark_home() / "jars" / "*")
    # A compiler on PATH may be newer than the Java that Spark uses.
    release = ["--release", str(OLDEST_JAVA)]
    command = [str(compiler), *release, "-nowarn", "-encoding", "UTF-8", "-d", str(classes), "-cp", jars]
    names = ", ".join(source.name for source in sources)
    try:
        done = subprocess.run(
            [*command, *map(str, sources)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMPILES_S,
            check=False,
        )
    except subprocess.TimeoutExpired as error:
        raise EnvironmentProblem(
            f"{compiler} did not compile {names} within {_COMPILES_S:.0f} s; this machine is too busy, or the compiler "
            "does not work"
        ) from error
    if done.returncode:
        raise InternalError(f"{names} cannot be compiled: {done.stderr[-2_000:]}")


def compiled_jar(compiler: Path, sources: Sequence[Path], name: str, otherwise: Path) -> Path:
    """Return the jar with the sources' classes: that of an earlier start, or else one that is compiled now and kept.

    It is kept in the data directory, by the digest of the sources and of the versions of Java and Spark, or below
    ``otherwise`` if that cannot be written. Raises what ``compile_java`` raises.
    """
    kept = data_directory() / "compiled" / f"{name}-{_identity(compiler, sources)}.jar"
    if kept.is_file():
        return kept
    try:
        kept.parent.mkdir(parents=True, exist_ok=True)
        with locked(kept.with_suffix(".lock")):
            if not kept.is_file():
                _make_jar(compiler, sources, kept)
    except OSError:
        kept = otherwise / f"{name}.jar"
        _make_jar(compiler, sources, kept)
    return kept


def _identity(compiler: Path, sources: Sequence[Path]) -> str:
    identity = hashlib.sha256(
        f"{compiler.resolve()} {find_java().version} {OLDEST_JAVA} {pyspark.__version__}".encode()
    )
    for source in sources:
        content = source.read_bytes()
        identity.update(f"{source.name} {len(content)} ".encode() + content)
    return identity.hexdigest()[:16]


def _make_jar(compiler: Path, sources: Sequence[Path], jar: Path) -> None:
    """Compile sources into a jar, which appears when it is complete."""
    names = ", ".join(source.name for source in sources[:3]) + (" and others" if len(sources) > 3 else "")
    notice(f"compiling {names} with {compiler}, once for each version")
    with tempfile.TemporaryDirectory(dir=jar.parent, prefix=".compiling-") as scratch:
        classes = Path(scratch) / "classes"
        classes.mkdir()
        compile_java(compiler, sources, classes)
        made = Path(scratch) / jar.name
        with zipfile.ZipFile(made, "x") as archive:
            for file in sorted(classes.rglob("*.class")):
                archive.write(file, file.relative_to(classes))
        made.replace(jar)


def _compiler_beside(java: Path) -> Path | None:
    beside = java.resolve().with_name("javac")
    if os.access(beside, os.X_OK):
        return beside
    found = shutil.which("javac")
    return Path(found) if found else None
