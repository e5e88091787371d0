"""Receiving: mentions of the account and replies to its newest casts, from a stored position on."""

import logging
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from cachetools import TTLCache

from adapters.farcaster.client import HubClient
from adapters.farcaster.config import FarcasterSettings
from adapters.farcaster.incoming import (
    PLATFORM,
    THREAD_CONTEXT,
    Cast,
    ReceivedCast,
    User,
    account_key,
    build_thread_room,
)
from adapters.farcaster.messages import CastId, to_seconds
from bot.platform import AgentHandle, BoundedSet, InboundMessage, StreamCursor, TimeSource
from bot.store import StoreUnavailable

logger = logging.getLogger(__name__)
POSITION_KEY = "casts"
ANSWERED_RULE = "answered already"
OVERLAP_SECONDS = 3600  # a cast has its author's time, and may reach the hub later
STORE_RETRY_SECONDS = 1.0
ROOT_LIFETIME = timedelta(days=90)  # for which it is known to which thread a cast belongs
MAX_PAGES, BATCH_SIZE = 50, 50
MAX_CONTEXT = 10  # casts above a mention that are read and stored with it
MAX_SEEN, MAX_USERS, USER_SECONDS = 20_000, 2000, 3600.0
CONVERSION_ERRORS = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class ThreadIndex:
    """To which thread casts belong, by the id of its first cast; what was saved outlasts a restart."""

    def __init__(self, handle: AgentHandle, time_source: TimeSource) -> None:
        self._cache, self._time = handle.cache, time_source
        self._unsaved: dict[CastId, str] = {}

    async def find(self, cast_id: CastId) -> str:
        """Return the id of the first cast of the thread of a cast; empty if it is not known."""
        return self._unsaved.get(cast_id) or str(await self._cache.get(_thread_key(cast_id)) or "")

    def note(self, cast_id: CastId, root: str) -> None:
        """Record to which thread a cast belongs, until it is saved or the process ends."""
        self._unsaved[cast_id] = root

    async def save(self) -> None:
        """Save what was noted."""
        expires_at = self._time.now() + ROOT_LIFETIME
        for cast_id, root in list(self._unsaved.items()):
            await self._cache.set(_thread_key(cast_id), root, expires_at=expires_at)
            self._unsaved.pop(cast_id, None)


def _thread_key(cast_id: CastId) -> str:
    return f"{PLATFORM} thread of {cast_id}"


