"""Sending, editing and finding messages.

Responses to slash commands and buttons are sent with the token of their interaction.
"""

import json
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from enum import StrEnum
from typing import Any

from discord.http import Route
from discord.utils import parse_time, time_snowflake

from adapters.discord.errors import (
    MISSING_PERMISSIONS,
    NO_MESSAGE_HISTORY,
    REQUEST_ERRORS,
    THREAD_ARCHIVED,
    THREAD_LOCKED,
    UNKNOWN_MESSAGE,
    ErrorResponse,
    to_delivery_error,
)
from adapters.discord.outgoing import (
    MAX_TEXT_LENGTH,
    NO_MENTIONS,
    MessageBody,
    build_body,
    build_components,
    build_edit_body,
    file_name_of,
    has_extras,
    in_channel_of,
    is_text_of,
    split_text,
    without_embeds,
    without_extras,
    without_files,
    without_reference,
)
from bot import Choice, Clock, CommandResponse, Content, crash_point
from bot.platform import (
    BoundedDict,
    BoundedSet,
    ChannelProblems,
    Delivery,
    DeliveryError,
    DeliveryHeld,
    DeliveryUnknown,
    KnownPeople,
    MessageGone,
    NotSent,
    Undeliverable,
)

logger = logging.getLogger(__name__)

SendRequest = Callable[..., Awaitable[Any]]

NONCE_WINDOW = timedelta(seconds=100)  # Discord promises "a few minutes"; 120 s is undisputed
CLOCK_SKEW = timedelta(seconds=60)  # between Discord's clock and ours
PAGE_SIZE, MAX_PAGES = 100, 5
MAX_CHANNELS, MAX_NONCES = 2000, 1000
MESSAGE_PATH = "/channels/{channel_id}/messages/{message_id}"
PUBLIC_THREADS = (10, 11)
FAILURES = (*REQUEST_ERRORS, ValueError)  # ValueError: a body that is not JSON


