"""The bugs of the yardstick are read strictly; grain: tables."""

from __future__ import annotations

from typing import Any

import pytest
from packaging.version import Version

from barrier_tck.harness.support.errors import UsageProblem
from barrier_tck.harness.yardstick import jobs
from barrier_tck.harness.yardstick.bugs import (
    CampaignLook,
    CertificateLook,
    chosen_bugs,
    known_bugs,
    read_bugs,
)
from barrier_tck.harness.yardstick.running import address_of
from tests.harness.yardstick.known_bug import BUG, as_toml, bug

ASKED_FOR = ("43404", "47568", "49770", "49829", "51717", "52637", "53103", "54389", "55892")
BUGS = known_bugs()


def test_at_least_twelve_can_be_looked_for_and_search_has_chosen_some_of_them() -> None:
    can = [one for one in BUGS if not one.cannot_run]
    assert len(can) >= 12
    assert sum(one.chosen_by == "search" for one in can) >= 5
    asked = {one.id for one in BUGS if one.chosen_by == "the issue's list"}
    assert asked == {f"SPARK-{number}" for number in ASKED_FOR}
    assert all(one.report.endswith(one.id) for one in BUGS)


def test_each_is_compared_with_a_release_in_which_it_is_mended_or_was_not_yet_made() -> None:
    for one in BUGS:
        if one.cannot_run:
            continue
        compared = Version(one.compared)
        mended = [
            Version(fixed) for fixed in one.fixed_in if Version(fixed).release[:2] == compared.release[:2]
        ]
        before = compared < Version(one.first_affected)
        after = compared > Version(one.last_affected)
        assert before or after or any(compared >= fixed for fixed in mended), one.id


def test_each_job_is_found_by_its_name_with_the_settings_of_the_bug() -> None:
    looks = [(one, one.look) for one in BUGS if isinstance(one.look, CampaignLook) and one.look.job]
    assert looks
    for one, look in looks:
        job = getattr(jobs, look.job)
        assert job.address == address_of(look)
        assert dict(job.conf) == one.settings


def test_a_file_is_read() -> None:
    assert read_bugs(as_toml(), "bugs.toml") == (BUG,)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"titel": "x"}, "titel"),
        ({"seen": None}, "'bug[0].seen' is missing"),
        ({"pyspark": "four"}, "pyspark"),
        ({"pyspark": "4.0.3"}, "not between 3.5.0 and 4.0.2"),
        ({"compared": "4.0.0"}, "which has the bug"),
        ({"compared": ""}, "compared is empty, and cannot_run does not say why"),
        ({"chosen_by": "chance"}, "chosen_by"),
        ({"look": {"type": "guess", "target": "spark:rocksdb"}}, "look"),
        ({"look": {"type": "certificate", "target": "heap"}}, "target"),
        ({"look": {"type": "campaign", "job": "os:system"}}, "no name of a job"),
        ({"look": {"type": "campaign", "job": ""}}, "no name of a job"),
        ({"report": "javascript:1"}, "report"),
    ],
)
def test_a_mistake_is_named(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(UsageProblem) as refused:
        read_bugs(as_toml(**changes), "bugs.toml")
    assert said in str(refused.value)
    assert "bugs.toml" in str(refused.value)


def test_one_that_cannot_be_run_needs_no_release() -> None:
    (read,) = read_bugs(as_toml(pyspark="", compared="", cannot_run="no release has it"), "bugs.toml")
    assert read.cannot_run == "no release has it"


def test_a_bug_is_listed_once() -> None:
    with pytest.raises(UsageProblem, match="listed twice"):
        read_bugs(as_toml() + as_toml(), "bugs.toml")


def test_bugs_are_chosen_by_id_and_a_wrong_one_is_named() -> None:
    other = bug(id="SPARK-2", look=CertificateLook("spark:hdfs"))
    assert chosen_bugs((BUG, other), []) == (BUG, other)
    assert chosen_bugs((BUG, other), ["SPARK-2"]) == (other,)
    with pytest.raises(UsageProblem, match="SPARK-3"):
        chosen_bugs((BUG, other), ["SPARK-3"])