class CastReceiver:
    """The mentions and replies of one account. Calls raise as the client and the inbox do."""

    def __init__(
        self,
        handle: AgentHandle,
        client: HubClient,
        settings: FarcasterSettings,
        threads: ThreadIndex,
        time_source: TimeSource,
    ) -> None:
        self._handle, self._client, self._settings = handle, client, settings
        self._threads, self._time = threads, time_source
        self._account = account_key(settings.fid)
        self._seen = BoundedSet[str](MAX_SEEN)  # what this process has stored
        self._users: TTLCache[int, User] = TTLCache(MAX_USERS, USER_SECONDS, time_source.monotonic)

    async def user(self, fid: int) -> User:
        """Return the names of an account, which are asked for again after an hour."""
        if (user := self._users.get(fid)) is None:
            user = self._users[fid] = await self._client.user(fid)
        return user

    async def poll(self, *, is_backfill: bool) -> None:
        """Read and store what is new. With `is_backfill` old casts are stored and not answered.

        At the very first call only the latest pages are read, and what the account has answered is not answered again.
        """
        position = await self._handle.cursor(PLATFORM, self._account, POSITION_KEY)
        bound = int(position) - OVERLAP_SECONDS if position is not None else None
        own, _ = await self._client.page("castsByFid", {"fid": self._account})
        own_casts = list(_parse_all(own))
        raws = [raw async for raw in self._read_new(own_casts, bound)]
        raws.sort(key=_timestamp_of)
        answered = {cast.parent.id for cast in own_casts if cast.parent} if position is None else set[CastId]()
        newest = int(position or 0)
        for start in range(0, max(len(raws), 1), BATCH_SIZE):
            batch = raws[start : start + BATCH_SIZE]
            messages: list[InboundMessage] = []
            for raw in batch:
                messages += await self._read_tolerant(raw, answered, is_backfill=is_backfill or position is None)
            newest = max(newest, *map(self._clamp, batch), 0)
            if batch or position is None:
                await self._store(messages, newest)
                await self._threads.save()
            for raw in batch:
                self._seen.add(_hash_of(raw))

    async def _read_new(self, own_casts: Sequence[Cast], bound: int | None) -> AsyncIterator[Any]:
        """Yield the mentions, and the replies to the newest own casts, that this process has not stored."""
        sources: list[tuple[str, Mapping[str, str]]] = [("castsByMention", {"fid": self._account})]
        for cast in own_casts[: self._settings.farcaster_followed_casts]:
            sources.append(("castsByParent", {"fid": self._account, "hash": cast.hash}))
        found = set[str]()
        for name, query in sources:
            token = ""
            for _ in range(MAX_PAGES):
                page, token = await self._client.page(name, query, token)
                late = [raw for raw in page if bound is None or _timestamp_of(raw) >= bound]
                new = [raw for raw in late if _hash_of(raw) not in found and _hash_of(raw) not in self._seen]
                found.update(map(_hash_of, new))
                for raw in new:
                    yield raw
                if not new or not token or bound is None:
                    break
            else:
                logger.warning("%s has more casts since the last look than are read: older ones are lost", name)

    async def _read_tolerant(self, raw: Any, answered: set[CastId], *, is_backfill: bool) -> list[InboundMessage]:
        """Return the messages of a cast; one that cannot be read is recorded, and does not stop those that follow."""
        try:
            cast = Cast.model_validate(raw)
            return [] if cast.fid == self._settings.fid else await self._read(cast, answered, is_backfill=is_backfill)
        except CONVERSION_ERRORS as error:
            await self._handle.record_unreadable(PLATFORM, self._account, f"cast {_hash_of(raw)}", raw, error)
            return []

    async def _read(self, cast: Cast, answered: set[CastId], *, is_backfill: bool) -> list[InboundMessage]:
        """Return a cast after those above it that are not stored; nothing where a rule ignores its room."""
        root, context = await self._find_thread(cast)
        room = build_thread_room(self._handle.agent_id, self._settings.fid, root)
        rule = self._handle.room_rules.find(PLATFORM, room.external_id, PLATFORM)
        if rule.is_ignored:
            return []
        quoted = await self._client.cast(cast.quoted) if cast.quoted else None
        received = await self._receive(cast, root, quoted)
        denied_by = ANSWERED_RULE if cast.id in answered else rule.refusal_for(received.mention)
        above = [await self._receive(item, root) for item in context]
        for item in (*context, cast):
            self._threads.note(item.id, root)
        return [
            *(item.to_inbound(denied_by=THREAD_CONTEXT) for item in above),
            received.to_inbound(denied_by=denied_by, is_backfill=is_backfill),
        ]

    async def _find_thread(self, cast: Cast) -> tuple[str, Sequence[Cast]]:
        """Return the id of the first cast of a thread, and the casts above one up to one whose thread is known."""
        context: list[Cast] = []
        above = cast.parent
        while above is not None:
            if root := await self._threads.find(above.id):
                return root, context
            parent = await self._client.cast(above.id) if len(context) < MAX_CONTEXT else None
            if parent is None:  # too far up, or deleted
                return str(above.id), context
            context.insert(0, parent)
            above = parent.parent
        return str((context or [cast])[0].id), context

    async def _receive(self, cast: Cast, root: str, quoted: Cast | None = None) -> ReceivedCast:
        fids = {fid for item in (cast, quoted) if item for fid in (item.fid, *item.mentions)} | {self._settings.fid}
        users = {fid: await self.user(fid) for fid in fids}
        return ReceivedCast(cast, root, users, self._settings.fid, self._handle.agent_id, quoted)

    def _clamp(self, raw: Any) -> int:
        """Return the time of a cast, at most the current one: its author may have set a later one."""
        return min(_timestamp_of(raw), to_seconds(self._time.now()))

    async def _store(self, messages: Sequence[InboundMessage], position: int) -> None:
        """Store messages and the position behind them, as soon as the store is there."""
        cursor = StreamCursor(PLATFORM, self._account, POSITION_KEY, str(position))
        while True:
            try:
                await self._handle.submit_tolerant(messages, cursor)
                return
            except StoreUnavailable as error:
                logger.info("casts for %s were not stored: %s", self._handle.character.name, error)
                await self._time.sleep(STORE_RETRY_SECONDS)


def _parse_all(raws: Iterable[Any]) -> Iterable[Cast]:
    for raw in raws:
        try:
            yield Cast.model_validate(raw)
        except ValueError:
            continue


def _timestamp_of(raw: Any) -> int:
    """Return the time of a cast as the hub has it; 2**32 where it has none, so that this is looked at."""
    data = raw.get("data") if isinstance(raw, dict) else None
    timestamp = data.get("timestamp") if isinstance(data, dict) else None
    return timestamp if isinstance(timestamp, int) else 2**32


def _hash_of(raw: Any) -> str:
    hash_ = raw.get("hash") if isinstance(raw, dict) else None
    return str(hash_)[:100] if hash_ else f"without a hash: {raw!r:.200}"
