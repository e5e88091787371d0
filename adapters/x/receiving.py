"""Polling of mentions, with a stored position.

`OwnTimeline`: the latest posts of an account, read once for all that ask at the same time.

Deleting posts of one account, on X and in the store.
"""

import asyncio
import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Self
from uuid import UUID

import bot.platform as bp
from adapters.x.client import MAX_PAGE_SIZE, MIN_PAGE_SIZE, OptOutList, ReplyPermissions, XClient
from adapters.x.connection import NotAllowedNow, RequestRefused
from adapters.x.incoming import (
    PLATFORM,
    THREAD_CONTEXT,
    BotIdentity,
    Page,
    Post,
    build_conversation_room,
    text_of,
    to_inbound_message,
)
from adapters.x.rate_limits import AccountState
from bot import Clock

MAX_PAGES = 33  # X lists the latest 3,200 posts


@dataclass(frozen=True, slots=True)
class TimelineRead:
    """One read: the pages, back to which time they are complete, and the error that ended it."""

    number: int
    since: datetime
    complete_since: datetime
    pages: tuple[Page, ...] = ()
    error: Exception | None = None


class OwnTimeline:
    """Reads an account's own posts.

    After a crash many parts are unclear at once: those that ask while a read is in progress share the next.
    """

    def __init__(self, client: XClient) -> None:
        self._client = client
        self._lock = asyncio.Lock()
        self._asked_since: list[datetime] = []
        self._started_count = 0
        self._latest: TimelineRead | None = None

    async def read(self, since: datetime) -> TimelineRead:
        """Return a read that began after this call and goes back to `since`. Raises as the client does."""
        previous_count = self._started_count
        self._asked_since.append(since)
        try:
            async with self._lock:
                latest = self._latest
                if latest is None or latest.number <= previous_count or latest.since > since:
                    latest = self._latest = await self._read(min(self._asked_since))
        finally:
            self._asked_since.remove(since)
        if latest.error is not None:
            raise latest.error
        return latest

    async def _read(self, since: datetime) -> TimelineRead:
        self._started_count += 1
        number = self._started_count
        pages: list[Page] = []
        size, token = MIN_PAGE_SIZE, ""
        try:
            while len(pages) < MAX_PAGES:
                page = await self._client.read_own_posts(since, token, size)
                pages.append(page)
                size, token = MAX_PAGE_SIZE, page.next_token
                if not token:
                    return TimelineRead(number, since, since, tuple(pages))
        except (bp.DeliveryError, RequestRefused) as error:
            return TimelineRead(number, since, since, error=error)
        times = [post.created_at for page in pages for post in page.posts if post.created_at is not None]
        return TimelineRead(number, since, min(times, default=datetime.max.replace(tzinfo=since.tzinfo)), tuple(pages))


logger = logging.getLogger(__name__)
POSITION_KEY = "mentions"
CONVERSION_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
MAX_EMPTY_PAGES = 20  # in a row, at one look
MAX_POST_AGE = timedelta(days=7) - timedelta(minutes=1)  # X may refuse bounds that are older than seven days
BAD_REQUEST = 400
ANSWERED_RULE = "answered already"
INITIAL_LOOKBACK = timedelta(minutes=15)  # at the first start; older mentions are not answered anyway


