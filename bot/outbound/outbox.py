"""`Outbox`: commits replies, receipts and deliveries in one transaction, and queues them for sending.

`HeldParts`: deliveries of unknown outcome that wait for an operator, and the notices about them.

`UndeliveredParts`: list, retry or drop deliveries that have not arrived.

The "is typing…" status, shown from the first active turn in a room to the last.

`Speech`: adds the spoken form to a reply that answers a voice message, or to every one of a character.
"""

import asyncio
import logging
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import partial
from typing import Any, Protocol
from uuid import UUID

from bot.adapter.adapter import Adapter, Feed
from bot.concurrency.clock import Clock, ShutdownDeadline, Sleep, system_clock
from bot.concurrency.tasks import BoundedDict, TaskSet, crash_point
from bot.domain.content import SPEECH_ID, Attachment, Content, MediaKind
from bot.domain.environment import Room
from bot.domain.events import (
    ControlMessage,
    DeliveryFinished,
    HumanClaimsReplaced,
    MarkupRemoved,
    MessageClosed,
    MessageHeld,
    MessageSent,
    ModelRetried,
    ProposalUpdated,
    VoiceMessageSent,
)
from bot.domain.ids import delivery_id, derived_id
from bot.domain.inbound import RESPONSE_SOURCE
from bot.domain.ledger import DROPPED_CAUSE, Delivery, DeliveryKind, DeliveryState, Disclosure, Receipt, Step
from bot.domain.memory import NOTICE_KEY, WRITTEN_BY_KEY, Memory, MemoryKind
from bot.domain.proposal import Proposal
from bot.errors import ModelError, StoreUnavailable
from bot.event_bus import EventBus
from bot.models.router import ModelRouter
from bot.models.types import ModelType, SpeechRequest
from bot.outbound.content_filter import LinkPolicy, OutgoingFilter
from bot.outbound.drafts import Draft, Drafts, is_draft
from bot.outbound.notices import NOTICE_REPLY_INDEX, Notice, NoticeLog
from bot.outbound.sender import (
    CANCEL_GRACE_SECONDS,
    OPEN_STATES,
    OutgoingReply,
    SendQueue,
    WorkOwnership,
    build_reaction,
    build_thread_opening,
    is_removal,
    mark_late,
    persist_state,
    split_reply,
    with_late_notice,
    without_references,
)
from bot.store.ledger import Ledger, TurnCommit, WorkSharing
from bot.text import redact, shorten

logger = logging.getLogger(__name__)
MAX_REOPEN_AGE = timedelta(days=1)
MAX_LISTED = 1000
GESTURE_WINDOW, MAX_GESTURE_ROOMS = timedelta(hours=1), 1000
THREAD_SECONDS = 30.0  # for which an answer waits until its thread is open


class HeldParts:
    """Counts the held parts of one agent and reports each: in the log, and as an event for plugins."""

    def __init__(
        self, ledger: Ledger, events: EventBus, agent_id: UUID, ownership: WorkOwnership, clock: Clock
    ) -> None:
        self._ledger = ledger
        self._events = events
        self._agent_id = agent_id
        self._ownership = ownership
        self._clock = clock
        self._ids: set[str] = set()

    @property
    def count(self) -> int:
        """How many parts wait for a decision."""
        return len(self._ids)

    def add(self, part: Delivery) -> None:
        """Report a part that is held now."""
        logger.error(
            "part %s of a reply is held (%s): look whether %s has it, then `bot outbox send %s` or `… drop %s`",
            part.id,
            part.cause,
            part.platform,
            part.id,
            part.id,
        )
        self._ids.add(part.id)
        self._events.emit(MessageHeld(self._agent_id, part.memory_id, part.room_id, part.id, part.cause))

    def remove(self, delivery_id: str) -> None:
        """Record that a part was decided about."""
        self._ids.discard(delivery_id)

    async def reopen(self) -> None:
        """Open the parts again that an earlier process has held, where that was within a day; count the others.

        A part without an attempt of this database, such as one of a restored backup, stays held.
        """
        known_count = self.count
        for part in await self._ledger.undelivered(MAX_LISTED):
            is_held = part.state is DeliveryState.UNKNOWN and not is_draft(part)
            if not is_held or part.id in self._ids or not self._ownership.sends_room(part.room_id):
                continue
            if part.first_attempt_at is None or self._clock() - part.first_attempt_at > MAX_REOPEN_AGE:
                self._ids.add(part.id)
            else:
                await self._ledger.save_delivery(replace(part, state=DeliveryState.ATTEMPTING))
        if self.count > known_count:
            logger.warning("%d parts of replies are held: `bot outbox list` shows them", self.count)


