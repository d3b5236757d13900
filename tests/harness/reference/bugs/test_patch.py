"""Patches: what fits, what is refused and why; what is in force meanwhile, and that nothing stays. Grain: functions."""

from __future__ import annotations

import inspect
import textwrap

import pytest

from barrier_tck.harness.reference.bugs.patch import (
    Change,
    PatchProblem,
    change_at,
    changes_of_diff,
    patched_sources,
    product_source,
)
from barrier_tck.harness.reference.bugs.replacement import check, in_force
from barrier_tck.reference_impl import config
from barrier_tck.reference_impl.operators import encoding, job, sinks
from barrier_tck.reference_impl.operators.sinks import TransactionalFileSink
from barrier_tck.reference_impl.protocol.key_groups import owner_of
from barrier_tck.reference_impl.protocol.restarts import ExponentialDelay
from barrier_tck.reference_impl.storage import checkpoint_storage, savepoints

RECOVERY = "operators/sinks.py::TransactionalFileSink._recover_and_commit"
COMMIT = "self.commit(transactions)"
DIFF = """\
--- a/reference_impl/operators/sinks.py
+++ b/reference_impl/operators/sinks.py
@@ -1,3 +1,3 @@
     def _recover_and_commit(self, transactions: Sequence[TransactionHandle]) -> None:
         \"\"\"Finish the commits of the checkpoint that the attempt starts from, as often as it is restored.\"\"\"
-        self.commit(transactions)
+        self.commit(transactions[1:])
"""


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
        (change_at("config.py::JobConfig", "", "more: int = 0"), "fields of a data class"),
        (change_at("operators/sinks.py", "", "raise SystemExit"), "cannot be added"),
        (change_at("operators/sinks.py", "", "_NONE = 1 // 0"), "cannot be put in force: ZeroDivisionError"),
        (change_at("operators/sinks.py", "", "_NONE = nobody"), "cannot be put in force: NameError"),
        (change_at("operators/sinks.py", "", "import nobody"), "cannot be put in force: ModuleNotFoundError"),
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


def test_a_unified_diff_is_applied_by_its_lines_whatever_their_numbers() -> None:
    (change,) = changes_of_diff(DIFF, "a.diff")
    assert (change.file, change.scope) == ("operators/sinks.py", "")
    assert "self.commit(transactions[1:])" in patched_sources([change])["operators/sinks.py"]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nothing of the kind", "is not a unified diff"),
        (
            DIFF.replace("reference_impl/operators", "harness/oracle"),
            "only files that are below reference_impl",
        ),
        (DIFF.replace("--- a/reference_impl/operators/sinks.py", "--- /dev/null"), "none can be added"),
        (DIFF.replace("@@ -1,3", "@@ -1,9"), "is not a unified diff"),
    ],
)
def test_other_diffs_are_refused(text: str, problem: str) -> None:
    with pytest.raises(PatchProblem, match=problem):
        changes_of_diff(text, "a.diff")


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
            def __repr__(self) -> str:
                return super().__repr__() + " with a patch"
            """
        ),
    )
    strategy = ExponentialDelay(config.ExponentialDelayRestart(10, 100))
    plain = repr(strategy)
    with in_force([change]):
        assert repr(strategy) == plain + " with a patch"
    assert repr(strategy) == plain
    assert "__repr__" not in vars(ExponentialDelay)


def test_super_can_be_used_where_the_product_does_not() -> None:
    last = inspect.getsource(ExponentialDelay.next_delay_ms).splitlines()[-1].strip()
    change = change_at(
        "protocol/restarts.py::ExponentialDelay.next_delay_ms", last, f"assert super().__repr__()\n{last}"
    )
    strategy, other = (ExponentialDelay(config.ExponentialDelayRestart(10, 100)) for _ in range(2))
    with in_force([change]):
        assert strategy.next_delay_ms(0.0, 0.0) == other.next_delay_ms(0.0, 0.0)


def test_constants_are_changed_wherever_they_were_imported() -> None:
    change = change_at("operators/encoding.py", "AGGREGATES_MAX = 16", "AGGREGATES_MAX = 17")
    with in_force([change]):
        assert encoding.AGGREGATES_MAX == vars(job)["AGGREGATES_MAX"] == 17
    assert encoding.AGGREGATES_MAX == vars(job)["AGGREGATES_MAX"] == 16


def test_one_patch_at_a_time_is_in_force_and_within_itself_again() -> None:
    first = change_at(RECOVERY, COMMIT, "self.commit(transactions[1:])")
    second = change_at(RECOVERY, COMMIT, "self.commit(transactions[2:])")
    code = TransactionalFileSink._recover_and_commit.__code__
    with in_force([first]):
        patched = TransactionalFileSink._recover_and_commit.__code__
        with in_force([first]):
            assert TransactionalFileSink._recover_and_commit.__code__ is patched
        assert TransactionalFileSink._recover_and_commit.__code__ is patched is not code
        with pytest.raises(RuntimeError, match="another patch is in force"), in_force([second]):
            raise AssertionError("it was put in force")
    assert TransactionalFileSink._recover_and_commit.__code__ is code


def test_a_traceback_shows_the_patched_lines() -> None:
    change = change_at(RECOVERY, COMMIT, "raise ValueError('planted')")
    with in_force([change]), pytest.raises(ValueError, match="planted") as caught:
        TransactionalFileSink._recover_and_commit(None, ())  # type: ignore[arg-type]
    entry = caught.traceback[-1]
    assert str(entry.path).endswith("operators/sinks.py with a patch>")
    assert sinks.__name__ == entry.frame.f_globals["__name__"]


def test_every_hunk_of_a_diff_is_a_change() -> None:
    second = """\
@@ -9,2 +9,2 @@
 class NoSink:
-    never there
+    nor here
"""
    changes = changes_of_diff(DIFF + second, "a.diff")
    assert [change.after.split()[-1] for change in changes] == ["self.commit(transactions[1:])", "here"]


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


def test_a_name_that_an_import_binds_anew_is_as_before_afterwards() -> None:
    old = vars(encoding)["crc32"]
    with in_force([change_at("operators/encoding.py", "", "from binascii import hexlify as crc32")]):
        assert vars(encoding)["crc32"] is not old
    assert vars(encoding)["crc32"] is old


def test_a_constant_that_another_module_defines_for_itself_stays() -> None:
    assert vars(checkpoint_storage)["_METADATA"] == vars(savepoints)["_METADATA"]
    own = vars(savepoints)["_METADATA"]
    line = f"_METADATA = {vars(checkpoint_storage)['_METADATA']!r}".replace("'", '"')
    with in_force([change_at("storage/checkpoint_storage.py", line, '_METADATA = "other"')]):
        assert vars(checkpoint_storage)["_METADATA"] == "other"
        assert vars(savepoints)["_METADATA"] == own


def test_defaults_are_patched_and_afterwards_the_products() -> None:
    def default() -> object:
        return inspect.signature(job.StreamJob.source).parameters["parallelism"].default

    change = change_at(
        "operators/job.py::StreamJob.source",
        'def source(self, source: Source, parallelism: int = 1, name: str = "source") -> Stream:',
        'def source(self, source: Source, parallelism: int = 2, name: str = "source") -> Stream:',
    )
    with in_force([change]):
        assert default() == 2
    assert default() == 1
