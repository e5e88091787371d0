"""The HTTP API of what has not arrived: looked at, and decided about, by the operator."""

from collections.abc import Awaitable, Callable

from aiohttp import web

from adapters.web.answers import Answers
from adapters.web.bodies import DecisionAnswer, OutboxAnswer, OutboxQuery, UnsentBody
from adapters.web.books import Doors
from adapters.web.errands import Errands
from adapters.web.outgoing import unsent_body
from adapters.web.problems import Problem, not_found
from adapters.web.reading import validated
from bot import Decided, Delivery, Door, Unsent

Decide = Callable[[Unsent, str], Awaitable[Decided | None]]


class OutboxApi:
    """Answers the operations about the outbox; each method has its operation's name."""

    def __init__(self, doors: Doors, errands: Errands, answers: Answers) -> None:
        self._doors = doors
        self._errands = errands
        self._answers = answers

    async def outbox(self, request: web.Request) -> web.StreamResponse:
        """List what has not arrived."""
        query = validated(OutboxQuery, dict(request.query))
        doors = self._doors if query.agent is None else [self._doors.named(query.agent)]
        found = [await _shown(door, part) for door in doors for part in await door.unsent.parts(query.limit)]
        return self._answers.json(OutboxAnswer(parts=found[: query.limit]))

    async def send(self, request: web.Request) -> web.StreamResponse:
        """Put a part back so that it leaves."""
        return await self._errands.run(self._decide(request.match_info["id"], Unsent.send))

    async def drop(self, request: web.Request) -> web.StreamResponse:
        """Give a part up."""
        return await self._errands.run(self._decide(request.match_info["id"], Unsent.drop))

    async def _decide(self, delivery_id: str, decide: Decide) -> web.StreamResponse:
        for door in self._doors:
            decided = await decide(door.unsent, delivery_id)
            if decided is None:
                continue
            if not decided.is_done:
                raise Problem(409, "conflict", decided.note)
            shown = await _shown(door, decided.part)
            return self._answers.json(DecisionAnswer(**dict(shown), note=decided.note))
        raise not_found("part", delivery_id)


async def _shown(door: Door, part: Delivery) -> UnsentBody:
    return unsent_body(part, door.agent_id, await door.records.room(part.room_id))
