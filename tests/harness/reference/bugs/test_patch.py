"""Planted bugs in force: what fits, what is refused and why, and that nothing stays. Grain: functions."""

from __future__ import annotations

import inspect
import textwrap
import types
from typing import Any

import pytest

from barrier_tck.harness.reference.bugs import patch, replacement
from barrier_tck.harness.reference.bugs.patch import (
    Change,
    PatchProblem,
    change_at,
    patched_sources,
    product_source,
)
from barrier_tck.harness.reference.bugs.replacement import check, in_force
from barrier_tck.reference_impl import config
from barrier_tck.reference_impl.operators import encoding, job, sinks
from barrier_tck.reference_impl.operators.sinks import TransactionalFileSink
from barrier_tck.reference_impl.protocol.key_groups import owner_of
from barrier_tck.reference_impl.protocol.restarts import ExponentialDelay

RECOVERY = "operators/sinks.py::TransactionalFileSink._recover_and_commit"
NAMED = "def _recover_and_commit(self, transactions: Sequence[TransactionHandle]) -> None:"
COMMIT = "self.commit(transactions)"


def test_lines_are_replaced_where_they_are_whatever_their_indentation() -> None:
    change = change_at(RECOVERY, COMMIT, "if transactions:\n    self.commit(transactions)")
    text = patched_sources([change])["operators/sinks.py"]
    assert "        if transactions:\n            self.commit(transactions)\n" in text
    assert len(text.splitlines()) == len(product_source("operators/sinks.py").splitlines()) + 1


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        (change_at(RECOVERY, "self.commit(nothing)", "pass"), "they are not there"),
        (
            change_at("protocol/coordinator_checkpoints.py", "return ()", "return None"),
            r"they are there \d+ times",
        ),
        (change_at("operators/sinks.py::NoSink.commit", "pass", "pass"), "no NoSink.commit"),
        (change_at("operators/sinkz.py", "pass", "pass"), "no module operators/sinkz.py"),
        (change_at("../harness/cli/main.py", "pass", "pass"), "no module"),
        (change_at(RECOVERY, "", "pass"), "give the lines before"),
        (change_at(RECOVERY, COMMIT, "self.commit(("), "is no Python: line"),
        (change_at(RECOVERY, COMMIT, "self.commit(transactionz)"), "'transactionz' is not known there"),
        (change_at(RECOVERY, COMMIT, COMMIT), "changes nothing"),
        (
            change_at(
                "operators/sinks.py", "class TransactionalFileSink:", "class TransactionalFileSink(dict):"
            ),
            "its bases cannot be changed",
        ),
        (
            change_at(RECOVERY, COMMIT, "[one for one in () if (lambda: transactionz)]"),
            "'transactionz' is not known",
        ),
        (
            change_at(RECOVERY, COMMIT, f"{COMMIT}\ndef inner():\n    return wanted\n"),
            "'wanted' is not known",
        ),
        (change_at(RECOVERY, COMMIT, f"global _last\n_last = 1\n{COMMIT}"), "global name would stay"),
        (change_at(RECOVERY, COMMIT, f"super().commit(())\n{COMMIT}"), r"super\(\) cannot be changed"),
        (change_at("config.py::JobConfig", "", "more: int = 0"), "JobConfig.more .* cannot be changed"),
        (
            change_at("protocol/transactions.py::TransactionHandle", "", "more: int = 0"),
            "more .* cannot be changed",
        ),
        (change_at("protocol/table.py::Leads", "", "more: int = 0"), "Leads.more .* cannot be changed"),
        (
            change_at("protocol/admission.py::WaitUntil", "", "def __post_init__(self):\n    pass"),
            "__post_init__ .* cannot",
        ),
        (
            change_at("operators/sinks.py::FileSink", "", '__slots__ = ("x",)'),
            "__slots__ .* cannot be changed",
        ),
        (
            change_at("operators/sinks.py::FileSink", "", "def __repr__(self):\n    return ''"),
            "__repr__ .* cannot",
        ),
        (
            change_at("operators/encoding.py", "AGGREGATES_MAX = 16", "AGGREGATES_MAX = 17"),
            "AGGREGATES_MAX .* cannot",
        ),
        (
            change_at("operators/encoding.py", "", "AGGREGATES_MORE = 17"),
            "AGGREGATES_MORE .* cannot be changed",
        ),
        (change_at("operators/encoding.py", "", "def group_of_encoded():\n    pass"), "is defined twice"),
        (
            change_at("operators/encoding.py", "", "from binascii import hexlify as crc32"),
            "cannot be changed",
        ),
        (change_at("operators/encoding.py", "", "import nobody"), "cannot be changed"),
        (
            change_at("operators/encoding.py", "", "from nobody import one"),
            "cannot be put in force: ModuleNotFound",
        ),
        (change_at("operators/__init__.py", "", "def more():\n    pass"), r"__init__\.py cannot be changed"),
        (
            change_at(
                "protocol/alignment.py::BarrierAligner", "", "def _ignore(self, event):\n    return ()"
            ),
            "_ignore .* cannot be changed",
        ),
        (
            change_at(RECOVERY, NAMED, NAMED.replace("_and_commit", "")),
            "_recover_and_commit .* cannot",
        ),
        (change_at("operators/sinks.py", "", "raise SystemExit"), "cannot be changed"),
        (
            change_at("operators/sinks.py::TransactionalFileSink", "", "_x = 1 // 0"),
            "cannot be put in force: ZeroDivisionError",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_does_not_fit_is_refused_with_the_reason_and_changes_nothing(
    change: Change, problem: str
) -> None:
    code = TransactionalFileSink._recover_and_commit.__code__
    with pytest.raises(PatchProblem, match=problem):
        check([change])
    assert TransactionalFileSink._recover_and_commit.__code__ is code


def test_who_holds_a_function_holds_the_patched_one_and_afterwards_the_products() -> None:
    held = owner_of
    line = "return group * parallelism // max_parallelism"
    with in_force([change_at("protocol/key_groups.py::owner_of", line, "return -1")]):
        assert held(3, 2, 8) == -1
    assert held(3, 2, 8) == 0


def test_a_method_can_be_added_with_super_and_goes_again() -> None:
    change = change_at(
        "protocol/restarts.py::ExponentialDelay",
        "",
        textwrap.dedent(
            """
            def shown(self) -> str:
                return super().__repr__() + " with a patch"
            """
        ),
    )
    strategy: Any = ExponentialDelay(config.ExponentialDelayRestart(10, 100))
    with in_force([change]):
        assert strategy.shown() == repr(strategy) + " with a patch"
    assert not hasattr(strategy, "shown")


def test_one_patch_at_a_time_is_in_force_and_within_itself_again() -> None:
    first = change_at(RECOVERY, COMMIT, "self.commit(transactions[1:])")
    second = change_at(RECOVERY, COMMIT, "self.commit(transactions[2:])")
    code = TransactionalFileSink._recover_and_commit.__code__
    with in_force([first]):
        patched = TransactionalFileSink._recover_and_commit.__code__
        with in_force([first]):
            assert TransactionalFileSink._recover_and_commit.__code__ is patched
        assert TransactionalFileSink._recover_and_commit.__code__ is patched is not code
        for other in ([second], []):
            with pytest.raises(RuntimeError, match="another patch is in force"), in_force(other):
                raise AssertionError("it was put in force")
    assert TransactionalFileSink._recover_and_commit.__code__ is code


def test_a_traceback_shows_the_patched_lines() -> None:
    change = change_at(RECOVERY, COMMIT, "raise ValueError('planted')")
    with in_force([change]), pytest.raises(ValueError, match="planted") as caught:
        TransactionalFileSink._recover_and_commit(None, ())  # type: ignore[arg-type]
    entry = caught.traceback[-1]
    assert str(entry.path).endswith("operators/sinks.py with a patch>")
    assert sinks.__name__ == entry.frame.f_globals["__name__"]


def test_nothing_that_was_computed_with_a_patch_stays_in_a_cache_nor_hides_it() -> None:
    keys = [encoding.encode_key((number,)) for number in range(50)]
    before = [encoding.group_of_encoded(key, 128) for key in keys]
    change = change_at(
        "operators/encoding.py::_mix", "return value ^ (value >> 31)", "return value ^ (value >> 31) ^ _MASK"
    )
    with in_force([change]):
        assert all(
            encoding.group_of_encoded(key, 128) != group for key, group in zip(keys, before, strict=True)
        )
    assert [encoding.group_of_encoded(key, 128) for key in keys] == before


def test_defaults_are_patched_and_afterwards_the_products() -> None:
    def default() -> object:
        return inspect.signature(job.StreamJob.source).parameters["parallelism"].default

    change = change_at("operators/job.py::StreamJob.source", "parallelism: int = 1,", "parallelism: int = 2,")
    with in_force([change]):
        assert default() == 2
    assert default() == 1


def test_the_getter_of_a_property_is_changed_and_its_setter_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    source = "class Box:\n    @property\n    def size(self):\n        return 1\n"
    source += "\n    @size.setter\n    def size(self, value):\n        self.held = value\n"
    module: Any = types.ModuleType("box")
    exec(source, vars(module))
    monkeypatch.setattr(replacement, "product_source", lambda file: source)
    monkeypatch.setattr(patch, "product_source", lambda file: source)
    monkeypatch.setattr(replacement, "_module", lambda file: module)
    box = module.Box()
    with in_force([change_at("box.py", "return 1", "return 2")]):
        assert box.size == 2
    assert box.size == 1
    with pytest.raises(PatchProblem, match=r"Box\.size .* cannot be changed"):
        check([change_at("box.py", "self.held = value", "self.held = 0")])
