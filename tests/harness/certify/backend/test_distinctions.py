"""Things that are easily confused: the suite finds each confusion, and finds none in a right backend."""

from __future__ import annotations

import pytest

from barrier_tck.harness.certify.backend.pool import Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import check
from barrier_tck.harness.certify.backend.suite import probe
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome

APART, LEFT, ORDERED = "what-differs-stays-apart", "nothing-is-left-behind", "scans-are-ordered"
LADDER = "sizes-up-the-ladder"
SMALL = 0.05


def judged(target: str, name: str) -> PropertyOutcome:
    one = next(entry for entry in PROPERTIES if entry.name == name)
    pool = Pool(target, total_s=60.0)
    try:
        return check(one, pool, 1, SMALL, shrink_s=0.0, declared=tuple(probe(target)["capabilities"]))[0]
    finally:
        pool.close()


@pytest.mark.parametrize(
    ("backend", "name", "why"),
    [
        ("Lazy", APART, "while other calls wrote"),
        ("Paged", LADDER, "is None by scan(), expected"),
        ("Forgetful", APART, "confirm() of a checkpoint that it never saw raised KeyError"),
        ("Hospitable", APART, "scan() of a key group that is not the store's was not refused"),
        ("OneGroup", APART, "by get_many(), expected"),
        ("ShortNames", APART, "'nnnnnnnnnnnnnnnn'... and 'nnn1', 301 long"),
        ("Leaking", LEFT, "descriptors, among them ['/dev/null'"),
        ("SortedOnce", ORDERED, "scan() of a restored store gave the keys in the order"),
    ],
)
def test_a_backend_that_breaks_one_sentence_fails_by_it(backend: str, name: str, why: str) -> None:
    outcome = judged(f"tests.harness.certify.backend.confusing_backends:{backend}", name)
    assert outcome.status == "failed"
    assert why in outcome.reason


@pytest.mark.parametrize("target", ["heap", "rocksdb", "examples.minimal_backend.backend:SortedDictBackend"])
@pytest.mark.parametrize("name", [APART, LEFT])
def test_a_right_backend_passes(target: str, name: str) -> None:
    outcome = judged(target, name)
    assert outcome.status == "passed", outcome.reason
