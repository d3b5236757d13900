"""The scopes that are searched: small jobs, each for one part of the protocol."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from barrier_tck.faults.fault import Fault
from barrier_tck.faults.kinds.crash_coordinator import CrashCoordinator
from barrier_tck.faults.kinds.kill_worker import KillWorker
from barrier_tck.harness.plan.reading import plan_from
from barrier_tck.harness.plan.trial_plan import FilledPlan
from barrier_tck.harness.workloads.workload_names import filled


@dataclass(frozen=True)
class Scope:
    """A job with what may happen to it, at any time."""

    name: str
    about: str
    """What is searched, as a phrase."""
    plan: FilledPlan
    """Without faults: it is the scope that lets processes crash."""
    triggers: int = 1
    """How many checkpoints are triggered at any time; the last one follows the end of the input."""
    crashes: int = 1
    """How many processes crash, at any time: a subtask's or the coordinator's."""


def crash_of(subtask: str | None) -> Fault:
    """Return the fault by which a process crashes: the coordinator, or that of a subtask (``read[0]``)."""
    return CrashCoordinator() if subtask is None else KillWorker(subtask)


def _plan(name: str, **parts: Any) -> FilledPlan:
    usual: dict[str, Any] = {
        "workload": {"batches": 2, "batch_records": 1, "keys": 4},
        "deployment": {"max_parallelism": 4, "executors": 1},
        "checkpoints": {"interval_ms": 1, "async_ms_max": 0, "timeout_ms": 20},
        "restart": {"delay_ms": 1, "attempts_max": 3},
        "network": {"latency_ms_max": 0},
        "limits": {"virtual_ms": 100, "progress_ms": 80},
    }
    given = {
        part: {**usual.get(part, {}), **value} if isinstance(value, dict) else value
        for part, value in parts.items()
    }
    return filled(plan_from({**usual, **given}, name, "plan"))


def _vertex(name: str, kind: str, parallelism: int = 1, **parameters: Any) -> dict[str, Any]:
    return {"name": name, "kind": kind, "parallelism": parallelism, "parameters": parameters}


def _source(parallelism: int = 1) -> dict[str, Any]:
    mark = {"name": "read.mark", "kind": "pass"}
    return {"name": "read", "kind": "source", "parallelism": parallelism, "then": [mark]}


def _edge(source: str, target: str, by: str, **more: Any) -> dict[str, Any]:
    return {"from": source, "to": target, "by": by, **({"key": ["key"]} if by == "hash" else {}), **more}


def _one_of_each(batches: int, kind: str, **parameters: Any) -> dict[str, Any]:
    """Return the parts of a plan with one source, one keyed subtask and one sink."""
    return {
        "workload": {"name": "lineage", "batches": batches, "keys": 1},
        "job": {
            "vertices": [_source(), _vertex("met", kind, **parameters), _vertex("out", "sink")],
            "edges": [_edge("read", "met", "hash"), _edge("met", "out", "rebalance")],
        },
    }


def _rescaled(job: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of a plan whose job is stopped with records in flight, and goes on with three of ``met``."""
    return {
        "workload": {"name": "lineage", "batches": 1, "keys": 1},
        "job": job,
        "savepoints": [{"after_checkpoints": 0, "stop": True}],
        "rescales": [{"widths": {"met": 3}}],
    }


_KEYED: dict[str, Any] = {
    "vertices": [_source(), _vertex("met", "keep", 2), _vertex("out", "sink")],
    "edges": [_edge("read", "met", "hash"), _edge("met", "out", "rebalance")],
}
_BROADCAST: dict[str, Any] = {
    "vertices": [_source(), _vertex("met", "pass", 2), _vertex("every", "pass"), _vertex("out", "sink")],
    "edges": [
        _edge("read", "met", "rebalance"),
        _edge("met", "every", "broadcast"),
        _edge("every", "out", "rebalance"),
    ],
}
_CYCLE: dict[str, Any] = {
    "workload": {"name": "rounds", "batches": 2, "keys": 1},
    "job": {
        "vertices": [
            _source(),
            _vertex("first", "keep"),
            _vertex("second", "pass"),
            _vertex("third", "again", turns=1),
            _vertex("out", "sink"),
        ],
        "edges": [
            _edge("read", "first", "hash"),
            _edge("first", "second", "forward"),
            _edge("second", "third", "forward"),
            _edge("third", "first", "hash", feedback=True),
            _edge("second", "out", "forward"),
        ],
    },
    "checkpoints": {"protocol": "chandy_lamport"},
}
_MODES = ("exactly_once", "at_least_once", "unaligned", "aligned_timeout")
_ALIGNMENT_TIMEOUT_MS = 1
"""A subtask's timer takes its time with it when it goes off early: that of a few must not let a checkpoint expire."""


def _checkpoints(mode: str) -> dict[str, Any]:
    return {"mode": mode, "alignment_timeout_ms": _ALIGNMENT_TIMEOUT_MS}


def _scopes() -> list[Scope]:
    modes = [
        Scope(
            f"modes-{mode.replace('_', '-')}",
            f"two sources, two keyed subtasks, one sink, two batches each; one checkpoint ({mode}), one crash",
            _plan(mode, checkpoints=_checkpoints(mode)),
        )
        for mode in _MODES
    ]
    lines = [
        Scope(
            f"line-{mode.replace('_', '-')}",
            f"one source, one keyed subtask, one sink, one batch; one checkpoint ({mode}), one crash",
            _plan(mode, checkpoints=_checkpoints(mode), **_one_of_each(1, "keep")),
        )
        for mode in _MODES
    ]
    # The smallest scopes with a crash: barriers only follow the end of the input.
    last = [
        Scope(
            f"last-{mode.replace('_', '-')}",
            f"one source, one keyed subtask, one sink, one batch; the last checkpoint ({mode}), one crash",
            _plan(mode, checkpoints=_checkpoints(mode), **_one_of_each(1, "keep")),
            triggers=0,
        )
        for mode in _MODES
    ]
    return [
        *last,
        *lines,
        *modes,
        Scope(
            "timer",
            "one source, one subtask with a timer, one sink, one record; one checkpoint, one crash",
            _plan("timer", **_one_of_each(1, "window", size_ms=5)),
        ),
        *(
            Scope(
                f"rescale-{name}",
                f"one record, in flight to or from two subtasks that become three; {edge}, no crash",
                _plan(name, checkpoints=_checkpoints("unaligned"), **_rescaled(job)),
                triggers=0,
                crashes=0,
            )
            for name, edge, job in (
                ("keyed", "keyed edge", _KEYED),
                ("broadcast", "broadcast edge", _BROADCAST),
            )
        ),
        Scope(
            "cycle",
            "three processes in a cycle with two messages; one snapshot by Chandy and Lamport, no crash",
            _plan("cycle", **_CYCLE),
            crashes=0,
        ),
    ]


SCOPES: Mapping[str, Scope] = MappingProxyType({scope.name: scope for scope in _scopes()})
"""Every scope, by name."""
