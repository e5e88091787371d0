"""Mention polling with stored position."""

import logging
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self

from adapters.x.client import XClient
from adapters.x.config import XSettings
from adapters.x.connection import Refused
from adapters.x.incoming import CONTEXT, PLATFORM, OwnAccount, conversation, message_received, text_of
from adapters.x.payloads import Page, Post
from adapters.x.permissions import Consent, OptOuts
from adapters.x.state import Notes
from bot import Clock
from bot.platform import Arrival, DeliveryError, Door, RoomRule, put_surely

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Everything up to `since` is kept; so is what lies from `until` to `newest`, and between them is a gap.

    X gives the newest first. A page that is not the last one leaves a gap below it, which is read before
    anything newer: no mention is passed over because the budget ended between two pages. `start` is the
    moment from which on mentions count where none is known yet.
    """

    since: int = 0
    newest: int = 0
    until: int = 0
    start: datetime | None = None

    @classmethod
    def read(cls, text: str) -> Self:
        """Read what `str` has written; raises ValueError."""
        first, _, gap = text.partition(" ")
        start = None if first.isdecimal() else datetime.fromisoformat(first)
        newest, _, until = gap.partition(" ")
        return cls(int(first) if start is None else 0, int(newest or 0), int(until or 0), start)

    def __str__(self) -> str:
        first = str(self.since) if self.start is None else self.start.astimezone(UTC).isoformat()
        return f"{first} {self.newest} {self.until}" if self.until else first

    def after(self, ids: Iterable[str], *, lowest: str = "", is_last: bool = True) -> Self:
        """Give the place once a page is kept: `ids` are its mentions, `lowest` the last post on it.

        `is_last` where X has nothing below it. Posts of our own are no mentions: they move nothing but the
        gap's upper end.
        """
        newest = max([self.newest, self.since, *map(int, ids)])
        if is_last:
            return type(self)(since=newest, start=None if newest else self.start)
        return type(self)(self.since, newest, int(lowest or self.until), self.start)

    @property
    def bounds(self) -> dict[str, str | datetime]:
        """The parameters with which the next page is asked for."""
        asked: dict[str, str | datetime] = {}
        if self.start is not None:
            asked["start_time"] = self.start
        elif self.since:
            asked["since_id"] = str(self.since)
        if self.until:
            asked["until_id"] = str(self.until)
        return asked


NOTE = "mentions"
LOOKED_BACK = timedelta(minutes=15)  # at the very first start; what is older is not answered anyway


class Mentions:
    """The stream of one account's mentions."""

    def __init__(
        self,
        door: Door,
        me: OwnAccount,
        client: XClient,
        settings: XSettings,
        *,
        notes: Notes,
        consent: Consent,
        opt_outs: OptOuts,
        clock: Clock,
    ) -> None:
        self._door = door
        self._me = me
        self._client = client
        self._depth = settings.x_thread_depth
        self._notes = notes
        self._consent = consent
        self._opt_outs = opt_outs
        self._clock = clock

    async def read(self) -> bool:
        """Read one page and keep it; tells whether more can be had at once.

        Not where the page leads no further down than the one before: that one would come for ever. Raises as
        the client and the inbox do.
        """
        place = await self._place()
        page = await self._client.mentions(**place.bounds)
        asked = [post for post in page.posts if post.author_id != self._me.account]
        arrivals: list[Arrival] = []
        for post in sorted(asked, key=lambda one: int(one.id)):
            rule = self._door.rules.find(PLATFORM, post.conversation_id or post.id, self._me.account)
            if not rule.is_ignored:
                arrivals += [*await self._context(post, page), await self._arrival(post, page, rule)]
        lowest = min((post.id for post in page.posts), key=int, default="")
        has_more = bool(page.next_token and lowest)
        leads_on = has_more and (not place.until or int(lowest) < place.until)
        place = place.after([post.id for post in asked], lowest=lowest, is_last=not has_more)
        await put_surely(self._door.inbox, arrivals, self._notes.cursor(NOTE, str(place)))
        return leads_on

    async def _place(self) -> Place:
        text = await self._notes.read(NOTE)
        try:
            if text:
                return Place.read(text)
        except ValueError:
            logger.warning("how far the mentions are read is not known; they are read from now on")
        place = Place(start=self._clock() - LOOKED_BACK)
        await self._notes.write(NOTE, str(place))
        return place

    async def _arrival(self, post: Post, page: Page, rule: RoomRule) -> Arrival:
        """Make a mention's arrival; who asks to be left alone is, from this moment on."""
        arrival = message_received(post, page, self._me, at=self._clock())
        await self._opt_outs.hear(post.author_id, text_of(post))
        mention = arrival.message.content.mention
        if denied := self._consent.denied_by(arrival.author) or rule.denies(mention):
            return message_received(post, page, self._me, at=self._clock(), denied_by=denied)
        return arrival

    async def _context(self, post: Post, page: Page) -> list[Arrival]:
        """Give what a mention answers and quotes, oldest first; it is kept, and no reason to speak."""
        quoted = page.others.get(post.refers("quoted"))
        above = await self._above(post, page) if self._depth else []
        shown = [*above, *([(quoted, page)] if quoted and not quoted.mentions(self._me.account) else [])]
        return [
            message_received(one, where, self._me, at=self._clock(), room_of=post, denied_by=CONTEXT)
            for one, where in shown
        ]

    async def _above(self, post: Post, page: Page) -> list[tuple[Post, Page]]:
        """Climb the thread, as far as it is unknown and the budget allows; the oldest comes first."""
        room = conversation(self._me, post.conversation_id or post.id)
        is_known = await self._door.records.room(room.id) is not None
        found: list[tuple[Post, Page]] = []
        above, where = page.others.get(post.refers("replied_to")), page
        while above is not None and not above.mentions(self._me.account):
            if not (is_known and above.author_id == self._me.account):
                found.append((above, where))
            next_id = above.refers("replied_to")
            if is_known or not next_id or len(found) >= self._depth:
                break
            try:
                where = await self._client.posts([next_id])
            except (DeliveryError, Refused) as error:
                logger.info("the thread above post %s is not read: %s", above.id, error)
                break
            above = next(iter(where.posts), None)
        return found[::-1]
