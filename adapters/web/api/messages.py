"""HTTP handlers of messages to agents."""

from dataclasses import dataclass

from aiohttp import web

from adapters.web.answers import AnswerService
from adapters.web.auth import GRANT, Access
from adapters.web.config import Limits
from adapters.web.incoming import is_command, parse_api_message
from adapters.web.json_io import JsonResponder, read_json, validate_model, validate_with
from adapters.web.messages import MessageService, MessageStreams
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory, parse_id
from adapters.web.schemas import KEY_ADAPTER, EditRequest, MessageRequest, MessageResponse, OutcomeResponse


@dataclass(frozen=True, slots=True)
class MessagesApi:
    """Handlers for messages to agents."""

    _directory: AgentDirectory
    _message_service: MessageService
    _streams: MessageStreams
    _responder: JsonResponder
    _limits: Limits
    _answers: AnswerService

    async def send_message(self, request: web.Request) -> web.StreamResponse:
        """Send an agent, by id or name, a message or a command such as `/help`, and wait for its outcome."""
        handle = self._directory.find_agent(request.match_info["agent"])
        body = validate_model(MessageRequest, await read_json(request, timeout=self._limits.body_seconds))
        header_key = _read_key(request)
        submitted = parse_api_message(body, header_key, GRANT.get())
        if is_command(body.text):
            answer = await self._message_service.answer_command(handle, submitted)
            if body.stream:
                return await self._streams.respond_to_command(request, answer)
            return self._responder.respond(answer)
        if body.stream:
            return await self._streams.respond(request, handle, submitted)
        receipt = await self._message_service.submit(handle, submitted)
        return self._responder.respond(await self._message_service.wait_response(handle, receipt, submitted.room))

    async def stop_answer(self, request: web.Request) -> web.StreamResponse:
        """Stop the answer to a message, named by its id or its reply's, and return its outcome."""
        message_id = parse_id(request.match_info["id"])
        return self._responder.respond(await self._answers.stop(message_id, GRANT.get()))

    async def regenerate_answer(self, request: web.Request) -> web.StreamResponse:
        """Answer a message once more, named by its id or its reply's, and wait for the outcome."""
        message_id, key = parse_id(request.match_info["id"]), _read_key(request)
        receipt = await self._answers.repeat(message_id, GRANT.get(), key or "")
        return self._responder.respond(await self._answers.wait_response(receipt))

    async def edit_message(self, request: web.Request) -> web.StreamResponse:
        """Replace the text of a message to an agent, and wait for the outcome of the new one."""
        message_id, key = parse_id(request.match_info["id"]), _read_key(request)
        await self._answers.find(message_id, GRANT.get())
        body = validate_model(EditRequest, await read_json(request, timeout=self._limits.body_seconds))
        receipt = await self._answers.edit(message_id, body.text, GRANT.get(), key or "")
        return self._responder.respond(await self._answers.wait_response(receipt))

    def operations(self) -> list[Operation]:
        """Return the operations with their handlers."""
        return [
            Operation(
                "say",
                self.send_message,
                "/api/agents/{agent}/messages",
                Access.CHAT,
                MessageResponse,
                problem_statuses=(400, 404, 408, 413, 415, 422, 503),
                body=MessageRequest,
                method="POST",
                can_stream=True,
                handles_key=True,
            ),
            Operation(
                "stop_answer",
                self.stop_answer,
                "/api/messages/{id}/stop",
                Access.CHAT,
                OutcomeResponse,
                problem_statuses=(404, 409, 503),
                method="POST",
            ),
            Operation(
                "regenerate",
                self.regenerate_answer,
                "/api/messages/{id}/regenerate",
                Access.CHAT,
                MessageResponse,
                problem_statuses=(404, 409, 422, 503),
                method="POST",
                handles_key=True,
            ),
            Operation(
                "edit_message",
                self.edit_message,
                "/api/messages/{id}",
                Access.CHAT,
                MessageResponse,
                problem_statuses=(400, 404, 408, 409, 413, 415, 422, 503),
                body=EditRequest,
                method="PUT",
                handles_key=True,
            ),
        ]


def _read_key(request: web.Request) -> str | None:
    """Return the idempotency key of a request's header. Raises HttpProblem for an invalid one."""
    key = request.headers.get("Idempotency-Key")
    return None if key is None else validate_with(KEY_ADAPTER, key)
