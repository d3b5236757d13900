"""Finds a Java that can run Spark and reads its version."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from barrier_tck.harness.support.errors import JavaMissing, JavaTooOld

#: Spark 4 needs at least this Java feature release.
OLDEST_JAVA = 17

#: What to do about a missing or old Java, as one sentence.
JAVA_ADVICE = (
    f"Install a Java {OLDEST_JAVA} or newer runtime (Debian: apt-get install openjdk-17-jre-headless) "
    "and make it the `java` on PATH, or point JAVA_HOME at it."
)

_VERSION = re.compile(r'version "(?P<version>[^"]+)"')
_ANSWER_TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that answered: its executable, the feature release (8, 11, 17, ...) and its full version."""

    executable: Path
    feature: int
    version: str


#: Runs an executable with `-version` and returns what it printed; a parameter, so that tests need no Java.
VersionProbe = Callable[[Path], str]


def parse_feature_release(version_output: str) -> tuple[int, str] | None:
    """The feature release and the version string in the output of `java -version`, or None.

    Knows both numbering schemes: "1.8.0_392" is 8, "17.0.15", "21" and "25-ea" are what they say. Lines
    before the version, as written under JAVA_TOOL_OPTIONS, are skipped.
    """
    found = _VERSION.search(version_output)
    if found is None:
        return None
    version = found["version"]
    numbers = [int(number) for number in re.findall(r"\d+", version)]
    if not numbers:
        return None
    if numbers[0] == 1 and len(numbers) > 1:
        return numbers[1], version
    return numbers[0], version


def java_executable(environ: Mapping[str, str]) -> Path | None:
    """Where Spark's scripts will look for Java: JAVA_HOME first, then PATH. None if neither has one."""
    home = environ.get("JAVA_HOME")
    if home:
        candidate = Path(home) / "bin" / "java"
        return candidate if os.access(candidate, os.X_OK) else None
    on_path = shutil.which("java", path=environ.get("PATH", os.defpath))
    return Path(on_path) if on_path else None


def ask_version(executable: Path) -> str:
    """What `java -version` prints (on its error stream, by tradition).

    Raises:
        OSError: it cannot be run.
        subprocess.TimeoutExpired: it did not answer within two minutes.
    """
    answer = subprocess.run(
        [str(executable), "-version"],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        timeout=_ANSWER_TIMEOUT_S,
        check=False,
    )
    return answer.stderr + answer.stdout


def find_java(environ: Mapping[str, str] | None = None, probe: VersionProbe = ask_version) -> Java:
    """The Java that Spark will use, known to be new enough.

    Raises:
        JavaMissing: there is none, or it does not answer with a version.
        JavaTooOld: it is older than `OLDEST_JAVA`.
    """
    environ = os.environ if environ is None else environ
    executable = java_executable(environ)
    if executable is None:
        home = environ.get("JAVA_HOME")
        where = f"JAVA_HOME={home} holds no bin/java" if home else "there is no `java` on PATH"
        raise JavaMissing(f"No Java found: {where}. {JAVA_ADVICE}")
    try:
        output = probe(executable)
    except subprocess.TimeoutExpired as error:
        raise JavaMissing(
            f"{executable} -version did not answer within {_ANSWER_TIMEOUT_S} s. {JAVA_ADVICE}"
        ) from error
    except OSError as error:
        raise JavaMissing(f"{executable} could not be run: {error}. {JAVA_ADVICE}") from error
    parsed = parse_feature_release(output)
    if parsed is None:
        raise JavaMissing(f"{executable} -version names no version: {output.strip()!r}. {JAVA_ADVICE}")
    feature, version = parsed
    if feature < OLDEST_JAVA:
        raise JavaTooOld(f"{executable} is Java {version}, Spark needs {OLDEST_JAVA}. {JAVA_ADVICE}")
    return Java(executable, feature, version)
