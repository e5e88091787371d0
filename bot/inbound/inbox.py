"""`Inbox`: stores what comes in before the platform is told so, and waits for the outcome.

Bounds and cleans everything that comes from a platform, before it is stored.

Words of people who had their data deleted, in what others send: replies to their messages, and forwards.

Builds the record of a platform's event that could not be read: bounded, and without secrets.
"""

import asyncio
import json
import logging
from collections.abc import Collection, Coroutine, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar
from uuid import UUID

from bot.concurrency.clock import Clock, ShutdownDeadline, system_clock
from bot.concurrency.tasks import TaskSet, crash_point
from bot.domain.content import FORWARDED_AT, FORWARDED_AUTHOR, FORWARDED_MESSAGE, Content
from bot.domain.environment import PersonMark
from bot.domain.hiding import hide_inbound
from bot.domain.inbound import (
    ERASURE_COMPONENT,
    MAX_ENTITIES,
    MAX_ROOMS,
    InboundMessage,
    MembershipUpdate,
    Reaction,
    StoredEvent,
    StreamCursor,
    UnreadableEvent,
)
from bot.domain.ledger import EventKey, Receipt, Rule
from bot.domain.memory import Memory
from bot.errors import InboxClosed, TemporaryError
from bot.inbound.processing import CANCEL_GRACE_SECONDS, MAX_OPEN_EVENTS, MessageProcessor, OnOutcome, Process
from bot.outbound.sender import WorkOwnership
from bot.store.environment import EntityStore, MarkStore
from bot.store.ledger import Ledger, StoreProblem
from bot.text import REDACTED, invisible_share, is_storable, redact, sanitize_record, sanitize_text, shorten

MAX_TEXT_LENGTH = 65_536
MAX_ATTACHMENTS = 10
MAX_NAME_LENGTH = 200
MAX_CLOCK_SKEW = timedelta(minutes=1)
MIN_TIMESTAMP = datetime(2000, 1, 1, tzinfo=UTC)  # no platform of ours is older: such a time is none
MAX_INVISIBLE_SHARE = 0.2
ORIGINAL_TIME_KEY = "said_at"  # the time that a platform gave, where it cannot be
T = TypeVar("T")
# How long the texts of an event may be, by the names of their fields; None: they are not cut.
TEXT_LIMITS: Mapping[str, int | None] = MappingProxyType(
    dict.fromkeys(("id", "external_id", "event_id", "message_id", "url"))
    | dict.fromkeys(("name", "names", "author_name", "title", "content_type", "source", "emoji"), MAX_NAME_LENGTH)
    | dict.fromkeys(("text", "description", "metadata"), MAX_TEXT_LENGTH)
)


def sanitize(record: T) -> T:
    """Return an event, or a part of one, with storable texts and bounded names.

    Ids and addresses are not cut, but lose characters that no database stores; so does metadata.
    """
    return sanitize_record(record, TEXT_LIMITS)


def sanitize_message(inbound: InboundMessage, now: datetime) -> InboundMessage:
    """Return an event with storable text, few attachments, and a possible time.

    The notes say what was changed in the message. Where its time is impossible, the original time stays in the
    metadata.
    """
    message = inbound.message
    created_at, metadata = _clamp_time(message.created_at, now), message.metadata
    if created_at != message.created_at:
        metadata = {**metadata, ORIGINAL_TIME_KEY: message.created_at.isoformat()}
    content = _limit_attachments(message.content)
    bounded = replace(message, content=content, created_at=created_at, metadata=metadata)
    sanitized = sanitize(replace(inbound, message=bounded))
    return replace(sanitized, notes=tuple(_build_notes(message, sanitized.message)))


def sanitize_membership(update: MembershipUpdate) -> MembershipUpdate:
    """Return an update with at most so many rooms and entities, each once."""
    rooms = {room.id: room for room in update.rooms[:MAX_ROOMS]}
    entities = {entity.id: entity for entity in update.entities[:MAX_ENTITIES]}
    return sanitize(replace(update, rooms=tuple(rooms.values()), entities=tuple(entities.values())))


def sanitize_reaction(reaction: Reaction, now: datetime) -> Reaction:
    """Return a bounded reaction; its emoji is bounded as a name is."""
    return sanitize(replace(reaction, created_at=_clamp_time(reaction.created_at, now)))


def sanitize_emoji(text: str) -> str:
    """Return a bounded reaction key."""
    return sanitize_text(text, MAX_NAME_LENGTH)


