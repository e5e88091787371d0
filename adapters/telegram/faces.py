"""The characters that share one bot: under which names they write, and what each hears of the others.

Telegram tells a bot nothing of its own messages: what a character has sent is passed on to the others here.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from uuid import UUID

from telegram import Chat, Message, Update

import bot.platform as bp
from adapters.telegram import incoming
from adapters.telegram.config import account_of_face
from adapters.telegram.outgoing import display_name_of
from bot import BotError, Content, Room, World
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
MAX_MESSAGES = 10_000  # whose authors are kept in memory; those of others are looked up
HEARING_TIMEOUT = 5.0


class Faces:
    """The characters of one bot, and who of them wrote which message. Raises ConfigError as `Cast` does."""

    def __init__(self, bot_id: str, handles: Sequence[bp.AgentHandle], time_source: bp.TimeSource) -> None:
        self._accounts = {
            handle.agent_id: account_of_face(bot_id, handle.agent_id, is_first=handle is handles[0])
            for handle in handles
        }
        self._handles = {self._accounts[handle.agent_id]: handle for handle in handles}
        self._bot_id, self._time = bot_id, time_source
        self._authors = bp.BoundedDict[tuple[int, str], bp.AgentHandle](MAX_MESSAGES)  # by chat and message
        self.cast = bp.Cast(incoming.PLATFORM, handles, self._locate, time_source.now)

    def account_of(self, handle: bp.AgentHandle) -> str:
        """Return the account in the rooms and event keys of a character; that of the first is the bot's id."""
        return self._accounts[handle.agent_id]

    async def find_name(self, delivery: bp.Delivery) -> str:
        """Return the name that stands before the text of a part; empty for a response, and who speaks alone there."""
        if delivery.content.source == bp.RESPONSE_SOURCE:
            return ""
        handle = self._handles[delivery.account]
        with suppress(StoreUnavailable):
            if await self.cast.is_alone(handle, self._room_of_first(incoming.ChatTarget.parse(delivery.target))):
                return ""
        return handle.character.name

    async def address(
        self, update: Update, context: incoming.IncomingContext, topic_id: int | None
    ) -> incoming.Addressing | None:
        """Return who speaks in the room of an update, and who wrote what it answers; None for one without a room.

        `context` is that of the first character, `topic_id` the topic of a message with a reaction. Raises
        StoreUnavailable.
        """
        message = update.guest_message or update.effective_message
        if update.message_reaction is not None:
            room = incoming.locate_reaction(update.message_reaction, context, topic_id).room
        elif isinstance(message, Message):
            room = incoming.locate_message(message, context).room
        else:
            return None
        answered = message
        if update.callback_query is None:
            answered = message.reply_to_message if isinstance(message, Message) else None
        author: bp.AgentHandle | None = None
        if isinstance(answered, Message) and answered.from_user and str(answered.from_user.id) == self._bot_id:
            author = await self._find_author(incoming.ChatTarget.parse(room.external_id), str(answered.message_id))
        return incoming.Addressing(self.cast, await self.cast.members(room), author)

    async def note_sent(self, delivery: bp.Delivery, message_id: str) -> None:
        """Note who has sent a message, and tell the other members of the cast, unless it is a draft or a response.

        What they are told may be lost where the process is killed before, or they take nothing more.
        """
        handle, target = self._handles[delivery.account], incoming.ChatTarget.parse(delivery.target)
        self._authors[target.chat_id, message_id] = handle
        if delivery.draft_id == delivery.id or delivery.content.source == bp.RESPONSE_SOURCE or target.guest_query_id:
            return
        try:
            async with asyncio.timeout(HEARING_TIMEOUT):
                for member in await self.cast.members(self._room_of_first(target)):
                    if member is not handle:
                        await self._tell(member, handle, delivery, message_id)
        except (BotError, TimeoutError) as error:
            logger.info("what %s wrote was not told to all others: %s", handle.character.name, error)

    async def _tell(
        self, listener: bp.AgentHandle, author: bp.AgentHandle, delivery: bp.Delivery, message_id: str
    ) -> None:
        content = delivery.content
        text = content.text or "".join(f"[{display_name_of(file)}]" for file in content.attachments)
        if not text:
            room_id = incoming.derive_room_id(self.account_of(listener), incoming.ChatTarget.parse(delivery.target))
            await listener.edits.delete_messages(room_id, [message_id])
            return
        room = await author.conversations.room(delivery.room_id)
        world = await author.conversations.world(room.world_id) if room is not None else None
        if room is None or world is None:
            return
        now, is_edit = self._time.now(), bool(delivery.replaces_external_id)
        world, room = await self._locate(listener, world, room)
        inbound = bp.InboundMessage.build(
            replace(world, roles={}),
            room,
            self.cast.entity_of(author, listener.agent_id),
            Content(text=text, source=incoming.PLATFORM, mention=bp.MentionContext(denied_by=bp.OF_ANOTHER)),
            created_at=now,
            message_id=message_id,
            event_id=f"sent {delivery.id}",
            revision=int(1000 * now.timestamp()) if is_edit else 0,
        )
        await (listener.edits.submit_edit(inbound) if is_edit else listener.submit(inbound))

    async def _find_author(self, target: incoming.ChatTarget, message_id: str) -> bp.AgentHandle:
        """Return who has sent a message of the bot, as the ledger says; the first where none of them knows it."""
        key = target.chat_id, message_id
        if key not in self._authors:
            self._authors[key] = self.cast.first
            for handle in self.cast.handles:
                room_id = incoming.derive_room_id(self.account_of(handle), target)
                if await handle.conversations.has_sent(room_id, message_id):
                    self._authors[key] = handle
        return self._authors[key]

    def _room_of_first(self, target: incoming.ChatTarget) -> Room:
        identity = incoming.BotIdentity(self.cast.first.agent_id, self._bot_id)
        chat = Chat(target.chat_id, Chat.SUPERGROUP if target.chat_id < 0 else Chat.PRIVATE)
        return incoming.build_location(
            identity,
            chat,
            target.thread_id,
            guest_query_id=target.guest_query_id,
            direct_topic_id=target.direct_topic_id,
        ).room

    async def _locate(self, handle: bp.AgentHandle, world: World, room: Room) -> tuple[World, Room]:
        """Return a world and a room as another character of the bot knows them."""
        account, target = self.account_of(handle), incoming.ChatTarget.parse(room.external_id)
        parent_id: UUID | None = None
        if target.thread_id is not None:
            parent_id = incoming.derive_room_id(account, incoming.ChatTarget(target.chat_id))
        world = replace(world, id=incoming.derive_world_id(account, world.external_id), grants={}, settings={})
        room_id = incoming.derive_room_id(account, target)
        stored = await handle.conversations.room(room_id)
        own = replace(room, id=room_id, world_id=world.id, account=account, parent_id=parent_id)
        return world, stored or own