MAX_ACTION_RESULT_LENGTH = 1_000  # characters
MIGRATED_CAUSE = "it stands in the room that this was before, where nothing can be changed any more"


class ProposalChanged(Exception):
    """A proposal does not wait any more, or has another revision than the one that was decided about."""


class ApprovalRule(Protocol):
    """Which replies and posts wait for a person; see `Approval`."""

    def find_reason(self, room: Room) -> str: ...
    def find_post_reason(self, room: Room) -> str: ...


async def _ignore_reopened(receipt_id: UUID) -> None:
    """Do nothing: the next start of the bot finds the open receipt."""


class Outbox:
    """Commits an agent's replies with the receipts they close, then sends their deliveries room by room.

    `secrets` are values that must never leave, `link_policy` says what links may carry; where it
    `is_streaming`, replies are shown while they are written. `approval` says what waits for a person, None where
    nothing does. A reply for a platform that is not connected waits; so does one in a room that another process owns,
    by `sharing`. `on_reopened` receives the id of a receipt whose turn goes on, because an action of it was approved.
    """

    def __init__(
        self,
        ledger: Ledger,
        events: EventBus,
        agent_id: UUID,
        *,
        secrets: Collection[str] = (),
        link_policy: LinkPolicy | None = None,
        is_streaming: bool = True,
        sharing: WorkSharing | None = None,
        clock: Clock = system_clock,
        sleep: Sleep = asyncio.sleep,
        shutdown_deadline: ShutdownDeadline | None = None,
    ) -> None:
        self._ledger = ledger
        self._events = events
        events.subscribe(ModelRetried, self._on_model_retried)
        events.subscribe(ControlMessage, self._on_control_message)
        self._agent_id = agent_id
        self._clock = clock
        self._secrets = frozenset(secrets)
        self._filter = OutgoingFilter(self._secrets, link_policy, on_claims=self._report_claims, clock=clock)
        self.filter_text = self._filter.filter_partial
        self._migrated: dict[UUID, Room] = {}  # turns in progress may still name the room as it was
        self._commits = TaskSet("commit", logs_failures=False)
        self._gesture_times = BoundedDict[tuple[DeliveryKind, UUID], deque[datetime]](MAX_GESTURE_ROOMS, deque)
        self._awaited: dict[str, asyncio.Future[None]] = {}  # by delivery: done once that is finished
        self._removing_drafts: set[UUID] = set()  # turns whose draft is just being removed
        self.is_streaming = is_streaming
        self.approval: ApprovalRule | None = None
        self.on_reopened: Callable[[UUID], Awaitable[object]] = _ignore_reopened
        self._drafts = Drafts(
            ledger,
            filter_text=self._filter.filter_partial,
            can_send=lambda delivery: not self._queue.is_blocked(delivery.room_id),
            clock=clock,
            sleep=sleep,
        )
        self.shown_text = self._drafts.shown_text
        self._queue = SendQueue(
            ledger,
            self._drafts,
            on_held=lambda delivery: self.held_parts.add(delivery),
            on_finished=self._on_finished,
            sharing=sharing,
            clock=clock,
            sleep=sleep,
            shutdown_deadline=shutdown_deadline or ShutdownDeadline(),
        )
        self.adapters, self.ownership = self._queue.adapters, self._queue.ownership
        self.wait_of, self.has_draft = self._queue.wait_of, self._drafts.has_draft
        self.is_full = partial(self._queue.is_full, agent_id=agent_id)
        self._typing = TypingIndicator(self.adapters)
        self.show_typing = self._typing.show
        self.held_parts = HeldParts(ledger, events, agent_id, self.ownership, clock)
        self.notices = NoticeLog(ledger, events)
        self.on_refused: Callable[[Delivery], None] | None = None  # called with a part that cannot be delivered

    def connect(self, adapter: Adapter) -> None:
        """Make a platform reachable; what waits for it is sent now."""
        self._queue.connect(adapter)

    def disconnect(self, adapter: Adapter) -> None:
        """Stop sending to a platform, also what is being sent just now, until it is connected again."""
        self._queue.disconnect(adapter)

    def feeds(self) -> list[Feed]:
        """List where the agent posts on the connected platforms."""
        feeds = (adapter.feed(self._agent_id) for adapter in self.adapters.values())
        return [feed for feed in feeds if feed is not None]

    async def commit(
        self,
        replies: Sequence[OutgoingReply] = (),
        receipts: Sequence[Receipt] = (),
        action_results: Sequence[Memory] = (),
        *,
        notice: Notice | None = None,
    ) -> list[Memory]:
        """Store replies, their deliveries, receipts and results of actions in one transaction, then send.

        The notice, and that it was given, is stored with them, and it is sent before the first reply. Return the
        replies as they were stored; one of which the content filter leaves nothing is dropped.
        """
        stored, notices, deliveries = await self._prepare(replies, receipts, notice)
        if self._drafts.by_turn:
            closed_turns = {
                receipt.turn_id for receipt in receipts if receipt.turn_id is not None and receipt.outcome.is_final
            }
            deliveries = await self._drafts.replace_drafts(deliveries, closed_turns)
        results = map(self._redact_result, action_results)
        disclosures = _disclose(notice, [*notices, *deliveries]) if notice is not None else ()
        turn_commit = TurnCommit((*stored, *results), (*notices, *deliveries), tuple(receipts), disclosures)
        await self._commit(turn_commit)
        if disclosures:
            self.notices.note(disclosures)
        return stored

    async def _prepare(
        self, replies: Sequence[OutgoingReply], receipts: Sequence[Receipt], notice: Notice | None
    ) -> tuple[list[Memory], list[Delivery], list[Delivery]]:
        """Return replies as they are stored, with the delivery of the notice and their own deliveries."""
        stored: list[Memory] = []
        deliveries: list[Delivery] = []
        notices: list[Delivery] = []
        for reply in replies:
            if reply.memory.kind is MemoryKind.REACTION:
                reply = self._with_current_room(reply)
                deliveries.append(build_reaction(reply, self._clock()))
                if reply.memory.content.text:
                    stored.append(reply.memory)
                    self._gesture_times[DeliveryKind.REACTION, reply.room.id].append(self._clock())
                continue
            content, markup = self._filter.filter(
                reply.memory.content, reply.memory.room_id, is_by_person=WRITTEN_BY_KEY in reply.memory.metadata
            )
            if markup:
                self._report_markup(reply.memory, markup, receipts)
            if content is None:
                logger.info("a reply of turn %s was empty; nothing is sent", reply.memory.turn_id)
                continue
            reply = self._with_current_room(reply)
            if content is not reply.memory.content:
                reply = replace(reply, memory=replace(reply.memory, content=content))
            if notice is not None and not notices and self._shows_notices(reply.room):
                notices.append(self._build_notice(notice, reply))
                given = {"id": str(notices[0].memory_id), "text": notice.text}
                metadata = {**reply.memory.metadata, NOTICE_KEY: given}
                reply = replace(reply, memory=replace(reply.memory, metadata=metadata))
            stored.append(reply.memory)
            deliveries += await self._split(reply)
        return stored, notices, deliveries

    def has_spare(self, kind: DeliveryKind, room_id: UUID, limit: int) -> bool:
        """Return whether fewer than `limit` gestures of a kind were made in a room within an hour.

        Those of earlier processes do not count.
        """
        times = self._gesture_times[kind, room_id]
        while times and self._clock() - times[0] > GESTURE_WINDOW:
            times.popleft()
        return len(times) < limit

    async def open_thread(
        self, room: Room, turn_id: UUID, name: str, reply_to: str, *, seconds: float = THREAD_SECONDS
    ) -> Delivery:
        """Open a thread in a room, once for a turn, and return its delivery when that is finished.

        What an earlier attempt at the turn has stored goes on. After so many seconds it is cancelled.
        """
        room = self._migrated.get(room.id, room)
        opening = build_thread_opening(room, turn_id, name, reply_to, self._clock())
        finished = self._awaited[opening.id] = asyncio.get_running_loop().create_future()
        try:
            stored = await self._ledger.delivery(opening.id)
            if stored is None:
                self._gesture_times[DeliveryKind.THREAD, room.id].append(self._clock())
                await self._commit(TurnCommit(deliveries=(opening,)))
            elif stored.state in OPEN_STATES:
                self._queue.enqueue([stored])
            else:
                return stored
            await asyncio.wait({finished}, timeout=seconds)
        finally:
            del self._awaited[opening.id]
        stored = await self._ledger.delivery(opening.id) or opening
        if stored.state in OPEN_STATES:
            stored = replace(stored, state=DeliveryState.CANCELLED, cause=f"it was not open after {seconds:.0f} s")
            await persist_state(self._ledger, stored)
            await self.stop_cancelled([stored])
        return stored

    def filter_content(self, content: Content, room_id: UUID) -> Content | None:
        """Return what of a content may be sent to a room; None where that is nothing."""
        return self._filter.filter(content, room_id)[0]

    async def commit_proposal(
        self,
        proposal: Proposal,
        receipts: tuple[Receipt, ...],
        action_results: Sequence[Memory],
        cards: Sequence[OutgoingReply],
        replaced: Sequence[str],
    ) -> None:
        """Store a proposal, the receipts that it parks and results of actions, and send the cards for approvers.

        All of it is one transaction, which also replaces the proposals with the ids in `replaced`.
        """
        turn_commit = TurnCommit(
            tuple(map(self._redact_result, action_results)),
            await self._split_cards(cards),
            receipts,
            proposal=proposal,
            replaced=tuple(replaced),
        )
        await self._commit(turn_commit)
        crash_point("proposal.committed")
        self.announce(proposal)

    async def commit_decision(
        self,
        decided: Proposal,
        revision: int,
        reply: OutgoingReply | None,
        cards: Sequence[OutgoingReply],
        *,
        notice: Notice | None = None,
        editor: str | None = None,
        is_late: bool = False,
    ) -> None:
        """Store a proposal in its new state with the reply that it becomes, in one transaction, then send.

        A reply that `is_late` says so. Raises ProposalChanged, with nothing written, where the stored proposal does not
        wait any more or has another revision, or another `editor` if one is given.
        """
        stored, notices, parts = await self._prepare([reply] if reply else [], (), notice)
        if parts and is_late:
            adapter = self.adapters.get(parts[0].platform)
            parts[0] = with_late_notice(parts[0], adapter) if adapter is not None else mark_late(parts[0])
        disclosures = _disclose(notice, [*notices, *parts]) if notice is not None else ()
        deliveries = (*notices, *parts, *await self._split_cards(cards))

        async def store(turn_commit: TurnCommit) -> list[Delivery]:
            placed = await self._ledger.decide_proposal(decided, revision, turn_commit, editor=editor)
            if placed is None:
                raise ProposalChanged
            return placed

        await self._commit(TurnCommit(tuple(stored), deliveries, disclosures=disclosures), store)
        if disclosures:
            self.notices.note(disclosures)
        crash_point("proposal.decided")
        self.announce(decided)

    def announce(self, proposal: Proposal) -> None:
        """Emit an event: a proposal is new or changed."""
        self._events.emit(ProposalUpdated(self._agent_id, proposal))

    async def send_cards(self, cards: Sequence[OutgoingReply]) -> None:
        """Send messages for approvers, which are no part of a conversation."""
        if cards:
            await self._commit(TurnCommit(deliveries=await self._split_cards(cards)))

    async def _split_cards(self, cards: Sequence[OutgoingReply]) -> tuple[Delivery, ...]:
        return tuple([part for card in cards for part in await self._split(self._with_current_room(card))])

    def _shows_notices(self, room: Room) -> bool:
        adapter = self.adapters.get(room.platform)
        return adapter is None or adapter.shows_notices

    def _build_notice(self, notice: Notice, reply: OutgoingReply) -> Delivery:
        """Return the delivery of a notice that is sent before a reply."""
        room, turn_id = reply.room, reply.memory.turn_id or reply.memory.id
        return Delivery(
            id=delivery_id(turn_id, NOTICE_REPLY_INDEX, 0),
            turn_id=turn_id,
            room_id=room.id,
            memory_id=derived_id(turn_id, NOTICE_KEY),
            platform=room.platform,
            account=room.account,
            target=room.external_id,
            part=0,
            content=Content(text=notice.text, in_reply_to=reply.memory.content.in_reply_to),
            created_at=self._clock(),
            kind=DeliveryKind.NOTICE,
        )

    async def commit_referral(
        self, reply: OutgoingReply, person_id: UUID, category: str = "", referred_before: datetime | None = None
    ) -> str:
        """Store a referral, that a person gets it and its count in one transaction, then send it.

        Return the id of its first delivery. It is the operator's text, which nothing filters. Without a category it is
        not counted. Raises AlreadyReferred if the person got another one after `referred_before`.
        """
        reply = self._with_current_room(reply)
        deliveries = [replace(part, kind=DeliveryKind.REFERRAL) for part in await self._split(reply)]
        first = deliveries[0]
        disclosure = Disclosure(person_id, DeliveryKind.REFERRAL, first.created_at, first.room_id, first.id)
        turn_commit = TurnCommit(
            (reply.memory,),
            tuple(deliveries),
            disclosures=(disclosure,),
            care_category=category,
            referred_before=referred_before,
        )
        await self._commit(turn_commit)
        return first.id

    async def commit_response(
        self, receipt: Receipt, deliveries: Sequence[Delivery] = (), response: Step | None = None
    ) -> None:
        """Store how a command ended in one transaction, then send the deliveries of its response."""
        await self._commit(
            TurnCommit(deliveries=tuple(deliveries)),
            lambda turn_commit: self._ledger.close_command(receipt, turn_commit.deliveries, response),
        )

    def _report_markup(self, memory: Memory, found: Sequence[str], receipts: Sequence[Receipt]) -> None:
        """Report markup of a model in a reply: the reader of answers should have removed it."""
        ids = ", ".join(str(receipt.id) for receipt in receipts) or f"of turn {memory.turn_id}"
        logger.warning("markup of the model was removed from a reply before it was sent: %s (receipt %s)", found, ids)
        self._events.emit(MarkupRemoved(self._agent_id, memory.room_id, tuple(found)))

    def _report_claims(self, room_id: UUID, count: int) -> None:
        """Report claims to be human that were replaced in a reply."""
        logger.warning("a reply in room %s claimed to be by a human: %d claims were replaced", room_id, count)
        self._events.emit(HumanClaimsReplaced(self._agent_id, room_id, count))

    def open_draft(self, room: Room, turn_id: UUID, build_reply: Callable[[], OutgoingReply]) -> Draft | None:
        """Return what shows a reply while it is written; None where the platform takes whole replies only.

        The turn's first reply takes its place. Where the turn closes without one, the draft is removed. `build_reply`
        is called when something is to be shown.
        """
        adapter = self.adapters.get(room.platform)
        interval = adapter.stream_interval(room) if adapter is not None and self.is_streaming else None
        if adapter is None or interval is None:
            return None
        return self._drafts.open_draft(turn_id, lambda: self._with_current_room(build_reply()), adapter, interval)

    def on_closed(self, receipt: Receipt) -> None:
        """Report the outcome of a message, and remove the draft of a turn that was closed without a reply."""
        self._events.emit(MessageClosed(self._agent_id, receipt))
        if receipt.turn_id is not None and self.has_draft(receipt.turn_id):
            self.remove_draft(receipt.turn_id)

    def remove_draft(self, turn_id: UUID) -> Awaitable[None]:
        """Remove the draft of a turn that will not reply, also where the caller does not wait."""
        return asyncio.shield(self._commits.start(self._remove_draft(turn_id)))

    async def resume(self) -> int:
        """Queue the deliveries that an earlier process left open or held, and return how many there are."""
        await self.held_parts.reopen()
        stored = await self._ledger.deliveries(is_open=True)
        owned = [delivery for delivery in stored if self.ownership.sends_room(delivery.room_id)]
        pending, abandoned_turns = await self._drafts.resume(owned)
        for turn_id in abandoned_turns:
            await self.remove_draft(turn_id)
        for turn_id in {delivery.turn_id for delivery in pending if delivery.part}:
            self._queue.note_incomplete(await self._ledger.deliveries(is_open=False, turn_id=turn_id))
        self._queue.enqueue_resumed(pending)
        return len(pending)

    async def send_pending(self, turn_id: UUID) -> None:
        """Send what an earlier attempt of a turn has committed; what is queued already stays as it is."""
        pending = await self._ledger.deliveries(is_open=True, turn_id=turn_id)
        self._queue.enqueue([delivery for delivery in pending if not is_draft(delivery)])

    async def requeue(self, delivery: Delivery) -> None:
        """Send a delivery that was held or had failed, and that the ledger now has as pending."""
        self.held_parts.remove(delivery.id)
        closed = await self._ledger.deliveries(is_open=False, turn_id=delivery.turn_id)
        self._queue.note_incomplete([part for part in closed if part.memory_id == delivery.memory_id])
        self._queue.forget_finished([delivery])
        self._queue.enqueue([delivery])

    async def cancel_delivery(self, delivery: Delivery) -> bool:
        """Take a delivery out of its room's queue; False where it is being sent just now."""
        return await self._queue.cancel(delivery)

    def is_busy(self, room_id: UUID) -> bool:
        """Return whether deliveries of a room wait here, are being sent, or are shown as a draft."""
        return self._queue.is_busy(room_id) or self._drafts.is_showing(room_id)

    async def release(self) -> None:
        """Stop sending: another process does it now."""
        await asyncio.gather(self._queue.release(), self._drafts.stop())  # a draft may take a second to stop

    async def stop_cancelled(self, cancelled: Sequence[Delivery]) -> None:
        """Stop sending what the ledger has as cancelled.

        A delivery that is being sent just now finishes its attempt, and ends as sent or cancelled.
        """
        for delivery in cancelled:
            self.held_parts.remove(delivery.id)
            is_queued = self._queue.is_queued(delivery)
            if not await self._queue.cancel(delivery):
                self._queue.withdraw(delivery)
                continue
            if is_queued:  # an attempt may have been stored over the cancellation
                await persist_state(self._ledger, delivery)
            if (removal := self._drafts.find_removal(delivery)) is not None:
                await self._commit(TurnCommit(deliveries=(removal,)))

    async def migrate_room(self, room_id: UUID, room: Room, pending: Sequence[Delivery]) -> None:
        """Send what waits in a room to the one that it has become, also what is still to be committed."""
        self._migrated[room_id] = room
        await self._drafts.migrate(room_id)
        pending = [delivery for delivery in pending if not is_draft(delivery)]
        moved = [item for item in pending if await self._queue.cancel(replace(item, room_id=room_id))]
        self._queue.forget_finished(moved)
        for delivery in filter(is_removal, pending):
            cancelled = replace(delivery, state=DeliveryState.CANCELLED, cause=MIGRATED_CAUSE)
            await persist_state(self._ledger, cancelled)
        self._queue.enqueue([without_references(item) for item in pending if not is_removal(item)])

    async def drain(self, seconds: float) -> int:
        """Wait for commits and senders, then stop them; return how many rooms still have deliveries.

        What is not sent stays in the ledger, for the room's next reply or the next start.
        """
        clock = asyncio.get_running_loop().time
        end_time = clock() + seconds
        await self._commits.wait(min(seconds, CANCEL_GRACE_SECONDS))
        return await self._queue.drain(end_time - clock())

    async def close(self, seconds: float) -> int:
        """Drain, and send nothing more: what is committed from now on waits for the next start."""
        await self._drafts.stop()
        open_rooms = await self.drain(seconds)
        self._queue.close()
        return open_rooms

    async def _on_model_retried(self, event: ModelRetried) -> None:
        if event.room_id is not None:
            await self._typing.show_model_busy(event.room_id)

    async def _on_control_message(self, event: ControlMessage) -> None:
        for adapter in list(self.adapters.values()):
            await adapter.show_control(event.room_id, event.action, event.target)

    async def _remove_draft(self, turn_id: UUID) -> None:
        if not self.has_draft(turn_id) or turn_id in self._removing_drafts:
            return
        self._removing_drafts.add(turn_id)
        try:
            removals = await self._drafts.replace_drafts([], [turn_id])
            await self._commit(TurnCommit(deliveries=tuple(removals)))
        except StoreUnavailable:
            logger.debug("the draft of turn %s stays until the next start", turn_id)
        finally:
            self._removing_drafts.discard(turn_id)

    def _with_current_room(self, reply: OutgoingReply) -> OutgoingReply:
        """Return the reply for the room that its own has become; there it answers no message by its id."""
        room = self._migrated.get(reply.room.id)
        if room is None:
            return reply
        memory = replace(reply.memory, room_id=room.id, world_id=room.world_id)
        return replace(reply, memory=memory, room=room, reply_to="")

    def redact(self, text: str) -> str:
        """Return a text without secrets."""
        return redact(text, self._secrets)

    def _redact_result(self, result: Memory) -> Memory:
        """Return the result of an action shortened, without secrets, in the room that its own has become."""
        room = self._migrated.get(result.room_id)
        if room is not None:
            result = replace(result, room_id=room.id, world_id=room.world_id)
        text = shorten(self.redact(result.content.text), MAX_ACTION_RESULT_LENGTH)
        return replace(result, content=replace(result.content, text=text))

    async def _split(self, reply: OutgoingReply) -> list[Delivery]:
        previous: list[Delivery] = []
        if reply.replaces is not None:
            stored = await self._ledger.deliveries(turn_id=reply.replaces.turn_id)
            same_target = (item for item in stored if item.target == reply.room.external_id)
            previous = [item for item in same_target if item.memory_id == reply.replaces.id]
        return split_reply(reply, self.adapters.get(reply.room.platform), self._clock(), previous)

    async def _commit(
        self, turn_commit: TurnCommit, store: Callable[[TurnCommit], Coroutine[Any, Any, list[Delivery]]] | None = None
    ) -> None:
        """Store a commit and queue its deliveries, also where the caller is cancelled meanwhile."""
        deliveries, room_ids = self._queue.begin_commit(turn_commit.deliveries)
        turn_commit = replace(turn_commit, deliveries=deliveries)
        task = self._commits.start((store or self._ledger.commit)(turn_commit))
        try:
            await asyncio.shield(task)
        finally:
            if task.done():
                self._on_committed(turn_commit.deliveries, room_ids, task)
            else:
                task.add_done_callback(partial(self._on_committed, turn_commit.deliveries, room_ids))

    def _on_committed(
        self, committed: Sequence[Delivery], room_ids: Collection[UUID], task: asyncio.Task[list[Delivery]]
    ) -> None:
        if not task.cancelled() and task.exception() is None:
            crash_point("outbox.committed")
            deliveries = task.result()
            if replacements := [delivery for delivery in deliveries if delivery.draft_id]:
                deliveries = [*self._drafts.note_committed(replacements), *deliveries]
            self._queue.enqueue_committed(committed, deliveries)
        self._queue.end_commit(room_ids)

    def _on_finished(self, delivery: Delivery, is_message_whole: bool) -> None:
        if (awaited := self._awaited.get(delivery.id)) is not None and not awaited.done():
            awaited.set_result(None)
        if delivery.state is DeliveryState.FAILED and self.on_refused is not None:
            self.on_refused(delivery)
        events: list[DeliveryFinished | MessageSent] = [DeliveryFinished(self._agent_id, delivery)]
        is_reply = delivery.kind is DeliveryKind.REPLY and delivery.content.source != RESPONSE_SOURCE
        if is_message_whole and is_reply:  # the others are no messages of the conversation
            has_recording = any(attachment.kind is MediaKind.AUDIO for attachment in delivery.content.attachments)
            kind = VoiceMessageSent if has_recording else MessageSent
            ids = (delivery.memory_id, delivery.room_id, delivery.turn_id)
            events.append(kind(self._agent_id, *ids, external_id=delivery.external_id))
        for event in events:
            self._events.emit(event)


