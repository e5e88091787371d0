"""Conversations over WebSockets: one session for each connection, one room at a time."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from aiohttp import WSCloseCode, WSMsgType, web

from adapters.web import frames, json_io
from adapters.web.auth import GRANT, Access
from adapters.web.config import Limits
from adapters.web.frames import SubscribedFrame, SubscribeFrame
from adapters.web.incoming import Participant, parse_page_message, room_id_of, user_id_of
from adapters.web.live import (
    ControlRequested,
    DraftDelta,
    Interrupted,
    LiveUpdates,
    RoomBroadcaster,
    RoomUpdate,
    TypingChanged,
    build_filter,
)
from adapters.web.messages import AnswerService, MessageService
from adapters.web.outgoing import build_agent_body, build_author_body, build_response_files
from adapters.web.queries import AgentDirectory, load_room_messages
from adapters.web.schemas import MessageBody, MessageResponse
from bot import Receipt, TemporaryError
from bot.platform import AgentHandle, BoundedDict, InboxClosed

logger = logging.getLogger(__name__)
HISTORY_LIMIT = 50
MAX_KNOWN_IDS = 500
CLOSE_TIMEOUT = 1.0
MessageState = tuple[str, int, bool, bool]
MAX_RUNNING_COMMANDS = 10  # commands of one connection at a time


@dataclass(frozen=True, slots=True)
class WebSocketServer:
    """All WebSockets of the server."""

    directory: AgentDirectory
    message_service: MessageService
    broadcaster: RoomBroadcaster
    responder: json_io.JsonResponder
    limits: Limits
    live: LiveUpdates
    answers: AnswerService
    _open: set[web.WebSocketResponse] = field(default_factory=set)

    async def serve(self, request: web.Request) -> web.StreamResponse:
        """Talk over a WebSocket; its frames are ClientFrame and ServerFrame."""
        if len(self._open) >= self.limits.max_sockets:
            raise json_io.HttpProblem(503, "too_many_sockets", "there are too many connections", {"Retry-After": "30"})
        socket = web.WebSocketResponse(
            timeout=CLOSE_TIMEOUT,
            heartbeat=self.limits.heartbeat_seconds,
            max_msg_size=self.limits.max_frame_bytes,
            compress=False,
        )
        if not _is_handshake(socket, request):
            raise json_io.HttpProblem(
                426, "upgrade_required", "this address needs a WebSocket handshake", {"Upgrade": "websocket"}
            )
        self._open.add(socket)
        try:
            await socket.prepare(request)
            await _Session(self, socket, request).run()
        except ExceptionGroup:  # an internal error ends only this connection
            logger.exception("a WebSocket session failed")
            await socket.close(code=WSCloseCode.INTERNAL_ERROR)
        finally:
            self._open.discard(socket)
        return socket

    async def close(self) -> None:
        """Close all WebSockets."""
        async with asyncio.TaskGroup() as group:
            for socket in list(self._open):
                group.create_task(_close_socket(socket))


class _Closed(Exception):
    """Raised in a session's task group to cancel its tasks when the connection has ended."""


