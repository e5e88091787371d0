"""Reading the mentions: a page at a time, kept together with the place up to which they are read."""

import logging
from datetime import timedelta

from adapters.x.client import XClient
from adapters.x.config import XSettings
from adapters.x.consent import Consent
from adapters.x.incoming import CONTEXT, PLATFORM, Self, conversation, message_received, text_of
from adapters.x.notes import Notes
from adapters.x.opt_outs import OptOuts
from adapters.x.payloads import Page, Post
from adapters.x.place import Place
from adapters.x.wire import Refused
from bot import Arrival, Clock, DeliveryError, Door, RoomRule, put_surely

logger = logging.getLogger(__name__)
NOTE = "mentions"
LOOKED_BACK = timedelta(minutes=15)  # at the very first start; what is older is not answered anyway


class Mentions:
    """The stream of one account's mentions."""

    def __init__(
        self,
        door: Door,
        me: Self,
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