class MessageSender:
    """Sends, edits and reconciles the deliveries of one account. Raises DeliveryError."""

    def __init__(self, send_request: SendRequest, clock: Clock) -> None:
        self._send_request = send_request
        self._known_people = KnownPeople[str]()
        self._clock = clock
        # by channel: why it refuses messages; it is left alone until a message is received from it
        self._unwritable = BoundedDict[str, str](MAX_CHANNELS)
        self._parents = BoundedDict[str, str](MAX_CHANNELS)  # by thread: the channel in which its answers are sent
        self._problems = ChannelProblems(logger, "Discord channel")
        self._nonces = BoundedSet[str](MAX_NONCES)

    def has_sent(self, nonce: str) -> bool:
        """Return whether a message with this nonce was sent here lately."""
        return nonce in self._nonces

    def note_author(self, channel_id: str, user_id: str) -> None:
        """Record that a user wrote in a channel: it takes messages again, and the user may be mentioned there."""
        self._unwritable.pop(channel_id, None)
        self._known_people.note_user(channel_id, user_id)

    async def deliver(self, delivery: Delivery, bot_id: int) -> str:
        """Send a part; if an earlier attempt is too old for its nonce, search for it first.

        Where the channel cannot be read, it is sent all the same: it was not sent, or an operator decided so.
        """
        if delivery.attempts > 1 and not self._is_protected(delivery):
            with suppress(DeliveryHeld):
                if message_id := await self._find_message(delivery, bot_id):
                    return message_id
        return await self._send(delivery, bot_id)

    async def reconcile(self, delivery: Delivery, bot_id: int) -> str:
        """Resend an unclear part while its nonce protects it; after that, search for it."""
        if self._is_protected(delivery):
            try:
                return await self._send(delivery, bot_id)
            except NotSent as error:
                raise DeliveryUnknown(str(error), retry_after=error.retry_after) from error
        message_id = await self._find_message(delivery, bot_id)
        if not message_id:
            raise NotSent("it is not in the channel")
        return message_id

    async def edit(self, delivery: Delivery, bot_id: int) -> str:
        """Edit the message that a part replaces; an empty part deletes it.

        Where the last edit of a streamed reply is refused, the reply is sent as a new message instead, and what was
        shown of it is deleted.
        """
        content = delivery.content
        channel_id, _, message_id = delivery.replaces_external_id.rpartition("/")
        ids = {"channel_id": channel_id or delivery.target, "message_id": message_id}
        if not (content.text or content.attachments or content.choices):
            try:
                await self._send_unarchived(Route("DELETE", MESSAGE_PATH, **ids))
            except _MessageNotFound:
                logger.debug("message %s was deleted already", delivery.replaces_external_id)
            return delivery.replaces_external_id
        body = build_edit_body(content, self._known_people.of(delivery.target))
        try:
            await self._send_in_steps(delivery, Route("PATCH", MESSAGE_PATH, **ids), body)
        except _MessageNotFound:
            raise MessageGone("the message was deleted in the channel: it is not sent again") from None
        except _Refused as error:
            if delivery.draft_id in ("", delivery.id):  # it replaces a whole message, or more of the reply follows
                raise
            logger.info("part %s is sent as a new message: %s", delivery.id, error)
        else:
            return delivery.replaces_external_id
        draft = Route("DELETE", MESSAGE_PATH, **ids)
        try:
            new_id = await self.deliver(delivery, bot_id)
        except Undeliverable:
            await self._delete_quietly(draft)
            raise
        await self._delete_quietly(draft)
        return new_id

    async def _delete_quietly(self, route: Route) -> None:
        try:
            await self._send_unarchived(route)
        except DeliveryError as error:
            logger.info("the beginning of a reply stays in channel %s: %s", route.channel_id, error)

    def _is_protected(self, delivery: Delivery) -> bool:
        """Return whether Discord still deduplicates the part by its nonce."""
        return self._clock() - (delivery.first_attempt_at or delivery.created_at) <= NONCE_WINDOW

    async def _send(self, delivery: Delivery, bot_id: int) -> str:
        """Send a part; Discord answers a repeated nonce with the existing message.

        What is refused in a public thread is sent in its channel; the id has that channel's before it then.
        """
        if cause := self._unwritable.get(delivery.target):
            raise Undeliverable(cause)
        body = build_body(delivery, self._known_people.of(delivery.target))
        self._nonces.add(delivery.id)
        crash_point("send.pre_write")
        try:
            return await self._create(delivery, delivery.target, body)
        except _Refused as error:
            refusal = error
        channel = await self._read(Route("GET", "/channels/{channel_id}", channel_id=delivery.target))
        await self._check_timeout(channel, bot_id)
        parent_id = str(channel.get("parent_id") or "") if channel.get("type") in PUBLIC_THREADS else ""
        if parent_id and refusal.is_of_channel:
            try:
                message_id = await self._create(delivery, parent_id, in_channel_of(delivery.target, body))
            except _Refused:
                logger.debug("part %s is refused in channel %s too", delivery.id, parent_id)
            else:
                self._parents[delivery.target] = parent_id
                self._problems.report(
                    delivery.target, f"{refusal}: answers for this thread are sent in channel {parent_id}"
                )
                return f"{parent_id}/{message_id}"
        if refusal.is_of_channel:
            self._unwritable[delivery.target] = str(refusal)
        raise refusal

    async def _create(self, delivery: Delivery, channel_id: str, body: MessageBody) -> str:
        route = Route("POST", "/channels/{channel_id}/messages", channel_id=channel_id)
        return _parse_message_id(await self._send_in_steps(delivery, route, body))

    async def _send_in_steps(self, delivery: Delivery, route: Route, body: MessageBody) -> Any:
        """Send a body; leave out what Discord refuses of it, one after another, and report what the bot may not do."""
        missing: list[str] = []
        while True:
            try:
                response = await self._send_unarchived(route, body)
            except _Refused as error:
                step = _next_step(error, body)
                if step is None:
                    raise
                body, permission = step
                missing += [permission] * bool(permission)
                logger.info("part %s is sent with less: %s", delivery.id, error)
                continue
            for permission in missing:
                problem = f"messages there lack what needs the permission {permission}: give it to the bot"
                self._problems.report(str(route.channel_id), problem)
            return response

    async def _send_unarchived(self, route: Route, body: MessageBody | None = None) -> Any:
        """Send a request; if its thread is archived, reopen that first."""
        try:
            return await self._request(route, body)
        except _Refused as error:
            if error.code != THREAD_ARCHIVED:
                raise
            thread = Route("PATCH", "/channels/{channel_id}", channel_id=route.channel_id)
            try:
                await self._request(thread, MessageBody({"archived": False}))
            except DeliveryError:
                raise error from None
        return await self._request(route, body)

    async def _request(self, route: Route, body: MessageBody | None = None) -> Any:
        try:
            return await _send_body(self._send_request, route, body)
        except ErrorResponse as error:
            if error.code == UNKNOWN_MESSAGE:
                raise _MessageNotFound(str(error)) from error
            cause = to_delivery_error(error)
            raise _Refused(str(cause), error) if isinstance(cause, Undeliverable) else cause from error
        except FAILURES as error:
            raise to_delivery_error(error) from error

    async def _read(self, route: Route) -> dict[str, Any]:
        """Return an object of Discord's; empty where it cannot be read."""
        try:
            response = await self._send_request(route)
        except FAILURES as error:
            logger.debug("%s could not be read: %s", route.url, error)
            return {}
        return response if isinstance(response, dict) else {}

    async def _check_timeout(self, channel: Mapping[str, Any], bot_id: int) -> None:
        """Raise NotSent while a moderator's timeout keeps the bot from writing in the server of a channel."""
        if not (guild_id := channel.get("guild_id")):
            return
        path = "/guilds/{guild_id}/members/{user_id}"
        member = await self._read(Route("GET", path, guild_id=guild_id, user_id=bot_id))
        until = parse_time(member.get("communication_disabled_until"))
        seconds = (until - self._clock()).total_seconds() if until is not None else 0.0
        if until is not None and seconds > 0:
            cause = f"a moderator of the server has given the bot a timeout until {until:%Y-%m-%d %H:%M} UTC"
            self._problems.report(str(channel["id"]), cause)
            raise NotSent(cause, retry_after=seconds)

    async def _find_message(self, delivery: Delivery, bot_id: int) -> str:
        """Search the messages since the first attempt.

        Raises DeliveryUnknown if they cannot be read now, DeliveryHeld if they never can be.
        """
        channel_id = self._parents.get(delivery.target, delivery.target)
        after_id = time_snowflake((delivery.first_attempt_at or delivery.created_at) - CLOCK_SKEW)
        for _ in range(MAX_PAGES):
            page = await self._fetch_page(channel_id, after_id)
            for message in page:
                if _is_same_message(message, delivery, bot_id):
                    message_id = str(message["id"])
                    return message_id if channel_id == delivery.target else f"{channel_id}/{message_id}"
            if len(page) < PAGE_SIZE:
                return ""
            after_id = max(int(message["id"]) for message in page)
        raise DeliveryHeld("too many messages were sent since to search them all")

    async def _fetch_page(self, channel_id: str, after_id: int) -> list[Any]:
        route = Route("GET", "/channels/{channel_id}/messages", channel_id=channel_id)
        try:
            page: list[Any] = await self._send_request(route, params={"after": str(after_id), "limit": str(PAGE_SIZE)})
        except ErrorResponse as error:
            if error.is_final:
                raise DeliveryHeld(f"the channel cannot be read to see whether it arrived: {error}") from error
            raise _to_not_searched(error) from error
        except FAILURES as error:
            raise _to_not_searched(error) from error
        return page


