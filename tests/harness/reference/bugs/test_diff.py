"""Unified diffs: what is applied where, and which are refused and why. Grain: functions."""

from __future__ import annotations

from collections.abc import Callable
from difflib import unified_diff

import pytest

from barrier_tck.harness.reference.bugs.diff import sources_with_diff
from barrier_tck.harness.reference.bugs.patch import PatchProblem, product_source

SINKS = "operators/sinks.py"
DIFF = """\
--- a/reference_impl/operators/sinks.py
+++ b/reference_impl/operators/sinks.py
@@ -1,3 +1,3 @@
     def _recover_and_commit(self, transactions: Sequence[TransactionHandle]) -> None:
         \"\"\"Finish the commits of the checkpoint that the attempt starts from, as often as it is restored.\"\"\"
-        self.commit(transactions)
+        self.commit(transactions[1:])
"""
RENAMED = """\
diff --git a/reference_impl/ids.py b/reference_impl/id.py
similarity index 100%
rename from reference_impl/ids.py
rename to reference_impl/id.py
"""


def diff_of(file: str, change: Callable[[str], str], context: int = 3) -> str:
    """Return what ``git diff`` prints for a change of a file of the product."""
    before = product_source(file)
    after = change(before)
    assert before != after
    old, new = (f"{side}/reference_impl/{file}" for side in "ab")
    lines = unified_diff(before.splitlines(), after.splitlines(), old, new, lineterm="", n=context)
    return "\n".join(lines) + "\n"


def test_a_hunk_is_applied_by_its_lines_whatever_their_numbers() -> None:
    text = sources_with_diff(DIFF, "a.diff")[SINKS]
    expected = product_source(SINKS).replace(
        'restored."""\n        self.commit(transactions)',
        'restored."""\n        self.commit(transactions[1:])',
    )
    assert text == expected != product_source(SINKS)


def second_return(text: str) -> str:
    parts = text.split("        return ()\n")
    assert len(parts) > 3
    return (
        "        return ()\n".join(parts[:2])
        + "        return (1,)\n"
        + "        return ()\n".join(parts[2:])
    )


@pytest.mark.parametrize("context", [0, 1, 3])
def test_of_equal_lines_those_at_the_stated_number_are_meant(context: int) -> None:
    file = "protocol/coordinator_checkpoints.py"
    diff = diff_of(file, second_return, context)
    assert sources_with_diff(diff, "a.diff") == {file: second_return(product_source(file))}


def added_first_and_changed(text: str) -> str:
    return second_return(text.replace("from __future__", "# one line more\nfrom __future__", 1))


def test_the_numbers_of_later_hunks_count_what_earlier_ones_added() -> None:
    file = "protocol/coordinator_checkpoints.py"
    diff = diff_of(file, added_first_and_changed)
    assert sources_with_diff(diff, "a.diff") == {file: added_first_and_changed(product_source(file))}


def test_lines_of_another_depth_may_come_between_indented_ones() -> None:
    def change(text: str) -> str:
        commit = "        self.commit(transactions)\n\n"
        assert text.count(commit) == 1
        return text.replace(commit, "        self.commit(transactions)\n\n\ndef more():\n    pass\n\n")

    assert sources_with_diff(diff_of(SINKS, change), "a.diff") == {SINKS: change(product_source(SINKS))}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("nothing of the kind", "is not a unified diff"),
        (DIFF.replace("reference_impl/operators", "harness/oracle"), "only files below reference_impl"),
        (DIFF.replace("reference_impl/", "my_reference_impl/"), "only files below reference_impl"),
        (DIFF.replace("sinks.py", "sinkz.py"), "no module operators/sinkz.py"),
        (DIFF.replace("@@ -1,3", "@@ -1,9"), "is not a unified diff"),
        (DIFF.replace("as often as", "as seldom as"), "they are not there"),
        (DIFF.replace("         ", "     ").replace("-        ", "-    "), "they are not there"),
        (DIFF.replace("--- a/reference_impl/operators/sinks.py", "--- /dev/null"), "none can be added"),
        (
            DIFF.replace("+++ b/reference_impl/operators/sinks.py", "+++ /dev/null"),
            "none can be added, removed",
        ),
        (
            DIFF.replace("+++ b/reference_impl/operators/sinks", "+++ b/reference_impl/operators/sink"),
            "or renamed",
        ),
        (DIFF.replace("--- a/reference_impl/operators/sinks", "--- a/old/sinks"), "or renamed"),
        (RENAMED, "or renamed"),
        (
            "diff --git a/reference_impl/ids.py b/reference_impl/ids.py\nold mode 100644\nnew mode 100755\n",
            "it changes no file",
        ),
        (
            diff_of(SINKS, lambda text: text.replace("import re\n", "import re\nimport os\n"), 0),
            "with context",
        ),
        (diff_of("ids.py", lambda text: "", 3), "none can be added, removed"),
    ],
    ids=range(15),
)
def test_other_diffs_are_refused(text: str, problem: str) -> None:
    with pytest.raises(PatchProblem, match=problem):
        sources_with_diff(text, "a.diff")
