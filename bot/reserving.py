"""Paying before a call is made: an estimate is held back until what it really took is counted."""

from contextlib import suppress
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

from bot.budget import Budget, Spent
from bot.domain.ledger import ModelCall
from bot.models.attempt import Record
from bot.models.booking import expected
from bot.models.handler import ModelHandler, Question
from bot.models.prices import PriceList
from bot.runs import current_run

is_within: ContextVar[bool] = ContextVar("is_within", default=False)  # a handler that asks another one


class Till:
    """Where calls that are made side by side see what the others are about to spend.

    Which model a handler has is known once it has answered; until then it may be the dearest there is.
    """

    def __init__(self, budget: Budget, prices: PriceList, record: Record) -> None:
        self._budget = budget
        self._prices = prices
        self._record = record
        self._models: dict[tuple[str, str], str] = {}

    async def reserve(self, handler: ModelHandler, question: Question[Any]) -> Record:
        """Hold back what a call may take; what comes back books it, and gives back what it did not take.

        Waits where it does not fit in beside what is under way, unless it is part of that itself. Raises
        BudgetSpent where nothing is left.
        """
        if not self._budget.limits:
            return self._record
        run, source = current_run.get(), (handler.name, question.kind.value)
        room_id, person_id = (run.room_id, run.author_id) if run else (None, None)
        amount = self._estimate(question, source)
        held = await self._budget.hold(amount, room_id, person_id, waits=not is_within.get())
        token = is_within.set(True)

        def settle(call: ModelCall) -> None:
            try:
                if not call.error:
                    self._models[source] = call.model
                self._record(call)
            finally:
                self._budget.give_back(held)
                with suppress(ValueError):  # whoever is ended by force ends in another's context
                    is_within.reset(token)

        return settle

    def _estimate(self, question: Question[Any], source: tuple[str, str]) -> Spent:
        call = expected(question.kind, question.request)
        model = self._models.get(source)
        if model is None:
            cost = self._prices.most(call)
        else:
            cost = self._prices.cost(replace(call, model=model)) or 0.0
        return Spent(cost, call.tokens_in + call.tokens_out)
