"""``account``: holds the balances of accounts, and sends payments on."""

from __future__ import annotations

from collections.abc import Iterable

from barrier_tck.harness.reference.operator_kind import KeptState, ReferenceKind, single_value
from barrier_tck.reference_impl.operators.functions import Row
from barrier_tck.reference_impl.operators.keyed_process import KeyedProcess
from barrier_tck.reference_impl.state.keyed import KeyedStates, NamedState, ValueCell

BALANCE = "balance"
"""Name of its state: how much an account holds."""
OPENED_WITH = 1_000


class Account:
    """Takes what a row carries, and pays on what the row says, less a quarter for each account on its way."""

    def __init__(self) -> None:
        self._balance: NamedState[ValueCell[int]] | None = None

    def open(self, states: KeyedStates) -> None:
        self._balance = states.value(BALANCE, int)

    def process(self, group: int, key: bytes, row: Row) -> Iterable[Row]:
        """Change the balance of one account, and emit the payment to the next one, if there is one."""
        assert self._balance is not None, "open comes first"
        cell = self._balance.of(group, key)
        balance = cell.get()
        balance = (OPENED_WITH if balance is None else balance) + row["carries"]
        passed = row["route"].split(">") if row["route"] else []
        if not passed:
            cell.set(balance)
            return ()
        amount = row["pays"]
        cell.set(balance - amount)
        on = {
            "account": passed[0],
            "carries": amount,
            "pays": amount - amount // 4,
            "route": ">".join(passed[1:]),
        }
        return ({"id": row["id"], **on},)


KIND = ReferenceKind(
    lambda site: KeyedProcess(site.operator.name, site.key, Account), (KeptState(BALANCE, single_value),)
)
