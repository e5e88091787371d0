"""Submitting messages and awaiting their outcome, stopping, repeating and editing them, and server-sent events."""

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any, TypeVar
from uuid import UUID

from aiohttp import web

from adapters.web import incoming, json_io, live
from adapters.web.auth import GRANT, Access, Grant
from adapters.web.config import DELETED_KEY, PLATFORM, Limits
from adapters.web.files import UPLOAD_PREFIX, Upload, UploadStore, kind_of_file
from adapters.web.frames import CommandFrame, SelectFrame
from adapters.web.outgoing import build_command_response, build_figures, build_message_body
from adapters.web.queries import AgentDirectory, load_message, load_message_response
from adapters.web.schemas import ErrorBody, ErrorResponse, MessageBody, MessageResponse, OutcomeResponse, PieceBody
from bot import (
    Attachment,
    ChannelType,
    Clock,
    CommandResponse,
    Memory,
    Receipt,
    Room,
    Rule,
    TemporaryError,
    new_id,
    system_clock,
)
from bot.platform import AgentHandle, AnswerRefused, InboxClosed, TaskSet

T = TypeVar("T")
OnStored = Callable[[Receipt], None]


async def run_shielded(tasks: TaskSet, coroutine: Coroutine[Any, Any, T]) -> T:
    """Await a coroutine as one of `tasks`; it finishes even if the caller is cancelled."""
    return await asyncio.shield(tasks.start(coroutine))


