"""One room's deliveries: those that wait in order, and those of unknown outcome, which wait aside.

Sending one delivery of a queue: attempts, pauses, and when it is given up.

One attempt to deliver a part, the delay after it, and its persisted state.

`OutgoingReply` and its split into deliveries.

The "is typing…" status, shown from the first active turn in a room to the last.

`Speech`: adds the spoken form to a reply that answers a voice message, or to every one of a character.
"""

import asyncio
import logging
import math
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import StrEnum
from itertools import count
from uuid import UUID

from bot.adapter.adapter import Adapter
from bot.concurrency.clock import Backoff, Clock, Sleep
from bot.concurrency.tasks import CancellationScope, crash_point
from bot.domain.content import SPEECH_ID, Attachment, Content, MediaKind
from bot.domain.environment import Room
from bot.domain.ids import delivery_id
from bot.domain.ledger import Delivery, DeliveryState
from bot.domain.memory import Memory
from bot.errors import (
    DeliveryHeld,
    DeliveryUnknown,
    LeaseLost,
    MessageGone,
    ModelError,
    NotSent,
    StoreUnavailable,
    Undeliverable,
)
from bot.models.router import ModelRouter
from bot.models.types import ModelType, SpeechRequest
from bot.store.ledger import Ledger
from bot.user_texts import user_text


@dataclass(frozen=True, slots=True)
class DeliveryWait:
    """Why a delivery is not sent yet: it `is_behind` another one of its room, or waits `until` a time.

    Neither is true of one that is being sent just now. Before `not_before` nothing could be sent, where that is known.
    """

    is_behind: bool = False
    until: datetime | None = None
    not_before: datetime | None = field(default=None, compare=False)


@dataclass(slots=True, eq=False)
class SendingQueue:
    """Deliveries that are sent one after the other, and the one that is being sent.

    `not_before` is the time before which nothing could be sent, where that is known: a delivery is late only
    after it. `resting_until` is the end of the pause between two attempts, `attempted_at` the start of the
    latest one. `withdrawn` is the current delivery as it was cancelled while it was being sent. `is_disconnected`
    while the task is stopped because its platform was disconnected.
    """

    pending: deque[Delivery] = field(default_factory=deque)
    current: Delivery | None = None
    task: asyncio.Task[None] | None = None
    not_before: datetime | None = None
    resting_until: datetime | None = None
    attempted_at: datetime | None = None
    withdrawn: Delivery | None = None
    is_disconnected: bool = False

    @property
    def deliveries(self) -> tuple[Delivery, ...]:
        """All deliveries that are not finished, the one that is being sent first."""
        return (self.current, *self.pending) if self.current else tuple(self.pending)

    def is_available_by(self, timestamp: datetime) -> bool:
        """Return whether the next attempt is made by that time."""
        return all(pause is None or pause <= timestamp for pause in (self.not_before, self.resting_until))

    def insert(self, delivery: Delivery) -> None:
        """Insert a delivery at its place in the room's order."""
        position = sum(other.seq <= delivery.seq for other in self.pending)
        self.pending.insert(position, delivery)


@dataclass(slots=True, eq=False)
class UnclearQueue(SendingQueue):
    """A delivery of unknown outcome, which is repeated or asked for, and those that must not come before it.

    `delay` are the seconds until its next attempt, `since` is when it was set aside. As long as it
    `is_blocking`, it delays the others of its room. `is_passed` tells whether one of them has arrived before
    it; None where only the ledger knows.
    """

    links_parts: bool = False
    delay: float = 0.0
    since: datetime = datetime.min
    is_blocking: bool = True
    is_passed: bool | None = False

    def must_precede(self, delivery: Delivery) -> bool:
        """Return whether a delivery must not come before one of these.

        That is what edits the same message, what replaces the same draft, and, where the platform
        `links_parts`, another part of the same message.
        """
        return any(
            (other.draft_id and other.draft_id == delivery.draft_id)
            or (other.replaces_external_id and other.replaces_external_id == delivery.replaces_external_id)
            or (self.links_parts and other.memory_id == delivery.memory_id)
            for other in self.deliveries
        )


