"""HTTP handlers of messages to agents."""

from dataclasses import dataclass

from aiohttp import web
from pydantic import TypeAdapter

from adapters.web.auth import GRANT, Access
from adapters.web.config import Limits
from adapters.web.incoming import is_command, parse_api_message
from adapters.web.json_io import JsonResponder, read_json, validate_model, validate_with
from adapters.web.messages import MessageService, MessageStreams
from adapters.web.openapi import Operation
from adapters.web.queries import AgentDirectory
from adapters.web.schemas import Key, MessageRequest, MessageResponse

HeaderKey = TypeAdapter[str](Key)


@dataclass(frozen=True, slots=True)
class MessagesApi:
    """Handlers for messages to agents."""

    _directory: AgentDirectory
    _message_service: MessageService
    _streams: MessageStreams
    _responder: JsonResponder
    _limits: Limits

    async def send_message(self, request: web.Request) -> web.StreamResponse:
        """Send an agent, by id or name, a message or a command such as `/help`, and wait for its outcome."""
        handle = self._directory.find_agent(request.match_info["agent"])
        body = validate_model(MessageRequest, await read_json(request, timeout=self._limits.body_seconds))
        key = request.headers.get("Idempotency-Key")
        header_key = None if key is None else validate_with(HeaderKey, key)
        submitted = parse_api_message(body, header_key, GRANT.get())
        if is_command(body.text):
            answer = await self._message_service.answer_command(handle, submitted)
            if body.stream:
                return await self._streams.respond_to_command(request, answer)
            return self._responder.respond(answer)
        if body.stream:
            return await self._streams.respond(request, handle, submitted)
        receipt = await self._message_service.submit(handle, submitted)
        return self._responder.respond(await self._message_service.wait_response(handle, receipt))

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
            )
        ]