class _Refused(Undeliverable):
    """Discord refuses a request for good."""

    def __init__(self, cause: str, error: ErrorResponse) -> None:
        super().__init__(cause)
        self.status, self.code = error.status, error.code

    @property
    def is_of_channel(self) -> bool:
        """Whether it concerns the channel, and not what is sent."""
        return self.status in (403, 404) or self.code in (THREAD_ARCHIVED, THREAD_LOCKED)


class _MessageNotFound(Undeliverable):
    """The message does not exist any more."""


def _to_not_searched(error: Exception) -> DeliveryUnknown:
    cause = to_delivery_error(error)
    retry_after = cause.retry_after if isinstance(cause, NotSent | DeliveryUnknown) else None
    return DeliveryUnknown(f"it could not be searched for yet: {cause}", retry_after=retry_after)


def _next_step(error: _Refused, body: MessageBody) -> tuple[MessageBody, str] | None:
    """Return what to send instead of a refused body, and the permission that the bot lacks; None if nothing is left."""
    if error.code == NO_MESSAGE_HISTORY and "message_reference" in body.json:
        return without_reference(body), "Read Message History"
    if error.code == MISSING_PERMISSIONS and body.files:
        return without_files(body), "Attach Files"
    if error.code == MISSING_PERMISSIONS and body.json.get("embeds"):
        return without_embeds(body), "Embed Links"
    if error.status in (400, 413) and not error.is_of_channel and has_extras(body):
        return without_extras(body), ""
    return None


async def _send_body(send_request: SendRequest, route: Route, body: MessageBody | None) -> Any:
    if body is None:
        return await send_request(route)
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
    reference = str((message.get("message_reference") or {}).get("message_id", ""))
    expected_reference = delivery.reply_to if delivery.reply_to.isdigit() else ""
    received_names = [attachment.get("filename") for attachment in message.get("attachments") or ()]
    sent_names = [
        file_name_of(attachment) for attachment in delivery.content.attachments if attachment.data is not None
    ]
    # what the bot may not do in a channel is left out
    has_files, is_answer = received_names in (sent_names, []), reference in (expected_reference, "")
    return is_answer and has_files and is_text_of(str(message.get("content")), delivery)


ADDRESS_PREFIX = "interaction/"
KIND_KEY = "interaction"
LIFETIME = timedelta(minutes=15)  # of an interaction
EPHEMERAL_FLAG = 64
FOLLOW_UP_PATH = "/webhooks/{webhook_id}/{webhook_token}"
ORIGINAL_PATH = "/webhooks/{webhook_id}/{webhook_token}/messages/@original"
EXPIRED = "the interaction has expired: Discord takes a response for fifteen minutes"
UNCLEAR = "it is unknown whether it arrived, and Discord cannot be asked: it is not sent again"


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