@dataclass(frozen=True, slots=True)
class MentionPosition:
    """Mentions up to `since` and from `until` to `newest` are stored; between them is a gap.

    X returns the newest first. A page that is not the last leaves a gap below it, which is read before
    anything newer, so that no mention is skipped if the quota ends between two pages. `start` is the time
    from which mentions are read if none is stored yet.
    """

    since: int = 0
    newest: int = 0
    until: int = 0
    start: datetime | None = None

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse the text of `str`; raise ValueError."""
        first, _, gap = text.partition(" ")
        start = None if first.isdecimal() else datetime.fromisoformat(first)
        newest, _, until = gap.partition(" ")
        return cls(int(first) if start is None else 0, int(newest or 0), int(until or 0), start)

    def __str__(self) -> str:
        first = str(self.since) if self.start is None else self.start.astimezone(UTC).isoformat()
        return f"{first} {self.newest} {self.until}" if self.until else first

    def advance(self, ids: Iterable[str], *, lowest: str = "", is_last: bool = True) -> Self:
        """Return the position after a page: `ids` are its mentions, `lowest` is its oldest post.

        `is_last` means that X has no older one. The account's own posts only move the end of the gap.
        """
        newest = max([self.newest, self.since, *map(int, ids)])
        if is_last:
            return type(self)(since=newest, start=None if newest else self.start)
        return type(self)(self.since, newest, int(lowest or self.until), self.start)

    @property
    def query_bounds(self) -> dict[str, str | datetime]:
        """The query parameters of the next page."""
        parameters: dict[str, str | datetime] = {}
        if self.start is not None:
            parameters["start_time"] = self.start
        elif self.since:
            parameters["since_id"] = str(self.since)
        if self.until:
            parameters["until_id"] = str(self.until)
        return parameters


@dataclass(frozen=True, slots=True)
class MentionReceiver:
    """The mentions of one account, each with at most `_depth` posts above it."""

    _handle: bp.AgentHandle
    _identity: BotIdentity
    _client: XClient
    _state: AccountState
    _permissions: ReplyPermissions
    _opt_outs: OptOutList
    _clock: Clock
    _depth: int

    async def poll(self) -> bool:
        """Read and store one page; return whether more can be read at once.

        A page that reaches no further down than the one before ends the poll: it would repeat for ever; so do
        MAX_EMPTY_PAGES without a post. Raises as the client and the inbox do.
        """
        position = await self._load_position()
        try:
            page = await self._read_page(position.query_bounds)
        except RequestRefused as error:
            if error.status != BAD_REQUEST or position.start is not None:
                raise
            position = MentionPosition(newest=position.newest or position.since, start=self._clock() - MAX_POST_AGE)
            page = await self._read_page(position.query_bounds)
            logger.warning("older mentions than a week are not read, because X does not list them: %s", error)
        for unreadable in page.unreadable:
            await self._record_unreadable(unreadable.id, unreadable.raw, unreadable.problem)
        mentions = [post for post in page.posts if post.author_id != self._identity.account_id]
        edited_ids = {version for post in mentions for version in post.versions[: post.revision]}
        answered_ids = await self._read_answered_ids(position, mentions)
        messages: list[bp.InboundMessage] = []
        for post in sorted(mentions, key=lambda mention: int(mention.id)):
            if post.id in edited_ids:  # a later version is on this page
                continue
            try:
                is_answered = not answered_ids.isdisjoint((post.id, *post.versions))
                messages += await self._read_mention(post, page, denied_by=ANSWERED_RULE if is_answered else "")
                if post.revision:
                    await self._submit_edited(messages)
                    messages = []
            except CONVERSION_ERRORS as error:  # one mention must not stop all that follow
                await self._record_unreadable(post.id, post.model_dump(mode="json"), error)
        unreadable_ids = [post.id for post in page.unreadable if post.id]
        lowest = min((*(post.id for post in page.posts), *unreadable_ids), key=int, default="")
        has_more = bool(page.next_token)
        can_continue = bool(has_more and lowest and (not position.until or int(lowest) < position.until))
        position = position.advance(
            [*(post.id for post in mentions), *unreadable_ids], lowest=lowest, is_last=not has_more
        )
        await self._handle.submit_tolerant(messages, self._state.cursor(POSITION_KEY, str(position)))
        return can_continue

    async def _submit_edited(self, messages: Sequence[bp.InboundMessage]) -> None:
        """Store messages, the last one as the edit of a message."""
        if messages:
            await self._handle.submit_tolerant(messages[:-1])
            await self._handle.edits.submit_edit(messages[-1])

    async def _read_page(self, bounds: dict[str, str | datetime]) -> Page:
        """Return the next page that has posts: X leaves out those that are not public, if need be all of a page."""
        page = await self._client.read_mentions(**bounds)
        for _ in range(MAX_EMPTY_PAGES):
            if page.posts or page.unreadable or not page.next_token:
                break
            page = await self._client.read_mentions(**bounds, pagination_token=page.next_token)
        return page

    async def _record_unreadable(self, post_id: str, raw: object, error: object) -> None:
        event_id = f"post {post_id}" if post_id else ""
        await self._handle.record_unreadable(PLATFORM, self._identity.account_id, event_id, raw, error)

    async def _read_answered_ids(self, position: MentionPosition, mentions: Sequence[Post]) -> set[str]:
        """Return which mentions from before the first start have been answered: the account may have run elsewhere.

        If X does not list the account's own posts, all count as answered.
        """
        if position.start is None:
            return set()
        first_start = position.start + INITIAL_LOOKBACK
        earlier_ids = {post.id for post in mentions if post.created_at is None or post.created_at < first_start}
        if not earlier_ids:
            return set()
        try:
            timeline = await OwnTimeline(self._client).read(position.start)
        except (RequestRefused, NotAllowedNow) as error:
            logger.warning("mentions from before the first start are not answered, because %s", error)
            return earlier_ids
        return {post.reference_id("replied_to") for own_page in timeline.pages for post in own_page.posts}

    async def _read_mention(self, post: Post, page: Page, *, denied_by: str) -> list[bp.InboundMessage]:
        """Return a mention after the posts that it refers to; nothing where a rule ignores its room."""
        rule = self._handle.room_rules.find(PLATFORM, post.conversation, self._identity.account_id)
        if rule.is_ignored:
            return []
        return [*await self._read_context(post, page), await self._to_inbound(post, page, rule, denied_by)]

    async def _load_position(self) -> MentionPosition:
        text = await self._state.read(POSITION_KEY)
        try:
            if text:
                return MentionPosition.parse(text)
        except ValueError:
            logger.warning("the stored position of the mentions cannot be read; reading starts at the present")
        position = MentionPosition(start=self._clock() - INITIAL_LOOKBACK)
        await self._state.write(POSITION_KEY, str(position))
        return position

    async def _to_inbound(self, post: Post, page: Page, rule: bp.RoomRule, denied_by: str) -> bp.InboundMessage:
        """Build the inbound message of a mention; an opt-out takes effect at once."""
        message = to_inbound_message(post, page, self._identity, received_at=self._clock())
        await self._opt_outs.update_from(post.author_id, int(post.id), text_of(post))
        mention = message.message.content.mention
        if rule_name := self._permissions.denying_rule(message.author) or rule.refusal_for(mention) or denied_by:
            return to_inbound_message(post, page, self._identity, received_at=self._clock(), denied_by=rule_name)
        return message

    async def _read_context(self, post: Post, page: Page) -> list[bp.InboundMessage]:
        """Return the posts that a mention replies to and quotes, oldest first; none is answered."""
        context = await self._read_thread_above(post, page) if self._depth else []
        quoted_post = page.referenced.get(post.reference_id("quoted"))
        if quoted_post and not quoted_post.has_mention_of(self._identity.account_id):
            context.append((quoted_post, page))
        return [
            to_inbound_message(
                context_post,
                source_page,
                self._identity,
                received_at=self._clock(),
                conversation_post=post,
                denied_by=THREAD_CONTEXT,
            )
            for context_post, source_page in context
        ]

    async def _read_thread_above(self, post: Post, page: Page) -> list[tuple[Post, Page]]:
        """Return the posts above a mention, oldest first, as far as they are unknown and the quota allows."""
        room = build_conversation_room(self._identity, post.conversation)
        is_known = await self._handle.conversations.room(room.id) is not None
        thread: list[tuple[Post, Page]] = []
        current, current_page = page.referenced.get(post.reference_id("replied_to")), page
        while current is not None and not current.has_mention_of(self._identity.account_id):
            if not (is_known and current.author_id == self._identity.account_id):
                thread.append((current, current_page))
            next_id = current.reference_id("replied_to")
            if is_known or not next_id or len(thread) >= self._depth:
                break
            try:
                current_page = await self._client.read_posts([next_id])
            except (bp.DeliveryError, RequestRefused) as error:
                logger.info("the thread above post %s is not read: %s", current.id, error)
                break
            current = next(iter(current_page.posts), None)
        return thread[::-1]


NOT_FOUND, FORBIDDEN = 404, 403
FINAL_STATES = (bp.DeliveryState.SENT, bp.DeliveryState.CANCELLED)


class PostDeleter:
    """Deletes posts of one account; `feed_room_id` is the room of its timeline."""

    def __init__(self, handle: bp.AgentHandle, client: XClient, feed_room_id: UUID) -> None:
        self._handle = handle
        self._client = client
        self._feed_room_id = feed_room_id

    async def delete(self, post_id: str) -> bool:
        """Delete a post, with the whole thread it belongs to; return False if X did not have it any more.

        What is stored of it is deleted as well, and its unsent parts are given up. Repeating it is safe.
        Raises NotSent or DeliveryUnknown if X cannot do it now, Undeliverable if X refuses it for good.
        """
        parts = await self._find_parts(post_id)
        for part in parts:
            if part.state not in FINAL_STATES:
                await self._give_up(part)
        post_ids = [part.external_id for part in parts if part.external_id] or [post_id]
        was_there = [await self._delete_on_x(item) for item in reversed(post_ids)]  # an interruption leaves the start
        if parts:
            await self._handle.edits.delete_messages(parts[0].room_id, [post_id])
        return any(was_there)

    async def _find_parts(self, post_id: str) -> list[bp.Delivery]:
        """Return all parts of the stored message that a post belongs to; empty if it is not stored."""
        rooms = [room.id for room in await self._handle.conversations.rooms() if room.platform == PLATFORM]
        for room_id in sorted(rooms, key=lambda room_id: room_id != self._feed_room_id):
            deliveries = await self._handle.conversations.room_deliveries(room_id)
            part = next((delivery for delivery in deliveries if delivery.external_id == post_id), None)
            if part is not None:
                return [delivery for delivery in deliveries if delivery.memory_id == part.memory_id]
        return []

    async def _give_up(self, part: bp.Delivery) -> None:
        decision = await self._handle.undelivered.drop(part.id)
        if decision is not None and not decision.is_done:
            raise bp.NotSent(f"part {part.id}: {decision.note}")

    async def _delete_on_x(self, post_id: str) -> bool:
        try:
            return await self._client.delete_post(post_id)
        except RequestRefused as error:
            if error.status == NOT_FOUND or (error.status == FORBIDDEN and await self._is_gone(post_id, error)):
                return False
            raise bp.Undeliverable(str(error)) from error

    async def _is_gone(self, post_id: str, refusal: RequestRefused) -> bool:
        """Return whether a post that may not be deleted is gone; raise Undeliverable if it is another account's."""
        try:
            page = await self._client.read_posts([post_id])
        except (bp.DeliveryError, RequestRefused):
            return False
        if not page.posts:
            return True
        author_id = page.posts[0].author_id
        if author_id == self._client.account_id:
            return False
        author = page.users.get(author_id)
        name = f"@{author.username}" if author else author_id
        raise bp.Undeliverable(f"it is a post of {name}, and an account can delete only its own ({refusal})")
