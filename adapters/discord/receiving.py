"""Ordered queue of gateway events → inbox."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import discord
from discord.gateway import ReconnectWebSocket

from adapters.discord import incoming
from adapters.discord.backfill import Backfill
from adapters.discord.client import Client, Heard, Session
from adapters.discord.config import DiscordSettings, Limits
from adapters.discord.entities import PLATFORM, Places, lineage
from adapters.discord.incoming import denied, is_ignored
from adapters.discord.membership import NewsDesk
from adapters.discord.sending import Company
from bot import Clock
from bot.platform import Arrival, Cursor, Door, IntakeClosed, MentionContext
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)

SESSION = "gateway"
MOST_AT_ONCE = 100
STORE_PAUSE = 1.0
BEGUN = "connect"
STANDS = ("ready", "resumed")
LATE = "guild_available"


class Listener:
    """Takes in what one account hears, in its order, and with it how far the gateway has been read.

    After a new session was begun nothing of what is said is taken in before what was missed is: else
    nobody could tell any more where the gap began.
    """

    def __init__(
        self,
        door: Door,
        client: Client,
        places: Places,
        settings: DiscordSettings,
        limits: Limits,
        *,
        company: Company,
        clock: Clock,
        stands: Callable[[], None],
    ) -> None:
        self._door, self._client, self._places = door, client, places
        self._settings, self._limits, self._clock = settings, limits, clock
        self._company = company
        self._stands = stands
        self.waiting = Waiting(limits.waiting)
        self._kept_back: list[Heard] | None = None
        self._backfill = Backfill(door, client, places, limits)
        self._told: dict[str, Callable[..., Awaitable[object]]] = {
            **NewsDesk(door, places).told,
            "raw_message_edit": self._edited,
            "raw_message_delete": self._deleted,
            "raw_bulk_message_delete": self._deleted_many,
            "raw_reaction_add": self._reacted,
            "raw_reaction_remove": self._unreacted,
            "raw_reaction_clear": self._unreacted,
            "raw_reaction_clear_emoji": self._unreacted,
        }

    def hear(self, heard: Heard) -> None:
        """Line up something that happened."""
        if heard.name in self._told or heard.name in ("message", BEGUN, *STANDS):
            self.waiting.add(heard)

    async def listen(self) -> None:
        """Take in whatever is lined up, until the inbox closes."""
        try:
            while True:
                await self._take_all(await self.waiting.next(MOST_AT_ONCE))
                self.waiting.kept()
        except IntakeClosed:
            logger.debug("nothing more is taken in from Discord")

    async def _take_all(self, batch: Sequence[Heard]) -> None:
        """Take in a batch; messages that follow one another are kept at once."""
        messages: list[Heard] = []
        for heard in batch:
            if heard.name == "message" and self._kept_back is None:
                messages.append(heard)
                continue
            await self._surely(self._keep, messages)
            messages = []
            await self._surely(self._take, heard)
        await self._surely(self._keep, messages)

    async def _surely(self, take: Callable[[Any], Awaitable[None]], what: Any) -> None:
        """Take something in as soon as it can be kept; what is beyond understanding is left out."""
        while what:
            try:
                await take(what)
            except StoreUnavailable:
                await self._limits.pause(STORE_PAUSE)
                continue
            except IntakeClosed:
                raise
            except Exception:
                if (
                    isinstance(what, list) and len(what) > 1
                ):  # one of them is to blame, and costs itself alone
                    for one in what:
                        await self._surely(take, [one])
                else:
                    logger.warning("something that happened on Discord was not taken in", exc_info=True)
            return

    async def _take(self, heard: Heard) -> None:
        if heard.name == BEGUN:
            self._kept_back = []
        elif heard.name in STANDS:
            self._stands()
            await self._back(heard.session)
        elif self._kept_back is not None and heard.name not in NewsDesk.FIRST:
            self._kept_back.append(heard)
        else:
            await self._told[heard.name](*heard.args)
            if heard.name == LATE and self._kept_back is None:
                await self._fill(self._backfill.missed_of(*heard.args))

    async def _back(self, session: Session | None) -> None:
        """Take in what was missed, and only then what was said meanwhile."""
        if self._kept_back is None:
            return
        await self._fill(self._backfill.missed())
        kept_back, self._kept_back = self._kept_back, None
        await self._take_all(kept_back)
        await self._door.inbox.put_all([], self._place(session))

    async def _fill(self, gap: AsyncIterator[list[discord.Message]]) -> None:
        try:
            async for missed in gap:
                arrivals = [one for one in (self._arrival(said, is_backfill=True) for said in missed) if one]
                await self._door.inbox.put_all(arrivals)
        except (StoreUnavailable, IntakeClosed):
            raise
        except Exception:  # what is said now must not wait for what was said then
            logger.exception("what was missed on Discord could not be read")

    async def _keep(self, messages: Sequence[Heard]) -> None:
        arrivals = [one for one in (self._arrival(*heard.args) for heard in messages) if one]
        place = self._place(messages[-1].session)
        if arrivals or place:
            await self._door.inbox.put_all(arrivals, place)

    def _place(self, session: Session | None) -> Cursor | None:
        return Cursor(PLATFORM, self._places.account, SESSION, session.written()) if session else None

    def _arrival(self, message: discord.Message, *, is_backfill: bool = False) -> Arrival | None:
        """Make the arrival of a message, with the rule that forbids an answer; None where it is not kept."""
        try:
            if not self._is_wanted(message):
                return None
            mention = self._mention(message)
            if mention is None:
                return None
            self._company.heard(str(message.channel.id), str(message.author.id))
            return incoming.message_received(message, self._places, mention, is_backfill=is_backfill)
        except Exception:
            logger.warning("message %s could not be read", message.id, exc_info=True)
            return None

    def _is_wanted(self, message: discord.Message) -> bool:
        if not incoming.is_said(message) or incoming.is_own(
            message, self._places, self._client.application_id
        ):
            return False
        is_bot = bool(message.author.bot or message.webhook_id)
        return not is_ignored(self._settings, is_bot=is_bot)

    def _mention(self, message: discord.Message) -> MentionContext | None:
        """Read how a message addresses us, and weigh it against the rules; None where it is not kept."""
        home = incoming.home_of(message)
        names = lineage(message.channel, home)
        rule = self._door.rules.find(PLATFORM, *names)
        if rule.is_ignored:
            return None
        mention = incoming.mention_of(message, self._places.own_id)
        return denied(mention, names, self._settings, rule, is_direct=home is None)

    async def _edited(self, told: discord.RawMessageUpdateEvent) -> None:
        message, at = told.message, told.message.edited_at
        mention = self._mention(message) if at is not None and self._is_wanted(message) else None
        if at is not None and mention is not None:
            await self._door.changes.edited(incoming.message_edited(message, at, self._places, mention))

    async def _deleted(self, told: discord.RawMessageDeleteEvent) -> None:
        await self._door.changes.deleted(self._places.room_id(told.channel_id), [str(told.message_id)])

    async def _deleted_many(self, told: discord.RawBulkMessageDeleteEvent) -> None:
        gone = sorted(map(str, told.message_ids))
        await self._door.changes.deleted(self._places.room_id(told.channel_id), gone)

    async def _reacted(self, told: discord.RawReactionActionEvent) -> None:
        if told.user_id == self._places.own_id:
            return
        channel = self._client.get_channel(told.channel_id) or self._client.get_partial_messageable(
            told.channel_id, guild_id=told.guild_id
        )
        guild = self._client.get_guild(told.guild_id) if told.guild_id else None
        await self._door.changes.reacted(
            incoming.reacted(told, channel, guild, self._places, at=self._clock())
        )

    async def _unreacted(
        self,
        told: discord.RawReactionActionEvent
        | discord.RawReactionClearEvent
        | discord.RawReactionClearEmojiEvent,
    ) -> None:
        user_id, emoji = getattr(told, "user_id", None), getattr(told, "emoji", None)
        await self._door.changes.unreacted(
            self._places.room_id(told.channel_id),
            str(told.message_id),
            author_id=self._places.person_id(user_id) if user_id else None,
            sign=str(emoji or ""),
        )


class Overfull(ReconnectWebSocket):
    """So much waits that the connection is ended; it is to be gone on with once there is room."""


class Waiting:
    """Lines up what was heard, in its order.

    Once so much waits it is full, until all of it is taken in. Nothing more is to be read then: what is
    not read comes again when the session is gone on with, or is fetched.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._heard: asyncio.Queue[Heard] = asyncio.Queue()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self._taken = 0
        self._is_told = False

    def __len__(self) -> int:
        return self._heard.qsize() + self._taken

    def add(self, heard: Heard) -> None:
        """Line up something; also where it is full: that much had been read by then."""
        self._heard.put_nowait(heard)
        if len(self) >= self._most:
            self._has_room.clear()

    async def next(self, most: int) -> Sequence[Heard]:
        """Wait for something, and take what stands behind it as well, so many at most."""
        taken = [await self._heard.get()]
        while len(taken) < most and not self._heard.empty():
            taken.append(self._heard.get_nowait())
        self._taken = len(taken)
        return taken

    def kept(self) -> None:
        """Note that what was taken last has been kept."""
        self._taken = 0
        if len(self):
            return
        self._has_room.set()
        if self._is_told:
            self._is_told = False
            logger.warning("what waited of Discord is kept: it is read on")

    async def admit(self, seconds: float) -> None:
        """Wait for room before more is read; raises Overfull where in so many seconds there is none."""
        try:
            async with asyncio.timeout(seconds):
                await self._has_room.wait()
        except TimeoutError:
            if not self._is_told:
                self._is_told = True
                logger.warning(
                    "%d things that happened on Discord cannot be kept: no more is read until they are",
                    len(self),
                )
            raise Overfull(None) from None

    async def until_room(self) -> None:
        """Wait until there is room again."""
        await self._has_room.wait()
