"""What a checkpoint storage must do, contract and crash: the properties of ``barrier-tck certify-storage``.

``--checkpoint-storage MODULE:NAME`` chooses the storage; it runs in processes of its own. Without it, local files are
tested.
"""

from __future__ import annotations

import pytest

from barrier_tck.harness.certify.storage.properties import PROPERTIES
from barrier_tck.harness.certify.storage.stage import StorageProperty
from barrier_tck.harness.certify.storage.suite import certify
from barrier_tck.harness.pytest_plugin import StorageUnderTest


@pytest.mark.parametrize(
    "storage_property",
    [pytest.param(each, marks=pytest.mark.clause(*each.clauses), id=each.name) for each in PROPERTIES],
)
def test_a_checkpoint_storage(
    storage_property: StorageProperty, checkpoint_storage: StorageUnderTest
) -> None:
    outcomes = certify(
        checkpoint_storage.target, checkpoint_storage.location, only=(storage_property.name,)
    ).outcomes
    (outcome,) = [each for each in outcomes if each.name == storage_property.name]
    if outcome.status == "skipped":
        pytest.skip(outcome.reason)
    broken = outcome.violated or ", ".join(storage_property.clauses)
    line = (
        f"{checkpoint_storage.target}: {storage_property.name} ({broken}) {outcome.status}: {outcome.reason}"
    )
    assert outcome.status == "passed", line
