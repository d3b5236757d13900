"""The planted bugs that make no result wrong. No campaign finds them, but one conformance test finds each."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from barrier_tck.harness.reference.mutants import flow_bugs as flow
from barrier_tck.reference_impl.runtime.components import Components


@dataclass(frozen=True)
class FlowBug:
    """One planted bug that only a test of the suite shows."""

    id: str
    clause: str
    """The clause that it breaks."""
    description: str
    components: Components
    shown_by: str
    """The test that fails, without its parameters."""


def flow_bugs() -> Iterator[FlowBug]:
    """Yield the bugs, in the order of the page that lists them."""
    product = Components()
    yield FlowBug(
        "SW-01",
        "BAR-5",
        "From the trigger to the end of a checkpoint, sources emit nothing.",
        replace(product, subtask_driver=flow.StopsTheWorld),
        "test_records_flow_while_a_checkpoint_is_under_way",
    )
    yield FlowBug(
        "BL-01",
        "SNP-1",
        "The asynchronous part runs on the thread that processes records, so nothing is processed meanwhile.",
        replace(product, subtask_driver=flow.StoresInItsOwnThread),
        "test_a_subtask_goes_on_while_its_part_is_being_stored",
    )
    yield FlowBug(
        "BF-01",
        "SNP-3",
        "A barrier is forwarded only after the part has been stored.",
        replace(product, subtask_driver=flow.ForwardsWhatIsStored),
        "test_a_barrier_is_forwarded_before_the_part_is_stored",
    )
    yield FlowBug(
        "ME-01",
        "ALN-3",
        "Alignments are reported as taking no time and holding nothing back.",
        replace(product, subtask_driver=flow.MeasuresNoAlignment),
        "test_the_length_of_an_alignment_and_the_bytes_held_back_meanwhile_are_measured",
    )
    yield FlowBug(
        "ME-02",
        "ALN-3",
        "Alignments are reported as holding nothing back.",
        replace(product, subtask_driver=flow.CountsNoHeldBytes),
        "test_the_length_of_an_alignment_and_the_bytes_held_back_meanwhile_are_measured",
    )
    yield FlowBug(
        "ME-03",
        "SNP-7",
        "Asynchronous parts are reported as taking no time.",
        replace(product, subtask_driver=flow.MeasuresNoStoring),
        "test_the_length_of_the_asynchronous_part_is_measured",
    )
    yield FlowBug(
        "ME-04",
        "SNP-7",
        "Parts are reported as writing nothing.",
        replace(product, subtask_driver=flow.CountsNoBytes),
        "test_every_part_of_a_completed_checkpoint_says_how_many_bytes_it_wrote",
    )
    yield FlowBug(
        "ME-05",
        "SNP-7",
        "Synchronous parts are reported as taking no time.",
        replace(product, subtask_driver=flow.MeasuresNoSynchronousPart),
        "test_the_length_of_the_synchronous_part_is_measured",
    )


FLOW_BUGS: dict[str, FlowBug] = {bug.id: bug for bug in flow_bugs()}
"""Every such bug, by id."""
