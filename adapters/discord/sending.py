"""Sending, editing and finding messages; the typing indicator."""

import asyncio
import json
import logging
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any, TypeVar

from discord.http import Route
from discord.utils import time_snowflake

from adapters.discord.config import Limits
from adapters.discord.errors import REQUEST_ERRORS, UNKNOWN_MESSAGE, ErrorResponse, to_delivery_error
from adapters.discord.outgoing import MessageBody, build_body, build_edit_body, file_name_of, has_extras, without_extras
from bot import Clock, crash_point
from bot.platform import (
    BoundedDict,
    Delivery,
    DeliveryHeld,
    DeliveryUnknown,
    KnownPeople,
    MessageGone,
    NotSent,
    Undeliverable,
)

logger = logging.getLogger(__name__)

T = TypeVar("T")
SendRequest = Callable[..., Awaitable[Any]]

NONCE_WINDOW = timedelta(seconds=100)  # Discord promises "a few minutes"; 120 s is undisputed
CLOCK_SKEW = timedelta(seconds=60)  # between Discord's clock and ours
PAGE_SIZE, MAX_PAGES = 100, 5
MAX_UNWRITABLE = 2000
FAILURES = (*REQUEST_ERRORS, ValueError)  # ValueError: a body that is not JSON


class MessageSender:
    """Sends, edits and reconciles the deliveries of one account. Raises DeliveryError."""

    def __init__(self, send_request: SendRequest, known_people: KnownPeople[str], clock: Clock) -> None:
        self._send_request = send_request
        self._known_people = known_people
        self._clock = clock
        # by channel: why it refuses messages; it is left alone until a message is received from it
        self._unwritable = BoundedDict[str, str](MAX_UNWRITABLE)

    def mark_writable(self, channel_id: str) -> None:
        """Resume sending to a channel from which a message was received."""
        self._unwritable.pop(channel_id, None)

    async def deliver(self, delivery: Delivery, bot_id: int) -> str:
        """Send a part; if an earlier attempt is too old for its nonce, search for it first.

        Where the channel cannot be read, it is sent all the same: it was not sent, or an operator decided so.
        """
        if delivery.attempts > 1 and not self._is_protected(delivery):
            with suppress(DeliveryHeld):
                if message_id := await self._find_message(delivery, bot_id):
                    return message_id
        return await self._send(delivery)

    async def reconcile(self, delivery: Delivery, bot_id: int) -> str:
        """Resend an unclear part while its nonce protects it; after that, search for it."""
        if self._is_protected(delivery):
            try:
                return await self._send(delivery)
            except NotSent as error:
                raise DeliveryUnknown(str(error), retry_after=error.retry_after) from error
        message_id = await self._find_message(delivery, bot_id)
        if not message_id:
            raise NotSent("it is not in the channel")
        return message_id

    async def edit(self, delivery: Delivery) -> str:
        """Edit the message that a part replaces; an empty part deletes it."""
        content = delivery.content
        ids = {"channel_id": delivery.target, "message_id": delivery.replaces_external_id}
        path = "/channels/{channel_id}/messages/{message_id}"
        if not (content.text or content.attachments or content.choices):
            try:
                await self._await_response(delivery, self._send_request(Route("DELETE", path, **ids)))
            except _MessageNotFound:
                logger.debug("message %s was deleted already", delivery.replaces_external_id)
            return delivery.replaces_external_id
        body = build_edit_body(content, self._known_people.of(delivery.target))
        try:
            return _parse_message_id(await self._send_with_fallback(delivery, Route("PATCH", path, **ids), body))
        except _MessageNotFound:
            raise MessageGone("the message was deleted in the channel: it is not sent again") from None

    def _is_protected(self, delivery: Delivery) -> bool:
        """Return whether Discord still deduplicates the part by its nonce."""
        return self._clock() - (delivery.first_attempt_at or delivery.created_at) <= NONCE_WINDOW

    async def _send(self, delivery: Delivery) -> str:
        """Send a part; Discord answers a repeated nonce with the existing message."""
        if cause := self._unwritable.get(delivery.target):
            raise Undeliverable(cause)
        body = build_body(delivery, self._known_people.of(delivery.target))
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=delivery.target)
        crash_point("send.pre_write")
        return _parse_message_id(await self._send_with_fallback(delivery, route, body))

    async def _send_with_fallback(self, delivery: Delivery, route: Route, body: MessageBody) -> Any:
        """Send a body; if Discord refuses it, send its text alone."""
        try:
            return await self._await_response(delivery, _post_body(self._send_request, route, body))
        except _BodyRejected as error:
            if not has_extras(body):
                raise Undeliverable(str(error)) from error
            logger.info("part %s is sent as plain text: %s", delivery.id, error)
        return await self._await_response(delivery, _post_body(self._send_request, route, without_extras(body)))

    async def _await_response(self, delivery: Delivery, response: Awaitable[T]) -> T:
        try:
            return await response
        except ErrorResponse as error:
            if error.status in (400, 413):
                raise _BodyRejected(str(error)) from error
            if error.code == UNKNOWN_MESSAGE:
                raise _MessageNotFound(str(error)) from error
            if error.status in (403, 404):
                self._unwritable[delivery.target] = str(to_delivery_error(error))
            raise to_delivery_error(error) from error
        except FAILURES as error:
            raise to_delivery_error(error) from error

    async def _find_message(self, delivery: Delivery, bot_id: int) -> str:
        """Search the messages since the first attempt.

        Raises DeliveryUnknown if they cannot be read now, DeliveryHeld if they never can be.
        """
        after_id = time_snowflake((delivery.first_attempt_at or delivery.created_at) - CLOCK_SKEW)
        for _ in range(MAX_PAGES):
            page = await self._fetch_page(delivery.target, after_id)
            for message in page:
                if _is_same_message(message, delivery, bot_id):
                    return str(message["id"])
            if len(page) < PAGE_SIZE:
                return ""
            after_id = max(int(message["id"]) for message in page)
        raise DeliveryHeld("too many messages were sent since to search them all")

    async def _fetch_page(self, channel_id: str, after_id: int) -> list[Any]:
        route = Route("GET", "/channels/{channel_id}/messages", channel_id=channel_id)
        try:
            page: list[Any] = await self._send_request(route, params={"after": str(after_id), "limit": str(PAGE_SIZE)})
        except ErrorResponse as error:
            if error.status in (403, 404):
                raise DeliveryHeld(f"the channel cannot be read to see whether it arrived: {error}") from error
            raise _to_not_searched(error) from error
        except FAILURES as error:
            raise _to_not_searched(error) from error
        return page


