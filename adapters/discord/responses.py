"""Responses to slash commands and buttons, which are sent with the token of their interaction."""

from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from discord.http import Route

from adapters.discord.errors import REQUEST_ERRORS, ErrorResponse, to_delivery_error
from adapters.discord.outgoing import MAX_TEXT_LENGTH, NO_MENTIONS, build_components, split_text
from bot import Choice, Clock, CommandResponse, Content
from bot.platform import Delivery, DeliveryError, Undeliverable

ADDRESS_PREFIX = "interaction/"
KIND_KEY = "interaction"
LIFETIME = timedelta(minutes=15)  # of an interaction
EPHEMERAL_FLAG = 64
FOLLOW_UP_PATH = "/webhooks/{webhook_id}/{webhook_token}"
ORIGINAL_PATH = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
EXPIRED = "the interaction has expired: Discord takes a response for fifteen minutes"
UNCLEAR = "it is unknown whether it arrived, and Discord cannot be asked: it is not sent again"

SendRequest = Callable[..., Awaitable[Any]]


class ResponseKind(StrEnum):
    """How a part of a response is shown: in place of "thinking…", or as a further message to the sender or to all."""

    ORIGINAL = "original"
    PRIVATE = "private"
    PUBLIC = "public"


def build_address(application_id: int, token: str) -> str:
    """Return the target of the deliveries of a response."""
    return f"{ADDRESS_PREFIX}{application_id}/{token}"


def is_response(delivery: Delivery) -> bool:
    """Return whether a delivery is sent with the token of an interaction."""
    return delivery.target.startswith(ADDRESS_PREFIX)


def split_response(response: CommandResponse, first: ResponseKind, others: ResponseKind) -> list[Content]:
    """Return the parts of a response; choices go with the last."""
    pieces = split_text(response.text, MAX_TEXT_LENGTH)
    return [
        Content(
            text=text,
            choices=response.choices if number == len(pieces) else (),
            metadata={KIND_KEY: first if number == 1 else others},
        )
        for number, text in enumerate(pieces, 1)
    ]


def build_response_body(text: str, choices: Sequence[Choice] = ()) -> dict[str, Any]:
    """Return the JSON of a message that answers an interaction, without notifications."""
    return {
        "content": text,
        "allowed_mentions": dict(NO_MENTIONS),
        "components": build_components(choices) if choices else [],
    }


class ResponseSender:
    """Sends the deliveries of responses. Raises DeliveryError."""

    def __init__(self, send_request: SendRequest, clock: Clock) -> None:
        self._send_request, self._clock = send_request, clock

    async def deliver(self, delivery: Delivery) -> str:
        """Show a part, and return the id of its message."""
        if self._clock() - delivery.created_at > LIFETIME:
            raise Undeliverable(EXPIRED)
        webhook_id, _, token = delivery.target.removeprefix(ADDRESS_PREFIX).partition("/")
        ids = {"webhook_id": webhook_id, "webhook_token": token}
        kind, body = _kind_of(delivery), build_response_body(delivery.content.text, delivery.content.choices)
        if kind is ResponseKind.ORIGINAL:
            message = await self._request(Route("PATCH", ORIGINAL_PATH, **ids), json=body)
        else:
            if kind is ResponseKind.PUBLIC and delivery.part == 0:
                await self._delete(Route("DELETE", ORIGINAL_PATH, **ids))
            body["flags"] = EPHEMERAL_FLAG if kind is ResponseKind.PRIVATE else 0
            message = await self._request(Route("POST", FOLLOW_UP_PATH, **ids), json=body)
        return str(message.get("id", "")) if isinstance(message, dict) else ""

    async def reconcile(self, delivery: Delivery) -> str:
        """Show a part again whose outcome is unknown, where that cannot be seen twice."""
        if _kind_of(delivery) is not ResponseKind.ORIGINAL:
            raise Undeliverable(UNCLEAR)
        return await self.deliver(delivery)

    async def _delete(self, route: Route) -> None:
        try:
            await self._request(route)
        except Undeliverable as error:
            if str(error) == EXPIRED:
                raise

    async def _request(self, route: Route, **arguments: Any) -> Any:
        try:
            return await self._send_request(route, **arguments)
        except (*REQUEST_ERRORS, ValueError) as error:
            raise _to_response_error(error) from error


def _to_response_error(error: Exception) -> DeliveryError:
    is_expired = isinstance(error, ErrorResponse) and not error.is_foreign and error.status == 401
    return Undeliverable(EXPIRED) if is_expired else to_delivery_error(error)


def _kind_of(delivery: Delivery) -> ResponseKind:
    return ResponseKind(delivery.content.metadata[KIND_KEY])
