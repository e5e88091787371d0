"""HTTP handlers."""

import json
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import timedelta
from functools import cache
from uuid import UUID

from aiohttp import web
from pydantic import TypeAdapter

from adapters.web.config import Limits
from adapters.web.errors import Problem, not_found
from adapters.web.incoming import said_by_api
from adapters.web.json_io import Answers, read_json, validated, validated_by
from adapters.web.messages import Errands, Streams, Talk
from adapters.web.openapi import OPERATIONS, document
from adapters.web.outgoing import agent_body, receipt_body, room_body, unsent_body
from adapters.web.queries import Doors, identified, show_answer, show_receipt, show_room
from adapters.web.schemas import (
    AgentsAnswer,
    CostBody,
    CostsAnswer,
    CostsQuery,
    DecisionAnswer,
    Health,
    Key,
    MessageRequest,
    MessagesAnswer,
    MessagesQuery,
    OutboxAnswer,
    OutboxQuery,
    PlatformHealth,
    ReceiptsAnswer,
    ReceiptsQuery,
    RoomsAnswer,
    RoomsQuery,
    SumBody,
    UnsentBody,
)
from bot import system_clock
from bot.platform import Decided, Delivery, Door, Link, LinkState, Standing, Unsent
from bot.store import Spending, summed

HeaderKey = TypeAdapter[str](Key)


class Api:
    """Answers the operations that are not a WebSocket; each method has its operation's name."""

    def __init__(self, doors: Doors, talk: Talk, streams: Streams, answers: Answers, limits: Limits) -> None:
        self._doors = doors
        self._talk = talk
        self._streams = streams
        self._answers = answers
        self._limits = limits

    async def agents(self, request: web.Request) -> web.StreamResponse:
        """List the agents."""
        found = [agent_body(door.agent_id, door.character) for door in self._doors]
        return self._answers.json(AgentsAnswer(agents=found))

    async def say(self, request: web.Request) -> web.StreamResponse:
        """Hand a message over and answer with its outcome."""
        door = self._doors.named(request.match_info["agent"])
        body = validated(MessageRequest, await read_json(request, deadline=self._limits.body_seconds))
        key = request.headers.get("Idempotency-Key")
        said = said_by_api(body, None if key is None else validated_by(HeaderKey, key))
        if body.stream:
            return await self._streams.answer(request, door, said)
        receipt = await self._talk.put(door, said)
        return self._answers.json(await show_answer(door, await door.inbox.settled(receipt.id)))

    async def rooms(self, request: web.Request) -> web.StreamResponse:
        """List rooms."""
        query = validated(RoomsQuery, dict(request.query))
        doors = self._doors if query.agent is None else [self._doors.named(query.agent)]
        found = [room_body(room, door.agent_id) for door in doors for room in await door.records.rooms()]
        return self._answers.json(RoomsAnswer(rooms=found[: query.limit]))

    async def messages(self, request: web.Request) -> web.StreamResponse:
        """List the last messages of a room."""
        query = validated(MessagesQuery, dict(request.query))
        door, room = await self._doors.of_room(identified(request.match_info["id"]))
        return self._answers.json(MessagesAnswer(messages=await show_room(door, room.id, query.limit)))

    async def receipts(self, request: web.Request) -> web.StreamResponse:
        """List what became of the latest messages."""
        query = validated(ReceiptsQuery, dict(request.query))
        if query.room is not None:
            await self._doors.of_room(query.room)
        found = [
            receipt_body(receipt, door.agent_id)
            for door in self._doors
            for receipt in await door.records.receipts(room_id=query.room, limit=query.limit)
        ]
        found.sort(key=lambda one: one.received_at, reverse=True)
        return self._answers.json(ReceiptsAnswer(receipts=found[: query.limit]))

    async def receipt(self, request: web.Request) -> web.StreamResponse:
        """Tell what became of a message."""
        door, receipt = await self._doors.of_receipt(identified(request.match_info["id"]))
        return self._answers.json(await show_receipt(door, receipt))

    async def openapi(self, request: web.Request) -> web.StreamResponse:
        """Describe the API."""
        return web.Response(text=_document(), content_type="application/json")


@cache
def _document() -> str:
    return json.dumps(document(OPERATIONS))


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


WORST_FIRST = (Standing.OFF, Standing.DEGRADED, Standing.CONNECTING, Standing.CONNECTED)


class HealthApi:
    """Answers whoever asks after the process, without a token: so in words that give nothing away."""

    def __init__(self, doors: Sequence[Door], answers: Answers) -> None:
        self._doors = tuple(doors)
        self._answers = answers

    async def health(self, request: web.Request) -> web.StreamResponse:
        """Tell how everything is: 503 only where nothing is taken in.

        A platform that is cut off is no reason to end the process, which is what a probe would do.
        """
        trouble = next((one for door in self._doors if (one := door.inbox.trouble)), None)
        states = platform_states(self._doors[0].links())
        platforms = {
            name: PlatformHealth(state=one.standing, since=one.since, cause=one.cause)
            for name, one in states.items()
        }
        if trouble is not None:
            body = Health(status="unavailable", cause=trouble.cause, since=trouble.since, platforms=platforms)
            return self._answers.json(body, status=503)
        is_degraded = any(one.is_trouble for one in states.values())
        return self._answers.json(Health(status="degraded" if is_degraded else "ok", platforms=platforms))


def platform_states(links: Iterable[Link]) -> dict[str, LinkState]:
    """Give the state of each platform: of its accounts, the one that is worst off."""
    found: dict[str, list[LinkState]] = {}
    for link in links:
        found.setdefault(link.platform, []).append(link.state)
    return {
        name: min(states, key=lambda one: WORST_FIRST.index(one.standing))
        for name, states in sorted(found.items())
    }


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