@dataclass(slots=True, eq=False)
class RoomQueue(SendingQueue):
    """One room's deliveries; those of unknown outcome are in queues of their own.

    While commits are open nothing is started: one of them may bring what comes before it. `begun` is the delivery
    that was committed together with its first attempt.
    """

    begun: Delivery | None = None
    open_commits: int = 0
    unclear: list[UnclearQueue] = field(default_factory=list)
    is_waiting: bool = False  # for one of `unclear`

    @property
    def queues(self) -> tuple[SendingQueue, ...]:
        """This queue and those of unknown outcome."""
        return (self, *self.unclear)

    @property
    def unfinished(self) -> Iterator[Delivery]:
        """All deliveries of the room that are not finished."""
        return (delivery for queue in self.queues for delivery in queue.deliveries)

    @property
    def is_blocked(self) -> bool:
        """Return whether a new delivery would have to wait."""
        return bool(self.deliveries) or any(queue.is_blocking for queue in self.unclear)

    def is_available_by(self, timestamp: datetime) -> bool:
        """Return whether the next attempt is made by that time."""
        if self.is_waiting and not any(queue.is_available_by(timestamp) for queue in self.unclear):
            return False
        return SendingQueue.is_available_by(self, timestamp)

    def add(self, delivery: Delivery) -> None:
        """Insert a delivery at its place in the room's order; one that is queued already stays as it is."""
        if not any(other.id == delivery.id for other in self.unfinished):
            self._queue_for(delivery).insert(delivery)

    def clear(self) -> None:
        """Forget the deliveries that wait."""
        for queue in self.queues:
            queue.pending.clear()

    def set_aside(self, unclear: UnclearQueue) -> None:
        """Move what must not come before an unclear delivery behind it."""
        self.unclear.append(unclear)
        remaining, self.pending = self.pending, deque()
        for delivery in remaining:
            self._queue_for(delivery).insert(delivery)

    def take_begun(self, delivery: Delivery) -> Delivery | None:
        """Return a delivery as it was committed with its first attempt, once; None if it was not."""
        begun = self.begun
        if begun is None or begun.id != delivery.id:
            return None
        self.begun = None
        return begun

    def find(self, delivery_id: str) -> SendingQueue | None:
        """Return the queue that is sending a delivery just now."""
        return next((queue for queue in self.queues if queue.current and queue.current.id == delivery_id), None)

    def wait_of(self, delivery_id: str) -> DeliveryWait | None:
        """Return what a delivery waits for; None for one that is not in this room's queues."""
        for queue in self.queues:
            for index, delivery in enumerate(queue.deliveries):
                if delivery.id == delivery_id:
                    is_behind = index > 0 or (queue is self and self.is_waiting)
                    until = None if is_behind else queue.resting_until
                    return DeliveryWait(is_behind, until, queue.not_before)
        return None

    def remove(self, delivery_id: str) -> bool:
        """Remove a waiting delivery; return whether others of its message still wait."""
        for queue in self.queues:
            for delivery in queue.pending:
                if delivery.id == delivery_id:
                    queue.pending.remove(delivery)
                    return self.has_message(delivery)
        return False

    def has_message(self, delivery: Delivery) -> bool:
        """Return whether another delivery of the same message is not finished."""
        return any(other.memory_id == delivery.memory_id and other.id != delivery.id for other in self.unfinished)

    def note_arrived(self, delivery: Delivery) -> None:
        """Record that a delivery has come before unclear ones that were committed before it."""
        for queue in self.unclear:
            queue.is_passed = queue.is_passed or any(other.seq < delivery.seq for other in queue.deliveries)

    def _queue_for(self, delivery: Delivery) -> SendingQueue:
        return next((queue for queue in self.unclear if queue.must_precede(delivery)), self)


logger = logging.getLogger(__name__)

OPEN_STATES = (DeliveryState.PENDING, DeliveryState.ATTEMPTING)
ATTEMPT_TIMEOUT = 60.0
FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, MAX_WAIT_SECONDS = 1.0, 60.0, 86_400.0
MAX_FAST_RETRIES = 5


@dataclass(frozen=True, slots=True)
class DeliveryAttempt:
    """The result of one attempt: the new state, and the seconds that the platform asks to wait.

    It is ATTEMPTING where the outcome is unknown and can still be found out, UNKNOWN where it cannot.
    """

    state: DeliveryState
    external_id: str = ""
    cause: str = ""
    retry_after: float | None = None


def begin_attempt(delivery: Delivery, now: datetime) -> Delivery:
    """Return a delivery as it is stored before the next attempt at it is made."""
    first_attempt_at = delivery.first_attempt_at or now
    attempts = delivery.attempts + 1
    return replace(delivery, state=DeliveryState.ATTEMPTING, attempts=attempts, first_attempt_at=first_attempt_at)


