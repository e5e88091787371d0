"""`OwnTimeline`: the latest posts of an account, read once for all that ask at the same time."""

import asyncio
from dataclasses import dataclass
from datetime import datetime

from adapters.x.client import MAX_PAGE_SIZE, MIN_PAGE_SIZE, XClient
from adapters.x.connection import RequestRefused
from adapters.x.payloads import Page
from bot.platform import DeliveryError

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
        except (DeliveryError, RequestRefused) as error:
            return TimelineRead(number, since, since, error=error)
        times = [post.created_at for page in pages for post in page.posts if post.created_at is not None]
        return TimelineRead(number, since, min(times, default=datetime.max.replace(tzinfo=since.tzinfo)), tuple(pages))
