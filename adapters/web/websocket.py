"""Conversations over WebSockets: one session a connection, one room at a time."""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from uuid import UUID

from aiohttp import WSCloseCode, WSMsgType, web

from adapters.web.config import Limits
from adapters.web.errors import Problem, stopping, unavailable
from adapters.web.incoming import room_id, said_by_page, user_id
from adapters.web.json_io import Answers, parse_json, validated_by
from adapters.web.messages import Talk
from adapters.web.outgoing import agent_body, author_body
from adapters.web.queries import Doors, show_room
from adapters.web.room_updates import Grown, Hub, Interrupted, News, Settled, Spoken, Typing
from adapters.web.schemas import MessageBody
from adapters.web.ws_frames import (
    Ack,
    ChoiceBody,
    ClientFrame,
    DraftFrame,
    ErrorFrame,
    Give,
    Hello,
    MessageFrame,
    OutcomeFrame,
    Press,
    Ready,
    Say,
    ServerFrame,
    ShownFrame,
    TypingFrame,
)
from bot import Receipt, TryAgain
from bot.platform import Door, IntakeClosed, Remembered

logger = logging.getLogger(__name__)
HISTORY = 50
REMEMBERED = 500
CLOSING = 1.0
MOST_ASKED = 10  # commands of one connection that may be under way


class Sockets:
    """All WebSockets of the server."""

    def __init__(self, doors: Doors, talk: Talk, hub: Hub, answers: Answers, limits: Limits) -> None:
        self.doors = doors
        self.talk = talk
        self.hub = hub
        self.answers = answers
        self.limits = limits
        self._open: set[web.WebSocketResponse] = set()

    async def handle(self, request: web.Request) -> web.StreamResponse:
        """Hold a conversation until the client or the server ends it."""
        if len(self._open) >= self.limits.sockets:
            raise Problem(503, "too_many_sockets", "too many are connected just now", {"Retry-After": "30"})
        socket = web.WebSocketResponse(
            timeout=CLOSING,
            heartbeat=self.limits.heartbeat_seconds,
            max_msg_size=self.limits.frame,
            compress=False,
        )
        if not _is_handshake(socket, request):
            raise Problem(426, "upgrade_required", "this address speaks WebSocket", {"Upgrade": "websocket"})
        self._open.add(socket)
        try:
            await socket.prepare(request)
            await _Session(self, socket, _aborting(request)).run()
        except ExceptionGroup:  # our own fault: this conversation ends, the others do not
            logger.exception("a conversation over a WebSocket failed")
            await socket.close(code=WSCloseCode.INTERNAL_ERROR)
        finally:
            self._open.discard(socket)
        return socket

    async def close(self) -> None:
        """Say goodbye to everybody."""
        async with asyncio.TaskGroup() as group:
            for socket in list(self._open):
                group.create_task(_close(socket))