def sanitize_id(text: str) -> str:
    """Return an id without characters that no database stores."""
    return sanitize_text(text, len(text))


def _clamp_time(timestamp: datetime, now: datetime) -> datetime:
    return now if timestamp < MIN_TIMESTAMP else min(timestamp, now + MAX_CLOCK_SKEW)


def _build_notes(original: Memory, sanitized: Memory) -> Iterator[str]:
    """Yield what was changed in a message, and whether much of it is invisible."""
    text, attachments = original.content.text, original.content.attachments
    if not is_storable(text):
        yield "its text held what is no character; that was taken out"
    if len(text) > MAX_TEXT_LENGTH:
        yield f"its text of {len(text)} characters was cut to {MAX_TEXT_LENGTH}"
    if (share := invisible_share(sanitized.content.text)) > MAX_INVISIBLE_SHARE:
        yield f"{share:.0%} of its text cannot be seen"
    if len(attachments) > MAX_ATTACHMENTS:
        yield f"it came with {len(attachments)} attachments; the first {MAX_ATTACHMENTS} were kept"
    if original.created_at != sanitized.created_at:
        yield f"the time it came with cannot be: {original.created_at.isoformat()}"


def _limit_attachments(content: Content) -> Content:
    attachments, quotation = content.attachments[:MAX_ATTACHMENTS], content.quotation
    if quotation is not None:
        quotation = replace(quotation, attachments=quotation.attachments[: MAX_ATTACHMENTS - len(attachments)])
    return replace(content, attachments=attachments, quotation=quotation)


REMOVED_FORWARD = "[a forwarded message of a person whose data was deleted]"


class EventAuthor(NamedTuple):
    """Who wrote which message of a room."""

    room_id: UUID
    message_id: str
    author_id: UUID


@dataclass(frozen=True, slots=True)
class ForgottenWords:
    """Removes from inbound messages what people wrote before they had their data deleted."""

    ledger: Ledger
    entities: EntityStore

    async def remove_all(self, messages: Sequence[InboundMessage]) -> list[InboundMessage]:
        """Return messages without such words; raises as the store does."""
        batch = [EventAuthor(message.room.id, message.key.message_id, message.author.id) for message in messages]
        return [await self._remove(message, batch) for message in messages]

    async def _remove(self, inbound: InboundMessage, batch: Collection[EventAuthor]) -> InboundMessage:
        content = inbound.message.content
        cleaned = await self._clean_forward(await self._clean_quotation(content, inbound.room.id, batch))
        return inbound if cleaned is content else replace(inbound, message=replace(inbound.message, content=cleaned))

    async def _clean_quotation(self, content: Content, room_id: UUID, batch: Collection[EventAuthor]) -> Content:
        """Return a content without a quotation of such words: what was written later is stored, or in the batch."""
        quotation = content.quotation
        if quotation is None or quotation.author_id is None or not await self._forgotten_at(quotation.author_id):
            return content
        quoted = EventAuthor(room_id, quotation.message_id, quotation.author_id)
        receipts = await self.ledger.receipts_by_message_id(quotation.message_id) if quotation.message_id else []
        is_known = quoted in batch or any(
            EventAuthor(receipt.room_id, receipt.key.message_id, receipt.author_id) == quoted
            and receipt.rule != Rule.ERASED
            for receipt in receipts
        )
        return content if is_known else replace(content, quotation=None)

    async def _clean_forward(self, content: Content) -> Content:
        """Return a content whose metadata names the author of a forwarded message, if that is known."""
        metadata = content.metadata
        if FORWARDED_MESSAGE in metadata:
            receipts = await self.ledger.receipts_by_message_id(str(metadata[FORWARDED_MESSAGE]))
            if receipts:
                content = replace(content, metadata={**metadata, FORWARDED_AUTHOR: str(receipts[-1].author_id)})
        if FORWARDED_AUTHOR not in content.metadata:
            return content
        forgotten_at = await self._forgotten_at(UUID(str(content.metadata[FORWARDED_AUTHOR])))
        written_at = datetime.fromisoformat(str(content.metadata[FORWARDED_AT]))
        if forgotten_at is None or written_at > forgotten_at:
            return content
        return replace(content, text=REMOVED_FORWARD, attachments=(), metadata={})

    async def _forgotten_at(self, author_id: UUID) -> datetime | None:
        components = await self.entities.components(author_id, ERASURE_COMPONENT)
        times = (datetime.fromisoformat(component.data["at"]) for component in components)
        return max(times, default=None)


