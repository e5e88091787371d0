"""What models have cost, summed for whoever asks over HTTP."""

from collections.abc import Callable, Sequence
from datetime import timedelta
from uuid import UUID

from aiohttp import web

from adapters.web.answers import Answers
from adapters.web.bodies import CostBody, CostsAnswer, CostsQuery, SumBody
from adapters.web.books import Doors
from adapters.web.reading import validated
from bot import Spending, summed, system_clock

KEYS: dict[str, Callable[[Spending], str | None]] = {
    "day": lambda one: one.day.isoformat(),
    "room": lambda one: _id(one.room_id),
    "person": lambda one: _id(one.person_id),
    "model": lambda one: one.model,
}


class CostsApi:
    """Answers the operation about costs; the method has its name."""

    def __init__(self, doors: Doors, answers: Answers) -> None:
        self._doors = doors
        self._answers = answers

    async def costs(self, request: web.Request) -> web.StreamResponse:
        """Tell what models have cost."""
        query = validated(CostsQuery, dict(request.query))
        doors = self._doors if query.agent is None else [self._doors.named(query.agent)]
        last = system_clock().date()
        first = last - timedelta(days=query.days - 1)
        spent = [one for door in doors for one in await door.records.spent(first, last)]
        whole = summed(spent, lambda one: None).get(None, Spending(last, ""))
        total = CostBody(**whole.to_json())
        return self._answers.json(
            CostsAnswer(first=first, last=last, total=total, sums=_sums(spent, query.by))
        )


def _sums(spent: Sequence[Spending], by: str) -> list[SumBody]:
    sums = [SumBody(key=key, **one.to_json()) for key, one in summed(spent, KEYS[by]).items()]
    if by == "day":
        return sorted(sums, key=lambda one: one.key or "")
    return sorted(sums, key=lambda one: (-one.usd, -one.tokens_in - one.tokens_out))


def _id(one: UUID | None) -> str | None:
    return str(one) if one else None
