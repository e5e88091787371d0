"""The HTTP API: a handler an operation."""

import json
from functools import cache

from aiohttp import web
from pydantic import TypeAdapter

from adapters.web.answers import Answers
from adapters.web.bodies import (
    AgentsAnswer,
    Key,
    MessageRequest,
    MessagesAnswer,
    MessagesQuery,
    ReceiptsAnswer,
    ReceiptsQuery,
    RoomsAnswer,
    RoomsQuery,
)
from adapters.web.books import Doors, identified, show_answer, show_receipt, show_room
from adapters.web.config import Limits
from adapters.web.incoming import said_by_api
from adapters.web.openapi import document
from adapters.web.operations import OPERATIONS
from adapters.web.outgoing import agent_body, receipt_body, room_body
from adapters.web.reading import read_json, validated, validated_by
from adapters.web.stream import Streams
from adapters.web.talk import Talk

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