class MessageService:
    """Submits messages and commands, and publishes their outcome to the room.

    Of one token they are refused while too many of them have no outcome yet.
    """

    def __init__(
        self,
        broadcaster: live.RoomBroadcaster,
        requests: TaskSet,
        uploads: UploadStore,
        limits: Limits,
        clock: Clock = system_clock,
    ) -> None:
        self._broadcaster = broadcaster
        self._uploads = uploads
        self._requests = requests
        self._announcements = TaskSet("announcing an outcome")
        self._clock = clock
        self._max_open_messages = limits.max_open_messages
        self._open_messages = Counter[str]()  # by the id of their token
        self._watched: set[UUID] = set()

    async def submit(
        self,
        handle: AgentHandle,
        submitted: incoming.SubmittedMessage,
        *,
        on_stored: OnStored | None = None,
        sender: live.UpdateListener | None = None,
    ) -> Receipt:
        """Store a message, call `on_stored`, and publish it to the room except `sender`.

        Return the existing receipt for a repeated key. Raises HttpProblem if the key belongs to another
        message, or too many messages of the token are open, InboxClosed while stopping.
        """
        return await run_shielded(self._requests, self._submit(handle, submitted, on_stored, sender))

    @contextmanager
    def count_open(self, token_id: str) -> Iterator[None]:
        """Count the work in this block as an open message of a token. Raises HttpProblem if it has too many."""
        if token_id and self._open_messages[token_id] >= self._max_open_messages:
            raise json_io.build_too_many_messages(self._max_open_messages)
        self._open_messages[token_id] += 1
        try:
            yield
        finally:
            self._close_message(token_id)

    def _close_message(self, token_id: str) -> None:
        self._open_messages[token_id] -= 1
        if not self._open_messages[token_id]:
            del self._open_messages[token_id]

    async def run_command(
        self,
        handle: AgentHandle,
        participant: incoming.Participant,
        frame: CommandFrame | SelectFrame,
        *,
        sender: live.UpdateListener,
    ) -> CommandResponse:
        """Run a command or apply a choice; raises as the agent's handle does.

        A question that a command asks is a message: it is published to the room except `sender`.
        """
        sent_at = self._clock()
        submitted = await self._keep_place(handle, incoming.parse_page_event(participant, frame))
        if isinstance(frame, SelectFrame):
            selection = incoming.build_choice_selection(
                submitted, frame.value, agent_id=handle.agent_id, sent_at=sent_at
            )
            with self.count_open(participant.token_id):
                return await handle.select_choice(selection)
        invocation = incoming.build_command_invocation(submitted, agent_id=handle.agent_id, sent_at=sent_at)
        with self.count_open(participant.token_id):
            response = await handle.run_command(invocation)
        await self._publish_question(handle, response, exclude=sender)
        return response

    async def answer_command(self, handle: AgentHandle, submitted: incoming.SubmittedMessage) -> MessageResponse:
        """Run a command that was submitted as a message; its text is the reply, which is not stored."""
        if submitted.key:  # the same key of another user, or with another command, is another event
            submitted = replace(submitted, key=f"{submitted.key}:{submitted.fingerprint}")
        submitted = await self._keep_place(handle, submitted)
        invocation = incoming.build_command_invocation(submitted, agent_id=handle.agent_id, sent_at=self._clock())
        with self.count_open(submitted.participant.token_id):
            response = await handle.run_command(invocation)
        await self._publish_question(handle, response)
        if response.receipt is not None:
            return await self.wait_response(handle, response.receipt)
        return build_command_response(handle, invocation, response)

    async def _publish_question(
        self, handle: AgentHandle, response: CommandResponse, *, exclude: live.UpdateListener | None = None
    ) -> None:
        if response.receipt is not None:
            message = await load_message(handle, response.receipt.memory_id)
            if message is not None:
                self._broadcaster.publish(response.receipt.room_id, message, exclude=exclude)

    async def wait_response(self, handle: AgentHandle, receipt: Receipt, room: str = "") -> MessageResponse:
        """Wait for a message's outcome and return it with the replies; `room` is the room's name if that is known."""
        return await load_message_response(handle, await handle.wait_outcome(receipt.id), room)

    def announce_outcome(
        self, handle: AgentHandle, receipt: Receipt, *, token_id: str = "", has_files: bool = False
    ) -> None:
        """Publish the outcome of a message to its room once it is known; with files, first what was read in them.

        Until then it counts as an open message of the token.
        """
        if receipt.id not in self._watched:
            self._watched.add(receipt.id)
            self._open_messages[token_id] += 1
            self._announcements.start(self._announce_outcome(handle, receipt, token_id, has_files))

    async def stop(self) -> None:
        """Cancel the announcements of outcomes."""
        await self._announcements.cancel()

    async def _submit(
        self,
        handle: AgentHandle,
        submitted: incoming.SubmittedMessage,
        on_stored: OnStored | None,
        sender: live.UpdateListener | None,
    ) -> Receipt:
        with self.count_open(submitted.participant.token_id):
            if any(attachment.url.startswith(UPLOAD_PREFIX) for attachment in submitted.attachments):
                return await self._submit_with_files(handle, submitted, on_stored, sender)
            return await self._store(handle, submitted, new_id(), on_stored, sender)

    async def _submit_with_files(
        self,
        handle: AgentHandle,
        submitted: incoming.SubmittedMessage,
        on_stored: OnStored | None,
        sender: live.UpdateListener | None,
    ) -> Receipt:
        message_id = new_id()
        urls = [attachment.url for attachment in submitted.attachments if attachment.url.startswith(UPLOAD_PREFIX)]
        uploads = await self._uploads.claim(
            urls,
            agent_id=handle.agent_id,
            message_id=message_id,
            key=submitted.key and f"{submitted.room}:{submitted.key}",
        )
        if handle.people.ignored_by(incoming.user_id_of(submitted.user)):
            await self._uploads.remove(uploads.values())
            return await self._store(handle, replace(submitted, attachments=()), message_id, on_stored, sender)
        attachments = tuple(_describe_upload(file, uploads.get(file.url)) for file in submitted.attachments)
        receipt = None
        try:
            receipt = await self._store(
                handle, replace(submitted, attachments=attachments), message_id, on_stored, sender
            )
        finally:
            if receipt is None:
                own = [upload for upload in uploads.values() if upload.message_id == message_id]
                await self._uploads.move(own, None)
        await self._uploads.move(uploads.values(), receipt.memory_id)
        return receipt

    async def _store(
        self,
        handle: AgentHandle,
        submitted: incoming.SubmittedMessage,
        message_id: UUID,
        on_stored: OnStored | None,
        sender: live.UpdateListener | None,
    ) -> Receipt:
        inbound = incoming.build_inbound_message(
            await self._keep_place(handle, submitted),
            agent_id=handle.agent_id,
            message_id=message_id,
            sent_at=self._clock(),
        )
        inbound = handle.hide(inbound)
        receipt = await handle.submit(inbound)
        is_new = receipt.memory_id == inbound.message.id
        if not is_new:
            await self._check_same_message(handle, receipt, submitted)
        if on_stored is not None:
            on_stored(receipt)
        if is_new and self._broadcaster.has_listeners(receipt.room_id):
            body = build_message_body(inbound.message, handle.agent_id, {inbound.author.id: inbound.author})
            self._broadcaster.publish(receipt.room_id, body, exclude=sender)
        token_id = submitted.participant.token_id
        self.announce_outcome(handle, receipt, token_id=token_id, has_files=bool(submitted.attachments))
        return receipt

    async def _keep_place(self, handle: AgentHandle, submitted: incoming.SubmittedMessage) -> incoming.SubmittedMessage:
        """Return what was submitted with the kind and the name of its room: a conversation stays one, with its title.

        A message gives a title to a conversation without one.
        """
        room = await handle.conversations.room(incoming.room_id_of(handle.agent_id, submitted.room))
        is_named = incoming.is_conversation_name(submitted.room)
        is_known = room is not None and room.type is ChannelType.DM
        if not (is_named or is_known or submitted.kind is ChannelType.DM):
            return submitted
        has_title = room is not None and room.name and DELETED_KEY not in room.metadata
        files = (attachment.title or attachment.name for attachment in submitted.attachments)
        title = incoming.build_title(submitted.text or next(files, "")) if is_named else submitted.room
        is_title = not has_title and (submitted.attachments or not incoming.is_command(submitted.text))
        return replace(submitted, kind=ChannelType.DM, room_name=title if is_title else "")

    async def _check_same_message(
        self, handle: AgentHandle, receipt: Receipt, submitted: incoming.SubmittedMessage
    ) -> None:
        """Raise HttpProblem if the stored message with this key has another content."""
        if receipt.rule == Rule.NOT_READ:
            return  # nothing is stored that could be compared
        stored_message = await handle.conversations.message(receipt.memory_id)
        if (
            stored_message is not None
            and stored_message.metadata.get(incoming.FINGERPRINT_KEY) != submitted.fingerprint
        ):
            raise json_io.HttpProblem(
                422, "idempotency_mismatch", f"the idempotency key {submitted.key!r} belongs to another message"
            )

    async def _announce_outcome(self, handle: AgentHandle, receipt: Receipt, token_id: str, has_files: bool) -> None:
        try:
            receipt = await handle.wait_outcome(receipt.id)
            if not self._broadcaster.has_listeners(receipt.room_id):
                return
            response = await load_message_response(handle, receipt, "")
            message = await load_message(handle, receipt.memory_id) if has_files else None
        except (InboxClosed, LookupError, TemporaryError):
            self._broadcaster.publish(receipt.room_id, live.Interrupted(receipt.memory_id))
            return
        finally:
            self._watched.discard(receipt.id)
            self._close_message(token_id)
        for body in (*filter(None, [message]), *response.replies):
            self._broadcaster.publish(receipt.room_id, body)
        self._broadcaster.publish(receipt.room_id, response)


