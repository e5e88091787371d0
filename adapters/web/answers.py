"""Stopping the answer to a message, having it answered once more, and editing messages of the web."""

from collections.abc import Awaitable
from dataclasses import dataclass, replace
from typing import TypeVar
from uuid import UUID

from adapters.web.auth import Grant
from adapters.web.config import PLATFORM
from adapters.web.incoming import is_own_room
from adapters.web.json_io import HttpProblem, build_not_found
from adapters.web.live import RoomBroadcaster
from adapters.web.messages import MessageService, run_shielded
from adapters.web.outgoing import build_figures
from adapters.web.queries import AgentDirectory, load_message
from adapters.web.schemas import MessageResponse, OutcomeResponse
from bot import Memory, Receipt, Room, new_id
from bot.platform import AgentHandle, AnswerRefused, TaskSet

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class AnswerService:
    """Stops and repeats answers; a message is named by its own id or by that of its reply.

    The methods raise HttpProblem for a message that the token may not see, or that cannot be answered again now.
    """

    _directory: AgentDirectory
    _message_service: MessageService
    _broadcaster: RoomBroadcaster
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
            raise HttpProblem(
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
            raise build_not_found("message", message_id) from None
        except AnswerRefused as refusal:
            raise HttpProblem(409, refusal.code, str(refusal)) from None

    async def find(self, message_id: UUID, grant: Grant) -> tuple[AgentHandle, Memory, Room]:
        """Return the message to the agent with this id, or with this reply, and its room."""
        found = await self._directory.find_message(message_id)
        if found is not None:
            handle, message = found
            room = await handle.conversations.room(message.room_id)
            if message.entity_id == handle.agent_id and message.content.in_reply_to is not None:
                question = await handle.conversations.message(message.content.in_reply_to)
                message = question or message
            if room is not None and is_own_room(grant, room) and message.entity_id != handle.agent_id:
                return handle, message, room
        raise build_not_found("message", message_id)