async def attempt_delivery(adapter: Adapter, delivery: Delivery, is_ambiguous: bool) -> DeliveryAttempt:
    """Try once, or reconcile where an earlier outcome is unknown; for at most a minute.

    An edit is not reconciled but made again.
    """
    cancellation = CancellationScope()
    try:
        async with asyncio.timeout(ATTEMPT_TIMEOUT):
            return DeliveryAttempt(DeliveryState.SENT, await _call_adapter(adapter, delivery, is_ambiguous))
    except NotSent as error:
        return DeliveryAttempt(DeliveryState.PENDING, cause=str(error), retry_after=error.retry_after)
    except MessageGone as error:
        return DeliveryAttempt(DeliveryState.CANCELLED, cause=str(error))
    except Undeliverable as error:
        return DeliveryAttempt(DeliveryState.FAILED, cause=str(error))
    except DeliveryHeld as error:
        return DeliveryAttempt(DeliveryState.UNKNOWN, cause=str(error))
    except DeliveryUnknown as error:
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause=str(error), retry_after=error.retry_after)
    except asyncio.CancelledError:
        if cancellation.requested:
            raise
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause="the adapter cancelled itself")
    except Exception as error:  # an adapter's fault may have come after the bytes left
        logger.warning("%s failed to deliver %s", adapter.platform, delivery.id, exc_info=True)
        return DeliveryAttempt(DeliveryState.ATTEMPTING, cause=f"{type(error).__name__}: {error}")


async def _call_adapter(adapter: Adapter, delivery: Delivery, is_ambiguous: bool) -> str:
    if delivery.replaces_external_id:
        return await adapter.edit(delivery)
    return await (adapter.reconcile(delivery) if is_ambiguous else adapter.deliver(delivery))


def retry_delay(attempts: int, retry_after: float | None = None, *, jitter: float = 0.0) -> float:
    """Return the seconds to wait after so many attempts: what the platform asks for, if that is plausible.

    Where it asks for none, the delay grows after a few attempts all the same; up to the share `jitter` of it
    is left out at random.
    """
    backoff = Backoff(FIRST_DELAY_SECONDS, MAX_DELAY_SECONDS, jitter=jitter).delay(attempts)
    if retry_after is None or not math.isfinite(retry_after) or retry_after < 0:
        return backoff
    return min(max(retry_after, backoff if attempts > MAX_FAST_RETRIES else 0.0), MAX_WAIT_SECONDS)


def has_retry_after(retry_after: float | None) -> bool:
    """Return whether a platform has named a wait, which is then respected, however long it has lasted."""
    return retry_after is not None and math.isfinite(retry_after) and retry_after > 0


async def persist_state(ledger: Ledger, delivery: Delivery) -> None:
    """Store a delivery's state, retrying while the store fails. Raises LeaseLost."""
    for failures in count(1):
        try:
            await ledger.save_delivery(delivery)
        except LeaseLost:
            raise
        except StoreUnavailable:  # the log has it once, and not for every part
            logger.debug("part %s waits to be written down", delivery.id)
        except Exception:  # the store's fault, and perhaps a passing one: what was sent must be known
            logger.warning("part %s could not be written down", delivery.id, exc_info=True)
        else:
            return
        await asyncio.sleep(retry_delay(failures))


@dataclass(frozen=True, slots=True)
class OutgoingReply:
    """A reply before it is split.

    `reply_index` counts the replies of its turn, `reply_to` is a platform's id, `replaces` is the earlier
    reply that is edited into this one.
    """

    memory: Memory
    room: Room
    reply_index: int = 0
    reply_to: str = ""
    replaces: Memory | None = None


def split_reply(
    reply: OutgoingReply, adapter: Adapter | None, created_at: datetime, previous: Sequence[Delivery] = ()
) -> list[Delivery]:
    """Split a reply into deliveries.

    Each edits one message of `previous` that was sent, as far as there are such; the remaining ones are deleted.
    A message of which `previous` has edits too is one.
    """
    room, memory = reply.room, reply.memory
    contents = adapter.split_content(_with_numbered_choices(memory.content, adapter)) if adapter else [memory.content]
    sent = [part for part in previous if part.state is DeliveryState.SENT and part.external_id]
    removed = {part.replaces_external_id for part in sent if is_removal(part)}
    sent_ids = [shown for shown in dict.fromkeys(part.external_id for part in sent) if shown not in removed]
    contents = [*contents, *[Content()] * (len(sent_ids) - len(contents))]
    turn_id = memory.turn_id or memory.id
    return [
        Delivery(
            id=delivery_id(turn_id, reply.reply_index, number),
            turn_id=turn_id,
            room_id=room.id,
            memory_id=memory.id,
            platform=room.platform,
            account=room.account,
            target=room.external_id,
            part=number,
            content=content,
            created_at=created_at,
            reply_to=reply.reply_to if number == 0 else "",
            replaces_external_id=sent_ids[number] if number < len(sent_ids) else "",
        )
        for number, content in enumerate(contents)
    ]


