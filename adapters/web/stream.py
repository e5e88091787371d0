"""An answer as server-sent events: each reply as it is written and delivered, the outcome at the end."""

import asyncio

from aiohttp import web

from adapters.web.answers import Answers
from adapters.web.bodies import ErrorAnswer, ErrorBody, PieceBody
from adapters.web.growth import Grown
from adapters.web.hub import Hub, Interrupted, News, Settled, Spoken, Typing
from adapters.web.incoming import Said, room_id
from adapters.web.problems import REQUEST_ID, stopping
from adapters.web.talk import Talk
from bot import Door, Receipt


class Streams:
    """Answers messages event by event; `keep_alive` is how many seconds a stream may be silent."""

    def __init__(self, talk: Talk, hub: Hub, answers: Answers, *, keep_alive: float) -> None:
        self._talk = talk
        self._hub = hub
        self._answers = answers
        self._keep_alive = keep_alive

    async def answer(self, request: web.Request, door: Door, said: Said) -> web.StreamResponse:
        """Put a message and write what happens until it has its outcome."""
        news: asyncio.Queue[News] = asyncio.Queue()
        leave = self._hub.join(room_id(door.agent_id, said.room), news.put_nowait)
        try:
            receipt = await self._talk.put(door, said)
            response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
            response.content_type = "text/event-stream"
            response.charset = "utf-8"
            await response.prepare(request)
            await self._relay(response, receipt, news)
        finally:
            leave()
        return response

    async def _relay(self, response: web.StreamResponse, receipt: Receipt, news: asyncio.Queue[News]) -> None:
        told: set[object] = set()
        while True:
            try:
                async with asyncio.timeout(self._keep_alive):
                    one = await news.get()
            except TimeoutError:
                await response.write(b": still here\n\n")
                continue
            match one:
                case Typing(active):
                    await _write(response, "typing", f'{{"active":{"true" if active else "false"}}}')
                case Grown(message_id, text, anew, name) if name == receipt.key.message_id:
                    if message_id not in told:
                        piece = PieceBody(id=message_id, text=text, anew=anew)
                        await _write(response, "piece", self._answers.text(piece))
                case Spoken(message) if message.in_reply_to == receipt.memory_id and message.id not in told:
                    told.add(message.id)
                    await _write(response, "reply", self._answers.text(message))
                case Settled(answer) if answer.message_id == receipt.memory_id:
                    await _write(response, "outcome", self._answers.text(answer))
                    return
                case Interrupted(message_id) if message_id == receipt.memory_id:
                    problem = stopping()
                    body = ErrorBody(code=problem.code, message=problem.message, request_id=REQUEST_ID.get())
                    await _write(response, "error", self._answers.text(ErrorAnswer(error=body)))
                    return


async def _write(response: web.StreamResponse, event: str, data: str) -> None:
    await response.write(f"event: {event}\ndata: {data}\n\n".encode())
