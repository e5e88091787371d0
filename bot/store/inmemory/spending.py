"""What models have cost, in memory."""

from collections.abc import Sequence
from datetime import date

from bot.domain.costs import Key, Spending

MOST = 100_000


class InMemorySpending:
    """Keeps the latest sums; see `SpendingStore`."""

    def __init__(self) -> None:
        self._sums: dict[Key, Spending] = {}

    async def add(self, spendings: Sequence[Spending]) -> None:
        for one in spendings:
            known = self._sums.get(one.key)
            self._sums[one.key] = one if known is None else known.plus(one)
        while len(self._sums) > MOST:
            del self._sums[next(iter(self._sums))]

    async def spent(self, since: date, until: date) -> list[Spending]:
        found = (one for one in self._sums.values() if since <= one.day <= until)
        return sorted(found, key=lambda one: one.day)