def _disclose(notice: Notice, deliveries: Sequence[Delivery]) -> tuple[Disclosure, ...]:
    """Return who is told by the first of these deliveries that an AI writes."""
    return tuple(
        Disclosure(person, DeliveryKind.NOTICE, first.created_at, first.room_id, first.id)
        for first in deliveries[:1]
        for person in sorted(notice.people)
    )


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


MAX_OVERDUE_READ = 500
HELD_STATES = (DeliveryState.UNKNOWN, DeliveryState.FAILED)


@dataclass(frozen=True, slots=True)
class DeliveryDecision:
    """A delivery after a decision, whether it is now as requested, and a note about it."""

    part: Delivery
    is_done: bool
    note: str


@dataclass(frozen=True, slots=True)
class DeliveryStatus:
    """Why a part has not arrived, in one sentence, and when it is tried again, where that is known."""

    why: str
    next_attempt_at: datetime | None = None


BEHIND_CAUSE = "behind another part of its room"


def list_behind(parts: Sequence[Delivery]) -> frozenset[str]:
    """Return the ids of parts that were never attempted and wait behind an earlier one of their room among `parts`."""
    first: dict[UUID, int] = {}
    for part in parts:
        if part.state in OPEN_STATES:
            first[part.room_id] = min(part.seq, first.get(part.room_id, part.seq))
    return frozenset(
        part.id for part in parts if part.state in OPEN_STATES and not part.attempts and part.seq > first[part.room_id]
    )


