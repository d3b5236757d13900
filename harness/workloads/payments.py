"""What a row of the workload ``money`` means: an order or a payment, and which payments follow from it.

Every row names the account that it goes to, the money that it carries, and what that account then pays to the next one
of its route. An order carries nothing. An account may go below zero, so what follows from a row depends on nothing but
the row, and the order in which rows arrive does not matter.
"""

from __future__ import annotations

from collections.abc import Iterator

from barrier_tck.harness.record.history import Row

OPENING = 1_000
"""What each account holds before the first row reaches it."""


def payment(row: Row) -> Row | None:
    """Return what an account pays on for a row that reaches it; None if its route ends there.

    A quarter of a payment stays with each account that passes it on.
    """
    if not row["route"]:
        return None
    account, _, rest = row["route"].partition(">")
    paid = row["pays"]
    return {"id": row["id"], "account": account, "carries": paid, "pays": paid - paid // 4, "route": rest}


def postings(row: Row) -> Iterator[tuple[str, int]]:
    """Yield, for a row and for each payment that follows from it, the account and how its balance changes."""
    following: Row | None = row
    while following is not None:
        reached = following
        following = payment(reached)
        yield reached["account"], reached["carries"] - (following["carries"] if following else 0)
