"""Loses packets of one container, by a rule of the kernel's packet filter in the container's network.

The rule drops packets that leave the container, each with the same chance (iptables' statistic match). Nothing has to
be installed in the container: the rule is made from this machine, by who may do so.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from functools import cache

from barrier_tck.harness.support.errors import OperatingError

_TIMEOUT_S = 30
_MARK = "barrier-tck-packet-loss"


def begin(pid: int, per_mille: int) -> None:
    """Lose so many of 1,000 packets that leave the network of a process; raises OperatingError if that cannot be."""
    end(pid)
    _filter(pid, "-A", "OUTPUT", *_rule(per_mille))


def end(pid: int) -> None:
    """Lose none any more. Harmless twice."""
    for rule in _rules(pid):
        _filter(pid, "-D", *rule)


def lasts(pid: int) -> bool:
    """Ask the kernel whether packets of a process are lost now."""
    return bool(_rules(pid))


@cache
def why_no_packets_are_lost() -> str | None:
    """Try a rule in an empty network; return what speaks against it, None if packets can be lost on this machine."""
    if os.geteuid() != 0:
        return "only root can make rules in the network of a container"
    for command in ("iptables", "nsenter", "unshare"):
        if shutil.which(command) is None:
            return f"there is no command {command}"
    tried = _run(["unshare", "--net", "iptables", "--wait", "-A", "OUTPUT", *_rule(100)])
    return None if tried.returncode == 0 else (tried.stderr.strip() or f"exit code {tried.returncode}")


def _rule(per_mille: int) -> list[str]:
    chance = ["--mode", "random", "--probability", f"{per_mille / 1_000:.3f}"]
    return ["-m", "statistic", *chance, "-m", "comment", "--comment", _MARK, "-j", "DROP"]


def _rules(pid: int) -> list[list[str]]:
    """Return the rules made here, as they are named when they are deleted."""
    lines = _filter(pid, "-S", "OUTPUT").splitlines()
    return [line.split()[1:] for line in lines if _MARK in line and line.startswith("-A ")]


def _filter(pid: int, *arguments: str) -> str:
    done = _run(["nsenter", f"--net=/proc/{pid}/ns/net", "iptables", "--wait", *arguments])
    if done.returncode != 0:
        raise OperatingError(f"No packets of process {pid} can be lost: {done.stderr.strip()}")
    return done.stdout


def _run(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=_TIMEOUT_S, check=False)