def describe_cause(part: Delivery, behind: Collection[str]) -> str:
    """Return why a part has not arrived, as far as that is stored: with the begin and end of a pause, in UTC."""
    if part.state not in OPEN_STATES or part.next_attempt_at is None:
        return part.cause or (BEHIND_CAUSE if part.id in behind else "")
    begin = f"since {_to_utc_text(part.first_attempt_at)}, " if part.first_attempt_at is not None else ""
    wait = f"waiting {begin}until about {_to_utc_text(part.next_attempt_at)}"
    return f"{part.cause}; {wait}" if part.cause else wait


def _to_utc_text(time: datetime) -> str:
    return f"{time.astimezone(UTC):%Y-%m-%d %H:%M:%S} UTC"


def is_dropped(part: Delivery) -> bool:
    """Return whether an operator has given a part up; it is sent again only by name."""
    return part.state is DeliveryState.FAILED and part.cause == DROPPED_CAUSE


class UndeliveredParts:
    """Lists what has not arrived, sends a part again, or gives it up.

    Without an `outbox` nothing is being sent: what is retried then is sent at the next start.
    """

    def __init__(self, ledger: Ledger, outbox: Outbox | None = None) -> None:
        self._ledger = ledger
        self._outbox = outbox
        self._lock = asyncio.Lock()  # a part put back twice at once would leave twice

    @property
    def held_count(self) -> int:
        """How many parts wait for an operator's decision, as far as this process knows."""
        return self._outbox.held_parts.count if self._outbox is not None else 0

    async def parts(self, limit: int = 100) -> list[Delivery]:
        """List the latest parts that wait, are held or have failed, in the order of sending."""
        return await self._ledger.undelivered(limit)

    def explain(self, part: Delivery) -> DeliveryStatus:
        """Return why a part has not arrived, and when it is tried again."""
        cause = part.cause.rstrip(".")
        if part.state is DeliveryState.UNKNOWN:
            return DeliveryStatus(f"{cause or 'The connection broke off'}: it is unknown whether it arrived")
        if part.state not in OPEN_STATES:
            return DeliveryStatus(cause or "It was refused")
        if self._outbox is None:
            return DeliveryStatus("The bot is not running: it is sent at the next start")
        wait = self._outbox.wait_of(part)
        if wait is None and not self._outbox.ownership.sends_room(part.room_id):
            return DeliveryStatus("Another process sends it", part.next_attempt_at)
        if self._outbox.adapters.get(part.platform) is None:
            return DeliveryStatus(f"{part.platform} is not connected: it is sent once it is")
        if wait is not None and wait.is_behind:
            return DeliveryStatus("Behind another part of the same room")
        if wait is not None and wait.until is not None:
            return DeliveryStatus(cause or "It is tried again after a pause", wait.until)
        return DeliveryStatus("It is being sent")

    async def find_overdue(self, connected: Mapping[str, datetime], before: datetime) -> datetime | None:
        """Return since when the oldest part has waited that was to be sent before a time; None without any.

        `connected` says since when each platform is connected; parts of others wait for that. What waits for a pause
        that the platform has asked for, behind another part, or elsewhere, is not overdue.
        """
        overdue = []
        for part in await self._ledger.undelivered(MAX_OVERDUE_READ):
            wait = self._outbox.wait_of(part) if self._outbox is not None and part.state in OPEN_STATES else None
            if wait is not None and not wait.is_behind and part.platform in connected:
                since = max(part.created_at, connected[part.platform])
                overdue.append(max(since, wait.not_before or since))
        return min((since for since in overdue if since <= before), default=None)

    async def retry(self, delivery_id: str) -> DeliveryDecision | None:
        """Queue a held or failed part again; return None where there is no such part."""
        async with self._lock:
            part = await self._ledger.delivery(delivery_id)
            if part is None:
                return None
            if part.state in OPEN_STATES:
                return DeliveryDecision(part, True, "it is on its way already")
            if part.state not in HELD_STATES:
                return _build_final_decision(part)
            if is_draft(part):
                return DeliveryDecision(part, False, "it is only what was seen of a reply while that was written")
            part = replace(part, state=DeliveryState.PENDING, cause="")
            await self._ledger.save_delivery(part)
            if self._outbox is None:
                return DeliveryDecision(part, True, "it leaves at the next start")
            await self._outbox.requeue(part)
            return DeliveryDecision(part, True, "it leaves as soon as its platform takes it")

    async def drop(self, delivery_id: str) -> DeliveryDecision | None:
        """Cancel the delivery of a part; return None if there is no such part."""
        async with self._lock:
            part = await self._ledger.delivery(delivery_id)
            if part is not None and part.state in OPEN_STATES and self._outbox is not None:
                if not await self._outbox.cancel_delivery(part):
                    return DeliveryDecision(part, False, "it is being sent just now: try again in a moment")
                part = await self._ledger.delivery(delivery_id)  # again, now that it is not being sent
            if part is None:
                return None
            if part.state not in (*OPEN_STATES, *HELD_STATES):
                return _build_final_decision(part)
            part = replace(part, state=DeliveryState.FAILED, cause=DROPPED_CAUSE)
            await self._ledger.save_delivery(part)
            if self._outbox is not None:
                self._outbox.held_parts.remove(part.id)
            return DeliveryDecision(part, True, "it is given up for good")


def _build_final_decision(part: Delivery) -> DeliveryDecision:
    return DeliveryDecision(part, False, f"nothing is left to decide: it is {part.state} already")