def _describe_upload(attachment: Attachment, upload: Upload | None) -> Attachment:
    """Return an attachment with what is known of its uploaded file."""
    if upload is None:
        return attachment
    return replace(
        attachment,
        kind=kind_of_file(upload.content_type),
        content_type=upload.content_type,
        name=upload.name,
        size=upload.size,
    )


@dataclass(frozen=True, slots=True)
class MessageStreams:
    """Responds to messages with server-sent events; a comment is sent after `keep_alive` silent seconds."""

    _message_service: MessageService
    _broadcaster: live.RoomBroadcaster
    _responder: json_io.JsonResponder
    _keep_alive: float

    async def respond(
        self, request: web.Request, handle: AgentHandle, submitted: incoming.SubmittedMessage
    ) -> web.StreamResponse:
        """Submit a message, and write the room's updates about it until its outcome."""
        updates: asyncio.Queue[live.RoomUpdate] = asyncio.Queue()
        unsubscribe = self._broadcaster.subscribe(
            incoming.room_id_of(handle.agent_id, submitted.room), updates.put_nowait
        )
        try:
            receipt = await self._message_service.submit(handle, submitted)
            response = await open_stream(request)
            try:
                await self._relay(response, receipt, updates, GRANT.get())
            except json_io.HttpProblem as problem:
                body = ErrorBody(code=problem.code, message=problem.message, request_id=json_io.REQUEST_ID.get())
                await write_event(response, "error", self._responder.to_json(ErrorResponse(error=body)))
        finally:
            unsubscribe()
        return response

    async def respond_to_command(self, request: web.Request, answer: MessageResponse) -> web.StreamResponse:
        """Write the reply and the outcome of a command."""
        response = await open_stream(request)
        for reply in answer.replies:
            await write_event(response, "reply", self._responder.to_json(reply))
        await write_event(response, "outcome", self._responder.to_json(answer))
        return response

    async def _relay(
        self, response: web.StreamResponse, receipt: Receipt, updates: asyncio.Queue[live.RoomUpdate], grant: Grant
    ) -> None:
        """Write updates until the outcome. Raises HttpProblem if the bot stops or the token is revoked."""
        sent_ids: set[object] = set()
        while True:
            try:
                async with asyncio.timeout(self._keep_alive):
                    update = await updates.get()
            except TimeoutError:
                await response.write(b": still here\n\n")
                continue
            grant.require(Access.CHAT)
            match update:
                case live.TypingChanged(is_active, is_model_busy):
                    state = {"active": is_active} | ({"model_busy": True} if is_model_busy else {})
                    await write_event(response, "typing", json.dumps(state, separators=(",", ":")))
                case live.ControlRequested(action, target):
                    await write_event(response, "control", json.dumps({"action": action, "target": target}))
                case live.DraftDelta(message_id, text, is_reset, name) if name == receipt.key.message_id:
                    if message_id not in sent_ids:
                        piece = PieceBody(id=message_id, text=text, is_reset=is_reset)
                        await write_event(response, "piece", self._responder.to_json(piece))
                case MessageBody() as message if (
                    message.in_reply_to == receipt.memory_id and message.id not in sent_ids
                ):
                    sent_ids.add(message.id)
                    await write_event(response, "reply", self._responder.to_json(message))
                case MessageResponse() as outcome_response if outcome_response.message_id == receipt.memory_id:
                    await write_event(response, "outcome", self._responder.to_json(outcome_response))
                    return
                case live.Interrupted(message_id) if message_id == receipt.memory_id:
                    raise json_io.build_stopping()