class _Session:
    """One connection: what it may hear, and what still has to be written to it."""

    def __init__(self, sockets: Sockets, socket: web.WebSocketResponse, abort: Callable[[], None]) -> None:
        self._sockets = sockets
        self._socket = socket
        self._abort = abort
        self._seq = 0
        self._queue: deque[str] = deque()
        self._backlog = 0
        self._wake = asyncio.Event()
        self._told = Remembered[UUID](REMEMBERED)
        self._room: tuple[Door, Hello] | None = None
        self._held: list[News] | None = None
        self._asking: set[asyncio.Task[None]] = set()
        self._leave: Callable[[], None] = lambda: None

    async def run(self) -> None:
        """Read frames until the connection ends, while another task writes."""
        async with asyncio.TaskGroup() as group:
            writer = group.create_task(self._write())
            try:
                async for message in self._socket:
                    if message.type is WSMsgType.ERROR:
                        break
                    await self._receive(message.data if message.type is WSMsgType.TEXT else b"", group)
            finally:
                self._leave()
                for task in (writer, *self._asking):
                    task.cancel()

    async def _receive(self, data: str | bytes, group: asyncio.TaskGroup) -> None:
        with self._explaining():
            told = parse_json(data)
            client_id = told.get("client_id") if isinstance(told, dict) else None
            with self._explaining(client_id[:200] if isinstance(client_id, str) else None):
                match validated_by(ClientFrame, told):
                    case Hello() as hello:
                        await self._enter(hello)
                    case Say() as say:
                        await self._say(say)
                    case Give() | Press() as asked:
                        self._begin(asked, group)

    @contextmanager
    def _explaining(self, client_id: str | None = None) -> Iterator[None]:
        """Tell the client what was wrong with what it has sent."""
        try:
            yield
        except Problem as problem:
            self._send(ErrorFrame(code=problem.code, message=problem.message, client_id=client_id))
        except IntakeClosed:
            self._send(ErrorFrame(code="stopping", message=stopping().message, client_id=client_id))
        except TryAgain as error:
            refusal = unavailable(error)
            self._send(ErrorFrame(code=refusal.code, message=refusal.message, client_id=client_id))

    async def _enter(self, hello: Hello) -> None:
        """Come into a room; what happens there while its history is read follows after it."""
        sockets = self._sockets
        door = sockets.doors.named(hello.agent)
        place = room_id(door.agent_id, hello.room)
        self._leave()
        self._told = Remembered[UUID](REMEMBERED)
        self._room, self._held = (door, hello), []
        self._leave = sockets.hub.join(place, self._hear)
        messages = _latest(await show_room(door, place, HISTORY), sockets.limits.backlog // 2)
        for message in messages:
            self._told.add(message.id)
        self._send(
            Ready(
                agent=agent_body(door.agent_id, door.character),
                room=hello.room,
                room_id=place,
                user=author_body(user_id(hello.user), hello.user, door.agent_id),
                messages=messages,
                is_typing=sockets.hub.is_typing(place),
            )
        )
        self._held = [news for news in self._held if not isinstance(news, Grown)]  # all of it comes now
        self._let_go()
        for grown in sockets.hub.growth.in_room(place):
            self._hear(grown)
        for message in messages:
            if message.outcome is not None and not message.outcome.outcome.is_final:
                receipt = await door.records.receipt(message.id)
                if receipt is not None:
                    sockets.talk.watch(door, receipt)

    def _here(self) -> tuple[Door, Hello]:
        if self._room is None:
            raise Problem(409, "hello_first", "send a hello frame before the first message")
        return self._room

    def _begin(self, asked: Give | Press, group: asyncio.TaskGroup) -> None:
        """Have something carried out beside what else is said here: it may take a minute."""
        door, hello = self._here()
        if len(self._asking) >= MOST_ASKED:
            raise Problem(429, "too_many_commands", "wait for what you have asked for already")
        task = group.create_task(self._ask(door, hello, asked))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _ask(self, door: Door, hello: Hello, asked: Give | Press) -> None:
        with self._explaining(asked.client_id):
            shown = await self._sockets.talk.ask(door, hello, asked, sender=self._hear)
            if shown.receipt is not None:
                self._told.add(shown.receipt.memory_id)
                self._send(Ack(client_id=asked.client_id, message_id=shown.receipt.memory_id))
                self._sockets.talk.watch(door, shown.receipt)
            else:
                choices = [ChoiceBody(label=one.label, value=one.value) for one in shown.choices]
                self._send(ShownFrame(client_id=asked.client_id, text=shown.text, choices=choices))

    async def _say(self, say: Say) -> None:
        door, hello = self._here()

        def kept(receipt: Receipt) -> None:
            self._told.add(receipt.memory_id)
            self._send(Ack(client_id=say.client_id, message_id=receipt.memory_id))

        said = said_by_page(hello, say)
        self._held = []  # what the agent does with it is told after the acknowledgement
        try:
            await self._sockets.talk.put(door, said, kept=kept, sender=self._hear)
        finally:
            self._let_go()

    def _let_go(self) -> None:
        held, self._held = self._held or [], None
        for news in held:
            self._hear(news)

    def _hear(self, news: News) -> None:
        if self._held is not None:
            self._held.append(news)
            return
        match news:
            case Typing(active):
                self._send(TypingFrame(active=active))
            case Grown(message_id, text, anew) if message_id not in self._told:
                self._send(DraftFrame(id=message_id, text=text, anew=anew))
            case Spoken(message) if message.id not in self._told:
                self._told.add(message.id)
                self._send(MessageFrame(**dict(message)))
            case Settled(answer):
                self._send(
                    OutcomeFrame(
                        message_id=answer.message_id,
                        outcome=answer.outcome,
                        reason=answer.reason,
                        rule=answer.rule,
                        superseded_by=answer.superseded_by,
                    )
                )
            case Interrupted() | Spoken() | Grown():
                pass  # the socket is about to close; or it has that message already

    def _send(self, frame: ServerFrame) -> None:
        """Queue a frame; a reader that lets too much pile up is cut off."""
        if self._backlog > self._sockets.limits.backlog:
            self._queue.clear()
            self._abort()
            return
        self._seq += 1
        text = self._sockets.answers.text(frame.model_copy(update={"seq": self._seq}))
        self._backlog += len(text)
        self._queue.append(text)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                text = self._queue.popleft()
                try:
                    await self._socket.send_str(text)
                except ConnectionError:
                    return  # whoever reads the socket sees its end
                self._backlog -= len(text)


def _is_handshake(socket: web.WebSocketResponse, request: web.Request) -> bool:
    try:
        return bool(socket.can_prepare(request))
    except ValueError:  # aiohttp decodes the key whatever signs it is made of
        return False


def _latest(messages: list[MessageBody], size: int) -> list[MessageBody]:
    """Leave out the oldest of what would not fit into one frame."""
    for number, message in enumerate(reversed(messages)):
        size -= len(message.text)
        if size < 0:
            return messages[len(messages) - number :]
    return messages


def _aborting(request: web.Request) -> Callable[[], None]:
    """Make the call that cuts a connection without waiting for its reader."""

    def abort() -> None:
        if request.transport is not None:
            request.transport.abort()

    return abort


async def _close(socket: web.WebSocketResponse) -> None:
    with suppress(ConnectionError, RuntimeError):  # it went by itself in the meantime
        await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server is stopping")