class _BodyRejected(Undeliverable):
    """Discord refuses the body of a message."""


class _MessageNotFound(Undeliverable):
    """The message does not exist any more."""


def _to_not_searched(error: Exception) -> DeliveryUnknown:
    cause = to_delivery_error(error)
    retry_after = cause.retry_after if isinstance(cause, NotSent | DeliveryUnknown) else None
    return DeliveryUnknown(f"it could not be searched for yet: {cause}", retry_after=retry_after)


async def _post_body(send_request: SendRequest, route: Route, body: MessageBody) -> Any:
    if not body.files:
        return await send_request(route, json=body.json)
    payload = {"name": "payload_json", "value": json.dumps(body.json)}
    return await send_request(route, form=[payload, *body.form_fields])


def _parse_message_id(response: Any) -> str:
    if not isinstance(response, dict) or not str(response.get("id", "")).isdigit():
        raise DeliveryUnknown("Discord's response has no message id")
    return str(response["id"])


def _is_same_message(message: Any, delivery: Delivery, bot_id: int) -> bool:
    if not isinstance(message, dict) or str(message.get("author", {}).get("id")) != str(bot_id):
        return False
    if message.get("nonce"):
        return str(message["nonce"]) == delivery.id
    reference = message.get("message_reference") or {}
    expected_reference = delivery.reply_to if delivery.reply_to.isdigit() else ""
    received_names = [attachment.get("filename") for attachment in message.get("attachments") or ()]
    sent_names = [
        file_name_of(attachment) for attachment in delivery.content.attachments if attachment.data is not None
    ]
    is_answer = str(reference.get("message_id", "")) == expected_reference
    return is_answer and message.get("content") in delivery.possible_texts and received_names == sent_names


class TypingIndicator:
    """Repeats the typing indicator in the channels in which a reply is being written."""

    def __init__(self, send_request: Callable[..., Awaitable[object]], limits: Limits) -> None:
        self._send_request = send_request
        self._limits = limits
        self._tasks: dict[str, asyncio.Task[None]] = {}

    async def show(self, channel_id: str, active: bool) -> None:
        """Start or stop the indicator in a channel."""
        task = self._tasks.pop(channel_id, None)
        if task is not None:
            task.cancel()
        if active:
            self._tasks[channel_id] = asyncio.get_running_loop().create_task(self._repeat(channel_id))

    async def stop(self) -> None:
        """Stop the indicator everywhere."""
        tasks = list(self._tasks.values())
        self._tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _repeat(self, channel_id: str) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(self._limits.max_typing_seconds):
                while await self._send_typing(channel_id):
                    await self._limits.sleep(self._limits.typing_interval)

    async def _send_typing(self, channel_id: str) -> bool:
        try:
            await self._send_request(Route("POST", "/channels/{channel_id}/typing", channel_id=channel_id))
        except REQUEST_ERRORS as error:  # the indicator is optional
            logger.debug("no typing indicator in channel %s: %s", channel_id, error)
            return False
        return True