def is_removal(part: Delivery) -> bool:
    """Return whether a delivery only deletes a message."""
    content = part.content
    return bool(part.replaces_external_id) and not (content.text or content.attachments or content.choices)


def with_late_notice(part: Delivery, adapter: Adapter) -> Delivery:
    """Return the delivery with the notice that later ones came before it, where the platform has room for that.

    An edit needs none: its message stands where it belongs. Neither does what adds no message.
    """
    content = part.content
    is_action = content.operation is not None and not content.operation.creates_post
    if not adapter.marks_late_parts or part.replaces_external_id or part.draft_id == part.id or is_action:
        return part
    notice = user_text("notices.late")
    marked = replace(content, text=f"{notice}{content.text}")
    if len(adapter.split_content(marked)) > 1:
        return part
    return replace(part, content=marked, late_notice=notice)


def without_references(part: Delivery) -> Delivery:
    """Return the delivery without the ids that it edits and answers: they are unknown in its new room."""
    return replace(part, replaces_external_id="", reply_to="")


def _with_numbered_choices(content: Content, adapter: Adapter) -> Content:
    """Return the content with its choices as numbered lines, where the platform has no buttons."""
    if not content.choices or adapter.shows_choices:
        return content
    lines = [f"{number}. {choice.label}" for number, choice in enumerate(content.choices, 1)]
    if all(choice.label in content.text for choice in content.choices):
        lines = []
    return replace(content, text="\n".join([content.text, *lines]), choices=())


RETRY_BUDGET = timedelta(minutes=15)
RETRY_JITTER = 0.5