async def open_stream(request: web.Request) -> web.StreamResponse:
    """Begin a response of server-sent events."""
    response = web.StreamResponse(headers={"X-Accel-Buffering": "no"})
    response.content_type = "text/event-stream"
    response.charset = "utf-8"
    await response.prepare(request)
    return response


async def write_event(response: web.StreamResponse, event: str, data: str) -> None:
    """Send one event; its data is one line."""
    await response.write(f"event: {event}\ndata: {data}\n\n".encode())


@dataclass(frozen=True, slots=True)
class AnswerService:
    """Stops and repeats answers; a message is named by its own id or by that of its reply.

    The methods raise HttpProblem for a message that the token may not see, or that cannot be answered again now.
    """

    _directory: AgentDirectory
    _message_service: MessageService
    _broadcaster: live.RoomBroadcaster
    _requests: TaskSet

    async def stop(self, message_id: UUID, grant: Grant) -> OutcomeResponse:
        """Stop the answer to a message; return its outcome, which is another one where it was known already."""
        handle, message, _ = await self.find(message_id, grant)
        receipt = await self._run(message_id, handle.edits.stop_answer(message.id))
        figures = build_figures(receipt, handle.character.name)
        return OutcomeResponse.build(receipt, message_id=receipt.memory_id, **figures)

    async def repeat(self, message_id: UUID, grant: Grant, key: str = "") -> Receipt:
        """Answer a message once more; return its new receipt. A repeated `key` changes nothing."""
        handle, message, _ = await self.find(message_id, grant)
        return await self._answer_again(handle, message, key, grant)

    async def edit(self, message_id: UUID, text: str, grant: Grant, key: str = "") -> Receipt:
        """Replace the text of a message of the web, publish it and have it answered; return the receipt."""
        handle, message, room = await self.find(message_id, grant)
        if message.id != message_id or room.platform != PLATFORM:
            raise json_io.HttpProblem(
                409, "not_editable", "only messages that were written on the page or over the API are edited"
            )
        receipt = await self._answer_again(handle, message, key, grant, text)
        body = await load_message(handle, message.id)
        if body is not None:
            self._broadcaster.publish(message.room_id, body)
        return receipt

    async def wait_response(self, receipt: Receipt) -> MessageResponse:
        """Wait for the outcome and return it with the replies."""
        handle, _ = await self._directory.find_receipt(receipt.id)
        return await self._message_service.wait_response(handle, receipt)

    async def _answer_again(
        self, handle: AgentHandle, message: Memory, key: str, grant: Grant, text: str | None = None
    ) -> Receipt:
        event_id = f"again:{message.id}:{key or new_id()}"
        content = None if text is None else replace(message.content, text=text)
        with self._message_service.count_open(grant.token_id):
            receipt = await self._run(message.id, handle.edits.answer_again(message.id, event_id, content))
            self._message_service.announce_outcome(handle, receipt, token_id=grant.token_id)
        return receipt

    async def _run(self, message_id: UUID, operation: Awaitable[T]) -> T:
        async def await_operation() -> T:
            return await operation

        try:
            return await run_shielded(self._requests, await_operation())
        except LookupError:
            raise json_io.build_not_found("message", message_id) from None
        except AnswerRefused as refusal:
            raise json_io.HttpProblem(409, refusal.code, str(refusal)) from None

    async def find(self, message_id: UUID, grant: Grant) -> tuple[AgentHandle, Memory, Room]:
        """Return the message to the agent with this id, or with this reply, and its room."""
        found = await self._directory.find_message(message_id)
        if found is not None:
            handle, message = found
            room = await handle.conversations.room(message.room_id)
            if message.entity_id == handle.agent_id and message.content.in_reply_to is not None:
                question = await handle.conversations.message(message.content.in_reply_to)
                message = question or message
            if room is not None and incoming.is_own_room(grant, room) and message.entity_id != handle.agent_id:
                return handle, message, room
        raise json_io.build_not_found("message", message_id)