MAX_RAW_LENGTH, MAX_CAUSE_LENGTH, MAX_ID_LENGTH = 4_000, 300, 200
MAX_DEPTH, MAX_ITEMS = 20, 1_000
SECRET_NAMES = ("token", "secret", "password", "authorization", "session_id", "api_key")  # in names of fields


def build_unreadable_event(
    platform: str,
    account: str,
    event_id: str,
    raw: object,
    error: object,
    *,
    secrets: Collection[str],
    now: datetime,
    is_hidden: bool = False,
) -> UnreadableEvent:
    """Return the record of an event, of which `raw` is what the platform sent as plain JSON values.

    Values of fields that are named like a secret are removed, and every text in `secrets`. Without an
    `event_id` the content identifies the event. Of one that `is_hidden` only numbers and the names of fields are kept.
    """
    text = redact(json.dumps(_bound(raw), ensure_ascii=False, default=type_name), secrets)
    cause = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else str(error)
    event_id = event_id or sha256(text.encode("utf-8", "replace")).hexdigest()[:32]
    if is_hidden:
        text, cause = json.dumps(_without_texts(_bound(raw)), default=type_name), type_name(error)
    return UnreadableEvent(
        platform,
        account,
        sanitize_text(event_id)[:MAX_ID_LENGTH],
        received_at=now,
        cause=shorten(sanitize_text(redact(cause, secrets)), MAX_CAUSE_LENGTH),
        raw=sanitize_text(text, MAX_RAW_LENGTH),
    )


def type_name(value: object) -> str:
    """Return the name of a value's type, which stands for a value that is not JSON."""
    return type(value).__name__


def _bound(value: Any, depth: int = 0) -> Any:
    """Return JSON values without secret fields, not too deep and not too many."""
    if depth >= MAX_DEPTH and isinstance(value, Mapping | list | tuple):
        return "…"
    if isinstance(value, Mapping):
        items = list(value.items())[:MAX_ITEMS]
        return {str(key): REDACTED if _is_secret(str(key)) else _bound(item, depth + 1) for key, item in items}
    if isinstance(value, list | tuple):
        return [_bound(item, depth + 1) for item in value[:MAX_ITEMS]]
    return value


