"""Questions from outside: by a command where the bot is no member, or about a message, answered to the asker only.

Each is a room of its own. Answers are sent with the token of the interaction, which for its fifteen minutes is in the
cache of the store and nowhere else: rooms and deliveries contain the id of the interaction.
"""

import logging
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import discord
from discord.http import Route
from discord.utils import snowflake_time

import bot.platform as bp
from adapters.discord import sending
from adapters.discord.config import PLATFORM
from adapters.discord.errors import REQUEST_ERRORS, UNKNOWN_MESSAGE, ErrorResponse
from adapters.discord.incoming import EntityMapper, quote
from bot import ChannelType, Clock, Content, Outcome, Receipt, Room, World, crash_point, derived_id
from bot.events import MessageClosed
from bot.text import shorten, user_text

logger = logging.getLogger(__name__)
WORLD_NAME = "Questions from outside"
MENU_TYPE = 3  # of a command in the menu of a message
GUILD_INSTALL, USER_INSTALL = 0, 1
MESSAGE_PATH = "/webhooks/{webhook_id}/{webhook_token}/messages/{message_id}"
DUPLICATE_NOTICE = "↻ may be a duplicate:\n"
UNKNOWN_WEBHOOK = 10015  # also that of an interaction that is not acknowledged yet
ACKNOWLEDGE_TIME, RETRY_SECONDS = timedelta(seconds=10), 0.5  # for the acknowledgement of an interaction


def menu_name(character_name: str) -> str:
    """Return the name of the command in the menu of a message; Discord allows 32 characters."""
    return f"Ask {shorten(character_name, 17)} about this"


def is_from_outside(interaction: discord.Interaction[Any]) -> bool:
    """Return whether an interaction was made where the bot is no member, by a person who has installed it."""
    owners = interaction._integration_owners  # of the library, which has no complete access to it
    return USER_INSTALL in owners and GUILD_INSTALL not in owners and not interaction.context.dm_channel


def build_question(
    interaction: discord.Interaction[Any], mapper: EntityMapper, mention: bp.MentionContext
) -> bp.InboundMessage:
    """Return the question of a command or about a message, in a room and a world that only its author shares."""
    data: Any = interaction.data or {}
    quotation = None
    text = next((str(option.get("value")) for option in data.get("options") or ()), "")
    if data.get("type") == MENU_TYPE:
        message = data["resolved"]["messages"][data["target_id"]]
        channel: Any = interaction.channel
        quotation = quote(discord.Message(state=interaction._state, channel=channel, data=message), mapper)
        text = user_text("discord.menu_question")
    author, external_id = (mapper.user_of(interaction), f"{sending.OUTSIDE_PREFIX}{interaction.id}")
    world_name = f"{sending.OUTSIDE_PREFIX}{interaction.user.id}"
    world = World(mapper.world_id(world_name), PLATFORM, world_name, WORLD_NAME)
    room = replace(
        mapper.to_room(interaction.channel, interaction.guild_id),
        id=mapper.room_id(external_id),
        world_id=world.id,
        type=ChannelType.GROUP,
        external_id=external_id,
        name=WORLD_NAME,
        parent_id=None,
    )
    return bp.InboundMessage.build(
        world,
        room,
        author,
        Content(text=text, source=PLATFORM, mention=mention, quotation=quotation),
        created_at=interaction.created_at,
        message_id=str(interaction.id),
        event_id=f"{sending.OUTSIDE_PREFIX}{interaction.id}",
    )


