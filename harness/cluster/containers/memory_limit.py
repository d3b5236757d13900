"""What the kernel does when the processes of a control group have used up its memory: whom it kills, and how often."""

from __future__ import annotations

from pathlib import Path

from barrier_tck.harness.support.errors import OperatingError

_GROUPS = Path("/sys/fs/cgroup")
_FIRST_TO_DIE = "1000"


def kills_for_memory(pid: int) -> int:
    """Return how many processes the kernel has killed in the control group of a process, because no memory was left.

    Raises:
        OperatingError: the process is gone, or its control group cannot be read.
    """
    try:
        for line in _file_of_kills(pid).read_text().splitlines():
            name, _, value = line.partition(" ")
            if name == "oom_kill":
                return int(value)
    except OSError as error:
        raise OperatingError(
            f"What the kernel killed beside process {pid} cannot be read: {error}"
        ) from error
    raise OperatingError(f"The kernel does not count what it kills beside process {pid}.")


def first_to_die(pid: int) -> None:
    """Let the kernel choose this process before any other one when no memory is left.

    Raises:
        OperatingError: it is gone, or belongs to another user.
    """
    try:
        Path(f"/proc/{pid}/oom_score_adj").write_text(_FIRST_TO_DIE)
    except OSError as error:
        raise OperatingError(f"Process {pid} cannot be made the first to die: {error}") from error


def _file_of_kills(pid: int) -> Path:
    """Return where version 1 or 2 of control groups counts the kills."""
    found = _GROUPS
    for line in Path(f"/proc/{pid}/cgroup").read_text().splitlines():
        _, controllers, group = line.split(":", 2)
        if "memory" in controllers.split(","):
            return _GROUPS / "memory" / group.lstrip("/") / "memory.oom_control"
        if not controllers:
            found = _GROUPS / group.lstrip("/") / "memory.events"
    return found
