"""Submit a message, await its outcome, SSE stream."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar
from uuid import UUID

from aiohttp import web

from adapters.web.errors import REQUEST_ID, Problem, stopping
from adapters.web.incoming import FINGERPRINT, Said, choice_pressed, command_given, message_received, room_id
from adapters.web.json_io import Answers
from adapters.web.outgoing import message_body
from adapters.web.queries import show_answer, show_message
from adapters.web.room_updates import Grown, Hub, Interrupted, Listen, News, Settled, Spoken, Typing
from adapters.web.schemas import ErrorAnswer, ErrorBody, MessageAnswer, PieceBody
from adapters.web.ws_frames import Give, Hello, Press
from bot import Clock, Receipt, Shown, TryAgain, new_id, system_clock
from bot.platform import Door, IntakeClosed

logger = logging.getLogger(__name__)

T = TypeVar("T")


class Errands:
    """Owns tasks that outlive the request that began them, and ends them with the server."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    async def run(self, errand: Coroutine[Any, Any, T]) -> T:
        """Await something that a lost connection must not cut in half."""
        return await asyncio.shield(self._begin(errand))

    def start(self, errand: Coroutine[Any, Any, None]) -> None:
        """Begin something that nobody waits for."""
        self._begin(errand).add_done_callback(_note_failure)

    async def stop(self) -> None:
        """End what is still under way."""
        late = set(self._tasks)
        for task in late:
            task.cancel()
        if late:
            await asyncio.wait(late)

    def _begin(self, errand: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(errand)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task


def _note_failure(task: asyncio.Task[None]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        logger.error("something begun for a client failed", exc_info=error)


Kept = Callable[[Receipt], None]


class Talk:
    """Hands messages over and follows them to their outcome."""

    def __init__(self, hub: Hub, errands: Errands, clock: Clock = system_clock) -> None:
        self._hub = hub
        self._errands = errands
        self._clock = clock
        self._watched: set[UUID] = set()

    async def put(
        self, door: Door, said: Said, *, kept: Kept | None = None, sender: Listen | None = None
    ) -> Receipt:
        """Keep a message; `kept` is called at once when it is, and everybody in the room but `sender` told.

        A message that is known already gets the receipt it has. Raises Problem where another one has
        its key, IntakeClosed while stopping.
        """
        return await self._errands.run(self._put(door, said, kept, sender))

    async def ask(self, door: Door, hello: Hello, frame: Give | Press, *, sender: Listen) -> Shown:
        """Have a command carried out, or a choice made; raises as the door does.

        A question that is asked by a command is a message: everybody in the room but `sender` is told of it.
        """
        at = self._clock()
        if isinstance(frame, Press):
            return await door.chosen(choice_pressed(hello, frame, agent_id=door.agent_id, at=at))
        shown = await door.command(command_given(hello, frame, agent_id=door.agent_id, at=at))
        if shown.receipt is not None:
            message = await show_message(door, shown.receipt.memory_id)
            if message is not None:
                self._hub.tell(shown.receipt.room_id, Spoken(message), but=sender)
        return shown

    async def answer(self, door: Door, receipt: Receipt) -> MessageAnswer:
        """Wait for a message's outcome."""
        return await show_answer(door, await door.inbox.settled(receipt.id))

    def watch(self, door: Door, receipt: Receipt) -> None:
        """Tell the room the outcome of a message when it has one."""
        if receipt.id not in self._watched:
            self._watched.add(receipt.id)
            self._errands.start(self._watch(door, receipt))

    async def _put(self, door: Door, said: Said, kept: Kept | None, sender: Listen | None) -> Receipt:
        arrival = message_received(said, agent_id=door.agent_id, message_id=new_id(), at=self._clock())
        receipt = await door.inbox.put(arrival)
        is_new = receipt.memory_id == arrival.message.id
        if not is_new:
            await self._refuse_other(door, receipt, said)
        if kept is not None:
            kept(receipt)
        if is_new:
            own = message_body(arrival.message, door.agent_id, {arrival.author.id: arrival.author})
            self._hub.tell(receipt.room_id, Spoken(own), but=sender)
        self.watch(door, receipt)
        return receipt

    async def _refuse_other(self, door: Door, receipt: Receipt, said: Said) -> None:
        """Raise Problem where the message that has this key says something else."""
        known = await door.records.message(receipt.memory_id)
        if known is not None and known.metadata.get(FINGERPRINT) != said.fingerprint:
            raise Problem(
                422, "idempotency_mismatch", f"the idempotency key {said.key!r} belongs to another message"
            )

    async def _watch(self, door: Door, receipt: Receipt) -> None:
        try:
            answer = await self.answer(door, receipt)
        except (IntakeClosed, LookupError, TryAgain):
            self._hub.tell(receipt.room_id, Interrupted(receipt.memory_id))
            return
        finally:
            self._watched.discard(receipt.id)
        for reply in answer.replies:
            self._hub.tell(receipt.room_id, Spoken(reply))
        self._hub.tell(receipt.room_id, Settled(answer))


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