class OutsideQuestions:
    """Submits questions from outside and sends the answers. `application_id` is known once the account is logged in."""

    def __init__(
        self,
        handle: bp.AgentHandle,
        send_request: sending.SendRequest,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        application_id: Callable[[], int],
    ) -> None:
        self._handle, self._send_request, self._clock, self._sleep = handle, send_request, clock, sleep
        self._application_id = application_id
        self._tasks = bp.TaskSet("saying why a question from outside is not answered")
        self._unsubscribe = handle.subscribe(MessageClosed, lambda event: self.explain(event.receipt))

    async def stop(self) -> None:
        """Stop explaining."""
        self._unsubscribe()
        await self._tasks.cancel()

    async def submit(self, interaction: discord.Interaction[Any], question: bp.InboundMessage) -> Receipt:
        """Store a question and the token with which it is answered; what was stored before is stored once."""
        expires_at = interaction.created_at + sending.LIFETIME
        await self._handle.cache.set(_token_key(str(interaction.id)), interaction.token, expires_at=expires_at)
        crash_point("outside.token_stored")
        return await self._handle.submit(question)

    async def find_place(self, interaction: discord.Interaction[Any]) -> tuple[World, Room] | None:
        """Return where a question was asked if a button of its answer is pressed; None for any other button."""
        metadata = interaction.message.interaction_metadata if interaction.message is not None else None
        if metadata is None:
            return None
        room_id = derived_id(self._handle.agent_id, PLATFORM, "room", f"{sending.OUTSIDE_PREFIX}{metadata.id}")
        room = await self._handle.conversations.room(room_id)
        world = await self._handle.conversations.world(room.world_id) if room is not None else None
        return (world, room) if room is not None and world is not None else None

    def explain(self, receipt: Receipt) -> None:
        """Show in the background why a question from outside is not answered; do nothing about any other message."""
        is_final = receipt.outcome.is_final and receipt.outcome is not Outcome.ANSWERED
        if is_final and receipt.key.platform == PLATFORM and receipt.key.event_id.startswith(sending.OUTSIDE_PREFIX):
            self._tasks.start(self._explain(receipt))

    async def _explain(self, receipt: Receipt) -> None:
        if await self._handle.conversations.room_deliveries(receipt.room_id):
            return  # such as a notice that says it
        body = sending.build_visible_body(Content(text=f"{bp.describe_receipt(receipt, self._handle.character.name)}."))
        while True:
            try:
                await self._request(receipt.key.message_id, "PATCH", sending.ORIGINAL_PATH, body)
            except bp.NotSent as error:
                await self._sleep(error.retry_after or RETRY_SECONDS)
                continue
            except Exception as error:  # the receipt has it all the same
                logger.info("the asker of a question from outside is not told why it is not answered: %s", error)
            return

    async def deliver(self, delivery: bp.Delivery, *, is_repeat: bool = False) -> str:
        """Send a part, the first in place of "thinking…", and return its message id; a repeated one is marked."""
        interaction_id, body = (
            delivery.target.removeprefix(sending.OUTSIDE_PREFIX),
            sending.build_visible_body(delivery.content),
        )
        if await self._is_first(delivery):
            method, path = "PATCH", sending.ORIGINAL_PATH  # however often, it is seen once
        else:
            method, path = "POST", sending.FOLLOW_UP_PATH
            body.json["flags"] = sending.EPHEMERAL_FLAG
            if is_repeat:
                body.json["content"] = DUPLICATE_NOTICE + body.json["content"]
            if len(body.json["content"]) > sending.MAX_TEXT_LENGTH:
                raise bp.Undeliverable(sending.UNCLEAR)
        message = await self._request(interaction_id, method, path, body)
        crash_point("send.post_write")
        return str(message["id"])

    async def reconcile(self, delivery: bp.Delivery) -> str:
        """Send a part again of which it is unknown whether it arrived."""
        try:
            return await self.deliver(delivery, is_repeat=True)
        except bp.NotSent as error:  # the retry after that would carry no mark
            raise bp.DeliveryUnknown(str(error), retry_after=error.retry_after) from error

    async def edit(self, delivery: bp.Delivery) -> str:
        """Edit or delete the message that a part replaces."""
        interaction_id, content = delivery.target.removeprefix(sending.OUTSIDE_PREFIX), delivery.content
        is_empty = not (content.text or content.attachments or content.choices)
        method, body = ("DELETE", None) if is_empty else ("PATCH", sending.build_edit_body(content, ()))
        await self._request(interaction_id, method, MESSAGE_PATH, body, message_id=delivery.replaces_external_id)
        return delivery.replaces_external_id

    async def _is_first(self, delivery: bp.Delivery) -> bool:
        others = await self._handle.conversations.room_deliveries(delivery.room_id)
        return all(other.seq >= delivery.seq for other in others)

    async def _request(
        self, interaction_id: str, method: str, path: str, body: sending.MessageBody | None, **ids: str
    ) -> Any:
        """Send a request with the token of an interaction. Raises DeliveryError."""
        age = self._clock() - snowflake_time(int(interaction_id))
        token = await self._handle.cache.get(_token_key(interaction_id)) if age < sending.LIFETIME else None
        if token is None:
            raise bp.Undeliverable(sending.EXPIRED)
        route = Route(method, path, webhook_id=self._application_id(), webhook_token=token, **ids)
        try:
            return await sending.send_body(self._send_request, route, body)
        except (*REQUEST_ERRORS, ValueError) as error:
            code = error.code if isinstance(error, ErrorResponse) else 0
            if code == UNKNOWN_MESSAGE:
                raise bp.MessageGone("the message was deleted: it is not sent again") from error
            if code == UNKNOWN_WEBHOOK and age < ACKNOWLEDGE_TIME:
                raise bp.NotSent("the interaction is not acknowledged yet", retry_after=RETRY_SECONDS) from error
            raise sending.to_response_error(error) from error


def _token_key(interaction_id: str) -> str:
    return f"{PLATFORM} interaction {interaction_id}"