class _Session:
    """One connection: its room, and the queue of frames to write."""

    def __init__(self, server: WebSocketServer, socket: web.WebSocketResponse, request: web.Request) -> None:
        self._server = server
        self._socket = socket
        self._request = request
        self._grant = GRANT.get()
        self._queue = frames.FrameQueue(server.responder.to_json, server.limits.max_backlog_bytes)
        self._wake = asyncio.Event()
        self._known: BoundedDict[UUID, MessageState | None] = BoundedDict(MAX_KNOWN_IDS)
        self._joined: tuple[AgentHandle, Participant] | None = None
        self._buffered: list[RoomUpdate] | None = None
        self._running_commands = 0
        self._unsubscribe: Callable[[], None] = lambda: None
        self._subscription = server.live.open(self._wake.set)

    async def run(self) -> None:
        """Read frames until the connection ends; another task writes."""
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._write())
                if self._grant.token_id:
                    group.create_task(self._close_when_revoked())
                await self._read(group)
                raise _Closed
        except* _Closed:
            pass
        finally:
            self._unsubscribe()
            self._server.live.close(self._subscription)

    async def _read(self, group: asyncio.TaskGroup) -> None:
        async for message in self._socket:
            if message.type is WSMsgType.ERROR:
                break
            if not self._grant.is_active:
                await self._close_revoked()
                break
            await self._receive(message.data if message.type is WSMsgType.TEXT else b"", group)

    async def _close_when_revoked(self) -> None:
        while True:
            await asyncio.sleep(self._server.limits.revocation_seconds)
            if not self._grant.is_active:
                await self._close_revoked()
                return

    async def _close_revoked(self) -> None:
        await self._socket.close(code=WSCloseCode.POLICY_VIOLATION, message=b"the token was revoked")

    async def _receive(self, data: str | bytes, group: asyncio.TaskGroup) -> None:
        with self._report_problems():
            document = json_io.parse_json(data)
            client_id = document.get("client_id") if isinstance(document, dict) else None
            with self._report_problems(client_id[:200] if isinstance(client_id, str) else None):
                match json_io.validate_with(frames.CLIENT_FRAME_ADAPTER, document):
                    case frames.HelloFrame() as hello:
                        await self._join_room(hello)
                    case frames.SendFrame() as send_frame:
                        await self._submit_message(send_frame)
                    case frames.CommandFrame() | frames.SelectFrame() as command:
                        self._start_command(command, group)
                    case SubscribeFrame() as subscribe:
                        await self._change_topics(subscribe)
                    case frames.AnswerFrame() | frames.EditFrame() as answer_frame:
                        self._start_task(self._change_answer(answer_frame), group)

    @contextmanager
    def _report_problems(self, client_id: str | None = None) -> Iterator[None]:
        """Send an error frame for a problem raised in the block."""
        try:
            yield
        except json_io.HttpProblem as problem:
            self._send(frames.ErrorFrame(code=problem.code, message=problem.message, client_id=client_id))
        except InboxClosed:
            self._send(
                frames.ErrorFrame(code="stopping", message=json_io.build_stopping().message, client_id=client_id)
            )
        except TemporaryError as error:
            unavailable_problem = json_io.build_unavailable(error)
            self._send(
                frames.ErrorFrame(
                    code=unavailable_problem.code, message=unavailable_problem.message, client_id=client_id
                )
            )

    async def _join_room(self, hello: frames.HelloFrame) -> None:
        """Join a room; updates during the load of its history are sent after it."""
        server = self._server
        handle = server.directory.find_agent(hello.agent)
        participant = Participant.build(hello.room, hello.user, self._grant)
        joined_room_id = room_id_of(handle.agent_id, participant.room)
        self._unsubscribe()
        self._known = BoundedDict(MAX_KNOWN_IDS)
        self._joined, self._buffered = (handle, participant), []
        self._unsubscribe = server.broadcaster.subscribe(joined_room_id, self._on_update)
        messages = _latest_within(
            await load_room_messages(handle, joined_room_id, HISTORY_LIMIT), server.limits.max_backlog_bytes // 2
        )
        for message in messages:
            self._known[message.id] = _state_of(message)
        self._send(
            frames.ReadyFrame(
                agent=build_agent_body(handle),
                room=hello.room,
                room_id=joined_room_id,
                user=build_author_body(user_id_of(participant.user), participant.name, handle.agent_id),
                messages=messages,
                is_typing=server.broadcaster.is_typing(joined_room_id),
            )
        )
        self._buffered = [
            update for update in self._buffered if not isinstance(update, DraftDelta)
        ]  # the current drafts follow below
        self._flush_buffered()
        for draft in server.broadcaster.drafts.list_room(joined_room_id):
            self._on_update(draft)
        for message in messages:
            if message.outcome is not None and not message.outcome.outcome.is_final:
                receipt = await handle.conversations.receipt(message.id)
                if receipt is not None:
                    server.message_service.announce_outcome(handle, receipt)

    async def _change_topics(self, frame: SubscribeFrame) -> None:
        """Subscribe to topics. Raises HttpProblem for an unknown agent, or what the token may not see."""
        joined = None if self._joined is None else room_id_of(self._joined[0].agent_id, self._joined[1].room)
        directory = self._server.directory
        filters = [await build_filter(topic, self._grant, directory, joined) for topic in frame.topics]
        event_id = self._server.live.subscribe(self._subscription, filters, frame.after, is_batched=frame.is_batched)
        self._send(SubscribedFrame(event_id=event_id))

    def _require_room(self) -> tuple[AgentHandle, Participant]:
        """Return where to write and as whom. Raises HttpProblem without a room, or if the token may only read."""
        self._grant.require(Access.CHAT)
        if self._joined is None:
            raise json_io.HttpProblem(409, "hello_first", "send a hello frame before the first message")
        return self._joined

    def _start_command(self, command: frames.CommandFrame | frames.SelectFrame, group: asyncio.TaskGroup) -> None:
        """Run a command in its own task: it may take a minute."""
        handle, participant = self._require_room()
        self._start_task(self._run_command(handle, participant, command), group)

    def _start_task(self, coroutine: Coroutine[Any, Any, None], group: asyncio.TaskGroup) -> None:
        if self._running_commands >= MAX_RUNNING_COMMANDS:
            coroutine.close()
            raise json_io.HttpProblem(429, "too_many_commands", "wait for the commands in progress")
        self._running_commands += 1
        group.create_task(coroutine).add_done_callback(self._on_command_done)

    async def _change_answer(self, frame: frames.AnswerFrame | frames.EditFrame) -> None:
        """Stop, repeat or edit as the frame says; updates follow the acknowledgement as for a new message."""
        answers, grant = self._server.answers, self._grant
        with self._report_problems(frame.client_id):
            grant.require(Access.CHAT)
            match frame:
                case frames.EditFrame():
                    message_id = (await answers.edit(frame.message_id, frame.text, grant, frame.client_id)).memory_id
                case frames.AnswerFrame(type="regenerate"):
                    message_id = (await answers.repeat(frame.message_id, grant, frame.client_id)).memory_id
                case _:
                    message_id = (await answers.stop(frame.message_id, grant)).message_id
            self._send(frames.AckFrame(client_id=frame.client_id, message_id=message_id))

    def _on_command_done(self, task: asyncio.Task[None]) -> None:
        self._running_commands -= 1

    async def _run_command(
        self, handle: AgentHandle, participant: Participant, command: frames.CommandFrame | frames.SelectFrame
    ) -> None:
        with self._report_problems(command.client_id):
            response = await self._server.message_service.run_command(
                handle, participant, command, sender=self._on_update
            )
            if response.receipt is not None:
                self._known[response.receipt.memory_id] = None
                self._send(frames.AckFrame(client_id=command.client_id, message_id=response.receipt.memory_id))
                self._server.message_service.announce_outcome(handle, response.receipt)
            else:
                choices = [frames.ChoiceBody(label=choice.label, value=choice.value) for choice in response.choices]
                files = await asyncio.to_thread(build_response_files, response) if response.attachments else []
                self._send(
                    frames.CommandResultFrame(
                        client_id=command.client_id, text=response.text, choices=choices, attachments=files
                    )
                )

    async def _submit_message(self, frame: frames.SendFrame) -> None:
        handle, participant = self._require_room()

        def on_stored(receipt: Receipt) -> None:
            self._known[receipt.memory_id] = None
            self._send(frames.AckFrame(client_id=frame.client_id, message_id=receipt.memory_id))

        submitted = parse_page_message(participant, frame, self._grant)
        self._buffered = []  # updates about the message are sent after the acknowledgement
        try:
            await self._server.message_service.submit(handle, submitted, on_stored=on_stored, sender=self._on_update)
        finally:
            self._flush_buffered()

    def _flush_buffered(self) -> None:
        buffered, self._buffered = self._buffered or [], None
        for update in buffered:
            self._on_update(update)

    def _on_update(self, update: RoomUpdate) -> None:
        if self._buffered is not None:
            self._buffered.append(update)
            return
        match update:
            case TypingChanged(is_active, is_model_busy):
                self._send(frames.TypingFrame(active=is_active, model_busy=is_model_busy))
            case ControlRequested(action, target):
                self._send(frames.ControlFrame(action=action, target=target))
            case DraftDelta(message_id, text, is_reset):
                self._known.pop(message_id, None)  # the message that takes its place is sent, also if it is known
                self._send(frames.DraftFrame(id=message_id, text=text, is_reset=is_reset))
            case MessageBody() as message if self._is_new(message):
                self._known[message.id] = _state_of(message)
                self._send(frames.MessageFrame(**dict(message)))
            case MessageResponse() as response:
                self._send(frames.build_outcome_frame(response))
            case Interrupted() | MessageBody():
                pass  # the connection is about to close, or the client has the message

    def _is_new(self, message: MessageBody) -> bool:
        """Return whether the client does not have a message, or has an earlier version of it."""
        if message.id not in self._known:
            return True
        known_state = self._known[message.id]
        return bool(message.versions) or _is_read(message) if known_state is None else known_state != _state_of(message)

    def _send(self, frame: frames.ServerFrame) -> None:
        """Queue a frame; abort the connection if the client reads too slowly."""
        if self._queue.is_full:
            self._queue.clear()
            if self._request.transport is not None:
                self._request.transport.abort()
            return
        self._queue.add(frame)
        self._wake.set()

    async def _write(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                text = self._queue.take()
                if not self._grant.is_active:
                    return  # the connection is about to close
                try:
                    await self._socket.send_str(text)
                except ConnectionError:
                    return  # the reading task sees the end of the connection
            await self._write_updates()

    async def _write_updates(self) -> None:
        """Send live updates, as fast as the client reads; frames of its room go first."""
        while not self._queue and (text := self._subscription.take()) is not None:
            if not self._grant.is_active:
                return
            with suppress(ConnectionError):  # the reading task sees the end of the connection
                await self._socket.send_str(text)


def _is_handshake(socket: web.WebSocketResponse, request: web.Request) -> bool:
    try:
        return bool(socket.can_prepare(request))
    except ValueError:  # aiohttp raises ValueError for a key that is not ASCII
        return False


def _state_of(message: MessageBody) -> MessageState:
    """Return what changes when a message is edited, answered again, or its attachments are read."""
    return message.text, len(message.versions), message.is_complete, _is_read(message)


def _is_read(message: MessageBody) -> bool:
    return any(file.text or file.description or file.problem for file in message.attachments)


def _latest_within(messages: list[MessageBody], size: int) -> list[MessageBody]:
    """Return the latest messages whose texts fit into `size` characters."""
    for number, message in enumerate(reversed(messages)):
        size -= len(message.text) + sum(len(file.text) for file in message.attachments)
        if size < 0:
            return messages[len(messages) - number :]
    return messages


async def _close_socket(socket: web.WebSocketResponse) -> None:
    with suppress(ConnectionError, RuntimeError):  # closed by the client meanwhile
        await socket.close(code=WSCloseCode.GOING_AWAY, message=b"the server is stopping")