@dataclass(frozen=True, slots=True)
class RoomSender:
    """Sends deliveries; stores each attempt before it is made, and its outcome after it."""

    ledger: Ledger
    clock: Clock
    sleep: Sleep

    async def send(self, adapter: Adapter, queue: SendingQueue, delivery: Delivery) -> float:
        """Send a queue's delivery until its outcome is known; `queue.current` is updated with its state.

        Where the outcome of an attempt is unknown, only an `UnclearQueue` goes on with it. Return the seconds
        to wait before that.
        """
        if delivery.state not in OPEN_STATES:  # its outcome was known, but not yet written down, when it was stopped
            await persist_state(self.ledger, delivery)
        is_ambiguous, failures, delay = delivery.state is DeliveryState.ATTEMPTING, 0, 0.0
        if isinstance(queue, UnclearQueue):
            failures, queue.delay, delay = int(queue.delay > 0), 0.0, queue.delay
            await self._rest(queue, delay)
        while delivery.state in OPEN_STATES:
            delivery = await self._begin_attempt(adapter, queue, delivery)
            sendable = await self._as_sent(adapter, queue, delivery)
            was_ambiguous, attempt = is_ambiguous, await attempt_delivery(adapter, sendable, is_ambiguous)
            is_ambiguous = attempt.state is DeliveryState.ATTEMPTING
            failures += 1
            if is_ambiguous:
                delay = retry_delay(failures, attempt.retry_after, jitter=RETRY_JITTER)
            elif was_ambiguous and attempt.retry_after is None:
                delay = 0.0  # the pause was before the platform was asked
            else:
                delay = retry_delay(delivery.attempts, attempt.retry_after)
            delivery = self._with_outcome(queue, delivery, attempt, delay)
            queue.current = delivery
            crash_point("send.pre_record")
            await persist_state(self.ledger, delivery)
            crash_point(f"send.part{delivery.part + 1}")
            if is_ambiguous and not isinstance(queue, UnclearQueue):
                break
            if delivery.state in OPEN_STATES:
                await self._rest(queue, delay)
        return delay

    async def _begin_attempt(self, adapter: Adapter, queue: SendingQueue, delivery: Delivery) -> Delivery:
        queue.attempted_at = now = self.clock()
        begun = queue.take_begun(delivery) if isinstance(queue, RoomQueue) else None
        if begun is not None:
            delivery = begin_attempt(delivery, begun.first_attempt_at or now)  # this is stored already
        else:
            delivery = begin_attempt(delivery, now)
            if not adapter.supports_idempotent_send:
                await persist_state(self.ledger, delivery)
        queue.current = delivery
        return delivery

    async def _as_sent(self, adapter: Adapter, queue: SendingQueue, delivery: Delivery) -> Delivery:
        """Return a delivery as the adapter is given it: with a notice if others have arrived before it."""
        if not isinstance(queue, UnclearQueue):
            return delivery
        if queue.is_passed is None:
            try:
                others = await self.ledger.deliveries(is_open=False, room_id=delivery.room_id)
            except StoreUnavailable:
                return delivery
            arrived = (other for other in others if other.state is DeliveryState.SENT)
            queue.is_passed = any(other.seq > delivery.seq for other in arrived)
        return with_late_notice(delivery, adapter) if queue.is_passed else delivery

    def _with_outcome(
        self, queue: SendingQueue, delivery: Delivery, attempt: DeliveryAttempt, delay: float
    ) -> Delivery:
        if (withdrawn := queue.withdrawn) is not None:
            withdrawn = replace(withdrawn, attempts=delivery.attempts, first_attempt_at=delivery.first_attempt_at)
            if attempt.state is not DeliveryState.SENT:
                return withdrawn
            return replace(withdrawn, state=attempt.state, external_id=attempt.external_id, cause="")
        state, cause = attempt.state, attempt.cause
        is_set_aside = state is DeliveryState.ATTEMPTING and not isinstance(queue, UnclearQueue)
        if state in OPEN_STATES and not is_set_aside and self._is_given_up(queue, delivery, delay, attempt.retry_after):
            cause = f"given up after {delivery.attempts} attempts: {cause}"
            state = DeliveryState.FAILED if state is DeliveryState.PENDING else DeliveryState.UNKNOWN
        elif delay > MAX_DELAY_SECONDS and cause != delivery.cause:
            logger.warning("part %s waits for %.0f s: %s", delivery.id, delay, cause)
        return replace(delivery, state=state, external_id=attempt.external_id, cause=cause)

    def _is_given_up(self, queue: SendingQueue, delivery: Delivery, delay: float, retry_after: float | None) -> bool:
        """Return whether a delivery waits no longer: after a day where the platform named the wait.

        Such a wait does not count against the deliveries behind it. One of unknown outcome is late only since
        that is unknown.
        """
        now = self.clock()
        retry_at = now + timedelta(seconds=delay)
        is_unclear = isinstance(queue, UnclearQueue)
        since = max(queue.since, delivery.created_at) if isinstance(queue, UnclearQueue) else delivery.created_at
        if retry_after is not None and has_retry_after(retry_after):
            queue.not_before = retry_at
            is_hopeless = is_unclear and retry_after > MAX_WAIT_SECONDS
            return is_hopeless or retry_at - since > timedelta(seconds=MAX_WAIT_SECONDS)
        return (now if is_unclear else retry_at) - max(since, queue.not_before or since) > RETRY_BUDGET

    async def _rest(self, queue: SendingQueue, seconds: float) -> None:
        queue.resting_until = self.clock() + timedelta(seconds=seconds)
        try:
            await self.sleep(seconds)
        finally:
            queue.resting_until = None


TYPING_TIMEOUT = 5.0


class TypingIndicator:
    """Counts who is at work in each room; `adapters` are the connected ones by platform."""

    def __init__(self, adapters: Mapping[str, Adapter]) -> None:
        self._adapters = adapters
        self._active_turns: Counter[UUID] = Counter()
        self._shown: dict[UUID, tuple[Adapter, Room]] = {}

    @asynccontextmanager
    async def show(self, room: Room) -> AsyncIterator[None]:
        """Show that the agent is at work in a room, as long as the block lasts."""
        adapter = self._adapters.get(room.platform)
        if adapter is None or type(adapter).set_typing is Adapter.set_typing:
            yield
            return
        self._active_turns[room.id] += 1
        try:
            if self._active_turns[room.id] == 1:
                self._shown[room.id] = (adapter, room)
                await _call(adapter.set_typing(room, True), room)
            yield
        finally:
            self._active_turns[room.id] -= 1
            if not self._active_turns[room.id]:  # a turn that took this one over may still be writing
                del self._active_turns[room.id]
                self._shown.pop(room.id, None)
                await _call(adapter.set_typing(room, False), room)

    async def show_model_busy(self, room_id: UUID) -> None:
        """Show that the model is called again, in a room where the agent is typing."""
        if room_id in self._shown:
            adapter, room = self._shown[room_id]
            await _call(adapter.show_model_busy(room), room)


