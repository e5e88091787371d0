"""One of several processes that share limits: python limits_process.py URL DAY_LIMIT CALLS.

It makes calls of 100 tokens as long as the budget allows, several at once, and prints how many it made.
"""

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from uuid import UUID

from bot import derived_id
from bot.costs.budget import Budget, CostMeter, ReservationLedger, SharedBudget, load_prices, parse_degrade
from bot.domain.ledger import Limit, LimitScope
from bot.errors import BudgetSpent
from bot.event_bus import EventBus
from bot.models import ModelType, TextRequest, TextResult, Usage
from bot.models.handler import ModelHandler
from bot.models.router import ModelRouter
from bot.runs import Run, current_run, usage_recorder
from bot.store import Store
from bot.store.sql.postgres.connection import parse_address
from bot.store.sql.postgres.storage import OpenServers

AGENT, ROOM, PERSON = derived_id("agent", "Ada"), derived_id("room"), derived_id("Ann")
REQUEST = TextRequest("x" * 150, max_tokens=50)  # held to be 100 tokens
CONCURRENT = 5


def noon() -> datetime:
    """Return the time at which everything happens."""
    return datetime(2026, 5, 4, 12, tzinfo=UTC)


class Spender:
    """Calls a model within limits that other processes share."""

    def __init__(self, router: ModelRouter, budget: Budget, meter: CostMeter) -> None:
        self._router = router
        self.budget, self.meter = budget, meter
        self.calls = 0

    async def spend(self, count: int, room: UUID = ROOM) -> int:
        """Make at most `count` calls, several at once; return how many the budget allowed."""
        before = self.calls
        async with asyncio.TaskGroup() as group:
            for _ in range(min(CONCURRENT, count)):
                group.create_task(self._spend(count // CONCURRENT, room))
        return self.calls - before

    async def _spend(self, count: int, room: UUID) -> None:
        current_run.set(Run(derived_id("run"), room, derived_id("message"), PERSON))
        for _ in range(count):
            try:
                await self._router.text(REQUEST)
            except BudgetSpent:
                return


@asynccontextmanager
async def open_store(url: str) -> AsyncIterator[Store]:
    """Open a store and share its work."""
    async with OpenServers().open_store(parse_address(url, "the url"), AGENT) as store:
        assert store.sharing is not None
        await store.sharing.join()
        yield store
        await store.sharing.leave()


@asynccontextmanager
async def spending(store: Store, maximum: int, scope: LimitScope = LimitScope.PERSON) -> AsyncIterator[Spender]:
    """Yield what spends within a limit of tokens."""
    assert store.sharing is not None
    budget = Budget((Limit("BUDGET_TOKENS", scope, False, maximum),), noon)
    budget.sharing = SharedBudget(store.sharing.limits)
    budget.steps = parse_degrade("80:history,95:small,100:silent")
    prices = load_prices(())
    async with CostMeter(store.costs, prices, budget, clock=noon) as meter:
        record = usage_recorder(EventBus(), AGENT, meter.record)
        spender = Spender(ModelRouter(reserve=ReservationLedger(budget, prices, record).reserve), budget, meter)

        async def answer(request: TextRequest) -> TextResult:
            spender.calls += 1
            await asyncio.sleep(0)
            return TextResult("So.", "scripted", Usage(50, 50))

        spender._router.register(ModelHandler(ModelType.TEXT_LARGE, answer, "shop"))
        yield spender


def tell(what: str) -> None:
    """Print a line at once."""
    sys.stdout.write(f"{what}\n")
    sys.stdout.flush()


async def main(url: str, maximum: int, count: int) -> None:
    """Spend at each line of input."""
    async with open_store(url) as store, spending(store, maximum) as spender:
        tell("ready")
        await asyncio.to_thread(sys.stdin.readline)
        tell(str(await spender.spend(count)))
        await asyncio.to_thread(sys.stdin.readline)  # its calls count until all are done


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
