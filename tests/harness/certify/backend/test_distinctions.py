"""Things that are easily confused: the suite finds each confusion, and finds none in a right backend."""

from __future__ import annotations

import pytest

from barrier_tck.harness.certify.backend.pool import Pool
from barrier_tck.harness.certify.backend.properties import PROPERTIES
from barrier_tck.harness.certify.backend.stage import check
from barrier_tck.harness.certify.backend.suite import probe
from barrier_tck.harness.certify.engine.certificate import PropertyOutcome

APART, LEFT, ORDERED = "what-differs-stays-apart", "nothing-is-left-behind", "scans-are-ordered"
CLOSED, REFUSED_OPEN = "a-closed-store-refuses-calls", "a-refused-restore-keeps-nothing-open"
BESIDE = "stores-side-by-side-stay-apart"
LADDER = "sizes-up-the-ladder"
SMALL = 0.05


def judged(target: str, *names: str, capabilities: tuple[str, ...] = ()) -> list[PropertyOutcome]:
    """Return what became of some properties, hunted one after the other in processes of one pool."""
    wanted = [one for name in names for one in PROPERTIES if one.name == name]
    pool = Pool(target, total_s=600.0)
    try:
        return [check(one, pool, 1, SMALL, shrink=False, declared=capabilities)[0] for one in wanted]
    finally:
        pool.close()


@pytest.mark.long
@pytest.mark.parametrize(
    ("backend", "name", "why"),
    [
        ("Lazy", APART, "while other calls wrote"),
        ("Paged", LADDER, "is None by scan(), expected"),
        ("Forgetful", APART, "confirm(1099511627776) of a checkpoint that it never saw raised KeyError"),
        ("Hospitable", APART, "scan() of a key group that is not the store's was not refused"),
        ("OneGroup", APART, "by get_many(), expected"),
        ("ShortNames", APART, "'nnnnnnnnnnnnnnnn'... and 'nnn1', 301 long"),
        ("Leaking", LEFT, "descriptors, among them ['/dev/null'"),
        ("BeginsLate", APART, "while other calls wrote"),
        ("OpenForEver", CLOSED, "get() of a closed store was not refused with JobUsageError"),
        ("RunsOn", CLOSED, "a snapshot ran although its store was closed before it began"),
        ("KeepsWhatItRefused", REFUSED_OPEN, "descriptors, among them ['/dev/null'"),
        ("KeepsIfAFileIsGone", REFUSED_OPEN, "descriptors, among them ['/dev/null'"),
        ("KeepsIfAFileDoesNotFit", REFUSED_OPEN, "descriptors, among them ['/dev/null'"),
        ("NamesNothing", "what-is-no-snapshot-is-refused", "a message that does not name the file"),
        ("ReadsTwo", BESIDE, "a restore from 4 snapshots: state 'totals'"),
        ("SharesByNumber", BESIDE, "one of 12 that are restored side by side,"),
        ("SortedOnce", ORDERED, "scan() of a restored store gave the keys in the order"),
    ],
)
def test_a_backend_that_breaks_one_sentence_fails_by_it(backend: str, name: str, why: str) -> None:
    target = f"tests.harness.certify.backend.confusing_backends:{backend}"
    optional = next(one.capability for one in PROPERTIES if one.name == name)
    (outcome,) = judged(target, name, capabilities=(optional,) if optional else ())
    assert outcome.status == "failed"
    assert why in outcome.reason


@pytest.mark.long
def test_an_increment_may_consist_of_a_file_for_each_key_group() -> None:
    """Whatever changes in a key group, its file is written again; the others are referred to."""
    target = "tests.harness.certify.backend.grouped_backend:Grouped"
    names = ("increments-build-on-what-is-confirmed", "increments-part-and-meet")
    outcomes = judged(target, *names, capabilities=tuple(probe(target)["capabilities"]))
    assert [outcome.status for outcome in outcomes] == ["passed"] * 2, outcomes


@pytest.mark.long
def test_increments_of_the_guide_pass_although_no_two_snapshots_are_unfinished_at_once() -> None:
    """Word of an older snapshot comes late all the same; a sequence without that would leave it UNKNOWN."""
    target = "examples.incremental_backend.backend:IncrementalDictBackend"
    names = ("increments-end-in-any-order", "increments-in-any-order", "increments-in-a-long-chain")
    outcomes = judged(target, *names, capabilities=tuple(probe(target)["capabilities"]))
    assert [outcome.status for outcome in outcomes] == ["passed"] * 3, outcomes


@pytest.mark.long
@pytest.mark.parametrize(
    "target",
    [
        *("heap", "rocksdb", "examples.minimal_backend.backend:SortedDictBackend"),
        "examples.sqlite_backend.backend:SqliteStateBackend",
    ],
)
def test_a_right_backend_passes(target: str) -> None:
    names = (APART, LEFT, CLOSED, REFUSED_OPEN, BESIDE)
    outcomes = judged(target, *names, capabilities=tuple(probe(target)["capabilities"]))
    assert [outcome.status for outcome in outcomes] == ["passed"] * len(names), outcomes