async def _call(call: Awaitable[None], room: Room) -> None:
    try:
        async with asyncio.timeout(TYPING_TIMEOUT):
            await call
    except Exception:  # a typing sign is a courtesy: it never costs the answer
        logger.debug("no typing sign in %s", room.id, exc_info=True)


MAX_AUDIO_BYTES = 8 * 2**20  # Discord takes ten million bytes
SUFFIXES = {"audio/ogg": ".ogg", "audio/mpeg": ".mp3", "audio/wav": ".wav", "audio/mp4": ".m4a", "audio/flac": ".flac"}
CODE_BLOCK = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
LINK = re.compile(r"!?\[([^\]\n]*)\]\([^)\s]*\)")
URL = re.compile(r"<?\bh(?:tt|xx)ps?://\S+")
LINE_MARK = re.compile(r"^[ \t]*(?:#{1,6}|>|[-*+]|\|)[ \t]+", re.MULTILINE)
EMPHASIS = re.compile(r"[*`~|]+|(?<!\w)_+|_+(?!\w)")


class VoiceReplies(StrEnum):
    """Which replies are spoken, beside being written."""

    NEVER = "never"
    VOICE = "voice"
    ALWAYS = "always"


class Speech:
    """Speaks replies of one agent on the platforms that play recordings, if there is a model that can.

    `find_adapter` returns the adapter of a platform, `filter_text` what of a text may be sent to a room. `mode` may be
    changed while the agent runs.
    """

    def __init__(
        self,
        models: ModelRouter,
        find_adapter: Callable[[str], Adapter | None],
        filter_text: Callable[[str, UUID], str],
        *,
        mode: VoiceReplies,
        max_length: int,
    ) -> None:
        self._models = models
        self._find_adapter, self._filter_text = find_adapter, filter_text
        self.mode, self._max_length = mode, max_length

    def is_due(self, room: Room, content: Content) -> bool:
        """Return whether a reply in a room to this content is spoken, unless its own text forbids it."""
        if self.mode is VoiceReplies.NEVER or (self.mode is VoiceReplies.VOICE and not _is_transcribed(content)):
            return False
        return bool(self._voice_type(room)) and self._models.has_handler_for(ModelType.TEXT_TO_SPEECH)

    async def add_speech(self, reply: Content, room: Room) -> tuple[Content, str]:
        """Return a reply with its spoken form, or as it is and why it is only written.

        The reason is empty where there is nothing to speak. No failure of a model costs the reply.
        """
        if reply.attachments:
            return reply, ""
        # The end of the line shows that nothing follows: what could be the start of a secret is none.
        text = to_spoken_text(self._filter_text(f"{reply.text}\n", room.id))
        if not text:
            return reply, ""
        if len(text) > self._max_length:
            return reply, f"the reply was not spoken: it has more than {self._max_length} characters (VOICE_MAX_LENGTH)"
        try:
            result = await self._models.speak(SpeechRequest(text, content_type=self._voice_type(room)))
        except ModelError as error:
            logger.warning("a reply for room %s is only written: %s", room.id, error)
            return reply, f"the reply was not spoken: {error}"
        if len(result.audio) > MAX_AUDIO_BYTES:
            logger.warning("a reply for room %s is only written: %s returned too much sound", room.id, result.model)
            return reply, f"the reply was not spoken: its recording is larger than {MAX_AUDIO_BYTES // 2**20} MiB"
        content_type = "audio/ogg" if result.audio.startswith(b"OggS") else result.content_type
        name = f"voice{SUFFIXES.get(content_type, '')}"
        speech = Attachment(SPEECH_ID, MediaKind.AUDIO, content_type=content_type, name=name, data=result.audio)
        return replace(reply, attachments=(speech,)), ""

    def _voice_type(self, room: Room) -> str:
        adapter = self._find_adapter(room.platform)
        return adapter.voice_type if adapter is not None else ""


def _is_transcribed(content: Content) -> bool:
    """Return whether a message was spoken and understood."""
    return any(attachment.text.strip() for attachment in content.attachments) and content.is_voice


def to_spoken_text(text: str) -> str:
    """Return the words of a Markdown text: without code, addresses and marks, which say nothing when read aloud."""
    text = URL.sub("", LINK.sub(r"\1", CODE_BLOCK.sub("", text)))
    return EMPHASIS.sub("", LINE_MARK.sub("", text)).strip()