def _without_texts(value: Any) -> Any:
    """Return JSON values in which every text that is no number is replaced."""
    if isinstance(value, dict):
        return {key: _without_texts(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_texts(item) for item in value]
    return "…" if isinstance(value, str) and not value.isdigit() else value


def _is_secret(name: str) -> bool:
    return any(word in name.lower() for word in SECRET_NAMES)


logger = logging.getLogger(__name__)

RETRYABLE_ERRORS = (InboxClosed, TemporaryError)  # the platform delivers the message again


class Inbox:
    """Stores inbound messages of one agent, hands them to its `MessageProcessor`, and waits for outcomes.

    `process` is what the processor awaits for each event; `on_closed` receives every final receipt once. In a
    room that this process does not own, messages are stored and not processed. `secrets` are removed from
    the events that are recorded as unreadable, `forgotten_words` from messages; of people whom `marks` name as not
    read, only ids and times are stored.
    """

    def __init__(
        self,
        ledger: Ledger,
        process: Process,
        *,
        ownership: WorkOwnership | None = None,
        on_closed: OnOutcome = lambda receipt: None,
        clock: Clock = system_clock,
        shutdown_deadline: ShutdownDeadline | None = None,
        secrets: Collection[str] = (),
        forgotten_words: ForgottenWords | None = None,
        marks: MarkStore | None = None,
    ) -> None:
        self._ledger = ledger
        self._secrets = secrets
        self._forgotten_words, self._marks = forgotten_words, marks
        self._clock = clock
        self._is_open = True
        self._is_drained = False
        self._waiting: dict[UUID, asyncio.Future[Receipt]] = {}
        self._storing: dict[asyncio.Task[list[StoredEvent]], Sequence[InboundMessage]] = {}
        self._shielded = TaskSet("inbox", logs_failures=False)
        self.processor = MessageProcessor(
            ledger,
            process,
            ownership=ownership or WorkOwnership(),
            on_outcome=self._on_outcome,
            on_failure=self._fail_waiter,
            on_closed=on_closed,
            clock=clock,
            shutdown_deadline=shutdown_deadline,
        )

    @property
    def problem(self) -> StoreProblem | None:
        """Why nothing can be stored at the moment; None while the store works."""
        return self._ledger.health.problem

    async def submit(self, message: InboundMessage) -> Receipt:
        """Store a message and start on it; once this returns, the platform may acknowledge it.

        A message that was stored before keeps its receipt; if that is open and nothing works on it, it is
        resumed. Raises InboxClosed while stopping and StoreUnavailable while nothing can be stored: the
        platform must not acknowledge the message then.
        """
        [receipt] = await self.submit_all([message])
        return receipt

    async def submit_all(self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None) -> list[Receipt]:
        """Store a batch as `submit` does, all of it or nothing, together with the stream's read position."""
        self._check_open()
        now = self._clock()
        bounded = [sanitize_message(self.hide(message), now) for message in messages]
        if bounded and self.processor.trials.is_holding:
            bounded = [replace(message, is_held=True) for message in bounded]
        crash_point("ingress.pre_commit")
        storing = self._shielded.start(self._receive(bounded, now, cursor))
        self._storing[storing] = bounded
        try:
            events = await asyncio.shield(storing)
            crash_point("ingress.post_commit")
            for event in events:
                await self.processor.enqueue(event)
        except asyncio.CancelledError:
            storing.add_done_callback(self._on_stored)
            raise
        finally:
            if storing.done():
                del self._storing[storing]
        return [event.receipt for event in events]

    async def submit_tolerant(self, messages: Sequence[InboundMessage], cursor: StreamCursor | None = None) -> None:
        """Store a batch and the read position; a message that the store can never take is recorded as unreadable.

        Raises InboxClosed and TemporaryError as `submit` does.
        """
        try:
            await self.submit_all(messages, cursor)
        except RETRYABLE_ERRORS:
            raise
        except Exception:  # one message that the store refuses must not stop all that follow
            logger.warning("%d messages could not be stored together; storing them one by one", len(messages))
            for message in messages:
                await self._submit_or_record(message)
            if cursor is not None:
                await self.submit_all([], cursor)

    async def record_unreadable(self, platform: str, account: str, event_id: str, raw: object, error: object) -> None:
        """Record an event that cannot be read, once; then the stream's position may move past it.

        `raw` is what the platform sent, `error` why it could not be read. Raises as `submit` does.
        """
        self._check_open()
        marks = [] if self._marks is None else self._marks.find(mark=PersonMark.NOT_READ)
        is_hidden = any(marked.platform == platform for marked in marks)  # who wrote it cannot be known
        event = build_unreadable_event(
            platform, account, event_id, raw, error, secrets=self._secrets, now=self._clock(), is_hidden=is_hidden
        )
        await self._ledger.record_unreadable([event])
        cause = shorten(event.cause, 80)
        logger.warning("%s: event %s could not be read (%s): see `bot inbox list`", platform, event.event_id, cause)

    async def run_shielded(self, operation: Coroutine[Any, Any, T]) -> T:
        """Await a change to its end, also where the caller is cancelled; raises as `submit` does."""
        with ExitStack() as on_failure:
            on_failure.callback(operation.close)
            self._check_open()
            task = self._shielded.start(operation)
            on_failure.pop_all()
        return await asyncio.shield(task)

    async def cursor(self, platform: str, account: str, name: str) -> str | None:
        """Return the stored read position of a stream; None where there is none."""
        return await self._ledger.cursor(platform, account, name)

    async def last_seen(self, room_ids: Collection[UUID]) -> dict[UUID, str]:
        """Return the platform's id of the last message stored of each room, where there is one.

        Call it before submitting anything new of these rooms: what came after that message was missed.
        """
        return await self._ledger.last_message_ids(room_ids)

    async def wait_outcome(self, receipt_id: UUID) -> Receipt:
        """Wait for the final receipt of an event, named by its receipt's id or its message's.

        An event that is open and that nothing works on is resumed. Raises LookupError for an unknown one,
        InboxClosed where the process stops first, TemporaryError where processing failed and it stays open.
        """
        if self.processor.is_processing(receipt_id) and not self._is_drained:
            return await asyncio.shield(self._future(receipt_id))
        receipt = await self._ledger.receipt(receipt_id)
        if receipt is None:
            raise LookupError(f"there is no receipt {receipt_id}")
        future = self._future(receipt.id)
        receipt = await self._ledger.receipt(receipt.id) or receipt  # it may have been closed meanwhile
        if receipt.outcome.is_final:
            self.processor.resolve(receipt)
            return receipt
        if self._is_drained:
            self._fail_waiter(receipt.id, _build_stopped_error())
        else:
            await self.processor.resume(receipt)
        return await asyncio.shield(future)

    async def wait_stored(self, room_id: UUID) -> None:
        """Wait until what is being stored of a room is stored or has failed."""
        storing = [task for task, batch in self._storing.items() if any(item.room.id == room_id for item in batch)]
        if storing:
            await asyncio.wait(storing)

    async def recover(self) -> None:
        """Find what was under way when an earlier process died; the processor's `resume_all` tries it again."""
        await self.processor.recover(self._is_being_stored)

    async def resolve_remote(self, closed: Collection[UUID] | None = None) -> None:
        """Resolve the events waited for here that another process has closed; None if it is unknown which."""
        remote = [key for key in self._waiting if not self.processor.is_processing(key)]
        if closed is None and len(remote) > 1:
            open_receipts = await self._ledger.receipts(is_open=True, limit=MAX_OPEN_EVENTS)
            open_ids = {receipt.id for receipt in open_receipts}
            remote = [key for key in remote if key not in open_ids]
        for receipt_id in remote if closed is None else set(closed).intersection(remote):
            receipt = await self._ledger.receipt(receipt_id)
            if receipt is not None and receipt.outcome.is_final:
                self.processor.resolve(receipt)

    def close(self) -> None:
        """Accept nothing more."""
        self._is_open = False
        self.processor.close()

    async def drain(self, seconds: float) -> int:
        """Wait for what is stored and processed, then stop the rest; return how many events were stopped."""
        self.close()
        clock = asyncio.get_running_loop().time
        end_time = clock() + seconds
        await self._shielded.wait(min(seconds, CANCEL_GRACE_SECONDS))
        stopped = await self.processor.drain(max(0.0, end_time - clock()))
        self._is_drained = True
        for receipt_id in list(self._waiting):
            self._fail_waiter(receipt_id, _build_stopped_error())
        return stopped

    def _check_open(self) -> None:
        if not self._is_open:
            raise InboxClosed("the bot is stopping; nothing more is accepted")
        if self._ledger.health.problem is not None:
            self._ledger.health.check_available()

    def hide(self, message: InboundMessage) -> InboundMessage:
        """Return a message without the words of people who are not read, as far as they are known."""
        if self._marks is None or not self._marks.not_read:
            return message
        return hide_inbound(message, self._marks.not_read)

    async def remove_forgotten_words(self, messages: Sequence[InboundMessage]) -> Sequence[InboundMessage]:
        """Return messages without the words of people who had their data deleted, or who are not read."""
        if self._forgotten_words is not None:
            messages = await self._forgotten_words.remove_all(messages)
        return [self.hide(message) for message in messages]  # the authors of forwards are known now

    async def _receive(
        self, messages: Sequence[InboundMessage], now: datetime, cursor: StreamCursor | None
    ) -> list[StoredEvent]:
        return await self._ledger.receive(await self.remove_forgotten_words(messages), now, cursor)

    async def _submit_or_record(self, message: InboundMessage) -> None:
        try:
            await self.submit(message)
        except RETRYABLE_ERRORS:
            raise
        except Exception as error:  # as in `submit_tolerant`
            message = self.hide(message)
            key, author = message.key, message.author.external_id
            raw = {"room": message.room.external_id, "author": author, "text": message.message.content.text}
            await self.record_unreadable(key.platform, key.account, f"message {key.message_id}", raw, error)

    def _on_stored(self, storing: asyncio.Task[list[StoredEvent]]) -> None:
        """Start on what was stored after the caller was cancelled."""
        self._storing.pop(storing, None)
        if not storing.cancelled() and storing.exception() is None:
            for event in storing.result():
                if event.is_new:
                    self.processor.start_new(event)

    def _is_being_stored(self, key: EventKey) -> bool:
        return any(message.key == key for batch in self._storing.values() for message in batch)

    def _future(self, receipt_id: UUID) -> asyncio.Future[Receipt]:
        return self._waiting.setdefault(receipt_id, asyncio.get_running_loop().create_future())

    def _on_outcome(self, receipt: Receipt) -> None:
        future = self._waiting.pop(receipt.id, None)
        if future is not None and not future.done():
            future.set_result(receipt)

    def _fail_waiter(self, receipt_id: UUID, error: Exception) -> None:
        future = self._waiting.pop(receipt_id, None)
        if future is not None and not future.done():
            future.set_exception(error)
            future.exception()  # mark it as retrieved: there may be no waiter


def _build_stopped_error() -> InboxClosed:
    return InboxClosed("the bot stopped before this message had its outcome")
